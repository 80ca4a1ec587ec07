//! Letting a router go: after its pod, never while it is online, and never on
//! the word of a network that is not the one we know.

use super::decide::{belongs, network_fault};
use super::draft::Draft;
use super::{Entity, Facts, Plan, Problem, Step};
use api::edge_router::Enrollment;
use api::{DeletionPolicy, names, reasons};
use k8s_openapi::jiff::SignedDuration;

/// Decide for an object that is being deleted.
pub(super) fn plan(facts: &Facts) -> Plan {
    let mut draft = Draft::new(facts);
    let object = facts.object;
    let finalizers = object.metadata.finalizers.as_deref().unwrap_or_default();
    if !finalizers.iter().any(|f| f == names::FINALIZER_EDGE_ROUTER) {
        return draft.deleting("nothing is left to do here").finish();
    }
    let status = object.status.as_ref();
    let registered = status.is_some_and(|status| status.id.is_some() || status.intent.is_some());
    let provided = matches!(object.spec.enrollment, Enrollment::Provided(_));
    if provided || object.spec.deletion_policy == DeletionPolicy::Retain {
        draft.step(Step::ReleaseFinalizer);
        return draft.deleting("the router stays on the network").finish();
    }
    if finalizers.iter().any(|f| f == names::FINALIZER_IN_USE) {
        return draft.deleting("waits for the router's pod to end").finish();
    }
    let view = match network_fault(facts) {
        Ok(view) => view,
        Err(_) if !registered => {
            // Nothing was ever made for it: a network that cannot be had, or
            // does not exist, holds nobody up.
            draft.step(Step::ReleaseFinalizer);
            return draft.deleting("it was never registered").finish();
        }
        Err(problem) if problem.reason == reasons::NETWORK_ENDS => {
            draft.step(Step::ReleaseFinalizer);
            return draft.deleting("the network ends with it").finish();
        }
        Err(problem) => {
            return draft
                .deletion_blocked(&with_way_out(facts, &problem))
                .finish();
        }
    };
    // Every router with this object's tags, whatever id is recorded: the status
    // may be older than the last registration, or lost.
    let mut ours: Vec<&Entity> = view.entities.iter().collect();
    ours.retain(|entity| belongs(facts, view, entity));
    ours.sort_by_key(|entity| &entity.id);
    match ours.first() {
        Some(entity) if entity.online => still_online(entity, draft),
        Some(entity) => {
            draft.step(Step::Delete {
                id: entity.id.clone(),
            });
            draft
                .deleting("the router is being deleted from the network")
                .finish()
        }
        None => gone(facts, draft),
    }
}

/// The router is not there. A creation whose reply was lost may still come.
fn gone(facts: &Facts, mut draft: Draft) -> Plan {
    if let Some(left) = draft.creation_may_come(facts.now) {
        draft.look_again(left);
        return draft
            .deleting("waits to see whether a registration under way still comes")
            .finish();
    }
    draft.step(Step::ReleaseFinalizer);
    draft
        .deleting("the router is gone from the network")
        .finish()
}

fn still_online(entity: &Entity, mut draft: Draft) -> Plan {
    // A router that was cut off counts as connected for 30 s.
    draft.look_again(SignedDuration::from_secs(5));
    draft
        .deletion_blocked(&Problem::new(
            reasons::STILL_ONLINE,
            format!(
                "router {:?} (id {}) is still connected, and is deleted from the network once it has stopped. Stop whatever runs it",
                entity.name, entity.id
            ),
        ))
        .finish()
}

fn with_way_out(facts: &Facts, problem: &Problem) -> Problem {
    let metadata = &facts.object.metadata;
    Problem::new(
        problem.reason,
        format!(
            "{}. The router cannot be deleted from the network until then; to let this object go and leave the router there: \
             kubectl patch edgerouter {} -n {} --type merge -p '{{\"spec\":{{\"deletionPolicy\":\"Retain\"}}}}' (for a member of a \
             ZitiRouter: patch the ZitiRouter)",
            problem.message.trim_end_matches('.'),
            metadata.name.as_deref().unwrap_or_default(),
            metadata.namespace.as_deref().unwrap_or_default(),
        ),
    )
}
