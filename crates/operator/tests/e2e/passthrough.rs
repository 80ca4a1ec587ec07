//! Routers behind a proxy that hands TLS through by name, which is given what the operator's
//! Ingresses say and nothing else.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use serde_json::json;

use crate::data_path::{ANSWER, PROXY_PORT, dialer_that_knows, get, host_service, serve};
use crate::stage::{self, Stage};

/// The class of the test's own Ingresses.
const CLASS: &str = "e2e-passthrough";
/// Under which names the router is advertised: to clients, and to other routers.
const EDGE: &str = "edge-0.edge.example.com";
const LINK: &str = "edge-0.link.example.com";

/// A client enters at a router by the name that its Ingress has, at port 443, and another router,
/// which nobody can dial, has a link to it by the other name. A request goes both ways.
#[test]
fn clients_and_routers_reach_a_router_through_its_ingresses() {
    stage::play("passthrough", async |stage| {
        stage.join_network().await?;
        let exposed = json!({"type": "Ingress", "ingressClassName": CLASS});
        let edge = json!({
            "replicas": 1,
            "edge": {"expose": exposed, "advertise": {"host": "{member}.edge.example.com"}},
            "link": {"expose": exposed, "advertise": {"host": "{member}.link.example.com"}},
        });
        stage.create_set("edge", edge).await?;
        let server = serve(stage).await?;
        stage.until_online("edge", 1).await?;
        let routes = routes(stage).await?;
        let names: Vec<&str> = routes.keys().map(String::as_str).collect();
        ensure!(names == [EDGE, LINK], "the Ingresses are for {names:?}");
        let cluster = stage.environment.cluster()?;
        let proxy = cluster.pass_through(&routes).await?.to_string();

        let known = json!([{"ip": proxy, "hostnames": [EDGE, LINK]}]);
        let host = json!({
            "replicas": 1,
            "tunnel": {"mode": "host"},
            "link": {"expose": {"type": "None"}},
            "pod": {"hostAliases": known},
        });
        stage.create_set("host", host).await?;
        stage.until_online("host", 1).await?;
        let ids = stage.ziti.ids(&["edge-0", "host-0"]).await?;
        let service = host_service(stage, &server, &ids["host-0"]).await?;
        let dialer = dialer_that_knows(stage, &ids["edge-0"], &service, &known).await?;
        let answer = get(stage, &dialer, PROXY_PORT).await?;
        ensure!(answer == ANSWER, "the answer is {answer:?}");
        Ok(())
    });
}

/// What an Ingress controller makes of the Ingresses of its class: for each host, where it is.
async fn routes(stage: &Stage) -> Result<BTreeMap<String, SocketAddr>> {
    let mut routes = BTreeMap::new();
    for ingress in stage.list::<Ingress>().await? {
        let spec = ingress.spec.context("an Ingress without spec")?;
        ensure!(
            spec.ingress_class_name.as_deref() == Some(CLASS),
            "the Ingress is of class {:?}",
            spec.ingress_class_name
        );
        ensure!(spec.tls.is_none(), "the Ingress ends TLS");
        for rule in spec.rules.into_iter().flatten() {
            let path = rule.http.and_then(|http| http.paths.into_iter().next());
            let service = path.and_then(|path| path.backend.service);
            let service = service.context("a rule without Service")?;
            let port = service.port.and_then(|port| port.name);
            let address = address(stage, &service.name, port.as_deref()).await?;
            routes.insert(rule.host.context("a rule without host")?, address);
        }
    }
    Ok(routes)
}

/// Where a Service has the port of that name.
async fn address(stage: &Stage, service: &str, port: Option<&str>) -> Result<SocketAddr> {
    let spec = stage.get::<Service>(service).await?.spec;
    let spec = spec.with_context(|| format!("Service {service} has no spec"))?;
    let ports = spec.ports.unwrap_or_default();
    let found = ports.iter().find(|have| have.name.as_deref() == port);
    let found = found.with_context(|| format!("Service {service} has no port {port:?}"))?;
    let ip = spec.cluster_ip.context("a Service without address")?;
    Ok(SocketAddr::new(ip.parse()?, u16::try_from(found.port)?))
}
