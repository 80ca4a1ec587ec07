//! Traffic while a node is lost, and with it one of two routers that host a service.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use testbed::kubernetes;

use crate::data_path::{self, ANSWER, PROXY_PORT};
use crate::outage::is_ready;
use crate::own_node::{self, SHARED};
use crate::scaling::pods;
use crate::stage::{self, PATIENCE, Stage};
use crate::watch::witness;

/// The client's pod.
const CLIENT: &str = "client";
/// How many good answers in a row are taken for "requests succeed again".
const IN_A_ROW: usize = 50;

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
        data_path::get(stage, &dialer, data_path::PROXY_PORT).await?;
        client(stage, &dialer).await?;

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
        // Each of the two gets its part; else all may go where nothing is lost.
        let random = json!({"terminatorStrategy": "random"});
        let path = format!("/services/{service}");
        let changed = stage.ziti.management.patch(&path, &random).await;
        changed.context("spreading requests over both hosts")?;
        let spread = Tally::of(stage)?.until_well(stage).await?;
        stage::say(&format!("two nodes with a host each: {spread}"));
        let running = pods(stage, &["edge-0", "entry-0"]).await?;
        let stays = witness::<Pod>(stage.api(), "", |pods| {
            let stays = pods.get("edge-0").context("pod edge-0 is gone")?;
            ensure!(is_ready(stays), "pod edge-0 is not ready");
            Ok(())
        })
        .await?;

        let before = Tally::of(stage)?;
        node.lose().await?;
        node.until_not_ready(PATIENCE).await?;
        let lost = before.until_well(stage).await?;
        stage::say(&format!("a node with one of two hosts is lost: {lost}"));

        node.start().await?;
        stage.until_online("edge", 2).await?;
        until_hosted_by(stage, &service, 2).await?;
        let back = Tally::of(stage)?.until_well(stage).await?;
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

/// A pod that sends a request after another and writes a line for each.
async fn client(stage: &Stage, dialer: &str) -> Result<()> {
    let script = format!(
        "while true; do \
         if printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {dialer} {PROXY_PORT} | grep -q '{ANSWER}'; \
         then echo good; else echo failed; fi; sleep 0.2; done"
    );
    let container = json!({"name": CLIENT, "image": "docker.io/ziti-testbed/busybox:1",
        "command": ["sh", "-c", script]});
    stage
        .apply(data_path::pod(CLIENT, container, &json!([])))
        .await?;
    stage.address(CLIENT).await?;
    Ok(())
}

/// Waits until so many routers host the service.
async fn until_hosted_by(stage: &Stage, service: &str, hosts: usize) -> Result<()> {
    let what = format!("{hosts} routers to host the service");
    kubernetes::poll(&what, PATIENCE, async || {
        let path = format!("/services/{service}/terminators");
        let terminators = stage.ziti.management.get(&path, &[]).await;
        let terminators = terminators.context("listing terminators")?;
        let mut routers: Vec<&str> = terminators
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|terminator| terminator["routerId"].as_str())
            .collect();
        routers.sort_unstable();
        routers.dedup();
        Ok((routers.len() == hosts).then_some(()))
    })
    .await
}

/// The client's answers up to a moment.
struct Tally {
    answers: usize,
}

impl Tally {
    fn of(stage: &Stage) -> Result<Self> {
        let answers = answers(stage)?.len();
        Ok(Self { answers })
    }

    /// Waits until requests succeed again, and tells how it went since.
    async fn until_well(&self, stage: &Stage) -> Result<String> {
        kubernetes::poll("requests to succeed again", PATIENCE, async || {
            let all = answers(stage)?;
            let since = all.get(self.answers..).unwrap_or_default();
            let well = since.iter().rev().take_while(|good| **good).count();
            let failed = since.iter().filter(|good| !**good).count();
            Ok((well >= IN_A_ROW).then(|| {
                let first = since.iter().position(|good| !good);
                let last = since.iter().rposition(|good| !good);
                let apart = first.zip(last).map_or(0, |(first, last)| last - first);
                format!(
                    "{failed} of {} requests failed, the last {apart} requests after the first",
                    since.len()
                )
            }))
        })
        .await
    }
}

/// For each request so far, whether it was answered well.
fn answers(stage: &Stage) -> Result<Vec<bool>> {
    let log = stage.kubectl(&["logs", CLIENT])?;
    Ok(log.lines().map(|line| line == "good").collect())
}
