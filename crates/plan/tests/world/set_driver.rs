//! The ZitiRouter controller, as the operator drives it: observe, plan, apply in
//! order up to the first step that fails; status.

use super::World;
use super::cluster::in_set;
use super::edge_router_driver::Fault;
use super::kube::{Refusal, SecretData};
use api::reasons::types;
use api::{names, reasons};
use plan::conditions::find;
use plan::edge_router::Problem;
use plan::set::member::claim_name;
use plan::set::{self, TokenValue, TokensSecret};

impl World {
    /// What the set's planner sees now.
    pub(crate) fn set_facts<'a>(
        &self,
        object: &'a api::ZitiRouter,
        settings: &'a plan::Settings,
    ) -> set::Facts<'a> {
        let name = &self.set_name;
        let kube = &self.kube;
        let there = !self.is_let_go(object);
        let fault = (!self.reachable || !self.right_network())
            .then(|| Problem::new(reasons::NETWORK_NOT_READY, "the controller is away"));
        let provided = self.is_provided().then(|| {
            Ok(self
                .given
                .iter()
                .map(|(member, token)| (member.clone(), token.digest.clone()))
                .collect())
        });
        set::Facts {
            object,
            settings,
            home: self.home_of_facts(object),
            network: if object.spec.network_ref.is_some() {
                set::Network::Found {
                    fault,
                    name_pattern: self.pattern.clone(),
                    control_endpoints: Vec::new(),
                    has_credential: self.has_credential(),
                    version: None,
                    asked_since: None,
                }
            } else {
                set::Network::NotReferenced
            },
            edge_routers: kube
                .edge_routers
                .values()
                .filter(|er| in_set(&er.metadata, name))
                .cloned()
                .collect(),
            stateful_sets: self.entered(object, kube.stateful_sets.values()),
            nodes: (there && self.is_per_node()).then(|| self.nodes()),
            services: self.entered(object, kube.services.values()),
            config_maps: self.entered(object, kube.config_maps.values()),
            extras: self.entered(object, kube.extras.values()),
            refusal: None,
            pods: kube
                .pods
                .values()
                .filter(|_| there)
                .map(|running| running.pod.clone())
                .collect(),
            claims: kube
                .claims
                .values()
                .filter(|_| there)
                .map(|volume| volume.claim.clone())
                .collect(),
            tokens: match &kube.tokens {
                None => TokensSecret::Absent,
                Some(_) if !there => TokensSecret::Absent,
                Some(secret) if self.is_of_stranger(secret) => TokensSecret::Foreign,
                Some(secret) if secret.owner == object.metadata.uid => {
                    TokensSecret::Ours(secret.keys.clone())
                }
                Some(secret) => TokensSecret::Unowned(secret.keys.clone()),
            },
            waiting_tokens: kube
                .edge_routers
                .iter()
                .filter_map(|(name, er)| {
                    let secret = kube
                        .enrollment
                        .get(name)
                        .filter(|secret| secret.owner == er.metadata.uid)?;
                    Some((name.clone(), secret.keys.get(names::TOKEN_KEY)?.clone()?))
                })
                .collect(),
            provided,
            provided_copy: kube
                .provided_copy
                .as_ref()
                .filter(|secret| secret.owner == object.metadata.uid)
                .map(|secret| secret.keys.clone()),
            now: self.now,
        }
    }

    /// Reconcile the set. `stale` is an older object to begin with.
    pub(crate) fn reconcile_set(&mut self, stale: Option<api::ZitiRouter>) {
        let Some(object) = stale.or_else(|| self.kube.set.clone()) else {
            self.release_orphans();
            return;
        };
        if !self.may_work_there(&object) {
            return;
        }
        let object = self.seen(&object);
        let settings = self.settings.clone();
        let facts = self.set_facts(&object, &settings);
        let plan = set::plan(&facts);
        self.requeue = plan.requeue;
        self.check_set_plan(&facts, &plan);
        let generation = object.metadata.generation;
        for step in &plan.steps {
            if self.broken.is_some() {
                return;
            }
            self.note(format!("  set: {}", brief(step)));
            if let Err(fault) = self.apply_set_step(&object, &facts, step) {
                self.note(format!("  set: {fault:?}"));
                if !matches!(fault, Fault::Crash | Fault::Kube(Refusal::Conflict)) {
                    let problem = Problem::new(reasons::REFUSED, format!("{fault:?}"));
                    let status = set::after_failure(&plan, &problem, generation, self.now);
                    self.kube.change_set(|set| set.status = Some(status));
                }
                return;
            }
            if *step == set::Step::ReleaseFinalizer {
                self.let_go();
                return;
            }
        }
        self.check_applied_once(&plan);
        if self.spend().is_ok()
            && self
                .kube
                .set
                .as_ref()
                .is_some_and(|set| set.metadata.uid == object.metadata.uid)
        {
            let before = self.kube.version();
            self.kube
                .change_set(|set| set.status = Some(plan.status.clone()));
            if self.kube.version() != before {
                let ready = find(&plan.status.conditions, types::READY);
                let ready = ready.map(|ready| ready.message.clone()).unwrap_or_default();
                self.note(format!("  set: status: {ready}"));
            }
        }
    }

    /// Without a ZitiRouter there is nobody else to say that a pod has ended.
    fn release_orphans(&mut self) {
        if self.is_out_of_sight() {
            return;
        }
        let there = !self.is_given_up();
        for er in self.kube.edge_routers.values().cloned().collect::<Vec<_>>() {
            let pods: Vec<_> = self
                .kube
                .pods
                .values()
                .filter(|_| there)
                .map(|running| running.pod.clone())
                .collect();
            let workloads = self.kube.stateful_sets.values();
            let workloads: Vec<_> = workloads.filter(|_| there).cloned().collect();
            if let Some(step) = set::release_orphan(&er, &workloads, &pods) {
                self.note(format!("  orphan: {}", brief(&step)));
                self.release_in_use(&step).ok();
            }
        }
    }

    fn release_in_use(&mut self, step: &set::Step) -> Result<(), Fault> {
        let set::Step::ReleaseInUse {
            edge_router,
            resource_version,
            finalizers,
        } = step
        else {
            return Ok(());
        };
        let actual = self
            .kube
            .edge_routers
            .get(edge_router)
            .ok_or(Refusal::NotFound)?;
        if actual.metadata.resource_version.as_ref() != Some(resource_version) {
            return Err(Refusal::Conflict.into());
        }
        self.given_up_with(edge_router);
        self.check_in_use(edge_router);
        self.kube.change_edge_router(edge_router, |er| {
            er.metadata.finalizers = Some(finalizers.clone());
        })?;
        Ok(())
    }

    fn apply_set_step(
        &mut self,
        object: &api::ZitiRouter,
        facts: &set::Facts,
        step: &set::Step,
    ) -> Result<(), Fault> {
        self.spend()?;
        if step.is_of_workloads() && !self.pass(step) {
            return Err(Fault::Network("the cluster does not answer".to_owned()));
        }
        let done = self.carry_out(object, facts, step);
        if step.is_of_workloads() {
            self.reply()?;
        }
        done
    }

    fn carry_out(
        &mut self,
        object: &api::ZitiRouter,
        facts: &set::Facts,
        step: &set::Step,
    ) -> Result<(), Fault> {
        let now = self.now;
        match step {
            set::Step::AddFinalizer | set::Step::ReleaseFinalizer => {
                let actual = self.kube.set.as_ref().ok_or(Refusal::NotFound)?;
                if actual.metadata.resource_version != object.metadata.resource_version {
                    return Err(Refusal::Conflict.into());
                }
                self.kube.change_set(|set| {
                    let list = set.metadata.finalizers.get_or_insert_default();
                    list.retain(|finalizer| finalizer != names::FINALIZER_ROUTER);
                    if *step == set::Step::AddFinalizer {
                        list.push(names::FINALIZER_ROUTER.to_owned());
                    }
                });
            }
            set::Step::DeleteTokens => self.kube.tokens = None,
            set::Step::ApplyService(service) => {
                self.kube.apply_service(&self.left(service), now)?;
            }
            set::Step::ApplyConfigMap(map) => self.kube.apply_config_map(&self.left(map), now)?,
            set::Step::ApplyEdgeRouter(er) => self.kube.apply_edge_router(er, now)?,
            set::Step::CopyProvidedTokens => {
                let keys = self
                    .given
                    .iter()
                    .map(|(member, token)| (member.clone(), token.digest.clone()))
                    .collect();
                if self.kube.terminating {
                    return Err(
                        Refusal::Forbidden("the namespace is being terminated".to_owned()).into(),
                    );
                }
                let version = self.kube.next();
                self.kube.provided_copy = Some(SecretData {
                    owner: object.metadata.uid.clone(),
                    version,
                    keys,
                });
            }
            set::Step::ReportAgent {
                edge_router,
                report,
            } => {
                self.kube.change_edge_router(edge_router, |er| {
                    er.status.get_or_insert_default().agent = Some(report.clone());
                })?;
            }
            set::Step::WriteTokens(write) => {
                for (member, value) in &write.set {
                    if let TokenValue::Waiting { digest } = value
                        && facts.waiting_tokens.get(member) != Some(digest)
                    {
                        self.must(false, || {
                            format!("{member} is to get a token that does not wait for it")
                        });
                    }
                }
                if self.kube.tokens.is_none() && self.kube.terminating && !self.kube.afar {
                    return Err(
                        Refusal::Forbidden("the namespace is being terminated".to_owned()).into(),
                    );
                }
                let version = self.kube.next();
                let secret = self.kube.tokens.get_or_insert_with(|| SecretData {
                    owner: object.metadata.uid.clone(),
                    ..SecretData::default()
                });
                secret.version = version;
                secret.owner.clone_from(&object.metadata.uid);
                for (member, value) in &write.set {
                    let digest = match value {
                        TokenValue::Empty => None,
                        TokenValue::Waiting { digest } => Some(digest.clone()),
                    };
                    secret.keys.insert(member.clone(), digest);
                }
                for member in &write.remove {
                    secret.keys.remove(member);
                }
            }
            set::Step::ApplyStatefulSet(wanted) => {
                self.check_workload(object, wanted);
                self.kube.apply_stateful_set(&self.left(wanted), now)?;
            }
            set::Step::DeletePod { name, uid, .. } => {
                let member = self.member_of_pod(name);
                self.check_disruption(facts, &member);
                self.kube.delete_pod(&member, Some(uid), now)?;
            }
            set::Step::DeleteStatefulSet { name, uid } => {
                let owned = self.kube.stateful_sets.get(name).ok_or(Refusal::NotFound)?;
                if owned.metadata.uid.as_ref() != Some(uid) {
                    return Err(Refusal::Conflict.into());
                }
                self.check_workload_goes(object, name);
                self.kube.stateful_sets.remove(name);
                self.kube.next();
            }
            set::Step::ReleaseInUse { .. } => match self.release_in_use(step) {
                Err(Fault::Kube(Refusal::NotFound)) => {}
                released => released?,
            },
            set::Step::DeleteEdgeRouter { name, uid } => {
                match self.kube.delete_edge_router(name, Some(uid), now) {
                    Err(Refusal::NotFound) => {}
                    deleted => deleted?,
                }
            }
            set::Step::DeleteService { name } => {
                self.kube.services.remove(name);
                self.kube.next();
            }
            set::Step::DeleteConfigMap { name } => {
                self.check_config_map(name);
                self.kube.config_maps.remove(name);
                self.kube.next();
            }
            set::Step::ApplyExtra(kind, extra) => {
                self.kube.apply_extra(*kind, &self.left(extra), now)?;
            }
            set::Step::DeleteExtra { kind, name } => {
                self.kube.extras.remove(&(kind.kind, name.clone()));
                self.kube.next();
            }
            set::Step::DeleteClaim { name, uid } => {
                let pod = name.strip_prefix("identity-").unwrap_or_default();
                let member = self.member_of_pod(pod);
                self.check_claim(object, &member);
                match self.kube.delete_claim(&claim_name(&member), Some(uid), now) {
                    Err(Refusal::NotFound) => {}
                    deleted => deleted?,
                }
            }
        }
        Ok(())
    }
}

/// A step in few words, for the log.
fn brief(step: &set::Step) -> String {
    match step {
        set::Step::ApplyStatefulSet(set) => format!(
            "ApplyStatefulSet({:?}, {:?})",
            set.metadata.name,
            set.spec.as_ref().and_then(|spec| spec.replicas)
        ),
        set::Step::ApplyService(service) => format!("ApplyService({:?})", service.metadata.name),
        set::Step::ApplyConfigMap(map) => format!("ApplyConfigMap({:?})", map.metadata.name),
        set::Step::ApplyEdgeRouter(er) => format!("ApplyEdgeRouter({:?})", er.metadata.name),
        set::Step::ApplyExtra(_, extra) => format!("ApplyExtra({:?})", extra.metadata.name),
        _ => format!("{step:?}"),
    }
}
