//! Backups: the CronJob that makes them, the certificate with which its Jobs ask a
//! member for the database, and what their outcome is called.
//!
//! They are made by Jobs, and so while the operator is away as well, and by hand:
//! `kubectl create job --from=cronjob/<name>-controller-backup <any name>`.

use super::cluster::is_made;
use super::config::internal;
use super::jobs::{self, Given, Outcome, Report, Work};
use super::pki::{Leaf, Life};
use super::render::name_of;
use super::restore::Key;
use super::{Facts, RootFacts, Step};
use crate::conditions::{Conditions, Truth};
use crate::set::applied::{is_applied, stamp};
use api::controller::{Backup, BackupStatus};
use api::reasons::{self, types};
use api::{ZitiController, ZitiControllerStatus, names};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, Job, JobTemplateSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;
use std::collections::BTreeSet;

/// The port at which the sidecar of a member gives a snapshot of its database to
/// whoever shows the certificate of a backup.
pub const BACKUP_PORT: u16 = 10091;

/// Whether members give their database to whoever shows that certificate: not where
/// another signs them, which may do so for anybody, and backups cannot be made.
pub(super) fn gives_copies(object: &ZitiController) -> bool {
    object.spec.pki.issuer_ref.is_none()
}

/// How often a Job that failed is tried again before it is given up.
const RETRIES: i32 = 2;
/// How late a Job may still be started, in seconds.
const LATE: i64 = 3600;
/// Where a backup is put together, encrypted, before it goes away.
const SCRATCH: &str = "/scratch";
/// How many Jobs are kept, of each kind.
const KEPT: i32 = 2;

/// What was observed of backups and of a restore.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    /// The CronJob.
    pub cron_job: Option<CronJob>,
    /// Jobs that carry the label of the ZitiController.
    pub jobs: Vec<Job>,
    /// Pods of Jobs, by [`names::LABEL_JOBS`].
    pub pods: Vec<Pod>,
    /// The client certificate of the Jobs.
    pub certificate: Option<ClientPki>,
    /// The key of a restore that was begun.
    pub key: Option<Key>,
    /// What `restoreFrom` names and is not there: for a person.
    pub missing: Option<String>,
    /// Members whose sidecar said that they are in no cluster, just now.
    pub outside: BTreeSet<String>,
}

/// A client certificate and the trust bundle beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientPki {
    /// The certificate, where its key is there and the root has signed it.
    pub leaf: Option<Leaf>,
    /// Whether the bundle is that of the root.
    pub bundle_is_current: bool,
}

/// One act for backups.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Issue the client certificate.
    Issue {
        /// The trust domain in it.
        trust_domain: String,
        /// Its life.
        life: Life,
    },
    /// Make or correct the CronJob.
    Apply(Box<CronJob>),
    /// Delete the CronJob, and its Jobs with it.
    Delete {
        /// Its uid.
        uid: String,
    },
    /// Delete the Secret with the client certificate.
    DeleteCertificate,
}

/// The URI in the client certificate.
pub fn uri(trust_domain: &str) -> String {
    format!("spiffe://{trust_domain}/backup")
}

/// What is to be made, corrected or taken away.
pub(super) fn steps(facts: &Facts, root: &RootFacts, steps: &mut Vec<Step>) {
    let Some(backup) = &facts.object.spec.backup else {
        remove(facts, steps);
        return;
    };
    if !is_made(facts) {
        return;
    }
    if let Some(issue) = certificate(facts, root) {
        steps.push(Step::Backup(issue));
    }
    let wanted = cron_job(facts, backup);
    let actual = facts.copies.cron_job.as_ref();
    if !actual.is_some_and(|actual| is_applied(&wanted, actual)) {
        steps.push(Step::Backup(Act::Apply(Box::new(wanted))));
    }
}

/// Nothing makes backups any more.
pub(super) fn remove(facts: &Facts, steps: &mut Vec<Step>) {
    if let Some(job) = &facts.copies.cron_job
        && job.metadata.deletion_timestamp.is_none()
    {
        let uid = job.uid().unwrap_or_default();
        steps.push(Step::Backup(Act::Delete { uid }));
    }
    if facts.copies.certificate.is_some() {
        steps.push(Step::Backup(Act::DeleteCertificate));
    }
}

/// The certificate is renewed like those of the members.
fn certificate(facts: &Facts, root: &RootFacts) -> Option<Act> {
    let trust_domain = facts.object.trust_domain();
    let have = facts.copies.certificate.as_ref();
    let keeps = have.is_some_and(|have| {
        let leaf = have.leaf.as_ref();
        have.bundle_is_current
            && leaf.is_some_and(|leaf| {
                let longest = leaf.life.until >= root.life.until && leaf.life.until > facts.now;
                let fresh = !leaf.life.is_due(facts.now) || longest;
                fresh && leaf.uri.as_ref() == Some(&uri(&trust_domain))
            })
    });
    let days = facts.object.spec.pki.certificate_days;
    let mut life = Life::of_days(days, facts.now);
    life.until = life.until.min(root.life.until);
    (!keeps).then_some(Act::Issue { trust_domain, life })
}

