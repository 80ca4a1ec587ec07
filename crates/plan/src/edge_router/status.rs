//! Puts the facts about one router into words, while the decision is taken: what
//! the status of a [`Draft`] says. Called by the decisions beside it.

use super::certificate::{self, Expiry};
use super::draft::Draft;
use super::{Entity, Facts, NetworkFacts, Problem, SecretFacts, Step, View};
use crate::conditions::Truth;
use crate::token::TokenFacts;
use api::edge_router::{AgentReport, IntentAct};
use api::reasons::{self, types};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;

impl Draft {
    pub(super) fn not_registered(mut self, problem: Problem) -> Self {
        self.conditions.set(
            types::REGISTERED,
            Truth::False,
            problem.reason,
            problem.message,
        );
        self
    }

    /// The network cannot be asked. What is known stays: an outage is told
    /// once, by the ZitiNetwork, and not by each router.
    pub(super) fn network_unusable(mut self, problem: Problem) -> Self {
        let known = self.status.id.is_some() && self.conditions.get(types::READY).is_some();
        if !known {
            self.conditions.set(
                types::REGISTERED,
                Truth::False,
                problem.reason,
                problem.message,
            );
        } else if problem.reason == reasons::NETWORK_NOT_READY {
            // But for a pause, which is over.
            let ready = self.conditions.get(types::READY);
            self.keep = ready.is_none_or(|ready| ready.reason != reasons::PAUSED);
        } else {
            self.conditions
                .set(types::READY, Truth::False, problem.reason, problem.message);
        }
        self
    }

    pub(super) fn registering(mut self) -> Self {
        let message = format!("router {:?} is being registered", self.wanted_name);
        self.conditions
            .set(types::REGISTERED, Truth::False, reasons::PENDING, message);
        self.watch_closely = true;
        self
    }

    /// The router is on the network under our name.
    pub(super) fn registered(&mut self, entity: &Entity, view: &View) {
        let settled = match &self.status.intent {
            Some(intent) if intent.act == IntentAct::ReEnroll => {
                // Done when another token stands there, or was redeemed already;
                // moot when the router is back with its old identity.
                let token = entity.token.as_ref().map(|token| token.digest.as_str());
                let other_token = token.is_some() && token != intent.previous_token.as_deref();
                let other_certificate =
                    entity.verified && entity.fingerprint != self.status.fingerprint;
                other_token || other_certificate || entity.online
            }
            _ => true,
        };
        if settled {
            self.status.intent = None;
        }
        self.status.id = Some(entity.id.clone());
        self.status.network_identity = Some(view.identity.clone());
        let message = format!(
            "router {:?} is registered with id {}",
            entity.name, entity.id
        );
        self.conditions
            .set(types::REGISTERED, Truth::True, reasons::REGISTERED, message);
        self.seen(entity, view.fresh);
    }

    /// What the network shows of the router itself.
    pub(super) fn seen(&mut self, entity: &Entity, fresh: bool) {
        self.status.fingerprint.clone_from(&entity.fingerprint);
        self.certificate(Expiry::of(entity, self.agent.as_ref()));
        if entity.version.is_some() {
            self.status.router_version.clone_from(&entity.version);
        }
        if entity.hostname.is_some() {
            self.status.hostname.clone_from(&entity.hostname);
        }
        let pod = self
            .agent
            .as_ref()
            .filter(|agent| agent.is_enrolled())
            .map(|agent| agent.pod_uid.clone());
        if entity.online && entity.synced && entity.verified {
            let message = format!("router {:?} is connected and in sync", entity.name);
            self.conditions
                .set(types::ONLINE, Truth::True, reasons::ONLINE, message);
            if fresh {
                self.status.online_pod = pod;
            }
        } else if entity.online {
            let message = format!("router {:?} is connected and not in sync yet", entity.name);
            self.conditions
                .set(types::ONLINE, Truth::False, reasons::SYNCING, message);
            self.watch_closely = true;
        } else {
            let message = format!("router {:?} is not connected", entity.name);
            self.conditions
                .set(types::ONLINE, Truth::False, reasons::OFFLINE, message);
            self.status.online_pod = None;
            self.watch_closely |= pod.is_some();
        }
    }

    /// How long the router's certificate lasts; `None` where there is none, or
    /// nobody says.
    fn certificate(&mut self, expiry: Option<Expiry>) {
        self.status.certificate_expiry = expiry.map(|expiry| Time(expiry.time()));
        if let Some(again) = certificate::tell(expiry, &mut self.conditions) {
            self.look_again(again);
        }
    }

    pub(super) fn enrolled(&mut self, entity: &Entity) {
        self.status.token_expiry = None;
        let message = format!("router {:?} holds its identity", entity.name);
        self.conditions
            .set(types::ENROLLED, Truth::True, reasons::ENROLLED, message);
    }

    /// The token was redeemed and no pod of ours has said that it holds the
    /// certificate: a router run by somebody else, or one about to report.
    pub(super) fn enrolled_elsewhere(&mut self, entity: &Entity) {
        self.status.token_expiry = None;
        let message = format!(
            "router {:?} is enrolled; it has not connected yet",
            entity.name
        );
        self.conditions
            .set(types::ENROLLED, Truth::True, reasons::ENROLLED, message);
        self.watch_closely = true;
    }

