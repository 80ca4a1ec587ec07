//! What is known of backups and of a restore: their objects, read live, and what
//! members without a database say.

use super::observe::Observed;
use super::secrets::{self, CA, EMPTY, IDENTITY_KEY, text};
use crate::context::Context;
use crate::io;
use crate::problem::Error;
use api::controller::BackupStore;
use api::{ZitiController, names};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use plan::controller::Root;
use plan::controller::backup::{ClientPki, Copies};
use plan::controller::restore::{self, Key};
use plan::set::sidecar::SIDECAR_PORT;
use std::collections::BTreeSet;
use std::time::Duration;
use tracing::debug;
use ziti::backup::Identity;

/// How long a sidecar has to answer: it looks at nothing for it.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// What the sidecar of a controller answers that has been in no cluster for a minute,
/// in this life of its process: the text of
/// `crates/agent/src/sidecar/controller/standing.rs`. A test holds the two together.
const OUTSIDE: &str = "the controller has been in no cluster for a minute";

/// The objects; what sidecars say is asked for by [`ask`].
pub(super) async fn read(
    context: &Context,
    namespace: &str,
    object: &ZitiController,
    by_label: &ListParams,
) -> Result<(Option<CronJob>, Vec<Job>, Vec<Pod>), Error> {
    let name = object.name_any();
    let of_jobs = format!("{}={name}", names::LABEL_JOBS);
    let of_jobs = ListParams::default().labels(&of_jobs);
    // Jobs before their pods.
    let (cron_jobs, jobs) = tokio::try_join!(
        io::list::<CronJob>(&context.client, namespace, by_label),
        io::list::<Job>(&context.client, namespace, by_label),
    )?;
    // A pod that fetches a backup may outlive a Job that somebody deleted.
    let pods = if jobs.is_empty() && object.spec.restore_from.is_none() {
        Vec::new()
    } else {
        io::list::<Pod>(&context.client, namespace, &of_jobs).await?
    };
    let own = names::controller_backup(&name);
    let cron_job = cron_jobs.into_iter().find(|job| job.name_any() == own);
    Ok((cron_job, jobs, pods))
}

/// The client certificate and the key, without what must not be told.
pub(super) fn known(observed: &Observed, root: &Root) -> Copies {
    let secrets = &observed.secrets;
    Copies {
        cron_job: observed.cron_job.clone(),
        jobs: observed.jobs.clone(),
        pods: observed.job_pods.clone(),
        certificate: secrets.backup.as_ref().map(|secret| client(secret, root)),
        key: secrets.restore.as_ref().and_then(key),
        missing: observed.missing.clone(),
        outside: observed.outside.clone(),
    }
}

fn client(secret: &Secret, root: &Root) -> ClientPki {
    let Root::Sound(root) = root else {
        return ClientPki {
            leaf: None,
            bundle_is_current: false,
        };
    };
    let facts = secrets::pair(secret, root, "tls.crt", "tls.key");
    ClientPki {
        leaf: facts.map(|facts| secrets::leaf(&facts)),
        bundle_is_current: text(secret, CA).as_ref() == Some(&root.bundle),
    }
}

fn key(secret: &Secret) -> Option<Key> {
    let identity = Identity::parse(&text(secret, IDENTITY_KEY)?).ok()?;
    let empty = secret.annotations().get(EMPTY);
    let empty = empty.iter().flat_map(|uids| uids.split(','));
    Some(Key {
        uid: secret.uid()?,
        recipient: identity.recipient().to_string(),
        empty: empty
            .filter(|uid| !uid.is_empty())
            .map(str::to_owned)
            .collect(),
    })
}

/// What `restoreFrom` names and is not there, as long as it may be read. `is_begun` says
/// whether there is a key of a restore.
pub(super) async fn missing(
    context: &Context,
    object: &ZitiController,
    root: &Root,
    is_begun: bool,
) -> Result<Option<String>, Error> {
    let Some(from) = &object.spec.restore_from else {
        return Ok(None);
    };
    if matches!(root, Root::Sound(root) if root.made) && !is_begun {
        // Nothing of it is read. Where its databases are lost, a restore is begun.
        return Ok(None);
    }
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let read = async |name: &str| {
        let found = api.get_opt(name).await;
        found.map_err(Error::kubernetes("reading", format!("Secret {name}")))
    };
    let identity = &from.identity_secret_ref.name;
    let found = read(identity).await?;
    if found.is_none_or(|secret| text(&secret, "identity").is_none()) {
        return Ok(Some(format!(
            "Secret {identity}, named in spec.restoreFrom.identitySecretRef, does not exist in this namespace or has no key identity: create it with the age identity of one of the backup's recipients"
        )));
    }
    let BackupStore { bucket, .. } = &from.from;
    let credentials = bucket
        .as_ref()
        .and_then(|bucket| bucket.credentials_secret_ref.as_ref());
    if let Some(credentials) = credentials
        && read(&credentials.name).await?.is_none()
    {
        return Ok(Some(format!(
            "Secret {}, named in spec.restoreFrom.from.bucket.credentialsSecretRef, does not exist in this namespace: create it",
            credentials.name
        )));
    }
    Ok(None)
}

/// Members whose sidecar says that they are in no cluster. Who does not answer, or
/// says anything else, is not among them.
pub(super) async fn ask(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
) -> BTreeSet<String> {
    let facts = observed.facts(object, &context.settings, Timestamp::now());
    let mut outside = BTreeSet::new();
    for member in restore::to_ask(&facts) {
        let status = member.pod.and_then(|pod| pod.status.as_ref());
        let Some(address) = status.and_then(|status| status.pod_ip.as_deref()) else {
            continue;
        };
        match answer(address).await {
            Ok(text) if text.trim() == OUTSIDE => {
                outside.insert(member.name);
            }
            Ok(_) => {}
            Err(error) => debug!(member = member.name, %error, "its sidecar does not answer"),
        }
    }
    outside
}

async fn answer(address: &str) -> Result<String, reqwest::Error> {
    let host = if address.contains(':') {
        format!("[{address}]")
    } else {
        address.to_owned()
    };
    let client = reqwest::Client::builder()
        .timeout(ANSWER_WITHIN)
        .no_proxy()
        // It is not asked by TLS. Without these words the client looks for the machine's
        // authorities, and the operator's image has none.
        .tls_certs_only([])
        .build()?;
    let url = format!("http://{host}:{SIDECAR_PORT}/ready");
    client.get(url).send().await?.text().await
}

#[cfg(test)]
mod tests {
    use super::{OUTSIDE, answer};
    use std::process::Command;

    #[test]
    fn the_sidecar_says_it_in_these_words() {
        let agent = include_str!("../../../agent/src/sidecar/controller/standing.rs");
        assert!(agent.contains(&format!("Self::Nowhere => {OUTSIDE:?}")));
    }

    /// Plays in a process of its own: where authorities are is said by the environment.
    #[test]
    fn a_sidecar_is_asked_where_the_machine_has_no_authorities() {
        const ALONE: &str = "ZITI_OPERATOR_TEST_WITHOUT_AUTHORITIES";
        if std::env::var_os(ALONE).is_some() {
            // As `main` does.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let error = runtime.block_on(answer("127.0.0.1")).unwrap_err();
            assert!(error.is_connect(), "{error:?}");
            return;
        }
        let name = "a_sidecar_is_asked_where_the_machine_has_no_authorities";
        let output = Command::new(std::env::current_exe().unwrap())
            .arg(name)
            .env(ALONE, "yes")
            .env("SSL_CERT_FILE", "/nowhere")
            .env("SSL_CERT_DIR", "/nowhere")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
    }
}
