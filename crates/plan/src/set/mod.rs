//! Decides for a `ZitiRouter`: who its members are, what they run, when one
//! more may start, which pod is replaced next, and what goes when a member
//! goes.
//!
//! The controller observes [`Facts`] live, calls [`plan`], applies the steps in
//! their order, stops at the first that fails, and is called again when
//! something changed. [`roster`] says who the members are, [`reach`] says where members are reached, [`config`] what
//! their routers are told. [`render`] makes the objects, [`member`] gathers what is
//! known of each member, [`rollout`] picks the next pod to replace,
//! [`teardown`] takes everything away, [`drift`] tells what was put back, [`ownership`] tells whose the objects
//! are, [`placement`] what is different where they are in another cluster, [`orphan`] is for those without a ZitiRouter, [`paused`] for one that is
//! to be left alone, [`status`] says how it stands.

pub mod applied;
mod binding;
pub mod config;
mod config_check;
mod decide;
mod disruption;
pub mod drift;
pub mod extra;
pub(crate) mod extra_config;
pub mod member;
pub mod network_policy;
mod object_names;
pub mod orphan;
mod ownership;
mod paused;
mod per_member;
pub mod placement;
pub(crate) mod pod;
pub(crate) mod pod_options;
pub mod reach;
mod reach_check;
pub mod render;
mod rollout;
pub mod roster;
pub(crate) mod route;
pub mod service;
pub mod sidecar;
mod status;
mod storage;
mod teardown;
mod tproxy;
mod trouble;
pub mod tunnel;
mod validate;
pub mod workload;

pub use decide::plan;
pub use orphan::release_orphan;
pub use status::after_failure;
pub use validate::member_network_name;

use crate::Settings;
use crate::edge_router::Problem;
use api::edge_router::AgentReport;
use api::{EdgeRouter, ZitiRouter, ZitiRouterStatus};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Resource;
use kube::core::DynamicObject;
use std::collections::BTreeMap;
use std::fmt;

/// Everything that was observed, read live and in this order: the StatefulSets
/// before the pods, so that a pod which is not there was not wanted either.
///
/// Printed, it shows the names of the objects alone: the ZitiRouter may hold
/// tokens.
#[derive(Clone)]
pub struct Facts<'a> {
    /// The object, with its last status.
    pub object: &'a ZitiRouter,
    /// This installation.
    pub settings: &'a Settings,
    /// Namespace of the ZitiRouter itself, where its workloads are in another
    /// cluster: `object` then carries the namespace of those
    /// ([`placement::placed`]).
    pub home: Option<String>,
    /// The network referred to.
    pub network: Network,
    /// The EdgeRouters that carry the set's label.
    pub edge_routers: Vec<EdgeRouter>,
    /// StatefulSets that carry the set's label.
    pub stateful_sets: Vec<StatefulSet>,
    /// The cluster's nodes; `None` where the topology does not ask.
    pub nodes: Option<Vec<roster::Node>>,
    /// Services that carry the set's label.
    pub services: Vec<Service>,
    /// ConfigMaps that carry the set's label.
    pub config_maps: Vec<ConfigMap>,
    /// Pods that carry the set's label.
    pub pods: Vec<Pod>,
    /// What Kubernetes said when it last refused to make a pod of the
    /// StatefulSet, where pods are missing and none was made since.
    pub refusal: Option<String>,
    /// Volume claims that carry the set's label.
    pub claims: Vec<PersistentVolumeClaim>,
    /// Objects of [`extra::KINDS`] that carry the set's label.
    pub extras: Vec<DynamicObject>,
    /// The Secret `<name>-tokens`.
    pub tokens: TokensSecret,
    /// Digest of the token that waits in each EdgeRouter's own Secret, by the
    /// EdgeRouter's name. A Secret that is owned by an EdgeRouter of another
    /// uid is of one that is gone, and does not count.
    pub waiting_tokens: BTreeMap<String, String>,
    /// Digests of the tokens that a person gave, by member; `None` where tokens
    /// are managed.
    pub provided: Option<Result<BTreeMap<String, String>, Problem>>,
    /// Digests in the Secret `<name>-provided-tokens`, if it exists and this
    /// ZitiRouter owns it.
    pub provided_copy: Option<BTreeMap<String, String>>,
    /// The operator's clock.
    pub now: Timestamp,
}

