//! The plan for one router while it is being decided: its steps, what is recorded,
//! when to look again, and how it ends. The words for the facts are in
//! [`super::status`]. Called by the decisions beside it.

use super::{Facts, LATE_COMMIT, Plan, Problem, Step, UNREGISTERED};
use crate::conditions::{Conditions, Truth};
use api::edge_router::{AgentReport, Intent, IntentAct};
use api::reasons::{self, types};
use api::{EdgeRouterStatus, names};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// A plan being drafted.
pub(super) struct Draft {
    pub(super) steps: Vec<Step>,
    pub(super) status: EdgeRouterStatus,
    pub(super) conditions: Conditions,
    pub(super) requeue: Option<SignedDuration>,
    pub(super) watch_closely: bool,
    pub(super) agent: Option<AgentReport>,
    /// Leave Ready as it is.
    pub(super) keep: bool,
    pub(super) wanted_name: String,
    pub(super) secret_name: String,
}

impl Draft {
    pub(super) fn new(facts: &Facts) -> Self {
        let mut status = facts.object.status.clone().unwrap_or_default();
        let generation = facts.object.metadata.generation;
        let conditions = Conditions::new(&status.conditions, generation, facts.now);
        status.observed_generation = generation;
        let agent = status.agent.take();
        let name = facts.object.metadata.name.as_deref().unwrap_or_default();
        Self {
            steps: Vec::new(),
            status,
            conditions,
            requeue: None,
            watch_closely: false,
            agent,
            keep: false,
            wanted_name: super::wanted_name(facts.object),
            secret_name: names::enrollment_secret(name),
        }
    }

    pub(super) fn step(&mut self, step: Step) {
        if let Step::RecordIntent {
            intent,
            re_enrollment,
        } = &step
        {
            self.status.intent = Some(intent.clone());
            if *re_enrollment {
                self.status.last_re_enrollment = Some(intent.recorded_at.clone());
            }
        }
        self.steps.push(step);
    }

    pub(super) fn look_again(&mut self, after: SignedDuration) {
        self.requeue = Some(self.requeue.map_or(after, |have| have.min(after)));
    }

    pub(super) fn recorded_id(&self) -> Option<String> {
        self.status.id.clone()
    }

    /// A re-enrollment that was recorded and not seen to be done.
    pub(super) fn pending_re_enrollment(&self) -> Option<&Intent> {
        let intent = self.status.intent.as_ref();
        intent.filter(|intent| intent.act == IntentAct::ReEnroll)
    }

    /// For how long a creation that was recorded, and not seen to be done, may
    /// still be carried out; `None` where there is none.
    pub(super) fn creation_may_come(&self, now: Timestamp) -> Option<SignedDuration> {
        let intent = self.status.intent.as_ref();
        let intent = intent.filter(|intent| intent.act == IntentAct::Create)?;
        let left = LATE_COMMIT.saturating_sub(now.duration_since(intent.recorded_at.0));
        left.is_positive().then_some(left)
    }

    pub(super) fn forget_intent(&mut self) {
        self.status.intent = None;
    }

    /// What was recorded no longer holds: the network or the router is another.
    pub(super) fn forget_registration(&mut self) {
        self.status.id = None;
        self.status.network_identity = None;
        self.status.fingerprint = None;
        self.status.certificate_expiry = None;
        self.status.online_pod = None;
        self.status.token_expiry = None;
    }

    pub(super) fn now(&self) -> Timestamp {
        self.conditions.now()
    }

    /// The plan of an object that is paused: no step, and Ready as it would be.
    pub(super) fn paused(mut self, deleting: bool) -> Plan {
        summarize(&mut self.conditions);
        if deleting {
            let message = "its deletion waits while spec.paused is set: nothing is written, here or on the network";
            self.conditions
                .set(types::READY, Truth::False, reasons::PAUSED, message);
        } else if let Some(ready) = self.conditions.get(types::READY).cloned() {
            let message = format!(
                "paused by spec.paused, nothing is written; {}",
                ready.message
            );
            self.conditions
                .set(types::READY, Truth::of(&ready), reasons::PAUSED, message);
        }
        self.status.conditions = self.conditions.into_vec();
        Plan {
            steps: Vec::new(),
            status: self.status,
            requeue: None,
            watch_closely: false,
        }
    }

    /// The finished plan. Ready says the first thing that is missing.
    pub(super) fn finish(mut self) -> Plan {
        if !self.conditions.was_set(types::READY) && !self.keep {
            summarize(&mut self.conditions);
        }
        if !self.conditions.is_true(types::REGISTERED) {
            self.look_again(UNREGISTERED);
        }
        self.status.conditions = self.conditions.into_vec();
        Plan {
            steps: self.steps,
            status: self.status,
            requeue: self.requeue,
            watch_closely: self.watch_closely,
        }
    }
}

/// Ready is the first of the others that does not hold.
fn summarize(conditions: &mut Conditions) {
    for type_ in [types::REGISTERED, types::ENROLLED, types::ONLINE] {
        let Some(condition) = conditions.get(type_).cloned() else {
            conditions.set(
                types::READY,
                Truth::False,
                reasons::PENDING,
                "not looked at yet",
            );
            return;
        };
        // Without a credential nobody can tell whether it is online; the
        // identity is then all that there is to wait for.
        let unknown = type_ == types::ONLINE && condition.reason == reasons::UNKNOWN;
        if condition.status != Truth::True.as_str() && !unknown {
            conditions.set(
                types::READY,
                Truth::False,
                &condition.reason,
                condition.message,
            );
            return;
        }
    }
    conditions.set(
        types::READY,
        Truth::True,
        reasons::READY,
        "the router does its work",
    );
}

/// The status to write when a step failed.
pub fn after_failure(
    plan: &Plan,
    failed: &Step,
    problem: &Problem,
    generation: Option<i64>,
    now: Timestamp,
) -> EdgeRouterStatus {
    let mut status = plan.status.clone();
    let mut conditions = Conditions::new(&status.conditions, generation, now);
    if matches!(failed, Step::Create(_) | Step::Claim { .. }) {
        conditions.set(
            types::REGISTERED,
            Truth::False,
            problem.reason,
            problem.message.clone(),
        );
    }
    conditions.set(
        types::READY,
        Truth::False,
        problem.reason,
        problem.message.clone(),
    );
    status.conditions = conditions.into_vec();
    status
}
