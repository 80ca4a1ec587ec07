//! Sets whose members have workloads of their own. What needs a second node is elsewhere.

use anyhow::{Context, Result, ensure};
use api::{EdgeRouter, ZitiRouter};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, Service};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::json;

use crate::own_node::OWNER;
use crate::scaling::pods;
use crate::stage::{self, Stage};

/// Each member has a StatefulSet of its own. Any of them can be taken away by itself: it leaves the
/// network with all that belonged to it, another takes its place, and the rest is left alone.
#[test]
fn a_member_of_its_own_can_be_taken_away_by_itself() {
    stage::play("per-member", async |stage| {
        stage.join_network().await?;
        let spec = json!({"topology": "PerMember", "replicas": 2});
        stage.create_set("edge", spec).await?;
        stage.until_online("edge", 2).await?;
        stage.ziti.expect_online(&["edge-0", "edge-1"]).await?;
        let before = stage.ziti.ids(&["edge-0", "edge-1"]).await?;
        let stays = pods(stage, &["edge-1-0"]).await?;
        ensure!(workloads(stage).await? == ["edge-0", "edge-1"]);

        let reserved = json!({"spec": {"reserveOrdinals": [0]}});
        stage.patch::<ZitiRouter>("edge", reserved).await?;
        stage.until_gone::<EdgeRouter>("edge-0").await?;
        stage
            .until_gone::<PersistentVolumeClaim>("identity-edge-0-0")
            .await?;
        stage.until_gone::<Service>("edge-0").await?;
        stage.until_online("edge", 2).await?;
        stage.ziti.expect_online(&["edge-1", "edge-2"]).await?;
        ensure!(workloads(stage).await? == ["edge-1", "edge-2"]);
        let after = stage.ziti.ids(&["edge-1", "edge-2"]).await?;
        ensure!(after["edge-1"] == before["edge-1"], "edge-1 has another id");
        ensure!(
            pods(stage, &["edge-1-0"]).await? == stays,
            "the pod of edge-1 was replaced or restarted"
        );

        stage.scale("edge", 0).await?;
        stage.until_online("edge", 0).await?;
        ensure!(workloads(stage).await?.is_empty());
        ensure!(stage.list::<EdgeRouter>().await?.is_empty());
        Ok(())
    });
}

/// Each new `restartAt` restarts the members, each with the identity that it has.
#[test]
fn a_set_is_restarted_by_a_word() {
    stage::play("restart", async |stage| {
        stage.join_network().await?;
        let spec = json!({"topology": "PerMember", "replicas": 2});
        stage.create_set("edge", spec).await?;
        stage.until_online("edge", 2).await?;
        let names = ["edge-0-0", "edge-1-0"];
        let before = pods(stage, &names).await?;
        let certificate = certificate(stage).await?;

        let restart = json!({"spec": {"restartAt": "2026-01-02T03:04:05Z"}});
        stage.patch::<ZitiRouter>("edge", restart).await?;
        for name in names {
            stage
                .until(name, "made anew", |pod: &Pod| {
                    let annotations = pod.annotations();
                    annotations.contains_key(api::names::ANNOTATION_RESTART)
                })
                .await?;
        }
        stage.until_online("edge", 2).await?;
        let after = pods(stage, &names).await?;
        ensure!(
            before.iter().zip(&after).all(|(old, new)| old.0 != new.0),
            "not every pod was replaced"
        );
        ensure!(
            self::certificate(stage).await? == certificate,
            "edge-0 was enrolled anew"
        );
        Ok(())
    });
}

/// Each node has a member, named after it and bound to it.
#[test]
fn each_node_has_a_member() {
    stage::play("per-node", async |stage| {
        stage.join_network().await?;
        let nodes: Api<Node> = Api::all(stage.client.clone());
        // Other tests add nodes of their own.
        let shared = ListParams::default().labels(&format!("!{OWNER}"));
        let nodes = nodes.list(&shared).await?.items;
        let shared = json!({"matchExpressions": [{"key": OWNER, "operator": "DoesNotExist"}]});
        let spec = json!({"topology": "PerNode", "nodes": {"selector": shared}});
        stage.create_set("edge", spec).await?;
        let count = i32::try_from(nodes.len())?;
        stage.until_online("edge", count).await?;
        for node in nodes.iter().map(ResourceExt::name_any) {
            let member = format!("edge-{node}");
            let pod: Pod = stage.get(&format!("{member}-0")).await?;
            let runs_on = pod.spec.and_then(|spec| spec.node_name);
            ensure!(runs_on == Some(node), "{member} runs on {runs_on:?}");
            stage.ziti.expect_online(&[&member]).await?;
        }
        // No node is left for a member.
        let nowhere = json!({"matchLabels": {"no": "where"}, "matchExpressions": null});
        let nowhere = json!({"spec": {"nodes": {"selector": nowhere}}});
        stage.patch::<ZitiRouter>("edge", nowhere).await?;
        stage.until_online("edge", 0).await?;
        ensure!(stage.list::<EdgeRouter>().await?.is_empty());
        Ok(())
    });
}

async fn workloads(stage: &Stage) -> Result<Vec<String>> {
    let mut names: Vec<String> = stage
        .list::<StatefulSet>()
        .await?
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    names.sort();
    Ok(names)
}

async fn certificate(stage: &Stage) -> Result<String> {
    let router: EdgeRouter = stage.get("edge-0").await?;
    let fingerprint = router.status.and_then(|status| status.fingerprint);
    fingerprint.context("edge-0 has no certificate")
}
