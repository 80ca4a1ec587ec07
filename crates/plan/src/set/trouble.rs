//! What is wrong with a member, in words; `status` asks.

use super::member::Member;
use super::{Facts, pod_options};
use crate::conditions::find;
use crate::edge_router::Problem;
use api::reasons::{self, types};
use api::router::Topology;
use std::collections::BTreeSet;

/// What is wrong with a member, beyond not being there yet.
pub(super) fn trouble(
    facts: &Facts,
    member: &Member,
    withheld: &BTreeSet<String>,
) -> Option<Problem> {
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
    let of_pod = pod_trouble(member)
        .or_else(|| refused_pod(facts, member))
        .or_else(|| not_on_its_node(facts, member));
    if of_pod.is_some() {
        return of_pod;
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
pub(super) fn pod_trouble(member: &Member) -> Option<Problem> {
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
        let lasting = [
            super::member::ROUTER_CONTAINER,
            super::sidecar::SIDECAR_CONTAINER,
        ];
        let crashing = reason == "CrashLoopBackOff" && lasting.contains(&container.name.as_str());
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
                container.name,
                member.pod_name()
            );
            return Some(Problem::new(reasons::MEMBER_FAILING, message));
        }
    }
    None
}

/// Why Kubernetes makes no pod for a member that may run, if it said so.
fn refused_pod(facts: &Facts, member: &Member) -> Option<Problem> {
    let missing = member.told && member.pod.is_none();
    let said = facts.refusal.as_deref().filter(|_| missing)?;
    let need = pod_options::privileged(&facts.object.spec);
    let advice = need.filter(|_| said.contains("PodSecurity")).map(|why| {
        format!("; {why}: label the namespace pod-security.kubernetes.io/enforce=privileged, or use another one")
    });
    let advice = advice.unwrap_or_default();
    let message = format!("Kubernetes makes no pod for it: {said}{advice}");
    Some(Problem::new(reasons::MEMBER_FAILING, message))
}

/// Why the node of a member does not take its pod: most often a taint, since
/// there is a member for every node that matches, whatever its taints.
fn not_on_its_node(facts: &Facts, member: &Member) -> Option<Problem> {
    let node = member.node.as_deref()?;
    let by_node = facts.object.spec.effective_topology() == Topology::PerNode;
    let refusal = member.refusal_of_scheduler().filter(|_| by_node)?;
    let message = format!(
        "node {node} does not take pod {}: {refusal}. Tolerate the node's taints by spec.pod.tolerations, or leave it out by spec.nodes.selector",
        member.pod_name()
    );
    Some(Problem::new(reasons::MEMBER_FAILING, message))
}
