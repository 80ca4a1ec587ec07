//! Backups of this world, and the Jobs that fetch one.

use super::kube::member;
use super::raft::Database;
use super::{NAME, World};
use k8s_openapi::api::batch::v1::{CronJob, Job, JobCondition, JobStatus};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::ResourceExt;
use plan::controller::backup::{self, ClientPki, Copies};
use plan::controller::jobs::Work;
use plan::controller::pki::Leaf;
use plan::controller::restore::{self, Key};
use plan::controller::{Root, RootFacts};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// A network as it was once.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    pub(crate) root: RootFacts,
    pub(crate) database: Database,
}

/// What there is for backups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    /// The newest backup. Nobody loses it.
    pub(crate) saved: Option<Saved>,
    /// Nobody reaches it for now.
    pub(crate) is_away: bool,
    cron_job: Option<CronJob>,
    jobs: BTreeMap<String, Job>,
    pods: BTreeMap<String, Pod>,
    pub(crate) certificate: Option<ClientPki>,
    pub(crate) key: Option<Key>,
    /// Databases as Jobs put them on volumes, by the uid of the claim.
    pub(crate) files: BTreeMap<String, Saved>,
    /// Restores that were done, by the uid of the claim.
    pub(crate) marks: BTreeMap<String, String>,
    /// Networks that went, with all that there was of them.
    pub(crate) gone: BTreeSet<u32>,
}

impl World {
    pub(crate) fn copies(&self) -> Copies {
        let bundle = self.secrets.root.as_ref().map(|root| &root.bundle);
        let runs = |one: &i32| self.process(*one).is_some() && self.database(*one).is_none();
        Copies {
            cron_job: self.store.cron_job.clone(),
            jobs: self.store.jobs.values().cloned().collect(),
            pods: self.store.pods.values().cloned().collect(),
            certificate: self.store.certificate.clone().map(|have| ClientPki {
                bundle_is_current: have.bundle_is_current && bundle.is_some(),
                ..have
            }),
            key: self.store.key.clone(),
            missing: None,
            outside: self
                .kube
                .pods
                .keys()
                .filter(|one| runs(one))
                .map(|one| member(*one))
                .collect(),
        }
    }

    /// The network as its leader has it is saved.
    pub(crate) fn back_up(&mut self) {
        let database = self.leader.and_then(|leader| self.database(leader));
        if let (Some(root), Some(database)) = (&self.secrets.root, database) {
            self.store.saved = Some(Saved {
                root: root.clone(),
                database: database.clone(),
            });
        }
    }

    /// The Jobs of restores come round once. A pod runs until the next round, and a Job
    /// that is deleted goes after its pod.
    pub(crate) fn run_jobs(&mut self) {
        let now = Time(self.now);
        let mut pods = std::mem::take(&mut self.store.pods);
        pods.retain(|name, pod| {
            let is_there = |job: &&Job| job.metadata.deletion_timestamp.is_none();
            let Some(job) = self.store.jobs.get(name).filter(is_there).cloned() else {
                return false;
            };
            if job.status.is_none() {
                let (type_, text) = match self.fetch(&job) {
                    Ok(text) => ("Complete", text),
                    Err(text) => ("Failed", text),
                };
                *pod = ended(&job, text, now.clone());
                self.end_job(name, type_);
            }
            true
        });
        self.store.pods = pods;
        // A pod waits for the volume that it mounts.
        let mounts = self.kube.claims.contains_key(&0);
        let (jobs, pods) = (&mut self.store.jobs, &mut self.store.pods);
        jobs.retain(|name, job| {
            job.metadata.deletion_timestamp.is_none() || pods.contains_key(name)
        });
        for (name, job) in jobs {
            if mounts && job.status.is_none() && Work::Restore.is_of(job) {
                pods.entry(name.clone()).or_insert_with(|| running(job));
            }
        }
        let runs = |pod: &&Pod| {
            pod.status
                .as_ref()
                .is_some_and(|it| it.phase.as_deref() == Some("Running"))
        };
        let count = self.store.pods.values().filter(runs).count();
        self.must(count <= 1, || "two Jobs write one file".to_owned());
    }

    fn end_job(&mut self, name: &str, type_: &str) {
        let now = self.now;
        let job = self.store.jobs.get_mut(name).expect("it is there");
        job.status = Some(JobStatus {
            conditions: Some(vec![JobCondition {
                type_: type_.to_owned(),
                status: "True".to_owned(),
                last_transition_time: Some(Time(now)),
                ..JobCondition::default()
            }]),
            ..JobStatus::default()
        });
    }

