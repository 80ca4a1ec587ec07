//! Who joins the cluster, who leaves it, and whose pod is replaced next.
//!
//! Only the leader's word counts: a follower takes the others for not connected.
//! One thing is done at a time, and each is done only where the votes that are
//! left are a majority of the members that are left.

use super::config::control_plane;
use super::member::{Member, ordinal_of, wished};
use super::pki::MemberPki;
use super::{Cluster, Facts, Root, Step, issuer, restore};
use crate::set::member::{is_observed, replicas};
use api::controller::UpdateStrategy;
use k8s_openapi::jiff::SignedDuration;
use std::cmp::Reverse;

/// How long a pod may take from its making until its member is up. After that
/// the rollout is said to have stalled; whoever waits for it goes on waiting.
pub(super) const DEADLINE: SignedDuration = SignedDuration::from_mins(5);

/// How long a cluster that had a leader is not called lost without one. An election
/// takes some five seconds.
pub(super) const ELECTION: SignedDuration = SignedDuration::from_secs(15);

/// How long a cluster has no leader before a member that is not ready is one that
/// does not work.
const LEADERLESS: SignedDuration = SignedDuration::from_mins(1);

/// Votes that make a majority of so many members.
pub fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

/// The cluster as its leader sees it; `None` where it has none, or another
/// member was asked.
pub fn led<'a>(facts: &'a Facts) -> Option<&'a Cluster> {
    let cluster = facts.cluster.as_ref().ok()?;
    let leader = cluster.leader()?;
    (leader.id == cluster.asked).then_some(cluster)
}

/// How long no leader has been seen, by the operator's clock alone.
pub(super) fn leaderless_for(facts: &Facts) -> SignedDuration {
    let status = facts.object.status.as_ref();
    let since = status.and_then(|status| status.leaderless_since.as_ref());
    since.map_or(SignedDuration::ZERO, |since| {
        facts.now.duration_since(since.0)
    })
}

/// Whether the network has been made.
pub fn is_made(facts: &Facts) -> bool {
    // A network that is being restored is there when its first member says so.
    if restore::ordered(facts).is_some() {
        return restore::is_there(facts);
    }
    let status = facts.object.status.as_ref();
    let recorded = status.is_some_and(|status| status.initialized.is_some());
    let marked = matches!(&facts.root, Root::Sound(root) if root.made);
    let cluster = facts.cluster.as_ref();
    // The first member is alone until the network is there.
    let others = facts.claims.iter().any(|claim| {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let member = name.strip_prefix("data-").unwrap_or_default();
        let other = ordinal_of(facts, member).is_some_and(|ordinal| ordinal > 0);
        other && !restore::is_empty(facts, claim)
    });
    recorded || marked || others || cluster.is_ok_and(|cluster| !cluster.members.is_empty())
}

/// How many pods the workload is told to run. A member that is still in the
/// cluster keeps its pod, and so do those below it.
pub(super) fn pods(facts: &Facts, members: &[Member]) -> i32 {
    let current = facts.stateful_set.as_ref().map(replicas);
    if restore::ordered(facts).is_some() {
        return 1;
    }
    if !is_made(facts) {
        return current.unwrap_or(1).max(1);
    }
    let wished = wished(facts);
    let Some(current) = current else {
        return wished;
    };
    if wished >= current {
        // Nobody starts without certificates, which an issuer may not have given yet.
        let able = |member: &&Member| member.pki.is_some_and(MemberPki::is_whole);
        let able = members.iter().take_while(able).count();
        return wished.min(i32::try_from(able).unwrap_or(wished).max(current));
    }
    if led(facts).is_none() {
        return current;
    }
    let staying = members.iter().filter(|member| member.peer.is_some());
    let last = staying.map(|member| member.ordinal + 1).max();
    wished.max(last.unwrap_or(0)).min(current)
}