impl<'a> Facts<'a> {
    /// Those of a set of which nothing was made, in a network that can be used,
    /// at the beginning of time: a base for tests.
    pub fn of_nothing(object: &'a ZitiRouter, settings: &'a Settings) -> Self {
        Self {
            object,
            settings,
            home: None,
            network: Network::Found {
                fault: None,
                name_pattern: None,
                control_endpoints: Vec::new(),
                has_credential: true,
                version: None,
                asked_since: None,
            },
            edge_routers: Vec::new(),
            stateful_sets: Vec::new(),
            nodes: None,
            services: Vec::new(),
            extras: Vec::new(),
            config_maps: Vec::new(),
            pods: Vec::new(),
            refusal: None,
            claims: Vec::new(),
            tokens: TokensSecret::Absent,
            waiting_tokens: BTreeMap::new(),
            provided: None,
            provided_copy: None,
            now: Timestamp::UNIX_EPOCH,
        }
    }
}

impl fmt::Debug for Facts<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn named<K: Resource>(objects: &[K]) -> Vec<&str> {
            let names = objects
                .iter()
                .filter_map(|object| object.meta().name.as_deref());
            names.collect()
        }
        let extras: Vec<_> = self
            .extras
            .iter()
            .map(|object| &object.metadata.name)
            .collect();
        formatter
            .debug_struct("Facts")
            .field("object", &self.object.metadata.name)
            .field("generation", &self.object.metadata.generation)
            .field("home", &self.home)
            .field("network", &self.network)
            .field("edge_routers", &named(&self.edge_routers))
            .field("stateful_sets", &named(&self.stateful_sets))
            .field("nodes", &self.nodes)
            .field("services", &named(&self.services))
            .field("config_maps", &named(&self.config_maps))
            .field("pods", &named(&self.pods))
            .field("refusal", &self.refusal)
            .field("claims", &named(&self.claims))
            .field("extras", &extras)
            .field("tokens", &self.tokens)
            .field("waiting_tokens", &self.waiting_tokens)
            .field("provided", &self.provided)
            .field("provided_copy", &self.provided_copy)
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// The network that a set refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// None.
    NotReferenced,
    /// One that does not exist.
    Missing(Problem),
    /// One that exists.
    Found {
        /// Why it cannot be used now, if it cannot.
        fault: Option<Problem>,
        /// How members are named on it.
        name_pattern: Option<String>,
        /// The controllers that routers shall dial, where the network says so.
        control_endpoints: Vec<String>,
        /// Whether it can be asked who is online.
        has_credential: bool,
        /// Version of its controllers, where that is known.
        version: Option<String>,
        /// Since when this process has been able to ask it: what is older than
        /// that was not looked at meanwhile. `None` while it cannot.
        asked_since: Option<Timestamp>,
    },
}

/// The Secret from which the pods get their tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TokensSecret {
    /// It does not exist.
    #[default]
    Absent,
    /// It exists and the operator did not make it.
    Foreign,
    /// It exists; the digest of the token under each key, `None` where empty.
    Ours(BTreeMap<String, Option<String>>),
    /// The same, with no owner or one that is gone: left by an earlier
    /// ZitiRouter of this name. It is taken back by a write, which makes the
    /// ZitiRouter its owner.
    Unowned(BTreeMap<String, Option<String>>),
}