    /// What a Job does, and its last word.
    fn fetch(&mut self, job: &Job) -> Result<String, String> {
        let failed = |reason: &str| {
            json!({"outcome": "Failed", "reason": reason, "message": "it did not work"}).to_string()
        };
        if self.store.is_away {
            return Err(failed("Unreachable"));
        }
        let Some(saved) = self.store.saved.clone() else {
            return Err(failed("NoBackup"));
        };
        let spec = job
            .spec
            .as_ref()
            .and_then(|spec| spec.template.spec.as_ref());
        let args = spec.and_then(|spec| spec.containers[0].args.clone());
        let args = args.expect("it is told what to do");
        let told = |flag: &str| {
            let at = args.iter().position(|arg| arg == flag)?;
            args.get(at + 1).cloned()
        };
        if told("--root-key-id").is_some_and(|key| key != saved.root.key) {
            return Err(failed("OtherNetwork"));
        }
        let recipient = told("--recipient").expect("it is told to whom");
        let held = self
            .kube
            .claims
            .get(&0)
            .map(|claim| claim.database.is_some());
        self.must(held == Some(false), || {
            format!("a backup is put on a volume that holds one: {held:?}")
        });
        let busy = self.kube.pods.contains_key(&0);
        self.must(!busy, || "a backup is put on a volume in use".to_owned());
        let uid = self.kube.claims[&0].uid().to_owned();
        self.store.files.insert(uid, saved);
        let report = json!({
            "outcome": "Fetched", "snapshot": "farm.ziti.20260101T000000Z.tar.age",
            "takenAt": "2026-01-01T00:00:00Z", "trustDomain": "ziti.farm.ziti",
            "databaseSha256": "00", "keys": recipient,
        });
        Ok(report.to_string())
    }

    pub(crate) fn apply_backup(&mut self, act: &backup::Act) {
        match act {
            backup::Act::Issue { trust_domain, life } => {
                let leaf = Leaf {
                    life: *life,
                    names: BTreeSet::new(),
                    uri: Some(backup::uri(trust_domain)),
                };
                self.store.certificate = Some(ClientPki {
                    leaf: Some(leaf),
                    bundle_is_current: true,
                });
            }
            backup::Act::Apply(job) => self.store.cron_job = Some((**job).clone()),
            backup::Act::Delete { .. } => self.store.cron_job = None,
            backup::Act::DeleteCertificate => self.store.certificate = None,
        }
    }

    pub(crate) fn apply_restore(&mut self, act: &restore::Act) {
        match act {
            restore::Act::MakeKey { empty } => {
                let uid = self.kube.uid();
                self.store.key = Some(Key {
                    recipient: format!("to {uid}"),
                    uid,
                    empty: empty.clone(),
                });
            }
            restore::Act::CreateClaim(claim) => {
                let marks = claim.annotations().clone();
                self.make_claim(0, marks);
            }
            restore::Act::CreateJob(job) => {
                let mut job = (**job).clone();
                job.metadata.uid = Some(self.kube.uid());
                let of_before = self.store.jobs.values().any(|job| Work::Restore.is_of(job));
                self.must(!of_before, || "a Job is made beside another".to_owned());
                self.store.jobs.insert(job.name_any(), job);
            }
            restore::Act::DeleteJob { name, .. } => {
                let now = self.now;
                if let Some(job) = self.store.jobs.get_mut(name) {
                    job.metadata.deletion_timestamp.get_or_insert(Time(now));
                }
            }
            restore::Act::Take { keys, snapshot, id } => self.take(keys, snapshot, id),
            restore::Act::DeleteKey => self.store.key = None,
        }
    }

    /// The Secrets of a backup become those of the network.
    fn take(&mut self, keys: &str, snapshot: &str, id: &str) {
        let key = self.store.key.as_ref();
        let opens = key.is_some_and(|key| key.recipient == keys);
        self.must(opens, || "keys are taken that nobody can open".to_owned());
        let uid = self.kube.claims.get(&0).map(|claim| claim.uid().to_owned());
        let saved = uid.and_then(|uid| self.store.files.get(&uid).cloned());
        let Some(saved) = saved else {
            return self.must(false, || "keys are taken without a database".to_owned());
        };
        if let Root::Sound(root) = self.secrets.root() {
            let same = root.key == saved.root.key;
            self.must(same, || "a root is restored over another".to_owned());
        }
        self.secrets.admin = true;
        self.secrets.root = Some(RootFacts {
            made: false,
            restoring: Some(id.to_owned()),
            restored_from: Some(snapshot.to_owned()),
            ..self.secrets.root.clone().unwrap_or(saved.root)
        });
    }

