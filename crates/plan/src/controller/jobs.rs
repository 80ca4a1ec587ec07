//! The Jobs of backups and restores: what their pods are made of, and what became
//! of them. [`super::backup`] and [`super::restore`] say what they do.
//!
//! A Job has no right in Kubernetes and no way to write a Secret: what it found
//! out is one line of JSON in its container's termination message.

use super::config::{DATA_DIR, PKI_DIR};
use super::render::{labels, metadata, name_of};
use crate::set::pod::{mount, restricted, unprivileged};
use crate::set::pod_options::dress_with;
use crate::set::sidecar::AGENT;
use api::controller::{BackupStore, BucketTrust};
use api::{ZitiController, names, reasons};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, EmptyDirVolumeSource, EnvFromSource, KeyToPath,
    PersistentVolumeClaimVolumeSource, Pod, PodSpec, PodTemplateSpec, ResourceRequirements,
    SecretEnvSource, SecretVolumeSource, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use std::collections::BTreeMap;

/// How long a Job may take, in seconds.
const LONGEST: i64 = 3600;
/// Where the volume with the backups is mounted.
const STORE: &str = "/backups";
/// Where the authority of a bucket is mounted, and the file in it.
const STORE_CA: &str = "/etc/ziti/store";
const CA_FILE: &str = "ca.crt";

/// What kind of Job it is; the value of the label `component`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It makes a backup.
    Backup,
    /// It fetches one.
    Restore,
}

impl Work {
    /// The word in labels.
    pub fn word(self) -> &'static str {
        match self {
            Self::Backup => "backup",
            Self::Restore => "restore",
        }
    }

    /// Whether a Job is of this kind.
    pub fn is_of(self, job: &Job) -> bool {
        let labels = job.metadata.labels.as_ref();
        let component = labels.and_then(|labels| labels.get(names::LABEL_COMPONENT));
        component.map(String::as_str) == Some(self.word())
    }
}

/// The last word of a Job's container.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "outcome", rename_all_fields = "camelCase")]
pub enum Report {
    /// A backup was made.
    Saved {
        /// Its name.
        snapshot: String,
        /// Its size.
        bytes: i64,
        /// When its snapshot was taken.
        taken_at: Timestamp,
        /// What did not go as it should all the same, for a person.
        message: Option<String>,
    },
    /// A backup was fetched, and its database is on the volume.
    Fetched {
        /// Its name.
        snapshot: String,
        /// When its snapshot was taken.
        taken_at: Timestamp,
        /// The trust domain of its network.
        trust_domain: String,
        /// The keys of its network, encrypted to the key of this restore.
        keys: String,
    },
    /// It did not succeed.
    Failed {
        /// One of [`reasons::OF_JOBS`].
        reason: String,
        /// What went wrong, for a person.
        message: String,
    },
}

/// What became of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is not at its end. What its pod waits for, where Kubernetes says so.
    Runs(Option<String>),
    /// It succeeded: when, and its last word.
    Succeeded(Timestamp, Option<Report>),
    /// It failed.
    Failed {
        /// When.
        at: Timestamp,
        /// One of [`reasons::OF_JOBS`], where it left a word.
        reason: Option<&'static str>,
        /// What went wrong.
        message: String,
    },
}

/// What became of a Job, by its own status and the words of its pods.
pub fn outcome(job: &Job, pods: &[Pod]) -> Outcome {
    let status = job.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let of = |type_: &str| {
        let mut conditions = conditions.into_iter().flatten();
        conditions.find(|one| one.type_ == type_ && one.status == "True")
    };
    let own = || pods.iter().filter(|pod| is_of(pod, job));
    let when = |at: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
        at.or(job.metadata.creation_timestamp.as_ref())
            .map_or(Timestamp::UNIX_EPOCH, |at| at.0)
    };
    let last = own().filter_map(last_word).max_by_key(|(at, _)| *at);
    if let Some(complete) = of("Complete") {
        let at = when(complete.last_transition_time.as_ref());
        return Outcome::Succeeded(at, last.and_then(|(_, text)| report(text)));
    }
    if let Some(failed) = of("Failed") {
        let at = when(failed.last_transition_time.as_ref());
        if let Some(Report::Failed { reason, message }) = last.and_then(|(_, text)| report(text)) {
            let reason = reasons::OF_JOBS.into_iter().find(|known| *known == reason);
            return Outcome::Failed {
                at,
                reason,
                message,
            };
        }
        let said = last.map(|(_, text)| format!(": {}", text.trim()));
        let message = format!(
            "{}{}",
            failed.message.as_deref().unwrap_or_default(),
            said.unwrap_or_default()
        );
        return Outcome::Failed {
            at,
            reason: None,
            message,
        };
    }
    Outcome::Runs(own().find_map(waits_for))
}

