//! What restarts routers, and how; and what does not.

use anyhow::{Context, Result, ensure};
use api::{ZitiRouter, names};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use crate::operator::Operator;
use crate::outage::is_ready;
use crate::scaling::pods;
use crate::stage::{self, Stage};
use crate::watch::witness;

/// A change of the template takes one member down at a time, and reaches all of them.
#[test]
fn a_change_is_rolled_out_to_one_member_at_a_time() {
    stage::play("rollout", async |stage| {
        let members = ["edge-0", "edge-1", "edge-2"];
        stage.set_online("edge", 3).await?;
        let ids = stage.ziti.ids(&members).await?;
        let before = pods(stage, &members).await?;
        let of_set = format!("{}=edge", names::LABEL_SET);
        let two_are_ready = witness::<Pod>(stage.api(), &of_set, |pods| {
            let ready = pods.values().filter(|pod| is_ready(pod)).count();
            ensure!(ready >= 2, "only {ready} members are ready");
            Ok(())
        })
        .await?;

        let sans = json!({"spec": {"csr": {"sans": {"dns": ["edge.example.com"]}}}});
        stage.patch::<ZitiRouter>("edge", sans).await?;
        stage.until_online("edge", 3).await?;
        two_are_ready.end().await?;

        stage.ziti.expect_online(&members).await?;
        ensure!(
            stage.ziti.ids(&members).await? == ids,
            "a router has another id"
        );
        let revision = revision(stage).await?;
        for (member, before) in members.iter().zip(before) {
            let pod: Pod = stage.get(member).await?;
            ensure!(
                pod.labels().get("controller-revision-hash") == Some(&revision),
                "{member} is not of the new revision"
            );
            ensure!(
                pod.uid().as_ref() != Some(&before.0),
                "{member} was not replaced"
            );
        }
        Ok(())
    });
}

async fn revision(stage: &Stage) -> Result<String> {
    let set: StatefulSet = stage.get("edge").await?;
    let revision = set.status.and_then(|status| status.update_revision);
    revision.context("the StatefulSet has no revision")
}

/// An operator of another version, with another image of routers, restarts no router; not even a
/// set that grows changes the members that run.
#[test]
fn an_upgrade_of_the_operator_restarts_nothing() {
    stage::play("upgrade", async |stage| {
        stage.set_online("edge", 1).await?;
        let running = pods(stage, &["edge-0"]).await?;
        let image = image(&stage.get("edge-0").await?)?;
        let operator = Operator::take(&stage.client).await;
        let installed = operator.installation(&stage.environment).await?;
        let mut upgrade = installed.clone();
        // The same program under another name: whoever makes a set at this moment can run it.
        upgrade
            .router_image
            .clone_from(&stage.environment.controller_image);
        ensure!(upgrade.router_image != image, "the images are the same");

        upgrade.install()?;
        let lived_on = async {
            stage.scale("edge", 2).await?;
            stage.until_online("edge", 2).await?;
            ensure!(
                pods(stage, &["edge-0"]).await? == running,
                "the upgrade replaced or restarted a pod"
            );
            for member in ["edge-0", "edge-1"] {
                let has = self::image(&stage.get(member).await?)?;
                ensure!(has == image, "{member} runs {has}, not {image}");
            }
            Ok(())
        }
        .await;
        installed.install()?;
        lived_on
    });
}

/// The image of a pod's router.
fn image(pod: &Pod) -> Result<String> {
    let spec = pod.spec.as_ref().context("a pod without spec")?;
    let router = spec.containers.first().context("a pod without container")?;
    router.image.clone().context("a container without image")
}
