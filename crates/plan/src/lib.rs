//! Every decision of the operator, and every object that it renders: observed
//! facts in, a plan out.
//!
//! Nothing here reads, writes, waits, asks the time or rolls dice; `now` comes
//! in with the facts. Token texts never come in at all: the planner knows a
//! token by its digest, and whoever applies the plan has the text. So a plan
//! can be printed, logged and compared.
//!
//! - [`network`] decides for a `ZitiNetwork`;
//! - [`edge_router`] decides for one `EdgeRouter`, from what the network says;
//! - [`set`] decides for a `ZitiRouter`, from what the cluster says;
//! - [`controller`] decides for a `ZitiController`, from what cluster and network say;
//! - [`ziti_cluster`] decides for a `ZitiCluster`, from what that cluster says;
//! - [`foresight`] tells what will follow, for whoever asks before it is done.
//!
//! A failed read is a value (for example [`edge_router::NetworkFacts::Unusable`]),
//! never an empty list: doubt plans nothing.

pub mod conditions;
pub mod controller;
pub mod controllers;
pub mod edge_router;
pub mod foresight;
pub mod network;
pub mod set;
pub mod token;
mod version;
pub mod ziti_cluster;

use api::router::ClusterDns;

/// Whose installation this is, and what it runs by default.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The id of this installation, put on everything that it makes on a
    /// network.
    pub install_id: String,
    /// The uid of the namespace in which the operator runs, which tells this
    /// installation from another one that was given the same id; `None` outside
    /// of a cluster.
    pub install_uid: Option<String>,
    /// Image that holds `ziti-agent`.
    pub agent_image: String,
    /// Image of a router where the ZitiRouter names none.
    pub router_image: String,
    /// Image of a controller where the ZitiController names none.
    pub controller_image: String,
    /// How pods of the operator's cluster resolve names, where that is known.
    pub cluster_dns: Option<ClusterDns>,
}