    pub(super) fn identity_lost(&mut self, reason: &str, what: &str, next: &str) {
        self.watch_closely = true;
        let message = format!("{what}: {next}. The router keeps its id");
        self.conditions
            .set(types::ENROLLED, Truth::False, reason, message);
    }

    pub(super) fn not_enrolled(&mut self, problem: Problem) {
        self.conditions.set(
            types::ENROLLED,
            Truth::False,
            problem.reason,
            problem.message,
        );
    }

    /// The token is in the Secret, or about to be.
    pub(super) fn token_waits(&mut self, token: &TokenFacts, agent: Option<&AgentReport>) {
        self.watch_closely = true;
        self.status.token_expiry = token.expires_at.map(Time);
        if let Some(end) = token.expires_at {
            self.look_again(
                end.duration_since(self.now())
                    .max(SignedDuration::from_secs(1)),
            );
        }
        let failing = agent.filter(|agent| {
            let lacks = !agent.is_enrolled() && agent.reason != reasons::TOKEN_MISSING;
            lacks || agent.token_reason.is_some()
        });
        if let Some(agent) = failing {
            let reason = agent_reason(agent.token_reason.as_ref().unwrap_or(&agent.reason));
            let said = agent
                .message
                .clone()
                .unwrap_or_else(|| agent.reason.clone());
            self.conditions.set(
                types::ENROLLED,
                Truth::False,
                reason,
                format!("the pod could not enroll: {said}"),
            );
        } else {
            let message = format!("the token waits in Secret {}", self.secret_name);
            self.conditions
                .set(types::ENROLLED, Truth::False, reasons::TOKEN_READY, message);
        }
    }

    pub(super) fn provided(&mut self, token: &TokenFacts) {
        self.status.id = Some(token.subject.clone());
        let message = format!("the provided token is for router {}", token.subject);
        self.conditions
            .set(types::REGISTERED, Truth::True, reasons::PROVIDED, message);
    }

    /// The token cannot be read. What is known of its router is told all the
    /// same.
    pub(super) fn provided_problem(mut self, facts: &Facts, problem: Problem) -> Self {
        if let (NetworkFacts::Known(view), Some(id)) = (&facts.network, self.recorded_id()) {
            let entity = view.entities.iter().find(|entity| entity.id == id);
            self.provided_online(facts, entity);
        }
        if self.conditions.is_true(types::ENROLLED) {
            // A router that holds its identity needs no token, so one that is
            // gone is no fault; one that is wrong will be when it is needed.
            let gone = matches!(
                problem.reason,
                reasons::SOURCE_MISSING | reasons::KEY_MISSING | reasons::TOKEN_MISSING
            );
            if !gone {
                self.conditions
                    .set(types::READY, Truth::False, problem.reason, problem.message);
            }
            return self;
        }
        self.conditions.set(
            types::REGISTERED,
            Truth::False,
            problem.reason,
            problem.message.clone(),
        );
        self.conditions.set(
            types::ENROLLED,
            Truth::False,
            problem.reason,
            problem.message,
        );
        self
    }

    pub(super) fn provided_enrolled(&mut self) {
        self.status.token_expiry = None;
        self.conditions.set(
            types::ENROLLED,
            Truth::True,
            reasons::ENROLLED,
            "the router holds its identity",
        );
    }

    /// What the network shows of a router whose token a person gave; `None`
    /// where it cannot be asked, or does not know the router.
    pub(super) fn provided_online(&mut self, facts: &Facts, entity: Option<&Entity>) {
        if let Some(entity) = entity {
            let fresh = matches!(&facts.network, NetworkFacts::Known(view) if view.fresh);
            self.seen(entity, fresh);
            return;
        }
        let agent = self.agent.as_ref();
        self.status.fingerprint = agent.and_then(|agent| agent.fingerprint.clone());
        self.certificate(Expiry::reported(self.agent.as_ref()));
        self.conditions.set(
            types::ONLINE,
            Truth::Unknown,
            reasons::UNKNOWN,
            "the network cannot be asked without a credential",
        );
    }

    /// Keep a token from its pod, and say why. A pod that holds an identity
    /// goes on with it.
    pub(super) fn withhold(mut self, facts: &Facts, problem: Problem) -> Self {
        if facts.secret.digest().is_some() && facts.secret != SecretFacts::Foreign {
            self.step(Step::EmptyToken);
        }
        if self.agent.as_ref().is_some_and(AgentReport::is_enrolled) {
            self.conditions
                .set(types::READY, Truth::False, problem.reason, problem.message);
        } else {
            self.not_enrolled(problem);
        }
        self
    }

    pub(super) fn deleting(mut self, what: &str) -> Self {
        self.conditions
            .set(types::READY, Truth::False, reasons::DELETING, what);
        self
    }

    pub(super) fn deletion_blocked(mut self, problem: &Problem) -> Self {
        self.conditions.set(
            types::READY,
            Truth::False,
            problem.reason,
            problem.message.clone(),
        );
        self.watch_closely = true;
        self
    }
}

/// The constant for a reason that an agent gave; anything else is a refusal.
fn agent_reason(said: &str) -> &'static str {
    reasons::OF_AGENT
        .into_iter()
        .find(|known| *known == said)
        .unwrap_or(reasons::TOKEN_REFUSED)
}
