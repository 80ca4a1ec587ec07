//! The decision for an object that is not being deleted.

use super::desired::{changes, name_fault, wanted, wanted_tags};
use super::draft::Draft;
use super::owner::{Owner, is_confirmed, is_confirmed_by_id, is_ours, owner};
use super::{
    Entity, Facts, NetworkFacts, Plan, Problem, Step, View, delete, paused, provided, taken, token,
    wanted_name,
};
use api::edge_router::{Enrollment, Intent, IntentAct};
use api::{AdoptionPolicy, names, reasons};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

/// Decide what to do for an `EdgeRouter`, and what to say of it.
pub fn plan(facts: &Facts) -> Plan {
    let object = facts.object;
    if object.spec.paused {
        return paused::plan(facts);
    }
    if object.metadata.deletion_timestamp.is_some() {
        return delete::plan(facts);
    }
    match &object.spec.enrollment {
        Enrollment::Provided(_) => provided::plan(facts),
        Enrollment::Managed(_) => plan_managed(facts),
    }
}

/// The router that this object stands for, as found on the network.
pub(super) enum Found<'a> {
    /// One that carries our tags, or that this object may take over.
    Ours(&'a Entity),
    /// One that is not ours.
    Foreign(&'a Entity),
    /// None.
    Nowhere,
}

/// Find the router: by recorded id, then by ownership tags (this very object's
/// first), then by name.
pub(super) fn find<'a>(facts: &Facts, view: &'a View) -> Found<'a> {
    let recorded = facts
        .object
        .status
        .as_ref()
        .and_then(|status| status.id.as_ref());
    let first = |wished: &dyn Fn(&Entity) -> bool| view.entities.iter().find(|e| wished(e));
    let name = wanted_name(facts.object);
    let found = first(&|entity| Some(&entity.id) == recorded)
        .or_else(|| first(&|entity| is_ours(entity, facts.object, facts.settings)))
        .or_else(|| first(&|entity| belongs(facts, view, entity)))
        .or_else(|| first(&|entity| entity.name == name));
    match found {
        None => Found::Nowhere,
        Some(entity) if may_have(facts, view, entity) => Found::Ours(entity),
        Some(entity) => Found::Foreign(entity),
    }
}

/// Whether a router is this object's by its tags, or by those tags and a
/// person's word that its installation has moved here.
pub(super) fn belongs(facts: &Facts, view: &View, entity: &Entity) -> bool {
    let object = facts.object;
    match owner(&entity.tags, object, facts.settings) {
        Owner::This | Owner::Earlier => true,
        Owner::Elsewhere(claim) => {
            let word = view.confirmed_install.as_deref();
            claim.is_place_of(object) && is_confirmed(&claim, object, word)
        }
        Owner::Sibling(_) | Owner::Nobody => false,
    }
}

/// Whether a router is this object's, or may become it.
fn may_have(facts: &Facts, view: &View, entity: &Entity) -> bool {
    let object = facts.object;
    // One that was ours and carries another's tags now was taken over by
    // somebody else on a user's word: two objects must not claim it in turns.
    let status = object.status.as_ref();
    let had = status.is_some_and(|status| status.id.as_ref() == Some(&entity.id));
    let by_name = object.spec.adoption_policy == AdoptionPolicy::ByName;
    belongs(facts, view, entity)
        || by_name
            && match owner(&entity.tags, object, facts.settings) {
                Owner::This | Owner::Earlier | Owner::Nobody => true,
                Owner::Sibling(_) => !had,
                // Nothing in one cluster is word enough for what another has.
                Owner::Elsewhere(claim) => {
                    let word = view.confirmed_install.as_deref();
                    let confirmed =
                        is_confirmed(&claim, object, word) || is_confirmed_by_id(&claim, word);
                    !had && confirmed
                }
            }
}

/// Why the network cannot be written to for this object, if it cannot.
pub(super) fn network_fault<'a>(facts: &'a Facts) -> Result<&'a View, Problem> {
    match &facts.network {
        NetworkFacts::NotReferenced => Err(Problem::new(
            reasons::INVALID_SPEC,
            "spec.networkRef is missing: name the ZitiNetwork in which the router is to be registered",
        )),
        NetworkFacts::NoCredential(_) => Err(Problem::new(
            reasons::NO_CREDENTIAL,
            "the ZitiNetwork has no credential, so no router can be registered: set its spec.credential, or provide the token",
        )),
        NetworkFacts::Unusable(problem) => Err(problem.clone()),
        NetworkFacts::Known(view) => match recorded_identity(facts) {
            Some(recorded) if recorded != view.identity && !view.identity_confirmed => {
                Err(Problem::new(
                    reasons::NETWORK_CHANGED,
                    format!(
                        "this router is registered in network {recorded}, and network {} answers now: nothing is created or \
                     deleted. Point the ZitiNetwork back at the right controller; if the new network is meant, annotate the \
                     ZitiNetwork with {}={}",
                        view.identity,
                        names::ANNOTATION_CONFIRM_NETWORK,
                        view.identity
                    ),
                ))
            }
            _ => Ok(view),
        },
    }
}