fn is_of(pod: &Pod, job: &Job) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.any(|owner| Some(&owner.uid) == job.metadata.uid.as_ref())
}

fn last_word(pod: &Pod) -> Option<(Timestamp, &str)> {
    // A mesh may have put its own container first.
    let ours = |name: &str| {
        [Work::Backup, Work::Restore]
            .iter()
            .any(|work| work.word() == name)
    };
    let mut statuses = pod.status.as_ref()?.container_statuses.iter().flatten();
    let status = statuses.find(|status| ours(&status.name))?;
    let ended = status.state.as_ref()?.terminated.as_ref()?;
    let at = ended.finished_at.as_ref().map_or(Timestamp::MIN, |at| at.0);
    Some((at, ended.message.as_deref()?))
}

fn report(text: &str) -> Option<Report> {
    serde_json::from_str(text.trim()).ok()
}

/// Why a pod does not run, where its status says so.
fn waits_for(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    let waiting = containers
        .filter_map(|one| one.state.as_ref()?.waiting.as_ref())
        .find_map(|waiting| {
            let reason = waiting.reason.as_deref()?;
            let usual = ["ContainerCreating", "PodInitializing"].contains(&reason);
            let message = waiting.message.as_deref().unwrap_or_default();
            (!usual).then(|| format!("{reason} {message}").trim().to_owned())
        });
    let conditions = status.conditions.iter().flatten();
    let unscheduled = || {
        let mut refused = conditions.filter(|one| one.type_ == "PodScheduled");
        let refused = refused.find(|one| one.status == "False")?;
        refused.message.clone()
    };
    waiting.or_else(unscheduled)
}

/// What a Job's container is given besides what all are.
#[derive(Debug, Default)]
pub(super) struct Given<'a> {
    /// Arguments, the first one the subcommand.
    pub(super) args: Vec<String>,
    /// Volumes, and where they are mounted.
    pub(super) volumes: Vec<(Volume, VolumeMount)>,
    /// ServiceAccount.
    pub(super) account: Option<&'a str>,
    /// CPU and memory.
    pub(super) resources: Option<&'a ResourceRequirements>,
    /// How often a pod that failed is followed by another.
    pub(super) retries: i32,
}

/// A Job of the agent on the backups in `store`.
pub(super) fn job(
    object: &ZitiController,
    image: &str,
    work: Work,
    store: &BackupStore,
    given: Given,
) -> JobSpec {
    let Given {
        mut args,
        mut volumes,
        account,
        resources,
        retries,
    } = given;
    let env_from = reach(store, work, &mut args, &mut volumes);
    let (volumes, mounts) = volumes.into_iter().unzip();
    let container = Container {
        name: work.word().to_owned(),
        image: Some(image.to_owned()),
        command: Some(vec![AGENT.to_owned()]),
        args: Some(args),
        env_from,
        resources: resources.cloned().or_else(|| Some(usual())),
        security_context: Some(restricted()),
        // Whoever ends before it has a word to leave has told why in its log.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(mounts),
        ..Container::default()
    };
    let mut template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(pod_labels(object, work)),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            containers: vec![container],
            restart_policy: Some("Never".to_owned()),
            service_account_name: account.map(str::to_owned),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            security_context: Some(unprivileged()),
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
    };
    // Where it runs and whence its image comes is as for the members; what is for
    // Ziti itself is not for it.
    let own = (names::LABEL_JOBS, name_of(object));
    dress_with(&object.spec.pod, own, "", &mut template);
    JobSpec {
        backoff_limit: Some(retries),
        active_deadline_seconds: Some(LONGEST),
        template,
        ..JobSpec::default()
    }
}

/// Metadata of a Job, or of what makes Jobs.
pub(super) fn job_metadata(object: &ZitiController, name: &str, work: Work) -> ObjectMeta {
    let mut metadata = metadata(object, name);
    metadata.labels = Some(job_labels(object, work));
    metadata
}

/// By these a Job is found.
pub(super) fn job_labels(object: &ZitiController, work: Work) -> BTreeMap<String, String> {
    let mut labels = labels(name_of(object));
    labels.insert(names::LABEL_COMPONENT.to_owned(), work.word().to_owned());
    labels
}

/// A pod without the label by which Services and the StatefulSet find members.
fn pod_labels(object: &ZitiController, work: Work) -> BTreeMap<String, String> {
    let mut labels = job_labels(object, work);
    labels.remove(names::LABEL_CONTROLLER);
    labels.insert(names::LABEL_JOBS.to_owned(), name_of(object).to_owned());
    labels
}

