//! Carries out the planner's steps. It chooses nothing.

use super::observe::Observed;
use crate::context::Context;
use crate::io;
use crate::problem::Error;
use api::{EdgeRouter, ZitiRouter, names, reasons};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};
use plan::edge_router::Problem;
use plan::set::{Step, TokenValue, TokenWrite, extra, render};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Debug;
use tracing::info;

const MANAGER: &str = names::FIELD_MANAGER_ROUTER;

pub(super) async fn apply(
    context: &Context,
    api: &Api<ZitiRouter>,
    object: &ZitiRouter,
    observed: &Observed,
    step: &Step,
) -> Result<(), Error> {
    let namespace = object.namespace().unwrap_or_default();
    let (name, version) = (
        object.name_any(),
        object.resource_version().unwrap_or_default(),
    );
    let path = io::path(object);
    match step {
        Step::AddFinalizer => {
            let finalizers = io::with_finalizer(object, names::FINALIZER_ROUTER);
            io::set_finalizers(api, &name, &version, &finalizers, MANAGER).await?;
        }
        Step::ReleaseFinalizer => {
            let finalizers = io::without_finalizer(object, names::FINALIZER_ROUTER);
            io::set_finalizers(api, &name, &version, &finalizers, MANAGER).await?;
            info!(router = path, "let go");
        }
        Step::ApplyService(service) => {
            claim(context, object, service.as_ref(), &observed.services).await?;
        }
        Step::ApplyConfigMap(map) => {
            claim(context, object, map.as_ref(), &observed.config_maps).await?;
        }
        Step::ApplyEdgeRouter(er) => {
            claim(context, object, er.as_ref(), &observed.edge_routers).await?;
        }
        Step::ApplyStatefulSet(set) => {
            let named = |before: &&StatefulSet| before.metadata.name == set.metadata.name;
            let before = observed.stateful_sets.iter().find(named);
            claim(
                context,
                object,
                set.as_ref(),
                before.map(std::slice::from_ref).unwrap_or_default(),
            )
            .await?;
            let replicas = |set: &StatefulSet| {
                set.spec
                    .as_ref()
                    .and_then(|spec| spec.replicas)
                    .unwrap_or(0)
            };
            let (had, has) = (before.map_or(0, replicas), replicas(set));
            let workload = set.name_any();
            info!(router = path, workload, had, has, "applied a StatefulSet");
            if had != has {
                context
                    .events
                    .done(
                        object,
                        "Scaled",
                        format!("StatefulSet {workload} runs {has} members now, {had} before"),
                    )
                    .await;
            }
        }
        Step::CopyProvidedTokens => copy_provided(context, object).await?,
        Step::ReportAgent {
            edge_router,
            report,
        } => {
            let api: Api<EdgeRouter> = Api::namespaced(context.client.clone(), &namespace);
            io::apply_status(&api, edge_router, &json!({"agent": report}), MANAGER, None).await?;
        }
        Step::WriteTokens(write) => write_tokens(context, object, observed, write).await?,
        Step::DeletePod { name, uid, why } => {
            io::delete::<Pod>(context, &namespace, name, Some(uid)).await?;
            info!(router = path, pod = name, why, "replaced a pod");
            context
                .events
                .done(object, "PodReplaced", format!("replaced pod {name}: {why}"))
                .await;
        }
        Step::DeleteStatefulSet { name, uid } => {
            io::delete::<StatefulSet>(context, &namespace, name, Some(uid)).await?;
        }
        Step::DeleteEdgeRouter { name, uid } => {
            io::delete::<EdgeRouter>(context, &namespace, name, Some(uid)).await?;
        }
        Step::DeleteService { name } => {
            io::delete::<Service>(context, &namespace, name, None).await?;
        }
        Step::DeleteConfigMap { name } => {
            io::delete::<ConfigMap>(context, &namespace, name, None).await?;
        }
        Step::ApplyExtra(kind, extra) => {
            apply_extra(context, object, observed, *kind, extra).await?;
        }
        Step::DeleteExtra { kind, name } => {
            let resource = kind.resource();
            let api: Api<DynamicObject> =
                Api::namespaced_with(context.client.clone(), &namespace, &resource);
            match api.delete(name, &DeleteParams::default()).await {
                Err(error) if !io::is_not_found(&error) => {
                    let what = format!("{} {name}", kind.kind);
                    return Err(Error::kubernetes("deleting", what)(error));
                }
                _ => {}
            }
        }
        Step::DeleteClaim { name, uid } => {
            io::delete::<PersistentVolumeClaim>(context, &namespace, name, Some(uid)).await?;
            info!(router = path, claim = name, "deleted a volume claim");
        }
        Step::ReleaseInUse {
            edge_router,
            resource_version,
            finalizers,
        } => {
            let api: Api<EdgeRouter> = Api::namespaced(context.client.clone(), &namespace);
            match io::set_finalizers(&api, edge_router, resource_version, finalizers, MANAGER).await
            {
                Err(Error::Kubernetes { source, .. }) if io::is_not_found(&source) => {}
                released => {
                    released?;
                }
            }
        }
    }
    Ok(())
}