/// The next change of the cluster's members, if one may be made.
pub(super) fn membership(facts: &Facts, members: &[Member]) -> Option<Step> {
    let cluster = led(facts)?;
    let connected = |except: Option<&str>| {
        let voters = cluster.members.iter();
        voters
            .filter(|peer| peer.voter && peer.connected && Some(peer.id.as_str()) != except)
            .count()
    };
    let voters = cluster.members.iter().filter(|peer| peer.voter).count();

    // One that is to go, goes as soon as the others can do without it: before
    // anybody joins. While they cannot, one that comes may be what they lack. Those
    // that are away first, since their votes are missed, then the last.
    let leavers = members
        .iter()
        .filter(|member| !member.wanted && member.peer.is_some());
    if let Some(leaver) =
        leavers.min_by_key(|member| (member.is_connected(), Reverse(member.ordinal)))
    {
        let has_vote = leaver.peer.is_some_and(|peer| peer.voter);
        let left = voters - usize::from(has_vote);
        let can_go = connected(Some(&leaver.name)) >= quorum(left).max(1);
        let heir = heir(facts, members);
        if can_go && leaver.leads() && keeps_leading(facts, members) {
            if let Some(heir) = heir {
                return Some(hand_over(heir));
            }
        } else if can_go && (!leaver.leads() || heir.is_some()) {
            // A leader may remove itself: those who stay do without it, and elect
            // (tried on 1.6.0 and 2.1).
            return Some(Step::RemoveMember {
                member: leaver.name.clone(),
            });
        }
    }
    let leader = members.iter().find(|member| member.leads());
    if leader.is_some_and(|leader| has_moved(facts, leader))
        && keeps_leading(facts, members)
        && let Some(heir) = heir(facts, members)
    {
        return Some(hand_over(heir));
    }
    let joiner = members.iter().find(|member| {
        let outside = member.peer.is_none() && member.outdated().is_none();
        let due = outside || has_moved(facts, member);
        // To take in a member anew, Ziti takes it out first, and so its own leader.
        let due = due && !member.leads();
        member.wanted && member.runs() && due && may_try(facts, member)
    })?;
    let there = connected(Some(&joiner.name));
    let safe = if joiner.peer.is_some_and(|peer| peer.voter) {
        // It has moved: Ziti takes it out and in again, so the others must do
        // without it. That more of them have moved must not stop the first.
        there >= quorum(voters - 1)
    } else {
        // A voter more wants a vote more; it is taken in where all others are there.
        there == voters
    };
    safe.then(|| Step::AddMember {
        member: joiner.name.clone(),
        address: address(facts, joiner.ordinal),
    })
}

/// A member that can lead and stays where it is known. Whoever leads from an address that
/// the others do not know takes itself for leaderless, and is not ready.
fn heir<'a>(facts: &Facts, members: &'a [Member<'a>]) -> Option<&'a Member<'a>> {
    members.iter().find(|member| {
        let stays = member.wanted && member.is_up() && !has_moved(facts, member);
        stays && !member.leads()
    })
}

fn hand_over(heir: &Member) -> Step {
    Step::TransferLeadership {
        to: heir.name.clone(),
    }
}

/// Whether an heir would go on leading. It may not reach those that have moved, the leader
/// among them: where the others are no majority, that one would be elected again.
fn keeps_leading(facts: &Facts, members: &[Member]) -> bool {
    let Some(cluster) = led(facts) else {
        return false;
    };
    let moved = |id: &str| {
        let mut members = members.iter();
        members.any(|member| member.name == id && has_moved(facts, member))
    };
    let voters = cluster.members.iter().filter(|peer| peer.voter);
    let reached = voters
        .clone()
        .filter(|peer| peer.connected && !moved(&peer.id));
    reached.count() >= quorum(voters.count())
}

/// Whether it is time to take a member in. One that could not be dialled is tried
/// again and again, and leaves what else is due its turn; a new pod is tried at once.
fn may_try(facts: &Facts, member: &Member) -> bool {
    facts.joins.get(&member.name).is_none_or(|failed| {
        let since = facts.now.duration_since(failed.at);
        since >= failed.patience() || member.age(facts) < since
    })
}

