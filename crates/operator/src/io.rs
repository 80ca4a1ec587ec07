//! The few reads of and writes to Kubernetes that all controllers share.

use crate::problem::Error;
use futures::future::try_join_all;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{DynamicObject, TypeMeta};
use kube::{Client, Resource, ResourceExt};
use plan::set::extra::{KINDS, Kind};
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

/// Objects of a namespace, read live.
pub(crate) async fn list<K>(
    client: &Client,
    namespace: &str,
    params: &ListParams,
) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let listed = api.list(params).await.map_err(Error::kubernetes(
        "listing",
        format!("{} of {namespace}", K::plural(&())),
    ))?;
    Ok(listed.items)
}

/// Objects of the kinds that only some sets have. A list leaves out what kind its
/// items are of.
pub(crate) async fn list_extras(
    client: &Client,
    namespace: &str,
    params: &ListParams,
) -> Result<Vec<DynamicObject>, Error> {
    let reads = KINDS
        .iter()
        .map(async |kind| list_kind(client, namespace, kind, params).await);
    let read = try_join_all(reads).await?;
    Ok(read.into_iter().flatten().flatten().collect())
}

/// Objects of one such kind; `None` where the cluster lacks it.
pub(crate) async fn list_kind(
    client: &Client,
    namespace: &str,
    kind: &Kind,
    params: &ListParams,
) -> Result<Option<Vec<DynamicObject>>, Error> {
    let resource = kind.resource();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let listed = match api.list(params).await {
        Ok(listed) => listed.items,
        Err(error) if kind.optional && is_unknown_kind(&error) => return Ok(None),
        Err(error) => {
            let what = format!("{} of {namespace}", kind.plural);
            return Err(Error::kubernetes("listing", what)(error));
        }
    };
    let types = TypeMeta {
        api_version: resource.api_version,
        kind: resource.kind,
    };
    let known = listed.into_iter().map(|object| DynamicObject {
        types: Some(types.clone()),
        ..object
    });
    Ok(Some(known.collect()))
}

/// Delete an object, if it is still the one of that uid. One that is gone is no
/// error.
pub(crate) async fn delete<K>(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: Option<&String>,
) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let preconditions = uid.map(|uid| Preconditions {
        uid: Some(uid.clone()),
        resource_version: None,
    });
    let params = DeleteParams {
        preconditions,
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(error) if is_not_found(&error) => Ok(()),
        Err(error) => Err(Error::kubernetes(
            "deleting",
            format!("{} {name}", K::kind(&())),
        )(error)),
    }
}

/// The same for a Job, or what makes Jobs: by default their pods would stay. `params` say whether it
/// goes before them or after.
pub(crate) async fn delete_with_pods<K>(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
    params: DeleteParams,
) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let params = params.preconditions(Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    });
    match api.delete(name, &params).await {
        Err(error) if !is_not_found(&error) => {
            let what = format!("{} {name}", K::kind(&()));
            Err(Error::kubernetes("deleting", what)(error))
        }
        _ => Ok(()),
    }
}

/// The same for an object of a kind that only some have.
pub(crate) async fn delete_extra(
    client: &Client,
    namespace: &str,
    kind: Kind,
    name: &str,
) -> Result<(), Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind.resource());
    match api.delete(name, &DeleteParams::default()).await {
        Err(error) if !is_not_found(&error) => {
            let what = format!("{} {name}", kind.kind);
            Err(Error::kubernetes("deleting", what)(error))
        }
        _ => Ok(()),
    }
}

/// Whether the object, read by the watch, is what the API server has now: its
/// wish and its deletion, not its status. Not so where it is gone.
pub(crate) async fn is_current<K>(api: &Api<K>, object: &K) -> Result<bool, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let (kind, name) = (K::kind(&()), object.name_any());
    let now = api
        .get_metadata_opt(&name)
        .await
        .map_err(Error::kubernetes("reading", format!("{kind} {name}")))?;
    Ok(now.is_some_and(|now| {
        now.metadata.uid == object.meta().uid && now.metadata.generation == object.meta().generation
    }))
}
