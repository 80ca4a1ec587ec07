//! The Ziti controller is away for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use api::{EdgeRouter, ZitiNetwork, ZitiRouter, reasons};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::objects::{Object, reason, truth};
use crate::scaling::pods;
use crate::stage::{self, NETWORK};
use crate::watch::witness;

/// How long it is away after that was noticed.
const AWAY: Duration = Duration::from_mins(1);

/// One condition tells, on the ZitiNetwork. Routers run on and stay ready, nothing is written about
/// them, and what was asked for meanwhile happens afterwards.
#[test]
fn a_controller_that_is_away_costs_one_condition_and_no_router() {
    stage::play("outage", async |stage| {
        stage.set_online("edge", 2).await?;
        let running = pods(stage, &["edge-0", "edge-1"]).await?;
        let set = witness::<ZitiRouter>(stage.api(), "", unchanged()).await?;
        let members = witness::<EdgeRouter>(stage.api(), "", unchanged()).await?;
        let ready = witness::<Pod>(stage.api(), "", |pods| {
            for (name, pod) in pods {
                ensure!(is_ready(pod), "pod {name} is not ready");
            }
            ensure!(pods.len() == 2, "there are {} pods", pods.len());
            Ok(())
        })
        .await?;

        stage.ziti.controller.stop().await?;
        stage
            .until(NETWORK, "unreachable", |network: &ZitiNetwork| {
                network.status.as_ref().is_some_and(|status| {
                    truth(&status.conditions, "Ready") == Some("False")
                        && reason(&status.conditions, "Ready")
                            == Some(reasons::CONTROLLER_UNREACHABLE)
                })
            })
            .await?;
        stage.give_up_turn();
        let (set, members, ready) = tokio::join!(
            set.end_after(AWAY),
            members.end_after(AWAY),
            ready.end_after(AWAY)
        );
        set?;
        members?;
        ready?;

        stage.scale("edge", 3).await?;
        stage
            .until(
                "edge",
                "told that it cannot grow now",
                |set: &ZitiRouter| {
                    set.status.as_ref().is_some_and(|status| {
                        status.observed_generation == set.metadata.generation
                            && truth(&status.conditions, "Ready") == Some("False")
                    })
                },
            )
            .await?;
        stage.ziti.start().await?;
        stage.until_online("edge", 3).await?;
        stage
            .ziti
            .until_online(&["edge-0", "edge-1", "edge-2"])
            .await?;
        ensure!(
            pods(stage, &["edge-0", "edge-1"]).await? == running,
            "a pod was replaced or restarted"
        );
        Ok(())
    });
}

/// The rule that nothing about these objects is written.
pub(crate) fn unchanged<K: Object>()
-> impl FnMut(&BTreeMap<String, K>) -> Result<()> + Send + 'static {
    let mut first = None;
    move |objects| {
        let now: BTreeMap<String, Option<String>> = objects
            .iter()
            .map(|(name, object)| (name.clone(), object.resource_version()))
            .collect();
        let first = first.get_or_insert_with(|| now.clone());
        ensure!(
            *first == now,
            "something was written: {}",
            serde_json::to_string(&objects.values().collect::<Vec<_>>())?
        );
        Ok(())
    }
}

/// Whether a pod is ready and meant to stay.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.is_some_and(|conditions| {
            conditions
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True")
        })
}
