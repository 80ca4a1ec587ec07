//! A network that begins with a backup (`spec.restoreFrom`).
//!
//! Where there is no network, or where its databases are all lost for certain:
//!
//! 1. a key is made for this restore, in a Secret; what is known to hold no
//!    database by then stands beside it;
//! 2. no member runs, and the first one has a volume claim;
//! 3. a Job puts the database of the backup on that volume, and reports root,
//!    signers and administrator, encrypted to that key;
//! 4. they become the network's Secrets, the root last: it says which restore it
//!    is of, and from there on nothing is read from `restoreFrom`;
//! 5. the first member is told to take the database instead of making a network;
//! 6. it is a network; the root says so, and key and Job go.
//!
//! **Invariants**: a claim that may hold a database is never restored on; a root
//! is made or restored once; nothing is concluded from a failed read.

use super::cluster::is_made;
use super::config::DATA_DIR;
use super::jobs::{self, Given, Outcome, Report, Work};
use super::member::{Member, members};
use super::render::{self, name_of};
use super::{Facts, Root, RootFacts, Step, workload};
use crate::conditions::{Conditions, Truth};
use crate::set::applied::hash;
use crate::set::member::replicas;
use api::controller::RestoreFrom;
use api::names;
use api::reasons::{self, types};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use std::collections::BTreeSet;

/// The file with the database on the volume of the first member.
const FILE: &str = "ziti-agent.restore-from.db";
/// How long after a failure the same is tried again.
const AGAIN: SignedDuration = SignedDuration::from_mins(1);
/// How long a member must have been there, and not ready, before it is asked. That it
/// has been in no cluster for so long is for its sidecar to say, which knows when its
/// process began.
const SURE: SignedDuration = SignedDuration::from_mins(1);

/// The key of a restore, as its Secret holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The Secret's uid.
    pub uid: String,
    /// Its public half: to whom the Job encrypts.
    pub recipient: String,
    /// Claims that were known to hold no database when it was made, by uid.
    pub empty: BTreeSet<String>,
}

/// What the first member is told to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The path of the database, as the sidecar sees it.
    pub file: String,
    /// What tells this restore from every other.
    pub id: String,
}

/// One act of a restore.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Make the key. Fails where its Secret exists.
    MakeKey {
        /// Claims that are known to hold no database, by uid.
        empty: BTreeSet<String>,
    },
    /// Make the volume claim of the first member. Fails where it exists.
    CreateClaim(Box<PersistentVolumeClaim>),
    /// Start a Job.
    CreateJob(Box<Job>),
    /// Delete a Job and its pods.
    DeleteJob {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// Open what the Job handed over, and make the network's Secrets of it: the
    /// root last.
    Take {
        /// The keys, encrypted.
        keys: String,
        /// The name of the backup.
        snapshot: String,
        /// What tells this restore from every other.
        id: String,
    },
    /// Delete the key.
    DeleteKey,
}

/// The restore that the root is of, while the network is not there yet.
pub(super) fn ordered(facts: &Facts) -> Option<Order> {
    let Root::Sound(root) = &facts.root else {
        return None;
    };
    let id = root.restoring.clone()?;
    Some(Order {
        file: format!("{DATA_DIR}/{FILE}"),
        id,
    })
}

/// Whether the network was made and no database of it is left, for certain: each
/// claim that there is belongs to a member which runs and says that it is in no
/// cluster, or there is no claim at all. A claim that is going is still there.
pub fn is_lost(facts: &Facts) -> bool {
    may_hold(facts).is_some_and(|claims| claims.is_empty())
}

/// The last member whose volume may still hold a database of the network, where no
/// member that runs has one, and no pod is to come that mounts it: it was to leave.
pub(super) fn kept_by<'a>(facts: &'a Facts) -> Option<Member<'a>> {
    let claims = may_hold(facts)?;
    let mut holders = members(facts);
    holders.retain(|member| {
        let claim = member.claim.map(ResourceExt::name_any);
        claim.is_some_and(|claim| claims.contains(&claim))
    });
    let idle = |member: &Member| !member.wanted && member.pod.is_none();
    holders.iter().all(idle).then(|| holders.pop())?
}

