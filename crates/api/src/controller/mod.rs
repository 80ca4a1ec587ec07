//! `ZitiController`: a Ziti controller, or a cluster of them, run here. The parts
//! of its spec are in modules of their own and re-exported here.

mod backup;
mod options;
mod status;
mod web;

pub use backup::{
    Backup, BackupBucket, BackupStatus, BackupStore, BackupVolume, BucketTrust, RestoreFrom,
};
pub use options::{
    Advertised, AdvertisedAddress, BootstrapPolicies, Console, ControllerStorage, EnrollmentLife,
    IssuerRef, Pki, UpdateStrategy,
};
pub use status::{ControllerMember, Initialization, ZitiControllerStatus};
pub use web::{AltServerCert, Metrics, TlsVersion, Web, WebOptions};

use crate::SecretRef;
use crate::router::{Expose, PodOptions, is_default};
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// A Ziti controller, or a cluster of three or five: its certificates, its
/// database, its members, and the `ZitiNetwork` of the same name by which
/// ZitiRouters join it.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "openziti.io",
    version = "v1alpha1",
    kind = "ZitiController",
    plural = "ziticontrollers",
    namespaced,
    status = "ZitiControllerStatus",
    derive = "PartialEq",
    shortname = "zctl",
    category = "ziti",
    doc = "A Ziti controller, or a cluster of them, run here.",
    validation = ("self.metadata.name.size() <= 40", "the name may have at most 40 characters: pods, Services and certificates carry it with -controller and an ordinal"),
    validation = ("self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')", "the name must begin with a letter and hold only a-z, 0-9 and -: each member's Service carries it"),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Leader", type_ = "string", json_path = ".status.leader"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = ("self.replicas in [1, 3, 5]", "replicas must be 1, 3 or 5: an even number bears no more losses than the odd one below it"),
    validation = ("has(self.trustDomain) == has(oldSelf.trustDomain)", "trustDomain is immutable: it stands in every certificate of the network"),
    validation = ("(has(self.pki) && has(self.pki.issuerRef)) == (has(oldSelf.pki) && has(oldSelf.pki.issuerRef))", "pki.issuerRef can be neither given nor taken away later: whoever is enrolled trusts the root that there is"),
    validation = ("!has(self.pki.issuerRef) || !(has(self.backup) || has(self.restoreFrom))", "backup and restoreFrom need a root of the operator's own, and pki.issuerRef is given: back up the issuer's CA and the volumes"),
    validation = ("!has(self.expose) || !(self.expose.type in ['HostPort', 'None'])", "a controller is exposed by ClusterIP, NodePort, LoadBalancer, Ingress or TLSRoute"),
    validation = ("!has(self.expose) || self.expose.type != 'NodePort' || has(self.expose.nodePort) || has(self.expose.nodePorts)", "give expose.nodePort or expose.nodePorts: the port of each member stands in its configuration"),
    validation = ("!has(self.expose) || self.expose.type == 'ClusterIP' || (has(self.advertised) && has(self.advertised.clientApi))", "give advertised.clientApi: nobody can tell by which name this exposure is reached"),
)]
#[serde(rename_all = "camelCase")]
pub struct ZitiControllerSpec {
    /// How many members the cluster has: 1, 3 or 5. One is a cluster of one,
    /// which can grow later without losing what is enrolled.
    #[serde(default = "default_replicas")]
    pub replicas: i32,

    /// The trust domain of the network's certificates (SPIFFE). Immutable.
    /// Default: `<name>.<namespace>.ziti`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 128),
        regex(pattern = r"^[a-z0-9]([-a-z0-9._]*[a-z0-9])?$")
    )]
    #[x_kube(validation = ("self == oldSelf", "trustDomain is immutable: it stands in every certificate of the network"))]
    pub trust_domain: Option<String>,

    /// Image of the controller. Default: the operator's, recorded for this
    /// object, so that an upgrade of the operator does not change it. All
    /// members must have one version; while they have not, the cluster takes no
    /// writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,

    /// Under which names members are reached: they go into their certificates.
    #[serde(default, skip_serializing_if = "is_default")]
    pub advertised: Advertised,

    /// How each member is reached from outside of the cluster. TLS must be
    /// passed through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expose: Option<Expose>,

    /// Where each member keeps its database, and what becomes of it.
    #[serde(default)]
    pub storage: ControllerStorage,

    /// The network's certificates.
    #[serde(default)]
    pub pki: Pki,

    /// A Secret with `username` and `password` of the network's first
    /// administrator. Default: the operator makes one, `<name>-admin`. It is used
    /// when the network is made, and not again once the operator has a
    /// certificate of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_secret_ref: Option<SecretRef>,

    /// The policies without which routers carry nothing.
    #[serde(default)]
    pub bootstrap_policies: BootstrapPolicies,

    /// The administration console, served by each member below `/zac/`.
    #[serde(default)]
    pub console: Console,

    /// The members' APIs: timeouts, TLS versions, certificates for other names,
    /// metrics.
    #[serde(default, skip_serializing_if = "is_default")]
    pub web: Web,

    /// How long enrollment tokens live.
    #[serde(default)]
    pub enrollment: EnrollmentLife,

    /// Encrypted copies of the network, by the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<Backup>,

    /// The backup that the network begins with. Read only where there is no
    /// network, or where its databases are all lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_from: Option<RestoreFrom>,

    /// Any other keys of the controller's configuration (v3), merged last:
    /// objects by key, lists and values replaced. Keys that the operator must
    /// own are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::free_object")]
    pub extra_config: Option<serde_json::Map<String, serde_json::Value>>,

    /// CPU and memory of each member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,

    /// Options of the pods.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pod: PodOptions,

    /// How a change reaches the members.
    #[serde(default)]
    pub update_strategy: UpdateStrategy,

    /// A time, such as `2026-05-01T12:00:00Z`; each new one restarts the
    /// members, one after another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_at: Option<Time>,

    /// Stops every write for this object, on the network and in Kubernetes, its
    /// deletion included; only its status goes on. (One write is still made if its
    /// network is made meanwhile: nobody may make another.)
    #[serde(default)]
    pub paused: bool,
}

fn default_replicas() -> i32 {
    1
}

impl ZitiController {
    /// The trust domain of its network.
    pub fn trust_domain(&self) -> String {
        self.spec.trust_domain.clone().unwrap_or_else(|| {
            let metadata = &self.metadata;
            let name = metadata.name.as_deref().unwrap_or_default();
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            format!("{name}.{namespace}.ziti")
        })
    }
}
