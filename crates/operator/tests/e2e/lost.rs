//! Databases that are lost for good: the operator says so and leaves alone what is left, and what
//! the documentation tells to do brings the network back, with its routers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::{ZitiController, ZitiNetwork, names, reasons};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testbed::kubernetes;
use ziti::backup::Identity;

use crate::backup::{back_up, identities, prepare_volume, routers};
use crate::controllers::{CONTROLLER, Network, controller, until_settled};
use crate::objects::{Object, reason, truth};
use crate::outage::{is_ready, unchanged};
use crate::stage::{self, PATIENCE, Stage, say};
use crate::watch::{Witness, witness};

/// How long a network whose quorum is lost is seen to be left alone.
const LEFT_ALONE: Duration = Duration::from_secs(20);
/// The chapter that says what to do about a lost quorum.
const CHAPTER: &str = "### Quorum lost\n";
/// A node that there is not: pods that are to run there wait, as those do whose volumes were on a node
/// that is gone.
const NOWHERE: &str = "gone";

/// A lone controller loses its volume. It makes no second network, and the operator writes nothing
/// until `restoreFrom` is set; then the network is back over the root that was kept, and its routers
/// come back by themselves.
#[test]
fn a_lone_controller_that_lost_its_volume_waits_for_the_word_and_comes_back_from_a_backup() {
    stage::play_alone("lost-volume", async |stage| {
        Box::pin(lone_controller(stage)).await
    });
}

async fn lone_controller(stage: &Stage) -> Result<()> {
    let identity = Identity::generate();
    prepare_volume(stage, &identity).await?;
    let volume = json!({"volume": {"claimName": "backups"}});
    let backup = json!({
        "schedule": "@yearly", "recipients": [identity.recipient().to_string()], "to": volume,
    });
    let spec = json!({"bootstrapPolicies": "AllRouters", "backup": backup});
    let made = Box::pin(network_with_routers(stage, spec, 1)).await?;
    let snapshot = Box::pin(back_up(stage, "before-the-loss", None)).await?;
    let before = Routers::of(stage).await?;
    let network = network_identity(stage).await?;

    let routers_run = routers_run(stage).await?;
    let nothing_written = nothing_is_written(stage).await?;
    let member = names::controller_member(CONTROLLER, 0);
    let claim = format!("data-{member}");
    let begun = Instant::now();
    let old: PersistentVolumeClaim = stage.get(&claim).await?;
    let background = DeleteParams::background();
    stage
        .delete::<PersistentVolumeClaim>(&claim, &background)
        .await?;
    kill(stage, &member).await?;
    stage
        .until(&claim, "another", |claim: &PersistentVolumeClaim| {
            claim.uid() != old.uid()
        })
        .await?;
    // Until its new claim is there the network counts as lost as well, since there is none.
    let by_its_word = "by the member's own word";
    stage
        .until(CONTROLLER, by_its_word, |object: &ZitiController| {
            let conditions = object.status.iter().flat_map(|status| &status.conditions);
            let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
            ready.any(|ready| {
                ready.reason == reasons::DATABASE_LOST
                    && !ready.message.contains("there is no volume")
            })
        })
        .await?;
    let took = begun.elapsed().as_secs_f64();
    say(&format!("a lost volume is told after {took:.1} s"));
    let list = ["--", "ziti", "agent", "cluster", "list"];
    let asked = ["exec", &member, "-c", "controller"];
    let listed = stage.kubectl(&[&asked[..], &list].concat())?;
    ensure!(!listed.contains(&member), "it is in a cluster:\n{listed}");
    try_join_all(nothing_written.into_iter().map(Witness::end)).await?;

    let begun = Instant::now();
    let restore = json!({"from": volume, "identitySecretRef": {"name": "age"}});
    let patch = json!({"spec": {"restoreFrom": restore}});
    stage.patch::<ZitiController>(CONTROLLER, patch).await?;
    let restored = Box::pin(until_settled(stage, 1)).await?;
    let took = begun.elapsed().as_secs_f64();
    say(&format!("from the wish to a restored network: {took:.1} s"));
    until_online_at(stage, &member).await?;
    let took = begun.elapsed().as_secs_f64();
    say(&format!(
        "from the wish until its routers are back: {took:.1} s"
    ));
    Box::pin(stage.until_online("edge", 2)).await?;
    routers_run.end().await?;
    before.expect_the_same(stage).await?;
    ensure!(
        network_identity(stage).await? == network,
        "it is another network"
    );
    let status = restored.status.context("it has no status")?;
    let root_before = made.status.and_then(|status| status.root_key);
    ensure!(status.root_key == root_before, "it has another root");
    ensure!(
        status.restored_from.as_ref() == Some(&snapshot),
        "it is restored from {:?}",
        status.restored_from
    );
    Ok(())
}