/// The claims that are not known to hold no database of the network, where it was made
/// and no member shows it.
fn may_hold(facts: &Facts) -> Option<BTreeSet<String>> {
    let Root::Sound(root) = &facts.root else {
        return None;
    };
    if root.restoring.is_some() || !was_made(facts, root) || sees_members(facts) {
        return None;
    }
    let members = members(facts);
    let known = |claim: &PersistentVolumeClaim| {
        let name = claim.name_any();
        let name = name.strip_prefix("data-").unwrap_or_default();
        let member = members.iter().find(|member| member.name == name);
        is_empty(facts, claim) || member.is_some_and(|member| is_outside(facts, member))
    };
    let runs = facts.pods.iter().all(|pod| {
        let claim = format!("data-{}", pod.name_any());
        facts.claims.iter().any(|one| one.name_any() == claim)
    });
    let claims = facts.claims.iter().filter(|claim| !known(claim));
    runs.then(|| claims.map(ResourceExt::name_any).collect())
}

/// Members that might say that they are in no cluster: not worth a question
/// before.
pub fn to_ask<'a>(facts: &'a Facts) -> Vec<Member<'a>> {
    let Root::Sound(root) = &facts.root else {
        return Vec::new();
    };
    if !was_made(facts, root) || sees_members(facts) {
        return Vec::new();
    }
    let mut members = members(facts);
    members.retain(|member| stands_still(facts, member));
    members
}

fn was_made(facts: &Facts, root: &RootFacts) -> bool {
    let status = facts.object.status.as_ref();
    root.made || status.is_some_and(|status| status.initialized.is_some())
}

fn sees_members(facts: &Facts) -> bool {
    let cluster = facts.cluster.as_ref();
    cluster.is_ok_and(|cluster| !cluster.members.is_empty())
}

/// Whether the network is there that is being restored: it lists its members, and
/// the first one is ready. Its process ends once more after it has taken the
/// database, and is not ready before.
pub(super) fn is_there(facts: &Facts) -> bool {
    let first = names::controller_member(name_of(facts.object), 0);
    let members = members(facts);
    let mut members = members.iter();
    sees_members(facts) && members.any(|member| member.name == first && member.is_up())
}

fn stands_still(facts: &Facts, member: &Member) -> bool {
    let still = member.age(facts) >= SURE && member.unready_for(facts) >= SURE;
    still && member.runs() && !member.is_ready()
}

fn is_outside(facts: &Facts, member: &Member) -> bool {
    stands_still(facts, member) && facts.copies.outside.contains(&member.name)
}

/// Whether a claim is known to hold no database since this restore was begun.
pub(super) fn is_empty(facts: &Facts, claim: &PersistentVolumeClaim) -> bool {
    let Some(key) = &facts.copies.key else {
        return false;
    };
    let made_for = claim.annotations().get(names::ANNOTATION_RESTORE);
    made_for == Some(&key.uid) || claim.uid().is_some_and(|uid| key.empty.contains(&uid))
}

/// What is to be fetched from, where there is nothing that it could overwrite.
pub(super) fn fetched_from<'a>(facts: &Facts<'a>) -> Option<&'a RestoreFrom> {
    let from = facts.object.spec.restore_from.as_ref()?;
    let free = match &facts.root {
        Root::Absent => facts.claims.iter().all(|claim| is_empty(facts, claim)),
        Root::Sound(root) => {
            let begun = root.restoring.is_none()
                && was_made(facts, root)
                && facts.copies.key.is_some()
                && facts.claims.iter().all(|claim| is_empty(facts, claim));
            begun || is_lost(facts)
        }
        Root::Unusable(_) => false,
    };
    (free && !sees_members(facts)).then_some(from)
}

/// The steps until the network has its root and its first member a database;
/// `None` where nothing is to be fetched.
pub(super) fn steps(facts: &Facts) -> Option<Vec<Step>> {
    let from = fetched_from(facts)?;
    Some(next(facts, from).into_iter().collect())
}

fn next(facts: &Facts, from: &RestoreFrom) -> Option<Step> {
    let Some(key) = &facts.copies.key else {
        let empty = facts.claims.iter().filter_map(ResourceExt::uid).collect();
        return Some(Step::Restore(Act::MakeKey { empty }));
    };
    if let Some(set) = &facts.stateful_set
        && replicas(set) > 0
        && set.metadata.deletion_timestamp.is_none()
    {
        let map = render::config_map(facts.object).name_any();
        let none = workload::stateful_set(facts, &map, 0);
        return Some(Step::ApplyStatefulSet(Box::new(none)));
    }
    if !facts.pods.is_empty() {
        return None;
    }
    let first = names::controller_member(name_of(facts.object), 0);
    let name = format!("data-{first}");
    match facts.claims.iter().find(|claim| claim.name_any() == name) {
        None => {
            let claim = claim(facts, &name, key);
            return Some(Step::Restore(Act::CreateClaim(Box::new(claim))));
        }
        Some(claim) if claim.metadata.deletion_timestamp.is_some() => return None,
        Some(_) => {}
    }
    let wanted = job(facts, from, key, &first);
    if let Some(old) = others(facts, &wanted.name_any()).next() {
        return Some(delete(old));
    }
    let Some(job) = current(facts, &wanted.name_any()) else {
        // Two at a time would write one file: a Job that goes, goes after its pod.
        let mut jobs = facts.copies.jobs.iter();
        let alone = !jobs.any(|job| Work::Restore.is_of(job)) && !has_running_pod(facts);
        let ready = facts.copies.missing.is_none() && alone;
        return ready.then(|| Step::Restore(Act::CreateJob(Box::new(wanted))));
    };
    if job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    match verdict(facts, job) {
        Verdict::Runs(_) => None,
        Verdict::Failed(at, _) => (facts.now.duration_since(at) >= AGAIN).then(|| delete(job)),
        Verdict::Fetched { keys, snapshot } => Some(Step::Restore(Act::Take {
            keys,
            snapshot,
            id: job.name_any(),
        })),
    }
}

