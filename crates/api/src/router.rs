//! `ZitiRouter`: a set of running routers.

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

    /// Whether the routers themselves host services.
    #[serde(default)]
    pub tunnel: Tunnel,

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

/// An enrollment token (JWT) written in an object. Whoever prints the object
/// does not print it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct InlineToken(pub String);

impl std::fmt::Debug for InlineToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InlineToken(…)")
    }
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

/// Whether the routers themselves host services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tunnel {
    /// The mode.
    #[serde(default)]
    pub mode: TunnelMode,
}

/// The mode of a router's own tunneler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TunnelMode {
    /// No tunneler: the router forwards only.
    #[default]
    None,
    /// The router hosts the services that Bind policies give it.
    Host,
}

/// Where SDKs and tunnelers reach a member: its own ClusterIP Service,
/// `<member>.<namespace>.svc`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EdgeListener {
    /// Port of the listener and of the Service.
    #[serde(default = "default_edge_port")]
    #[schemars(range(min = 1024, max = 65535))]
    pub port: u16,
}

fn default_edge_port() -> u16 {
    3022
}

impl Default for EdgeListener {
    fn default() -> Self {
        Self {
            port: default_edge_port(),
        }
    }
}

/// Where other routers reach a member: its own ClusterIP Service,
/// `<member>.<namespace>.svc`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkListener {
    /// Port of the listener and of the Service.
    #[serde(default = "default_link_port")]
    #[schemars(range(min = 1024, max = 65535))]
    pub port: u16,
}

fn default_link_port() -> u16 {
    10080
}

impl Default for LinkListener {
    fn default() -> Self {
        Self {
            port: default_link_port(),
        }
    }
}

/// What the routers' certificates hold besides the advertised names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Csr {
    /// Subject alternative names.
    #[serde(default)]
    pub sans: SubjectAltNames,
}

/// Subject alternative names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubjectAltNames {
    /// DNS names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::string_set")]
    pub dns: Vec<String>,
    /// IP addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::string_set")]
    pub ip: Vec<String>,
}

/// Where a member keeps its identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum IdentityStorage {
    /// A PersistentVolumeClaim of its own.
    PersistentVolumeClaim(ClaimTemplate),
}

impl Default for IdentityStorage {
    fn default() -> Self {
        Self::PersistentVolumeClaim(ClaimTemplate::default())
    }
}

/// The PersistentVolumeClaim of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimTemplate {
    /// Storage class. Default: the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,
    /// Size. Default: 50Mi; an identity and the router's cache need less.
    #[serde(default = "default_claim_size")]
    #[schemars(schema_with = "crate::schema::quantity")]
    pub size: String,
}

fn default_claim_size() -> String {
    "50Mi".to_owned()
}

impl Default for ClaimTemplate {
    fn default() -> Self {
        Self {
            storage_class_name: None,
            size: default_claim_size(),
        }
    }
}

/// What becomes of the volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// When the ZitiRouter is deleted.
    #[serde(default)]
    pub when_deleted: RetentionPolicy,
    /// When a member is scaled away.
    #[serde(default)]
    pub when_scaled: RetentionPolicy,
}

/// What becomes of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RetentionPolicy {
    /// It is deleted, after the router is gone from the network.
    #[default]
    Delete,
    /// It stays.
    Retain,
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
