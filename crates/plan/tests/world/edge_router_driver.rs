//! The EdgeRouter controller, as the operator drives it: observe, plan, apply in
//! order up to the first step that fails, again until no step is left; status.
//! Each write may be the last before the process dies, and each request to the
//! network may lose its reply.

use super::kube::{Refusal, SecretData};
use super::{Lose, SET_NETWORK, World};
use api::edge_router::{EdgeRouterStatus, Enrollment};
use api::reasons::types;
use api::{EdgeRouter, names, reasons};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plan::conditions::find;
use plan::edge_router::{
    self, Claim, Entity, NetworkBasics, NetworkFacts, Problem, SecretFacts, Step, View,
};
use std::collections::BTreeMap;

/// The operator's driver goes round at most this often in one reconcile.
const MOST_ROUNDS: usize = 6;

/// Why a step failed.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The process died.
    Crash,
    /// Kubernetes refused.
    Kube(Refusal),
    /// The network refused, or its reply was lost.
    Network(String),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Kube(refusal)
    }
}

/// What the operator keeps in memory; lost in a crash.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// Since when each router is seen offline with this certificate.
    offline: BTreeMap<String, (Option<String>, bool, Timestamp)>,
    /// The last list.
    rows: Option<Vec<Entity>>,
}

impl Memory {
    pub(crate) fn forget_rows(&mut self) {
        self.rows = None;
    }
}

impl World {
    /// The operator lists the network's routers.
    pub(crate) fn poll(&mut self) {
        if self.reachable {
            let rows = self.ziti.rows();
            self.note_offline(&rows);
            self.memory.rows = Some(rows);
        }
    }

    fn note_offline(&mut self, rows: &[Entity]) {
        for row in rows {
            if row.online {
                self.memory.offline.remove(&row.id);
                continue;
            }
            let seen = self.memory.offline.entry(row.id.clone()).or_insert((
                row.fingerprint.clone(),
                row.verified,
                self.now,
            ));
            if (&seen.0, seen.1) != (&row.fingerprint, row.verified) {
                *seen = (row.fingerprint.clone(), row.verified, self.now);
            }
        }
    }

    fn view(&mut self, object: &EdgeRouter, subject: Option<&str>, fresh: bool) -> View {
        let cached = self.memory.rows.clone().filter(|_| !fresh);
        let fresh = cached.is_none();
        let rows = cached.unwrap_or_else(|| {
            let rows = self.ziti.rows();
            self.note_offline(&rows);
            rows
        });
        let recorded = object
            .status
            .as_ref()
            .and_then(|status| status.id.as_deref());
        let name = edge_router::wanted_name(object);
        let known: Vec<String> = self
            .kube
            .edge_routers
            .values()
            .filter_map(|er| er.status.as_ref()?.id.clone())
            .collect();
        let missing = known
            .iter()
            .filter(|id| !rows.iter().any(|row| row.id == **id))
            .count();
        let entities = rows
            .into_iter()
            .filter(|row| {
                Some(row.id.as_str()) == recorded
                    || Some(row.id.as_str()) == subject
                    || row.name == name
                    || Claim::of(&row.tags).is_some_and(|claim| claim.is_place_of(object))
            })
            .map(|mut row| {
                let since = self.memory.offline.get(&row.id).map(|seen| seen.2);
                row.offline_for = since
                    .filter(|_| !row.online)
                    .map(|since| self.now.duration_since(since));
                row
            })
            .collect();
        View {
            identity: self.ziti.identity.clone(),
            confirmed_install: None,
            identity_confirmed: self.confirmed.as_ref() == Some(&self.ziti.identity),
            basics: NetworkBasics {
                leader_elsewhere: None,
                server_time: Some(self.now),
                token_is_ours: None,
                names_controllers: true,
            },
            entities,
            many_missing: edge_router::many_missing(known.len(), missing),
            fresh,
        }
    }

