//! A dark cluster: its API server is reached by no route but the overlay. Two routers there host it, a
//! router at the hub offers it as a Service, and the hub works through that.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::{EdgeRouter, ZitiCluster, ZitiRouter, names};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testbed::cluster::Passage;
use testbed::progress::seconds;
use testbed::{kubernetes, operator_install};

use crate::far::{self, Far, of_set, until_reached};
use crate::objects::truth;
use crate::requests::until_hosted_by;
use crate::scaling::lives;
use crate::stage::{PATIENCE, Stage, say};
use crate::ways;

/// The ZitiCluster.
const DARK: &str = "dark";
/// The Service at the hub that leads to the other cluster's API server.
const SERVICE: &str = "dark-api";
/// One of the names in the certificate of every Kubernetes API server.
const SERVER_NAME: &str = "kubernetes.default.svc";
/// For how long requests are sent after a host was lost.
const OBSERVED: Duration = Duration::from_secs(20);

/// Routers are deployed to a cluster that is reached through Ziti alone, and scaled from the hub, also
/// after one of the two routers that carry this was lost.
#[test]
fn a_dark_cluster_is_worked_in_through_ziti() {
    far::play("through-ziti", async |stage, far| {
        stage.join_network().await?;
        far.set(Passage::Outward)?;
        bootstrap(stage, far).await?;
        let begun = Begun::read(stage, far).await?;
        let service = host_api(stage, far).await?;
        offer_api(stage, &service).await?;
        let clock = Instant::now();
        let address = address(stage);
        let more = ["--server", &address, "--tls-server-name", SERVER_NAME];
        far.hand_over(stage, DARK, &more).await?;
        say(&format!(
            "reached through Ziti: after {}",
            seconds(clock.elapsed())
        ));

        stage.until_online("host", 2).await?;
        begun.expect_untouched(stage, far).await?;

        let clock = Instant::now();
        let there = json!({"replicas": 1, "clusterRef": {"name": DARK}});
        stage.create_set("edge", there).await?;
        stage.until_online("edge", 1).await?;
        say(&format!(
            "from apply to the first router online there: {}",
            seconds(clock.elapsed())
        ));
        scale(stage, 2).await?;
        let through = client(stage, far).await?;
        ways::compare(&far.client, &through, far.namespace).await?;

        lose_a_host(stage, far, &through).await?;
        until_reached(stage, DARK).await?;
        scale(stage, 3).await?;
        scale(stage, 1).await?;

        stage
            .delete::<ZitiRouter>("edge", &DeleteParams::background())
            .await?;
        stage.until_gone::<ZitiRouter>("edge").await?;
        let left = far.kubectl(&[
            "get",
            "all,secrets,configmaps,persistentvolumeclaims",
            "-l",
            &of_set("edge"),
            "--output",
            "name",
        ])?;
        ensure!(left.is_empty(), "left there: {left}");
        abandon(stage, far).await
    });
}

/// The API server of the dark cluster, at the hub.
fn address(stage: &Stage) -> String {
    format!("https://{SERVICE}.{}.svc:443", stage.namespace)
}

/// The hub cannot begin there. What it would apply is printed at the hub and applied by somebody who
/// has access there, so that two routers begin.
async fn bootstrap(stage: &Stage, far: &Far) -> Result<()> {
    let credential = json!({"token": {"name": format!("{DARK}-credential")}});
    let spec = json!({"server": address(stage), "tlsServerName": SERVER_NAME,
        "namespace": far.namespace, "credential": credential});
    let spec = serde_json::from_value(spec).context("reading a ZitiCluster")?;
    stage.create(&ZitiCluster::new(DARK, spec)).await?;
    let hosts = json!({"replicas": 2, "tunnel": {"mode": "host"}, "clusterRef": {"name": DARK}});
    stage.create_set("host", hosts).await?;
    let command = [
        "exec",
        "--namespace",
        operator_install::RELEASE,
        "deploy/ziti-operator",
        "--",
        "ziti-operator",
        "bootstrap",
        "--namespace",
        &stage.namespace,
        "host",
    ];
    let mut last = None;
    let printed = kubernetes::poll("what to begin with", PATIENCE, async || {
        match stage.kubectl(&command) {
            Ok(printed) => Ok(Some(printed)),
            Err(error) => {
                last = Some(error);
                Ok(None)
            }
        }
    });
    let printed = printed.await.with_context(|| format!("{last:?}"))?;
    far.apply(&printed)?;
    stage.ziti.until_online(&["host-0", "host-1"]).await
}

