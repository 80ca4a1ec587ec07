//! One hub and another cluster: a set placed there, while the other cluster is there and while it is
//! away.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::{EdgeRouter, ZitiCluster, ZitiRouter, names, reasons};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, DynamicObject, ListParams, ObjectList};
use serde_json::{Value, json};
use testbed::cluster::Passage;
use testbed::progress::seconds;

use crate::far::{self, Far, of_set, until_reached};
use crate::objects::{reason, truth};
use crate::operator::Operator;
use crate::outage::is_ready;
use crate::scaling::lives;
use crate::stage::{Stage, say};
use crate::watch::witness;

/// The ZitiCluster.
const OTHER: &str = "other";
/// How long the other cluster is away.
const AWAY: Duration = Duration::from_mins(2);
/// How long its routers may need to come back: the pauses of a router between two attempts to reach
/// its controller grow with the outage, to five minutes.
const RETURN: Duration = Duration::from_mins(5);
/// How soon a pod that ends there is noticed: by a watch. At rest nobody looks so often.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

/// A set here and one there, both of two. The other cluster is away for two minutes: what runs there
/// runs on, the objects say so, and the set here is scaled meanwhile and the operator is replaced.
/// Afterwards the other set is scaled; when it is deleted, nothing of it is left.
#[test]
fn a_set_placed_in_another_cluster_lives_through_an_outage_of_it_and_leaves_nothing() {
    far::play("clusters", async |stage, far| {
        stage.join_network().await?;
        far.let_in(stage, OTHER).await?;
        stage.create_set("near", json!({"replicas": 2})).await?;
        stage
            .create_set("far", json!({"replicas": 2, "clusterRef": {"name": OTHER}}))
            .await?;
        stage.until_online("near", 2).await?;
        stage.until_online("far", 2).await?;
        let members = ["far-0", "far-1", "near-0", "near-1"];
        let ids = stage.ziti.ids(&members).await?;
        nothing_but_what_routers_need(far)?;
        exposed(stage).await?;

        away(stage, far).await?;

        stage.scale("far", 3).await?;
        stage.until_online("far", 3).await?;
        noticed(stage, far).await?;
        let all = ["far-0", "far-1", "far-2", "near-0", "near-1"];
        let mut after = stage.ziti.ids(&all).await?;
        after.remove("far-2");
        ensure!(after == ids, "a router has another id");

        leave(stage, far).await?;
        stage.ziti.expect_online(&["near-0", "near-1"]).await?;
        let mut unused = far.unused_rights()?;
        unused.retain(|right| !of_rare_use(right));
        ensure!(
            unused.is_empty(),
            "printed, and used for nothing: {unused:?}"
        );
        Ok(())
    });
}

/// What may be printed although this test has no use for it: the rights for a kind that this cluster
/// has not, and the one to read why pods are refused, which none need be.
fn of_rare_use(right: &str) -> bool {
    right.ends_with(" tlsroutes.gateway.networking.k8s.io") || right == "list events.events.k8s.io"
}

/// In the other cluster is what runs, its configuration and its tokens: no kind of ours, no
/// credential of the network, and nobody who owns anything across clusters.
fn nothing_but_what_routers_need(far: &Far) -> Result<()> {
    let secrets = far.kubectl(&["get", "secrets", "--output", "name"])?;
    let secrets: Vec<&str> = secrets.lines().collect();
    ensure!(
        secrets == ["secret/far-tokens", "secret/ziti-operator-hub"],
        "the Secrets there are {secrets:?}"
    );
    let kinds = far.kubectl(&["get", "customresourcedefinitions", "--output", "name"])?;
    ensure!(!kinds.contains("openziti"), "the kinds there are {kinds}");
    let listed = "statefulsets,services,configmaps,secrets,poddisruptionbudgets";
    let listed = far.kubectl(&["get", listed, "-l", &of_set("far"), "--output", "json"])?;
    let listed: ObjectList<DynamicObject> =
        serde_json::from_str(&listed).context("reading what is there")?;
    ensure!(!listed.items.is_empty(), "there is nothing");
    for object in listed {
        let metadata = &object.metadata;
        let home = metadata.annotations.as_ref();
        let home = home.and_then(|annotations| annotations.get(names::ANNOTATION_HOME));
        ensure!(
            home.is_some() && metadata.owner_references.is_none(),
            "it does not say whose it is, or is owned across clusters: {metadata:?}"
        );
    }
    Ok(())
}

/// A set there with everything that a set may have is made, rolled and taken away again.
async fn exposed(stage: &Stage) -> Result<()> {
    let spec = json!({"replicas": 1, "clusterRef": {"name": OTHER},
        "networkPolicy": {"enabled": true},
        "edge": {"expose": {"type": "Ingress"}, "advertise": {"host": "{member}.edge.example.com"}}});
    stage.create_set("exposed", spec).await?;
    stage.until_online("exposed", 1).await?;
    let changed = json!({"spec": {"metrics": {"reportInterval": "20s"}}});
    stage.patch::<ZitiRouter>("exposed", changed).await?;
    stage.until_online("exposed", 1).await?;
    stage
        .delete::<ZitiRouter>("exposed", &DeleteParams::background())
        .await?;
    stage.until_gone::<ZitiRouter>("exposed").await
}

