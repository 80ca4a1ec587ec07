//! Carries out the planner's steps. It chooses nothing.

use super::observe::Observed;
use super::{backup, issue, issuer, network, restore};
use crate::claim::Claimant;
use crate::context::Context;
use crate::io;
use crate::problem::Error;
use api::{ZitiController, ZitiNetwork, names};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use plan::controller::Step;
use serde_json::json;
use tracing::info;

const MANAGER: &str = names::FIELD_MANAGER_CONTROLLER;

pub(super) async fn apply(
    context: &Context,
    api: &Api<ZitiController>,
    object: &ZitiController,
    observed: &Observed,
    step: &Step,
) -> Result<(), Error> {
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    let version = object.resource_version().unwrap_or_default();
    let path = io::path(object);
    let ours = Claimant::new(context, object, names::LABEL_CONTROLLER, MANAGER);
    match step {
        Step::AddFinalizer => {
            let finalizers = io::with_finalizer(object, names::FINALIZER_CONTROLLER);
            io::set_finalizers(api, &name, &version, &finalizers, MANAGER).await?;
        }
        Step::ReleaseFinalizer => {
            let finalizers = io::without_finalizer(object, names::FINALIZER_CONTROLLER);
            io::set_finalizers(api, &name, &version, &finalizers, MANAGER).await?;
            info!(controller = path, "let go");
        }
        Step::ApplyService(service) => {
            ours.apply(service.as_ref(), &observed.services).await?;
        }
        Step::ApplyConfigMap(map) => {
            ours.apply(map.as_ref(), &observed.config_maps).await?;
        }
        Step::ApplyStatefulSet(set) => {
            let known = observed.stateful_set.as_ref();
            let known = known.map(std::slice::from_ref).unwrap_or_default();
            ours.apply(set.as_ref(), known).await?;
            info!(controller = path, "applied the StatefulSet");
        }
        Step::ApplyNetwork(wanted) => {
            let known = observed.network.as_ref();
            let known = known.map(std::slice::from_ref).unwrap_or_default();
            ours.apply(wanted.as_ref(), known).await?;
        }
        Step::ApplyExtra(kind, extra) => ours.apply_extra(*kind, extra, &observed.extras).await?,
        Step::MakeRoot { trust_domain, life } => {
            issue::make_root(context, object, trust_domain, *life).await?;
        }
        Step::RenewRoot { life } => issue::renew_root(context, object, observed, *life).await?,
        Step::Issue(issues) => issue::issue(context, object, observed, issues).await?,
        Step::KeepTrust {
            trust_domain,
            bundle,
        } => issuer::keep_trust(context, object, observed, trust_domain, bundle).await?,
        Step::Adopt(given) => issuer::adopt(context, object, observed, given).await?,
        Step::Reissue(names) => issuer::reissue(context, object, observed, names).await?,
        Step::ForgetMembers(members) => {
            issue::forget(context, object, observed, members).await?;
        }
        Step::MarkMade => issue::mark_made(context, object, observed).await?,
        Step::MakeAdmin => issue::make_admin(context, object).await?,
        Step::WriteBootstrap {
            initialize,
            restore,
        } => {
            let orders = (initialize.as_deref(), restore.as_ref());
            issue::write_bootstrap(context, object, observed, orders).await?;
        }
        Step::Backup(act) => backup::apply(context, object, observed, &ours, act).await?,
        Step::Restore(act) => restore::apply(context, object, observed, act).await?,
        Step::AddMember { member, address } => {
            let age = age(observed, member);
            network::add_member(context, object, member, address, age).await?;
        }
        Step::RemoveMember { member } => network::remove_member(context, object, member).await?,
        Step::TransferLeadership { to } => {
            network::transfer_leadership(context, object, to).await?;
        }
        Step::DeletePod { name, uid, why } => {
            io::delete::<Pod>(&context.client, &namespace, name, Some(uid)).await?;
            info!(controller = path, pod = name, why, "replaced a pod");
            let note = format!("replaced pod {name}: {why}");
            context.events.done(object, "PodReplaced", note).await;
        }
        Step::MakePolicies => network::make_policies(context, object).await?,
        Step::DeletePolicies => network::delete_policies(context, object).await?,
        Step::MakeOperatorIdentity { serial } => {
            network::make_identity(context, object, *serial).await?;
        }
        Step::DeleteIdentities(ids) => network::delete_identities(context, object, ids).await?,
        Step::EndNetwork => end_network(context, &namespace, &name).await?,
        Step::DeleteNetwork { uid } => {
            io::delete::<ZitiNetwork>(&context.client, &namespace, &name, Some(uid)).await?;
        }
        Step::DeleteStatefulSet { uid } => {
            let workload = names::controller_workload(&name);
            io::delete::<StatefulSet>(&context.client, &namespace, &workload, Some(uid)).await?;
        }
        Step::DeleteService { name } => {
            io::delete::<Service>(&context.client, &namespace, name, None).await?;
        }
        Step::DeleteConfigMap { name } => {
            io::delete::<ConfigMap>(&context.client, &namespace, name, None).await?;
        }
        Step::DeleteExtra { kind, name } => {
            io::delete_extra(&context.client, &namespace, *kind, name).await?;
        }
        Step::DeleteClaim { name, uid } => {
            io::delete::<PersistentVolumeClaim>(&context.client, &namespace, name, Some(uid))
                .await?;
            info!(controller = path, claim = name, "deleted a volume claim");
        }
        Step::DeleteSecrets => delete_secrets(context, object, observed).await?,
    }
    Ok(())
}

/// How long a member's pod has been there.
fn age(observed: &Observed, member: &str) -> SignedDuration {
    let pod = observed.pods.iter().find(|pod| pod.name_any() == member);
    let made = pod.and_then(|pod| pod.metadata.creation_timestamp.as_ref());
    made.map_or(SignedDuration::ZERO, |made| {
        Timestamp::now().duration_since(made.0)
    })
}

async fn end_network(context: &Context, namespace: &str, name: &str) -> Result<(), Error> {
    let api: Api<ZitiNetwork> = Api::namespaced(context.client.clone(), namespace);
    let patch = json!({"metadata": {"annotations": {names::ANNOTATION_NETWORK_ENDS: "true"}}});
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match api.patch(name, &params, &Patch::Merge(patch)).await {
        Err(error) if !io::is_not_found(&error) => {
            let what = format!("ZitiNetwork {name}");
            Err(Error::kubernetes("annotating", what)(error))
        }
        _ => Ok(()),
    }
}

/// Those that the operator made, and no others.
async fn delete_secrets(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
) -> Result<(), Error> {
    let namespace = object.namespace().unwrap_or_default();
    let held = &observed.secrets;
    let all = [
        &held.bootstrap,
        &held.operator,
        &held.admin,
        &held.pki,
        &held.root,
    ];
    let issued = held.issued.iter().flatten();
    for secret in all.into_iter().flatten().chain(issued) {
        let labels = secret.labels();
        let ours = labels.get(names::LABEL_MANAGED_BY).map(String::as_str) == Some(names::MANAGER)
            && labels.get(names::LABEL_CONTROLLER) == Some(&object.name_any());
        if ours {
            let uid = secret.uid();
            io::delete::<Secret>(
                &context.client,
                &namespace,
                &secret.name_any(),
                uid.as_ref(),
            )
            .await?;
        }
    }
    Ok(())
}
