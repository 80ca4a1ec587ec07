//! `ZitiNetwork`: how to reach one Ziti network.

use crate::{SecretKeyRef, SecretRef};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One Ziti network: where its management API is, whom to trust, and the
/// credential with which the operator registers routers.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "openziti.io",
    version = "v1alpha1",
    kind = "ZitiNetwork",
    plural = "zitinetworks",
    namespaced,
    status = "ZitiNetworkStatus",
    derive = "PartialEq",
    shortname = "zn",
    category = "ziti",
    doc = "How to reach one Ziti network.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(
        name = "Network",
        type_ = "string",
        json_path = ".status.networkIdentity",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ZitiNetworkSpec {
    /// Endpoints of the Edge Management API, `https://host:port` each. Where
    /// there are several, the operator stays with one while it answers.
    #[schemars(
        length(min = 1, max = 5),
        inner(length(max = 253), regex(pattern = r"^https://[^/\s]+/?$"))
    )]
    pub management_api: Vec<String>,

    /// What the controller's certificate must verify against.
    pub trust: Trust,

    /// With what the operator logs in. May be absent where every router's
    /// token is provided: nothing is then registered on the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Credential>,

    /// The control plane that routers dial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ControlPlane>,

    /// How the members of a ZitiRouter are named on the network. `{member}`
    /// is the member's name and must be there; `{namespace}`, `{install}` (the
    /// operator's installId) and `{cluster}` (the ZitiCluster in which the set
    /// is placed, `local` where it is in none) keep apart those who share a
    /// network. A router that has a name keeps it. Default: `{member}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("self.contains('{member}')", "namePattern must contain {member}"))]
    #[schemars(length(min = 1, max = 128))]
    pub name_pattern: Option<String>,
}

/// What the controller's certificate must verify against. Nothing is ever
/// trusted on first use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Trust {
    /// CA certificates (PEM) in a ConfigMap.
    ConfigMap(ConfigMapKeyRef),
    /// CA certificates (PEM) in a Secret.
    Secret(SecretKeyRef),
    /// An enrollment or network JWT in a Secret: the controller that signed it
    /// is asked for the network's CA certificates.
    Token(SecretKeyRef),
}

/// One key of a ConfigMap in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKeyRef {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key within the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// With what the operator logs in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Credential {
    /// A client certificate in a Secret of type `kubernetes.io/tls`.
    /// Recommended.
    ClientCertificate(SecretRef),
    /// A Secret with the keys `username` and `password`.
    Password(SecretRef),
    /// A one-time token (JWT) of an admin identity. The operator enrolls the
    /// identity once and keeps key and certificate in the Secret
    /// `<network>-admin-identity`, which it owns.
    EnrollmentToken(SecretKeyRef),
}

/// The control plane that routers dial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlane {
    /// Addresses, `tls:host:port` each. Default: those that the enrollment
    /// token names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 15),
        inner(length(max = 253), regex(pattern = r"^tls:[^\s$]+:[0-9]+$"))
    )]
    pub endpoints: Vec<String>,
}

/// What the operator knows of the network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZitiNetworkStatus {
    /// The generation that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Version that the controller reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The network itself, told apart from any other: the id of its default
    /// admin identity, which changes with the database and with nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_identity: Option<String>,
    /// The installation of the operator that registers routers here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install_id: Option<String>,
    /// The controllers of a cluster, by their ids, as the leader sees them.
    /// None where a controller stands alone, or where the credential may not
    /// ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<ControllerStatus>,
    /// When the operator's client certificate runs out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_expiry: Option<Time>,
    /// What holds of this network, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// One controller of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerStatus {
    /// Its id.
    pub id: String,
    /// Where routers and other controllers reach it, `tls:host:port`.
    pub address: String,
    /// Whether it leads: it takes the writes, and the operator works with it.
    #[serde(default)]
    pub leader: bool,
    /// Its version; none while the leader is not connected to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}
