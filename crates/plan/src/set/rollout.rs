//! Which pod is replaced next. At most one member is disturbed at a time, the
//! ones that are down first, and the next only when the last is up again.

use super::member::{Member, report};
use super::{Facts, Network, Step};
use crate::conditions::find;
use api::reasons::{self, types};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::SignedDuration;
use std::collections::BTreeSet;

/// How long a pod that kept its old identity, since it could not redeem a new
/// token, is given before it is made to try again: it does not by itself.
pub(super) const RETRY: SignedDuration = SignedDuration::from_secs(90);

/// How long a pod may take from its making until it is online. After that the
/// rollout is said to have stalled; whoever waits for the pod goes on waiting.
pub(super) const DEADLINE: SignedDuration = SignedDuration::from_mins(5);

/// How long the network sees a router offline that was online in its pod, before
/// the pod is replaced: some routers do not find back to a controller that was
/// restarted, and go on as if all were well.
pub(super) const HUNG: SignedDuration = SignedDuration::from_mins(10);

/// A member of the newest template whose pod has never been up, although its
/// time is over. While the network cannot be asked, nobody's is.
pub(super) fn stalled<'a>(facts: &Facts, wanted: &[&'a Member<'a>]) -> Option<&'a Member<'a>> {
    let mut new = coming(facts, wanted);
    new.find(|(_, age)| *age >= DEADLINE)
        .map(|(member, _)| member)
}

/// When the next pod's time is over.
pub(super) fn time_left(facts: &Facts, wanted: &[&Member]) -> Option<SignedDuration> {
    let left = coming(facts, wanted).map(|(_, age)| DEADLINE.saturating_sub(age));
    left.filter(SignedDuration::is_positive).min()
}

/// Members of the newest template whose pod has never been up, and its age.
fn coming<'a>(
    facts: &Facts,
    wanted: &[&'a Member<'a>],
) -> impl Iterator<Item = (&'a Member<'a>, SignedDuration)> {
    let blind = is_blind(facts);
    wanted.iter().copied().filter_map(move |member| {
        let pod = member.pod?;
        let newest = member.revision().is_some() && !member.is_outdated();
        let status = member.edge_router.and_then(|er| er.status.as_ref());
        let was_up = member.is_up()
            || status.is_some_and(|status| {
                status.online_pod.is_some() && status.online_pod == pod.metadata.uid
            });
        let comes = newest && !blind && !was_up && !member.is_terminating();
        comes.then(|| (member, age(facts, pod)))
    })
}

/// While the network cannot be asked nobody knows who is up.
fn is_blind(facts: &Facts) -> bool {
    let Network::Found {
        fault,
        has_credential,
        ..
    } = &facts.network
    else {
        return false;
    };
    *has_credential && fault.is_some()
}

fn age(facts: &Facts, pod: &Pod) -> SignedDuration {
    let made = pod.metadata.creation_timestamp.as_ref();
    made.map_or(SignedDuration::ZERO, |made| {
        facts.now.duration_since(made.0)
    })
}

/// The next pod to replace, if any may be: because the template changed, or
/// because a person deleted the EdgeRouter of a member that is wanted, which is
/// then registered anew.
pub(super) fn next(facts: &Facts, members: &[Member]) -> Option<Step> {
    let mut told = members.iter().filter(|member| member.told);
    if told.any(Member::is_terminating) {
        return None;
    }
    let why = |member: &Member| {
        let outdated = member.is_outdated();
        let text = if outdated {
            "its template changed"
        } else {
            "its EdgeRouter is being deleted"
        };
        (outdated || member.is_leaving()).then_some(text)
    };
    let due = members
        .iter()
        .filter(|member| member.told && member.revision().is_some())
        .filter_map(|member| Some((member, member.pod?, why(member)?)));
    let mut due: Vec<_> = due.collect();
    let is_down = |member: &Member| !member.is_ready() && !member.is_connected();
    if let Some((_, pod, why)) = due.iter().find(|(member, ..)| is_down(member)) {
        return Some(delete(pod, why));
    }
    // An EdgeRouter that is being deleted tells nothing new of its router; two
    // of them must not wait for each other.
    let runs = |member: &Member| member.is_ready() && !member.is_terminating();
    let is_up = |member: &Member| member.is_up() || (member.is_leaving() && runs(member));
    // Those that are not up first; of those that are, the last first.
    due.reverse();
    due.sort_by_key(|(member, ..)| member.is_up());
    let (member, pod, why) = due.into_iter().next()?;
    (!is_blind(facts) && others(members, member).all(is_up)).then(|| delete(pod, why))
}

