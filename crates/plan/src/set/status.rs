//! Puts the state of a set into words.

use super::member::{Member, current_replicas, stateful_set_is_observed, wished};
use super::{Facts, Network, Plan, Step, pod_options};
use crate::conditions::{Conditions, Truth, find};
use crate::edge_router::Problem;
use api::reasons::{self, types};
use api::{ZitiRouterStatus, names};
use k8s_openapi::api::core::v1::Pod;
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
    let wished = wished(facts);
    let wanted: Vec<&Member> = members
        .iter()
        .filter(|member| member.ordinal < wished)
        .collect();
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
    let leaving = members.iter().filter(|member| {
        member.ordinal >= wished && (member.edge_router.is_some() || member.pod.is_some())
    });
    let leaving: Vec<&str> = leaving.map(|member| member.name.as_str()).collect();
    let outdated = wanted
        .iter()
        .filter(|member| is_outdated(facts, member))
        .count();
    if !leaving.is_empty() {
        let message = format!("{} leave the network", leaving.join(", "));
        conditions.set(
            types::PROGRESSING,
            Truth::True,
            reasons::SCALING_DOWN,
            message,
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
        let (reason, detail) =
            worst.unwrap_or((reasons::MEMBERS_NOT_READY, waiting(facts, &wanted)));
        conditions.set(
            types::READY,
            Truth::False,
            reason,
            format!("{up} of {wished} members are online{detail}"),
        );
    }
    status.conditions = conditions.into_vec();
    // Nothing tells that Kubernetes refuses to make a pod.
    let missing = |member: &&Member| may_run(facts, member) && member.pod.is_none();
    let requeue = wanted.iter().any(missing);
    Plan {
        steps,
        status,
        requeue: requeue.then_some(REFUSAL),
    }
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
    let mut conditions = Conditions::new(&status.conditions, generation, now);
    conditions.set(
        types::DEGRADED,
        Truth::True,
        problem.reason,
        problem.message.clone(),
    );
    status.conditions = conditions.into_vec();
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
        conditions: Vec::new(),
    };
    (
        status,
        Conditions::new(&old.conditions, generation, facts.now),
    )
}

/// Whether the StatefulSet is about to be changed, or was and its controller
/// has not taken it up: whom the change concerns is not to be seen before.
fn is_being_changed(facts: &Facts, steps: &[Step]) -> bool {
    let applied = steps
        .iter()
        .any(|step| matches!(step, Step::ApplyStatefulSet(_)));
    applied || !stateful_set_is_observed(facts)
}

fn is_outdated(facts: &Facts, member: &Member) -> bool {
    let revision = facts
        .stateful_set
        .as_ref()
        .and_then(|set| set.status.as_ref()?.update_revision.clone());
    let label = |pod: &Pod| {
        pod.metadata
            .labels
            .as_ref()?
            .get("controller-revision-hash")
            .cloned()
    };
    member
        .pod
        .is_some_and(|pod| revision.is_some() && label(pod) != revision)
}

/// What is wrong with a member, beyond not being there yet.
fn trouble(facts: &Facts, member: &Member, withheld: &BTreeSet<String>) -> Option<Problem> {
    if member.is_up() {
        return None;
    }
    if withheld.contains(&member.name) && !member.is_online() {
        let message = "its token stands under another member's key as well, so it is given to neither: give each member a token of its own";
        return Some(Problem::new(reasons::TOKEN_DUPLICATE, message));
    }
    let Some(er) = member.edge_router else {
        let provided = facts
            .provided
            .as_ref()
            .and_then(|provided| provided.as_ref().ok());
        return provided
            .filter(|tokens| !tokens.contains_key(&member.name))
            .map(|_| {
                let message = format!(
                    "no token is given for it: add the key {} to spec.tokens or to the Secret",
                    member.name
                );
                Problem::new(reasons::TOKEN_MISSING, message)
            });
    };
    if let Some(problem) = pod_trouble(member).or_else(|| refused_pod(facts, member)) {
        return Some(problem);
    }
    let conditions = &er.status.as_ref()?.conditions;
    let failing = [
        reasons::NAME_TAKEN,
        reasons::NAME_INVALID,
        reasons::ENTITY_MISSING,
        reasons::REFUSED,
        reasons::NETWORK_CHANGED,
        reasons::FORBIDDEN,
        reasons::INVALID_SPEC,
        reasons::TOKEN_OF_ANOTHER_NETWORK,
        reasons::IDENTITY_LOST,
        reasons::SOURCE_MISSING,
        reasons::SOURCE_INVALID,
        reasons::KEY_MISSING,
        reasons::NETWORK_NOT_FOUND,
    ];
    // A pod that has no token yet is on its way.
    let of_agent = reasons::OF_AGENT
        .into_iter()
        .filter(|reason| *reason != reasons::TOKEN_MISSING);
    let ready = find(conditions, types::READY)?;
    let reason = failing
        .into_iter()
        .chain(of_agent)
        .find(|reason| ready.reason == *reason)?;
    Some(Problem::new(reason, ready.message.clone()))
}

/// What Kubernetes says is wrong with a member's pod.
fn pod_trouble(member: &Member) -> Option<Problem> {
    let status = member.pod?.status.as_ref()?;
    let containers = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses)
        .flatten();
    for container in containers {
        let waiting = container
            .state
            .as_ref()
            .and_then(|state| state.waiting.as_ref());
        let Some(reason) = waiting.and_then(|waiting| waiting.reason.as_deref()) else {
            continue;
        };
        let image_fault = matches!(
            reason,
            "ImagePullBackOff" | "ErrImagePull" | "InvalidImageName" | "ErrImageNeverPull"
        );
        let crashing =
            reason == "CrashLoopBackOff" && container.name == super::member::ROUTER_CONTAINER;
        let broken = matches!(
            reason,
            "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError"
        );
        if image_fault || crashing || broken {
            let said = waiting
                .and_then(|waiting| waiting.message.clone())
                .unwrap_or_default();
            let message = format!(
                "container {} of pod {} is in {reason}: {said}",
                container.name, member.name
            );
            return Some(Problem::new(reasons::MEMBER_FAILING, message));
        }
    }
    None
}

/// Whether the StatefulSet wants its pod.
fn may_run(facts: &Facts, member: &Member) -> bool {
    member.ordinal < current_replicas(facts)
}

/// Why Kubernetes makes no pod for a member that may run, if it said so.
fn refused_pod(facts: &Facts, member: &Member) -> Option<Problem> {
    let missing = may_run(facts, member) && member.pod.is_none();
    let said = facts.refusal.as_deref().filter(|_| missing)?;
    let need = pod_options::privileged(&facts.object.spec);
    let advice = need.filter(|_| said.contains("PodSecurity")).map(|why| {
        format!("; {why}: label the namespace pod-security.kubernetes.io/enforce=privileged, or use another one")
    });
    let advice = advice.unwrap_or_default();
    let message = format!("Kubernetes makes no pod for it: {said}{advice}");
    Some(Problem::new(reasons::MEMBER_FAILING, message))
}

/// For whom and for what a set that is not ready waits.
fn waiting(facts: &Facts, wanted: &[&Member]) -> String {
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
