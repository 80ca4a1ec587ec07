//! The ZitiCluster controller: reaches another Kubernetes cluster, judges it, and
//! says so.
//!
//! At rest a look costs the other cluster two small calls a minute. No call of one
//! cluster waits for another: each has a client of its own with deadlines of its
//! own, and each object backs off by itself.

mod access;
pub(crate) mod command;
mod credential;
mod kubeconfig;
mod links;
mod watch;

pub(crate) use access::told;
pub(crate) use links::Links;

use crate::context::Context;
use crate::io;
use crate::problem::{self, Error};
use api::reasons::{self, types};
use api::ziti_cluster::ClusterCredential;
use api::{ZitiCluster, ZitiRouter, names};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, ListParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Config, ResourceExt};
use links::Link;
use plan::edge_router::Problem;
use plan::ziti_cluster::{Answer, Facts, Plan, Step};
use std::collections::HashSet;
use std::sync::Arc;

/// One reconcile: observe, plan, apply, status.
pub(crate) async fn reconcile(
    object: Arc<ZitiCluster>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let path = io::path(object.as_ref());
    let users = users(&context, &object).await?;
    context.clusters.used_by(&path, users.clone());
    let plan = decide(&context, &object, users.len()).await;

    // Apply, and write.
    if apply(&context, &object, &plan).await? {
        context.clusters.forget(&path);
        return Ok(Action::await_change());
    }
    write_status(&context, &object, &plan).await?;
    context.backoff.reset(&backoff_key(&object));
    Ok(Action::requeue(plan.requeue.unsigned_abs()))
}

/// Look at a cluster, and say whether anything may be done there; for whoever only
/// asks.
pub(crate) async fn judge(context: &Context, object: &ZitiCluster) -> Plan {
    decide(context, object, 1).await
}

async fn decide(context: &Context, object: &ZitiCluster, users: usize) -> Plan {
    let answer = look(context, object).await;
    // Plan: no client.
    let plan = plan::ziti_cluster::plan(&Facts {
        object,
        answer: answer.map_err(|problem| told_once(object, problem)),
        users,
        now: Timestamp::now(),
    });
    let path = io::path(object);
    context.clusters.judge(&path, plan.verdict.clone());
    plan
}

/// The ZitiRouters that are placed there, read live where the answer lets it go.
async fn users(
    context: &Context,
    object: &ZitiCluster,
) -> Result<HashSet<ObjectRef<ZitiRouter>>, Error> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let is_user = |router: &ZitiRouter| {
        router.spec.cluster() == Some(&name) && router.namespace().as_ref() == Some(&namespace)
    };
    if object.metadata.deletion_timestamp.is_some() {
        let params = ListParams::default();
        let all = io::list::<ZitiRouter>(&context.client, &namespace, &params).await?;
        return Ok(all
            .iter()
            .filter(|one| is_user(one))
            .map(ObjectRef::from_obj)
            .collect());
    }
    let all = context.stores.routers.state();
    let users = all.iter().filter(|one| is_user(one));
    Ok(users.map(|one| ObjectRef::from_obj(one.as_ref())).collect())
}

/// What the cluster answers.
async fn look(context: &Context, object: &ZitiCluster) -> Result<Answer, Problem> {
    let path = io::path(object);
    let link = link(context, object, &path).await?;
    let (version, latency) = access::version(&link.client).await?;
    let identity = access::identity(&link.client, object).await?;
    let missing = match context.clusters.believed(&path) {
        Some(missing) if identity.is_some() => missing,
        _ => {
            let (client, namespace) = (&link.client, object.remote_namespace());
            let missing = access::missing(client, &namespace).await?;
            let reads_nodes = access::reads_nodes(client).await?;
            context.clusters.learn(&path, &missing, reads_nodes);
            missing
        }
    };
    let latency = SignedDuration::try_from(latency).unwrap_or(SignedDuration::MAX);
    Ok(Answer {
        version,
        latency,
        missing,
        identity,
    })
}

