//! Which pod is replaced next. At most one member is disturbed at a time, the
//! ones that are down first, and the next only when the last is up again.

use super::Step;
use super::member::Member;
use super::{Facts, Network};
use k8s_openapi::api::core::v1::Pod;

/// The next pod to replace because the template changed, if any may be.
pub(super) fn next(facts: &Facts, members: &[Member]) -> Option<Step> {
    let status = facts.stateful_set.as_ref()?.status.as_ref()?;
    let revision = status.update_revision.as_deref()?;
    let current = super::member::current_replicas(facts);
    let wanted = || {
        members
            .iter()
            .filter(move |member| member.ordinal < current)
    };
    let outdated = |member: &&Member| {
        member
            .pod
            .is_some_and(|pod| pod_revision(pod) != Some(revision))
            && !member.is_terminating()
    };
    if wanted().any(Member::is_terminating) {
        return None;
    }
    let why = || "its template changed".to_owned();
    if let Some(down) = wanted()
        .filter(outdated)
        .find(|member| !member.is_ready() && !member.is_online())
    {
        return Some(delete(down.pod?, why()));
    }
    // While the network cannot be asked nobody knows who is up.
    let blind = matches!(
        facts.network,
        Network::Found {
            fault: Some(_),
            has_credential: true,
            ..
        }
    );
    if blind || !wanted().all(Member::is_up) {
        return None;
    }
    wanted()
        .filter(outdated)
        .last()
        .and_then(|member| Some(delete(member.pod?, why())))
}

/// Pods that cannot go on by themselves although their token is there now: the
/// kubelet would come back to them only after its back-off.
pub(super) fn stuck<'a>(
    facts: &'a Facts,
    members: &'a [Member],
) -> impl Iterator<Item = Step> + 'a {
    let current = super::member::current_replicas(facts);
    members
        .iter()
        .filter(move |member| member.ordinal < current && !member.is_terminating())
        .filter_map(|member| {
            let token = member.waiting_token?;
            let pod = member.pod?;
            let report = super::member::report(pod)?;
            let news = report.token_digest.as_deref() != Some(token);
            let down = !member.is_online() || !member.network_tells;
            (news && down)
                .then(|| delete(pod, format!("a new token waits for it ({})", report.reason)))
        })
}

fn pod_revision(pod: &Pod) -> Option<&str> {
    pod.metadata
        .labels
        .as_ref()?
        .get("controller-revision-hash")
        .map(String::as_str)
}

fn delete(pod: &Pod, why: String) -> Step {
    Step::DeletePod {
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        why,
    }
}
