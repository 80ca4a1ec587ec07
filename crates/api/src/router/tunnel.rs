//! What a router does by itself for clients and services beside it: its tunneler.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether the routers themselves host services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tunnel {
    /// The mode.
    #[serde(default)]
    pub mode: TunnelMode,
}

/// The mode of a router's own tunneler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TunnelMode {
    /// No tunneler: the router forwards only.
    #[default]
    None,
    /// The router hosts the services that Bind policies give it.
    Host,
}