/// Two of three members lose their volumes. The operator tells that the quorum is lost and leaves
/// everything alone, for as long as it takes; the commands of the documentation make the cluster
/// whole again, and it is the same network.
#[test]
fn a_lost_quorum_is_left_alone_and_mended_by_what_the_documentation_says() {
    stage::play_alone("lost-quorum", async |stage| {
        Box::pin(lost_quorum(stage)).await
    });
}

async fn lost_quorum(stage: &Stage) -> Result<()> {
    let spec = json!({"replicas": 3, "bootstrapPolicies": "AllRouters"});
    Box::pin(network_with_routers(stage, spec, 3)).await?;
    let before = Routers::of(stage).await?;
    let network = network_identity(stage).await?;
    let routers_run = routers_run(stage).await?;

    let lost = [1, 2].map(|ordinal| names::controller_member(CONTROLLER, ordinal));
    stage.pods_only_on(Some(NOWHERE)).await?;
    let begun = Instant::now();
    for member in &lost {
        kill(stage, member).await?;
    }
    stage
        .until(CONTROLLER, "without a quorum", |object: &ZitiController| {
            object.status.as_ref().is_some_and(|status| {
                truth(&status.conditions, "Ready") == Some("False")
                    && reason(&status.conditions, "Ready") == Some(reasons::QUORUM_LOST)
            })
        })
        .await?;
    let took = begun.elapsed().as_secs_f64();
    say(&format!("a lost quorum is told after {took:.1} s"));
    // A leader is told to have nobody left before it gives up.
    stage
        .until(CONTROLLER, "without a leader", |object: &ZitiController| {
            let status = object.status.as_ref();
            status.is_some_and(|status| status.leader.is_none() && status.ready_replicas == 0)
        })
        .await?;
    let mut left_alone = nothing_is_written(stage).await?;
    left_alone.push(witness::<PersistentVolumeClaim>(stage.api(), "", unchanged()).await?);
    left_alone.push(witness::<Pod>(stage.api(), "", of_one_wish()).await?);
    left_alone.push(witness::<ZitiController>(stage.api(), "", unchanged()).await?);
    try_join_all(left_alone.into_iter().map(|one| one.end_after(LEFT_ALONE))).await?;

    stage.pods_only_on(None).await?;
    let begun = Instant::now();
    for command in the_way_out()? {
        let command: Vec<&str> = command
            .iter()
            .map(|word| {
                if *word == "network" {
                    &stage.namespace
                } else {
                    *word
                }
            })
            .collect();
        say(&format!("$ kubectl {}", command.join(" ")));
        say(&stage.slow_kubectl(&command).await?);
    }
    let took = begun.elapsed().as_secs_f64();
    say(&format!("the commands took {took:.1} s"));
    Box::pin(until_settled(stage, 3)).await?;
    let took = begun.elapsed().as_secs_f64();
    say(&format!("the cluster is whole again after {took:.1} s"));
    // Each has all of the database, and writes are taken.
    for member in &lost {
        until_online_at(stage, member).await?;
        let ziti = Network::through(stage, member).await?;
        ziti.write(&format!("by-{member}")).await?;
    }
    let took = begun.elapsed().as_secs_f64();
    say(&format!("its routers are at each member after {took:.1} s"));
    Box::pin(stage.until_online("edge", 2)).await?;
    routers_run.end().await?;
    before.expect_the_same(stage).await?;
    ensure!(
        network_identity(stage).await? == network,
        "it is another network"
    );
    Ok(())
}