/// What is to be done, and what to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What to do, in this order.
    pub steps: Vec<Step>,
    /// The status to write.
    pub status: ZitiRouterStatus,
    /// When to look again although nothing happened.
    pub requeue: Option<SignedDuration>,
}

/// One act.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Put our finalizer on the object.
    AddFinalizer,
    /// Bring a Service in line.
    ApplyService(Box<Service>),
    /// Bring a ConfigMap in line.
    ApplyConfigMap(Box<ConfigMap>),
    /// Copy the tokens written in the object into a Secret.
    CopyProvidedTokens,
    /// Create an EdgeRouter, or bring its spec in line.
    ApplyEdgeRouter(Box<EdgeRouter>),
    /// Pass on what a pod reported.
    ReportAgent {
        /// The EdgeRouter.
        edge_router: String,
        /// The report.
        report: AgentReport,
    },
    /// Write the Secret from which the pods get their tokens.
    WriteTokens(TokenWrite),
    /// Bring a StatefulSet in line.
    ApplyStatefulSet(Box<StatefulSet>),
    /// Replace a pod.
    DeletePod {
        /// Its name.
        name: String,
        /// Its uid: no other pod of that name is meant.
        uid: String,
        /// Why, for the event.
        why: String,
    },
    /// Delete a StatefulSet and, by that, its pods.
    DeleteStatefulSet {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// Say that no pod runs with this identity any more.
    ReleaseInUse {
        /// The EdgeRouter.
        edge_router: String,
        /// Its resource version.
        resource_version: String,
        /// The finalizers that stay.
        finalizers: Vec<String>,
    },
    /// Delete an EdgeRouter.
    DeleteEdgeRouter {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// Delete a Service.
    DeleteService {
        /// Its name.
        name: String,
    },
    /// Delete the Secret `<name>-tokens`, where no garbage collector does.
    DeleteTokens,
    /// Delete a ConfigMap that no pod uses.
    DeleteConfigMap {
        /// Its name.
        name: String,
    },
    /// Bring an object of another kind in line.
    ApplyExtra(extra::Kind, Box<DynamicObject>),
    /// Delete an object of another kind.
    DeleteExtra {
        /// Its kind.
        kind: extra::Kind,
        /// Its name.
        name: String,
    },
    /// Delete a volume claim.
    DeleteClaim {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// Take our finalizer off.
    ReleaseFinalizer,
}

impl Step {
    /// Whether it is done where the workloads are, rather than where the ZitiRouter
    /// is.
    pub fn is_of_workloads(&self) -> bool {
        match self {
            Self::ApplyService(_)
            | Self::ApplyConfigMap(_)
            | Self::WriteTokens(_)
            | Self::ApplyStatefulSet(_)
            | Self::ApplyExtra(..)
            | Self::DeletePod { .. }
            | Self::DeleteStatefulSet { .. }
            | Self::DeleteService { .. }
            | Self::DeleteConfigMap { .. }
            | Self::DeleteTokens
            | Self::DeleteExtra { .. }
            | Self::DeleteClaim { .. } => true,
            Self::AddFinalizer
            | Self::CopyProvidedTokens
            | Self::ApplyEdgeRouter(_)
            | Self::ReportAgent { .. }
            | Self::ReleaseInUse { .. }
            | Self::DeleteEdgeRouter { .. }
            | Self::ReleaseFinalizer => false,
        }
    }
}

/// A write of the Secret `<name>-tokens`, which makes the ZitiRouter its owner
/// where it is not. It may name no key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenWrite {
    /// Keys to set: empty, or to the token that waits in this EdgeRouter's own
    /// Secret.
    pub set: BTreeMap<String, TokenValue>,
    /// Keys to remove.
    pub remove: Vec<String>,
}

/// The value of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenValue {
    /// Nothing. The key is there all the same: an absent one becomes a folder
    /// in the pod and stays one.
    Empty,
    /// The token with this digest.
    Waiting {
        /// Digest of the token.
        digest: String,
    },
}
