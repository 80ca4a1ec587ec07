//! The kinds of the Ziti operator: `ZitiNetwork`, `EdgeRouter`, `ZitiRouter`,
//! `ZitiController`, `ZitiCluster`.
//!
//! What lives here: the types that a user writes and reads, the rules that the
//! API server checks on them, and the words (condition types, reasons, labels,
//! annotations, finalizers) in which the operator answers. Everybody may use
//! this room; it does no input or output and knows no clock.
#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats each struct inside a block of its own, where `pub` reaches nobody"
)]

pub mod controller;
pub mod edge_router;
pub mod names;
pub mod reasons;
pub mod router;
pub mod schema;
pub mod ziti_cluster;
pub mod ziti_network;

pub use controller::{ZitiController, ZitiControllerSpec, ZitiControllerStatus};
pub use edge_router::{EdgeRouter, EdgeRouterSpec, EdgeRouterStatus};
pub use router::{ZitiRouter, ZitiRouterSpec, ZitiRouterStatus};
pub use ziti_cluster::{ZitiCluster, ZitiClusterSpec, ZitiClusterStatus};
pub use ziti_network::{ZitiNetwork, ZitiNetworkSpec, ZitiNetworkStatus};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API group of all kinds. The derive attributes need a literal; a test
/// holds them to this constant.
pub const GROUP: &str = "openziti.io";

/// The served version of all kinds.
pub const VERSION: &str = "v1alpha1";

/// The custom resource definitions of all kinds, in the order in which they
/// are installed.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        ZitiNetwork::crd(),
        EdgeRouter::crd(),
        ZitiRouter::crd(),
        ZitiController::crd(),
        ZitiCluster::crd(),
    ]
}

/// A `ZitiNetwork` in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkRef {
    /// Name of the `ZitiNetwork`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A `ZitiCluster` in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRef {
    /// Name of the `ZitiCluster`.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}

/// One key of a Secret in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key within the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A Secret in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// What becomes of the router on the Ziti network when its object is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// The router is deleted from the network once it has stopped.
    #[default]
    Delete,
    /// The router stays on the network as it is. May be set on an object that
    /// is already being deleted: it is then let go at once.
    Retain,
}

/// What to do when the network has a router of this name that does not carry
/// this object's ownership tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AdoptionPolicy {
    /// Refuse, with reason `NameTaken`. A router that carries the tags of this
    /// very object (same install, namespace and name) is taken back.
    #[default]
    IfTagged,
    /// Take over the router of that name, whoever made it.
    ByName,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_in_our_group_version_and_category() {
        for crd in crds() {
            assert_eq!(crd.spec.group, GROUP);
            assert_eq!(crd.spec.versions[0].name, VERSION);
            assert_eq!(
                crd.spec.names.categories.as_deref(),
                Some(&["ziti".to_owned()][..])
            );
            assert!(
                crd.spec.names.short_names.is_some(),
                "{:?}",
                crd.metadata.name
            );
        }
    }
}
