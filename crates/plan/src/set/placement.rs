//! A set whose workloads are in another cluster: whose the objects there are, which
//! cannot be owned across clusters, what is said while the cluster cannot be worked
//! in, and what nobody collects there.
//!
//! The rest of the planner does not know where a set is. It is given the ZitiRouter
//! with the namespace of its workloads, and objects with owner references;
//! [`Home::leave`] and [`Home::enter`] translate, and whoever reads and writes in the
//! other cluster calls them.

use super::applied::is_stamped;
use super::ownership::controller;
use super::{Facts, Plan, Step, TokensSecret, extra, render};
use crate::conditions::{Conditions, Truth, find};
use crate::edge_router::Problem;
use api::reasons::types;
use api::{EdgeRouter, ZitiRouter, names, reasons};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::fmt;

/// How soon to look again at a set whose cluster cannot be worked in. The cluster's
/// return wakes it; this is for what nobody tells.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(5);

/// The ZitiRouter of objects in another cluster, as they name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// The installation.
    pub install: String,
    /// Namespace of the ZitiRouter.
    pub namespace: String,
    /// Name of the ZitiRouter.
    pub name: String,
    /// Uid of the ZitiRouter.
    pub uid: String,
}

impl fmt::Display for Home {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            install,
            namespace,
            name,
            uid,
        } = self;
        write!(formatter, "{install}/{namespace}/{name}/{uid}")
    }
}

impl Home {
    /// That of the objects of a ZitiRouter.
    pub fn of(object: &ZitiRouter, install: &str) -> Self {
        let metadata = &object.metadata;
        Self {
            install: install.to_owned(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
        }
    }

    /// What an object says, if it says so.
    fn read(metadata: &ObjectMeta) -> Option<Self> {
        let text = metadata.annotations.as_ref()?.get(names::ANNOTATION_HOME)?;
        let mut parts = text.rsplitn(4, '/').map(str::to_owned);
        let (uid, name, namespace) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            install: parts.next()?,
            namespace,
            name,
            uid,
        })
    }

    /// Make an object ready for `namespace` of the other cluster: it names its home
    /// in the place of an owner, which is not there.
    pub fn leave(&self, metadata: &mut ObjectMeta, namespace: &str) {
        metadata.namespace = Some(namespace.to_owned());
        metadata.owner_references = None;
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(names::ANNOTATION_HOME.to_owned(), self.to_string());
    }

    /// The reverse: an object of the other cluster, as if it were here. One of an
    /// earlier ZitiRouter of the same name and place, which is gone and could not
    /// take it away, has no owner, and so may be taken back.
    pub fn enter(&self, metadata: &mut ObjectMeta, owner: &OwnerReference) {
        let Some(home) = Self::read(metadata) else {
            return;
        };
        if home == *self {
            metadata.owner_references = Some(vec![owner.clone()]);
        } else if !self.is_successor_of(&home) {
            metadata.owner_references = Some(vec![OwnerReference {
                name: home.name,
                uid: home.uid,
                ..owner.clone()
            }]);
        }
    }

    fn is_successor_of(&self, other: &Self) -> bool {
        let place = |home: &Self| {
            (
                home.install.clone(),
                home.namespace.clone(),
                home.name.clone(),
            )
        };
        place(self) == place(other)
    }
}

/// The ZitiRouter with the namespace of its workloads.
pub fn placed(object: &ZitiRouter, namespace: &str) -> ZitiRouter {
    let mut placed = object.clone();
    placed.metadata.namespace = Some(namespace.to_owned());
    placed
}

/// What is said of a set whose cluster cannot be worked in. Nothing is done: what
/// runs there goes on running, and the network tells how it does.
pub fn out_of_reach(
    object: &ZitiRouter,
    edge_routers: &[EdgeRouter],
    problem: &Problem,
    now: Timestamp,
) -> Plan {
    let mut status = object.status.clone().unwrap_or_default();
    if problem.reason == reasons::PENDING && find(&status.conditions, types::READY).is_some() {
        // The operator has just begun: that it has not looked yet is no news.
        return Plan {
            steps: Vec::new(),
            status,
            requeue: Some(LOOK_AGAIN),
        };
    }
    let generation = object.metadata.generation;
    let mut conditions = Conditions::new(&status.conditions, generation, now);
    let is_online = |er: &&EdgeRouter| {
        let status = er.status.as_ref();
        let online = status.and_then(|status| find(&status.conditions, types::ONLINE));
        online.is_some_and(|online| online.status == "True")
    };
    let online = edge_routers.iter().filter(is_online).count();
    let known = edge_routers.len();
    let cluster = object.spec.cluster().unwrap_or_default();
    let told = &problem.message;
    let (truth, message) = if object.metadata.deletion_timestamp.is_some() {
        let way_out = format!(
            "its deletion waits for ZitiCluster {cluster}: {told}. If that never comes back, annotate it with {}={cluster}: what runs \
             there is then left behind",
            names::ANNOTATION_CONFIRM_ABANDON
        );
        (Truth::False, way_out)
    } else {
        let left_alone = format!(
            "ZitiCluster {cluster}: {told}; by the network, {online} of {known} members are online"
        );
        (Truth::Unknown, left_alone)
    };
    conditions.set(types::READY, truth, problem.reason, message);
    conditions.set(
        types::PROGRESSING,
        Truth::False,
        problem.reason,
        format!("nothing is done while ZitiCluster {cluster} cannot be worked in; what runs there is left alone"),
    );
    status.online_replicas = i32::try_from(online).unwrap_or(i32::MAX);
    status.conditions = conditions.into_vec();
    Plan {
        steps: Vec::new(),
        status,
        requeue: Some(LOOK_AGAIN),
    }
}

