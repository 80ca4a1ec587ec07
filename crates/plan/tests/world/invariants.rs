//! What must hold at every moment, one function for each invariant of the
//! design that a planner can break. They judge by the world as it is, not by
//! what the planner was told.

use super::{Mode, TOKEN_TEXT, World};
use api::edge_router::Enrollment;
use api::router::RetentionPolicy;
use api::{AdoptionPolicy, DeletionPolicy, EdgeRouter, ZitiRouter, names};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plan::edge_router::{self, Owner, Step, owner, tags_are_of_object};
use plan::set;
use plan::set::member::{claim_name, ordinal, pod_name};
use std::collections::{BTreeMap, BTreeSet};

/// For how long a node may be gone before its member leaves the network.
const NODE_GRACE: SignedDuration = SignedDuration::from_secs(300);

/// What happened so far, as far as an invariant needs it.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Whom each token was mounted for.
    tokens: BTreeMap<String, String>,
    /// Members whose volume was lost by accident.
    pub(crate) wiped: BTreeSet<String>,
    /// Members that the operator took down while they were online, and that
    /// are not online again.
    pub(crate) voluntary: BTreeSet<String>,
    /// Members whose node has left, and when.
    pub(crate) node_left: BTreeMap<String, Timestamp>,
    /// EdgeRouters that a person deleted.
    pub(crate) by_hand: BTreeSet<String>,
    /// The set was deleted with `--cascade=orphan`.
    pub(crate) orphaned: bool,
    /// The set's object is an old one just now.
    pub(crate) stale: bool,
    /// Numbers wished for since the workload was last written.
    wishes: BTreeSet<i32>,
}

impl Ledger {
    pub(crate) fn wished(&mut self, replicas: i32) {
        self.wishes.insert(replicas);
    }
}

impl World {
    /// What is looked at after every step.
    pub(crate) fn after_step(&mut self) {
        self.others_are_left_alone();
        self.no_second_entity();
        self.no_shared_identity();
    }

    /// Whether a router is another installation's, and so its own affair.
    pub(crate) fn is_of_another_farm(&self, tags: &BTreeMap<String, String>) -> bool {
        let uid = tags.get(names::TAG_INSTALL_UID);
        uid.is_some() && uid != self.settings.install_uid.as_ref()
    }

    /// One object never has two routers on a network.
    fn no_second_entity(&mut self) {
        let mut owners = BTreeSet::new();
        for router in self.ziti.routers.values() {
            let tags = &router.entity.tags;
            if let Some(name) = tags.get(names::TAG_NAME)
                && !self.is_of_another_farm(tags)
                && !owners.insert((tags.get(names::TAG_NAMESPACE).cloned(), name.clone()))
            {
                let name = name.clone();
                return self.must(false, || format!("{name} has two routers on the network"));
            }
        }
    }

    /// Two pods never run with one identity.
    fn no_shared_identity(&mut self) {
        let mut seen = BTreeSet::new();
        let shared = self
            .kube
            .pods
            .values()
            .filter_map(|running| running.router.as_ref())
            .any(|identity| !seen.insert(identity.certificate.clone()));
        self.must(!shared, || "two pods run with one identity".to_owned());
    }

    /// A token is never given to two members.
    pub(crate) fn token_given(&mut self, member: &str, digest: &str) {
        let to = self
            .ledger
            .tokens
            .entry(digest.to_owned())
            .or_insert_with(|| member.to_owned())
            .clone();
        self.must(to == member, || {
            format!("token {digest} is given to {to} and to {member}")
        });
    }

    /// Plans are deterministic, and neither they nor the facts show a token.
    pub(crate) fn check_edge_router_plan(
        &mut self,
        facts: &edge_router::Facts,
        plan: &edge_router::Plan,
    ) {
        if !self.of_many {
            let mut turned = facts.clone();
            if let edge_router::NetworkFacts::Known(view) = &mut turned.network {
                view.entities.reverse();
            }
            self.must(edge_router::plan(&turned) == *plan, || {
                "the plan of an EdgeRouter depends on the order of facts".to_owned()
            });
        }
        self.must(!facts.object.spec.paused || plan.steps.is_empty(), || {
            format!("paused, and something is done: {:?}", plan.steps)
        });
        let doubt = !self.reachable && self.has_credential() && !self.is_provided();
        let writes = plan.steps.iter().any(Step::writes_to_network);
        self.must(!(doubt && writes), || {
            format!("doubt, and a write to the network: {:?}", plan.steps)
        });
    }

