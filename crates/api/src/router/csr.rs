//! What the routers' certificates hold.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

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