/// The other cluster is away for a while.
async fn away(stage: &Stage, far: &Far) -> Result<()> {
    let members = ["far-0", "far-1"];
    let running = lives(&far.api(), &members).await?;
    let tokens = fingerprints(stage, &members).await?;
    let stays = witness::<Pod>(far.api(), &of_set("far"), |pods| {
        ensure!(pods.len() == 2, "there are {} pods", pods.len());
        for (name, pod) in pods {
            ensure!(is_ready(pod), "pod {name} is not ready");
        }
        Ok(())
    })
    .await?;

    far.set(Passage::Closed)?;
    let begun = Instant::now();
    stage
        .until(OTHER, "told to be away", |cluster: &ZitiCluster| {
            cluster.status.as_ref().is_some_and(|status| {
                status.away_since.is_some() && is_unreachable(&status.conditions, "False")
            })
        })
        .await?;
    say(&format!(
        "noticed to be away: after {}",
        seconds(begun.elapsed())
    ));
    stage
        .until("far", "told to be out of reach", out_of_reach)
        .await?;
    say(&format!(
        "told on the set: after {}",
        seconds(begun.elapsed())
    ));
    let told_since = since(stage).await?;

    let scaled = Instant::now();
    stage.scale("near", 3).await?;
    stage.until_online("near", 3).await?;
    say(&format!(
        "the set here grows meanwhile: in {}",
        seconds(scaled.elapsed())
    ));
    let operator = Operator::take(&stage.client).await;
    operator.delete_pod().await?;
    drop(operator);
    stage.scale("near", 2).await?;
    stage.until_online("near", 2).await?;

    stays
        .end_after(AWAY.saturating_sub(begun.elapsed()))
        .await?;
    stage
        .until("far", "told to be out of reach", out_of_reach)
        .await?;
    ensure!(
        since(stage).await? == told_since,
        "another time is told since when it is away"
    );

    far.set(Passage::Open)?;
    let healed = Instant::now();
    until_reached(stage, OTHER).await?;
    say(&format!("back: after {}", seconds(healed.elapsed())));
    stage.until_online_within("far", 2, RETURN).await?;
    say(&format!(
        "its set is online: after {}",
        seconds(healed.elapsed())
    ));
    ensure!(
        lives(&far.api(), &members).await? == running,
        "a pod was replaced or restarted"
    );
    ensure!(
        fingerprints(stage, &members).await? == tokens,
        "a router was enrolled again"
    );
    Ok(())
}

fn is_unreachable(conditions: &[Condition], status: &str) -> bool {
    truth(conditions, "Ready") == Some(status)
        && reason(conditions, "Ready") == Some(reasons::CLUSTER_UNREACHABLE)
}

fn out_of_reach(set: &ZitiRouter) -> bool {
    let status = set.status.as_ref();
    status.is_some_and(|status| is_unreachable(&status.conditions, "Unknown"))
}

/// Since when the cluster is away and the set not known, as the objects tell it.
async fn since(stage: &Stage) -> Result<Value> {
    let cluster: ZitiCluster = stage.get(OTHER).await?;
    let set: ZitiRouter = stage.get("far").await?;
    let conditions = set.status.context("the set has no status")?.conditions;
    let ready = conditions
        .into_iter()
        .find(|condition| condition.type_ == "Ready");
    Ok(json!([
        cluster.status.and_then(|status| status.away_since),
        ready.map(|ready| ready.last_transition_time),
    ]))
}

/// The certificate with which each member is enrolled.
async fn fingerprints(stage: &Stage, members: &[&str]) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for member in members {
        let router: EdgeRouter = stage.get(member).await?;
        let fingerprint = router.status.and_then(|status| status.fingerprint);
        let fingerprint = fingerprint.with_context(|| format!("{member} is not enrolled"))?;
        found.insert((*member).to_owned(), fingerprint);
    }
    Ok(found)
}

/// A pod that ends in the other cluster is noticed at once.
async fn noticed(stage: &Stage, far: &Far) -> Result<()> {
    let at_once = DeleteParams::default().grace_period(0);
    let deleted = far.api::<Pod>().delete("far-1", &at_once).await;
    deleted.context("deleting a pod there")?;
    let begun = Instant::now();
    stage
        .until(
            "far",
            "told that a member is not ready",
            |set: &ZitiRouter| {
                set.status
                    .as_ref()
                    .is_some_and(|status| status.ready_replicas < 3)
            },
        )
        .await?;
    let took = begun.elapsed();
    say(&format!(
        "a pod that ends there is noticed: after {}",
        seconds(took)
    ));
    ensure!(took < NOTICED_WITHIN, "it took {took:?}");
    stage.until_online("far", 3).await?;
    Ok(())
}

/// The ZitiCluster is held while a set is there. The set leaves nothing, and then it goes as well.
async fn leave(stage: &Stage, far: &Far) -> Result<()> {
    let background = DeleteParams::background();
    stage.delete::<ZitiCluster>(OTHER, &background).await?;
    stage
        .until(OTHER, "told to be in use", |cluster: &ZitiCluster| {
            let status = cluster.status.as_ref();
            status
                .is_some_and(|status| reason(&status.conditions, "Ready") == Some(reasons::IN_USE))
        })
        .await?;
    stage.delete::<ZitiRouter>("far", &background).await?;
    stage.until_gone::<ZitiRouter>("far").await?;
    let left = far.things()?;
    ensure!(left.is_empty(), "left in the other cluster: {left:?}");
    let registered = stage.api::<EdgeRouter>();
    let registered = registered
        .list(&ListParams::default().labels(&of_set("far")))
        .await;
    let registered = registered.context("listing EdgeRouters")?.items;
    ensure!(registered.is_empty(), "left at the hub: {registered:?}");
    stage.until_gone::<ZitiCluster>(OTHER).await
}