/// Apply an object as it was seen: where somebody changed it meanwhile, the
/// write is refused. (While `--cascade=orphan` lets it go, it must not be made
/// ours again.) Where it was not seen among ours, make sure first that it is
/// not what somebody else made under that name.
async fn claim<K>(context: &Context, owner: &ZitiRouter, object: &K, ours: &[K]) -> Result<K, Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Serialize
        + DeserializeOwned
        + Debug,
{
    let namespace = owner.namespace().unwrap_or_default();
    let api: Api<K> = Api::namespaced(context.client.clone(), &namespace);
    let name = object.name_any();
    let known = ours.iter().find(|known| known.name_any() == name);
    let mut version = known.and_then(ResourceExt::resource_version);
    if known.is_none() {
        let kind = K::kind(&());
        let found = api
            .get_metadata_opt(&name)
            .await
            .map_err(Error::kubernetes("reading", format!("{kind} {name}")))?;
        if let Some(found) = found {
            if found.labels().get(names::LABEL_SET) != Some(&owner.name_any()) {
                return Err(not_ours(&kind, &name).into());
            }
            version = found.resource_version();
        }
    }
    let mut object = object.clone();
    object.meta_mut().resource_version = version;
    io::apply(&api, &object, MANAGER).await
}

/// Apply an object of a kind that only some sets have; see [`claim`].
async fn apply_extra(
    context: &Context,
    owner: &ZitiRouter,
    observed: &Observed,
    kind: extra::Kind,
    object: &DynamicObject,
) -> Result<(), Error> {
    let resource = kind.resource();
    let namespace = owner.namespace().unwrap_or_default();
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &namespace, &resource);
    let name = object.name_any();
    let what = || format!("{} {namespace}/{name}", kind.kind);
    let is_same =
        |known: &&DynamicObject| extra::Kind::of(known) == Some(kind) && known.name_any() == name;
    let mut version = observed
        .extras
        .iter()
        .find(is_same)
        .and_then(ResourceExt::resource_version);
    if version.is_none() {
        let found = match api.get_metadata_opt(&name).await {
            Err(error) if kind.optional && io::is_unknown_kind(&error) => {
                return Err(unknown_kind(kind).into());
            }
            found => found.map_err(Error::kubernetes("reading", what()))?,
        };
        if let Some(found) = found {
            if found.labels().get(names::LABEL_SET) != Some(&owner.name_any()) {
                return Err(not_ours(kind.kind, &name).into());
            }
            version = found.resource_version();
        }
    }
    let mut object = object.clone();
    object.metadata.resource_version = version;
    let params = PatchParams::apply(MANAGER).force();
    api.patch(&name, &params, &Patch::Apply(&object))
        .await
        .map_err(Error::kubernetes("applying", what()))?;
    Ok(())
}

