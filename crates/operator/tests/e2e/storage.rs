//! Where identities are kept, when it is no claim: what a new pod of a member goes on with.

use std::io::ErrorKind;

use anyhow::{Context, Result, ensure};
use api::EdgeRouter;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::outage::is_ready;
use crate::own_node::SHARED;
use crate::stage::{self, LONG_LIFE, Stage};

/// Where identities lie on the node.
const ON_NODE: &str = "/tmp/ziti-operator-e2e";

/// An identity on the node outlives its pod: the next one goes on with it.
#[test]
fn an_identity_on_the_node_outlives_its_pod() {
    stage::play("host-path", async |stage| {
        stage.allow_privileged().await?;
        forget(stage)?;
        let member = format!("edge-{SHARED}");
        let spec = json!({
            "topology": "PerNode",
            "nodes": {"selector": {"matchLabels": {"kubernetes.io/hostname": SHARED}}},
            "identityStorage": {"hostPath": {"path": ON_NODE}},
        });
        let before = one_online(stage, &member, spec).await?;
        replace_pod(stage, &format!("{member}-0")).await?;
        stage.until_online("edge", 1).await?;
        let after = Life::of(stage, &member).await?;
        ensure!(
            after == before,
            "the router went on as {after:?}, not as {before:?}"
        );
        forget(stage)
    });
}

/// Removes what is left on the node. Its directory is this machine's, and the operator leaves it alone.
fn forget(stage: &Stage) -> Result<()> {
    let ours = stage.environment.cluster_dir.is_some();
    match std::fs::remove_dir_all(ON_NODE) {
        Err(error) if ours && error.kind() != ErrorKind::NotFound => {
            Err(error).context("removing what is left on the node")
        }
        _ => Ok(()),
    }
}

/// An identity in the pod goes with it: the next pod enrolls again, as the same router. It takes
/// more than a minute, for which the network must have seen the router offline.
#[test]
fn a_router_without_storage_enrolls_again_as_itself() {
    stage::play_beside("ephemeral", LONG_LIFE, async |stage| {
        let spec = json!({"replicas": 1, "identityStorage": {"ephemeral": {}}});
        let before = one_online(stage, "edge-0", spec).await?;
        replace_pod(stage, "edge-0").await?;
        stage
            .until("edge-0", "enrolled anew", |router: &EdgeRouter| {
                let has = router
                    .status
                    .as_ref()
                    .and_then(|status| status.fingerprint.as_ref());
                has.is_some_and(|has| *has != before.fingerprint)
            })
            .await?;
        stage.until_online("edge", 1).await?;
        let after = Life::of(stage, "edge-0").await?;
        ensure!(after.id == before.id, "the router has another id");
        ensure!(
            after.fingerprint != before.fingerprint,
            "the router has the certificate that went with its pod"
        );
        Ok(())
    });
}

/// Who a router is to the network.
#[derive(Debug, PartialEq)]
struct Life {
    id: String,
    /// Of its certificate: another one each time that it enrolls.
    fingerprint: String,
}

impl Life {
    async fn of(stage: &Stage, member: &str) -> Result<Self> {
        let id = stage.ziti.ids(&[member]).await?[member].clone();
        let router: EdgeRouter = stage.get(member).await?;
        let fingerprint = router.status.and_then(|status| status.fingerprint);
        let fingerprint = fingerprint.with_context(|| format!("{member} has no certificate"))?;
        Ok(Self { id, fingerprint })
    }
}

/// A set of one member, online.
async fn one_online(stage: &Stage, member: &str, spec: Value) -> Result<Life> {
    stage.join_network().await?;
    stage.create_set("edge", spec).await?;
    stage.until_online("edge", 1).await?;
    Life::of(stage, member).await
}

/// Deletes the pod and waits until there is another, which is ready.
async fn replace_pod(stage: &Stage, pod: &str) -> Result<()> {
    let before: Pod = stage.get(pod).await?;
    stage.delete::<Pod>(pod, &DeleteParams::default()).await?;
    let other = |pod: &Pod| pod.uid() != before.uid() && is_ready(pod);
    stage.until(pod, "another, and ready", other).await?;
    Ok(())
}
