//! The few writes to Kubernetes that all controllers share.

use crate::problem::Error;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;

/// `namespace/name`, for messages.
pub(crate) fn path<K: Resource>(object: &K) -> String {
    match object.meta().namespace.as_deref() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

/// Server-side apply of a whole object.
pub(crate) async fn apply<K>(api: &Api<K>, object: &K, manager: &str) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + Debug,
{
    let params = PatchParams::apply(manager).force();
    api.patch(&object.name_any(), &params, &Patch::Apply(object))
        .await
        .map_err(Error::kubernetes(
            "applying",
            format!("{} {}", K::kind(&()), path(object)),
        ))
}

/// Server-side apply of a status, as its own apply. With a resource version it
/// is refused when somebody changed the object meanwhile.
pub(crate) async fn apply_status<K, S>(
    api: &Api<K>,
    name: &str,
    status: &S,
    manager: &str,
    resource_version: Option<&str>,
) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    S: Serialize,
{
    let mut object = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": name},
        "status": status,
    });
    if let Some(version) = resource_version {
        object["metadata"]["resourceVersion"] = Value::String(version.to_owned());
    }
    let params = PatchParams::apply(manager).force();
    api.patch_status(name, &params, &Patch::Apply(object))
        .await
        .map_err(Error::kubernetes(
            "writing the status of",
            format!("{} {name}", K::kind(&())),
        ))
}

/// Replace the finalizers, if the object is still the one that was seen.
pub(crate) async fn set_finalizers<K>(
    api: &Api<K>,
    name: &str,
    version: &str,
    finalizers: &[String],
    manager: &str,
) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
    let params = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    api.patch(name, &params, &Patch::Merge(patch))
        .await
        .map_err(Error::kubernetes(
            "setting the finalizers of",
            format!("{} {name}", K::kind(&())),
        ))
}

/// The finalizers of an object with one more.
pub(crate) fn with_finalizer<K: Resource>(object: &K, finalizer: &str) -> Vec<String> {
    let mut finalizers = object.meta().finalizers.clone().unwrap_or_default();
    finalizers.push(finalizer.to_owned());
    finalizers
}

/// The finalizers of an object without one.
pub(crate) fn without_finalizer<K: Resource>(object: &K, finalizer: &str) -> Vec<String> {
    object
        .meta()
        .finalizers
        .iter()
        .flatten()
        .filter(|f| *f != finalizer)
        .cloned()
        .collect()
}

/// Whether an object is owned by this very other one.
pub(crate) fn is_owned_by<C: Resource, O: Resource>(child: &C, owner: &O) -> bool {
    let uid = owner.meta().uid.as_ref();
    let mut owners = child.meta().owner_references.iter().flatten();
    owners.any(|reference| Some(&reference.uid) == uid)
}

/// Create parameters with our field manager.
pub(crate) fn created_by(manager: &str) -> PostParams {
    PostParams {
        field_manager: Some(manager.to_owned()),
        ..PostParams::default()
    }
}

/// Whether an error says that the thing is not there.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

/// Whether an error says that the cluster does not know the kind. The answer is
/// then of the server itself, and has no reason in it.
pub(crate) fn is_unknown_kind(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
