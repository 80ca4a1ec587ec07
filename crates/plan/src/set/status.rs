//! Puts the state of a set into words.

use super::member::{Member, is_observed};
use super::roster::nodes_gone;
use super::trouble::{pod_trouble, trouble};
use super::{Facts, Network, Plan, Step, per_member, reach, rollout};
use crate::conditions::{self, Conditions, Truth, find};
use crate::edge_router::Problem;
use api::reasons::{self, types};
use api::{ZitiRouterStatus, names};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;

/// How soon to look whether Kubernetes refuses to make a pod that is missing.
const REFUSAL: SignedDuration = SignedDuration::from_secs(5);

/// A set that works, or is on its way.
pub(super) fn running(
    facts: &Facts,
    members: &[Member],
    withheld: &BTreeSet<String>,
    steps: Vec<Step>,
) -> Plan {
    let (mut status, mut conditions) = counted(facts, members);
    let wanted: Vec<&Member> = members.iter().filter(|member| member.wanted).collect();
    let wished = wanted.len();
    let up = wanted
        .iter()
        .filter(|member| member.is_ready() && member.is_online() && !member.is_terminating())
        .count();
    let trouble: Vec<(String, Problem)> = wanted
        .iter()
        .filter_map(|member| Some((member.name.clone(), trouble(facts, member, withheld)?)))
        .collect();

    match trouble.first() {
        Some((name, problem)) => {
            let message = format!("{name}: {}", problem.message);
            conditions.set(types::DEGRADED, Truth::True, problem.reason, message);
        }
        None => conditions.set(
            types::DEGRADED,
            Truth::False,
            reasons::SETTLED,
            "no member needs a look",
        ),
    }
    let leaving = members
        .iter()
        .filter(|member| !member.wanted && (member.edge_router.is_some() || member.pod.is_some()));
    let leaving: Vec<&str> = leaving.map(|member| member.name.as_str()).collect();
    let outdated = wanted.iter().filter(|member| member.is_outdated()).count();
    if !leaving.is_empty() {
        let message = format!("{} leave the network", leaving.join(", "));
        conditions.set(
            types::PROGRESSING,
            Truth::True,
            reasons::SCALING_DOWN,
            message,
        );
    } else if let Some(message) = stalled(facts, &wanted) {
        conditions.set(
            types::PROGRESSING,
            Truth::False,
            reasons::ROLLOUT_STALLED,
            message,
        );
    } else if let Some(what) =
        per_member::waits(facts, members, &per_member::config_map(facts, members))
    {
        conditions.set(
            types::PROGRESSING,
            Truth::True,
            reasons::ADDRESS_PENDING,
            format!("a change waits for an address; {what}"),
        );
    } else if outdated > 0 {
        let message = format!(
            "{outdated} of {wished} members are still to be brought up to date, one at a time"
        );
        conditions.set(
            types::PROGRESSING,
            Truth::True,
            reasons::ROLLING_OUT,
            message,
        );
    } else if up < wanted.len() {
        let message = format!("{up} of {wished} members are online");
        conditions.set(
            types::PROGRESSING,
            Truth::True,
            reasons::MEMBERS_NOT_READY,
            message,
        );
    } else if is_being_changed(facts, &steps) {
        conditions.set(
            types::PROGRESSING,
            Truth::True,
            reasons::ROLLING_OUT,
            "a change is on its way to the members",
        );
    } else {
        conditions.set(
            types::PROGRESSING,
            Truth::False,
            reasons::SETTLED,
            "nothing is left to do",
        );
    }
    if up == wanted.len() {
        conditions.set(
            types::READY,
            Truth::True,
            reasons::READY,
            format!("{up} of {wished} members are online"),
        );
    } else {
        let worst = trouble
            .first()
            .map(|(name, problem)| (problem.reason, format!("; {name}: {}", problem.message)));
        let (reason, detail) = worst.unwrap_or_else(|| waiting(facts, &wanted));
        conditions.set(
            types::READY,
            Truth::False,
            reason,
            format!("{up} of {wished} members are online{detail}"),
        );
    }
    status.conditions = conditions.into_vec();
    // Nothing tells that Kubernetes refuses to make a pod.
    let missing = wanted
        .iter()
        .any(|member| member.told && member.pod.is_none());
    let refused = missing.then_some(REFUSAL);
    let late = rollout::time_left(facts, &wanted);
    let hung = rollout::hung_left(facts, members);
    let stuck = rollout::stuck_left(facts, members);
    Plan {
        steps,
        status,
        // Nor that a member's time is over.
        requeue: refused
            .into_iter()
            .chain(late)
            .chain(hung)
            .chain(stuck)
            .min(),
    }
}

