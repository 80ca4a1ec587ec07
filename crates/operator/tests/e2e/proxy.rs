//! Traffic enters a Ziti network through routers in mode `proxy`: at a Kubernetes Service.

use anyhow::{Result, ensure};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::json;

use crate::data_path::{ANSWER, get, host_service, serve};
use crate::stage::{self, Stage};

/// A server is hosted by one set and dialled at the Kubernetes Service of another; both of its
/// members answer there.
#[test]
fn a_service_hosted_by_one_set_is_reached_at_a_kubernetes_service_of_another() {
    stage::play("proxy", async |stage| {
        stage.join_network().await?;
        let host = json!({"replicas": 1, "tunnel": {"mode": "host"}});
        stage.create_set("host", host).await?;
        let server = serve(stage).await?;
        stage.until_online("host", 1).await?;
        let ids = stage.ziti.ids(&["host-0"]).await?;
        // Before a router offers it: a connection to a port whose service is not there ends the
        // controller.
        let service = host_service(stage, &server, &ids["host-0"]).await?;

        let offered = json!([{"service": "web", "port": 9090,
            "kubernetesService": {"name": "web-by-ziti", "port": 80}}]);
        let tunnel = json!({"mode": "proxy", "proxy": {"services": offered}});
        stage
            .create_set("entry", json!({"replicas": 2, "tunnel": tunnel}))
            .await?;
        stage.until_online("entry", 2).await?;
        let ids = stage.ziti.ids(&["entry-0", "entry-1", "host-0"]).await?;
        for entry in ["entry-0", "entry-1"] {
            let (identity, service) = (format!("@{}", ids[entry]), format!("@{service}"));
            stage
                .ziti
                .service_policy("Dial", &identity, &service)
                .await?;
        }
        stage.get::<NetworkPolicy>("entry").await?;
        for address in addresses(stage).await? {
            let answer = get(stage, &address.0, address.1).await?;
            ensure!(answer == ANSWER, "the answer is {answer:?}");
        }
        // A request that was carried must not have ended anything.
        stage.until_online("entry", 2).await?;
        stage.until_online("host", 1).await?;
        Ok(())
    });
}

/// Where the service is reached: at each member, and at the Kubernetes Service in front of them.
async fn addresses(stage: &Stage) -> Result<Vec<(String, u16)>> {
    let mut addresses = Vec::new();
    for member in ["entry-0", "entry-1"] {
        addresses.push((stage.address(member).await?, 9090));
    }
    addresses.push((stage.service_address("web-by-ziti").await?, 80));
    Ok(addresses)
}
