//! The ZitiController controller: certificates, members and the network that
//! they are.

mod apply;
mod backup;
mod clients;
mod cluster;
mod copies;
mod issue;
mod issuer;
mod network;
mod observe;
mod restore;
mod secrets;
mod sign;
mod web;
mod written;
#[cfg(test)]
mod years;

pub(crate) use clients::Clients;

use crate::context::Context;
use crate::io;
use crate::problem::Error;
use api::reasons::types;
use api::{ZitiController, ZitiControllerStatus, names};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::controller::Action;
use plan::controller::{Step, after_failure, without_backups};
use std::sync::Arc;
use std::time::Duration;

/// How soon to look again where the watch has not caught up yet.
const STALE: Duration = Duration::from_millis(50);

/// One reconcile: observe, plan, apply, status.
pub(crate) async fn reconcile(
    object: Arc<ZitiController>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let api: Api<ZitiController> = Api::namespaced(
        context.client.clone(),
        &object.namespace().unwrap_or_default(),
    );

    // Observe: reads, live; then what the cluster says of itself.
    let observed = Box::pin(observe::observe(&context, &object)).await?;
    if !io::is_current(&api, &object).await? {
        return Ok(Action::requeue(STALE));
    }

    // Plan: no client.
    let facts = observed.facts(&object, &context.settings, Timestamp::now());
    let plan = plan::controller::plan(&facts);

    // Apply: writes, in the plan's order, up to the first that fails. Backups come last,
    // and what they lack is no failure of the network.
    let mut no_backups = None;
    for step in &plan.steps {
        if let Err(error) = apply::apply(&context, &api, &object, &observed, step).await {
            if matches!(step, Step::Backup(_)) && !error.is_namespace_ending() {
                no_backups = Some(error.problem());
                break;
            }
            let released = matches!(step, Step::AddFinalizer | Step::ReleaseFinalizer);
            if !error.is_conflict() && !error.is_namespace_ending() && !released {
                let generation = object.metadata.generation;
                let status = after_failure(&plan, &error.problem(), generation, Timestamp::now());
                write_status(&context, &api, &object, &status).await?;
            }
            return Err(error);
        }
        if *step == Step::ReleaseFinalizer {
            context.controllers.forget(&io::path(object.as_ref()));
            return Ok(Action::await_change());
        }
    }
    let status = match &no_backups {
        Some(problem) => without_backups(plan.status, problem, Timestamp::now()),
        None => plan.status,
    };
    write_status(&context, &api, &object, &status).await?;
    context.backoff.reset(&backoff_key(&object));
    if plan.steps.contains(&Step::AddFinalizer) {
        return Ok(Action::requeue(Duration::from_millis(100)));
    }
    Ok(plan.requeue.map_or_else(Action::await_change, |after| {
        Action::requeue(after.unsigned_abs())
    }))
}

/// What is known of a ZitiController, for `ziti-operator plan`.
pub(crate) async fn look<'a>(
    context: &'a Context,
    object: &'a ZitiController,
) -> Result<plan::controller::Facts<'a>, Error> {
    let observed = Box::pin(observe::observe(context, object)).await?;
    Ok(observed.facts(object, &context.settings, Timestamp::now()))
}

/// What to do after a failure.
pub(crate) fn failed(object: &ZitiController, error: &Error, context: &Context) -> Action {
    context.backoff.failed(&backoff_key(object), error)
}

fn backoff_key(object: &ZitiController) -> String {
    format!("ziticontroller/{}", io::path(object))
}

/// Write the status, if it says anything new.
async fn write_status(
    context: &Context,
    api: &Api<ZitiController>,
    object: &ZitiController,
    status: &ZitiControllerStatus,
) -> Result<(), Error> {
    if object.status.as_ref() == Some(status) {
        return Ok(());
    }
    let manager = names::FIELD_MANAGER_CONTROLLER;
    io::apply_status(api, &object.name_any(), status, manager, None).await?;
    let before = object.status.as_ref();
    let before = before.map(|status| status.conditions.as_slice());
    context
        .events
        .turned(
            object,
            types::READY,
            before.unwrap_or_default(),
            &status.conditions,
        )
        .await;
    Ok(())
}
