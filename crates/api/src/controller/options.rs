//! The parts of a `ZitiController`'s spec.
#![allow(
    clippy::struct_field_names,
    reason = "the unit stands in the name; KubeSchema repeats the struct, so it cannot be said there"
)]

use crate::router::RetentionPolicy;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Under which names members are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Advertised {
    /// The APIs, by which clients and administrators reach the member. Tokens
    /// carry it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_api: Option<AdvertisedAddress>,
    /// The control plane, by which routers and the other members reach it.
    /// Default: within the cluster, the member's own Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<AdvertisedAddress>,
}

/// A name and a port of each member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdvertisedAddress {
    /// A host name or an IPv4 address, in which `{member}`, `{namespace}`,
    /// `{name}` and `{index}` (0, 1, …) are the member's. With more than one
    /// member it must differ between them, unless the port does.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9._{}-]+$"))]
    pub host: String,
    /// The port. Default: the one at which the exposure is reached: the member's
    /// node port, that of the load balancer, 443 for Ingress and TLSRoute, else
    /// 1280.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
}

/// Where each member keeps its database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerStorage {
    /// Storage class. Default: the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,
    /// Size of each member's volume. Default: 2Gi.
    #[serde(default = "default_size")]
    #[schemars(schema_with = "crate::schema::quantity")]
    pub size: String,
    /// What becomes of the databases, the certificates and the administrator's
    /// Secret when the ZitiController is deleted. With `Retain` another of the
    /// same name goes on with the same network. Default: Retain.
    #[serde(default = "retain")]
    pub when_deleted: RetentionPolicy,
}

fn default_size() -> String {
    "2Gi".to_owned()
}

fn retain() -> RetentionPolicy {
    RetentionPolicy::Retain
}

impl Default for ControllerStorage {
    fn default() -> Self {
        Self {
            storage_class_name: None,
            size: default_size(),
            when_deleted: retain(),
        }
    }
}

/// The network's certificates: a root, whose key no pod ever sees, and for each
/// member a signer for those who enroll and a certificate for itself. Each is
/// renewed when a third of its life is left. With `issuerRef` cert-manager issues
/// the members' certificates and signers, and there is no root of our own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pki {
    /// The issuer of cert-manager that issues members' certificates and signers. It
    /// must give certificates that may sign others, keep every name and URI, and
    /// tell its CA. That there is one, or none, is immutable; which one it is may
    /// change: whatever it gives is used only when all members trust it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer_ref: Option<IssuerRef>,
    /// Life of the root, in days. Renewed with the same key, so that whoever
    /// trusts the old one is not cut off. Of no use with `issuerRef`.
    #[serde(default = "root_days")]
    #[schemars(range(min = 30, max = 36500))]
    pub root_days: i32,
    /// Life of the signers, in days. Renewed with the same key.
    #[serde(default = "signer_days")]
    #[schemars(range(min = 20, max = 36500))]
    pub signer_days: i32,
    /// Life of the members' own certificates, in days. Each has a new key.
    #[serde(default = "certificate_days")]
    #[schemars(range(min = 10, max = 3650))]
    pub certificate_days: i32,
}

/// An issuer of cert-manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssuerRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its kind: `Issuer` in the same namespace, `ClusterIssuer`, or one of an
    /// external issuer.
    #[serde(default = "issuer_kind")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Z][A-Za-z0-9]*$"))]
    pub kind: String,
    /// The group of its kind.
    #[serde(default = "issuer_group")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub group: String,
}

fn issuer_kind() -> String {
    "Issuer".to_owned()
}

fn issuer_group() -> String {
    "cert-manager.io".to_owned()
}

fn root_days() -> i32 {
    7300
}

fn signer_days() -> i32 {
    3650
}

fn certificate_days() -> i32 {
    365
}

impl Default for Pki {
    fn default() -> Self {
        Self {
            issuer_ref: None,
            root_days: root_days(),
            signer_days: signer_days(),
            certificate_days: certificate_days(),
        }
    }
}

/// The policies without which routers carry nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BootstrapPolicies {
    /// None are made.
    #[default]
    None,
    /// Every identity may use every router, and every service every router: one
    /// edge-router policy and one service-edge-router policy, tagged as the
    /// operator's own.
    AllRouters,
}

/// The administration console.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Console {
    /// Not served.
    #[default]
    Disabled,
    /// Served from `/ziti-console` of the image, where the published images of
    /// Ziti's controller have it.
    Enabled,
}

/// How long enrollment tokens live.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnrollmentLife {
    /// Tokens of identities, in minutes. Versions before 1.6.8 take this for
    /// routers as well.
    #[serde(default = "three_hours")]
    #[schemars(range(min = 5, max = 525_600))]
    pub identity_minutes: i32,
    /// Tokens of routers, in minutes.
    #[serde(default = "three_hours")]
    #[schemars(range(min = 5, max = 525_600))]
    pub router_minutes: i32,
}

fn three_hours() -> i32 {
    180
}

impl Default for EnrollmentLife {
    fn default() -> Self {
        Self {
            identity_minutes: three_hours(),
            router_minutes: three_hours(),
        }
    }
}

/// How a change of image, configuration or certificate reaches the members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategy {
    /// One member after another, the leader last.
    #[default]
    RollingUpdate,
    /// With each pod that somebody deletes.
    OnDelete,
}