/// Whether a member's new pod did not come online in its time, so that the
/// rollout does not go on by itself; and what is known of it.
fn stalled(facts: &Facts, wanted: &[&Member]) -> Option<String> {
    let member = rollout::stalled(facts, wanted)?;
    let others = wanted.iter().filter(|member| member.is_outdated()).count();
    let ready = member
        .edge_router
        .and_then(|er| find(&er.status.as_ref()?.conditions, types::READY));
    let known = pod_trouble(member)
        .map(|problem| problem.message)
        .or_else(|| ready.map(|ready| ready.message.clone()));
    let known = known.map(|known| format!(": {known}")).unwrap_or_default();
    let waiting = if others == 0 {
        String::new()
    } else {
        format!(" {others} more wait for it and keep what they run.")
    };
    Some(format!(
        "pod {} is not online {} minutes after it was made{known}.{waiting} Mend the cause, or take the change back; look at: kubectl logs {} --all-containers",
        member.pod_name(),
        rollout::DEADLINE.as_mins(),
        member.pod_name()
    ))
}

/// A set that cannot be run as it is written. What runs goes on running.
pub(super) fn refused(facts: &Facts, members: &[Member], problem: Problem) -> Plan {
    let (mut status, mut conditions) = counted(facts, members);
    conditions.set(
        types::READY,
        Truth::False,
        problem.reason,
        problem.message.clone(),
    );
    conditions.set(
        types::PROGRESSING,
        Truth::False,
        problem.reason,
        "waits until that is mended; what runs goes on running",
    );
    conditions.set(
        types::DEGRADED,
        Truth::True,
        problem.reason,
        problem.message,
    );
    status.conditions = conditions.into_vec();
    // A watch on what the object names tells of the mending; this is for what
    // no watch covers.
    Plan {
        steps: Vec::new(),
        status,
        requeue: Some(SignedDuration::from_secs(60)),
    }
}

/// A set that a person has paused: how its members are is told all the same.
pub(super) fn paused(facts: &Facts, members: &[Member], steps: Vec<Step>) -> Plan {
    let mut plan = running(facts, members, &BTreeSet::new(), steps);
    let metadata = &facts.object.metadata;
    let mut conditions = Conditions::new(&plan.status.conditions, metadata.generation, facts.now);
    let ready = find(&plan.status.conditions, types::READY);
    if metadata.deletion_timestamp.is_some() {
        let message = "its deletion waits while spec.paused is set: nothing is written, here or on the network";
        conditions.set(types::READY, Truth::False, reasons::PAUSED, message);
    } else if let Some(ready) = ready {
        let message = format!(
            "paused by spec.paused, nothing is written; {}",
            ready.message
        );
        conditions.set(types::READY, Truth::of(ready), reasons::PAUSED, message);
    }
    let message = "spec.paused is set: nothing is written, here or on the network";
    conditions.set(types::PROGRESSING, Truth::False, reasons::PAUSED, message);
    plan.status.conditions = conditions.into_vec();
    plan
}

/// Nothing to do and nothing to say: the object is an old copy.
pub(super) fn unchanged(facts: &Facts) -> Plan {
    Plan {
        steps: Vec::new(),
        status: facts.object.status.clone().unwrap_or_default(),
        requeue: Some(SignedDuration::from_secs(1)),
    }
}