/// What the restore left, when there is none any more. The key goes before the root
/// is said to be made: with it, the volume would count as empty.
pub(super) fn left_over(facts: &Facts, steps: &mut Vec<Step>) {
    steps.extend(others(facts, "").map(delete));
    if facts.copies.key.is_some() {
        steps.push(Step::Restore(Act::DeleteKey));
    }
}

/// A restore that ends with its ZitiController. The volume that was made for it goes
/// before the key: without that it would count as a database.
pub(super) fn abandon(facts: &Facts, steps: &mut Vec<Step>) {
    if facts.root == Root::Absent {
        let unused = facts.claims.iter().filter(|claim| is_empty(facts, claim));
        steps.extend(unused.map(|claim| Step::DeleteClaim {
            name: claim.name_any(),
            uid: claim.uid().unwrap_or_default(),
        }));
    }
    left_over(facts, steps);
}

fn others<'a>(facts: &'a Facts, but: &str) -> impl Iterator<Item = &'a Job> {
    let jobs = facts.copies.jobs.iter();
    let but = but.to_owned();
    jobs.filter(move |job| {
        let going = job.metadata.deletion_timestamp.is_some();
        Work::Restore.is_of(job) && job.name_any() != but && !going
    })
}

fn current<'a>(facts: &'a Facts, name: &str) -> Option<&'a Job> {
    let mut jobs = facts.copies.jobs.iter();
    jobs.find(|job| job.name_any() == name)
}

fn has_running_pod(facts: &Facts) -> bool {
    facts.copies.pods.iter().any(|pod| {
        let restores = pod.labels().get(names::LABEL_COMPONENT);
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let ended = matches!(phase, Some("Succeeded" | "Failed"));
        restores.map(String::as_str) == Some(Work::Restore.word()) && !ended
    })
}

fn delete(job: &Job) -> Step {
    Step::Restore(Act::DeleteJob {
        name: job.name_any(),
        uid: job.uid().unwrap_or_default(),
    })
}

/// How a Job's outcome is taken.
enum Verdict {
    Runs(Option<String>),
    Failed(Timestamp, String),
    Fetched { keys: String, snapshot: String },
}

fn verdict(facts: &Facts, job: &Job) -> Verdict {
    match jobs::outcome(job, &facts.copies.pods) {
        Outcome::Runs(waits) => Verdict::Runs(waits),
        Outcome::Failed {
            at,
            reason,
            message,
        } => {
            let reason = reason.map_or_else(String::new, |reason| format!("{reason}: "));
            Verdict::Failed(at, format!("{reason}{message}"))
        }
        Outcome::Succeeded(
            at,
            Some(Report::Fetched {
                trust_domain,
                snapshot,
                keys,
                ..
            }),
        ) => {
            let wanted = facts.object.trust_domain();
            if trust_domain == wanted {
                return Verdict::Fetched { keys, snapshot };
            }
            let message = format!(
                "{}: {snapshot} is of trust domain {trust_domain:?}, and this ZitiController's is {wanted:?}, which cannot be changed: delete it, and apply it again with spec.trustDomain: {trust_domain}",
                reasons::OTHER_NETWORK
            );
            Verdict::Failed(at, message)
        }
        Outcome::Succeeded(at, _) => {
            let message = "its pod's last word cannot be read: the pod is gone, or its image is of another version than the operator";
            Verdict::Failed(at, message.to_owned())
        }
    }
}

