//! The other cluster of a set that is placed afar: what its objects look like there,
//! the way to it with the operator's verdict on it, a person who gives it up, and
//! another ZitiRouter of the same name that has something there as well.

use super::edge_router_driver::Fault;
use super::kube::SecretData;
use super::{NAMESPACE, World};
use api::{ClusterRef, ZitiRouter, names, reasons};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use plan::edge_router::Problem;
use plan::set;
use plan::set::placement::{Home, out_of_reach, placed};
use plan::set::render;
use std::collections::{BTreeMap, BTreeSet};

/// That of its workloads.
const FAR_NAMESPACE: &str = "routers";
/// The uid of the other ZitiRouter.
const STRANGER: &str = "uid-of-a-stranger";

/// The ZitiCluster of sets that are placed afar.
pub(crate) fn reference() -> ClusterRef {
    ClusterRef {
        name: "hill".to_owned(),
    }
}

/// The other cluster.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a thing that holds or does not"
)]
pub(crate) struct Far {
    /// It cannot be reached.
    away: bool,
    /// What the operator thinks of it: seen away at its last look.
    seen_away: bool,
    /// The operator has just begun, and has not looked yet.
    unseen: bool,
    /// A person gave it up.
    given_up: bool,
    /// The way there breaks after so many writes; whether that one is carried out.
    breaks: Option<(u32, bool)>,
    /// The last write was carried out and its reply is lost.
    no_reply: bool,
    /// What the other ZitiRouter has there.
    stranger: Option<(Service, ConfigMap)>,
    /// ZitiRouters that were deleted with `--cascade=orphan`.
    orphaned: BTreeSet<String>,
    /// Something of the set was let go while the cluster was given up.
    left_behind: bool,
}

impl World {
    /// The cluster cannot be reached any more, or can again.
    pub(crate) fn cut_off(&mut self, away: bool) {
        if let Some(far) = &mut self.far {
            far.away = away;
        }
    }

    /// The operator looks whether the cluster can be worked in.
    pub(crate) fn look_at_cluster(&mut self) {
        if let Some(far) = &mut self.far {
            far.seen_away = far.away;
            far.unseen = false;
        }
    }

    /// The operator begins anew, and knows of no cluster yet.
    pub(crate) fn forget_cluster(&mut self) {
        if let Some(far) = &mut self.far {
            far.unseen = true;
        }
    }

    /// The operator thinks so of the cluster.
    pub(crate) fn judge_cluster(&mut self, verdict: &Result<(), Problem>) {
        if let Some(far) = &mut self.far {
            let is_unseen = |problem: &Problem| problem.reason == reasons::PENDING;
            far.unseen = verdict.as_ref().is_err_and(is_unseen);
            far.seen_away = verdict.is_err();
        }
    }

    /// Reconcile the set while the way to its cluster breaks.
    pub(crate) fn break_in_reconcile(&mut self, writes: u32, done: bool) {
        if let Some(far) = &mut self.far {
            far.breaks = Some((writes, done));
        }
        self.reconcile_set(None);
        if let Some(far) = &mut self.far {
            far.breaks = None;
        }
    }

    /// A person writes `confirm-abandon`, or takes it off.
    pub(crate) fn give_up(&mut self, gives: bool) {
        if let Some(far) = &mut self.far {
            far.given_up = gives;
        }
    }

    /// Another ZitiRouter of the same name has something there, or no more.
    pub(crate) fn stranger(&mut self, comes: bool) {
        let Some(far) = &mut self.far else { return };
        let (service, map) = stranger(&self.set_name);
        let (of_service, of_map) = (
            service.metadata.name.clone().unwrap_or_default(),
            map.metadata.name.clone().unwrap_or_default(),
        );
        if comes {
            far.stranger = Some((service.clone(), map.clone()));
            self.kube.services.insert(of_service, service);
            self.kube.config_maps.insert(of_map, map);
            if self.kube.tokens.is_none() {
                self.kube.tokens = Some(SecretData {
                    owner: Some(STRANGER.to_owned()),
                    ..SecretData::default()
                });
            }
        } else if far.stranger.take().is_some() {
            self.kube.services.remove(&of_service);
            self.kube.config_maps.remove(&of_map);
            let tokens = self.kube.tokens.take();
            self.kube.tokens = tokens.filter(|secret| secret.owner.as_deref() != Some(STRANGER));
        }
    }

