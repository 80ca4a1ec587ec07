//! `ZitiCluster`: another Kubernetes cluster, to which the operator may deploy
//! routers by its API.

use crate::SecretRef;
use crate::ziti_network::ConfigMapKeyRef;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Another Kubernetes cluster: where its API is, whom to trust, and the
/// credential with which the operator works there.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "openziti.io",
    version = "v1alpha1",
    kind = "ZitiCluster",
    plural = "ziticlusters",
    namespaced,
    status = "ZitiClusterStatus",
    derive = "PartialEq",
    shortname = "zcl",
    category = "ziti",
    doc = "Another Kubernetes cluster, to which routers can be deployed.",
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
    printcolumn(name = "Away", type_ = "date", json_path = ".status.awaySince"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[x_kube(
    validation = ("has(self.server) || has(self.credential.kubeconfig)", "give server: only a kubeconfig says where the cluster is"),
    validation = ("has(self.namespace) == has(oldSelf.namespace)", "namespace is immutable: what was deployed there would be left behind"),
)]
#[serde(rename_all = "camelCase")]
pub struct ZitiClusterSpec {
    /// Address of the cluster's API, `https://host:port`; in the place of that in
    /// a kubeconfig. With a Ziti service, the Service of the router that offers
    /// it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), regex(pattern = r"^https://[^/\s]+/?$"))]
    pub server: Option<String>,

    /// The name that the API server's certificate must have, where it is not the
    /// host of its address: reached through Ziti or a tunnel, it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub tls_server_name: Option<String>,

    /// A proxy on the way, `http://host:port` or `socks5://host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), regex(pattern = r"^(http|socks5)://[^/\s@]+/?$"))]
    pub proxy: Option<String>,

    /// What the API server's certificate must verify against. Default: the
    /// certificates that the credential brings. Nothing is trusted on first use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_authority: Option<ConfigMapKeyRef>,

    /// With what the operator logs in.
    pub credential: ClusterCredential,

    /// The namespace there, in which everything is made; it must exist. Default:
    /// that of this object. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    #[x_kube(validation = ("self == oldSelf", "namespace is immutable: what was deployed there would be left behind"))]
    pub namespace: Option<String>,
}

/// With what the operator logs in to another cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ClusterCredential {
    /// A kubeconfig in a Secret, with everything in it: one that runs a program
    /// or reads files is refused, since both would be the operator's. To be sent to
    /// another address or proxy, or to be verified by another CA, than it says itself
    /// it must be of type `openziti.io/cluster-credential`.
    Kubeconfig(KubeconfigCredential),
    /// A Secret of type `openziti.io/cluster-credential` with the keys `token` and
    /// `ca.crt`, as `ziti-operator cluster-credential` makes it.
    Token(SecretRef),
    /// A ServiceAccount of this namespace, for which the operator asks short-lived
    /// tokens of its own cluster: where the other one trusts this one's issuer.
    ServiceAccount(ServiceAccountCredential),
}

/// A kubeconfig in a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigCredential {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key within the Secret. Default: `kubeconfig`.
    #[serde(default = "kubeconfig_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// Which of its contexts. Default: the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub context: Option<String>,
}

fn kubeconfig_key() -> String {
    "kubeconfig".to_owned()
}

/// A ServiceAccount whose tokens another cluster accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccountCredential {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// For whom its tokens are: an audience of the other cluster's API server.
    #[schemars(length(min = 1, max = 253))]
    pub audience: String,
}

/// What the operator knows of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZitiClusterStatus {
    /// The generation that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The Kubernetes version that it reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How long it took to answer, in milliseconds. Written anew when it doubles
    /// or halves, so that it costs no write at rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_milliseconds: Option<i64>,
    /// The cluster itself, told apart from any other: the uid of the namespace
    /// there. What was deployed is looked for nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// What the credential may not do and has to: `verb resource.group`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_permissions: Vec<String>,
    /// Since when it does not answer, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_since: Option<Time>,
    /// What holds of this cluster, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

impl ZitiCluster {
    /// The namespace there.
    pub fn remote_namespace(&self) -> String {
        let own = || self.metadata.namespace.clone().unwrap_or_default();
        self.spec.namespace.clone().unwrap_or_else(own)
    }
}
