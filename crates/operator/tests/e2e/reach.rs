//! Routers that are reached otherwise than by their Service within the cluster, with real
//! connections; and a set that runs while what it advertises changes.

use anyhow::{Context, Result, ensure};
use api::ZitiRouter;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use crate::data_path::{ANSWER, PROXY_PORT, dialer, get, host_service, serve};
use crate::scaling::pods;
use crate::stage::{self, Stage};

/// A set that runs is exposed by node ports: each member gets a certificate with the new name, none
/// is stranded or registered anew, and traffic enters and crosses by the new addresses.
#[test]
fn a_running_set_is_exposed_by_node_ports_and_carries_traffic() {
    stage::play("node-port", async |stage| {
        let members = ["edge-0", "edge-1"];
        stage.join_network().await?;
        stage
            .create_set("edge", json!({"replicas": 2, "tunnel": {"mode": "host"}}))
            .await?;
        stage.until_online("edge", 2).await?;
        let ids = stage.ziti.ids(&members).await?;
        let before = pods(stage, &members).await?;

        let address = node_address(stage).await?;
        // One with a name for each member beside it: what differs by member has a file of its own.
        let exposed = json!({"type": "NodePort"});
        let patch = json!({"spec": {
            "edge": {"expose": exposed, "advertise": {"host": address}},
            "link": {"expose": exposed, "advertise": {"host": address}},
        }});
        stage.patch::<ZitiRouter>("edge", patch).await?;
        stage.until_online("edge", 2).await?;
        ensure!(
            stage.ziti.ids(&members).await? == ids,
            "a router has another id"
        );
        for (old, new) in before.iter().zip(pods(stage, &members).await?) {
            ensure!(old.0 != new.0, "a pod was not replaced");
        }
        for id in ids.values() {
            advertises(stage, id, &address).await?;
        }

        let server = serve(stage).await?;
        let service = host_service(stage, &server, &ids["edge-1"]).await?;
        let dialer = dialer(stage, &ids["edge-0"], &service).await?;
        let answer = get(stage, &dialer, PROXY_PORT).await?;
        ensure!(answer == ANSWER, "the answer is {answer:?}");
        Ok(())
    });
}

/// A router on a port of its node, advertised by the node's address, which only its pod knows.
#[test]
fn a_router_is_reached_by_a_port_of_its_node() {
    stage::play("host-port", async |stage| {
        stage.allow_privileged().await?;
        stage.join_network().await?;
        let spec = json!({
            "replicas": 1,
            "tunnel": {"mode": "host"},
            "edge": {"expose": {"type": "HostPort", "hostPort": 13022}},
            "link": {"expose": {"type": "None"}},
        });
        stage.create_set("edge", spec).await?;
        stage.until_online("edge", 1).await?;
        let ids = stage.ziti.ids(&["edge-0"]).await?;
        let id = &ids["edge-0"];
        advertises(stage, id, &format!("{}:13022", node_address(stage).await?)).await?;

        let server = serve(stage).await?;
        let service = host_service(stage, &server, id).await?;
        let dialer = dialer(stage, id, &service).await?;
        let answer = get(stage, &dialer, PROXY_PORT).await?;
        ensure!(answer == ANSWER, "the answer is {answer:?}");
        Ok(())
    });
}

/// Where clients are told to dial a router.
async fn advertises(stage: &Stage, id: &str, expected: &str) -> Result<()> {
    let path = format!("/edge-routers/{id}");
    let router = stage.ziti.management.get(&path, &[]).await;
    let router = router.context("reading a router")?;
    let protocols = &router["supportedProtocols"];
    ensure!(
        protocols["tls"]
            .as_str()
            .is_some_and(|url| url.contains(expected)),
        "{id} is to be dialled at {protocols}, and {expected} was expected"
    );
    Ok(())
}

/// The address of the cluster's first node.
async fn node_address(stage: &Stage) -> Result<String> {
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let nodes = nodes.list(&ListParams::default()).await;
    let nodes = nodes.context("listing the nodes")?;
    let addresses = nodes.items.iter().flat_map(|node| {
        let status = node.status.as_ref();
        status
            .and_then(|status| status.addresses.clone())
            .into_iter()
            .flatten()
    });
    let mut internal = addresses.filter(|address| address.type_ == "InternalIP");
    internal
        .next()
        .map(|address| address.address)
        .context("no node has an address")
}