/// Pods that cannot go on by themselves although their token is there now: the
/// kubelet would come back to them only after its back-off. Those that do not
/// work are replaced at once, and of those that run with another identity one
/// at a time.
pub(super) fn stuck(facts: &Facts, members: &[Member], withheld: &BTreeSet<String>) -> Vec<Step> {
    let (mut steps, mut running) = (Vec::new(), None);
    for member in members {
        let (Some(pod), Some(token)) = (member.pod, member.waiting_token) else {
            continue;
        };
        let known = withheld.contains(&member.name) || !member.told;
        let Some(report) = report(pod).filter(|_| !known && !member.is_terminating()) else {
            continue;
        };
        if report.token_digest.as_deref() == Some(token) {
            let tried = report.is_enrolled() && !is_blind(facts) && !member.is_connected();
            let again = delete(pod, "its token waits still: it could not redeem it");
            if tried && member.network_tells && age(facts, pod) >= RETRY {
                steps.push(again);
            } else if !member.network_tells
                && report.token_reason.is_some()
                && age(facts, pod) >= RETRY
                && running.is_none()
            {
                // Nobody can tell whether its old identity still serves.
                running = Some((member, again));
            }
            continue;
        }
        let step = delete(
            pod,
            &format!("a new token waits for it ({})", report.reason),
        );
        let works = member.is_ready() && seems_connected(facts, member);
        if !works {
            steps.push(step);
        } else if running.is_none() {
            running = Some((member, step));
        }
    }
    // Whether the others are up cannot be asked for: their identities may have
    // been replaced as well. That they run is enough, and all that is known of
    // one whose EdgeRouter is being deleted (see `next`, where it waits for this
    // one).
    let runs = |other: &Member| {
        let seen = other.is_connected() || !other.network_tells || other.is_leaving();
        other.is_ready() && !other.is_terminating() && seen
    };
    if let Some((member, step)) = running
        && steps.is_empty()
        && others(members, member).all(runs)
    {
        steps.push(step);
    }
    steps
}

/// How old the word of the network may be by which a router is offline: a list is
/// that of up to half a minute ago, and its router may have come back since.
const STALE: SignedDuration = SignedDuration::from_mins(1);

/// Whether a router may be connected, for all that is known.
fn seems_connected(facts: &Facts, member: &Member) -> bool {
    let offline = offline_for(facts, member);
    member.is_connected() || !member.network_tells || offline.is_some_and(|long| long < STALE)
}

/// How long a member has been told offline.
fn offline_for(facts: &Facts, member: &Member) -> Option<SignedDuration> {
    let status = member.edge_router?.status.as_ref()?;
    let online = find(&status.conditions, types::ONLINE)?;
    let offline = online.status == "False" && online.reason == reasons::OFFLINE;
    offline.then(|| facts.now.duration_since(online.last_transition_time.0))
}

/// When the next one that waits to be replaced counts as offline for certain.
pub(super) fn stuck_left(facts: &Facts, members: &[Member]) -> Option<SignedDuration> {
    let waiting = members
        .iter()
        .filter(|member| member.waiting_token.is_some() && member.told);
    let left = waiting.filter_map(|member| Some(STALE.saturating_sub(offline_for(facts, member)?)));
    left.filter(SignedDuration::is_positive).min()
}

/// The other members that are wanted, whether or not they could be started:
/// the last one online is not taken down while another is still to come.
fn others<'a>(members: &'a [Member<'a>], member: &Member) -> impl Iterator<Item = &'a Member<'a>> {
    let name = member.name.clone();
    members
        .iter()
        .filter(move |other| other.wanted && other.name != name)
        // One that is bound to a node that will not have it is no member to
        // wait for.
        .filter(|other| other.node.is_none() || !other.is_unschedulable())
}

/// The pod of a router that hangs, to be replaced: one at a time, since the new
/// pod is ready only when it was online. So each pod is replaced for this once,
/// and where it does not help, such as for a network that is cut off, the others
/// keep their circuits.
pub(super) fn hung(facts: &Facts, members: &[Member]) -> Option<Step> {
    let runs = |member: &Member| member.is_ready() && !member.is_terminating();
    let (member, pod, _) = hanging(facts, members).find(|(.., left)| !left.is_positive())?;
    let why =
        "the network has not seen it online for 10 minutes, and its pod is ready all the same";
    others(members, member).all(runs).then(|| delete(pod, why))
}

/// When the next one has hung for long enough.
pub(super) fn hung_left(facts: &Facts, members: &[Member]) -> Option<SignedDuration> {
    let left = hanging(facts, members).map(|(.., left)| left);
    left.filter(SignedDuration::is_positive).min()
}

/// Members whose router is offline in a pod that is ready, in which it was online
/// therefore, and how much longer that is borne. While nobody could ask, nobody
/// knows how long it has been so: an operator that comes back, or a network, gives
/// all of them their whole time.
fn hanging<'a>(
    facts: &Facts,
    members: &'a [Member<'a>],
) -> impl Iterator<Item = (&'a Member<'a>, &'a Pod, SignedDuration)> {
    let (blind, now) = (is_blind(facts), facts.now);
    let asked = match &facts.network {
        Network::Found { asked_since, .. } => *asked_since,
        Network::NotReferenced | Network::Missing(_) => None,
    };
    members.iter().filter_map(move |member| {
        let pod = member.pod?;
        let status = member.edge_router?.status.as_ref()?;
        let online = find(&status.conditions, types::ONLINE)?;
        let runs = member.is_ready() && !member.is_terminating() && !member.is_leaving();
        let offline = online.status == "False" && online.reason == reasons::OFFLINE;
        let hangs = member.wanted && member.network_tells && runs && offline && !blind;
        let since = now.duration_since(online.last_transition_time.0.max(asked?));
        hangs.then(|| (member, pod, HUNG.saturating_sub(since)))
    })
}

fn delete(pod: &Pod, why: &str) -> Step {
    Step::DeletePod {
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        why: why.to_owned(),
    }
}
