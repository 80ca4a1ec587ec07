//! What runs beside a Ziti router in its pod. The binary `ziti-agent` is this library with a
//! command line; nothing else uses it but its tests.
//!
//! It knows Ziti and a directory, not Kubernetes: it holds no credential, watches nothing, and
//! says how an enrollment ended in one line of JSON ([`report::Report`]).
//!
//! | module | holds |
//! | --- | --- |
//! | [`cli`] | the command line |
//! | [`enroll`] | what to do about the identity: keep it, replace it, or get one |
//! | [`volume`] | the identity on disk, written all or nothing |
//! | [`disk`] | the few file operations that it is written with |
//! | [`report`] | how it ended, and why |
//! | [`sidecar`] | beside a running router: when it is ready, and how it leaves |
//! | [`router_socket`] | what can be asked of a running router |

pub mod cli;
pub mod disk;
pub mod enroll;
pub mod report;
pub mod router_socket;
pub mod sidecar;
pub mod volume;
