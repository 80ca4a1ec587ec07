//! A local Kubernetes and a local Ziti network, made of the real programs, for the demo, the tests
//! and the benchmarks. The product uses nothing of it.
//!
//! - [`tools`] builds the pinned programs, [`debian`] installs what is missing from Debian.
//! - [`apiserver`] is etcd and an API server on loopback: for tests that need no node.
//! - [`cluster`] is a whole single-node Kubernetes in a network namespace of its own.
//! - [`image`] makes container images without a container engine.
//! - [`s3`] is an S3 server on loopback, for backups.
//! - [`ziti`] runs Ziti on loopback, [`ziti_in_cluster`] in the cluster.
//! - [`kubernetes`], [`audit`], [`dump`] are helpers for those who test against a cluster.

pub mod apiserver;
pub mod audit;
pub mod cluster;
pub mod command;
mod control_plane;
pub mod debian;
pub mod dump;
pub mod environment;
pub mod image;
pub mod interrupt;
pub mod kubernetes;
pub mod operator_install;
pub mod paths;
mod pki;
pub mod process;
pub mod progress;
pub mod s3;
pub mod tools;
pub mod ziti;
pub mod ziti_in_cluster;
