//! A router that is online is not yet a router that works: traffic must pass.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::ResourceExt;
use serde_json::{Value, json};
use testbed::kubernetes;

use crate::outage::is_ready;
use crate::stage::{self, PATIENCE, Stage};

pub(crate) const WEB_PORT: u16 = 8080;
pub(crate) const PROXY_PORT: u16 = 9090;
/// What the server has to say.
pub(crate) const ANSWER: &str = "carried by two routers";

/// A request enters the network at one member of a set and reaches, over a link, a server behind
/// the other member, which hosts the service itself.
#[test]
fn a_request_is_carried_from_one_member_to_a_service_behind_another() {
    stage::play("traffic", async |stage| {
        stage.join_network().await?;
        stage
            .create_set("edge", json!({"replicas": 2, "tunnel": {"mode": "host"}}))
            .await?;
        let server = serve(stage).await?;
        stage.until_online("edge", 2).await?;
        let ids = stage.ziti.ids(&["edge-0", "edge-1"]).await?;
        let (entry, host) = (&ids["edge-0"], &ids["edge-1"]);

        let service = host_service(stage, &server, host).await?;
        let dialer = dialer(stage, entry, &service).await?;
        let answer = get(stage, &dialer, PROXY_PORT).await?;
        ensure!(answer == ANSWER, "the answer is {answer:?}");
        stage.until_online("edge", 2).await?;
        Ok(())
    });
}

/// Asks this port of the dialer for the server's page until there is an answer: the tunneler
/// listens when it has logged in and knows of the service.
pub(crate) async fn get(stage: &Stage, dialer: &str, port: u16) -> Result<String> {
    get_from(stage, "web", dialer, port).await
}

/// The same from another pod.
pub(crate) async fn get_from(stage: &Stage, pod: &str, dialer: &str, port: u16) -> Result<String> {
    let request = format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 10 {dialer} {port}");
    let mut last = String::new();
    let answer = kubernetes::poll("an answer", PATIENCE, async || {
        let asked = stage.kubectl(&["exec", pod, "--", "sh", "-c", &request]);
        last = asked.unwrap_or_else(|error| format!("{error:#}"));
        let page = last.lines().skip_while(|line| !line.is_empty()).nth(1);
        Ok(page.map(str::to_owned))
    });
    answer
        .await
        .with_context(|| format!("the last time it was {last:?}"))
}

/// A web server in the cluster, outside of the Ziti network; returns its address.
pub(crate) async fn serve(stage: &Stage) -> Result<String> {
    let script = format!(
        "mkdir -p /tmp/www && echo {ANSWER} > /tmp/www/index.html && \
         exec httpd -f -p {WEB_PORT} -h /tmp/www"
    );
    let container = json!({"name": "web", "image": "docker.io/ziti-testbed/busybox:1",
        "command": ["sh", "-c", script],
        "readinessProbe": {"tcpSocket": {"port": WEB_PORT}, "periodSeconds": 1}});
    stage.apply(pod("web", container, &json!([]))).await?;
    stage.address("web").await
}

/// A service that only `host` hosts, forwarded to the server. Returns its id.
pub(crate) async fn host_service(stage: &Stage, server: &str, host: &str) -> Result<String> {
    let ziti = &stage.ziti;
    let types = ziti
        .management
        .get("/config-types", &[("filter", "name=\"host.v1\"")]);
    let types = types.await.context("looking for host.v1")?;
    let host_v1 = types[0]["id"].as_str().context("there is no host.v1")?;
    let config = json!({"name": "web-host", "configTypeId": host_v1,
        "data": {"protocol": "tcp", "address": server, "port": WEB_PORT}});
    let config = ziti.create("/configs", config).await?;
    let service = json!({"name": "web", "configs": [config], "encryptionRequired": true});
    let service = ziti.create("/services", service).await?;
    let service_role = format!("@{service}");
    // First, and then the policy to host it: a router that may host a service which no router may
    // carry asks once, is refused, and does not ask again.
    let everywhere = json!({"name": "web-everywhere", "semantic": "AnyOf",
        "serviceRoles": [service_role], "edgeRouterRoles": ["#all"]});
    ziti.create("/service-edge-router-policies", everywhere)
        .await?;
    ziti.service_policy("Bind", &format!("@{host}"), &service_role)
        .await?;
    kubernetes::poll("the service to be hosted", PATIENCE, async || {
        let path = format!("/services/{service}/terminators");
        let terminators = ziti.management.get(&path, &[]).await;
        let terminators = terminators.context("listing terminators")?;
        let hosts: Vec<&str> = terminators
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|terminator| terminator["routerId"].as_str())
            .collect();
        ensure!(
            hosts.iter().all(|id| *id == host),
            "the service is hosted by {hosts:?}, not by {host}"
        );
        Ok((!hosts.is_empty()).then_some(()))
    })
    .await?;
    Ok(service)
}