    pub(crate) fn check_set_plan(&mut self, facts: &set::Facts, plan: &set::Plan) {
        let passes_on = |step: &set::Step| match step {
            set::Step::ApplyEdgeRouter(er) => er.spec.paused,
            // Of an earlier set, which is not paused.
            set::Step::ReleaseInUse { .. } => true,
            _ => false,
        };
        let at_rest = plan.steps.iter().all(passes_on);
        self.must(!facts.object.spec.paused || at_rest, || {
            format!("paused, and something is done: {:?}", plan.steps)
        });
        if self.faulty && !self.of_many {
            self.is_deterministic(facts, plan);
        }
        if self.mode == Mode::ProvidedAlone {
            self.must(!format!("{plan:?}").contains(TOKEN_TEXT), || {
                "a printed plan shows a token".to_owned()
            });
            self.must(!format!("{facts:?}").contains(TOKEN_TEXT), || {
                "printed facts show a token".to_owned()
            });
        }
    }

    fn is_deterministic(&mut self, facts: &set::Facts, plan: &set::Plan) {
        let mut turned = facts.clone();
        turned.pods.reverse();
        turned.edge_routers.reverse();
        turned.services.reverse();
        turned.claims.reverse();
        turned.config_maps.reverse();
        turned.stateful_sets.reverse();
        turned.extras.reverse();
        if let Some(nodes) = &mut turned.nodes {
            nodes.reverse();
        }
        let again = set::plan(&turned);
        self.must(again.status == plan.status, || {
            "the status of a set depends on the order of facts".to_owned()
        });
        let sorted = |plan: &set::Plan| {
            let mut steps: Vec<String> =
                plan.steps.iter().map(|step| format!("{step:?}")).collect();
            steps.sort();
            steps
        };
        self.must(sorted(&again) == sorted(plan), || {
            "the plan of a set depends on the order of facts".to_owned()
        });
    }

    /// Applying a plan twice equals once: nothing that was just done is
    /// planned again.
    pub(crate) fn check_applied_once(&mut self, plan: &set::Plan) {
        if self.ledger.stale || self.of_many {
            return;
        }
        let Some(object) = self.kube.set.clone() else {
            return;
        };
        let settings = self.settings.clone();
        let object = self.seen(&object);
        let next = set::plan(&self.set_facts(&object, &settings));
        if let Some(step) = next.steps.iter().find(|step| plan.steps.contains(step)) {
            let step = format!("{step:?}");
            self.must(false, || {
                format!("planned again right after it was done: {step}")
            });
        }
    }

    fn known(&self, object: &EdgeRouter) -> Option<EdgeRouter> {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        self.kube.edge_routers.get(name).cloned()
    }

    /// Before a write to the network.
    pub(crate) fn check_network_write(&mut self, object: &EdgeRouter, step: &Step) {
        let settings = self.settings.clone();
        let managed = matches!(object.spec.enrollment, Enrollment::Managed(_));
        self.must(managed, || {
            format!("the network is written to for a provided token: {step:?}")
        });
        self.must(self.right_network(), || {
            format!("a write to another network: {step:?}")
        });
        let entity = |id: &str| {
            self.ziti
                .routers
                .get(id)
                .map(|router| router.entity.clone())
        };
        match step {
            Step::Create(spec) => {
                let live = self
                    .known(object)
                    .is_some_and(|known| known.metadata.uid == object.metadata.uid);
                self.must(live, || {
                    format!("{} is registered for an object that is gone", spec.name)
                });
                let twin = self
                    .ziti
                    .routers
                    .values()
                    .any(|router| tags_are_of_object(&router.entity.tags, object, &settings));
                self.must(!twin, || format!("{} is registered twice", spec.name));
            }
            Step::Claim { id, .. } => {
                let Some(entity) = entity(id) else { return };
                let ours = tags_are_of_object(&entity.tags, object, &settings);
                let elsewhere =
                    matches!(owner(&entity.tags, object, &settings), Owner::Elsewhere(_));
                let by_name = object.spec.adoption_policy == AdoptionPolicy::ByName;
                let allowed = ours || (by_name && !elsewhere);
                self.must(allowed, || format!("{id} is not ours, and is claimed"));
            }
            Step::Update { id, .. } | Step::ReEnroll { id, .. } | Step::Delete { id } => {
                let Some(entity) = entity(id) else { return };
                let ours = tags_are_of_object(&entity.tags, object, &settings);
                self.must(ours, || format!("{id} is not ours: {step:?}"));
                let destroys = !matches!(step, Step::Update { .. });
                self.must(!(destroys && entity.online), || {
                    format!("{id} is online: {step:?}")
                });
            }
            _ => {}
        }
        if let Step::Delete { id } = step {
            let name = object.metadata.name.clone().unwrap_or_default();
            let uid = object.metadata.uid.clone().unwrap_or_default();
            let runs = self.kube.pods.contains_key(&name) && !self.ledger.by_hand.contains(&uid);
            self.must(!runs, || {
                format!("{id} is deleted while pod {name} is there")
            });
        }
    }