/// The link that the object asks for: the one there is, while what it was made of
/// is unchanged, else a new one.
async fn link(context: &Context, object: &ZitiCluster, path: &str) -> Result<Link, Problem> {
    let inputs = match credential::read(context, object).await {
        // A namespace that is deleted takes the Secret at once, and what is deployed
        // has to be taken away nevertheless.
        Err(problem) if object.metadata.deletion_timestamp.is_some() => {
            let known = context.clusters.get(path);
            return known
                .filter(|_| problem.reason == reasons::SOURCE_MISSING)
                .ok_or(problem);
        }
        read => read?,
    };
    let now = Timestamp::now();
    let known = context.clusters.get(path).filter(|link| {
        link.inputs == inputs.digest && link.renew_at.is_none_or(|renew_at| now < renew_at)
    });
    if let Some(link) = known {
        return Ok(link);
    }
    let (mut config, mut watching) = (inputs.config.clone(), inputs.watching());
    let mut renew_at = None;
    if let ClusterCredential::ServiceAccount(reference) = &object.spec.credential {
        let (token, renew) = credential::token(context, object, reference, now).await?;
        config.auth_info.token = Some(token.clone());
        watching.auth_info.token = Some(token);
        renew_at = Some(renew);
    }
    let link = Link {
        client: client(config)?,
        watching: client(watching)?,
        namespace: object.remote_namespace(),
        inputs: inputs.digest,
        renew_at,
    };
    context.clusters.put(path, link.clone());
    Ok(link)
}

fn client(config: Config) -> Result<Client, Problem> {
    Client::try_from(config).map_err(|error| {
        let message = format!(
            "no client can be made of the credential: {}: check its certificates and keys",
            problem::chain(&error)
        );
        Problem::new(reasons::SOURCE_INVALID, message)
    })
}

/// An outage is told once: how each attempt fails in detail may differ from one to
/// the next, and is not worth a write each time.
fn told_once(object: &ZitiCluster, problem: Problem) -> Problem {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    let told = conditions.into_iter().find(|condition| {
        condition.type_ == types::REACHABLE
            && condition.reason == problem.reason
            && condition.observed_generation == object.metadata.generation
    });
    match told {
        Some(told) if problem.reason == reasons::CLUSTER_UNREACHABLE => {
            Problem::new(problem.reason, told.message.clone())
        }
        _ => problem,
    }
}

/// What to do after a failure.
pub(crate) fn failed(object: &ZitiCluster, error: &Error, context: &Context) -> Action {
    context.backoff.failed(&backoff_key(object), error)
}

fn backoff_key(object: &ZitiCluster) -> String {
    format!("ziticluster/{}", io::path(object))
}

fn api(context: &Context, object: &ZitiCluster) -> Api<ZitiCluster> {
    let namespace = object.namespace().unwrap_or_default();
    Api::namespaced(context.client.clone(), &namespace)
}

/// Returns whether the object was let go.
async fn apply(context: &Context, object: &ZitiCluster, plan: &Plan) -> Result<bool, Error> {
    let version = object.resource_version().unwrap_or_default();
    for step in &plan.steps {
        let finalizers = match step {
            Step::AddFinalizer => io::with_finalizer(object, names::FINALIZER_CLUSTER),
            Step::ReleaseFinalizer => io::without_finalizer(object, names::FINALIZER_CLUSTER),
        };
        io::set_finalizers(
            &api(context, object),
            &object.name_any(),
            &version,
            &finalizers,
            names::FIELD_MANAGER_CLUSTER,
        )
        .await?;
        if *step == Step::ReleaseFinalizer {
            return Ok(true);
        }
    }
    // Let go before, and waiting for somebody else's finalizer.
    let mut held = object.finalizers().iter();
    Ok(object.metadata.deletion_timestamp.is_some()
        && !held.any(|held| held == names::FINALIZER_CLUSTER))
}

async fn write_status(context: &Context, object: &ZitiCluster, plan: &Plan) -> Result<(), Error> {
    if object.status.as_ref() == Some(&plan.status) {
        return Ok(());
    }
    let manager = names::FIELD_MANAGER_CLUSTER;
    let (api, name) = (api(context, object), object.name_any());
    io::apply_status(&api, &name, &plan.status, manager, None).await?;
    let before = object.status.as_ref();
    let before = before.map(|status| status.conditions.as_slice());
    context
        .events
        .turned(
            object,
            types::READY,
            before.unwrap_or_default(),
            &plan.status.conditions,
        )
        .await;
    Ok(())
}
