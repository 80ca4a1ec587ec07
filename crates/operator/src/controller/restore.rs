//! Carries out what the planner says of a restore. What a Job hands over is opened
//! here, and goes into Secrets.

use super::issue;
use super::observe::Observed;
use super::secrets::{CA, CA_KEY, EMPTY, IDENTITY_KEY, MADE, RESTORED_FROM, RESTORING, text};
use super::sign::{Data, bytes};
use crate::context::Context;
use crate::io;
use crate::problem::{self, Error};
use api::{ZitiController, names, reasons};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use plan::controller::config::files;
use plan::controller::render::metadata;
use plan::controller::restore::Act;
use plan::edge_router::Problem;
use serde_json::json;
use std::collections::BTreeSet;
use tracing::info;
use ziti::ExposeSecret;
use ziti::backup::{self, Identity, Keys};

const MANAGER: &str = names::FIELD_MANAGER_CONTROLLER;

pub(super) async fn apply(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
    act: &Act,
) -> Result<(), Error> {
    let namespace = object.namespace().unwrap_or_default();
    let path = io::path(object);
    match act {
        Act::MakeKey { empty } => make_key(context, object, empty).await,
        Act::CreateClaim(claim) => {
            let api: Api<PersistentVolumeClaim> =
                Api::namespaced(context.client.clone(), &namespace);
            create(&api, claim.as_ref()).await
        }
        Act::CreateJob(job) => {
            let api: Api<Job> = Api::namespaced(context.client.clone(), &namespace);
            create(&api, job.as_ref()).await?;
            info!(controller = path, job = job.name_any(), "fetches a backup");
            Ok(())
        }
        Act::DeleteJob { name, uid } => {
            // As long as it is there, its pod may still write onto the volume.
            let after = DeleteParams::foreground();
            io::delete_with_pods::<Job>(&context.client, &namespace, name, uid, after).await
        }
        Act::Take { keys, snapshot, id } => {
            take(context, object, observed, keys, snapshot, id).await?;
            info!(controller = path, snapshot, "took the keys of a backup");
            let note = format!("restores the network from {snapshot}");
            context.events.done(object, "Restoring", note).await;
            Ok(())
        }
        Act::DeleteKey => {
            let known = observed.secrets.restore.as_ref();
            let uid = known.and_then(ResourceExt::uid);
            let name = names::controller_restore(&object.name_any());
            io::delete::<Secret>(&context.client, &namespace, &name, uid.as_ref()).await
        }
    }
}

/// Creates an object; one that is there is never written over.
async fn create<K>(api: &Api<K>, object: &K) -> Result<(), Error>
where
    K: kube::Resource<DynamicType = ()>
        + serde::Serialize
        + serde::de::DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let what = format!("{} {}", K::kind(&()), object.name_any());
    let created = api.create(&io::created_by(MANAGER), object).await;
    created.map_err(Error::kubernetes("creating", what))?;
    Ok(())
}

async fn make_key(
    context: &Context,
    object: &ZitiController,
    empty: &BTreeSet<String>,
) -> Result<(), Error> {
    let name = names::controller_restore(&object.name_any());
    let namespace = object.namespace().unwrap_or_default();
    let empty: Vec<&str> = empty.iter().map(String::as_str).collect();
    let mut metadata = metadata(object, &name);
    metadata.annotations = Some([(EMPTY.to_owned(), empty.join(","))].into());
    let identity = Identity::generate().expose();
    let data = (IDENTITY_KEY.to_owned(), bytes(identity.expose_secret()));
    let secret = Secret {
        metadata,
        data: Some([data].into()),
        ..Secret::default()
    };
    create(
        &Api::namespaced(context.client.clone(), &namespace),
        &secret,
    )
    .await
}

/// Makes the network's Secrets of what was handed over. The root is the last one:
/// from then on nothing of this is done again.
async fn take(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
    keys: &str,
    snapshot: &str,
    id: &str,
) -> Result<(), Error> {
    let secrets = &observed.secrets;
    let keys = opened(observed, keys)?;
    let name = object.name_any();

    let mut data = Data::new();
    for (member, signer) in &keys.signers {
        let mut put = |file: &str, pem: &str| {
            data.insert(format!("{member}.{file}"), Some(bytes(pem)));
        };
        put(files::SIGNER_KEY, signer.key.expose_pem());
        if let Some(certificate) = &signer.certificate {
            put(files::SIGNER, certificate);
        }
    }
    let pki = names::controller_pki_secret(&name);
    issue::write(context, object, secrets.pki.as_ref(), &pki, data).await?;

    // The database has its administrator; a Secret of another one opens nothing.
    if object.spec.admin_secret_ref.is_none() {
        let data = Data::from([
            ("username".to_owned(), Some(bytes(&keys.admin.username))),
            (
                "password".to_owned(),
                Some(bytes(keys.admin.password.expose_secret())),
            ),
        ]);
        let admin = names::controller_admin_secret(&name);
        issue::write(context, object, secrets.admin.as_ref(), &admin, data).await?;
    }

    let marks = json!({"annotations": {RESTORING: id, RESTORED_FROM: snapshot, MADE: null}});
    if let Some(known) = &secrets.root {
        return issue::change(context, object, known, marks, Data::new()).await;
    }
    let root = names::controller_root_secret(&name);
    let mut metadata = metadata(object, &root);
    metadata.annotations = Some(
        [
            (RESTORING.to_owned(), id.to_owned()),
            (RESTORED_FROM.to_owned(), snapshot.to_owned()),
        ]
        .into(),
    );
    let secret = Secret {
        metadata,
        data: Some(
            [
                (CA.to_owned(), bytes(&keys.root.certificate)),
                (CA_KEY.to_owned(), bytes(keys.root.key.expose_pem())),
            ]
            .into(),
        ),
        ..Secret::default()
    };
    let namespace = object.namespace().unwrap_or_default();
    create(
        &Api::namespaced(context.client.clone(), &namespace),
        &secret,
    )
    .await
}

fn opened(observed: &Observed, keys: &str) -> Result<Keys, Error> {
    let failed = |why: String| {
        let message = format!("what the Job of the restore handed over cannot be used: {why}");
        Error::from(Problem::new(reasons::RESTORE_FAILED, message))
    };
    let key = observed.secrets.restore.as_ref();
    let key = key.and_then(|secret| text(secret, IDENTITY_KEY));
    let key = key.ok_or_else(|| failed("its key went away meanwhile".to_owned()))?;
    let said = |error: backup::BackupError| failed(problem::chain(&error));
    let identity = Identity::parse(&key).map_err(said)?;
    backup::open(keys, &identity).map_err(said)
}