    /// When the EdgeRouter controller lets an object go, nothing of it is left
    /// on the network, unless that was wished.
    pub(crate) fn check_release(&mut self, name: &str) {
        let er = self.kube.edge_routers[name].clone();
        let status = er.status.clone().unwrap_or_default();
        let registered = status.id.is_some() || status.intent.is_some();
        let stays = er.spec.deletion_policy == DeletionPolicy::Retain
            || matches!(er.spec.enrollment, Enrollment::Provided(_));
        if stays || (!registered && !self.reachable) {
            return;
        }
        let settings = self.settings.clone();
        let network = if self.right_network() {
            &self.ziti
        } else {
            &self.elsewhere
        };
        let left = network
            .routers
            .values()
            .any(|router| tags_are_of_object(&router.entity.tags, &er, &settings));
        let comes = network.late.iter().any(|(_, step)| matches!(step, Step::Create(spec) if tags_are_of_object(&spec.tags, &er, &settings)));
        self.must(!left && !comes, || {
            format!("{name} is let go, and its router is left on the network")
        });
    }

    /// The hold on an EdgeRouter ends after its pod.
    pub(crate) fn check_in_use(&mut self, name: &str) {
        let er = &self.kube.edge_routers[name];
        if self
            .ledger
            .by_hand
            .contains(er.metadata.uid.as_deref().unwrap_or_default())
        {
            return;
        }
        let pod = self.kube.pods.contains_key(name);
        let workload = self.workload_of(name);
        let place = self.place_of(name);
        let wanted = place < self.kube.replicas(&workload);
        let ends = self.kube.terminating
            || self
                .kube
                .stateful_sets
                .get(&workload)
                .is_some_and(|set| set.metadata.deletion_timestamp.is_some());
        let wanted = wanted && !ends;
        self.must(!pod && !wanted, || {
            format!("{name} is let go while its pod is there or to come")
        });
    }

    /// The StatefulSet that runs a member, and which of its pods that is.
    pub(crate) fn workload_of(&self, member: &str) -> String {
        if self.spec.effective_topology().is_per_member() {
            member.to_owned()
        } else {
            self.set_name.clone()
        }
    }

    fn place_of(&self, member: &str) -> i32 {
        if self.spec.effective_topology().is_per_member() {
            0
        } else {
            ordinal(&self.set_name, member).expect("a member has an ordinal")
        }
    }

    /// A pod is added with an identity or its token only, and the workload
    /// shrinks only because the wish shrank.
    pub(crate) fn check_workload(&mut self, object: &ZitiRouter, wanted: &StatefulSet) {
        let workload = wanted.metadata.name.clone().unwrap_or_default();
        let per_member = self.spec.effective_topology().is_per_member();
        let before = self.kube.replicas(&workload);
        let after = wanted
            .spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or(1);
        for place in before..after {
            let name = if per_member {
                workload.clone()
            } else {
                self.member(place)
            };
            self.check_start(&name);
        }
        let live = self
            .kube
            .set
            .as_ref()
            .is_some_and(|set| set.metadata.uid == object.metadata.uid);
        let wished = if self.is_per_node() {
            // The operator may have seen it leave later, and never earlier.
            let left = self.ledger.node_left.get(&workload);
            // Whose EdgeRouter a person took away meanwhile is kept no longer.
            let forgotten = !self.kube.edge_routers.contains_key(&workload);
            left.is_some_and(|left| forgotten || self.now.duration_since(*left) >= NODE_GRACE)
        } else if per_member {
            !self.wished_members(object).contains(&workload)
        } else {
            self.ledger.wishes.contains(&after)
        };
        self.must(
            after >= before || ((wished || self.ledger.stale) && live),
            || format!("{workload} shrinks from {before} to {after} without such a wish"),
        );
        let live = live
            && self
                .kube
                .set
                .as_ref()
                .is_some_and(|set| set.metadata.deletion_timestamp.is_none());
        let is_new = !self.kube.stateful_sets.contains_key(&workload);
        for (name, running) in self.kube.pods.clone() {
            let taken = self.workload_of(&name) == workload && self.place_of(&name) >= after;
            let runs = running.pod.metadata.deletion_timestamp.is_none();
            if taken && live && !wished && runs && is_new {
                return self.must(false, || {
                    format!("{name} runs, and the new workload of {after} does not want it")
                });
            }
        }
        if live && !per_member {
            let now = self.kube.set.as_ref().map(|set| set.spec.replicas);
            self.ledger.wishes = now.into_iter().chain([object.spec.replicas]).collect();
        }
    }

