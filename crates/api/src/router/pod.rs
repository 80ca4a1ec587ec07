//! What a user may say of the pods of a set. A list of what is allowed rather
//! than a patch of the pod: whoever may write a ZitiRouter must not become
//! another ServiceAccount by it, mount a Secret that he may not read, or reach
//! into the node.

use k8s_openapi::api::core::v1::{
    Affinity, HostAlias, PodDNSConfig, Toleration, TopologySpreadConstraint,
};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::SecretRef;

/// Options of the pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodOptions {
    /// Labels besides the operator's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = ("self.all(key, !key.startsWith('openziti.io/') && !(key in ['app.kubernetes.io/name', 'app.kubernetes.io/instance', 'app.kubernetes.io/component', 'app.kubernetes.io/managed-by']))", "the operator sets the labels openziti.io/* and app.kubernetes.io/{name,instance,component,managed-by} itself"))]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,
    /// Labels of the nodes on which they may run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that they bear.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Toleration>,
    /// Which nodes, and the company of which pods, they look for or avoid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// How they spread. Default: over the nodes, where that is possible. An
    /// empty list: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// Their priority class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
    /// Their runtime class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub runtime_class_name: Option<String>,
    /// Secrets with which images are pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Vec<SecretRef>,
    /// When images are pulled. Default: Kubernetes decides by the tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Groups of their processes and volumes.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub security_context: PodGroups,
    /// Environment of the router, such as `GOMEMLIMIT`. No `$`: the router and
    /// the kubelet would both replace what follows it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(validation = ("self.all(name, name.matches('^[A-Za-z_][A-Za-z0-9_]*$') && !(name in ['ZITI_MEMBER', 'NODE_NAME', 'HOST_IP']))", "names of variables hold A-Z, a-z, 0-9 and _; ZITI_MEMBER, NODE_NAME and HOST_IP are the operator's"))]
    pub env: BTreeMap<String, String>,
    /// ConfigMaps that the router sees as files, read-only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub extra_volumes: Vec<ExtraVolume>,
    /// Lines of `/etc/hosts`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub host_aliases: Vec<HostAlias>,
    /// Nameservers, search domains and resolver options besides those that the
    /// pod has anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_config: Option<PodDNSConfig>,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// At each start.
    Always,
    /// Where the node does not have it.
    IfNotPresent,
    /// Not at all.
    Never,
}

/// Groups of a pod's processes and volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroups {
    /// The group that owns the volumes. Default: 2171, that of the stock image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub fs_group: Option<i64>,
    /// More groups of the processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(range(min = 1)))]
    pub supplemental_groups: Vec<i64>,
}

/// A ConfigMap as files of the router.
///
/// There are no Secrets here: whoever may write a ZitiRouter and may not read a
/// Secret would have it mounted, and sent to a place of his choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtraVolume {
    /// Name of the volume.
    #[schemars(
        length(min = 1, max = 48),
        regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: String,
    /// Where the router sees it: an absolute path, outside of what the router
    /// and the operator use themselves.
    #[schemars(length(max = 253), regex(pattern = "^/[^:$]*$"))]
    #[x_kube(validation = ("!self.matches('(^|/)[.][.]?(/|$)|//|^/$') && !['/etc/ziti', '/tmp', '/run', '/proc', '/sys', '/dev', '/usr', '/bin', '/sbin', '/lib', '/lib64'].exists(taken, self == taken || self.startsWith(taken + '/'))", "the path must be absolute and plain, and outside of /etc/ziti, /tmp, /run, /proc, /sys, /dev, /usr, /bin, /sbin and /lib"))]
    pub mount_path: String,
    /// The ConfigMap.
    pub config_map: ConfigMapVolume,
}

/// A ConfigMap in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapVolume {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}
