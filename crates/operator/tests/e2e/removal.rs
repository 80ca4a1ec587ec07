//! What is left when a set goes: nothing, or, where that is asked for, everything.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{EdgeRouter, ZitiRouter};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace, PersistentVolumeClaim, Pod, Secret, Service,
};
use kube::Api;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use testbed::kubernetes;

use crate::objects::{Object, reason};
use crate::scaling::{left_in_order, left_the_network_after_its_pod, pods};
use crate::stage::{self, NETWORK, PATIENCE, Stage};

const MEMBERS: [&str; 2] = ["edge-0", "edge-1"];

/// Foreground deletion, which GitOps tools use, takes children first: no router may leave the
/// network under a pod that runs.
#[test]
fn a_set_deleted_in_foreground_leaves_nothing() {
    stage::play("foreground", async |stage| {
        stage.set_online("edge", 2).await?;
        deleted(stage, &DeleteParams::foreground()).await
    });
}

/// As kubectl deletes.
#[test]
fn a_set_deleted_in_background_leaves_nothing() {
    stage::play("background", async |stage| {
        stage.set_online("edge", 2).await?;
        deleted(stage, &DeleteParams::background()).await?;
        // The name is free again.
        stage.create_set("edge", json!({"replicas": 2})).await?;
        stage.until_online("edge", 2).await?;
        stage.ziti.expect_online(&MEMBERS).await
    });
}

async fn deleted(stage: &Stage, params: &DeleteParams) -> Result<()> {
    stage.delete::<ZitiRouter>("edge", params).await?;
    left_in_order(stage, &MEMBERS).await?;
    stage.until_gone::<ZitiRouter>("edge").await?;
    stage.ziti.expect_online(&[]).await?;
    // The garbage collector takes what the set owned.
    nothing_is_left::<StatefulSet>(stage).await?;
    nothing_is_left::<Service>(stage).await?;
    nothing_is_left::<ConfigMap>(stage).await?;
    nothing_is_left::<Secret>(stage).await?;
    nothing_is_left::<PersistentVolumeClaim>(stage).await
}

async fn nothing_is_left<K: Object>(stage: &Stage) -> Result<()> {
    let ours = ListParams::default().labels("app.kubernetes.io/managed-by=ziti-operator");
    let mut left = Vec::new();
    kubernetes::poll("what the set owned to go", PATIENCE, async || {
        let listed = stage.api::<K>().list(&ours).await;
        left = listed
            .context("listing what is left")?
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        Ok(left.is_empty().then_some(()))
    })
    .await
    .with_context(|| format!("there are {} {left:?}", K::plural(&())))
}

/// What is orphaned runs on, and a set of the same name takes it back as it is.
#[test]
fn an_orphaned_set_is_taken_back_without_a_restart() {
    stage::play("orphan", async |stage| {
        stage.set_online("edge", 2).await?;
        let (ids, running) = (
            stage.ziti.ids(&MEMBERS).await?,
            pods(stage, &MEMBERS).await?,
        );
        let orphan = DeleteParams {
            propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
            ..DeleteParams::default()
        };
        stage.delete::<ZitiRouter>("edge", &orphan).await?;
        stage.until_gone::<ZitiRouter>("edge").await?;
        stage.ziti.expect_online(&MEMBERS).await?;

        let set = stage.create_set("edge", json!({"replicas": 2})).await?;
        stage.until_online("edge", 2).await?;
        for member in MEMBERS {
            let owner = set.uid();
            stage
                .until(member, "owned again", |router: &EdgeRouter| {
                    let owners = router.owner_references();
                    owners.iter().any(|have| Some(&have.uid) == owner.as_ref())
                })
                .await?;
        }
        stage.ziti.expect_online(&MEMBERS).await?;
        ensure!(
            stage.ziti.ids(&MEMBERS).await? == ids,
            "a router was replaced"
        );
        ensure!(
            pods(stage, &MEMBERS).await? == running,
            "a pod was replaced or restarted"
        );
        Ok(())
    });
}

/// Kubernetes takes the pods of a namespace first, and the credential with everything else; still
/// the routers leave the network.
#[test]
fn a_deleted_namespace_ends_and_leaves_nothing() {
    stage::play("namespace", async |stage| {
        stage.set_online("edge", 2).await?;
        let namespaces: Api<Namespace> = Api::all(stage.client.clone());
        let name = stage.namespace.as_str();
        let deleted = namespaces.delete(name, &DeleteParams::default()).await;
        deleted.context("deleting the namespace")?;
        // The volumes are Kubernetes' to take here, as soon as no pod has them.
        left_the_network_after_its_pod(stage, &MEMBERS).await?;
        let gone = |namespace: Option<&Namespace>| namespace.is_none();
        kubernetes::wait_for(namespaces, name, "gone", gone, PATIENCE).await?;
        stage.ziti.expect_online(&[]).await
    });
}

/// `deletionPolicy: Retain` leaves the router on the network, and is the way out of a deletion
/// that waits for a network that is gone for ever.
#[test]
fn retain_leaves_the_router_and_frees_a_set_whose_network_is_gone() {
    stage::play("retain", async |stage| {
        stage.set_online("edge", 1).await?;
        stage.ziti.controller.stop().await?;
        stage
            .delete::<ZitiRouter>("edge", &DeleteParams::background())
            .await?;
        stage.until_gone::<Pod>("edge-0").await?;
        stage
            .until(
                "edge-0",
                "waiting for its network",
                |router: &EdgeRouter| {
                    router.metadata.deletion_timestamp.is_some()
                        && router.status.as_ref().is_some_and(|status| {
                            reason(&status.conditions, "Ready") == Some("NetworkNotReady")
                        })
                },
            )
            .await?;
        stage
            .patch::<ZitiRouter>("edge", json!({"spec": {"deletionPolicy": "Retain"}}))
            .await?;
        stage.until_gone::<ZitiRouter>("edge").await?;
        stage.until_gone::<EdgeRouter>("edge-0").await?;

        stage.ziti.start().await?;
        stage.ziti.ids(&["edge-0"]).await?;
        Ok(())
    });
}

/// A network lets go of its object when the last router has.
#[test]
fn a_network_outlives_its_routers() {
    stage::play("network", async |stage| {
        stage.set_online("edge", 1).await?;
        stage
            .delete::<api::ZitiNetwork>(NETWORK, &DeleteParams::background())
            .await?;
        let witness = crate::watch::witness::<api::ZitiNetwork>(stage.api(), "", |networks| {
            ensure!(!networks.is_empty(), "the ZitiNetwork went first");
            Ok(())
        })
        .await?;
        stage.until_online("edge", 1).await?;
        witness.end_after(Duration::from_secs(2)).await?;
        stage
            .delete::<ZitiRouter>("edge", &DeleteParams::background())
            .await?;
        left_in_order(stage, &["edge-0"]).await?;
        stage.until_gone::<api::ZitiNetwork>(NETWORK).await?;
        stage.ziti.expect_online(&[]).await
    });
}
