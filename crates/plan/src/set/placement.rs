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
use crate::Settings;
use crate::conditions::{Conditions, Truth, find};
use crate::edge_router::Problem;
use api::reasons::types;
use api::{EdgeRouter, ZitiRouter, names, reasons};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Resource;
use std::fmt;

/// How soon to look again at a set whose cluster cannot be worked in. The cluster's
/// return wakes it; this is for what nobody tells.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(5);

/// The ZitiRouter of objects in another cluster, as they name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Id of the installation.
    pub install: String,
    /// Its uid, which tells it from another one of that id.
    pub install_uid: Option<String>,
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
            install_uid,
            namespace,
            name,
            uid,
        } = self;
        write!(formatter, "{install}")?;
        if let Some(install_uid) = install_uid {
            write!(formatter, "@{install_uid}")?;
        }
        write!(formatter, "/{namespace}/{name}/{uid}")
    }
}

impl Home {
    /// That of the objects of a ZitiRouter.
    pub fn of(object: &ZitiRouter, settings: &Settings) -> Self {
        let metadata = &object.metadata;
        Self {
            install: settings.install_id.clone(),
            install_uid: settings.install_uid.clone(),
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
        let install = parts.next()?;
        let (install, install_uid) = match install.split_once('@') {
            Some((install, uid)) => (install.to_owned(), Some(uid.to_owned())),
            None => (install, None),
        };
        Some(Self {
            install,
            install_uid,
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
        if self.is(&home) {
            metadata.owner_references = Some(vec![owner.clone()]);
        } else if !self.is_successor_of(&home) {
            metadata.owner_references = Some(vec![home.as_owner()]);
        }
    }

    /// An object that was read where the operator itself is. Another one, which is
    /// the hub of this cluster, may have put it here: then it has an owner.
    pub fn enter_here(metadata: &mut ObjectMeta) {
        if controller(metadata).is_none()
            && let Some(home) = Self::read(metadata)
        {
            metadata.owner_references = Some(vec![home.as_owner()]);
        }
    }

    /// The ZitiRouter as an owner that is nowhere near.
    fn as_owner(&self) -> OwnerReference {
        OwnerReference {
            api_version: ZitiRouter::api_version(&()).into_owned(),
            kind: ZitiRouter::kind(&()).into_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }

    fn is_in_place_of(&self, other: &Self) -> bool {
        let place = |home: &Self| {
            let Self {
                install,
                namespace,
                name,
                ..
            } = home.clone();
            (install, namespace, name)
        };
        place(self) == place(other)
    }

    /// Whether both are the same ZitiRouter. The operator may have moved meanwhile.
    fn is(&self, other: &Self) -> bool {
        self.is_in_place_of(other) && self.uid == other.uid
    }

    /// Whether this one is in the place where the other was: two clusters may have
    /// been given the same install id.
    fn is_successor_of(&self, other: &Self) -> bool {
        self.is_in_place_of(other) && self.install_uid == other.install_uid
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

/// Whether nothing of a set can run in its cluster: no member has ever had an
/// identity.
pub fn has_never_run(edge_routers: &[EdgeRouter]) -> bool {
    edge_routers.iter().all(|er| {
        let status = er.status.as_ref();
        let enrolled = status.and_then(|status| find(&status.conditions, types::ENROLLED));
        enrolled.is_none_or(|enrolled| enrolled.status == "False")
    })
}

/// Why a set cannot be where objects of its names are those of another one.
pub(super) fn taken(facts: &Facts) -> Option<Problem> {
    let uid = facts.object.metadata.uid.as_deref();
    let cluster = facts.object.spec.cluster();
    let there = facts.stateful_sets.iter().map(|set| &set.metadata);
    let there = there
        .chain(facts.services.iter().map(|service| &service.metadata))
        .chain(facts.config_maps.iter().map(|map| &map.metadata));
    // Here, what has no home is of a ZitiRouter that is going.
    let has_home = |metadata: &&ObjectMeta| cluster.is_some() || Home::read(metadata).is_some();
    let mut there = there.filter(has_home);
    if !there.any(|metadata| controller(metadata).is_some_and(|owner| Some(owner) != uid)) {
        return None;
    }
    let (set, home) = (render::set_name(facts.object), names::ANNOTATION_HOME);
    let of_cluster = cluster.map_or_else(String::new, |name| format!(" of ZitiCluster {name}"));
    let message = format!(
        "namespace {}{of_cluster} has a set {set} of another ZitiRouter, or of another installation (annotation {home} of its \
         StatefulSets and Services says whose): nothing of it is touched. Choose another name. If it was left behind, take it over by \
         removing that annotation there (kubectl annotate statefulsets,services,configmaps,secrets -l {label}={set} {home}-), or delete \
         it there (kubectl delete statefulsets,services,configmaps,secrets -l {label}={set})",
        render::namespace(facts.object),
        label = names::LABEL_SET
    );
    Some(Problem::new(reasons::NAME_TAKEN, message))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn home(install_uid: Option<&str>, uid: &str) -> Home {
        Home {
            install: "pier".into(),
            install_uid: install_uid.map(str::to_owned),
            namespace: "coast".into(),
            name: "lamp".into(),
            uid: uid.into(),
        }
    }

    /// Whose an object that `from` left is, seen from `to`.
    fn seen(from: &Home, to: &Home) -> Option<String> {
        let mut metadata = ObjectMeta::default();
        from.leave(&mut metadata, "edge");
        assert_eq!(Home::read(&metadata).as_ref(), Some(from));
        to.enter(&mut metadata, &to.as_owner());
        controller(&metadata).map(str::to_owned)
    }

    #[test]
    fn what_is_in_another_cluster_is_its_zitirouters_and_may_be_taken_back_by_its_successor() {
        let first = home(Some("here"), "u1");
        assert_eq!(seen(&first, &first).as_deref(), Some("u1"));
        assert_eq!(seen(&first, &home(Some("here"), "u2")), None);
        // The operator moved.
        assert_eq!(
            seen(&first, &home(Some("moved"), "u1")).as_deref(),
            Some("u1")
        );
        assert_eq!(seen(&home(None, "u1"), &home(None, "u2")), None);
    }

    #[test]
    fn two_hubs_that_were_given_the_same_id_keep_off_each_others_sets() {
        let (east, west) = (home(Some("east"), "u1"), home(Some("west"), "u2"));
        assert_eq!(seen(&east, &west).as_deref(), Some("u1"));
        assert_eq!(seen(&home(None, "u1"), &west).as_deref(), Some("u1"));
    }

    #[test]
    fn the_operator_of_a_cluster_keeps_off_what_its_hub_put_there() {
        let mut metadata = ObjectMeta::default();
        Home::enter_here(&mut metadata);
        assert_eq!(controller(&metadata), None);
        home(Some("hub"), "u1").leave(&mut metadata, "edge");
        Home::enter_here(&mut metadata);
        assert_eq!(controller(&metadata), Some("u1"));
    }
}
