//! Everything the Ziti operator says to Ziti: enrollment tokens, trust, keys and
//! certificates, enrollment, and the Edge Management API.
//!
//! Used by the operator, by the agent that runs beside a router, and by tests. This crate
//! knows nothing of Kubernetes: it imports neither `kube` nor the kinds of the `api` room,
//! and it takes no decisions about routers. It reports what the network said, in types.
//!
//! | module | question it answers |
//! | --- | --- |
//! | [`token`] | what does this enrollment token say? |
//! | [`trust`] | which certificates may speak for this network? |
//! | [`authority`] | the certificates of a network of controllers |
//! | [`pki`] | keys, signing requests, and what a certificate says |
//! | [`random`] | passwords |
//! | [`backup`] | the encryption of a network's backups, and its keys on their way out of one |
//! | [`enroll`] | redeem a one-time token for an identity |
//! | [`extend`] | new certificates for a router that has an identity |
//! | [`mutual`] | TLS between a backup and the members of a network |
//! | [`management`] | read and change the network through the Edge Management API |
//! | [`events`] | when does a router come or go? |
//!
//! Three rules hold throughout. Secrets (tokens, keys, passwords, session tokens) live in
//! types that do not print them. Every call has a deadline. TLS trusts exactly what the
//! caller handed over: there are no default roots and no trust on first use.

pub mod authority;
pub mod backup;
pub mod enroll;
pub mod events;
pub mod extend;
pub mod management;
pub mod mutual;
pub mod pki;
pub mod random;
pub mod token;
pub mod trust;

mod http;
mod pkcs7;
mod signature;
mod tls;

pub use jiff::Timestamp;
pub use secrecy::{ExposeSecret, SecretString};
pub use url::Url;
