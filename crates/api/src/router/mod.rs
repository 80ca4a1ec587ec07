//! `ZitiRouter`: a set of running routers. The parts of its spec are in modules
//! of their own and re-exported here.

mod listeners;
mod network_policy;
mod pod;
mod storage;
mod token;
mod tunnel;

pub use listeners::{Csr, EdgeListener, LinkListener, SubjectAltNames};
pub use network_policy::NetworkPolicyOptions;
pub use pod::{ConfigMapVolume, ExtraVolume, ImagePullPolicy, PodGroups, PodOptions};
pub use storage::{
    ClaimTemplate, EphemeralStorage, HostPathStorage, IdentityStorage, Retention, RetentionPolicy,
};
pub use token::InlineToken;
pub use tunnel::{
    ClusterDns, KubernetesService, Proxy, ProxyProtocol, ProxyService, ServiceType, Tproxy, Tunnel,
    TunnelMode,
};

use crate::{AdoptionPolicy, DeletionPolicy, NetworkRef, SecretRef};
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
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
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.tunnel.mode", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = ("has(self.networkRef) || has(self.tokens) || has(self.tokensSecretRef)", "give networkRef, or tokens, or tokensSecretRef"),
    validation = ("!(has(self.tokens) && has(self.tokensSecretRef))", "give tokens or tokensSecretRef, not both"),
    validation = ("has(self.networkRef) == has(oldSelf.networkRef)", "networkRef cannot be added or removed: create another ZitiRouter"),
    validation = ("(has(self.tokens) || has(self.tokensSecretRef)) == (has(oldSelf.tokens) || has(oldSelf.tokensSecretRef))", "a set cannot change between provided and managed tokens: create another ZitiRouter"),
)]
#[serde(rename_all = "camelCase")]
pub struct ZitiRouterSpec {
    /// The network that the routers join. May be absent only where tokens are
    /// provided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("self == oldSelf", "networkRef is immutable: create another ZitiRouter"))]
    pub network_ref: Option<NetworkRef>,

    /// Enrollment tokens (JWT) by member name (`<name>-0`, `<name>-1`, …).
    /// They are then part of this object and of its history; `tokensSecretRef`
    /// keeps them out of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 100))]
    pub tokens: Option<BTreeMap<String, InlineToken>>,

    /// A Secret with enrollment tokens by member name. It is read, never
    /// emptied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_secret_ref: Option<SecretRef>,

    /// The kind of workload. Immutable.
    #[serde(default)]
    #[x_kube(validation = ("self == oldSelf", "topology is immutable: create another ZitiRouter"))]
    pub topology: Topology,

    /// How many routers.
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
}

/// Whether a part says nothing. It is then not written into objects either.
fn is_default<T: Default + PartialEq>(part: &T) -> bool {
    *part == T::default()
}

fn default_replicas() -> i32 {
    2
}

/// The kind of workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Topology {
    /// One StatefulSet of all members.
    #[default]
    StatefulSet,
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
    /// Label selector of the pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// What holds of this set, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}