    /// Reconcile one EdgeRouter. `stale` is an older object to begin with.
    pub(crate) fn reconcile_edge_router(
        &mut self,
        name: &str,
        stale: Option<EdgeRouter>,
        mut fresh: bool,
    ) {
        let settings = self.settings.clone();
        let mut cached = stale;
        for _ in 0..MOST_ROUNDS {
            let Some(mut object) = cached
                .take()
                .or_else(|| self.kube.edge_routers.get(name).cloned())
            else {
                return;
            };
            let provided = match &object.spec.enrollment {
                Enrollment::Managed(_) => None,
                Enrollment::Provided(_) => Some(self.provided_token(name)),
            };
            let subject = provided
                .as_ref()
                .and_then(|provided| provided.as_ref().ok())
                .map(|token| token.subject.clone());
            let network = if object.spec.network_ref.is_none() {
                NetworkFacts::NotReferenced
            } else if !self.has_credential() {
                NetworkFacts::NoCredential(NetworkBasics {
                    names_controllers: true,
                    ..NetworkBasics::default()
                })
            } else if !self.right_network()
                && object
                    .status
                    .as_ref()
                    .is_none_or(|status| status.id.is_none())
            {
                // Told by the ZitiNetwork; one that is registered sees by itself.
                NetworkFacts::Unusable(Problem::new(
                    reasons::NETWORK_CHANGED,
                    "another network answers",
                ))
            } else if self.reachable {
                NetworkFacts::Known(self.view(&object, subject.as_deref(), fresh))
            } else {
                NetworkFacts::Unusable(Problem::new(
                    reasons::NETWORK_NOT_READY,
                    "the controller is away",
                ))
            };
            let secret = match self.kube.enrollment.get(name) {
                None => SecretFacts::Absent,
                Some(keys) if keys.owner == object.metadata.uid => {
                    SecretFacts::Ours(keys.keys.get(names::TOKEN_KEY).cloned().flatten())
                }
                // Of an EdgeRouter of this name that is no more.
                Some(_) => SecretFacts::Ours(None),
            };
            let facts = edge_router::Facts {
                object: &object,
                settings: &settings,
                network,
                provided,
                secret,
                now: self.now,
            };
            let plan = edge_router::plan(&facts);
            self.check_edge_router_plan(&facts, &plan);
            if plan.steps.is_empty() {
                self.settle_edge_router(&object, &plan.status).ok();
                return;
            }
            if plan.needs_fresh_look() && !fresh {
                fresh = true;
                cached = Some(object);
                continue;
            }
            self.note(format!("  er {name}: {:?}", plan.steps));
            for step in &plan.steps {
                if self.broken.is_some() {
                    return;
                }
                match self.apply_to_network_or_kube(&object, &plan, step) {
                    Ok(()) if *step == Step::ReleaseFinalizer => return,
                    Ok(()) => {
                        if matches!(step, Step::AddFinalizer | Step::RecordIntent { .. }) {
                            // The write answers with the object as it is now.
                            let Some(changed) = self.kube.edge_routers.get(name) else {
                                return;
                            };
                            object = changed.clone();
                        }
                    }
                    Err(Fault::Network(why)) => {
                        let problem = Problem::new(reasons::REFUSED, why);
                        let status = edge_router::after_failure(
                            &plan,
                            step,
                            &problem,
                            object.metadata.generation,
                            self.now,
                        );
                        self.settle_edge_router(&object, &status).ok();
                        return;
                    }
                    Err(fault) => {
                        self.note(format!("  er {name}: {fault:?}"));
                        return;
                    }
                }
            }
            fresh |= plan.steps.iter().any(Step::writes_to_network);
        }
        if !self.faulty {
            self.must(false, || {
                format!("{name} does not settle in {MOST_ROUNDS} rounds")
            });
        }
    }

    /// Write the status, bound to the object that it speaks of.
    fn settle_edge_router(
        &mut self,
        object: &EdgeRouter,
        status: &EdgeRouterStatus,
    ) -> Result<(), Fault> {
        let before = EdgeRouterStatus {
            agent: None,
            ..object.status.clone().unwrap_or_default()
        };
        if before == *status {
            return Ok(());
        }
        self.spend()?;
        self.write_status(object, status)
    }

    fn write_status(
        &mut self,
        object: &EdgeRouter,
        status: &EdgeRouterStatus,
    ) -> Result<(), Fault> {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let actual = self.kube.edge_routers.get(name).ok_or(Refusal::NotFound)?;
        // Steps of this round may have changed the object; a status is only
        // ever written against the version that was seen last.
        if actual.metadata.resource_version != object.metadata.resource_version {
            return Err(Refusal::Conflict.into());
        }
        let ready = find(&status.conditions, types::READY).map(|ready| ready.reason.clone());
        self.log
            .push(format!("  er {name}: status {}", ready.unwrap_or_default()));
        self.kube.change_edge_router(name, |er| {
            let agent = er.status.as_ref().and_then(|status| status.agent.clone());
            er.status = Some(EdgeRouterStatus {
                agent,
                ..status.clone()
            });
        })?;
        Ok(())
    }

