//! What is known of a `ZitiController`.

use super::BackupStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// What is known of the controllers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZitiControllerStatus {
    /// The generation that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Pods that there are.
    #[serde(default)]
    pub replicas: i32,
    /// Pods that are ready: they see a leader.
    #[serde(default)]
    pub ready_replicas: i32,
    /// The version that the members run; the leader's where they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The member that leads the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Since when no leader is seen; absent while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaderless_since: Option<Time>,
    /// The cluster's members, by its own word; while nobody leads, those that it had
    /// last: no member comes or goes meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::named::<ControllerMember>")]
    pub members: Vec<ControllerMember>,
    /// Trust domain of the network, recorded when it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_domain: Option<String>,
    /// Identifier of the root's key, recorded when it was made: the
    /// operator never makes another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_key: Option<String>,
    /// When the network was made. Nothing is initialised after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialized: Option<Initialization>,
    /// The last backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupStatus>,
    /// Name of the backup that the network was restored from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_from: Option<String>,
    /// When the first of the members' certificates runs out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_expiry: Option<Time>,
    /// When the root runs out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_expiry: Option<Time>,
    /// What holds of the controllers, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerMember {
    /// Its name: that of its pod and Service, and its id in the cluster.
    pub name: String,
    /// Whether it votes.
    #[serde(default)]
    pub voter: bool,
    /// Its version, as the leader knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// The making of the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Initialization {
    /// The member in which it was made.
    pub member: String,
    /// When it was seen to be made.
    pub seen_at: Time,
}