    /// What another home has is never touched.
    pub(crate) fn others_are_left_alone(&mut self) {
        let Some((service, map)) = self.far.as_ref().and_then(|far| far.stranger.clone()) else {
            return;
        };
        let name = |metadata: &ObjectMeta| metadata.name.clone().unwrap_or_default();
        let stands = self.kube.services.get(&name(&service.metadata)) == Some(&service)
            && self.kube.config_maps.get(&name(&map.metadata)) == Some(&map);
        self.must(stands, || "what another home has was touched".to_owned());
    }

    /// Whose Secret it is.
    pub(crate) fn is_of_stranger<V>(&self, secret: &SecretData<V>) -> bool {
        self.far.is_some() && secret.owner.as_deref() == Some(STRANGER)
    }

    /// Whether a person gave the cluster up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.far.as_ref().is_some_and(|far| far.given_up)
    }

    /// Whether what is there cannot be seen now.
    pub(crate) fn is_out_of_sight(&self) -> bool {
        let far = self.far.as_ref();
        far.is_some_and(|far| !far.given_up && (far.away || far.seen_away || far.unseen))
    }

    /// Whether the set goes although its cluster never comes back.
    pub(crate) fn is_let_go(&self, object: &ZitiRouter) -> bool {
        self.is_given_up() && object.metadata.deletion_timestamp.is_some()
    }

    /// The object as the planner sees it.
    pub(crate) fn seen(&self, object: &ZitiRouter) -> ZitiRouter {
        if self.far.is_some() && !self.is_let_go(object) {
            placed(object, FAR_NAMESPACE)
        } else {
            object.clone()
        }
    }

    pub(crate) fn home_of_facts(&self, object: &ZitiRouter) -> Option<String> {
        let afar = self.far.is_some() && !self.is_let_go(object);
        afar.then(|| NAMESPACE.to_owned())
    }

    fn home(&self, object: &ZitiRouter) -> Home {
        Home {
            namespace: NAMESPACE.to_owned(),
            ..Home::of(object, &self.settings)
        }
    }

    /// Objects that are read where the workloads are.
    pub(crate) fn entered<'a, K>(
        &self,
        object: &ZitiRouter,
        stored: impl Iterator<Item = &'a K>,
    ) -> Vec<K>
    where
        K: Resource + Clone + 'a,
    {
        if self.far.is_none() {
            return stored.cloned().collect();
        }
        if self.is_let_go(object) {
            return Vec::new();
        }
        let (home, owner) = (self.home(object), render::owner(object));
        let entered = stored.cloned().map(|mut one| {
            home.enter(one.meta_mut(), &owner);
            one
        });
        entered.collect()
    }

    /// An object as it is written where the workloads are.
    pub(crate) fn left<K: Resource + Clone>(&self, planned: &K) -> K {
        let mut one = planned.clone();
        if self.far.is_some() {
            let uid = one.meta().owner_references.iter().flatten().next();
            let home = Home {
                install: Home::installation(&self.settings),
                namespace: NAMESPACE.to_owned(),
                name: self.set_name.clone(),
                uid: uid.map(|owner| owner.uid.clone()).unwrap_or_default(),
                earlier_install: None,
            };
            home.leave(one.meta_mut(), FAR_NAMESPACE);
        }
        one
    }

    /// Whether the set may be worked on now: as the operator asks for the way to its
    /// cluster. Where there is none, that is said.
    pub(crate) fn may_work_there(&mut self, object: &ZitiRouter) -> bool {
        let Some(far) = &mut self.far else {
            return true;
        };
        let problem = if far.given_up {
            if object.metadata.deletion_timestamp.is_some() {
                return true;
            }
            Problem::new(reasons::CLUSTER_ABANDONED, "given up")
        } else if far.unseen {
            Problem::new(reasons::PENDING, "it has not been reached yet")
        } else if far.seen_away {
            Problem::new(reasons::CLUSTER_UNREACHABLE, "away")
        } else if far.away {
            // A read fails, and the cluster is looked at.
            far.seen_away = true;
            return false;
        } else {
            return true;
        };
        let edge_routers: Vec<_> = self.kube.edge_routers.values().cloned().collect();
        let plan = out_of_reach(object, &edge_routers, &problem, self.now);
        self.must(plan.steps.is_empty(), || {
            format!(
                "the cluster is away, and something is done: {:?}",
                plan.steps
            )
        });
        let uid = |set: &ZitiRouter| set.metadata.uid.clone();
        if self.kube.set.as_ref().map(uid) == Some(uid(object)) && self.spend().is_ok() {
            self.kube.change_set(|set| set.status = Some(plan.status));
            let again = self.kube.set.clone().map(|set| {
                let plan = out_of_reach(&set, &edge_routers, &problem, self.now);
                set.status == Some(plan.status)
            });
            self.must(again != Some(false) || self.ledger.stale, || {
                "what is said of a cluster that is away changes at each look".to_owned()
            });
        }
        false
    }

    /// A write on its way to the cluster. Whether it arrives.
    pub(crate) fn pass(&mut self, step: &set::Step) -> bool {
        let Some(far) = &mut self.far else {
            return true;
        };
        let open = !far.given_up && !far.away;
        let arrives = match &mut far.breaks {
            Some((0, done)) => {
                far.away = true;
                far.seen_away = true;
                far.no_reply = *done;
                far.no_reply
            }
            Some((left, _)) => {
                *left -= 1;
                true
            }
            None => true,
        };
        self.must(open, || {
            format!("the cluster cannot be worked in, and is written to: {step:?}")
        });
        arrives
    }

    /// The reply of a write to the cluster.
    pub(crate) fn reply(&mut self) -> Result<(), Fault> {
        let far = self.far.as_mut();
        if far.is_some_and(|far| std::mem::take(&mut far.no_reply)) {
            return Err(Fault::Network("the cluster does not answer".to_owned()));
        }
        Ok(())
    }

    /// A hold that is taken off although the pod may run on.
    pub(crate) fn given_up_with(&mut self, edge_router: &str) {
        if self.is_given_up() {
            let uid = self.kube.edge_routers[edge_router].metadata.uid.clone();
            self.ledger.by_hand.insert(uid.unwrap_or_default());
        }
    }

    /// `--cascade=orphan` reaches the cluster by no way.
    pub(crate) fn leave_orphans_afar(&mut self) {
        let uid = self.kube.set.as_ref();
        let uid = uid.and_then(|set| set.metadata.uid.clone());
        if let Some(far) = &mut self.far {
            far.orphaned.extend(uid);
        }
    }

    /// The set is gone while its cluster was given up.
    pub(crate) fn let_go(&mut self) {
        let given_up = self.is_given_up();
        if let Some(far) = &mut self.far {
            far.left_behind |= given_up;
        }
    }

    /// Whether something may be left in the cluster by a person's word.
    pub(crate) fn is_left_behind(&self) -> bool {
        let orphaned = |far: &Far| self.kube.terminating && !far.orphaned.is_empty();
        let far = self.far.as_ref();
        far.is_some_and(|far| far.left_behind || orphaned(far))
    }

    /// How many Services and ConfigMaps, and how many Secrets, another home has.
    pub(crate) fn of_others(&self) -> (usize, usize) {
        let stranger = self.far.as_ref().and_then(|far| far.stranger.as_ref());
        let mut secrets = self.kube.tokens.iter();
        let has_secret = secrets.any(|secret| self.is_of_stranger(secret));
        (usize::from(stranger.is_some()), usize::from(has_secret))
    }

    fn homes(&self) -> BTreeSet<String> {
        let kube = &self.kube;
        let services = kube.services.values().map(|one| &one.metadata);
        let all = services
            .chain(kube.config_maps.values().map(|one| &one.metadata))
            .chain(kube.stateful_sets.values().map(|one| &one.metadata))
            .chain(kube.extras.values().map(|one| &one.metadata));
        let homes = all.filter_map(|metadata| {
            let home = metadata.annotations.as_ref()?.get(names::ANNOTATION_HOME)?;
            home.rsplit('/').next().map(str::to_owned)
        });
        let tokens = kube.tokens.iter().filter_map(|one| one.owner.clone());
        homes.chain(tokens).collect()
    }

    /// Whether objects are there that `--cascade=orphan` left behind.
    pub(crate) fn has_orphans(&self) -> bool {
        let Some(far) = &self.far else {
            return self.kube.has_orphans();
        };
        let here = self.kube.edge_routers.values();
        let mut here = here.map(|er| er.metadata.owner_references.as_deref().unwrap_or_default());
        let copy = self.kube.provided_copy.as_ref();
        let left = copy.is_some_and(|secret| secret.owner.is_none());
        left || here.any(<[_]>::is_empty)
            || self.homes().iter().any(|home| far.orphaned.contains(home))
    }

    /// The faults of the cluster stop. One that was given up comes back where
    /// something lives of it, and is gone for ever otherwise.
    pub(crate) fn heal_cluster(&mut self) {
        let lives = |set: &ZitiRouter| set.metadata.deletion_timestamp.is_none();
        let taken_back = self.ledger.orphaned || self.has_orphans();
        let lives =
            self.kube.set.as_ref().is_some_and(lives) || (taken_back && !self.kube.terminating);
        let left_behind = self.is_left_behind();
        if lives {
            // A set that goes has to go also beside it.
            self.stranger(false);
        }
        let Some(far) = &mut self.far else { return };
        (far.away, far.seen_away) = (false, false);
        if lives {
            far.given_up = false;
            return;
        }
        if !far.given_up && !left_behind {
            return;
        }
        self.note("the cluster is gone".to_owned());
        self.stranger(false);
        for member in self.kube.pods.keys().cloned().collect::<Vec<_>>() {
            self.drop_connection(&member);
        }
        let kube = &mut self.kube;
        kube.pods.clear();
        kube.claims.clear();
        kube.stateful_sets.clear();
        kube.services.clear();
        kube.config_maps.clear();
        kube.extras.clear();
        kube.tokens = None;
    }
}

/// What the other ZitiRouter has there.
fn stranger(set: &str) -> (Service, ConfigMap) {
    let metadata = |name: String| {
        let mut metadata = ObjectMeta {
            name: Some(name),
            uid: Some(STRANGER.to_owned()),
            labels: Some(BTreeMap::from([(
                names::LABEL_SET.to_owned(),
                set.to_owned(),
            )])),
            ..ObjectMeta::default()
        };
        let home = Home {
            install: "farm".to_owned(),
            namespace: "elsewhere".to_owned(),
            name: set.to_owned(),
            uid: STRANGER.to_owned(),
            earlier_install: None,
        };
        home.leave(&mut metadata, FAR_NAMESPACE);
        metadata
    };
    let service = Service {
        metadata: metadata(format!("{set}-7")),
        ..Service::default()
    };
    let map = ConfigMap {
        metadata: metadata(format!("{set}-config-of-another")),
        ..ConfigMap::default()
    };
    (service, map)
}
