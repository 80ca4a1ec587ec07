//! The EdgeRouter controller: speaks to Ziti, never sees a pod.

mod apply;
mod observe;

pub(crate) use apply::{new_edge_router, patch};
pub(crate) use observe::digest_of;

use crate::context::Context;
use crate::io;
use crate::problem::Error;
use api::reasons::types;
use api::{EdgeRouter, EdgeRouterStatus, names};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::controller::Action;
use observe::Depth;
use plan::edge_router::{Facts, Plan, Step, after_failure};
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// More rounds than this in one reconcile mean that something does not settle.
const MOST_ROUNDS: usize = 6;

/// One reconcile: observe, plan, apply, again until no step is left; status.
pub(crate) async fn reconcile(
    object: Arc<EdgeRouter>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let api: Api<EdgeRouter> = Api::namespaced(
        context.client.clone(),
        &object.namespace().unwrap_or_default(),
    );
    let first = object.clone();
    let mut object = EdgeRouter::clone(&object);
    let mut depth = if observe::needs_fresh(&object) {
        Depth::Fresh
    } else {
        Depth::Picture
    };
    let network = observe::network(&context, &object);

    for _ in 0..MOST_ROUNDS {
        // Writes to one network go one after another, and what was looked up
        // for a write must still hold when it is made.
        let guard = match &network {
            Some(network) if depth > Depth::Picture => Some(network.writes.lock().await),
            _ => None,
        };
        let observed = observe::observe(&context, &object, network.as_deref(), depth).await?;
        let facts = observed.facts(&object, &context.settings, Timestamp::now());
        let plan = plan::edge_router::plan(&facts);
        if plan.steps.is_empty() {
            drop(guard);
            return settle(&context, &api, &first, &object, network.as_deref(), &plan).await;
        }
        let needed = if plan.needs_every_controller() {
            Depth::Everywhere
        } else if plan.needs_fresh_look() {
            Depth::Fresh
        } else {
            Depth::Picture
        };
        if needed > depth {
            // Never act on a picture: ask about this router first.
            depth = needed;
            continue;
        }
        for step in &plan.steps {
            match apply::apply(
                &context,
                &api,
                &object,
                network.as_deref(),
                &observed,
                &plan,
                step,
            )
            .await
            {
                Ok(apply::Applied::Gone) => {
                    info!(edge_router = io::path(&object), "let go");
                    if let Some(network) = &network {
                        network.watch(&object.name_any(), false);
                        context.networks.wake_network(&network.key);
                    }
                    return Ok(Action::await_change());
                }
                Ok(apply::Applied::Object(changed)) => object = *changed,
                Ok(apply::Applied::Elsewhere) => {}
                Err(error) => return give_up(&context, &api, &object, &plan, step, error).await,
            }
        }
        // A step on Kubernetes alone leaves the network as it was seen.
        if plan.steps.iter().any(Step::writes_to_network) {
            depth = depth.max(Depth::Fresh);
        }
    }
    info!(
        edge_router = io::path(&object),
        "did not settle in one go; goes on"
    );
    Ok(Action::requeue(Duration::from_secs(1)))
}

/// What a reconcile would see if it asked the network anew, for whoever only
/// asks.
pub(crate) async fn look<'a>(
    context: &'a Context,
    object: &'a EdgeRouter,
) -> Result<Facts<'a>, Error> {
    let network = observe::network(context, object);
    let observed = observe::observe(context, object, network.as_deref(), Depth::Fresh).await?;
    Ok(observed.facts(object, &context.settings, Timestamp::now()))
}

/// Nothing is left to do: say how it stands.
async fn settle(
    context: &Context,
    api: &Api<EdgeRouter>,
    first: &EdgeRouter,
    object: &EdgeRouter,
    network: Option<&crate::networks::Network>,
    plan: &Plan,
) -> Result<Action, Error> {
    write_status(context, api, first, object, &plan.status).await?;
    if let Some(network) = network {
        network.watch(&object.name_any(), plan.watch_closely);
    }
    context.backoff.reset(&backoff_key(object));
    let again = plan.requeue.map(SignedDuration::unsigned_abs);
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

/// A step failed: say so, and come back later.
async fn give_up(
    context: &Context,
    api: &Api<EdgeRouter>,
    object: &EdgeRouter,
    plan: &Plan,
    step: &Step,
    error: Error,
) -> Result<Action, Error> {
    if !error.is_conflict()
        && !matches!(
            step,
            Step::AddFinalizer | Step::ReleaseFinalizer | Step::RecordIntent { .. }
        )
    {
        let problem = error.problem();
        // The network's own fault is told once, by the network.
        if problem.reason != api::reasons::NETWORK_NOT_READY {
            let status = after_failure(
                plan,
                step,
                &problem,
                object.metadata.generation,
                Timestamp::now(),
            );
            write_status(context, api, object, object, &status).await?;
        }
    }
    Err(error)
}

/// Write the status, if it says anything new. The pod's report is another
/// field manager's.
async fn write_status(
    context: &Context,
    api: &Api<EdgeRouter>,
    first: &EdgeRouter,
    object: &EdgeRouter,
    status: &EdgeRouterStatus,
) -> Result<(), Error> {
    let ours = |status: &Option<EdgeRouterStatus>| EdgeRouterStatus {
        agent: None,
        ..status.clone().unwrap_or_default()
    };
    if ours(&object.status) == *status {
        return Ok(());
    }
    io::apply_status(
        api,
        &object.name_any(),
        status,
        names::FIELD_MANAGER_EDGE_ROUTER,
        // What is said of an older object would take back what was recorded
        // since: an id, an intent.
        object.metadata.resource_version.as_deref(),
    )
    .await?;
    let before = first
        .status
        .as_ref()
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default();
    context
        .events
        .turned(object, types::READY, before, &status.conditions)
        .await;
    Ok(())
}

/// What to do after a failure.
pub(crate) fn failed(object: &EdgeRouter, error: &Error, context: &Context) -> Action {
    context.backoff.failed(&backoff_key(object), error)
}

fn backoff_key(object: &EdgeRouter) -> String {
    format!("edgerouter/{}", io::path(object))
}
