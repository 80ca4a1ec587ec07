//! The ZitiRouter controller: workloads and members, never the Ziti API.

mod apply;
mod observe;
pub(crate) mod orphans;
mod refusal;
mod unreached;

pub(crate) use unreached::bootstrap;

use crate::context::Context;
use crate::io;
use crate::place::Place;
use crate::problem::Error;
use api::reasons::types;
use api::{ZitiRouter, ZitiRouterStatus, names};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::controller::Action;
use plan::set::{Plan, Step, after_failure};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, SemaphorePermit};
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
    let _turn = turn(&context, &object).await;
    let observed = match Place::of(&context, &object) {
        Ok(place) => observe::observe(&context, &object, place).await,
        Err(problem) => match unreached::let_go(&context, &object, &problem).await? {
            Some(observed) => Ok(observed),
            None => return unreached::leave_alone(&context, &api, &object, &problem).await,
        },
    };
    // Observe: reads, live.
    let observed = observed.inspect_err(|error| suspect(&context, &object, error))?;
    // Last, whether the object is still the one at hand: what its deletion did
    // to the others (`--cascade=orphan` takes the owner off them) must not be
    // seen before the deletion itself.
    if !io::is_current(&api, &object).await? {
        return Ok(Action::requeue(STALE));
    }

    // Plan: no client.
    let placed = observed.placed(&object);
    let facts = observed.facts(
        &placed,
        object.namespace(),
        &context.settings,
        Timestamp::now(),
    );
    let plan = plan::set::plan(&facts);

    // Apply: writes, in the plan's order, up to the first that fails.
    for step in &plan.steps {
        if let Err(error) = apply::apply(&context, &api, &object, &observed, step).await {
            suspect(&context, &object, &error);
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
            // It may have been the last that held the cluster.
            if let Some(cluster) = cluster(&object) {
                context.clusters.look_at(&cluster);
            }
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
    Ok(requeue(&plan))
}

fn requeue(plan: &Plan) -> Action {
    plan.requeue.map_or_else(Action::await_change, |after| {
        Action::requeue(after.unsigned_abs())
    })
}

/// The turn to work: sets whose workloads are in this cluster share theirs, those of
/// each other cluster share its own. No cluster holds up another one.
async fn turn<'a>(context: &'a Context, object: &ZitiRouter) -> Option<Turn<'a>> {
    let Some(cluster) = cluster(object) else {
        return context.turns.acquire().await.ok().map(Turn::Here);
    };
    let permits = context.clusters.permits(&cluster)?;
    permits.acquire_owned().await.ok().map(Turn::Afar)
}

/// Held while it is somebody's turn.
#[expect(dead_code, reason = "what it holds is given back when it is dropped")]
enum Turn<'a> {
    Here(SemaphorePermit<'a>),
    Afar(OwnedSemaphorePermit),
}

/// `namespace/name` of the ZitiCluster, where the set is in one.
fn cluster(object: &ZitiRouter) -> Option<String> {
    let namespace = object.namespace().unwrap_or_default();
    Some(format!("{namespace}/{}", object.spec.cluster()?))
}

/// Where a call of another cluster failed by the way there, look at the cluster now.
fn suspect(context: &Context, object: &ZitiRouter, error: &Error) {
    if let Some(cluster) = cluster(object).filter(|_| error.is_of_link()) {
        context.clusters.look_at(&cluster);
    }
}

/// What a reconcile would see, for whoever only asks; and the object as the planner
/// sees it.
pub(crate) async fn look(context: &Context, object: &ZitiRouter) -> Result<Seen, Error> {
    let place = Place::of(context, object)?;
    let observed = observe::observe(context, object, place).await?;
    let placed = observed.placed(object).into_owned();
    Ok(Seen {
        home: object.namespace(),
        placed,
        observed,
    })
}

/// What was seen of a set.
pub(crate) struct Seen {
    home: Option<String>,
    placed: ZitiRouter,
    observed: observe::Observed,
}

impl Seen {
    /// What the planner sees.
    pub(crate) fn facts<'a>(&'a self, context: &'a Context) -> plan::set::Facts<'a> {
        let (home, now) = (self.home.clone(), Timestamp::now());
        self.observed
            .facts(&self.placed, home, &context.settings, now)
    }
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
