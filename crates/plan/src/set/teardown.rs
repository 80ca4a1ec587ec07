//! What goes when a member goes, and in which order: the pod, the router on
//! the network, the volume.

use super::member::{Member, claim_name};
use super::{Facts, Plan, Step};
use crate::set::status;
use api::names;
use api::router::RetentionPolicy;

/// Decide for a set that is being deleted.
pub(super) fn plan(facts: &Facts, members: &[Member]) -> Plan {
    let finalizers = facts
        .object
        .metadata
        .finalizers
        .as_deref()
        .unwrap_or_default();
    let mut steps = Vec::new();
    if !finalizers.iter().any(|f| f == names::FINALIZER_ROUTER) {
        return status::deleting(facts, members, steps);
    }
    if finalizers.iter().any(|f| f == "orphan") {
        // `--cascade=orphan`: everything is left as it is, and taken back by a
        // ZitiRouter of the same name.
        steps.push(Step::ReleaseFinalizer);
        return status::deleting(facts, members, steps);
    }
    // A changed policy reaches the EdgeRouters also now: it is the way out when
    // the Ziti controller is gone for ever.
    for member in members {
        if let Some(er) = member.edge_router
            && er.spec.deletion_policy != facts.object.spec.deletion_policy
        {
            steps.push(Step::ApplyEdgeRouter(Box::new(keep_finalizers(
                super::render::edge_router(facts, &member.name),
                er,
            ))));
        }
    }
    if let Some(set) = &facts.stateful_set
        && set.metadata.deletion_timestamp.is_none()
    {
        steps.push(Step::DeleteStatefulSet {
            uid: set.metadata.uid.clone().unwrap_or_default(),
        });
    }
    let retention = facts.object.spec.retention.when_deleted;
    let mut left = false;
    for member in members {
        left |= remove(facts, member, retention, &mut steps);
    }
    if !left && facts.stateful_set.is_none() {
        steps.push(Step::ReleaseFinalizer);
    }
    status::deleting(facts, members, steps)
}

/// An EdgeRouter to apply, with the finalizers that it has: an applied object
/// without them would lose them.
pub(super) fn keep_finalizers(
    mut wanted: api::EdgeRouter,
    actual: &api::EdgeRouter,
) -> api::EdgeRouter {
    let ours = [names::FINALIZER_EDGE_ROUTER, names::FINALIZER_IN_USE];
    let kept = actual
        .metadata
        .finalizers
        .iter()
        .flatten()
        .filter(|f| ours.contains(&f.as_str()))
        .cloned()
        .collect();
    wanted.metadata.finalizers = Some(kept);
    wanted
}

/// Take one member away. Says whether something of it has still to go.
pub(super) fn remove(
    facts: &Facts,
    member: &Member,
    retention: RetentionPolicy,
    steps: &mut Vec<Step>,
) -> bool {
    let stopped = member.is_stopped(facts);
    if let Some(er) = member.edge_router {
        if stopped {
            release(member, steps);
            if er.metadata.deletion_timestamp.is_none() {
                steps.push(Step::DeleteEdgeRouter {
                    name: member.name.clone(),
                    uid: er.metadata.uid.clone().unwrap_or_default(),
                });
            }
        }
        return true;
    }
    if !stopped {
        return true;
    }
    if member
        .service
        .is_some_and(|service| service.metadata.deletion_timestamp.is_none())
    {
        steps.push(Step::DeleteService {
            name: member.name.clone(),
        });
    }
    match member.claim {
        Some(claim) if retention == RetentionPolicy::Delete => {
            if claim.metadata.deletion_timestamp.is_none() {
                steps.push(Step::DeleteClaim {
                    name: claim_name(&member.name),
                    uid: claim.metadata.uid.clone().unwrap_or_default(),
                });
            }
            // Asked for is enough: nothing of ours waits for the volume.
            false
        }
        _ => false,
    }
}

/// Let go of the EdgeRouter of a member whose pod has ended.
pub(super) fn release(member: &Member, steps: &mut Vec<Step>) {
    let Some(er) = member.edge_router else { return };
    let finalizers = er.metadata.finalizers.as_deref().unwrap_or_default();
    if finalizers.iter().any(|f| f == names::FINALIZER_IN_USE) {
        steps.push(Step::ReleaseInUse {
            edge_router: member.name.clone(),
            resource_version: er.metadata.resource_version.clone().unwrap_or_default(),
            finalizers: finalizers
                .iter()
                .filter(|f| *f != names::FINALIZER_IN_USE)
                .cloned()
                .collect(),
        });
    }
}
