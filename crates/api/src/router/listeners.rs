//! Where members are reached, and what their certificates hold for that.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Where SDKs and tunnelers reach a member: its own ClusterIP Service,
/// `<member>.<namespace>.svc`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EdgeListener {
    /// Port of the listener and of the Service.
    #[serde(default = "default_edge_port")]
    #[schemars(range(min = 1024, max = 65535))]
    pub port: u16,
}

fn default_edge_port() -> u16 {
    3022
}

impl Default for EdgeListener {
    fn default() -> Self {
        Self {
            port: default_edge_port(),
        }
    }
}

/// Where other routers reach a member: its own ClusterIP Service,
/// `<member>.<namespace>.svc`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkListener {
    /// Port of the listener and of the Service.
    #[serde(default = "default_link_port")]
    #[schemars(range(min = 1024, max = 65535))]
    pub port: u16,
}

fn default_link_port() -> u16 {
    10080
}

impl Default for LinkListener {
    fn default() -> Self {
        Self {
            port: default_link_port(),
        }
    }
}

/// What the routers' certificates hold besides the advertised names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Csr {
    /// Subject alternative names.
    #[serde(default)]
    pub sans: SubjectAltNames,
}

/// Subject alternative names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubjectAltNames {
    /// DNS names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::string_set")]
    pub dns: Vec<String>,
    /// IP addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::string_set")]
    pub ip: Vec<String>,
}
