//! Traffic while a node is lost, and with it one of two routers that host a service.

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::data_path::{self, PROXY_PORT};
use crate::outage::is_ready;
use crate::own_node::{self, SHARED};
use crate::requests::{self, CLIENT, Requests, until_hosted_by};
use crate::scaling::pods;
use crate::stage::{self, PATIENCE};
use crate::watch::witness;

/// Two routers host a service, and one is lost with its node: requests that enter elsewhere succeed
/// again by themselves, by the other router, which is not touched. How many fail until then is
/// printed: the network goes on leading some to the lost one until it notices.
#[test]
fn requests_flow_on_when_a_hosting_router_is_lost_with_its_node() {
    stage::play("loss", async |stage| {
        stage.join_network().await?;
        let hosting = json!({"replicas": 1, "tunnel": {"mode": "host"}});
        stage.create_set("edge", hosting).await?;
        stage.create_set("entry", json!({"replicas": 1})).await?;
        let server = data_path::serve(stage).await?;
        stage.until_online("edge", 1).await?;
        stage.until_online("entry", 1).await?;
        let ids = stage.ziti.ids(&["edge-0", "entry-0"]).await?;
        let service = data_path::host_service(stage, &server, &ids["edge-0"]).await?;
        let dialer = data_path::dialer(stage, &ids["entry-0"], &service).await?;
        data_path::get(stage, &dialer, PROXY_PORT).await?;
        let client = requests::client(&format!("nc -w 5 {dialer} {PROXY_PORT}"));
        let requests = Requests::begin(stage, client).await?;

        let node = own_node::add(stage).await?;
        stage.pods_only_on(Some(&node.name())).await?;
        stage.scale("edge", 2).await?;
        stage.until_online("edge", 2).await?;
        stage.pods_only_on(None).await?;
        stage.expect_on(&node.name(), &["edge-1"]).await?;
        stage
            .expect_on(SHARED, &["edge-0", "entry-0", "dialer", "web", CLIENT])
            .await?;
        let other = stage.ziti.ids(&["edge-0", "edge-1", "entry-0"]).await?["edge-1"].clone();
        let role = format!("@{service}");
        stage
            .ziti
            .service_policy("Bind", &format!("@{other}"), &role)
            .await?;
        until_hosted_by(stage, &service, 2).await?;
        requests::spread(stage, &service).await?;
        let spread = requests.until_well(&requests.mark().await?).await?;
        stage::say(&format!("two nodes with a host each: {spread}"));
        let running = pods(stage, &["edge-0", "entry-0"]).await?;
        let stays = witness::<Pod>(stage.api(), "", |pods| {
            let stays = pods.get("edge-0").context("pod edge-0 is gone")?;
            ensure!(is_ready(stays), "pod edge-0 is not ready");
            Ok(())
        })
        .await?;

        let before = requests.mark().await?;
        node.lose().await?;
        node.until_not_ready(PATIENCE).await?;
        let lost = requests.until_well(&before).await?;
        stage::say(&format!("a node with one of two hosts is lost: {lost}"));

        node.start().await?;
        stage.until_online("edge", 2).await?;
        until_hosted_by(stage, &service, 2).await?;
        let back = requests.until_well(&requests.mark().await?).await?;
        stage::say(&format!("the node is back: {back}"));
        stays.end().await?;
        ensure!(
            pods(stage, &["edge-0", "entry-0"]).await? == running,
            "a pod elsewhere was replaced or restarted"
        );
        stage.scale("edge", 1).await?;
        stage.until_online("edge", 1).await?;
        node.remove().await
    });
}
