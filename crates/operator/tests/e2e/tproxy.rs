//! Traffic enters a Ziti network through a router in mode `tproxy`: by the address of the service.

use anyhow::ensure;
use serde_json::json;

use crate::data_path::{ANSWER, get_from, host_service, serve};
use crate::own_node::OWNER;
use crate::stage;

/// The address at which the service is intercepted; nobody has it.
const INTERCEPTED: &str = "198.51.100.7";

/// The node that all tests share.
const NODE: &str = "node0";

/// A request from the pod's own network to an address that nobody has reaches a server behind
/// another set. The pod's resolver is the router, with no right beyond NET_ADMIN.
#[test]
fn a_request_to_an_intercepted_address_reaches_a_service_of_another_set() {
    stage::play("tproxy", async |stage| {
        stage.join_network().await?;
        stage.allow_privileged().await?;
        let host = json!({"replicas": 1, "tunnel": {"mode": "host"}});
        stage.create_set("host", host).await?;
        let server = serve(stage).await?;
        stage.until_online("host", 1).await?;
        let ids = stage.ziti.ids(&["host-0"]).await?;
        let service = host_service(stage, &server, &ids["host-0"]).await?;
        stage
            .ziti
            .intercept(&service, json!([INTERCEPTED, "web.ziti.test"]), 80)
            .await?;

        // One for each node, but for those that other tests have for themselves.
        let shared = json!([{"key": OWNER, "operator": "DoesNotExist"}]);
        let gate = json!({
            "tunnel": {"mode": "tproxy"},
            "nodes": {"selector": {"matchExpressions": shared}},
        });
        stage.create_set("gate", gate).await?;
        stage.until_online("gate", 1).await?;
        let member = format!("gate-{NODE}");
        let pod = format!("{member}-0");
        let ids = stage.ziti.ids(&[&member, "host-0"]).await?;
        let (identity, service) = (format!("@{}", ids[&member]), format!("@{service}"));
        stage
            .ziti
            .service_policy("Dial", &identity, &service)
            .await?;
        let answer = get_from(stage, &pod, INTERCEPTED, 80).await?;
        ensure!(answer == ANSWER, "the answer is {answer:?}");
        let log = stage.kubectl(&["logs", &pod, "-c", "router"])?;
        ensure!(
            !log.contains("system resolver test failed"),
            "the router is not its pod's resolver:\n{log}"
        );
        stage.until_online("gate", 1).await?;
        Ok(())
    });
}