/// The CronJob, as it should be.
fn cron_job(facts: &Facts, backup: &Backup) -> CronJob {
    let object = facts.object;
    let name = names::controller_backup(name_of(object));
    let labels = jobs::job_labels(object, Work::Backup);
    stamp(&CronJob {
        metadata: jobs::job_metadata(object, &name, Work::Backup),
        spec: Some(CronJobSpec {
            schedule: backup.schedule.clone(),
            time_zone: Some(backup.time_zone.clone()),
            concurrency_policy: Some("Forbid".to_owned()),
            starting_deadline_seconds: Some(LATE),
            successful_jobs_history_limit: Some(KEPT),
            failed_jobs_history_limit: Some(KEPT),
            job_template: JobTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    ..ObjectMeta::default()
                }),
                spec: Some(jobs::job(
                    object,
                    &facts.settings.agent_image,
                    Work::Backup,
                    &backup.to,
                    given(object, backup),
                )),
            },
            ..CronJobSpec::default()
        }),
        status: None,
    })
}

fn given<'a>(object: &ZitiController, backup: &'a Backup) -> Given<'a> {
    let name = name_of(object);
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let members = (0..object.spec.replicas)
        .map(|ordinal| format!("{}:{BACKUP_PORT}", internal(object, ordinal).host));
    let client = jobs::below_pki("client");
    let [root, pki, admin] = ["root", "members", "admin"].map(jobs::below_pki);
    let admin_secret = object.spec.admin_secret_ref.as_ref();
    let admin_secret = admin_secret.map_or_else(
        || names::controller_admin_secret(name),
        |given| given.name.clone(),
    );
    let words = [
        ("--namespace", namespace.to_owned()),
        ("--name", name.to_owned()),
        ("--uid", object.metadata.uid.clone().unwrap_or_default()),
        ("--trust-domain", object.trust_domain()),
        ("--members", members.collect::<Vec<_>>().join(",")),
        ("--certificate", format!("{client}/tls.crt")),
        ("--key", format!("{client}/tls.key")),
        ("--trust", format!("{client}/ca.crt")),
        ("--root", root.clone()),
        ("--pki", pki.clone()),
        ("--admin", admin.clone()),
        ("--recipients", backup.recipients.join(",")),
        ("--keep", backup.keep.to_string()),
        ("--scratch", SCRATCH.to_owned()),
    ];
    let words = words.into_iter();
    let words = words.flat_map(|(flag, value)| [flag.to_owned(), value]);
    Given {
        args: std::iter::once("backup".to_owned()).chain(words).collect(),
        volumes: vec![
            jobs::secret("client", &names::controller_backup(name), &client),
            jobs::secret("root", &names::controller_root_secret(name), &root),
            jobs::secret("members", &names::controller_pki_secret(name), &pki),
            jobs::secret("admin", &admin_secret, &admin),
            jobs::empty("scratch", SCRATCH),
        ],
        account: backup.service_account_name.as_deref(),
        resources: backup.resources.as_ref(),
        retries: RETRIES,
    }
}

/// Says when the last backup was made, and whether the one after it failed.
pub(super) fn tell(facts: &Facts, status: &mut ZitiControllerStatus, conditions: &mut Conditions) {
    let Some(backup) = &facts.object.spec.backup else {
        conditions.forget(types::BACKED_UP);
        return;
    };
    let jobs = facts
        .copies
        .jobs
        .iter()
        .filter(|job| Work::Backup.is_of(job));
    let outcomes: Vec<(&Job, Outcome)> = jobs
        .map(|job| (job, jobs::outcome(job, &facts.copies.pods)))
        .collect();
    for (_, outcome) in &outcomes {
        if let Outcome::Succeeded(
            _,
            Some(Report::Saved {
                snapshot,
                bytes,
                taken_at,
                ..
            }),
        ) = outcome
            && status
                .backup
                .as_ref()
                .is_none_or(|last| last.last_success.0 < *taken_at)
        {
            status.backup = Some(BackupStatus {
                last_success: Time(*taken_at),
                snapshot: snapshot.clone(),
                bytes: *bytes,
            });
        }
    }
    let ended = outcomes.iter().filter_map(|(job, outcome)| match outcome {
        Outcome::Runs(_) => None,
        Outcome::Succeeded(at, _) | Outcome::Failed { at, .. } => Some((at, job, outcome)),
    });
    let last = ended.max_by_key(|(at, job, _)| (**at, job.name_any()));
    let good = status.backup.as_ref();
    if let Some((
        _,
        job,
        Outcome::Failed {
            reason, message, ..
        },
    )) = last
    {
        let before = good.map_or_else(
            || "there is none yet".to_owned(),
            |good| format!("the last one is {}", good.snapshot),
        );
        let message = format!("Job {}: {message}; {before}", job.name_any());
        let reason = reason.unwrap_or(reasons::BACKUP_FAILED);
        conditions.set(types::BACKED_UP, Truth::False, reason, message);
    } else if let Some(good) = good {
        let but = match last {
            Some((
                _,
                _,
                Outcome::Succeeded(
                    _,
                    Some(Report::Saved {
                        message: Some(but), ..
                    }),
                ),
            )) => format!("; {but}"),
            _ => String::new(),
        };
        let message = format!("{}, {} bytes{but}", good.snapshot, good.bytes);
        conditions.set(types::BACKED_UP, Truth::True, reasons::SAVED, message);
    } else {
        let message = format!(
            "there is none yet; one is made by the schedule {:?} ({}), or now: kubectl create job --from=cronjob/{} NAME",
            backup.schedule,
            backup.time_zone,
            names::controller_backup(name_of(facts.object))
        );
        conditions.set(types::BACKED_UP, Truth::False, reasons::PENDING, message);
    }
}