/// The network in which this router is recorded, if it is.
pub(super) fn recorded_identity<'a>(facts: &'a Facts) -> Option<&'a str> {
    let status = facts.object.status.as_ref()?;
    status.id.as_ref()?;
    status.network_identity.as_deref()
}

fn plan_managed(facts: &Facts) -> Plan {
    let mut draft = Draft::new(facts);
    let name = wanted_name(facts.object);
    if let Some(fault) = name_fault(&name) {
        let message = format!(
            "a router cannot be named {name:?} on a Ziti network: {fault}. Choose another spec.name"
        );
        return draft
            .not_registered(Problem::new(reasons::NAME_INVALID, message))
            .finish();
    }
    let has_finalizer = facts
        .object
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|f| f == names::FINALIZER_EDGE_ROUTER);
    if !has_finalizer {
        // Before anything is made elsewhere, so that nothing is left behind.
        draft.step(Step::AddFinalizer);
    }
    let view = match network_fault(facts) {
        Ok(view) => view,
        Err(problem) => return draft.network_unusable(problem).finish(),
    };
    if recorded_identity(facts).is_some_and(|recorded| recorded != view.identity) {
        // A person confirmed the new network: what is recorded is of the old.
        draft.forget_registration();
        draft.forget_intent();
    }
    match find(facts, view) {
        Found::Ours(entity) if !is_ours(entity, facts.object, facts.settings) => {
            claim(facts, entity, draft)
        }
        Found::Ours(entity) => {
            draft.registered(entity, view);
            token::plan_managed(facts, view, entity, &mut draft);
            // Last, so that attributes which the network refuses keep no router
            // from its token.
            let wanted = wanted(facts.object, facts.settings, &entity.tags);
            let changes = changes(entity, &wanted);
            if !changes.is_empty() {
                draft.step(Step::Update {
                    id: entity.id.clone(),
                    changes,
                });
            }
            draft.finish()
        }
        Found::Foreign(entity) => draft.not_registered(taken::told(facts, entity)).finish(),
        Found::Nowhere => plan_absent(facts, view, draft),
    }
}

/// Take a router over: tags alone and first. From then on it is this object's,
/// and what differs is put right in the next round. The intent tells a deletion
/// that comes between the two that there is something to delete.
fn claim(facts: &Facts, entity: &Entity, mut draft: Draft) -> Plan {
    let mut tags = entity.tags.clone();
    tags.extend(wanted_tags(facts.object, facts.settings, &entity.tags));
    record_creation(facts, &mut draft);
    draft.step(Step::Claim {
        id: entity.id.clone(),
        tags,
    });
    draft.registering().finish()
}

/// Record that the router is about to be made or taken over. Each time anew:
/// the write fails where the object is not the one observed, and its time is
/// that of the last attempt.
fn record_creation(facts: &Facts, draft: &mut Draft) {
    let intent = Intent {
        act: IntentAct::Create,
        previous_token: None,
        recorded_at: Time(facts.now),
    };
    draft.step(Step::RecordIntent {
        intent,
        re_enrollment: false,
    });
}

/// There is no such router on the network: register it, or ask.
fn plan_absent(facts: &Facts, view: &View, mut draft: Draft) -> Plan {
    let annotations = facts.object.metadata.annotations.as_ref();
    if let Some(id) = draft.recorded_id() {
        let confirmed =
            annotations.and_then(|a| a.get(names::ANNOTATION_CONFIRM_MISSING)) == Some(&id);
        if view.many_missing && !confirmed {
            return draft
                .not_registered(Problem::new(
                    reasons::ENTITY_MISSING,
                    format!(
                        "router {id} is no longer on the network, and so are too many others to be chance: nothing is made. Look at \
                         the network; to register this router anew, annotate it with {}={id}",
                        names::ANNOTATION_CONFIRM_MISSING
                    ),
                ))
                .finish();
        }
        draft.forget_registration();
    }
    if let Some(left) = draft.creation_may_come(facts.now) {
        // Its reply was lost. A second request would be refused as long as the
        // first one's router is there, and make another once that is deleted.
        draft.look_again(left);
        return draft.registering().finish();
    }
    let wanted = wanted(facts.object, facts.settings, &BTreeMap::new());
    record_creation(facts, &mut draft);
    draft.step(Step::Create(wanted));
    draft.registering().finish()
}