/// A set that is being deleted.
pub(super) fn deleting(facts: &Facts, members: &[Member], steps: Vec<Step>) -> Plan {
    let (mut status, mut conditions) = counted(facts, members);
    let blocked = members.iter().find_map(|member| {
        let ready = find(
            &member.edge_router?.status.as_ref()?.conditions,
            types::READY,
        )?;
        (ready.reason != reasons::DELETING && member.pod.is_none())
            .then(|| format!("{}: {}", member.name, ready.message))
    });
    let left = members
        .iter()
        .filter(|member| member.edge_router.is_some() || member.pod.is_some())
        .count();
    let message = blocked.unwrap_or_else(|| format!("{left} members are still to go"));
    conditions.set(
        types::READY,
        Truth::False,
        reasons::DELETING,
        message.clone(),
    );
    conditions.set(types::PROGRESSING, Truth::True, reasons::DELETING, message);
    status.conditions = conditions.into_vec();
    Plan {
        steps,
        status,
        requeue: None,
    }
}

/// The status to write when a step failed.
pub fn after_failure(
    plan: &Plan,
    problem: &Problem,
    generation: Option<i64>,
    now: Timestamp,
) -> ZitiRouterStatus {
    let mut status = plan.status.clone();
    status.conditions = conditions::after_failure(&status.conditions, problem, generation, now);
    status
}

fn counted(facts: &Facts, members: &[Member]) -> (ZitiRouterStatus, Conditions) {
    let old = facts.object.status.clone().unwrap_or_default();
    let generation = facts.object.metadata.generation;
    let count = |test: fn(&Member) -> bool| {
        i32::try_from(members.iter().filter(|member| test(member)).count()).unwrap_or(i32::MAX)
    };
    let set = facts.object.metadata.name.as_deref().unwrap_or_default();
    let status = ZitiRouterStatus {
        observed_generation: generation,
        replicas: count(|member| member.pod.is_some()),
        ready_replicas: count(|member| member.is_ready() && !member.is_terminating()),
        online_replicas: count(|member| {
            member.edge_router.is_some() && member.pod.is_some() && member.is_online()
        }),
        selector: Some(format!("{}={set}", names::LABEL_SET)),
        nodes_gone: nodes_gone(facts),
        conditions: Vec::new(),
    };
    (
        status,
        Conditions::new(&old.conditions, generation, facts.now),
    )
}

/// Whether a StatefulSet is about to be changed, or was and its controller
/// has not taken it up: whom the change concerns is not to be seen before.
fn is_being_changed(facts: &Facts, steps: &[Step]) -> bool {
    let applied = steps
        .iter()
        .any(|step| matches!(step, Step::ApplyStatefulSet(_)));
    applied || !facts.stateful_sets.iter().all(is_observed)
}

/// For whom and for what a set that is not ready waits, and the reason for it.
fn waiting(facts: &Facts, wanted: &[&Member]) -> (&'static str, String) {
    let pending = |member: &&Member| {
        let unregistered = member.edge_router.is_none();
        let what = reach::pending(facts, &member.name, member.ordinal).filter(|_| unregistered)?;
        Some(format!("; {}: {what}", member.name))
    };
    match wanted.iter().find_map(pending) {
        Some(text) => (reasons::ADDRESS_PENDING, text),
        None => (reasons::MEMBERS_NOT_READY, waiting_for(facts, wanted)),
    }
}

fn waiting_for(facts: &Facts, wanted: &[&Member]) -> String {
    if let Network::Found {
        fault: Some(problem),
        ..
    } = &facts.network
    {
        return format!("; the ZitiNetwork is not ready: {}", problem.message);
    }
    let Some(member) = wanted
        .iter()
        .find(|member| !(member.is_ready() && member.is_online()))
    else {
        return String::new();
    };
    let ready = member
        .edge_router
        .and_then(|er| er.status.as_ref())
        .and_then(|status| find(&status.conditions, types::READY));
    match (member.edge_router, member.pod, ready) {
        (None, _, _) => format!("; {} is being registered", member.name),
        (_, None, _) => format!("; {} is about to start", member.name),
        (_, _, Some(ready)) if ready.status != "True" => {
            format!("; {}: {}", member.name, ready.message)
        }
        _ => format!("; {} is starting", member.name),
    }
}