/// The routers that somebody began, and what must not change when the hub owns them.
struct Begun {
    pods: Vec<(String, i32)>,
    /// Id and certificate of each.
    routers: Vec<(String, Option<String>)>,
}

impl Begun {
    async fn read(stage: &Stage, far: &Far) -> Result<Self> {
        let all = stage.ziti.routers().await?;
        let hosts = all
            .into_iter()
            .filter(|(name, _)| name.starts_with("host-"));
        Ok(Self {
            pods: lives(&far.api(), &["host-0", "host-1"]).await?,
            routers: hosts
                .map(|(_, router)| (router.id, router.fingerprint))
                .collect(),
        })
    }

    /// Fails where a pod was replaced, or a router has enrolled anew.
    async fn expect_untouched(&self, stage: &Stage, far: &Far) -> Result<()> {
        let now = Self::read(stage, far).await?;
        ensure!(now.pods == self.pods, "a pod was replaced or restarted");
        ensure!(now.routers == self.routers, "a router has enrolled anew");
        Ok(())
    }
}

/// The service by which the API server is reached, hosted by both routers there. Returns its id.
async fn host_api(stage: &Stage, far: &Far) -> Result<String> {
    let ziti = &stage.ziti;
    let services: Api<Service> = Api::namespaced(far.client.clone(), "default");
    let api = services.get("kubernetes").await;
    let spec = api.context("reading the Service of the API server")?.spec;
    let address = spec
        .and_then(|spec| spec.cluster_ip)
        .context("it has no address")?;
    let filter = [("filter", "name=\"host.v1\"")];
    let types = ziti.management.get("/config-types", &filter).await;
    let types = types.context("looking for host.v1")?;
    let host_v1 = types[0]["id"].as_str().context("there is no host.v1")?;
    // A host that does not reach the API server is not to be sent anybody.
    let check = json!({"address": format!("{address}:443"), "interval": "2s", "timeout": "1s",
    "actions": [
        {"trigger": "fail", "consecutiveEvents": 2, "action": "mark unhealthy"},
        {"trigger": "pass", "consecutiveEvents": 1, "action": "mark healthy"},
    ]});
    let config = json!({"name": "dark-api-host", "configTypeId": host_v1, "data": {
        "protocol": "tcp", "address": address, "port": 443, "portChecks": [check]}});
    let config = ziti.create("/configs", config).await?;
    let service = json!({"name": "dark-api", "configs": [config], "encryptionRequired": true});
    let service = ziti.create("/services", service).await?;
    let role = format!("@{service}");
    let everywhere = json!({"name": "dark-api", "semantic": "AnyOf",
        "serviceRoles": [role], "edgeRouterRoles": ["#all"]});
    ziti.create("/service-edge-router-policies", everywhere)
        .await?;
    for id in ziti.ids(&["host-0", "host-1"]).await?.values() {
        ziti.service_policy("Bind", &format!("@{id}"), &role)
            .await?;
    }
    until_hosted_by(stage, &service, 2).await?;
    Ok(service)
}

