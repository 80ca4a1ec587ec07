//! The end of every play: the faults stop, people mend what only people can
//! mend, and within a bounded number of rounds everything is as wished.

use super::{Script, World};
use api::reasons::types;
use api::router::RetentionPolicy;
use api::{DeletionPolicy, names};
use plan::conditions::is_true;
use plan::edge_router::Claim;
use plan::set;
use plan::set::member::claim_name;

/// Rounds within which the end must be reached. Each is ten seconds long; a
/// re-enrollment may have to wait two minutes, and then another for its pod.
const MOST_ROUNDS: u32 = 150;

/// Rounds in a row in which all is as wished, before it counts as at rest: what
/// a person did last may only begin to work.
const CALM_ROUNDS: u32 = 6;

impl World {
    /// Stop the faults and see that everything comes to rest.
    pub(crate) fn settle(&mut self, script: &Script) {
        self.note("--- the faults stop".to_owned());
        self.faulty = false;
        self.lose = super::Lose::No;
        self.unpause();
        self.reachable = true;
        self.heal_cluster();
        if !self.right_network() {
            if script.accept_network && !self.is_provided() {
                self.confirmed = Some(self.ziti.identity.clone());
                self.note("a person confirms the network".to_owned());
            } else {
                self.swap_network();
            }
        }
        let mut calm = 0;
        for round in 0..MOST_ROUNDS {
            if round % 40 == 0 {
                self.people_mend(round > 0);
            }
            if self.kube.set.is_none() && !self.kube.terminating && self.has_orphans() {
                // Left to be taken back.
                self.create_set();
            }
            self.advance(8);
            self.poll();
            self.flow();
            self.reconcile_all();
            self.after_step();
            if self.broken.is_some() {
                return;
            }
            calm = if self.missing().is_none() {
                calm + 1
            } else {
                0
            };
            if calm == CALM_ROUNDS {
                return self.rest();
            }
        }
        let missing = self.missing();
        self.must(false, || format!("it does not come to rest: {missing:?}"));
    }

    /// What a person would do who reads the conditions.
    ///
    /// Later on they also replace a token that looks usable and does not help.
    /// What a person paused goes on, also where its ZitiRouter is gone or lets go of it.
    fn unpause(&mut self) {
        self.change_spec(|spec| spec.paused = false);
        if self.kube.set.is_none() || self.ledger.orphaned {
            for er in self.kube.edge_routers.values_mut() {
                er.spec.paused = false;
            }
        }
    }

    fn people_mend(&mut self, again: bool) {
        // Routers of other people that stand in the way are renamed.
        let adopts = self.spec.adoption_policy == api::AdoptionPolicy::ByName;
        for router in self.ziti.routers.values_mut() {
            let tag = |key: &str| router.entity.tags.contains_key(key);
            let twin = Claim::of(&router.entity.tags)
                .is_some_and(|claim| claim.install_uid != self.settings.install_uid.as_deref());
            if twin || (tag("team") && !adopts) {
                router.entity.name = format!("{}-renamed", router.entity.id);
            }
        }
        // That many vanished routers were meant.
        for er in self.kube.edge_routers.values_mut() {
            if let Some(id) = er.status.as_ref().and_then(|status| status.id.clone()) {
                er.metadata
                    .annotations
                    .get_or_insert_default()
                    .insert(names::ANNOTATION_CONFIRM_MISSING.into(), id);
            }
        }
        if !self.is_provided() {
            return;
        }
        for ordinal in 0..self.seats {
            let name = self.member(ordinal);
            let identity = self
                .kube
                .claims
                .get(&claim_name(&name))
                .and_then(|volume| volume.identity.clone());
            let elsewhere = identity
                .as_ref()
                .is_some_and(|identity| !self.ziti.routers.contains_key(&identity.router));
            if elsewhere {
                // By a token of another network, as the condition says.
                self.note(format!("a person deletes the volume of {name}"));
                self.lose_volume(&name);
            }
            let token = &self.given[&name];
            let sound = identity.is_some_and(|identity| {
                self.ziti
                    .routers
                    .get(&identity.router)
                    .is_some_and(|router| {
                        router.entity.verified
                            && router.entity.fingerprint.as_ref() == Some(&identity.certificate)
                            && identity.router == token.subject
                    })
            });
            let usable =
                self.ziti.routers.get(&token.subject).is_some_and(|router| {
                    router.entity.token.as_ref().is_some_and(|have| {
                        have.digest == token.digest && !have.is_expired(self.now)
                    })
                });
            if !sound && (!usable || again) {
                self.note(format!("a person gives {name} a new token"));
                self.give_token(ordinal);
            }
        }
    }