/// A tunneler for an identity that may dial the service, and may use the router `entry` only.
/// Returns its pod's address.
pub(crate) async fn dialer(stage: &Stage, entry: &str, service: &str) -> Result<String> {
    dialer_that_knows(stage, entry, service, &json!([])).await
}

/// The same, with names of hosts that no DNS has.
pub(crate) async fn dialer_that_knows(
    stage: &Stage,
    entry: &str,
    service: &str,
    host_aliases: &Value,
) -> Result<String> {
    let ziti = &stage.ziti;
    let identity = json!({"name": "dialer", "type": "Default", "isAdmin": false,
        "enrollment": {"ott": true}});
    let id = ziti.create("/identities", identity).await?;
    let role = format!("@{id}");
    let policy = json!({"name": "dialer-entry", "semantic": "AnyOf",
        "identityRoles": [role], "edgeRouterRoles": [format!("@{entry}")]});
    ziti.create("/edge-router-policies", policy).await?;
    ziti.service_policy("Dial", &role, &format!("@{service}"))
        .await?;
    let path = format!("/identities/{id}/edge-routers");
    let usable = ziti.management.get(&path, &[]).await;
    let usable = usable.context("listing the dialer's routers")?;
    let usable: Vec<&str> = usable
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|router| router["id"].as_str())
        .collect();
    ensure!(usable == [entry], "the dialer may use {usable:?}");

    let known = ziti.management.get(&format!("/identities/{id}"), &[]).await;
    let known = known.context("reading the dialer")?;
    let token = known["enrollment"]["ott"]["jwt"].as_str();
    let token = token.context("the dialer has no token")?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "dialer"},
        "stringData": {"token": token}});
    stage.apply(secret).await?;
    let script = format!(
        "ziti edge enroll --keyAlg EC --jwt /token/token --out /tmp/identity.json && \
         exec ziti tunnel proxy --identity /tmp/identity.json --svcPollRate 1 web:{PROXY_PORT}"
    );
    let container = json!({"name": "dialer", "image": stage.environment.router_image,
        "command": ["sh", "-c", script], "env": [{"name": "HOME", "value": "/tmp"}],
        "volumeMounts": [{"name": "token", "mountPath": "/token"}]});
    let volumes = json!([{"name": "token", "secret": {"secretName": "dialer"}}]);
    let mut dialer = pod("dialer", container, &volumes);
    dialer["spec"]["hostAliases"] = host_aliases.clone();
    stage.apply(dialer).await?;
    stage.address("dialer").await
}

/// A pod that keeps the restricted Pod Security Standard.
pub(crate) fn pod(name: &str, mut container: Value, volumes: &Value) -> Value {
    container["imagePullPolicy"] = json!("IfNotPresent");
    container["securityContext"] = json!({"allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "automountServiceAccountToken": false, "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": true, "runAsUser": 2171, "fsGroup": 2171,
            "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container], "volumes": volumes}})
}

impl Stage {
    /// Waits until a pod is ready and returns its address.
    pub(crate) async fn address(&self, name: &str) -> Result<String> {
        let pod: Pod = self.until(name, "ready", is_ready).await?;
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        address.with_context(|| format!("pod {} has no address", pod.name_any()))
    }

    /// The address of a Kubernetes Service.
    pub(crate) async fn service_address(&self, name: &str) -> Result<String> {
        let service: Service = self.get(name).await?;
        let address = service.spec.and_then(|spec| spec.cluster_ip);
        address.with_context(|| format!("Service {name} has no address"))
    }
}
