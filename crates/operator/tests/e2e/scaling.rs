//! A set that grows and shrinks, also while the operator is killed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{EdgeRouter, ZitiRouter};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt};
use serde_json::json;
use testbed::kubernetes;

use crate::operator::Operator;
use crate::stage::{self, PATIENCE, Stage};

/// Members that stay keep their ids, a new one is registered before its pod starts, and one that
/// goes leaves in this order: pod, router on the network, volume.
#[test]
fn members_come_and_go_and_those_that_stay_are_left_alone() {
    stage::play("scale", async |stage| {
        stage.set_online("edge", 2).await?;
        let before = stage.ziti.ids(&["edge-0", "edge-1"]).await?;
        let pods = pods(stage, &["edge-0", "edge-1"]).await?;

        stage.scale("edge", 3).await?;
        registered_before_its_pod(stage, "edge-2").await?;
        stage.until_online("edge", 3).await?;
        stage
            .ziti
            .expect_online(&["edge-0", "edge-1", "edge-2"])
            .await?;

        stage.scale("edge", 1).await?;
        left_in_order(stage, &["edge-1", "edge-2"]).await?;
        stage.until_online("edge", 1).await?;
        stage.ziti.expect_online(&["edge-0"]).await?;

        let after = stage.ziti.ids(&["edge-0"]).await?;
        ensure!(after["edge-0"] == before["edge-0"], "edge-0 has another id");
        ensure!(
            self::pods(stage, &["edge-0"]).await? == pods[..1],
            "the pod of edge-0 was replaced or restarted"
        );
        Ok(())
    });
}

/// However often and whenever the operator dies, it takes up where it was: each member is
/// registered once.
#[test]
fn an_operator_that_is_killed_makes_no_second_router() {
    stage::play("killed", async |stage| {
        stage.set_online("edge", 1).await?;
        let census = stage.ziti.census();
        let operator = Operator::take(&stage.client).await;

        stage.scale("edge", 4).await?;
        stage
            .until("edge-1", "there", |_: &EdgeRouter| true)
            .await?;
        operator.kill().await?;
        stage
            .until("edge-2", "registered", |router: &EdgeRouter| {
                let status = router.status.as_ref();
                status.is_some_and(|status| status.id.is_some() || status.intent.is_some())
            })
            .await?;
        operator.delete_pod().await?;
        stage
            .until("edge", "grown", |set: &StatefulSet| {
                set.spec.as_ref().and_then(|spec| spec.replicas) > Some(1)
            })
            .await?;
        operator.kill().await?;
        stage.until_online("edge", 4).await?;

        let members = ["edge-0", "edge-1", "edge-2", "edge-3"];
        stage.ziti.expect_online(&members).await?;
        let ids = stage.ziti.ids(&members).await?;
        let seen = census.end().await?;
        ensure!(
            seen == ids.into_iter().collect(),
            "the network had other routers meanwhile: {seen:?}"
        );
        Ok(())
    });
}

/// Uid and restarts of each pod.
pub(crate) async fn pods(stage: &Stage, names: &[&str]) -> Result<Vec<(String, i32)>> {
    lives(&stage.api(), names).await
}

/// The same of pods anywhere.
pub(crate) async fn lives(api: &Api<Pod>, names: &[&str]) -> Result<Vec<(String, i32)>> {
    let mut pods = Vec::new();
    for name in names {
        let pod = api.get(name).await;
        let pod = pod.with_context(|| format!("reading pod {name}"))?;
        let restarts = pod.status.iter().flat_map(|status| {
            let containers = status.container_statuses.iter().flatten();
            containers.map(|container| container.restart_count)
        });
        pods.push((pod.uid().unwrap_or_default(), restarts.sum()));
    }
    Ok(pods)
}

/// Looks until the member's pod is there; the network must know the router by then.
async fn registered_before_its_pod(stage: &Stage, member: &str) -> Result<()> {
    let pod: Pod = stage.until(member, "there", |_: &Pod| true).await?;
    let routers = stage.ziti.routers().await?;
    let router = routers
        .get(member)
        .with_context(|| format!("{member} has a pod and is not registered"))?;
    let made = pod
        .metadata
        .creation_timestamp
        .context("a pod without age")?;
    let registered = router.created_at.context("a router without age")?;
    // Kubernetes counts in whole seconds, rounded down.
    let made = made.0 + Duration::from_secs(1);
    ensure!(
        registered.as_millisecond() <= made.as_millisecond(),
        "{member} was registered at {registered}, its pod made before {made}"
    );
    Ok(())
}

/// Waits until nothing of these members is left: pod, router on the network, volume, in this order.
/// What must go first is looked at last, so that nothing can go between the looks and seem out of
/// order.
pub(crate) async fn left_in_order(stage: &Stage, members: &[&str]) -> Result<()> {
    let claim = |member: &str| format!("identity-{member}");
    kubernetes::poll("the volumes to go", PATIENCE, async || {
        let mut left = false;
        for member in members {
            let found: Option<PersistentVolumeClaim> = stage.find(&claim(member)).await?;
            let stays = found.is_some_and(|claim| claim.metadata.deletion_timestamp.is_none());
            let leaving = left_the_network(stage, member).await?;
            ensure!(
                stays || leaving,
                "the volume of {member} goes while it is registered"
            );
            left |= stays || !leaving;
        }
        Ok((!left).then_some(()))
    })
    .await?;
    for member in members {
        stage.until_gone::<EdgeRouter>(member).await?;
        stage
            .until_gone::<PersistentVolumeClaim>(&claim(member))
            .await?;
    }
    Ok(())
}

/// Waits until the network knows these members no more; their pods must have ended before.
pub(crate) async fn left_the_network_after_its_pod(stage: &Stage, members: &[&str]) -> Result<()> {
    kubernetes::poll("the members to leave", PATIENCE, async || {
        let mut all = true;
        for member in members {
            all &= left_the_network(stage, member).await?;
        }
        Ok(all.then_some(()))
    })
    .await
}

/// Whether the network knows the member no more; its pod must have ended then.
async fn left_the_network(stage: &Stage, member: &str) -> Result<bool> {
    let registered = stage.ziti.routers().await?.contains_key(member);
    let runs = stage.find::<Pod>(member).await?.is_some();
    ensure!(
        registered || !runs,
        "{member} left the network while its pod ran"
    );
    Ok(!registered)
}

/// The scale subresource says what the set says: autoscalers and `kubectl get` rely on it.
#[test]
fn a_set_of_none_is_a_set() {
    stage::play("none", async |stage| {
        stage.set_online("edge", 1).await?;
        stage.scale("edge", 0).await?;
        left_in_order(stage, &["edge-0"]).await?;
        let set = stage.until_online("edge", 0).await?;
        ensure!(set.spec.replicas == 0, "the set has another size");
        stage.ziti.expect_online(&[]).await?;
        // And back: a member of the same name is a new router.
        stage
            .patch::<ZitiRouter>("edge", json!({"spec": {"replicas": 1}}))
            .await?;
        stage.until_online("edge", 1).await?;
        stage.ziti.expect_online(&["edge-0"]).await
    });
}
