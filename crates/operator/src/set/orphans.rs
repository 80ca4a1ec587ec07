//! EdgeRouters whose ZitiRouter is gone (`--cascade=orphan`) live on, and keep
//! their `in-use` hold while a pod runs with their identity. Where such an
//! EdgeRouter is deleted, somebody must still see the pod end: this does, and
//! nothing else. Members of a ZitiRouter that exists are its own affair.

use crate::context::Context;
use crate::io;
use crate::place::Place;
use crate::problem::Error;
use api::{EdgeRouter, ZitiRouter, names, reasons};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use kube::runtime::controller::Action;
use plan::set::{Step, release_orphan};
use std::sync::Arc;
use tracing::info;

pub(crate) async fn reconcile(
    object: Arc<EdgeRouter>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let held = object
        .finalizers()
        .iter()
        .any(|f| f == names::FINALIZER_IN_USE);
    let Some(set) = object.labels().get(names::LABEL_SET) else {
        return Ok(Action::await_change());
    };
    if object.metadata.deletion_timestamp.is_none() || !held {
        return Ok(Action::await_change());
    }
    let namespace = object.namespace().unwrap_or_default();
    let member = object.name_any();
    let client = || context.client.clone();
    let sets: Api<ZitiRouter> = Api::namespaced(client(), &namespace);
    let owner = sets.get_metadata_opt(set).await;
    if owner
        .map_err(Error::kubernetes("reading", format!("ZitiRouter {set}")))?
        .is_some()
    {
        return Ok(Action::await_change());
    }
    // The StatefulSets before the pods: a pod that is not there was not wanted
    // either.
    let of_set = ListParams::default().labels(&format!("{}={set}", names::LABEL_SET));
    let (workloads, pods) = match Place::of_orphan(&context, &object, set) {
        Ok(place) => (
            place.list::<StatefulSet>(&of_set).await?,
            place.list::<Pod>(&of_set).await?,
        ),
        // What is left behind there is nobody's any more.
        Err(problem) if problem.reason == reasons::CLUSTER_ABANDONED => (Vec::new(), Vec::new()),
        Err(problem) => return Err(problem.into()),
    };
    if let Some(Step::ReleaseInUse {
        resource_version,
        finalizers,
        ..
    }) = release_orphan(&object, &workloads, &pods)
    {
        let api: Api<EdgeRouter> = Api::namespaced(client(), &namespace);
        let manager = names::FIELD_MANAGER_ROUTER;
        io::set_finalizers(&api, &member, &resource_version, &finalizers, manager).await?;
        info!(
            edge_router = io::path(object.as_ref()),
            "its pod is gone, and so is its ZitiRouter"
        );
    }
    Ok(Action::await_change())
}

/// What to do after a failure.
pub(crate) fn failed(object: &EdgeRouter, error: &Error, context: &Context) -> Action {
    context.backoff.failed(&backoff_key(object), error)
}

fn backoff_key(object: &EdgeRouter) -> String {
    format!("orphan/{}", io::path(object))
}