    /// The first thing that is not as wished.
    pub(crate) fn missing(&self) -> Option<String> {
        let Some(set) = &self.kube.set else {
            return self.left_over();
        };
        if set.metadata.deletion_timestamp.is_some() {
            return Some("the set is still there".to_owned());
        }
        let wished = self.wished_members(set);
        for name in wished.clone() {
            let Some(running) = self.kube.pods.get(&name) else {
                return Some(format!("{name} has no pod"));
            };
            let online = running
                .router
                .as_ref()
                .is_some_and(|identity| self.ziti.is_online(&identity.certificate));
            if !online || running.pod.metadata.deletion_timestamp.is_some() {
                return Some(format!("{name} is not online"));
            }
            let Some(er) = self.kube.edge_routers.get(&name) else {
                return Some(format!("{name} is not registered"));
            };
            if er.metadata.deletion_timestamp.is_some() {
                return Some(format!("the EdgeRouter {name} is still being deleted"));
            }
            let conditions = er
                .status
                .as_ref()
                .map(|status| status.conditions.as_slice())
                .unwrap_or_default();
            if !is_true(conditions, types::READY) {
                return Some(format!("{name} is online and not Ready: {conditions:?}"));
            }
            let finalizers = er.metadata.finalizers.as_deref().unwrap_or_default();
            for hold in [names::FINALIZER_EDGE_ROUTER, names::FINALIZER_IN_USE] {
                if !finalizers.iter().any(|finalizer| finalizer == hold) {
                    return Some(format!("{name} lacks the finalizer {hold}"));
                }
            }
            let waiting = self
                .kube
                .enrollment
                .get(&name)
                .and_then(|secret| secret.keys.get(names::TOKEN_KEY).cloned().flatten());
            if waiting.is_some() {
                return Some(format!("{name} is online and its token is not emptied"));
            }
            if let Some(revision) = self
                .kube
                .stateful_sets
                .get(&self.workload_of(&name))
                .and_then(|set| set.status.as_ref()?.update_revision.clone())
            {
                let has = running
                    .pod
                    .metadata
                    .labels
                    .as_ref()
                    .and_then(|labels| labels.get("controller-revision-hash"));
                if has != Some(&revision) {
                    return Some(format!("{name} runs an old template"));
                }
            }
        }
        for workload in self.kube.stateful_sets.values() {
            let observed = workload
                .status
                .as_ref()
                .and_then(|status| status.observed_generation);
            if observed != workload.metadata.generation {
                return Some("a StatefulSet is not observed yet".to_owned());
            }
        }
        let status = set.status.clone().unwrap_or_default();
        if !is_true(&status.conditions, types::READY) {
            return Some(format!(
                "everything is online and the set is not Ready: {:?}",
                status.conditions
            ));
        }
        if self.kube.config_maps.len() > 1 {
            return Some("an old configuration is left".to_owned());
        }
        let tokens = self.kube.tokens.as_ref().map(|secret| &secret.keys);
        if tokens.is_some_and(|keys| keys.values().any(Option::is_some)) {
            return Some("a used token is left".to_owned());
        }
        let pods = self.kube.pods.len();
        let services = self.kube.services.len();
        let edge_routers = self.kube.edge_routers.len();
        let workloads = self.kube.stateful_sets.len();
        let count = wished.len();
        if (pods, services, edge_routers) != (count, count, count) {
            return Some(format!(
                "{pods} pods, {services} Services and {edge_routers} EdgeRouters for {count} members"
            ));
        }
        let own = self.spec.effective_topology().is_per_member();
        if own && workloads != count {
            return Some(format!("{workloads} workloads for {count} members"));
        }
        if !set.status.iter().all(|status| status.nodes_gone.is_empty()) {
            return Some("a node is still waited for".to_owned());
        }
        self.left_on_network(&wished)
    }