/// What tells the agent where backups are; the environment with the credential.
fn reach(
    store: &BackupStore,
    work: Work,
    args: &mut Vec<String>,
    volumes: &mut Vec<(Volume, VolumeMount)>,
) -> Option<Vec<EnvFromSource>> {
    let mut say = |flag: &str, value: &str| args.extend([flag.to_owned(), value.to_owned()]);
    if let Some(given) = &store.volume {
        say("--volume", STORE);
        let source = PersistentVolumeClaimVolumeSource {
            claim_name: given.claim_name.clone(),
            read_only: None,
        };
        let claim = Volume {
            persistent_volume_claim: Some(source),
            ..volume("backups")
        };
        let mount = VolumeMount {
            read_only: (work == Work::Restore).then_some(true),
            // The kubelet makes it, where it is not there.
            sub_path: given.path.clone(),
            ..mount("backups", STORE)
        };
        volumes.push((claim, mount));
        return None;
    }
    let bucket = store.bucket.as_ref()?;
    say("--bucket", &bucket.name);
    for (flag, value) in [
        ("--prefix", &bucket.prefix),
        ("--region", &bucket.region),
        ("--endpoint", &bucket.endpoint),
    ] {
        if let Some(value) = value {
            say(flag, value);
        }
    }
    if let Some(trust) = &bucket.trust {
        say("--ca", &format!("{STORE_CA}/{CA_FILE}"));
        let item = |key: &String| {
            Some(vec![KeyToPath {
                key: key.clone(),
                path: CA_FILE.to_owned(),
                mode: None,
            }])
        };
        let source = match trust {
            BucketTrust::ConfigMap(given) => Volume {
                config_map: Some(ConfigMapVolumeSource {
                    name: given.name.clone(),
                    items: item(&given.key),
                    ..ConfigMapVolumeSource::default()
                }),
                ..volume("store")
            },
            BucketTrust::Secret(given) => Volume {
                secret: Some(SecretVolumeSource {
                    items: item(&given.key),
                    ..secret_source(&given.name)
                }),
                ..volume("store")
            },
        };
        volumes.push((source, read_only("store", STORE_CA)));
    }
    let credentials = bucket.credentials_secret_ref.as_ref()?;
    Some(vec![EnvFromSource {
        secret_ref: Some(SecretEnvSource {
            name: credentials.name.clone(),
            optional: None,
        }),
        ..EnvFromSource::default()
    }])
}

fn volume(name: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        ..Volume::default()
    }
}

fn secret_source(name: &str) -> SecretVolumeSource {
    SecretVolumeSource {
        secret_name: Some(name.to_owned()),
        default_mode: Some(0o440),
        ..SecretVolumeSource::default()
    }
}

/// An empty directory, and where it is mounted.
pub(super) fn empty(name: &str, path: &str) -> (Volume, VolumeMount) {
    let source = Volume {
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..volume(name)
    };
    (source, mount(name, path))
}

/// A Secret, and where it is mounted.
pub(super) fn secret(volume_name: &str, secret: &str, path: &str) -> (Volume, VolumeMount) {
    let source = Volume {
        secret: Some(secret_source(secret)),
        ..volume(volume_name)
    };
    (source, read_only(volume_name, path))
}

fn read_only(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        read_only: Some(true),
        ..mount(name, path)
    }
}

/// The data directory of a member, as its pod has it.
pub(super) fn data_of(member: &str) -> (Volume, VolumeMount) {
    let source = PersistentVolumeClaimVolumeSource {
        claim_name: format!("data-{member}"),
        read_only: None,
    };
    let claim = Volume {
        persistent_volume_claim: Some(source),
        ..volume("data")
    };
    let mount = VolumeMount {
        sub_path: Some("data".to_owned()),
        ..mount("data", DATA_DIR)
    };
    (claim, mount)
}

/// Where a directory of the network's own is mounted.
pub(super) fn below_pki(directory: &str) -> String {
    format!("{PKI_DIR}/{directory}")
}

/// A database is copied as a stream.
fn usual() -> ResourceRequirements {
    let quantity = |text: &str| Quantity(text.to_owned());
    let requests = [
        ("cpu".to_owned(), quantity("10m")),
        ("memory".to_owned(), quantity("32Mi")),
    ];
    let limits = [("memory".to_owned(), quantity("256Mi"))];
    ResourceRequirements {
        requests: Some(requests.into()),
        limits: Some(limits.into()),
        claims: None,
    }
}