fn unknown_kind(kind: extra::Kind) -> Problem {
    let message = format!(
        "this cluster has no {} ({}/{}): install it, or choose another expose type",
        kind.kind, kind.group, kind.version
    );
    Problem::new(reasons::INVALID_SPEC, message)
}

fn not_ours(kind: &str, name: &str) -> Problem {
    let message = format!(
        "{kind} {name} exists and is not this ZitiRouter's: delete or rename it, or rename the ZitiRouter"
    );
    Problem::new(reasons::SOURCE_INVALID, message)
}

/// The tokens written in the object, copied into a Secret, so that no other
/// object repeats them.
async fn copy_provided(context: &Context, object: &ZitiRouter) -> Result<(), Error> {
    let tokens = object.spec.tokens.iter().flatten();
    let data = tokens
        .map(|(member, text)| (member.clone(), ByteString(text.0.as_bytes().to_vec())))
        .collect();
    let name = names::provided_tokens_secret(&object.name_any());
    let secret = Secret {
        metadata: render::metadata(object, &name, None),
        data: Some(data),
        ..Secret::default()
    };
    claim(context, object, &secret, &[]).await?;
    let note = "tokens are written in this object and stay in its history: use tokensSecretRef to keep them out of it";
    context
        .events
        .warn(object, reasons::INLINE_TOKENS, note.to_owned())
        .await;
    Ok(())
}

/// Write keys of the Secret from which the pods get their tokens. One writer,
/// one merge patch, bound to the Secret that was read.
async fn write_tokens(
    context: &Context,
    object: &ZitiRouter,
    observed: &Observed,
    write: &TokenWrite,
) -> Result<(), Error> {
    let api: Api<Secret> = Api::namespaced(
        context.client.clone(),
        &object.namespace().unwrap_or_default(),
    );
    let name = names::tokens_secret(&object.name_any());
    let mut values: BTreeMap<String, Option<ByteString>> =
        write.remove.iter().map(|key| (key.clone(), None)).collect();
    for (member, value) in &write.set {
        let text = match value {
            TokenValue::Empty => Vec::new(),
            TokenValue::Waiting { digest } => waiting(observed, member, digest)?,
        };
        values.insert(member.clone(), Some(ByteString(text)));
    }
    match observed.secret(&name) {
        None => {
            let data = values
                .into_iter()
                .filter_map(|(key, value)| Some((key, value?)))
                .collect();
            let secret = Secret {
                metadata: render::metadata(object, &name, None),
                data: Some(data),
                ..Secret::default()
            };
            api.create(&io::created_by(MANAGER), &secret)
                .await
                .map_err(Error::kubernetes("creating", format!("Secret {name}")))?;
        }
        Some(known) => {
            let patch = json!({
                "metadata": {
                    "uid": known.uid(),
                    "resourceVersion": known.resource_version(),
                    // Also taken back after `--cascade=orphan`.
                    "ownerReferences": [render::owner(object)],
                },
                "data": values,
            });
            let params = PatchParams {
                field_manager: Some(MANAGER.to_owned()),
                ..PatchParams::default()
            };
            api.patch(&name, &params, &Patch::Merge(patch))
                .await
                .map_err(Error::kubernetes("writing", format!("Secret {name}")))?;
        }
    }
    Ok(())
}

fn waiting(observed: &Observed, member: &str, digest: &str) -> Result<Vec<u8>, Error> {
    let secret = observed.secret(&names::enrollment_secret(member));
    let value = secret.and_then(|secret| secret.data.as_ref()?.get(names::TOKEN_KEY));
    value
        .filter(|value| crate::edge_router::digest_of(&value.0).as_deref() == Some(digest))
        .map(|value| value.0.clone())
        .ok_or_else(|| {
            Problem::new(
                reasons::TOKEN_MISSING,
                format!("the token of {member} went away meanwhile; it is looked up again"),
            )
            .into()
        })
}