    /// The appointed member takes the database on its volume, once.
    pub(crate) fn take_database(&mut self, one: i32, id: &str) {
        let Some(claim) = self.kube.claims.get(&one) else {
            return;
        };
        let uid = claim.uid().to_owned();
        if self.store.marks.get(&uid).map(String::as_str) == Some(id) {
            return;
        }
        let held = self
            .kube
            .claims
            .values()
            .any(|claim| claim.database.is_some());
        self.must(!held, || "a database is restored over".to_owned());
        // A claim that was lost meanwhile has no file, and the sidecar says so.
        let Some(saved) = self.store.files.get(&uid).cloned() else {
            return;
        };
        let address = self.process(one).map(|process| process.address.clone());
        let database = Database {
            voters: [(member(one), address.unwrap_or_default())].into(),
            index: 1,
            ..saved.database
        };
        self.store.marks.insert(uid, id.to_owned());
        if let Some(claim) = self.kube.claims.get_mut(&one) {
            claim.database = Some(database);
        }
        self.leader = Some(one);
    }

    /// Everything that there is of the network is lost but its backup, and the
    /// object is made again.
    pub(crate) fn lose_all(&mut self, restore: bool) {
        self.accidents = true;
        let networks = self
            .kube
            .claims
            .values()
            .filter_map(|claim| claim.database.as_ref());
        let networks: Vec<u32> = networks.map(|database| database.network).collect();
        self.store.gone.extend(networks);
        for one in 0..5 {
            self.kill(one);
        }
        self.kube.claims.clear();
        self.kube.collect();
        self.secrets.delete();
        self.backup = None;
        self.network = None;
        self.enrolled = None;
        self.leader = None;
        self.object = None;
        self.store.cron_job = None;
        self.store.jobs.clear();
        self.store.pods.clear();
        self.store.certificate = None;
        self.store.key = None;
        self.wish_restore(restore);
        self.create();
    }

    pub(crate) fn wish_restore(&mut self, wished: bool) {
        let from = json!({
            "from": {"volume": {"claimName": "backups"}},
            "identitySecretRef": {"name": "age"},
        });
        self.change(|spec| {
            spec.restore_from =
                wished.then(|| serde_json::from_value(from.clone()).expect("it is valid"));
        });
    }

    pub(crate) fn wish_backups(&mut self, wished: bool) {
        let to = json!({
            "schedule": "17 3 * * *", "recipients": ["age1…"],
            "to": {"volume": {"claimName": "backups"}},
        });
        self.change(|spec| {
            spec.backup = wished.then(|| serde_json::from_value(to.clone()).expect("it is valid"));
        });
    }

    /// Whether the backup is of the network that is, or was, here.
    pub(crate) fn can_restore(&self) -> bool {
        let known = self
            .object
            .as_ref()
            .and_then(|object| object.status.as_ref());
        let known = known.and_then(|status| status.root_key.clone());
        let root = self.secrets.root.as_ref().map(|root| root.key.clone());
        let wanted = root.or(known);
        let saved = self.store.saved.as_ref();
        saved.is_some_and(|saved| wanted.is_none_or(|wanted| wanted == saved.root.key))
    }

    /// Nothing is left of a restore that is over.
    pub(crate) fn restore_is_over(&self) -> bool {
        let restores = self.store.jobs.values().any(|job| Work::Restore.is_of(job));
        self.store.key.is_none() && !restores
    }
}

fn running(job: &Job) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some(format!("{NAME}-{}", job.name_any()));
    pod.metadata.labels.clone_from(&job.metadata.labels);
    pod.metadata.owner_references = Some(vec![OwnerReference {
        uid: job.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }]);
    pod.status = Some(PodStatus {
        phase: Some("Running".to_owned()),
        ..PodStatus::default()
    });
    pod
}

fn ended(job: &Job, message: String, at: Time) -> Pod {
    Pod {
        status: Some(PodStatus {
            phase: Some("Succeeded".to_owned()),
            container_statuses: Some(vec![ContainerStatus {
                name: Work::Restore.word().to_owned(),
                state: Some(ContainerState {
                    terminated: Some(ContainerStateTerminated {
                        message: Some(message),
                        finished_at: Some(at),
                        ..ContainerStateTerminated::default()
                    }),
                    ..ContainerState::default()
                }),
                ..ContainerStatus::default()
            }]),
            ..PodStatus::default()
        }),
        ..running(job)
    }
}
