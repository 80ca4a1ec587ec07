//! The Edge Management API (`/edge/management/v1`): what the operator reads and changes on a
//! Ziti network.
//!
//! [`ManagementClient`] holds one network: its endpoints, its trust, its credential and the
//! session that goes with it. It logs in when it must, stays with one controller while that
//! one works (a session is known only to the controller that gave it), and never repeats a
//! write. What a call came to is a [`ManagementError`], told apart by what can be done.

mod client;
mod cluster;
mod edge_router;
mod error;
mod fields;
mod filter;
mod identity;
mod policy;
mod session;
mod websocket;

pub use client::{Deletion, Listed, ManagementClient, Options, Version};
pub use cluster::Member;
pub use edge_router::{
    EdgeRouterEntity, EdgeRouterPatch, NameError, NewEdgeRouter, SYNC_DONE, validate_name,
};
pub use error::{Call, ErrorKind, ManagementError};
pub use filter::{Filter, FilterError};
pub use identity::{Authenticator, Identity, NewIdentity, OneTimeToken};
pub use policy::{NewPolicy, Policy, PolicyKind, PolicyPatch, Semantic};
pub use session::Credential;
