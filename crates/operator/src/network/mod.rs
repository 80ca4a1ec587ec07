//! The ZitiNetwork controller: connects to a network, judges it, and says so.

mod observe;

use crate::context::Context;
use crate::controllers::{self, Standing};
use crate::networks::{Connection, Key, Network};
use crate::problem::{self, Error};
use crate::{io, poller, stream};
use api::reasons::types;
use api::{EdgeRouter, ZitiNetwork, names};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use kube::runtime::controller::Action;
use plan::edge_router::Problem;
use plan::network::{Answer, Facts, Plan, Step};
use std::sync::Arc;

/// What a controller in cluster mode says that it can.
const CLUSTER: &str = "HA_CONTROLLER";

/// One reconcile: observe, plan, apply, status.
pub(crate) async fn reconcile(
    object: Arc<ZitiNetwork>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let key: Key = (object.namespace().unwrap_or_default(), object.name_any());
    let (network, new) = context.networks.get_or_insert(&key);
    let plan = look(&context, &object, &network).await?;

    // Tell those who wait, then apply and write.
    share(&context, &object, &network, &plan, new);
    let gone = apply(&context, &object, &plan).await?;
    if gone {
        context.networks.remove(&key);
        return Ok(Action::await_change());
    }
    write_status(&context, &object, &plan).await?;
    context.backoff.reset(&backoff_key(&object));
    Ok(Action::requeue(plan.requeue.unsigned_abs()))
}

/// Observe and plan: what a reconcile knows before it writes.
pub(crate) async fn look(
    context: &Context,
    object: &ZitiNetwork,
    network: &Network,
) -> Result<Plan, Error> {
    // Observe: reads of Secrets and ConfigMaps, and calls to Ziti.
    let answer = match plan::network::ends(object) {
        Some(problem) => Err(problem),
        None => match observe::connect(context, object, network).await {
            Ok(connection) => ask(context, network, &connection).await,
            Err(problem) => Err(problem),
        },
    };
    let answer = answer.map_err(|problem| told_once(object, problem));
    let users = count_users(context, object).await?;
    let credential_expiry = network
        .connection()
        .and_then(|connection| connection.credential_expiry);

    // Plan: no client.
    Ok(plan::network::plan(&Facts {
        object,
        settings: &context.settings,
        answer,
        credential_expiry,
        users,
        now: Timestamp::now(),
    }))
}

/// Keep what was found about the network. Says whether that is news.
pub(crate) fn judge(object: &ZitiNetwork, network: &Network, plan: &Plan) -> bool {
    let plane = object.spec.control_plane.as_ref();
    let names_controllers = plane.is_some_and(|plane| !plane.endpoints.is_empty());
    network.judge(plan.verdict.clone(), names_controllers)
}

/// What to do after a failure.
pub(crate) fn failed(object: &ZitiNetwork, error: &Error, context: &Context) -> Action {
    context.backoff.failed(&backoff_key(object), error)
}

fn backoff_key(object: &ZitiNetwork) -> String {
    format!("zitinetwork/{}", io::path(object))
}

/// An outage is told once: how each attempt fails in detail may differ from one
/// to the next, and is not worth a write each time.
fn told_once(object: &ZitiNetwork, problem: Problem) -> Problem {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    let told = conditions.into_iter().find(|condition| {
        condition.type_ == types::REACHABLE
            && condition.reason == problem.reason
            && condition.observed_generation == object.metadata.generation
    });
    match told {
        Some(told) if problem.reason == api::reasons::CONTROLLER_UNREACHABLE => {
            Problem::new(problem.reason, told.message.clone())
        }
        _ => problem,
    }
}

/// Ask a network who it is.
async fn ask(
    context: &Context,
    network: &Network,
    connection: &Connection,
) -> Result<Answer, Problem> {
    let version = connection
        .client
        .version()
        .await
        .map_err(|error| problem::of_management(&error))?;
    let clustered = |capability: &String| capability == CLUSTER;
    network
        .controllers
        .clustered(version.capabilities.iter().any(clustered));
    let Standing { members, elsewhere } = controllers::follow(context, network, connection).await?;
    let identity = if connection.has_credential {
        let found = connection
            .client
            .default_admin_id()
            .await
            .map_err(|error| problem::of_management(&error))?;
        Some(found.ok_or_else(|| {
            Problem::new(
                api::reasons::FORBIDDEN,
                "the credential does not show the network's default admin, by which the network is told from others: use an admin identity",
            )
        })?)
    } else {
        None
    };
    Ok(Answer {
        version: version.version,
        identity,
        members,
        leads_elsewhere: elsewhere,
    })
}

/// How many EdgeRouters refer to the network; asked only when it matters.
async fn count_users(context: &Context, object: &ZitiNetwork) -> Result<usize, Error> {
    if object.metadata.deletion_timestamp.is_none() {
        return Ok(0);
    }
    let api: Api<EdgeRouter> = Api::namespaced(
        context.client.clone(),
        &object.namespace().unwrap_or_default(),
    );
    let all = api
        .list(&ListParams::default())
        .await
        .map_err(Error::kubernetes("listing", "EdgeRouters"))?;
    let name = object.name_any();
    Ok(all
        .iter()
        .filter(|er| {
            er.spec
                .network_ref
                .as_ref()
                .is_some_and(|reference| reference.name == name)
        })
        .count())
}

fn share(
    context: &Arc<Context>,
    object: &ZitiNetwork,
    network: &Arc<Network>,
    plan: &Plan,
    new: bool,
) {
    let news = judge(object, network, plan);
    if new {
        tokio::spawn(poller::run(context.clone(), network.clone()));
        tokio::spawn(stream::run(context.clone(), network.clone()));
    }
    if news {
        network.wake.notify_waiters();
        for er in poller::edge_routers_of(context, network) {
            context
                .networks
                .wake_edge_router(&network.key.0, &er.name_any());
        }
    }
}

/// Returns whether the object was let go.
async fn apply(context: &Context, object: &ZitiNetwork, plan: &Plan) -> Result<bool, Error> {
    let api: Api<ZitiNetwork> = Api::namespaced(
        context.client.clone(),
        &object.namespace().unwrap_or_default(),
    );
    let (name, version) = (
        object.name_any(),
        object.resource_version().unwrap_or_default(),
    );
    for step in &plan.steps {
        let finalizers = match step {
            Step::AddFinalizer => io::with_finalizer(object, names::FINALIZER_NETWORK),
            Step::ReleaseFinalizer => io::without_finalizer(object, names::FINALIZER_NETWORK),
        };
        io::set_finalizers(
            &api,
            &name,
            &version,
            &finalizers,
            names::FIELD_MANAGER_NETWORK,
        )
        .await?;
        if *step == Step::ReleaseFinalizer {
            return Ok(true);
        }
    }
    // Let go before, and waiting for somebody else's finalizer.
    Ok(object.metadata.deletion_timestamp.is_some()
        && !object
            .finalizers()
            .iter()
            .any(|f| f == names::FINALIZER_NETWORK))
}

async fn write_status(context: &Context, object: &ZitiNetwork, plan: &Plan) -> Result<(), Error> {
    if object.status.as_ref() == Some(&plan.status) {
        return Ok(());
    }
    let api: Api<ZitiNetwork> = Api::namespaced(
        context.client.clone(),
        &object.namespace().unwrap_or_default(),
    );
    io::apply_status(
        &api,
        &object.name_any(),
        &plan.status,
        names::FIELD_MANAGER_NETWORK,
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
        .turned(object, types::READY, before, &plan.status.conditions)
        .await;
    Ok(())
}