/// A router at the hub that offers the service as a Kubernetes Service, to the operator alone.
async fn offer_api(stage: &Stage, service: &str) -> Result<()> {
    let offered = json!([{"service": "dark-api", "port": 6443,
        "kubernetesService": {"name": SERVICE, "port": 443}}]);
    let operator = json!({"kubernetes.io/metadata.name": operator_install::RELEASE});
    let hub = json!({"replicas": 1,
        "tunnel": {"mode": "proxy", "proxy": {"services": offered}},
        "networkPolicy": {"proxyFrom": [{"namespaceSelector": {"matchLabels": operator}}]}});
    stage.create_set("hub", hub).await?;
    stage.until_online("hub", 1).await?;
    let ids = stage.ziti.ids(&["host-0", "host-1", "hub-0"]).await?;
    let (identity, service) = (format!("@{}", ids["hub-0"]), format!("@{service}"));
    stage.ziti.service_policy("Dial", &identity, &service).await
}

/// A client with all rights, through Ziti.
async fn client(stage: &Stage, far: &Far) -> Result<Client> {
    let server = format!("https://{}:443", stage.service_address(SERVICE).await?);
    kubernetes::client_by_way(&far.cluster().kubeconfig(), &server, SERVER_NAME).await
}

/// Scales the set there, and says how long it took.
async fn scale(stage: &Stage, replicas: i32) -> Result<()> {
    let begun = Instant::now();
    stage.scale("edge", replicas).await?;
    stage.until_online("edge", replicas).await?;
    let took = seconds(begun.elapsed());
    say(&format!("scaled to {replicas} through Ziti: in {took}"));
    Ok(())
}

/// One of the two hosts is lost without a word. Says how requests through Ziti do from then on.
async fn lose_a_host(stage: &Stage, far: &Far, through: &Client) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(through.clone(), far.namespace);
    let at_once = DeleteParams::default().grace_period(0);
    let deleted = far.api::<Pod>().delete("host-0", &at_once).await;
    deleted.context("deleting the pod of a host")?;
    let begun = Instant::now();
    let (mut good, mut failed, mut longest) = (0, 0, Duration::ZERO);
    kubernetes::poll("the time to pass", OBSERVED + PATIENCE, async || {
        let asked = Instant::now();
        let limit = ListParams::default().limit(1);
        match tokio::time::timeout(Duration::from_secs(5), api.list(&limit)).await {
            Ok(Ok(_)) => good += 1,
            _ => failed += 1,
        }
        longest = longest.max(asked.elapsed());
        Ok((begun.elapsed() >= OBSERVED).then_some(()))
    })
    .await?;
    say(&format!(
        "one of two hosts is lost: {failed} of {} requests failed, the slowest took {}",
        good + failed,
        seconds(longest)
    ));
    ensure!(good > failed, "requests go on failing");
    stage.until_online("host", 2).await?;
    Ok(())
}

/// The routers that carry the way cannot be taken away by this way. They are given up, as for a
/// cluster that will never come back, and what stays behind is said.
async fn abandon(stage: &Stage, far: &Far) -> Result<()> {
    far.set(Passage::Closed)?;
    stage
        .until(DARK, "away", |cluster: &ZitiCluster| {
            let status = cluster.status.as_ref();
            status.is_some_and(|status| truth(&status.conditions, "Ready") == Some("False"))
        })
        .await?;
    stage
        .delete::<ZitiRouter>("host", &DeleteParams::background())
        .await?;
    let confirm = json!({"metadata": {"annotations": {names::ANNOTATION_CONFIRM_ABANDON: DARK}}});
    stage.patch::<ZitiCluster>(DARK, confirm).await?;
    stage.until_gone::<ZitiRouter>("host").await?;
    stage
        .delete::<ZitiCluster>(DARK, &DeleteParams::background())
        .await?;
    stage.until_gone::<ZitiCluster>(DARK).await?;
    let routers = stage.list::<EdgeRouter>().await?;
    let routers: Vec<String> = routers.iter().map(ResourceExt::name_any).collect();
    ensure!(
        routers == ["hub-0"],
        "there are the EdgeRouters {routers:?}"
    );
    stage.ziti.until_online(&["hub-0"]).await?;
    let left = far.things()?;
    ensure!(
        left.iter().any(|thing| thing == "statefulset.apps/host"),
        "what runs there was touched: {left:?}"
    );
    Ok(())
}
