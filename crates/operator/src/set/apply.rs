//! Carries out the planner's steps. It chooses nothing.

use super::observe::Observed;
use crate::claim::Claimant;
use crate::context::Context;
use crate::io;
use crate::problem::Error;
use api::{EdgeRouter, ZitiRouter, names, reasons};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::core::ObjectMeta;
use plan::edge_router::Problem;
use plan::set::{Step, TokenValue, TokenWrite, render};
use serde_json::json;
use std::borrow::Cow;
use std::collections::BTreeMap;
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
    let place = &observed.place;
    if place.is_unseen() && step.is_of_workloads() {
        return Ok(());
    }
    let here = Claimant::new(context, object, names::LABEL_SET, MANAGER);
    let ours = Claimant::at(Cow::Borrowed(place), object, names::LABEL_SET, MANAGER);
    match step {
        Step::AddFinalizer => {
            let finalizers = io::with_finalizer(object, names::FINALIZER_ROUTER);
            io::set_finalizers(api, &name, &version, &finalizers, MANAGER).await?;
        }
        Step::ReleaseFinalizer => {
            let finalizers = io::without_finalizer(object, names::FINALIZER_ROUTER);
            if let Some(cluster) = object.spec.cluster().filter(|_| observed.left_behind) {
                let note = format!(
                    "given up with ZitiCluster {cluster}: whatever it has there carries the label {}={name}",
                    names::LABEL_SET
                );
                let events = &context.events;
                events.warn(object, reasons::CLUSTER_ABANDONED, note).await;
            }
            io::set_finalizers(api, &name, &version, &finalizers, MANAGER).await?;
            info!(router = path, "let go");
        }
        Step::ApplyService(service) => {
            ours.apply(service.as_ref(), &observed.services).await?;
        }
        Step::ApplyConfigMap(map) => {
            ours.apply(map.as_ref(), &observed.config_maps).await?;
        }
        Step::ApplyEdgeRouter(er) => {
            here.apply(er.as_ref(), &observed.edge_routers).await?;
        }
        Step::ApplyStatefulSet(set) => {
            let named = |before: &&StatefulSet| before.metadata.name == set.metadata.name;
            let before = observed.stateful_sets.iter().find(named);
            ours.apply(
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
        Step::WriteTokens(write) => write_tokens(object, observed, write).await?,
        Step::DeletePod { name, uid, why } => {
            place.delete::<Pod>(name, Some(uid)).await?;
            info!(router = path, pod = name, why, "replaced a pod");
            context
                .events
                .done(object, "PodReplaced", format!("replaced pod {name}: {why}"))
                .await;
        }
        Step::DeleteStatefulSet { name, uid } => {
            place.delete::<StatefulSet>(name, Some(uid)).await?;
        }
        Step::DeleteEdgeRouter { name, uid } => {
            io::delete::<EdgeRouter>(&context.client, &namespace, name, Some(uid)).await?;
        }
        Step::DeleteService { name } => {
            place.delete::<Service>(name, None).await?;
        }
        Step::DeleteTokens => {
            let tokens = names::tokens_secret(&name);
            place.delete::<Secret>(&tokens, None).await?;
        }
        Step::DeleteConfigMap { name } => {
            place.delete::<ConfigMap>(name, None).await?;
        }
        Step::ApplyExtra(kind, extra) => {
            ours.apply_extra(*kind, extra, &observed.extras).await?;
        }
        Step::DeleteExtra { kind, name } => {
            place.delete_extra(*kind, name).await?;
        }
        Step::DeleteClaim { name, uid } => {
            place
                .delete::<PersistentVolumeClaim>(name, Some(uid))
                .await?;
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
    Claimant::new(context, object, names::LABEL_SET, MANAGER)
        .apply(&secret, &[])
        .await?;
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
    object: &ZitiRouter,
    observed: &Observed,
    write: &TokenWrite,
) -> Result<(), Error> {
    let place = &observed.place;
    let api: Api<Secret> = place.api();
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
    match &observed.mounted {
        None => {
            let data = values
                .into_iter()
                .filter_map(|(key, value)| Some((key, value?)))
                .collect();
            let mut metadata = render::metadata(object, &name, None);
            place.leave(&mut metadata);
            let secret = Secret {
                metadata,
                data: Some(data),
                ..Secret::default()
            };
            api.create(&io::created_by(MANAGER), &secret)
                .await
                .map_err(Error::kubernetes("creating", format!("Secret {name}")))
                .map_err(|error| place.fault(error))?;
        }
        Some(known) => {
            let mut metadata = ObjectMeta {
                uid: known.uid(),
                resource_version: known.resource_version(),
                // Also taken back after `--cascade=orphan`.
                owner_references: Some(vec![render::owner(object)]),
                ..ObjectMeta::default()
            };
            place.leave(&mut metadata);
            let patch = json!({"metadata": metadata, "data": values});
            let params = PatchParams {
                field_manager: Some(MANAGER.to_owned()),
                ..PatchParams::default()
            };
            api.patch(&name, &params, &Patch::Merge(patch))
                .await
                .map_err(Error::kubernetes("writing", format!("Secret {name}")))
                .map_err(|error| place.fault(error))?;
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
