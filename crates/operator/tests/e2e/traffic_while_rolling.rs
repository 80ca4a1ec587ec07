//! Traffic while the routers that it passes are replaced and taken away on purpose.

use anyhow::{Result, ensure};
use api::ZitiRouter;
use serde_json::json;

use crate::data_path::{get, host_service, serve};
use crate::requests::{self, Requests, Tally, until_hosted_by};
use crate::scaling::pods;
use crate::stage::{self, Stage};

/// Requests enter at a Kubernetes Service in front of two routers in mode `proxy` and are led at
/// random to the two members of another set. Both sets are rolled to a new configuration, and the
/// hosting one loses a member: all requests are answered.
#[test]
fn no_request_fails_while_both_sets_are_rolled_and_one_shrinks() {
    stage::play("rolling", async |stage| {
        stage.join_network().await?;
        let service = hosted_twice(stage).await?;
        let entry = entry(stage, &service, &["host-0", "host-1"]).await?;
        get(stage, &entry, 80).await?;
        let client = requests::client(&format!("nc -w 5 {entry} 80"));
        let requests = Requests::begin(stage, client).await?;

        for set in ["host", "entry"] {
            let rolled = roll(stage, set, &requests).await?;
            stage::say(&format!("set {set} is rolled: {rolled}"));
            ensure!(rolled.failed == 0, "while set {set} was rolled: {rolled}");
        }

        let shrunk = shrink(stage, &service, &requests).await?;
        stage::say(&format!("set host shrinks: {shrunk}"));
        ensure!(shrunk.failed == 0, "while set host shrank: {shrunk}");
        Ok(())
    });
}

/// Gives the two members of a set a new configuration while requests flow.
pub(crate) async fn roll(stage: &Stage, set: &str, requests: &Requests<'_>) -> Result<Tally> {
    let members = [format!("{set}-0"), format!("{set}-1")];
    let members = members.each_ref().map(String::as_str);
    let running = pods(stage, &members).await?;
    let before = requests.mark().await?;
    let changed = json!({"spec": {"metrics": {"reportInterval": "20s"}}});
    stage.patch::<ZitiRouter>(set, changed).await?;
    stage.until_online(set, 2).await?;
    let tally = requests.until_well(&before).await?;
    for (old, new) in running.iter().zip(pods(stage, &members).await?) {
        ensure!(old.0 != new.0, "a pod of set {set} was not replaced");
    }
    Ok(tally)
}

/// Takes the second member of the set `host` away while requests flow.
pub(crate) async fn shrink(stage: &Stage, service: &str, requests: &Requests<'_>) -> Result<Tally> {
    until_hosted_by(stage, service, 2).await?;
    let before = requests.mark().await?;
    stage.scale("host", 1).await?;
    stage.until_online("host", 1).await?;
    until_hosted_by(stage, service, 1).await?;
    requests.until_well(&before).await
}

/// A service that both members of the set `host` host; returns its id.
pub(crate) async fn hosted_twice(stage: &Stage) -> Result<String> {
    let hosting = json!({"replicas": 2, "tunnel": {"mode": "host"}});
    stage.create_set("host", hosting).await?;
    let server = serve(stage).await?;
    stage.until_online("host", 2).await?;
    let ids = stage.ziti.ids(&["host-0", "host-1"]).await?;
    let service = host_service(stage, &server, &ids["host-0"]).await?;
    let (other, role) = (format!("@{}", ids["host-1"]), format!("@{service}"));
    stage.ziti.service_policy("Bind", &other, &role).await?;
    until_hosted_by(stage, &service, 2).await?;
    requests::spread(stage, &service).await?;
    Ok(service)
}

/// A set of two in mode `proxy` that offers the service; returns the address of its Kubernetes
/// Service, which has port 80. `others` are the routers that the network has besides.
pub(crate) async fn entry(stage: &Stage, service: &str, others: &[&str]) -> Result<String> {
    let offered = json!([{"service": "web", "port": 9090,
        "kubernetesService": {"name": "web-by-ziti", "port": 80}}]);
    let tunnel = json!({"mode": "proxy", "proxy": {"services": offered}});
    let entry = json!({"replicas": 2, "tunnel": tunnel});
    stage.create_set("entry", entry).await?;
    stage.until_online("entry", 2).await?;
    let members = ["entry-0", "entry-1"];
    let ids = stage.ziti.ids(&[&members, others].concat()).await?;
    for member in members {
        let (identity, role) = (format!("@{}", ids[member]), format!("@{service}"));
        stage.ziti.service_policy("Dial", &identity, &role).await?;
        get(stage, &stage.address(member).await?, 9090).await?;
    }
    stage.service_address("web-by-ziti").await
}
