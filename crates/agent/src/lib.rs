//! What runs beside a Ziti router or controller in its pod. The binary `ziti-agent` is this library with a
//! command line; nothing else uses it but its tests.
//!
//! It knows Ziti and a directory, not Kubernetes: it holds no credential of a cluster, watches nothing, and
//! says how an enrollment ([`report::Report`]) or a backup ([`backup::report::Report`]) ended in one line
//! of JSON.
//!
//! | module | holds |
//! | --- | --- |
//! | [`cli`] | the command line |
//! | [`enroll`] | what to do about the identity: keep it, replace it, or get one |
//! | [`names`] | whether the certificate holds the names that it must, and how it gets them |
//! | [`volume`] | the identity on disk, written all or nothing |
//! | [`disk`] | the few file operations that it is written with |
//! | [`report`] | how it ended, and why |
//! | [`sidecar`] | beside a running router or controller: when it is ready, and how it leaves |
//! | [`backup`] | backups of a network, made and got back |
//! | [`socket`] | what can be asked of a running router or controller |

pub mod backup;
pub mod cli;
pub mod disk;
pub mod enroll;
pub mod names;
pub mod report;
pub mod sidecar;
pub mod socket;
pub mod volume;
