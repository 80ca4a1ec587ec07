//! Puts the state of the controllers into words.

use super::cluster::{self, ELECTION, is_made, leaderless_for, led, quorum};
use super::member::{Member, wished};
use super::network::{POLICY, Policy};
use super::{Cluster, Facts, Plan, Root, Step, backup, issuer, restore};
use crate::conditions::{self, Conditions, Truth, is_true};
use crate::edge_router::Problem;
use api::controller::{BootstrapPolicies, ControllerMember, Initialization};
use api::reasons::{self, types};
use api::{ZitiControllerStatus, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How often a cluster that is being changed is asked.
const SOON: SignedDuration = SignedDuration::from_secs(1);
/// How often a cluster is asked who leads it.
const AT_REST: SignedDuration = SignedDuration::from_secs(15);

/// Controllers that work, or are on their way.
pub(super) fn running(facts: &Facts, members: &[Member], steps: Vec<Step>) -> Plan {
    let (mut status, mut conditions) = counted(facts, members);
    progress(facts, members, &steps, &mut conditions);
    readiness(facts, members, &mut conditions);
    restore::tell(facts, &mut conditions);
    status.conditions = conditions.into_vec();
    let settled = steps.iter().all(is_beside) && is_settled(facts, members);
    Plan {
        steps,
        status,
        requeue: Some(if settled { AT_REST } else { SOON }),
    }
}

/// Controllers that cannot be run as they are written: what runs is left alone but
/// for its certificates.
pub(super) fn refused(
    facts: &Facts,
    members: &[Member],
    problem: &Problem,
    steps: Vec<Step>,
) -> Plan {
    let (mut status, mut conditions) = counted(facts, members);
    let message = problem.message.clone();
    conditions.set(
        types::DEGRADED,
        Truth::True,
        problem.reason,
        message.clone(),
    );
    conditions.set(types::PROGRESSING, Truth::False, problem.reason, message);
    readiness(facts, members, &mut conditions);
    status.conditions = conditions.into_vec();
    Plan {
        steps,
        status,
        requeue: Some(AT_REST),
    }
}

/// Controllers that are to be left alone, but for one step at most.
pub(super) fn paused(facts: &Facts, members: &[Member], step: Option<Step>) -> Plan {
    let (mut status, mut conditions) = counted(facts, members);
    conditions.set(
        types::PROGRESSING,
        Truth::False,
        reasons::PAUSED,
        "nothing is written for it, since spec.paused is true",
    );
    readiness(facts, members, &mut conditions);
    status.conditions = conditions.into_vec();
    Plan {
        requeue: Some(if step.is_none() { AT_REST } else { SOON }),
        steps: step.into_iter().collect(),
        status,
    }
}

/// Controllers that go.
pub(super) fn leaving(facts: &Facts, steps: Vec<Step>, waits: &str) -> Plan {
    let kept = if super::decide::keeps_everything(facts) {
        "; databases, certificates and the administrator's Secret are kept"
    } else {
        ""
    };
    ending(facts, steps, reasons::DELETING, format!("{waits}{kept}"))
}

/// Controllers that are still needed.
pub(super) fn in_use(facts: &Facts) -> Plan {
    let message = format!(
        "{} EdgeRouters still use its network: delete their ZitiRouters first",
        facts.users.staying
    );
    ending(facts, Vec::new(), reasons::IN_USE, message)
}

fn ending(facts: &Facts, steps: Vec<Step>, reason: &str, message: String) -> Plan {
    let object = facts.object;
    let mut status = object.status.clone().unwrap_or_default();
    let mut conditions = Conditions::new(&status.conditions, object.metadata.generation, facts.now);
    conditions.set(types::READY, Truth::False, reason, message);
    status.conditions = conditions.into_vec();
    status.observed_generation = object.metadata.generation;
    Plan {
        steps,
        status,
        requeue: Some(SOON),
    }
}

/// The status with the conditions that tell of a step that failed.
pub fn after_failure(
    plan: &Plan,
    problem: &Problem,
    generation: Option<i64>,
    now: Timestamp,
) -> ZitiControllerStatus {
    let mut status = plan.status.clone();
    status.conditions = conditions::after_failure(&status.conditions, problem, generation, now);
    status
}

/// The status where Kubernetes refuses what is to be made for backups: the network
/// does not need it, so no other condition says so.
pub fn without_backups(
    mut status: ZitiControllerStatus,
    problem: &Problem,
    now: Timestamp,
) -> ZitiControllerStatus {
    let generation = status.observed_generation;
    let mut conditions = Conditions::new(&status.conditions, generation, now);
    let message = problem.message.clone();
    conditions.set(types::BACKED_UP, Truth::False, problem.reason, message);
    status.conditions = conditions.into_vec();
    status
}

/// Whether the network is the same without it.
fn is_beside(step: &Step) -> bool {
    matches!(step, Step::Backup(_))
}

fn counted(facts: &Facts, members: &[Member]) -> (ZitiControllerStatus, Conditions) {
    let object = facts.object;
    let mut status = object.status.clone().unwrap_or_default();
    let mut conditions = Conditions::new(&status.conditions, object.metadata.generation, facts.now);
    status.observed_generation = object.metadata.generation;
    let pods = || members.iter().filter(|member| member.pod.is_some());
    let ready = |member: &&Member| member.is_ready() && !member.is_terminating();
    status.replicas = count(pods().count());
    status.ready_replicas = count(pods().filter(ready).count());
    if let Root::Sound(root) = &facts.root {
        status.root_expiry = Some(Time(root.life.until));
        status.root_key.get_or_insert_with(|| root.key.clone());
        status.trust_domain.clone_from(&root.trust_domain);
        status.restored_from.clone_from(&root.restored_from);
    }
    let certificates = members.iter().filter(|member| member.wanted);
    let ends = certificates.filter_map(|member| {
        let pki = member.pki?;
        let leaf = pki.certificate.as_ref().map(|leaf| leaf.life.until);
        leaf.into_iter()
            .chain(pki.signer.map(|life| life.until))
            .min()
    });
    status.certificate_expiry = ends.min().map(Time);
    if led(facts).is_none() && is_made(facts) {
        status.leaderless_since.get_or_insert(Time(facts.now));
    } else {
        status.leaderless_since = None;
    }
    // One that cannot be asked for a moment may lead all the same.
    let says_none = matches!(&facts.cluster, Ok(cluster) if cluster.leader().is_none());
    if says_none || leaderless_for(facts) >= ELECTION {
        status.leader = None;
    }
    if let Some(cluster) = led(facts) {
        let leader = cluster.leader();
        status.leader = leader.map(|peer| peer.id.clone());
        if let Some(leader) = leader.filter(|peer| !peer.version.is_empty()) {
            status.version = Some(leader.version.clone());
        }
        let mut peers: Vec<_> = cluster.members.iter().collect();
        peers.retain(|peer| peer.is_member());
        peers.sort_by(|a, b| a.id.cmp(&b.id));
        status.members = peers
            .into_iter()
            .map(|peer| ControllerMember {
                name: peer.id.clone(),
                voter: peer.voter,
                version: (!peer.version.is_empty()).then(|| peer.version.clone()),
            })
            .collect();
        // Not before nobody can make another.
        let told = facts.bootstrap.as_ref();
        let nobody = told.is_none_or(|told| told.initialize.is_none());
        if status.initialized.is_none() && nobody {
            status.initialized = Some(Initialization {
                member: cluster.asked.clone(),
                seen_at: Time(facts.now),
            });
        }
    }
    backup::tell(facts, &mut status, &mut conditions);
    degraded(facts, members, &mut conditions);
    (status, conditions)
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn degraded(facts: &Facts, members: &[Member], conditions: &mut Conditions) {
    let foreign = led(facts).and_then(|cluster| {
        let mut peers = cluster.members.iter();
        peers.find(|peer| super::member::ordinal_of(facts, &peer.id).is_none())
    });
    let mixed = led(facts).is_some_and(Cluster::is_mixed);
    let issuer = issuer::trouble(facts);
    let pending = |member: &&Member| {
        let lone = member.peer.is_none() && member.runs() && member.wanted;
        let late = member.age(facts) >= cluster::DEADLINE;
        // What failed is over where it is known by the right address all the same.
        let wanted = cluster::address(facts, member.ordinal);
        let in_place = member.peer.is_some_and(|peer| peer.address == wanted);
        let failed = !in_place && facts.joins.contains_key(&member.name);
        member.wanted && led(facts).is_some() && (failed || lone && late)
    };
    let taken = led(facts)
        .and_then(|cluster| cluster.policies)
        .is_some_and(|policies| {
            let wanted = facts.object.spec.bootstrap_policies == BootstrapPolicies::AllRouters;
            let both = [policies.edge_router, policies.service_edge_router];
            wanted && both.contains(&Policy::Foreign)
        });
    if let Some(peer) = foreign {
        let message = format!(
            "{} is in the cluster and is no member of this ZitiController: it is left alone. Remove it (`ziti agent cluster remove {}`) if nobody needs it",
            peer.id, peer.id
        );
        conditions.set(
            types::DEGRADED,
            Truth::True,
            reasons::FOREIGN_MEMBER,
            message,
        );
    } else if let Some(problem) = issuer {
        conditions.set(
            types::DEGRADED,
            Truth::True,
            problem.reason,
            problem.message,
        );
    } else if let Some(member) = members.iter().find(pending) {
        let why = facts
            .joins
            .get(&member.name)
            .map_or_else(|| "read its log".to_owned(), |failed| failed.why.clone());
        let message = format!(
            "{} could not be taken into the cluster: {why}; it is tried again",
            member.name
        );
        conditions.set(
            types::DEGRADED,
            Truth::True,
            reasons::MEMBER_FAILING,
            message,
        );
    } else if taken {
        let message = format!(
            "the network has a policy {POLICY} that is not this ZitiController's, so spec.bootstrapPolicies makes none: delete or rename it"
        );
        conditions.set(types::DEGRADED, Truth::True, reasons::NAME_TAKEN, message);
    } else if mixed {
        conditions.set(
            types::DEGRADED,
            Truth::True,
            reasons::VERSIONS_DIFFER,
            "the members run different versions: the cluster takes no writes until they are one",
        );
    } else {
        conditions.set(
            types::DEGRADED,
            Truth::False,
            reasons::SETTLED,
            "no member needs a look",
        );
    }
}

fn is_settled(facts: &Facts, members: &[Member]) -> bool {
    let wanted = members.iter().filter(|member| member.wanted);
    let up = wanted.clone().filter(|member| member.is_up()).count();
    let gone = members
        .iter()
        .all(|member| member.wanted || member.pod.is_none());
    up == wanted.count() && gone && led(facts).is_some() && facts.network.is_some()
}

fn progress(facts: &Facts, members: &[Member], steps: &[Step], conditions: &mut Conditions) {
    let wished = wished(facts);
    let leaving: Vec<&str> = members
        .iter()
        .filter(|member| !member.wanted && (member.pod.is_some() || member.peer.is_some()))
        .map(|member| member.name.as_str())
        .collect();
    let outdated = members
        .iter()
        .filter(|member| member.outdated().is_some())
        .count();
    let up = members
        .iter()
        .filter(|member| member.wanted && member.is_up())
        .count();
    let (truth, reason, message) = if let Some(member) = cluster::stalled(facts, members) {
        let others = if cluster::counts(facts, member) {
            "the others are left as they are"
        } else {
            "it is not in the cluster, so the others do not wait for it"
        };
        let message = format!(
            "{} has been there for more than {} minutes and is not ready; {others}: read its log, mend the spec or go back",
            member.name,
            cluster::DEADLINE.as_mins()
        );
        (Truth::False, reasons::ROLLOUT_STALLED, message)
    } else if !leaving.is_empty() {
        let message = format!("{} leave the cluster, one at a time", leaving.join(", "));
        (Truth::True, reasons::SCALING_DOWN, message)
    } else if outdated > 0 {
        let message = format!(
            "{outdated} of {wished} members are still to be brought up to date, one at a time, the leader last"
        );
        (Truth::True, reasons::ROLLING_OUT, message)
    } else if is_electing(facts) {
        let message = "a leader is being elected".to_owned();
        (Truth::True, reasons::ELECTING, message)
    } else if count(up) < wished {
        let message = format!("{up} of {wished} members are in the cluster and ready");
        (Truth::True, reasons::MEMBERS_NOT_READY, message)
    } else if !issuer::bears_change(facts) {
        let message = "what changed waits for certificates of the issuer".to_owned();
        (Truth::True, reasons::CERTIFICATES_PENDING, message)
    } else if steps
        .iter()
        .any(|step| !is_beside(step) && !matches!(step, Step::DeleteIdentities(_)))
    {
        // What the operator no longer uses is taken away minutes later, and is no
        // change of anything.
        let message = "a change is on its way".to_owned();
        (Truth::True, reasons::ROLLING_OUT, message)
    } else {
        let message = "nothing is left to do".to_owned();
        (Truth::False, reasons::SETTLED, message)
    };
    conditions.set(types::PROGRESSING, truth, reason, message);
}

/// Whether the cluster was ready, and has had no leader for so short a time that
/// one is to come. Where no pod runs at all, none is.
fn is_electing(facts: &Facts) -> bool {
    let status = facts.object.status.as_ref();
    let was_ready = status.is_some_and(|status| is_true(&status.conditions, types::READY));
    let runs = !matches!(&facts.cluster, Err(problem) if problem.reason == reasons::PENDING);
    was_ready && runs && led(facts).is_none() && leaderless_for(facts) < ELECTION
}

fn readiness(facts: &Facts, members: &[Member], conditions: &mut Conditions) {
    if is_electing(facts) {
        // As it was.
        return;
    }
    let wished = wished(facts);
    let wanted = members.iter().filter(|member| member.wanted);
    let (truth, reason, message) = match (&facts.cluster, led(facts)) {
        (_, Some(cluster)) => {
            let leader = cluster.leader().map(|peer| peer.id.as_str());
            let leader = leader.unwrap_or_default();
            let up = wanted.filter(|member| member.is_up()).count();
            let voters = cluster.members.iter().filter(|peer| peer.voter);
            let connected = voters.clone().filter(|peer| peer.connected).count();
            let message = format!("{leader} leads; {up} of {wished} members are up");
            if connected >= quorum(voters.count()) {
                (Truth::True, reasons::READY, message)
            } else {
                (Truth::False, reasons::QUORUM_LOST, message)
            }
        }
        _ if restore::is_lost(facts) => (
            Truth::False,
            reasons::DATABASE_LOST,
            restore::lost_message(facts),
        ),
        _ if let Some(member) = restore::kept_by(facts) => {
            let message = format!(
                "no member that runs has a database of the network, and the volume of {0} may have one: set spec.replicas to {1}, and lower it when the cluster is Ready; or delete claim data-{0} to do without it",
                member.name,
                member.size()
            );
            (Truth::False, reasons::QUORUM_LOST, message)
        }
        _ if !is_made(facts) => {
            let first = names::controller_member(
                facts.object.metadata.name.as_deref().unwrap_or_default(),
                0,
            );
            let waits = Problem::new(reasons::PENDING, format!("{first} is to make the network"));
            let problem = issuer::trouble(facts).unwrap_or(waits);
            (Truth::False, problem.reason, problem.message)
        }
        // A member without its database refuses everybody.
        (Err(problem), None)
            if problem.reason == reasons::BAD_CREDENTIALS
                && !members.iter().any(Member::is_ready) =>
        {
            let message =
                "no member is ready, so that none takes the operator's credentials means nothing";
            (Truth::False, reasons::MEMBERS_NOT_READY, message.to_owned())
        }
        (Err(problem), None) => {
            // An outage is told once: how one attempt after the other fails may differ
            // in its words each time, and each would be a write.
            let told = conditions.get(types::READY);
            let same = problem.reason == reasons::CONTROLLER_UNREACHABLE;
            let told =
                told.filter(|told| same && told.status == "False" && told.reason == problem.reason);
            let message = told.map_or(&problem.message, |told| &told.message);
            (Truth::False, problem.reason, message.clone())
        }
        (Ok(cluster), None) => (
            Truth::False,
            reasons::QUORUM_LOST,
            leaderless(facts, cluster, members),
        ),
    };
    conditions.set(types::READY, truth, reason, message);
}

fn leaderless(facts: &Facts, cluster: &Cluster, members: &[Member]) -> String {
    let voters = || cluster.members.iter().filter(|peer| peer.voter);
    let moved = members.iter().find_map(|member| {
        let known = voters().find(|peer| peer.id == member.name)?;
        let wanted = cluster::address(facts, member.ordinal);
        (member.wanted && known.address != wanted).then_some((known, wanted))
    });
    if let Some((known, wanted)) = moved {
        return format!(
            "the cluster has no leader, and its members know {} by {}, where spec.advertised.controlPlane makes that {wanted}: set it back until there is one",
            known.id, known.address
        );
    }
    let missed = members.iter().rfind(|member| {
        let counted = voters().any(|peer| peer.id == member.name);
        counted && !member.wanted && member.pod.is_none()
    });
    if let Some(missed) = missed {
        return format!(
            "the cluster has no leader, and counts on the vote of {}, for which no pod runs: set spec.replicas to {}, and lower it when the cluster is Ready",
            missed.name,
            missed.size()
        );
    }
    "the cluster has no leader: a majority of its members must run and reach each other. Nothing is changed meanwhile. Where a majority of the databases is lost for good, see \"Quorum lost\" in docs/controllers.md".to_owned()
}
