//! cert-manager's controllers beside a cluster: its kinds are created from the sources of its
//! module, and `tools/cert-manager` runs on this machine. There is no webhook.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::conditions;
use kube::{Api, Client, ResourceExt};

use crate::process::{Daemon, Fate, Running};
use crate::{kubernetes, paths, tools};

const MODULE: &str = "github.com/cert-manager/cert-manager";
/// The kinds of certificates and their issuers; those of ACME are not among them.
const KINDS: [&str; 4] = [
    "certificates",
    "certificaterequests",
    "issuers",
    "clusterissuers",
];
const PATIENCE: Duration = Duration::from_secs(30);

/// Creates the kinds in a cluster and waits until they can be used.
///
/// # Errors
/// When the module cannot be had, or the cluster refuses them.
pub async fn install(client: &Client) -> Result<()> {
    let sources = tools::sources("cert-manager", MODULE)?;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for kind in KINDS {
        let path = sources
            .join("deploy/crds")
            .join(format!("cert-manager.io_{kind}.yaml"));
        kubernetes::apply_yaml(client, &paths::read(&path)?, "").await?;
        let name = format!("{kind}.cert-manager.io");
        let established = conditions::is_crd_established();
        kubernetes::wait_for(crds.clone(), &name, "established", established, PATIENCE).await?;
    }
    Ok(())
}

/// Takes the kinds away, and all objects of them.
///
/// # Errors
/// When the cluster refuses.
pub async fn remove(client: &Client) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds.list(&kube::api::ListParams::default()).await? {
        if crd.spec.group == "cert-manager.io" {
            let name = crd.name_any();
            crds.delete(&name, &kube::api::DeleteParams::default())
                .await
                .with_context(|| format!("deleting {name}"))?;
        }
    }
    Ok(())
}

/// Starts its controllers with that kubeconfig, which must give all rights. They end with us, or when
/// they are killed.
///
/// # Errors
/// When the program is missing: `cargo xtask up` builds it.
pub fn start(kubeconfig: &Path, log: &Path) -> Result<Running> {
    let program = paths::program("cert-manager")?;
    let kubeconfig = kubeconfig.display().to_string();
    let mut daemon = Daemon::new("cert-manager", program, log).args([kubeconfig]);
    daemon.fate = Fate::DiesWithUs;
    daemon.start()
}
