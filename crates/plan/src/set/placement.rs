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
use crate::conditions::{Conditions, Truth, find, is_true};
use crate::edge_router::Problem;
use api::reasons::types;
use api::{EdgeRouter, ZitiRouter, names, reasons};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{Resource, ResourceExt};
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
    /// An earlier id of the installation, by a person's word; said in no object.
    pub earlier_install: Option<String>,
}

impl fmt::Display for Home {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            install,
            namespace,
            name,
            uid,
            earlier_install: _,
        } = self;
        write!(formatter, "{install}/{namespace}/{name}/{uid}")
    }
}

impl Home {
    /// That of the objects of a ZitiRouter.
    pub fn of(object: &ZitiRouter, settings: &Settings) -> Self {
        let metadata = &object.metadata;
        Self {
            install: Self::installation(settings),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            earlier_install: object
                .annotations()
                .get(names::ANNOTATION_CONFIRM_INSTALL)
                .cloned(),
        }
    }

    /// How an installation is named: two may have been given the same id.
    pub fn installation(settings: &Settings) -> String {
        let id = &settings.install_id;
        match &settings.install_uid {
            Some(uid) => format!("{id}@{uid}"),
            None => id.clone(),
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
            earlier_install: None,
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
    /// take it away, has no owner, and so may be taken back; likewise one that was
    /// made under an earlier id of the installation.
    pub fn enter(&self, metadata: &mut ObjectMeta, owner: &OwnerReference) {
        let Some(home) = Self::read(metadata) else {
            return;
        };
        if self.is_said_by(&home) {
            metadata.owner_references = Some(vec![owner.clone()]);
        } else if !self.succeeds(&home) {
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
            // No uid of this cluster.
            uid: self.to_string(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }

    fn is_said_by(&self, home: &Self) -> bool {
        self.uid == home.uid && self.install == home.install && self.has_place_of(home)
    }

    fn succeeds(&self, home: &Self) -> bool {
        let same = self.install == home.install;
        let id = home.install.split('@').next();
        let was = self.earlier_install.as_deref();
        let was = was.is_some_and(|was| was == home.install || Some(was) == id);
        (same || was) && self.has_place_of(home)
    }

    fn has_place_of(&self, home: &Self) -> bool {
        self.namespace == home.namespace && self.name == home.name
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
        status.is_some_and(|status| is_true(&status.conditions, types::ONLINE))
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

/// Why a set cannot be where objects of its names are those of another one: in another
/// cluster, or here where the hub of this cluster put them.
pub(super) fn taken(facts: &Facts) -> Option<Problem> {
    let cluster = facts.object.spec.cluster();
    let uid = facts.object.metadata.uid.as_deref();
    let there = facts.stateful_sets.iter().map(|set| &set.metadata);
    let there = there
        .chain(facts.services.iter().map(|service| &service.metadata))
        .chain(facts.config_maps.iter().map(|map| &map.metadata));
    // Here, what has no home is of a ZitiRouter that is going.
    let whose = there
        .filter(|metadata| cluster.is_some() || Home::read(metadata).is_some())
        .filter_map(controller)
        .find(|owner| Some(*owner) != uid)?;
    let (set, home) = (render::set_name(facts.object), names::ANNOTATION_HOME);
    let of_cluster = cluster.map_or_else(String::new, |name| format!(" of ZitiCluster {name}"));
    let message = format!(
        "namespace {}{of_cluster} has a set {set} that is not this ZitiRouter's: annotation {home} there says {whose} (install id, \
         namespace, name, uid). Nothing of it is touched. Choose another name. Or, if that is an earlier id of this installation, \
         annotate this ZitiRouter with {}=<that id>. Or, if it was left behind, delete it there: kubectl delete \
         statefulsets,services,configmaps,secrets -l {}={set}",
        render::namespace(facts.object),
        names::ANNOTATION_CONFIRM_INSTALL,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn home(install: &str, uid: &str) -> Home {
        Home {
            install: install.to_owned(),
            namespace: "ziti".to_owned(),
            name: "edge".to_owned(),
            uid: uid.to_owned(),
            earlier_install: None,
        }
    }

    /// Whose an object of `made` is for `reader`: its, nobody's or another's.
    fn whose(made: &Home, reader: &Home) -> &'static str {
        let owner = OwnerReference {
            uid: reader.uid.clone(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let mut metadata = ObjectMeta {
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        };
        made.leave(&mut metadata, "there");
        assert_eq!(metadata.owner_references, None);
        assert_eq!(metadata.namespace.as_deref(), Some("there"));
        reader.enter(&mut metadata, &owner);
        match controller(&metadata) {
            Some(uid) if uid == reader.uid => "its",
            Some(_) => "another's",
            None => "nobody's",
        }
    }

    #[test]
    fn what_a_hub_has_put_here_is_not_taken_for_left() {
        let mut metadata = ObjectMeta::default();
        home("hub", "1").leave(&mut metadata, "here");
        Home::enter_here(&mut metadata);
        assert_eq!(controller(&metadata), Some("hub/ziti/edge/1"));
        let mut plain = ObjectMeta::default();
        Home::enter_here(&mut plain);
        assert_eq!(controller(&plain), None);
    }

    #[test]
    fn what_was_made_for_a_set_is_its_own_and_a_successors_to_take() {
        let own = home("a/b", "1");
        assert_eq!(whose(&own, &own), "its");
        assert_eq!(whose(&own, &home("a/b", "2")), "nobody's");
        assert_eq!(whose(&own, &home("other", "2")), "another's");
        // A copy of a whole cluster has the same uids.
        assert_eq!(whose(&own, &home("other", "1")), "another's");
        let renamed = Home {
            earlier_install: Some("a/b".to_owned()),
            ..home("other", "1")
        };
        assert_eq!(whose(&own, &renamed), "nobody's");
        assert_eq!(whose(&renamed, &renamed), "its");
        let elsewhere = Home {
            namespace: "else".to_owned(),
            ..home("a/b", "1")
        };
        assert_eq!(whose(&own, &elsewhere), "another's");
    }
}