    /// What is left after a deletion.
    fn left_over(&self) -> Option<String> {
        let kube = &self.kube;
        if self.is_left_behind() {
            // By a person's word; what is at the hub goes all the same.
            let count = kube.edge_routers.len() + kube.enrollment.len();
            return (count > 0).then(|| format!("{count} objects are left at the hub"));
        }
        let (others, secrets_of_others) = self.of_others();
        let left = [
            ("EdgeRouters", kube.edge_routers.len()),
            ("pods", kube.pods.len()),
            ("Services", kube.services.len() - others),
            ("ConfigMaps", kube.config_maps.len() - others),
            ("other objects", kube.extras.len()),
            ("StatefulSets", kube.stateful_sets.len()),
            (
                "Secrets",
                usize::from(kube.tokens.is_some()) - secrets_of_others
                    + usize::from(kube.provided_copy.is_some())
                    + kube.enrollment.len(),
            ),
        ];
        if let Some((what, count)) = left.iter().find(|(_, count)| *count > 0) {
            return Some(format!("{count} {what} are left"));
        }
        let retention = &self.spec.retention;
        let keeps = retention.when_deleted == RetentionPolicy::Retain
            || retention.when_scaled == RetentionPolicy::Retain;
        if !keeps && !kube.claims.is_empty() {
            return Some(format!("{} claims are left", kube.claims.len()));
        }
        self.left_on_network(&[])
    }

    fn left_on_network(&self, wished: &[String]) -> Option<String> {
        if self.retained || self.spec.deletion_policy == DeletionPolicy::Retain {
            return None;
        }
        let surplus = self.ziti.routers.values().filter(|router| {
            let tags = &router.entity.tags;
            let name = tags.get(names::TAG_NAME);
            !self.is_of_another_farm(tags) && name.is_some_and(|name| !wished.contains(name))
        });
        surplus
            .map(|router| router.entity.name.clone())
            .next()
            .map(|name| format!("router {name} is left on the network"))
    }

    /// A steady state costs nothing, and an upgrade of the operator changes
    /// nothing.
    fn rest(&mut self) {
        let before = (self.kube.version(), self.ziti.writes);
        self.note("--- it rests".to_owned());
        for _ in 0..8 {
            self.advance(40);
            self.poll();
            self.flow();
            self.reconcile_all();
        }
        // The operator begins anew, and has not looked at the cluster yet.
        self.forget_cluster();
        self.reconcile_all();
        let after = (self.kube.version(), self.ziti.writes);
        self.look_at_cluster();
        self.must(before == after, || {
            format!("a steady state costs writes: {before:?} to {after:?}")
        });
        let Some(object) = self.kube.set.clone() else {
            return;
        };
        let upgraded = plan::Settings {
            agent_image: "agent:2".into(),
            router_image: "router:2".into(),
            controller_image: "registry.example/controller:7".into(),
            ..self.settings.clone()
        };
        let seen = self.seen(&object);
        let plan = set::plan(&self.set_facts(&seen, &upgraded));
        self.must(plan.steps.is_empty(), || {
            format!(
                "an upgrade of the operator changes something: {:?}",
                plan.steps
            )
        });
        self.settings = upgraded;
        for name in self.wished_members(&object) {
            self.reconcile_edge_router(&name, None, true);
        }
        let after = (self.kube.version(), self.ziti.writes);
        self.must(before == after, || {
            "an upgrade of the operator changes an EdgeRouter".to_owned()
        });
    }
}
