//! Makes keys and certificates, and keeps them in Secrets.

use super::observe::Observed;
use super::secrets::{
    CA, CA_KEY, INITIALIZE, MADE, RESTORE, RESTORE_ID, RESTORING, credentials, text,
};
use crate::context::Context;
use crate::io;
use crate::problem::{self, Error};
use api::{ZitiController, names, reasons};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use plan::controller::config::files;
use plan::controller::pki::{Issue, Life};
use plan::controller::render::metadata;
use plan::controller::restore::Order;
use plan::edge_router::Problem;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use tracing::info;
use ziti::ExposeSecret;
use ziti::authority::{Authority, AuthorityError, Validity};
use ziti::pki::{Key, Sans};

const MANAGER: &str = names::FIELD_MANAGER_CONTROLLER;

pub(super) fn told(error: &AuthorityError) -> Error {
    Problem::new(reasons::ROOT_UNUSABLE, problem::chain(error)).into()
}

pub(super) fn of(life: Life) -> Validity {
    Validity {
        not_before: life.from,
        not_after: life.until,
    }
}

fn api(context: &Context, object: &ZitiController) -> Api<Secret> {
    let namespace = object.namespace().unwrap_or_default();
    Api::namespaced(context.client.clone(), &namespace)
}

/// Keys of a Secret and their values; those without one go.
pub(super) type Data = BTreeMap<String, Option<ByteString>>;

pub(super) fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

/// Creates a Secret; one that is there is never written over.
async fn create(
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
    let root = Authority::root(trust_domain, of(life)).map_err(|error| told(&error))?;
    let name = names::controller_root_secret(&object.name_any());
    let data = Data::from([
        (CA.to_owned(), Some(bytes(root.cert_pem()))),
        (CA_KEY.to_owned(), Some(bytes(root.key().expose_pem()))),
    ]);
    create(context, object, &name, data).await?;
    info!(
        controller = io::path(object),
        trust_domain, "made the root of a network"
    );
    Ok(())
}

/// The root that is kept.
pub(super) fn root(observed: &Observed) -> Result<(&Secret, Authority, String), Error> {
    let gone = || {
        let message = "the root of the network's certificates went away meanwhile";
        Error::from(Problem::new(reasons::ROOT_UNUSABLE, message))
    };
    let secret = observed.secrets.root.as_ref().ok_or_else(gone)?;
    let bundle = text(secret, CA).ok_or_else(gone)?;
    let key = text(secret, CA_KEY).ok_or_else(gone)?;
    let key = Key::from_pem(&key).map_err(|error| told(&error.into()))?;
    let first = format!(
        "{}{END}",
        bundle.split_once(END).map_or("", |(first, _)| first)
    );
    let authority = Authority::load(&first, key).map_err(|error| told(&error))?;
    Ok((secret, authority, bundle))
}

const END: &str = "-----END CERTIFICATE-----\n";

/// The new certificate goes before the old one, which stays in the bundle: both
/// are of one key.
pub(super) async fn renew_root(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
    life: Life,
) -> Result<(), Error> {
    let (secret, authority, bundle) = root(observed)?;
    let renewed = authority.renewed(of(life)).map_err(|error| told(&error))?;
    // Of those before it, the last one alone.
    let last = format!(
        "{}{END}",
        bundle.split_once(END).map_or("", |(first, _)| first)
    );
    let bundle = format!("{}{last}", renewed.cert_pem());
    let data = Data::from([(CA.to_owned(), Some(bytes(&bundle)))]);
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
    let (secret, ..) = root(observed)?;
    let metadata = json!({"annotations": {MADE: "true", RESTORING: null}});
    change(context, object, secret, metadata, Data::new()).await
}

pub(super) async fn issue(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
    issues: &[Issue],
) -> Result<(), Error> {
    let (_, root, bundle) = root(observed)?;
    let known = observed.secrets.pki.as_ref();
    let mut data = Data::from([(CA.to_owned(), Some(bytes(&bundle)))]);
    for issue in issues {
        let member = &issue.member;
        let key_of = |file: &str| format!("{member}.{file}");
        if let Some(life) = issue.certificate {
            let (cert, key) = root
                .controller_certificate(member, &sans(&issue.names), &issue.trust_domain, of(life))
                .map_err(|error| told(&error))?;
            data.insert(key_of(files::CERT), Some(bytes(&cert)));
            data.insert(key_of(files::KEY), Some(bytes(key.expose_pem())));
        }
        if let Some(life) = issue.signer {
            let key = known.and_then(|secret| text(secret, &key_of(files::SIGNER_KEY)));
            let key = key.and_then(|pem| Key::from_pem(&pem).ok());
            let signer = root
                .signer(member, key, of(life))
                .map_err(|error| told(&error))?;
            let chain = format!("{}{}", signer.cert_pem(), root.cert_pem());
            data.insert(key_of(files::SIGNER), Some(bytes(&chain)));
            data.insert(
                key_of(files::SIGNER_KEY),
                Some(bytes(signer.key().expose_pem())),
            );
        }
        info!(
            controller = io::path(object),
            member,
            certificate = issue.certificate.is_some(),
            signer = issue.signer.is_some(),
            "issued certificates"
        );
    }
    let name = names::controller_pki_secret(&object.name_any());
    write(context, object, known, &name, data).await
}

fn sans(names: &[String]) -> Sans {
    let mut sans = Sans::default();
    for name in names {
        match name.parse::<IpAddr>() {
            Ok(ip) => sans.ips.push(ip),
            Err(_) => sans.dns.push(name.clone()),
        }
    }
    sans
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
    let of_members = members.iter().flat_map(|member| {
        let files = files::OF_MEMBER.iter();
        files.map(move |file| (format!("{member}.{file}"), None))
    });
    change(context, object, secret, json!({}), of_members.collect()).await
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