/// Whether a restart of others waits for it: it is in the cluster, or on its way
/// there. One that has not come within its time has no vote that would be missed,
/// and may never come.
pub(super) fn counts(facts: &Facts, member: &Member) -> bool {
    led(facts).is_none() || member.peer.is_some() || member.age(facts) < DEADLINE
}

/// Whether it runs at another address than the one by which it is known in the
/// cluster. One with an old template has the old address as well.
fn has_moved(facts: &Facts, member: &Member) -> bool {
    let wanted = address(facts, member.ordinal);
    let known = member.peer.is_some_and(|peer| peer.address != wanted);
    known && member.outdated().is_none()
}

/// The address at which the others dial a member.
pub(crate) fn address(facts: &Facts, ordinal: i32) -> String {
    format!("tls:{}", control_plane(facts.object, ordinal))
}

/// The next pod to replace, if one may be: those that do not work first, then
/// followers, the leader last. It hands over before it ends.
pub(super) fn restart(facts: &Facts, members: &[Member]) -> Option<Step> {
    if facts.object.spec.update_strategy == UpdateStrategy::OnDelete {
        return None;
    }
    let workload = facts.stateful_set.as_ref()?;
    if !is_observed(workload) {
        return None;
    }
    let told: Vec<&Member> = members
        .iter()
        .filter(|member| member.ordinal < replicas(workload))
        .collect();
    let counted = || told.iter().filter(|member| counts(facts, member));
    if counted().any(|member| member.pod.is_none() || member.is_terminating()) {
        return None;
    }
    let due: Vec<(&Member, &str)> = told
        .iter()
        .filter(|member| !member.is_terminating() && issuer::can_start(facts, &member.name))
        .filter_map(|member| Some((*member, member.outdated()?)))
        .collect();
    let mut due = due;
    due.reverse();
    due.sort_by_key(|(member, _)| (member.is_up(), member.is_ready(), member.leads()));
    let (member, why) = due.into_iter().next()?;
    // One that does not work is no loss, unless the leader counts on its vote. An
    // election makes all of them unready for a moment: that is waited for. How long
    // nobody led is not known while nobody asks, so it must be unready as long.
    let idle = !member.is_ready()
        && match led(facts) {
            Some(_) => !member.is_connected(),
            None => leaderless_for(facts).min(member.unready_for(facts)) >= LEADERLESS,
        };
    let alone = counted().count() == 1;
    let spare = may_lose_one(facts) && (!member.is_up() || counted().all(|one| one.is_up()));
    // Those whose certificates have ended keep what is connected, and nobody can
    // ask them how they are.
    let ended = led(facts).is_none() && member.certificate_has_ended(facts);
    (idle || alone || spare || ended).then(|| replace(member, why))?
}

/// Whether a majority is left when one of the members is down for a while.
fn may_lose_one(facts: &Facts) -> bool {
    led(facts).is_some_and(|cluster| {
        let voters = cluster.members.iter().filter(|peer| peer.voter);
        let connected = voters.clone().filter(|peer| peer.connected).count();
        // Of two, none can be missed: a cluster that grows or shrinks passes
        // through that.
        connected > quorum(voters.count())
    })
}

fn replace(member: &Member, why: &str) -> Option<Step> {
    let metadata = &member.pod?.metadata;
    Some(Step::DeletePod {
        name: metadata.name.clone()?,
        uid: metadata.uid.clone()?,
        why: why.to_owned(),
    })
}

/// A member of the newest template that has not come up, although its time is
/// over.
pub(super) fn stalled<'a>(facts: &Facts, members: &'a [Member<'a>]) -> Option<&'a Member<'a>> {
    members.iter().find(|member| {
        let comes = member.pod.is_some() && member.outdated().is_none() && !member.is_terminating();
        comes && member.wanted && !member.is_ready() && member.age(facts) >= DEADLINE
    })
}
