//! What makes a bare node a usable cluster: DNS and persistent volumes.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::runtime::conditions::is_deployment_completed;

use super::Cluster;
use crate::image;
use crate::kubernetes;
use crate::progress::Step;

const MANIFESTS: [&str; 2] = [
    include_str!("../../assets/coredns.yaml"),
    include_str!("../../assets/local-path.yaml"),
];

/// What makes a cluster's DNS ask that of another one for Services that it has not, by the name
/// `<service>.<namespace>.svc`: in the place of the public names that clusters have for each other.
pub(super) fn ask(other: Ipv4Addr) -> String {
    format!(
        "svc {{
        errors
        rewrite name suffix .svc. .svc.cluster.local. answer auto
        forward . {other}
        cache 5
    }}"
    )
}

/// Applies both and waits until they are there.
pub(super) async fn install(cluster: &Cluster, step: &Step) -> Result<()> {
    let client = cluster.client().await?;
    // Before the pods: what finds no image waits before it looks again.
    for archive in [
        image::coredns()?,
        image::busybox()?,
        image::local_path_provisioner()?,
    ] {
        cluster.import(&archive)?;
    }
    for manifest in MANIFESTS {
        let text = cluster
            .layout_values()
            .iter()
            .fold(manifest.to_owned(), |text, (name, value)| {
                text.replace(name, value)
            });
        kubernetes::apply_yaml(&client, &text, "kube-system").await?;
    }
    for (namespace, name) in [
        ("kube-system", "coredns"),
        ("local-path-storage", "local-path-provisioner"),
    ] {
        step.say(&format!("{name} to be ready"));
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        kubernetes::wait_for(
            deployments,
            name,
            "available",
            is_deployment_completed(),
            Duration::from_mins(2),
        )
        .await
        .with_context(|| format!("starting {name}"))?;
    }
    Ok(())
}
