//! What goes when a member goes, and in which order: the pod, the router on
//! the network, the volume.

use super::member::Member;
use super::orphan::release_orphan;
use super::ownership::Owners;
use super::{Facts, Plan, Step, placement, status};
use crate::edge_router::Problem;
use api::router::RetentionPolicy;
use api::{EdgeRouter, names, reasons};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::jiff::SignedDuration;

/// Decide for a set that is being deleted.
pub(super) fn plan(facts: &Facts, members: &[Member], owners: Owners) -> Plan {
    let metadata = &facts.object.metadata;
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    let mut steps = Vec::new();
    if !finalizers.iter().any(|f| f == names::FINALIZER_ROUTER) {
        return status::deleting(facts, members, steps);
    }
    if owners == Owners::Nobody || finalizers.iter().any(|f| f == "orphan") {
        // `--cascade=orphan`: everything is left as it is, and taken back by a
        // ZitiRouter of the same name. The finalizer `orphan` may be gone
        // already, and then the owner references are as well.
        steps.push(Step::ReleaseFinalizer);
        return status::deleting(facts, members, steps);
    }
    // A changed policy reaches the EdgeRouters also now: it is the way out when
    // the Ziti controller is gone for ever. So does the end of a pause.
    for member in members {
        if let Some(er) = member.edge_router
            && (er.spec.deletion_policy != facts.object.spec.deletion_policy || er.spec.paused)
        {
            let wanted = super::render::edge_router(facts, &member.name, member.node.as_deref());
            steps.push(Step::ApplyEdgeRouter(Box::new(changed(wanted, er))));
        }
    }
    for workload in &facts.stateful_sets {
        delete_workload(workload, &mut steps);
    }
    let retention = facts.object.spec.retention.when_deleted;
    let mut left = !facts.stateful_sets.is_empty();
    for member in members {
        left |= member.edge_router.is_some() || !member.is_stopped();
        remove(member, &mut steps);
        if member.edge_router.is_none() && member.is_stopped() {
            delete_claim(member, retention, &mut steps);
        }
    }
    if !left && !placement::clear(facts, &mut steps) {
        steps.push(Step::ReleaseFinalizer);
    }
    status::deleting(facts, members, steps)
}

/// Decide while objects of an earlier ZitiRouter of this name are still there.
/// Nobody else says that their pods have ended.
pub(super) fn wait_for_predecessor(facts: &Facts, members: &[Member]) -> Plan {
    let releases = facts
        .edge_routers
        .iter()
        .filter_map(|er| release_orphan(er, &facts.stateful_sets, &facts.pods));
    let message = "objects of an earlier ZitiRouter of this name are still going away";
    let mut plan = status::refused(facts, members, Problem::new(reasons::PENDING, message));
    plan.steps = releases.collect();
    plan.requeue = Some(SignedDuration::from_secs(2));
    plan
}

/// An EdgeRouter to be changed: bound to the one that was observed, so that none
/// is made where that is gone, with the name that it has on the network and the
/// finalizers that it has. An applied object without them would lose them.
pub(super) fn changed(mut wanted: EdgeRouter, actual: &EdgeRouter) -> EdgeRouter {
    let ours = [names::FINALIZER_EDGE_ROUTER, names::FINALIZER_IN_USE];
    let kept = actual.metadata.finalizers.iter().flatten();
    let kept = kept.filter(|f| ours.contains(&f.as_str())).cloned();
    wanted.metadata.finalizers = Some(kept.collect());
    wanted.metadata.uid.clone_from(&actual.metadata.uid);
    wanted.spec.name.clone_from(&actual.spec.name);
    wanted
}

/// Take one member away that is not wanted any more: first its EdgeRouter, and
/// then, when that has let the network's router go, the volume and the Service.
/// The Service goes last, since it shows that the volume is of a member that is
/// being taken away, rather than one that was left by an earlier set.
pub(super) fn scaled_away(facts: &Facts, member: &Member, steps: &mut Vec<Step>) {
    remove(member, steps);
    if member.edge_router.is_some() || !member.is_stopped() {
        return;
    }
    if let Some(workload) = member.workload
        && facts.object.spec.effective_topology().is_per_member()
    {
        delete_workload(workload, steps);
    }
    let Some(service) = member.service else {
        return;
    };
    delete_claim(member, facts.object.spec.retention.when_scaled, steps);
    if service.metadata.deletion_timestamp.is_none() {
        steps.push(Step::DeleteService {
            name: member.name.clone(),
        });
    }
}

/// Delete the EdgeRouter of a member that has stopped, and let go of it. In this
/// order: one that lives on without its hold would not outlive its pod.
fn remove(member: &Member, steps: &mut Vec<Step>) {
    let Some(er) = member.edge_router.filter(|_| member.is_stopped()) else {
        return;
    };
    if member.is_leaving() {
        release(er, steps);
    } else {
        steps.push(Step::DeleteEdgeRouter {
            name: member.name.clone(),
            uid: er.metadata.uid.clone().unwrap_or_default(),
        });
    }
}

fn delete_workload(workload: &StatefulSet, steps: &mut Vec<Step>) {
    if workload.metadata.deletion_timestamp.is_none() {
        steps.push(Step::DeleteStatefulSet {
            name: workload.metadata.name.clone().unwrap_or_default(),
            uid: workload.metadata.uid.clone().unwrap_or_default(),
        });
    }
}

fn delete_claim(member: &Member, retention: RetentionPolicy, steps: &mut Vec<Step>) {
    if let Some(claim) = member.claim
        && retention == RetentionPolicy::Delete
        && claim.metadata.deletion_timestamp.is_none()
    {
        steps.push(Step::DeleteClaim {
            name: claim.metadata.name.clone().unwrap_or_default(),
            uid: claim.metadata.uid.clone().unwrap_or_default(),
        });
    }
}

/// Let go of the EdgeRouter of a member whose pod has ended.
pub(super) fn release(er: &EdgeRouter, steps: &mut Vec<Step>) {
    let finalizers = er.metadata.finalizers.as_deref().unwrap_or_default();
    if finalizers.iter().any(|f| f == names::FINALIZER_IN_USE) {
        steps.push(release_in_use(er));
    }
}

pub(super) fn release_in_use(er: &EdgeRouter) -> Step {
    let finalizers = er.metadata.finalizers.iter().flatten();
    Step::ReleaseInUse {
        edge_router: er.metadata.name.clone().unwrap_or_default(),
        resource_version: er.metadata.resource_version.clone().unwrap_or_default(),
        finalizers: finalizers
            .filter(|finalizer| *finalizer != names::FINALIZER_IN_USE)
            .cloned()
            .collect(),
    }
}
