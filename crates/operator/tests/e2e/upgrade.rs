//! The way from one version of Ziti to the next: controllers, then routers.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::{ZitiController, ZitiRouter, names, reasons};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use serde_json::json;
use testbed::image;
use testbed::kubernetes;
use testbed::tools::ZITI_NEXT;
use tokio::sync::oneshot;

use crate::controllers::{CONTROLLER, Network, controller, leader, until_settled, write_on};
use crate::objects::reason;
use crate::stage::{self, Stage, say};

/// How long a write may be refused: a cluster takes none while its members run different versions.
const WITHIN: Duration = Duration::from_mins(3);
/// How long all members may take.
const PATIENCE: Duration = Duration::from_mins(5);

const MEMBERS: [&str; 3] = [
    "ziti-controller-0",
    "ziti-controller-1",
    "ziti-controller-2",
];

/// The image of the first container that is called so.
fn image_of<'a>(pod: &'a Pod, container: &str) -> Option<&'a str> {
    let containers = &pod.spec.as_ref()?.containers;
    let found = containers.iter().find(|have| have.name == container)?;
    found.image.as_deref()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| &status.conditions);
    let mut conditions = conditions.flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Members that have another image now, in the order in which they got it; and never are two away at
/// once.
async fn order_of(stage: &Stage, image: &str) -> Result<Vec<String>> {
    let mut order: Vec<String> = Vec::new();
    kubernetes::poll("all members to have the next image", PATIENCE, async || {
        let pods = stage.list::<Pod>().await?;
        let members = pods
            .iter()
            .filter(|pod| pod.labels().contains_key(names::LABEL_CONTROLLER));
        let members: Vec<&Pod> = members.collect();
        let away = MEMBERS.len() - members.iter().filter(|pod| is_ready(pod)).count();
        ensure!(away <= 1, "{away} members are away at once");
        for pod in members {
            let name = pod.name_any();
            if image_of(pod, "controller") == Some(image) && !order.contains(&name) {
                order.push(name);
            }
        }
        Ok((order.len() == MEMBERS.len()).then_some(()))
    })
    .await?;
    Ok(order)
}

/// Routers are asked for while the members differ: nothing is tried on the network until they are one,
/// and then it happens by itself.
async fn asked_for_meanwhile(stage: &Stage) -> Result<()> {
    let differ = "running different versions";
    stage
        .until(CONTROLLER, differ, |object: &ZitiController| {
            let status = object.status.as_ref();
            let conditions = status.map(|status| status.conditions.as_slice());
            reason(conditions.unwrap_or_default(), "Degraded") == Some(reasons::VERSIONS_DIFFER)
        })
        .await?;
    stage.scale("edge", 3).await?;
    let asked = Instant::now();
    stage.until_online("edge", 3).await?;
    say(&format!(
        "a router that was asked for while versions differed is online after {:.1} s",
        asked.elapsed().as_secs_f64()
    ));
    Ok(())
}

async fn nothing_was_refused(stage: &Stage) -> Result<()> {
    for event in stage.list::<Event>().await? {
        let told = event.reason.as_deref() == Some(reasons::REFUSED);
        let of_ours = event.regarding.as_ref().and_then(|it| it.kind.as_deref());
        ensure!(
            !told || of_ours != Some("EdgeRouter"),
            "a write was refused: {}",
            event.note.unwrap_or_default()
        );
    }
    Ok(())
}

/// Three controllers go to the next version one at a time, the leader last, while routers serve and
/// another one is asked for; then the routers follow.
#[test]
fn controllers_and_then_routers_go_to_the_next_version_one_at_a_time() {
    stage::play_alone("next-version", async |stage| {
        let next = image::ziti_next()?;
        let cluster = stage.environment.cluster()?;
        for archive in [&next.router, &next.controller] {
            cluster.import(archive)?;
        }
        controller(
            stage,
            json!({"replicas": 3, "bootstrapPolicies": "AllRouters"}),
        )
        .await?;
        let set = json!({
            "apiVersion": "openziti.io/v1alpha1", "kind": "ZitiRouter",
            "metadata": {"name": "edge"},
            "spec": {
                "networkRef": {"name": CONTROLLER}, "replicas": 2,
                "image": stage.environment.router_image,
            },
        });
        stage.apply(set).await?;
        let formed = until_settled(stage, 3).await?;
        stage.until_online("edge", 2).await?;
        let first = leader(&formed)?;
        let mut ways = Vec::new();
        for member in MEMBERS {
            ways.push(Network::through(stage, member).await?);
        }

        let (stop, stopped) = oneshot::channel();
        let writer = tokio::spawn(write_on(ways, WITHIN, stopped));
        let begun = Instant::now();
        let image = &next.controller.reference;
        let patch = json!({"spec": {"image": image}});
        stage.patch::<ZitiController>(CONTROLLER, patch).await?;
        let (order, ()) = tokio::try_join!(order_of(stage, image), asked_for_meanwhile(stage))?;
        let settled = until_settled(stage, 3).await?;
        let took = begun.elapsed().as_secs_f64();
        drop(stop);
        let (tried, failed, longest) = writer.await.context("writing")?;
        say(&format!(
            "three controllers upgraded in {took:.1} s; {failed} of {tried} writes failed, and one waited {:.1} s",
            longest.as_secs_f64()
        ));
        ensure!(order.last() == Some(&first), "{first} led, and {order:?}");
        let version = settled.status.and_then(|status| status.version);
        ensure!(version.as_deref() == Some(ZITI_NEXT), "{version:?}");
        ensure!(tried > 10 && failed == 0, "{failed} of {tried} failed");
        nothing_was_refused(stage).await?;

        let image = &next.router.reference;
        let patch = json!({"spec": {"image": image}});
        stage.patch::<ZitiRouter>("edge", patch).await?;
        stage.until_online("edge", 3).await?;
        for name in ["edge-0", "edge-1", "edge-2"] {
            let pod: Pod = stage.get(name).await?;
            let found = image_of(&pod, "router");
            ensure!(found == Some(image), "{name} runs {found:?}");
        }
        nothing_was_refused(stage).await
    });
}
