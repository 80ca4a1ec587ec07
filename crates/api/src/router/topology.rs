//! How the members of a set are spread over workloads and nodes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the members of a set are spread over workloads and nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Topology {
    /// One StatefulSet of all members, `<name>-0`, `<name>-1`, …
    #[default]
    StatefulSet,
    /// A StatefulSet of one for each member, so that any of them can be taken
    /// away by itself. (Not a Deployment, which may run two pods of one
    /// identity.)
    PerMember,
    /// A StatefulSet of one for each node, bound to it; the member is named
    /// after the node.
    PerNode,
}

impl Topology {
    /// Whether each member has a workload of its own.
    pub fn is_per_member(self) -> bool {
        self != Self::StatefulSet
    }
}

/// The nodes of topology `PerNode`. Default: every node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Nodes {
    /// Labels of the nodes that get a member. A node that is changed so that it
    /// matches no more loses its member at once.
    #[serde(default)]
    pub selector: LabelSelector,

    /// How long a node must be gone from the cluster before its member leaves
    /// the network, in seconds. Default: 300. A node that is merely not ready is
    /// not gone.
    #[serde(default = "default_gone_after_seconds")]
    #[schemars(range(min = 0, max = 86400))]
    pub gone_after_seconds: i32,
}

fn default_gone_after_seconds() -> i32 {
    300
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            selector: LabelSelector::default(),
            gone_after_seconds: default_gone_after_seconds(),
        }
    }
}
