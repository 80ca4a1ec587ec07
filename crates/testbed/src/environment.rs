//! What `cargo xtask test` hands to the end-to-end tests: a running cluster with the operator in
//! it. A test that is started without it fails and says so; it is never skipped.

use std::path::PathBuf;

use anyhow::{Context, Result};
use kube::Client;

use crate::cluster::Cluster;
use crate::kubernetes;

/// The kubeconfig of the cluster.
pub const KUBECONFIG: &str = "KUBECONFIG";
/// The operator's image, which the cluster has.
pub const OPERATOR_IMAGE: &str = "ZITI_OPERATOR_IMAGE";
/// The image of routers, which the cluster has.
pub const ROUTER_IMAGE: &str = "ZITI_ROUTER_IMAGE";
/// The image of controllers, which the cluster has.
pub const CONTROLLER_IMAGE: &str = "ZITI_CONTROLLER_IMAGE";
/// The API server's audit log (see [`crate::audit`]); absent on a cluster that is not ours.
pub const AUDIT_LOG: &str = "ZITI_TESTBED_AUDIT_LOG";
/// The directory of the testbed's own cluster, to which nodes can be added; absent on a cluster that
/// is not ours.
pub const CLUSTER_DIR: &str = "ZITI_TESTBED_CLUSTER";

/// The world of an end-to-end test.
#[derive(Debug, Clone)]
pub struct Environment {
    /// The cluster, with all rights.
    pub kubeconfig: PathBuf,
    /// The operator's image.
    pub operator_image: String,
    /// The image of routers.
    pub router_image: String,
    /// The image of controllers, for [`crate::ziti_in_cluster`].
    pub controller_image: String,
    /// The log of writes to the API server, where the cluster is the testbed's own.
    pub audit_log: Option<PathBuf>,
    /// The state of the cluster, where it is the testbed's own.
    pub cluster_dir: Option<PathBuf>,
}

impl Environment {
    /// Reads it from the environment variables of this module.
    ///
    /// # Errors
    /// When one is missing.
    pub fn get() -> Result<Self> {
        Ok(Self {
            kubeconfig: variable(KUBECONFIG)?.into(),
            operator_image: variable(OPERATOR_IMAGE)?,
            router_image: variable(ROUTER_IMAGE)?,
            controller_image: variable(CONTROLLER_IMAGE)?,
            audit_log: variable(AUDIT_LOG).ok().map(PathBuf::from),
            cluster_dir: variable(CLUSTER_DIR).ok().map(PathBuf::from),
        })
    }

    /// The environment variables that say it, for a child process.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            (KUBECONFIG, self.kubeconfig.display().to_string()),
            (OPERATOR_IMAGE, self.operator_image.clone()),
            (ROUTER_IMAGE, self.router_image.clone()),
            (CONTROLLER_IMAGE, self.controller_image.clone()),
        ];
        if let Some(log) = &self.audit_log {
            variables.push((AUDIT_LOG, log.display().to_string()));
        }
        if let Some(dir) = &self.cluster_dir {
            variables.push((CLUSTER_DIR, dir.display().to_string()));
        }
        variables
    }

    /// The testbed's own cluster.
    ///
    /// # Errors
    /// When it is not the testbed's own.
    pub fn cluster(&self) -> Result<Cluster> {
        let dir = self.cluster_dir.as_ref().with_context(|| {
            format!(
                "{CLUSTER_DIR} is not set: this needs a cluster of the testbed's own; \
                 `cargo xtask test` starts one"
            )
        })?;
        Cluster::attach_dir(dir)
    }

    /// A client with all rights.
    pub async fn client(&self) -> Result<Client> {
        kubernetes::client(&self.kubeconfig).await
    }
}

fn variable(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| {
        format!(
            "{name} is not set: end-to-end tests need a cluster with the operator in it; \
             `cargo xtask test` starts one for them"
        )
    })
}
