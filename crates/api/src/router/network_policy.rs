//! Who may reach the routers within the cluster.

use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The NetworkPolicy of a set. What leaves the routers is not restricted, and
/// pods on the host network are not covered: NetworkPolicies do not reach them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyOptions {
    /// Whether there is one. Default: in mode `proxy`, whose ports are open to
    /// everybody otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Who may reach the ports of `tunnel.proxy`. Default: pods of the same
    /// namespace; for a Service of type NodePort or LoadBalancer everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub proxy_from: Option<Vec<NetworkPolicyPeer>>,
    /// Who may reach all other ports: edge and link listeners. Default:
    /// everybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub listeners_from: Option<Vec<NetworkPolicyPeer>>,
}
