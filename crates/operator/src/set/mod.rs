//! The ZitiRouter controller: workloads and members, never the Ziti API.

mod apply;
mod observe;
pub(crate) mod orphans;
mod refusal;

use crate::context::Context;
use crate::io;
use crate::problem::Error;
use api::reasons::types;
use api::{ZitiRouter, ZitiRouterStatus, names};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::controller::Action;
use plan::set::{Step, after_failure};
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

/// How soon to look again where the watch has not caught up yet.
const STALE: Duration = Duration::from_millis(50);

/// One reconcile: observe, plan, apply, status.
pub(crate) async fn reconcile(
    object: Arc<ZitiRouter>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let api: Api<ZitiRouter> = Api::namespaced(
        context.client.clone(),
        &object.namespace().unwrap_or_default(),
    );

    // Observe: reads, live.
    let observed = observe::observe(&context, &object).await?;
    // Last, whether the object is still the one at hand: what its deletion did
    // to the others (`--cascade=orphan` takes the owner off them) must not be
    // seen before the deletion itself.
    if !io::is_current(&api, &object).await? {
        return Ok(Action::requeue(STALE));
    }

    // Plan: no client.
    let facts = observed.facts(&object, &context.settings, Timestamp::now());
    let plan = plan::set::plan(&facts);

    // Apply: writes, in the plan's order, up to the first that fails.
    for step in &plan.steps {
        if let Err(error) = apply::apply(&context, &api, &object, &observed, step).await {
            if !error.is_conflict()
                && !error.is_namespace_ending()
                && !matches!(step, Step::AddFinalizer | Step::ReleaseFinalizer)
            {
                let status = after_failure(
                    &plan,
                    &error.problem(),
                    object.metadata.generation,
                    Timestamp::now(),
                );
                write_status(&context, &api, &object, &status).await?;
            }
            return Err(error);
        }
        if *step == Step::ReleaseFinalizer {
            return Ok(Action::await_change());
        }
        if let Some(note) = plan::set::drift::told(&facts, step) {
            info!(router = io::path(object.as_ref()), note, "put back");
            let events = &context.events;
            events.done(object.as_ref(), "PutBack", note).await;
        }
    }
    write_status(&context, &api, &object, &plan.status).await?;
    context.backoff.reset(&backoff_key(&object));
    if plan.steps.contains(&Step::AddFinalizer) {
        // Its own event may be merged with this one's: make sure to go on.
        return Ok(Action::requeue(Duration::from_millis(100)));
    }
    Ok(plan.requeue.map_or_else(Action::await_change, |after| {
        Action::requeue(after.unsigned_abs())
    }))
}

/// What a reconcile would see, for whoever only asks.
pub(crate) async fn look<'a>(
    context: &'a Context,
    object: &'a ZitiRouter,
) -> Result<plan::set::Facts<'a>, Error> {
    let observed = observe::observe(context, object).await?;
    Ok(observed.facts(object, &context.settings, Timestamp::now()))
}

/// Write the status, if it says anything new.
async fn write_status(
    context: &Context,
    api: &Api<ZitiRouter>,
    object: &ZitiRouter,
    status: &ZitiRouterStatus,
) -> Result<(), Error> {
    if object.status.as_ref() == Some(status) {
        return Ok(());
    }
    io::apply_status(
        api,
        &object.name_any(),
        status,
        names::FIELD_MANAGER_ROUTER,
        None,
    )
    .await?;
    let before = object
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
pub(crate) fn failed(object: &ZitiRouter, error: &Error, context: &Context) -> Action {
    context.backoff.failed(&backoff_key(object), error)
}

fn backoff_key(object: &ZitiRouter) -> String {
    format!("zitirouter/{}", io::path(object))
}