    fn apply_to_network_or_kube(
        &mut self,
        object: &EdgeRouter,
        plan: &edge_router::Plan,
        step: &Step,
    ) -> Result<(), Fault> {
        let name = object.metadata.name.clone().unwrap_or_default();
        self.spend()?;
        if step.writes_to_network() {
            self.check_network_write(object, step);
            return self.write_to_network(step);
        }
        match step {
            Step::AddFinalizer | Step::ReleaseFinalizer => {
                let actual = self.kube.edge_routers.get(&name).ok_or(Refusal::NotFound)?;
                if actual.metadata.resource_version != object.metadata.resource_version {
                    return Err(Refusal::Conflict.into());
                }
                if *step == Step::ReleaseFinalizer {
                    self.check_release(&name);
                }
                self.kube.change_edge_router(&name, |er| {
                    let list = er.metadata.finalizers.get_or_insert_default();
                    list.retain(|finalizer| finalizer != names::FINALIZER_EDGE_ROUTER);
                    if *step == Step::AddFinalizer {
                        list.push(names::FINALIZER_EDGE_ROUTER.to_owned());
                    }
                })?;
            }
            Step::RecordIntent { intent, .. } => {
                let status = EdgeRouterStatus {
                    intent: Some(intent.clone()),
                    ..plan.status.clone()
                };
                self.write_status(object, &status)?;
            }
            Step::PublishToken { digest, .. } => {
                self.write_enrollment(&name, object, Some(digest.clone()))?;
            }
            Step::EmptyToken => self.write_enrollment(&name, object, None)?,
            Step::Create(_)
            | Step::Claim { .. }
            | Step::Update { .. }
            | Step::ReEnroll { .. }
            | Step::Delete { .. } => {}
        }
        Ok(())
    }

    fn write_enrollment(
        &mut self,
        name: &str,
        object: &EdgeRouter,
        digest: Option<String>,
    ) -> Result<(), Fault> {
        if self.kube.terminating && !self.kube.enrollment.contains_key(name) {
            return Err(Refusal::Forbidden("the namespace is being terminated".to_owned()).into());
        }
        let version = self.kube.next();
        let keys = BTreeMap::from([(names::TOKEN_KEY.to_owned(), digest)]);
        self.kube.enrollment.insert(
            name.to_owned(),
            SecretData {
                owner: object.metadata.uid.clone(),
                version,
                keys,
            },
        );
        Ok(())
    }

    fn write_to_network(&mut self, step: &Step) -> Result<(), Fault> {
        if !self.reachable {
            return Err(Fault::Network("the controller does not answer".to_owned()));
        }
        match std::mem::replace(&mut self.lose, Lose::No) {
            Lose::No => self.ziti.commit(step, self.now).map_err(Fault::Network),
            Lose::Done => {
                self.ziti.commit(step, self.now).map_err(Fault::Network)?;
                Err(Fault::Network("the reply was lost".to_owned()))
            }
            Lose::Never => Err(Fault::Network("the request was lost".to_owned())),
            Lose::Later => {
                self.ziti
                    .late
                    .push((self.now + SignedDuration::from_secs(10), step.clone()));
                Err(Fault::Network("no reply in time".to_owned()))
            }
        }
    }

    /// One more write; the process may die instead.
    pub(crate) fn spend(&mut self) -> Result<(), Fault> {
        match &mut self.budget {
            Some(0) => {
                self.budget = None;
                self.memory = Memory::default();
                self.forget_cluster();
                self.note("  the operator dies".to_owned());
                Err(Fault::Crash)
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn provided_token(&self, member: &str) -> Result<plan::token::TokenFacts, Problem> {
        let digest = match &self.kube.set {
            Some(set) if set.spec.tokens.is_some() => self
                .kube
                .provided_copy
                .as_ref()
                .and_then(|secret| secret.keys.get(member).cloned()),
            _ => self.given.get(member).map(|token| token.digest.clone()),
        };
        let token = digest.and_then(|digest| {
            self.given
                .get(member)
                .filter(|token| token.digest == digest)
        });
        token
            .cloned()
            .ok_or_else(|| Problem::new(reasons::KEY_MISSING, "there is no such key"))
    }

    /// Whether the network that answers is the one that is meant.
    pub(crate) fn right_network(&self) -> bool {
        self.ziti.identity == SET_NETWORK || self.confirmed.as_ref() == Some(&self.ziti.identity)
    }
}