/// The claim that the StatefulSet would make.
fn claim(facts: &Facts, name: &str, key: &Key) -> PersistentVolumeClaim {
    let mut claim = workload::claim(facts.object);
    claim.metadata.name = Some(name.to_owned());
    claim
        .metadata
        .namespace
        .clone_from(&facts.object.metadata.namespace);
    let mark = (names::ANNOTATION_RESTORE.to_owned(), key.uid.clone());
    claim.metadata.annotations = Some([mark].into());
    claim
}

/// The Job that fetches the backup. What it is asked for is in its name.
fn job(facts: &Facts, from: &RestoreFrom, key: &Key, first: &str) -> Job {
    let object = facts.object;
    let identity = jobs::below_pki("identity");
    let mut args = vec!["restore".to_owned()];
    let mut say = |flag: &str, value: &str| args.extend([flag.to_owned(), value.to_owned()]);
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    say("--namespace", namespace);
    say("--name", name_of(object));
    if let Some(snapshot) = &from.snapshot {
        say("--snapshot", snapshot);
    }
    say("--identity", &format!("{identity}/identity"));
    say("--recipient", &key.recipient);
    say("--data", DATA_DIR);
    say("--file", FILE);
    let status = object.status.as_ref();
    let known = match &facts.root {
        Root::Sound(root) => Some(root.key.as_str()),
        _ => status.and_then(|status| status.root_key.as_deref()),
    };
    if let Some(known) = known {
        say("--root-key-id", known);
    }
    let given = Given {
        args,
        volumes: vec![
            jobs::secret("identity", &from.identity_secret_ref.name, &identity),
            jobs::data_of(first),
        ],
        account: from.service_account_name.as_deref(),
        resources: None,
        retries: 0,
    };
    let image = &facts.settings.agent_image;
    let spec = jobs::job(object, image, Work::Restore, &from.from, given);
    let asked = hash(&(from, &key.recipient, known));
    let name = format!(
        "{}-{}",
        names::controller_restore(name_of(object)),
        &asked[..8]
    );
    Job {
        metadata: jobs::job_metadata(object, &name, Work::Restore),
        spec: Some(spec),
        status: None,
    }
}

/// Says how far a restore is; the last word of all conditions. Not so where there
/// is none.
pub(super) fn tell(facts: &Facts, conditions: &mut Conditions) {
    let first = names::controller_member(name_of(facts.object), 0);
    let on_its_way = |conditions: &mut Conditions, message: &str| {
        conditions.set(types::READY, Truth::False, reasons::RESTORING, message);
        conditions.set(types::PROGRESSING, Truth::True, reasons::RESTORING, message);
    };
    if ordered(facts).is_some() && !is_made(facts) {
        let all = members(facts);
        let up = all.first().is_some_and(Member::is_ready);
        return match &facts.cluster {
            // What a member without a database answers is no fault.
            Err(problem) if up => {
                let message = format!(
                    "the database is restored, and the operator cannot log in: {}. The administrator is that of the backup",
                    problem.message
                );
                conditions.set(types::READY, Truth::False, problem.reason, message);
            }
            _ => on_its_way(
                conditions,
                &format!("{first} takes the database of the backup"),
            ),
        };
    }
    let (Some(from), Some(key)) = (fetched_from(facts), &facts.copies.key) else {
        return;
    };
    let name = job(facts, from, key, &first).name_any();
    match current(facts, &name).map(|job| verdict(facts, job)) {
        Some(Verdict::Failed(_, why)) => failed(
            conditions,
            &format!("{why}; Job {name} is tried again in a minute"),
        ),
        Some(Verdict::Runs(Some(waits))) => {
            on_its_way(conditions, &format!("Job {name} waits: {waits}"));
        }
        Some(_) => on_its_way(conditions, &format!("Job {name} fetches the backup")),
        None => match &facts.copies.missing {
            Some(missing) => failed(conditions, missing),
            None => on_its_way(conditions, "a Job is started that fetches the backup"),
        },
    }
}

fn failed(conditions: &mut Conditions, message: &str) {
    let reason = reasons::RESTORE_FAILED;
    conditions.set(types::READY, Truth::False, reason, message);
    conditions.set(types::DEGRADED, Truth::True, reason, message);
    conditions.set(types::PROGRESSING, Truth::False, reason, message);
}

/// What a person can do about databases that are all lost.
pub(super) fn lost_message(facts: &Facts) -> String {
    format!(
        "the network was made, and no member has its database any more{}: set spec.restoreFrom to a backup, put the volumes back, or begin a new network: delete this ZitiController with storage.whenDeleted: Delete, and apply it again",
        if facts.claims.is_empty() {
            ", since there is no volume"
        } else {
            ""
        }
    )
}
