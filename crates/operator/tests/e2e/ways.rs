//! Two ways to the same API server, measured beside each other.

use std::pin::pin;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::stage::{PATIENCE, say};

/// How many changes are made by each way.
const CHANGES: usize = 40;
/// What is changed.
const NAME: &str = "measured";

/// Changes an object by both ways in turns, and watches it by both. Says how long a change took by
/// each, and how much later the second way tells of one.
pub(crate) async fn compare(direct: &Client, through: &Client, namespace: &str) -> Result<()> {
    let ways = [direct, through].map(|client| Api::namespaced(client.clone(), namespace));
    apply(&ways[0], 0).await?;
    let (mut told_directly, mut told_through) = (watch(&ways[0]).await?, watch(&ways[1]).await?);
    let mut took = [Vec::new(), Vec::new()];
    let mut lag = Vec::new();
    for change in 1..=2 * CHANGES {
        let way = change % 2;
        let begun = Instant::now();
        let version = apply(&ways[way], change).await?;
        took[way].push(begun.elapsed().as_secs_f64());
        let directly = told(&mut told_directly, &version).await?;
        let through = told(&mut told_through, &version).await?;
        lag.push(match through.checked_duration_since(directly) {
            Some(later) => later.as_secs_f64(),
            None => -directly.duration_since(through).as_secs_f64(),
        });
    }
    let deleted = ways[0].delete(NAME, &DeleteParams::default()).await;
    deleted.context("deleting what was measured with")?;
    let [direct, through] = took;
    say(&format!("an apply, directly: {}", shown(direct)));
    say(&format!("an apply, through Ziti: {}", shown(through)));
    say(&format!(
        "a watch through Ziti tells later by: {}",
        shown(lag)
    ));
    Ok(())
}

/// Returns the version of the object.
async fn apply(api: &Api<ConfigMap>, change: usize) -> Result<String> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME},
        "data": {"change": change.to_string()}});
    let params = PatchParams::apply("measuring").force();
    let applied = api.patch(NAME, &params, &Patch::Apply(&object)).await;
    let applied = applied.with_context(|| format!("making change {change}"))?;
    applied.resource_version().context("it has no version")
}

/// When which version was told.
async fn watch(api: &Api<ConfigMap>) -> Result<UnboundedReceiver<(String, Instant)>> {
    let object = api
        .get(NAME)
        .await
        .context("reading what is measured with")?;
    let version = object.resource_version().context("it has no version")?;
    let params = WatchParams::default().fields(&format!("metadata.name={NAME}"));
    let (sender, receiver) = unbounded_channel();
    let api = api.clone();
    tokio::spawn(async move {
        let Ok(events) = api.watch(&params, &version).await else {
            return;
        };
        let mut events = pin!(events);
        // Ends with the other end of the channel, or with the watch, which the other end notices.
        while let Some(Ok(event)) = events.next().await {
            if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
                let version = object.resource_version().unwrap_or_default();
                if sender.send((version, Instant::now())).is_err() {
                    return;
                }
            }
        }
    });
    Ok(receiver)
}

async fn told(watch: &mut UnboundedReceiver<(String, Instant)>, version: &str) -> Result<Instant> {
    loop {
        let told = tokio::time::timeout(PATIENCE, watch.recv()).await;
        match told.context("a watch does not tell of a change")? {
            Some((told, at)) if told == version => return Ok(at),
            Some(_) => {}
            None => bail!("a watch ended"),
        }
    }
}

/// Half and 95 of a hundred took at most so long.
fn shown(mut seconds: Vec<f64>) -> String {
    seconds.sort_by(f64::total_cmp);
    let at = |hundredth: usize| 1000.0 * seconds[(seconds.len() - 1) * hundredth / 100];
    format!("p50 {:.1} ms, p95 {:.1} ms", at(50), at(95))
}
