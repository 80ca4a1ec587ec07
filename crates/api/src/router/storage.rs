//! Where members keep their identities, and what becomes of them.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a member keeps its identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum IdentityStorage {
    /// A PersistentVolumeClaim of its own.
    PersistentVolumeClaim(ClaimTemplate),
    /// A directory of the node: `<path>/<namespace>/<set>/<member>`. It stays
    /// when the member goes. For topology `PerNode`; needs a namespace of Pod
    /// Security level `privileged`.
    HostPath(HostPathStorage),
    /// Nowhere but in the pod: a new pod enrolls again, as the same router,
    /// after the network has seen it offline for a minute.
    Ephemeral(EphemeralStorage),
}

/// A directory of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostPathStorage {
    /// The directory above those of the members; made where it is missing.
    #[schemars(
        length(min = 2, max = 200),
        regex(pattern = "^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$")
    )]
    pub path: String,
}

/// A volume that lives as long as its pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EphemeralStorage {
    /// The most that it may hold. Default: no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::optional_quantity")]
    pub size_limit: Option<String>,
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
