//! `ZitiRouter`: a set of running routers. The parts of its spec are in modules
//! of their own and re-exported here.

mod csr;
mod drain;
mod expose;
mod listeners;
mod network_policy;
mod options;
mod pod;
mod storage;
mod token;
mod topology;
mod tunnel;

pub use csr::{Csr, SubjectAltNames};
pub use drain::Drain;
pub use expose::{Advertise, Expose, ExposeType, ParentRef, TrafficPolicy};
pub use listeners::{
    EdgeListener, EdgeProtocol, ExtraEdgeListener, ExtraLinkListener, LinkDialer, LinkListener,
};
pub use network_policy::NetworkPolicyOptions;
pub use options::{Ctrl, CtrlPingCheck, Forwarder, HealthChecks, LinkCheck, Metrics};
pub use pod::{ConfigMapVolume, ExtraVolume, ImagePullPolicy, PodGroups, PodOptions};
pub use storage::{
    ClaimTemplate, EphemeralStorage, HostPathStorage, IdentityStorage, Retention, RetentionPolicy,
};
pub use token::InlineToken;
pub use topology::{Nodes, Topology};
pub use tunnel::{
    ClusterDns, KubernetesService, Proxy, ProxyProtocol, ProxyService, ServiceType, Tproxy, Tunnel,
    TunnelMode,
};

use crate::{AdoptionPolicy, ClusterRef, DeletionPolicy, NetworkRef, SecretRef};
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A set of running routers: how many, in which mode, how they are reached.
/// Each member gets an EdgeRouter, and so a token and an identity, of its own.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "openziti.io",
    version = "v1alpha1",
    kind = "ZitiRouter",
    plural = "zitirouters",
    namespaced,
    status = "ZitiRouterStatus",
    derive = "PartialEq",
    shortname = "zr",
    category = "ziti",
    doc = "A set of running Ziti edge routers.",
    validation = ("self.metadata.name.size() <= 52", "the name may have at most 52 characters: pods and Services carry it with an ordinal"),
    validation = ("self.metadata.name.size() <= 49 || !has(self.spec.topology) || self.spec.topology != 'PerMember'", "with topology PerMember the name may have at most 49 characters: each member's StatefulSet carries it with an ordinal"),
    validation = ("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')", "the name must begin with a letter and hold only a-z, 0-9 and -: each member's Service carries it"),
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Online", type_ = "integer", json_path = ".status.onlineReplicas"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterRef.name", priority = 1),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.tunnel.mode", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = ("has(self.networkRef) || has(self.tokens) || has(self.tokensSecretRef)", "give networkRef, or tokens, or tokensSecretRef"),
    validation = ("!(has(self.tokens) && has(self.tokensSecretRef))", "give tokens or tokensSecretRef, not both"),
    validation = ("!has(self.reserveOrdinals) || (has(self.topology) && self.topology == 'PerMember')", "reserveOrdinals are for topology PerMember: a StatefulSet has its members in a row"),
    validation = ("!has(self.nodes) || (has(self.topology) ? self.topology == 'PerNode' : (has(self.tunnel) && self.tunnel.mode == 'tproxy'))", "nodes are for topology PerNode"),
    validation = ("has(self.topology) == has(oldSelf.topology)", "topology cannot be added or removed: create another ZitiRouter"),
    validation = ("has(self.networkRef) == has(oldSelf.networkRef)", "networkRef cannot be added or removed: create another ZitiRouter"),
    validation = ("has(self.clusterRef) == has(oldSelf.clusterRef)", "clusterRef cannot be added or removed: create another ZitiRouter"),
    validation = ("(has(self.tokens) || has(self.tokensSecretRef)) == (has(oldSelf.tokens) || has(oldSelf.tokensSecretRef))", "a set cannot change between provided and managed tokens: create another ZitiRouter"),
)]
#[serde(rename_all = "camelCase")]
pub struct ZitiRouterSpec {
    /// The network that the routers join. May be absent only where tokens are
    /// provided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("self == oldSelf", "networkRef is immutable: create another ZitiRouter"))]
    pub network_ref: Option<NetworkRef>,

    /// The other cluster in which the routers run. Default: this one. Immutable:
    /// create another ZitiRouter there, and delete this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("self == oldSelf", "clusterRef is immutable: create another ZitiRouter"))]
    pub cluster_ref: Option<ClusterRef>,

    /// Enrollment tokens (JWT) by member name (`<name>-0`, `<name>-1`, …).
    /// They are then part of this object and of its history, and readable by
    /// whoever may view it; `tokensSecretRef`
    /// keeps them out of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 100))]
    pub tokens: Option<BTreeMap<String, InlineToken>>,

