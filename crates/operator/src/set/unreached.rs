//! Sets whose cluster cannot be worked in: they are left alone, or let go where a
//! person has given the cluster up. One whose cluster nobody has reached yet gets its
//! EdgeRouters and tokens all the same, since the way there may be a router of this
//! very set: [`bootstrap`] has what somebody applies there.

use super::observe::{self, Observed};
use super::{apply, requeue, write_status};
use crate::context::Context;
use crate::problem::Error;
use api::{EdgeRouter, ZitiRouter, names, reasons};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::controller::Action;
use plan::edge_router::Problem;
use plan::foresight::{self, Beginning};
use plan::set::placement::{has_never_run, out_of_reach};
use plan::set::{Step, render};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// What is seen of a set that goes although its cluster cannot be worked in: a person
/// has given that up, or nobody has reached it and nothing can run there. `None` where
/// it has to wait.
pub(super) async fn let_go(
    context: &Context,
    object: &ZitiRouter,
    problem: &Problem,
) -> Result<Option<Observed>, Error> {
    if object.metadata.deletion_timestamp.is_none() {
        return Ok(None);
    }
    let edge_routers = observe::edge_routers(context, object).await?;
    let there = unreached(context, object).filter(|_| has_never_run(&edge_routers));
    let left_behind = there.is_none();
    if left_behind && problem.reason != reasons::CLUSTER_ABANDONED {
        return Ok(None);
    }
    let there = there.unwrap_or_default();
    let observed = observe::without_workloads(context, object, there, edge_routers).await?;
    Ok(Some(Observed {
        left_behind,
        ..observed
    }))
}

/// Do nothing there, and say so.
pub(super) async fn leave_alone(
    context: &Context,
    api: &Api<ZitiRouter>,
    object: &ZitiRouter,
    problem: &Problem,
) -> Result<Action, Error> {
    let edge_routers = observe::edge_routers(context, object).await?;
    let plan = out_of_reach(object, &edge_routers, problem, Timestamp::now());
    if object.metadata.deletion_timestamp.is_none()
        && !object.spec.paused
        && let Some(there) = unreached(context, object)
    {
        let (observed, Beginning { here, .. }) =
            begin(context, object, there, edge_routers).await?;
        for step in &here {
            apply::apply(context, api, object, &observed, step).await?;
        }
    }
    write_status(context, api, object, &plan.status).await?;
    Ok(requeue(&plan))
}

/// The namespace of a set in a cluster that nobody has reached yet.
fn unreached(context: &Context, object: &ZitiRouter) -> Option<String> {
    let namespace = object.namespace().unwrap_or_default();
    let cluster = context.stores.cluster(&namespace, object.spec.cluster()?)?;
    let known = cluster
        .status
        .as_ref()
        .and_then(|status| status.identity.as_ref());
    known.is_none().then(|| cluster.remote_namespace())
}

async fn begin(
    context: &Context,
    object: &ZitiRouter,
    there: String,
    edge_routers: Vec<EdgeRouter>,
) -> Result<(Observed, Beginning), Error> {
    let observed = observe::without_workloads(context, object, there, edge_routers).await?;
    let placed = observed.placed(object);
    let (home, now) = (object.namespace(), Timestamp::now());
    let facts = observed.facts(&placed, home, &context.settings, now);
    let beginning = foresight::beginning(&facts);
    Ok((observed, beginning))
}

/// The objects with which a set begins in its cluster, for somebody who applies them
/// there; the operator takes them for its own when it gets there.
///
/// # Errors
/// Where the set has begun already, or its tokens are not there yet.
pub(crate) async fn bootstrap(
    context: &Context,
    object: &ZitiRouter,
    there: &str,
) -> Result<Vec<Value>, Error> {
    let name = object.name_any();
    let edge_routers = observe::edge_routers(context, object).await?;
    let (observed, beginning) = begin(context, object, there.to_owned(), edge_routers).await?;
    let waits = |what: String| {
        let message = format!("{what}: look at kubectl describe zitirouter {name}");
        Error::from(Problem::new(reasons::TOKEN_MISSING, message))
    };
    let mut tokens = BTreeMap::new();
    for er in &observed.edge_routers {
        let member = er.name_any();
        let token = token(&observed, er).ok_or_else(|| {
            waits(format!(
                "member {member} has no token that waits: it has enrolled already, or is not registered yet"
            ))
        })?;
        tokens.insert(member, token);
    }
    let mut objects = Vec::new();
    let mut members = 0;
    for step in beginning.there {
        match step {
            Step::ApplyService(mut service) => {
                observed.place.leave(&mut service.metadata);
                objects.push(value(service.as_ref()));
            }
            Step::ApplyConfigMap(mut map) => {
                observed.place.leave(&mut map.metadata);
                objects.push(value(map.as_ref()));
            }
            Step::ApplyStatefulSet(mut set) => {
                observed.place.leave(&mut set.metadata);
                members += plan::set::member::replicas(&set);
                objects.push(value(set.as_ref()));
            }
            Step::ApplyExtra(_, mut extra) => {
                observed.place.leave(&mut extra.metadata);
                objects.push(value(extra.as_ref()));
            }
            _ => {}
        }
    }
    if usize::try_from(members) != Ok(tokens.len()) || tokens.is_empty() {
        return Err(waits(format!(
            "{} of its members are registered, and {members} could begin",
            tokens.len()
        )));
    }
    let mut metadata = render::metadata(object, &names::tokens_secret(&name), None);
    observed.place.leave(&mut metadata);
    let secret = Secret {
        metadata,
        data: Some(tokens),
        ..Secret::default()
    };
    // Before the workload, whose pods mount it.
    objects.insert(0, value(&secret));
    Ok(objects)
}

/// The token that waits for a member.
fn token(observed: &Observed, er: &EdgeRouter) -> Option<ByteString> {
    let secret = observed.secret(&names::enrollment_secret(&er.name_any()))?;
    let token = secret.data.as_ref()?.get(names::TOKEN_KEY)?;
    (!token.0.is_empty()).then(|| token.clone())
}

fn value(object: &impl Serialize) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
