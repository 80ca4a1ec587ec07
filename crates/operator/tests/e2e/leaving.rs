//! When a pod is ready, and how it leaves: what its sidecar does, on the real cluster.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;
use testbed::kubernetes;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::data_path::{self, ANSWER, PROXY_PORT};
use crate::outage::is_ready;
use crate::stage::{self, PATIENCE, Stage};
use crate::watch::witness;

/// How long a pod is watched that may not become ready.
const WATCHED: Duration = Duration::from_secs(10);

/// A router that restarts while no controller can be reached is not ready, and is when it is online
/// again; one that goes on running is not touched.
#[test]
fn a_pod_is_ready_when_its_router_was_online_in_this_life() {
    stage::play("ready", async |stage| {
        stage.set_online("edge", 2).await?;
        stage.ziti.controller.stop().await?;
        let other = witness::<Pod>(stage.api(), "", |pods| {
            let other = pods.get("edge-1").context("pod edge-1 is gone")?;
            ensure!(is_ready(other), "pod edge-1 is not ready");
            Ok(())
        })
        .await?;

        stage.kubectl(&["exec", "edge-0", "-c", "router", "--", "sh", "-c", "kill 1"])?;
        let restarted = |pod: &Pod| restarts(pod) > 0 && !is_ready(pod);
        stage.until("edge-0", "restarted", restarted).await?;
        let not_ready = witness::<Pod>(stage.api(), "", |pods| {
            let restarted = pods.get("edge-0").context("pod edge-0 is gone")?;
            ensure!(!is_ready(restarted), "pod edge-0 is ready");
            Ok(())
        })
        .await?;
        not_ready.end_after(WATCHED).await?;

        stage.ziti.start().await?;
        stage.until("edge-0", "ready again", is_ready).await?;
        other.end().await?;
        stage.until_online("edge", 2).await?;
        Ok(())
    });
}

/// How often the pod's router was started again.
pub(crate) fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| {
        let statuses = status.container_statuses.as_ref()?;
        statuses.iter().find(|status| status.name == "router")
    });
    statuses.map_or(0, |status| status.restart_count)
}

/// A request that runs when the pod of its hosting router is deleted gets its answer, the network
/// leads no new one there meanwhile, and the next pod of that router hosts as before.
#[test]
fn a_pod_that_is_deleted_lets_running_requests_end() {
    stage::play("leaving", async |stage| {
        stage.join_network().await?;
        let spec = json!({"replicas": 2, "tunnel": {"mode": "host"},
            "drain": {"timeoutSeconds": 60}});
        stage.create_set("edge", spec).await?;
        let server = data_path::serve(stage).await?;
        stage.until_online("edge", 2).await?;
        let ids = stage.ziti.ids(&["edge-0", "edge-1"]).await?;
        let (entry, host) = (&ids["edge-0"], &ids["edge-1"]);
        let service = data_path::host_service(stage, &server, host).await?;
        let dialer = data_path::dialer(stage, entry, &service).await?;
        data_path::get(stage, &dialer, data_path::PROXY_PORT).await?;
        expect_precedence(stage, &service, "default").await?;

        let before: Pod = stage.get("edge-1").await?;
        let request = slow_request(stage, &dialer);
        until_served(stage).await?;
        stage
            .delete::<Pod>("edge-1", &DeleteParams::default())
            .await?;
        until_precedence(stage, &service, "failed").await?;
        let answer = request.await.context("waiting for the answer")??;
        ensure!(answer.contains(ANSWER), "the answer is {answer:?}");

        let other = |pod: &Pod| pod.uid() != before.uid() && is_ready(pod);
        stage.until("edge-1", "another, and ready", other).await?;
        stage.until_online("edge", 2).await?;
        // The one that was failed is as good as before, or gone for another that never was failed.
        until_precedence(stage, &service, "default").await?;
        let answer = data_path::get(stage, &dialer, data_path::PROXY_PORT).await?;
        ensure!(answer == ANSWER, "the answer is {answer:?}");
        Ok(())
    });
}

/// Sends a request of which the last line comes late.
fn slow_request(stage: &Stage, dialer: &str) -> JoinHandle<Result<String>> {
    let script = format!(
        "(printf 'GET / HTTP/1.0\\r\\n'; sleep 8; printf '\\r\\n') | nc -w 30 {dialer} {PROXY_PORT}"
    );
    let kubeconfig = stage.environment.kubeconfig.clone();
    let namespace = stage.namespace.clone();
    spawn_blocking(move || {
        kubernetes::kubectl(&kubeconfig, None)?
            .args(["--namespace", &namespace, "exec", "web", "--"])
            .args(["sh", "-c", &script])
            .output()
    })
}

/// Waits until the server has a connection.
async fn until_served(stage: &Stage) -> Result<()> {
    let port = format!(":{:04X} ", data_path::WEB_PORT);
    kubernetes::poll("the slow request to be served", PATIENCE, async || {
        let table = stage.kubectl(&[
            "exec",
            "web",
            "--",
            "cat",
            "/proc/net/tcp",
            "/proc/net/tcp6",
        ]);
        // Local address, remote address, state; 01 is established.
        let served = table?.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let local = words.next().unwrap_or_default();
            format!("{local} ").ends_with(&port) && words.nth(1) == Some("01")
        });
        Ok(served.then_some(()))
    })
    .await
}

/// The precedences of all terminators of the service.
async fn precedences(stage: &Stage, service: &str) -> Result<Vec<String>> {
    let path = format!("/services/{service}/terminators");
    let terminators = stage.ziti.management.get(&path, &[]).await;
    let terminators = terminators.context("listing terminators")?;
    let precedence = |terminator: &serde_json::Value| {
        let precedence = terminator["precedence"].as_str();
        precedence.map(str::to_owned)
    };
    Ok(terminators
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(precedence)
        .collect())
}

async fn expect_precedence(stage: &Stage, service: &str, wanted: &str) -> Result<()> {
    let have = precedences(stage, service).await?;
    ensure!(
        !have.is_empty() && have.iter().all(|have| have == wanted),
        "the terminators are {have:?}, not {wanted}"
    );
    Ok(())
}

async fn until_precedence(stage: &Stage, service: &str, wanted: &str) -> Result<()> {
    let what = format!("all terminators to be {wanted}");
    kubernetes::poll(&what, PATIENCE, async || {
        let have = precedences(stage, service).await?;
        let so = !have.is_empty() && have.iter().all(|have| have == wanted);
        Ok(so.then_some(()))
    })
    .await
}