    /// A Secret with enrollment tokens by member name. It is read, never
    /// emptied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_secret_ref: Option<SecretRef>,

    /// How members are spread over workloads and nodes. Immutable. Default:
    /// `PerNode` for tunnel mode tproxy, `StatefulSet` for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("self == oldSelf", "topology is immutable: create another ZitiRouter"))]
    pub topology: Option<Topology>,

    /// Ordinals that get no member; the members are then the first `replicas`
    /// of the others. By this any member of topology `PerMember` can be taken
    /// away by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::ordinals")]
    pub reserve_ordinals: Vec<i32>,

    /// The nodes of topology `PerNode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Nodes>,

    /// A time, such as `2026-05-01T12:00:00Z`; each new one restarts the
    /// members, one after another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_at: Option<Time>,

    /// How many routers; ignored by topology `PerNode`.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 0, max = 100))]
    pub replicas: i32,

    /// Image of the router. Default: the operator's, recorded per set, so that
    /// an upgrade of the operator does not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,

    /// What the routers themselves do for clients and services beside them.
    #[serde(default)]
    pub tunnel: Tunnel,

    /// Who may reach the routers within the cluster.
    #[serde(default, skip_serializing_if = "is_default")]
    pub network_policy: NetworkPolicyOptions,

    /// Where SDKs and tunnelers reach the routers.
    #[serde(default)]
    pub edge: EdgeListener,

    /// Where other routers reach the routers.
    #[serde(default)]
    pub link: LinkListener,

    /// What the routers' certificates hold besides the advertised names.
    #[serde(default)]
    pub csr: Csr,

    /// How the routers forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forwarder: Option<Forwarder>,

    /// What the routers tell their controllers of themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,

    /// What the routers' own health rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_checks: Option<HealthChecks>,

    /// The routers' connections to their controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctrl: Option<Ctrl>,

    /// Any other keys of the router's configuration (v3), merged last: objects
    /// by key, lists and values replaced. Keys that the operator must own are
    /// refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::free_object")]
    pub extra_config: Option<serde_json::Map<String, serde_json::Value>>,

    /// Role attributes of every member, by which Ziti policies select it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::role_attributes")]
    pub role_attributes: Vec<String>,

    /// Cost added to paths through each member, 0 to 65535.
    #[serde(default)]
    #[schemars(range(min = 0, max = 65535))]
    pub cost: i32,

    /// Whether paths may only begin or end at a member.
    #[serde(default)]
    pub no_traversal: bool,

    /// Where a member keeps its identity. Immutable.
    #[serde(default)]
    #[x_kube(validation = ("self == oldSelf", "identityStorage is immutable: a StatefulSet cannot change its volume claims"))]
    pub identity_storage: IdentityStorage,

    /// What becomes of the volumes.
    #[serde(default)]
    pub retention: Retention,

    /// Resources of the router container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// What a router does before its pod goes.
    #[serde(default)]
    pub drain: Drain,
    /// Options of the pods.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pod: PodOptions,

    /// What becomes of the routers on the network when this object is deleted
    /// or scaled down.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,

    /// What to do when the network has a router of a member's name that is not
    /// ours.
    #[serde(default)]
    pub adoption_policy: AdoptionPolicy,

    /// Stops every write for this object and its members, in Kubernetes and on
    /// the network, their deletion included; only status goes on. What runs goes
    /// on running.
    #[serde(default)]
    pub paused: bool,
}

impl ZitiRouterSpec {
    /// The topology, where it is not said as well.
    pub fn effective_topology(&self) -> Topology {
        let by_mode = match self.tunnel.mode {
            TunnelMode::Tproxy => Topology::PerNode,
            TunnelMode::None | TunnelMode::Host | TunnelMode::Proxy => Topology::StatefulSet,
        };
        self.topology.unwrap_or(by_mode)
    }

    /// The ZitiCluster where the routers run; `None` where that is this cluster.
    pub fn cluster(&self) -> Option<&str> {
        self.cluster_ref
            .as_ref()
            .map(|reference| reference.name.as_str())
    }
}

/// Whether a part says nothing. It is then not written into objects either.
pub(crate) fn is_default<T: Default + PartialEq>(part: &T) -> bool {
    *part == T::default()
}

fn default_replicas() -> i32 {
    2
}

/// What is known of the set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZitiRouterStatus {
    /// The generation that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Pods that exist.
    #[serde(default)]
    pub replicas: i32,
    /// Pods that are Ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Members that the network sees online.
    #[serde(default)]
    pub online_replicas: i32,
    /// Members whose node is gone, with the time since when. They leave the
    /// network when `nodes.goneAfterSeconds` have passed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes_gone: BTreeMap<String, Time>,
    /// Label selector of the pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// What holds of this set, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}