/// Why a set cannot be where objects of its names are those of another one.
pub(super) fn taken(facts: &Facts) -> Option<Problem> {
    let cluster = facts.object.spec.cluster()?;
    let uid = facts.object.metadata.uid.as_deref();
    let there = facts.stateful_sets.iter().map(|set| &set.metadata);
    let mut there = there
        .chain(facts.services.iter().map(|service| &service.metadata))
        .chain(facts.config_maps.iter().map(|map| &map.metadata));
    if !there.any(|metadata| controller(metadata).is_some_and(|owner| Some(owner) != uid)) {
        return None;
    }
    let set = render::set_name(facts.object);
    let message = format!(
        "namespace {} of ZitiCluster {cluster} has a set {set} of another ZitiRouter, or of another installation (annotation {} of its \
         StatefulSets and Services says whose): nothing of it is touched. Choose another name. If it was left behind, delete it \
         there: kubectl delete statefulsets,services,configmaps,secrets -l {}={set}",
        render::namespace(facts.object),
        names::ANNOTATION_HOME,
        names::LABEL_SET
    );
    Some(Problem::new(reasons::NAME_TAKEN, message))
}

/// The same without what another ZitiRouter has in the other cluster: a set goes
/// also where its name is taken. Claims name no home, so where another one has
/// workloads they may be its own, and none is seen.
pub(super) fn without_others<'a>(facts: &Facts<'a>) -> Facts<'a> {
    let mut own = facts.clone();
    let uid = facts.object.metadata.uid.as_deref();
    let is_own =
        |metadata: &ObjectMeta| controller(metadata).is_none_or(|owner| Some(owner) == uid);
    own.services.retain(|service| is_own(&service.metadata));
    own.config_maps.retain(|map| is_own(&map.metadata));
    own.extras.retain(|extra| is_own(&extra.metadata));
    let workloads = own.stateful_sets.iter().map(|set| &set.metadata);
    let others = workloads.filter(|metadata| !is_own(metadata));
    let others: Vec<String> = others.filter_map(|metadata| metadata.uid.clone()).collect();
    if others.is_empty() {
        return own;
    }
    own.stateful_sets.retain(|set| is_own(&set.metadata));
    own.claims.clear();
    own.pods.retain(|pod| {
        let owner = controller(&pod.metadata);
        owner.is_none_or(|owner| !others.iter().any(|other| other == owner))
    });
    own
}

/// What a set had in another cluster and no garbage collector takes away, once its
/// members are gone. Returns whether anything of it is still there.
pub(super) fn clear(facts: &Facts, steps: &mut Vec<Step>) -> bool {
    if facts.object.spec.cluster().is_none() {
        return false;
    }
    let uid = facts.object.metadata.uid.as_deref();
    let ours = |metadata: &ObjectMeta| controller(metadata) == uid;
    let mut left = false;
    let mut remove = |metadata: &ObjectMeta, step: &dyn Fn(String) -> Step| {
        if !ours(metadata) {
            return;
        }
        left = true;
        if metadata.deletion_timestamp.is_none() {
            steps.push(step(metadata.name.clone().unwrap_or_default()));
        }
    };
    for service in &facts.services {
        remove(&service.metadata, &|name| Step::DeleteService { name });
    }
    for map in &facts.config_maps {
        remove(&map.metadata, &|name| Step::DeleteConfigMap { name });
    }
    for object in facts.extras.iter().filter(|one| is_stamped(&one.metadata)) {
        if let Some(kind) = extra::Kind::of(object) {
            remove(&object.metadata, &|name| Step::DeleteExtra { kind, name });
        }
    }
    if matches!(facts.tokens, TokensSecret::Ours(_)) {
        left = true;
        steps.push(Step::DeleteTokens);
    }
    left
}
