//! Traffic while a node is lost, and with it one of two routers that host a service.

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::data_path::{get, host_service, serve};
use crate::outage::is_ready;
use crate::own_node::{self, SHARED};
use crate::requests::{self, CLIENT, Requests, until_hosted_by};
use crate::scaling::pods;
use crate::stage::{self, PATIENCE};
use crate::traffic_while_rolling::entry;
use crate::watch::witness;

/// The routers on the node that stays.
const STAYING: [&str; 3] = ["entry-0", "entry-1", "host-0"];

/// Two routers host a service, and one is lost with its node: requests that enter at the Kubernetes
/// Service of two routers in mode `proxy` elsewhere succeed again by themselves, by the other host.
/// None of the three is touched. How many fail until then is printed: the network goes on leading
/// some to the lost one until it notices.
#[test]
fn requests_flow_on_when_a_hosting_router_is_lost_with_its_node() {
    stage::play("loss", async |stage| {
        stage.join_network().await?;
        let hosting = json!({"replicas": 1, "tunnel": {"mode": "host"}});
        stage.create_set("host", hosting).await?;
        let server = serve(stage).await?;
        stage.until_online("host", 1).await?;
        let ids = stage.ziti.ids(&["host-0"]).await?;
        let service = host_service(stage, &server, &ids["host-0"]).await?;
        let entry = entry(stage, &service, &["host-0"]).await?;
        get(stage, &entry, 80).await?;
        let client = requests::client(&format!("nc -w 5 {entry} 80"));
        let requests = Requests::begin(stage, client).await?;

        let node = own_node::add(stage).await?;
        stage.pods_only_on(Some(&node.name())).await?;
        stage.scale("host", 2).await?;
        stage.until_online("host", 2).await?;
        stage.pods_only_on(None).await?;
        stage.expect_on(&node.name(), &["host-1"]).await?;
        stage
            .expect_on(SHARED, &[&STAYING[..], &["web", CLIENT]].concat())
            .await?;
        let all = ["entry-0", "entry-1", "host-0", "host-1"];
        let ids = stage.ziti.ids(&all).await?;
        let (other, role) = (format!("@{}", ids["host-1"]), format!("@{service}"));
        stage.ziti.service_policy("Bind", &other, &role).await?;
        until_hosted_by(stage, &service, 2).await?;
        requests::spread(stage, &service).await?;
        let spread = requests.until_well(&requests.mark().await?).await?;
        stage::say(&format!("two nodes with a host each: {spread}"));
        let running = pods(stage, &STAYING).await?;
        let stays = witness::<Pod>(stage.api(), "", |pods| {
            for name in STAYING {
                let stays = pods.get(name);
                let stays = stays.with_context(|| format!("pod {name} is gone"))?;
                ensure!(is_ready(stays), "pod {name} is not ready");
            }
            Ok(())
        })
        .await?;

        let before = requests.mark().await?;
        node.lose().await?;
        node.until_not_ready(PATIENCE).await?;
        let lost = requests.until_well(&before).await?;
        stage::say(&format!("a node with one of two hosts is lost: {lost}"));

        node.start().await?;
        stage.until_online("host", 2).await?;
        until_hosted_by(stage, &service, 2).await?;
        let back = requests.until_well(&requests.mark().await?).await?;
        stage::say(&format!("the node is back: {back}"));
        stays.end().await?;
        ensure!(
            pods(stage, &STAYING).await? == running,
            "a pod elsewhere was replaced or restarted"
        );
        stage.scale("host", 1).await?;
        stage.until_online("host", 1).await?;
        node.remove().await
    });
}
