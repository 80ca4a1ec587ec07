//! Nodes that come, go and are drained.

use std::time::Duration;

use anyhow::{Context, ensure};
use api::{EdgeRouter, ZitiRouter};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams};
use serde_json::json;

use crate::outage::is_ready;
use crate::own_node::{self, OWNER, SHARED};
use crate::scaling::pods;
use crate::stage::{self, PATIENCE};
use crate::watch::witness;

/// After how many seconds the member of a node that is gone leaves.
const GRACE: u32 = 5;
/// How long a node is watched that is not ready: some times longer than that.
const WATCHED: Duration = Duration::from_secs(15);

/// A node that joins gets a router. One that is lost keeps it, and loses it on the network as well
/// some time after it was taken out of the cluster. The routers of the others are left alone.
#[test]
fn a_node_that_joins_gets_a_router_and_one_that_left_loses_it() {
    stage::play("joining", async |stage| {
        stage.join_network().await?;
        let owner = stage.namespace.as_str();
        stage.label_node(SHARED, OWNER, Some(owner)).await?;
        let nodes = json!({"selector": {"matchLabels": {OWNER: owner}}, "goneAfterSeconds": GRACE});
        stage
            .create_set("edge", json!({"topology": "PerNode", "nodes": nodes}))
            .await?;
        stage.until_online("edge", 1).await?;
        let first = format!("edge-{SHARED}");
        stage.ziti.expect_online(&[&first]).await?;
        let its_pod = format!("{first}-0");
        let running = pods(stage, &[&its_pod]).await?;

        let node = own_node::add(stage).await?;
        let joined = format!("edge-{}", node.name());
        stage.until_online("edge", 2).await?;
        stage.ziti.expect_online(&[&first, &joined]).await?;
        let pod = format!("{joined}-0");
        stage.expect_on(&node.name(), &[&pod]).await?;
        stage.expect_on(SHARED, &[&its_pod]).await?;
        let ids = stage.ziti.ids(&[&first, &joined]).await?;

        node.lose().await?;
        node.until_not_ready(PATIENCE).await?;
        let name = joined.clone();
        let stays = witness::<EdgeRouter>(stage.api(), "", move |routers| {
            let router = routers.get(&name);
            let router = router.with_context(|| format!("{name} is gone"))?;
            ensure!(
                router.metadata.deletion_timestamp.is_none(),
                "{name} is taken away although its node is there"
            );
            Ok(())
        })
        .await?;
        stays.end_after(WATCHED).await?;
        ensure!(
            stage.ziti.ids(&[&first, &joined]).await? == ids,
            "a router has another id"
        );
        // It comes back as the router that it was.
        node.start().await?;
        stage.until_online("edge", 2).await?;
        stage.ziti.until_online(&[&first, &joined]).await?;
        ensure!(
            stage.ziti.ids(&[&first, &joined]).await? == ids,
            "a router has another id"
        );

        node.lose().await?;
        let nodes: Api<Node> = Api::all(stage.client.clone());
        nodes
            .delete(&node.name(), &DeleteParams::default())
            .await
            .context("taking the node out of the cluster")?;
        stage
            .until("edge", "told that a node is gone", |set: &ZitiRouter| {
                let status = set.status.as_ref();
                status.is_some_and(|status| status.nodes_gone.contains_key(&joined))
            })
            .await?;
        // Its pod goes when Kubernetes has noticed that there is no such node.
        stage.until_gone::<EdgeRouter>(&joined).await?;
        stage.until_online("edge", 1).await?;
        stage.ziti.expect_online(&[&first]).await?;
        ensure!(
            pods(stage, &[&its_pod]).await? == running,
            "the pod of the other node was replaced or restarted"
        );
        node.remove().await?;

        // A node that matches no more.
        stage.label_node(SHARED, OWNER, None).await?;
        stage.until_online("edge", 0).await?;
        stage.ziti.expect_online(&[]).await
    });
}

/// A drain of a node with two members of three ends, although their volumes bind them to the node
/// and only one member may be down; the member elsewhere serves all the while, and the two come back
/// with the node.
#[test]
fn a_drain_ends_and_the_members_come_back_with_the_node() {
    stage::play("drain", async |stage| {
        stage.set_online("edge", 1).await?;
        let node = own_node::add(stage).await?;
        let name = node.name();
        stage.pods_only_on(Some(&name)).await?;
        stage.scale("edge", 3).await?;
        stage.until_online("edge", 3).await?;
        stage.pods_only_on(None).await?;
        stage.expect_on(SHARED, &["edge-0"]).await?;
        stage.expect_on(&name, &["edge-1", "edge-2"]).await?;
        let members = ["edge-0", "edge-1", "edge-2"];
        let ids = stage.ziti.ids(&members).await?;
        let running = pods(stage, &["edge-0"]).await?;
        let serves = witness::<Pod>(stage.api(), "", |pods| {
            let other = pods.get("edge-0").context("pod edge-0 is gone")?;
            ensure!(is_ready(other), "pod edge-0 is not ready");
            Ok(())
        })
        .await?;

        let drain = [
            "drain",
            &name,
            "--ignore-daemonsets",
            "--delete-emptydir-data",
        ];
        stage.slow_kubectl(&drain).await?;
        for member in ["edge-1", "edge-2"] {
            let waits = |pod: &Pod| {
                let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
                node.is_none() && pod.metadata.deletion_timestamp.is_none()
            };
            stage.until(member, "waiting for its node", waits).await?;
        }
        stage.slow_kubectl(&["uncordon", &name]).await?;
        stage.until_online("edge", 3).await?;
        stage.ziti.expect_online(&members).await?;
        serves.end().await?;

        ensure!(
            stage.ziti.ids(&members).await? == ids,
            "a router has another id"
        );
        ensure!(
            pods(stage, &["edge-0"]).await? == running,
            "the pod elsewhere was replaced or restarted"
        );
        stage.scale("edge", 1).await?;
        stage.until_online("edge", 1).await?;
        node.remove().await
    });
}
