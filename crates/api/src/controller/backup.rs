//! Backups of a `ZitiController`, and what one is restored from.

use crate::ziti_network::ConfigMapKeyRef;
use crate::{SecretKeyRef, SecretRef};
use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Copies of the database and of all that makes the network, encrypted, by the
/// clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    /// When: five fields as in cron, such as `17 3 * * *`, or `@daily`.
    #[schemars(
        length(min = 1, max = 100),
        regex(pattern = r"^(@[a-z]+|[^\s=]+( +[^\s=]+){4})$")
    )]
    pub schedule: String,
    /// The time zone of `schedule`, by its name in the IANA database. Default:
    /// `Etc/UTC`.
    #[serde(default = "utc")]
    #[schemars(
        length(min = 1, max = 64),
        regex(pattern = r"^[A-Za-z][A-Za-z0-9_+/-]*$")
    )]
    pub time_zone: String,
    /// Who can read a backup: age public keys, `age1…`. They are no secret; what
    /// belongs to them is kept outside of the cluster.
    #[schemars(
        length(min = 1, max = 16),
        inner(regex(pattern = r"^age1[02-9ac-hj-np-z]{58}$"))
    )]
    pub recipients: Vec<String>,
    /// How many of the newest backups are kept. Default: 14.
    #[serde(default = "two_weeks")]
    #[schemars(range(min = 1, max = 1000))]
    pub keep: i32,
    /// Where they are put.
    pub to: BackupStore,
    /// ServiceAccount of the pods, for clouds that give the right to a bucket by
    /// it. It needs no right in Kubernetes, and gets no token of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// CPU and memory of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
}

fn utc() -> String {
    "Etc/UTC".to_owned()
}

fn two_weeks() -> i32 {
    14
}

/// Where backups are: on a volume or in a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.volume) != has(self.bucket)", "give either volume or bucket"))]
pub struct BackupStore {
    /// A volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<BackupVolume>,
    /// A bucket of an S3-compatible store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BackupBucket>,
}

/// A volume of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupVolume {
    /// Name of the PersistentVolumeClaim.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    )]
    pub claim_name: String,
    /// A directory on it. Default: the top of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 200),
        regex(pattern = r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$")
    )]
    pub path: Option<String>,
}

/// A bucket of an S3-compatible store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupBucket {
    /// Name of the bucket.
    #[schemars(
        length(min = 3, max = 63),
        regex(pattern = r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$")
    )]
    pub name: String,
    /// What the names of the objects begin with. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 200),
        regex(pattern = r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$")
    )]
    pub prefix: Option<String>,
    /// The region. Default: `us-east-1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-z0-9-]+$"))]
    pub region: Option<String>,
    /// Address of the store. Default: that of AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 253),
        regex(pattern = r"^https?://[A-Za-z0-9.:\[\]-]+/?$")
    )]
    pub endpoint: Option<String>,
    /// A Secret whose keys are the environment by which AWS' own programs are
    /// told: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, and
    /// `AWS_SESSION_TOKEN` if there is one. Left out where the cloud gives the
    /// right by the pods' ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretRef>,
    /// What the store's certificate must verify against. Default: the public
    /// authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<BucketTrust>,
}

/// CA certificates (PEM).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BucketTrust {
    /// In a ConfigMap.
    ConfigMap(ConfigMapKeyRef),
    /// In a Secret.
    Secret(SecretKeyRef),
}

/// The backup that a network begins with. It is read only where there is no
/// network: a network that has a database is never restored over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreFrom {
    /// Where it is.
    pub from: BackupStore,
    /// Its name, such as `edge.ziti.20260101T030000Z.1f3a90c2-7c9e6679.tar.age`. Default: the newest
    /// of a ZitiController of this name in a namespace of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    )]
    pub snapshot: Option<String>,
    /// A Secret whose key `identity` is an age identity
    /// (`AGE-SECRET-KEY-1…`) of one of the backup's recipients. Needed until the
    /// network is restored.
    pub identity_secret_ref: SecretRef,
    /// ServiceAccount of the pod, as for `backup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
}

/// The last backup that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupStatus {
    /// When its snapshot was taken.
    pub last_success: Time,
    /// Its name.
    pub snapshot: String,
    /// Its size.
    pub bytes: i64,
}