/// A network that the operator runs, with so many members and that spec besides, and two routers.
async fn network_with_routers(stage: &Stage, spec: Value, members: i32) -> Result<ZitiController> {
    controller(stage, spec).await?;
    stage
        .apply(json!({
            "apiVersion": "openziti.io/v1alpha1", "kind": "ZitiRouter",
            "metadata": {"name": "edge"},
            "spec": {"networkRef": {"name": CONTROLLER}, "replicas": 2},
        }))
        .await?;
    stage.until_online("edge", 2).await?;
    until_settled(stage, members).await
}

/// The commands of the chapter, word by word, without `kubectl`.
fn the_way_out() -> Result<Vec<Vec<&'static str>>> {
    let document = include_str!("../../../../docs/controllers.md");
    let chapter = document
        .split_once(CHAPTER)
        .context("there is no chapter")?;
    let chapter = chapter.1.split("\n#").next().context("it is empty")?;
    let commands = chapter
        .lines()
        .filter_map(|line| line.strip_prefix("$ kubectl "));
    let words = |line: &'static str| {
        let said = line.split(" #").next().unwrap_or_default();
        said.split_whitespace().collect()
    };
    let commands: Vec<_> = commands.map(words).collect();
    ensure!(!commands.is_empty(), "it has no commands");
    Ok(commands)
}

/// As when its node is gone.
async fn kill(stage: &Stage, pod: &str) -> Result<()> {
    let at_once = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    stage.delete::<Pod>(pod, &at_once).await
}

/// Waits until both routers are connected to that member, by its own word: what the operator says of
/// routers stays as it was while it can ask nobody.
async fn until_online_at(stage: &Stage, member: &str) -> Result<()> {
    let ziti = Network::through(stage, member).await?;
    kubernetes::poll("the routers to be online", PATIENCE, async || {
        Ok(ziti.expect_online(&["edge-0", "edge-1"]).await.ok())
    })
    .await
}

/// What tells the network from every other.
async fn network_identity(stage: &Stage) -> Result<String> {
    let network: ZitiNetwork = stage.get(CONTROLLER).await?;
    let status = network.status.context("the network has no status")?;
    status.network_identity.context("it has no identity")
}

/// Sees to it that the routers' pods are ready all the while.
async fn routers_run(stage: &Stage) -> Result<Witness> {
    witness::<Pod>(stage.api(), names::LABEL_SET, |pods| {
        ensure!(pods.len() == 2, "there are {} routers", pods.len());
        for (name, pod) in pods {
            ensure!(is_ready(pod), "router {name} is not ready");
        }
        Ok(())
    })
    .await
}

/// Sees to it that nobody changes what a network is made of.
async fn nothing_is_written(stage: &Stage) -> Result<Vec<Witness>> {
    Ok(vec![
        witness::<Secret>(stage.api(), "", unchanged()).await?,
        witness::<ConfigMap>(stage.api(), "", unchanged()).await?,
        witness::<Service>(stage.api(), "", unchanged()).await?,
        witness::<StatefulSet>(stage.api(), "", of_one_wish()).await?,
    ])
}

/// The rule that these objects stay, and are wished to be as they are: their status may change.
fn of_one_wish<K: Object>() -> impl FnMut(&BTreeMap<String, K>) -> Result<()> + Send + 'static {
    let mut first = None;
    move |objects| {
        let wish = |object: &K| (object.uid(), object.meta().generation);
        let now: BTreeMap<String, _> = objects
            .iter()
            .map(|(name, object)| (name.clone(), wish(object)))
            .collect();
        let first = first.get_or_insert_with(|| now.clone());
        ensure!(*first == now, "{first:?} became {now:?}");
        Ok(())
    }
}

/// The routers as they are: pods and their restarts, and who they are to the network.
#[derive(Debug, PartialEq)]
struct Routers {
    pods: BTreeMap<String, (Option<String>, i32)>,
    ids: BTreeMap<String, Option<String>>,
}

impl Routers {
    async fn of(stage: &Stage) -> Result<Self> {
        Ok(Self {
            pods: routers(stage).await?,
            ids: identities(stage).await?,
        })
    }

    async fn expect_the_same(&self, stage: &Stage) -> Result<()> {
        let now = Self::of(stage).await?;
        ensure!(now == *self, "{self:?} became {now:?}");
        Ok(())
    }
}