    /// A pod of this member is about to be added.
    fn check_start(&mut self, name: &str) {
        let token = self
            .kube
            .tokens
            .as_ref()
            .is_some_and(|secret| secret.keys.get(name).is_some_and(Option::is_some));
        let identity = self
            .kube
            .claims
            .get(&claim_name(name))
            .is_some_and(|volume| volume.identity.is_some());
        // With no network to ask, nobody knows what a kept volume holds.
        let kept =
            self.mode == Mode::ProvidedAlone && self.kube.claims.contains_key(&claim_name(name));
        let excused = self.kube.pods.contains_key(name)
            || self.ledger.wiped.contains(name)
            || kept
            || self.ledger.stale;
        self.must(token || identity || excused, || {
            format!("{name} is added with neither token nor identity")
        });
    }

    /// A workload of its own goes when its member is not wanted, and has left.
    pub(crate) fn check_workload_goes(&mut self, object: &ZitiRouter, workload: &str) {
        if object.metadata.deletion_timestamp.is_some() || self.ledger.stale {
            return;
        }
        let wanted = self.wished_members(object).contains(&workload.to_owned());
        let pod = self.kube.pods.contains_key(workload);
        self.must(!wanted && !pod, || {
            format!("workload {workload} goes while its member is wanted or runs")
        });
    }

    fn is_online(&self, name: &str) -> bool {
        let identity = self
            .kube
            .pods
            .get(name)
            .and_then(|running| running.router.as_ref());
        identity.is_some_and(|identity| self.ziti.is_online(&identity.certificate))
    }

    /// The operator takes down one member at a time, and none while another is
    /// known to be down.
    pub(crate) fn check_disruption(&mut self, facts: &set::Facts, name: &str) {
        if !self.is_online(name) {
            return;
        }
        let wished = self.wished_members(facts.object);
        self.ledger.voluntary.insert(name.to_owned());
        let down: Vec<&String> = self
            .ledger
            .voluntary
            .iter()
            .filter(|name| wished.contains(name))
            .collect();
        let many = down.len() > 1;
        let down = format!("{down:?}");
        self.must(!many, || {
            format!("the operator takes down {name} while it has others down: {down}")
        });
        let topology = facts.object.spec.effective_topology();
        for other in wished.iter().filter(|other| *other != name) {
            let pod_name = pod_name(topology, other);
            let running = facts.pods.iter().any(|pod| {
                let ready = pod
                    .status
                    .iter()
                    .flat_map(|status| status.conditions.iter().flatten())
                    .any(|c| c.type_ == "Ready" && c.status == "True");
                pod.metadata.name.as_ref() == Some(&pod_name)
                    && pod.metadata.deletion_timestamp.is_none()
                    && ready
            });
            self.must(running, || {
                format!("the operator takes down {name} while {other} is down")
            });
        }
    }

    /// A configuration goes when nobody uses it any more.
    pub(crate) fn check_config_map(&mut self, name: &str) {
        let mounted = |spec: &k8s_openapi::api::core::v1::PodSpec| {
            spec.volumes.iter().flatten().any(|volume| {
                volume
                    .config_map
                    .as_ref()
                    .is_some_and(|map| map.name == name)
            })
        };
        let pods = self
            .kube
            .pods
            .values()
            .filter_map(|running| running.pod.spec.as_ref())
            .any(mounted);
        let template = self
            .kube
            .stateful_sets
            .values()
            .filter_map(|set| set.spec.as_ref()?.template.spec.as_ref())
            .any(mounted);
        self.must(!pods && !template, || format!("{name} is still used"));
    }

    /// A volume goes last, and by its policy.
    pub(crate) fn check_claim(&mut self, object: &ZitiRouter, member: &str) {
        let claim = format!("the volume of {member}");
        let pod = self.kube.pods.contains_key(member);
        let registered = self.kube.edge_routers.contains_key(member);
        if !self.ledger.stale {
            self.must(!pod && !registered, || {
                format!("{claim} goes before its member")
            });
        }
        let retention = &object.spec.retention;
        let policy = if object.metadata.deletion_timestamp.is_some() {
            retention.when_deleted
        } else {
            retention.when_scaled
        };
        self.must(policy == RetentionPolicy::Delete, || {
            format!("{claim} goes against its policy")
        });
        self.must(!self.ledger.orphaned, || {
            format!("{claim} goes although the set was orphaned")
        });
    }
}
