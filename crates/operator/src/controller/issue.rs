//! Keeps keys and certificates, which [`sign`] makes, in Secrets.

use super::observe::Observed;
use super::secrets::{INITIALIZE, MADE, RESTORE, RESTORE_ID, RESTORING, credentials};
use super::sign::{self, Data, bytes};
use super::written;
use crate::context::Context;
use crate::io;
use crate::problem::{self, Error};
use api::{ZitiController, names, reasons};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use plan::controller::pki::{Issue, Life};
use plan::controller::render::metadata;
use plan::controller::restore::Order;
use plan::edge_router::Problem;
use serde_json::{Value, json};
use tracing::info;
use ziti::ExposeSecret;

const MANAGER: &str = names::FIELD_MANAGER_CONTROLLER;

fn api(context: &Context, object: &ZitiController) -> Api<Secret> {
    let namespace = object.namespace().unwrap_or_default();
    Api::namespaced(context.client.clone(), &namespace)
}

/// Creates a Secret; one that is there is never written over.
pub(super) async fn create(
    context: &Context,
    object: &ZitiController,
    name: &str,
    data: Data,
) -> Result<(), Error> {
    let data = data.into_iter();
    let secret = Secret {
        metadata: metadata(object, name),
        data: Some(
            data.filter_map(|(key, value)| Some((key, value?)))
                .collect(),
        ),
        ..Secret::default()
    };
    api(context, object)
        .create(&io::created_by(MANAGER), &secret)
        .await
        .map_err(Error::kubernetes("creating", format!("Secret {name}")))?;
    Ok(())
}

/// Changes a Secret that is known, or creates it.
pub(super) async fn write(
    context: &Context,
    object: &ZitiController,
    known: Option<&Secret>,
    name: &str,
    data: Data,
) -> Result<(), Error> {
    if let Some(secret) = known {
        change(context, object, secret, json!({}), data).await
    } else {
        create(context, object, name, data).await
    }
}

/// Changes keys of a Secret, if it is still the one that was read; `null` takes a
/// key away.
pub(super) async fn change(
    context: &Context,
    object: &ZitiController,
    known: &Secret,
    metadata: Value,
    data: Data,
) -> Result<(), Error> {
    let name = known.name_any();
    let mut patch = json!({"metadata": metadata, "data": data});
    patch["metadata"]["uid"] = json!(known.uid());
    patch["metadata"]["resourceVersion"] = json!(known.resource_version());
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    api(context, object)
        .patch(&name, &params, &Patch::Merge(patch))
        .await
        .map_err(Error::kubernetes("writing", format!("Secret {name}")))?;
    Ok(())
}

pub(super) async fn make_root(
    context: &Context,
    object: &ZitiController,
    trust_domain: &str,
    life: Life,
) -> Result<(), Error> {
    let name = names::controller_root_secret(&object.name_any());
    create(context, object, &name, sign::root(trust_domain, life)?).await?;
    info!(
        controller = io::path(object),
        trust_domain, "made the root of a network"
    );
    Ok(())
}

pub(super) async fn renew_root(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
    life: Life,
) -> Result<(), Error> {
    let secret = observed.secrets.root.as_ref().ok_or_else(sign::gone)?;
    let data = sign::renewed_root(secret, life)?;
    change(context, object, secret, json!({}), data).await?;
    info!(
        controller = io::path(object),
        "renewed the root of the network"
    );
    Ok(())
}

pub(super) async fn mark_made(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
) -> Result<(), Error> {
    let secret = observed.secrets.root.as_ref().ok_or_else(sign::gone)?;
    let metadata = json!({"annotations": {MADE: "true", RESTORING: null}});
    change(context, object, secret, metadata, Data::new()).await
}

pub(super) async fn issue(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
    issues: &[Issue],
) -> Result<(), Error> {
    let root = observed.secrets.root.as_ref().ok_or_else(sign::gone)?;
    let known = observed.secrets.pki.as_ref();
    let data = sign::issued(root, known, issues)?;
    for issue in issues {
        info!(
            controller = io::path(object),
            member = issue.member,
            certificate = issue.certificate.is_some(),
            signer = issue.signer.is_some(),
            "issued certificates"
        );
    }
    let Some(secret) = known else {
        let name = names::controller_pki_secret(&object.name_any());
        return create(context, object, &name, data).await;
    };
    // A new trust bundle alone is something new as well: who enrolls at a member is
    // given the one that it has read.
    let given: Vec<String> = issues.iter().map(|issue| issue.member.clone()).collect();
    let metadata = written::noting_others(secret, &given);
    change(context, object, secret, metadata, data).await
}

pub(super) async fn forget(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
    members: &[String],
) -> Result<(), Error> {
    let Some(secret) = &observed.secrets.pki else {
        return Ok(());
    };
    let metadata = written::noting_others(secret, members);
    change(context, object, secret, metadata, sign::forgotten(members)).await
}

pub(super) async fn make_admin(context: &Context, object: &ZitiController) -> Result<(), Error> {
    let password = ziti::random::password()
        .map_err(|error| Error::from(Problem::new(reasons::REFUSED, problem::chain(&error))))?;
    let name = names::controller_admin_secret(&object.name_any());
    let data = Data::from([
        ("username".to_owned(), Some(bytes("admin"))),
        ("password".to_owned(), Some(bytes(password.expose_secret()))),
    ]);
    create(context, object, &name, data).await
}

/// Who may make the network, and with which administrator, or which database it is
/// to take instead; emptied once it is
/// made, so that the password stands in no pod.
pub(super) async fn write_bootstrap(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
    (initialize, restore): (Option<&str>, Option<&Order>),
) -> Result<(), Error> {
    let given = initialize.zip(credentials(&observed.secrets));
    let values = match &given {
        Some((member, (username, password))) => {
            [*member, username, password, "Default Admin"].map(|text| Some(bytes(text)))
        }
        None => [const { None }; 4],
    };
    let keys = [INITIALIZE, "username", "password", "name"].map(str::to_owned);
    let mut data: Data = keys.into_iter().zip(values).collect();
    let order = |of: fn(&Order) -> &str| restore.map(|restore| bytes(of(restore)));
    data.insert(RESTORE.to_owned(), order(|restore| &restore.file));
    data.insert(RESTORE_ID.to_owned(), order(|restore| &restore.id));
    let name = names::controller_bootstrap_secret(&object.name_any());
    write(
        context,
        object,
        observed.secrets.bootstrap.as_ref(),
        &name,
        data,
    )
    .await
}
