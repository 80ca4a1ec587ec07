//! Mode `tproxy` on the network of the node: the node itself is the client, by name; and what a
//! killed router leaves on it is taken away. It has a node of its own, since such a router changes
//! the network of all that run there.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};
use api::ZitiRouter;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use testbed::cluster::FurtherNode;
use testbed::kubernetes;

use crate::data_path::ANSWER;
use crate::leaving::restarts;
use crate::outage::is_ready;
use crate::own_node::{self, OWNER};
use crate::requests::{self, Requests};
use crate::stage::{self, PATIENCE, Stage};
use crate::traffic_while_rolling::{hosted_twice, roll, shrink};

/// Where the service is intercepted: a name, which the router resolves, and an address that nobody
/// has.
const NAME: &str = "web.ziti.test";
const ADDRESS: &str = "198.51.100.7";
/// Where the router answers for names.
const RESOLVER: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A name that only Ziti knows is answered on the node; requests to it flow while the routers that
/// host the service are rolled, and while one of them is taken away; a router that is killed comes
/// back to a clean node; and one that ends leaves a clean one.
#[test]
fn a_node_dials_by_name_and_a_killed_router_leaves_it_clean() {
    stage::play("node-tproxy", async |stage| {
        stage.join_network().await?;
        stage.allow_privileged().await?;
        let service = hosted_twice(stage).await?;
        let addresses = json!([NAME, ADDRESS]);
        stage.ziti.intercept(&service, addresses, 80).await?;
        let node = own_node::add(stage).await?;
        let pod = gate(stage, &node, &service).await?;
        let address = resolved(&node).await?;
        ask(&node, NAME).await?;
        ask(&node, ADDRESS).await?;

        stage.pods_only_on(Some(&node.name())).await?;
        let mut client = requests::client(&format!("nc -w 5 {address} 80"));
        client["spec"]["hostNetwork"] = json!(true);
        let requests = Requests::begin(stage, client).await?;
        stage.pods_only_on(None).await?;
        let rolled = roll(stage, "host", &requests).await?;
        stage::say(&format!("set host is rolled: {rolled}"));
        ensure!(rolled.failed == 0, "while set host was rolled: {rolled}");
        let shrunk = shrink(stage, &service, &requests).await?;
        stage::say(&format!("set host shrinks: {shrunk}"));
        ensure!(shrunk.failed == 0, "while set host shrank: {shrunk}");
        requests.end().await?;

        ensure!(intercepts(&node)? == 1, "{}", rules(&node)?);
        ensure!(node.kill_in_pods("ziti")? == 1, "more than one router ran");
        let again = |pod: &Pod| restarts(pod) == 1 && is_ready(pod);
        stage.until(&pod, "started again", again).await?;
        ask(&node, NAME).await?;
        ask(&node, ADDRESS).await?;
        // Of its first life there is nothing left.
        ensure!(intercepts(&node)? == 1, "{}", rules(&node)?);

        stage.patch::<ZitiRouter>("gate", nowhere()).await?;
        stage.until_online("gate", 0).await?;
        let left = rules(&node)?;
        ensure!(!left.contains("NF-INTERCEPT"), "on the node are {left}");
        ensure!(!left.contains(ADDRESS), "on the node are {left}");
        ensure!(!left.contains("100.64.0.1"), "on the node are {left}");
        node.remove().await
    });
}

/// A router in mode `tproxy` on the network of that node, which may dial the service. Returns the
/// name of its pod.
async fn gate(stage: &Stage, node: &FurtherNode, service: &str) -> Result<String> {
    let own = json!({OWNER: stage.namespace});
    let gate = json!({
        "tunnel": {"mode": "tproxy", "tproxy": {"hostNetwork": true}},
        "nodes": {"selector": {"matchLabels": own}},
    });
    stage.create_set("gate", gate).await?;
    stage.until_online("gate", 1).await?;
    let member = format!("gate-{}", node.name());
    let ids = stage.ziti.ids(&[&member, "host-0", "host-1"]).await?;
    let (identity, role) = (format!("@{}", ids[&member]), format!("@{service}"));
    stage.ziti.service_policy("Dial", &identity, &role).await?;
    Ok(format!("{member}-0"))
}

/// No node is left for a member.
fn nowhere() -> serde_json::Value {
    json!({"spec": {"nodes": {"selector": {"matchLabels": {OWNER: "nobody"}}}}})
}

/// Waits until the node resolves the name, and returns its address.
async fn resolved(node: &FurtherNode) -> Result<String> {
    kubernetes::poll(
        "the name to be resolved on the node",
        PATIENCE,
        async || {
            let found = node.shell(RESOLVER, &format!("getent ahostsv4 {NAME}"))?;
            let found = found.output().unwrap_or_default();
            Ok(found.split_whitespace().next().map(str::to_owned))
        },
    )
    .await
}

/// Asks, from the node, a host for the server's page until there is an answer.
async fn ask(node: &FurtherNode, host: &str) -> Result<()> {
    let request = format!(
        "exec 3<>/dev/tcp/{host}/80 && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && timeout 5 cat <&3"
    );
    let mut last = String::new();
    let answered = kubernetes::poll("an answer", PATIENCE, async || {
        let asked = node.shell(RESOLVER, &request)?.output();
        last = asked.unwrap_or_else(|error| format!("{error:#}"));
        Ok(last.contains(ANSWER).then_some(()))
    });
    answered
        .await
        .with_context(|| format!("asking {host} the last time it was {last:?}"))
}

/// All that routers may have left in the node's network.
fn rules(node: &FurtherNode) -> Result<String> {
    let script = "iptables -t mangle -S; iptables -t filter -S; ip address show dev lo";
    node.shell(RESOLVER, script)?.output()
}

/// How many rules intercept the address.
fn intercepts(node: &FurtherNode) -> Result<usize> {
    let rules = rules(node)?;
    let of_address = |rule: &&str| rule.contains(ADDRESS) && rule.contains("TPROXY");
    Ok(rules.lines().filter(of_address).count())
}
