//! What will be done for one `EdgeRouter`.

use super::{Foreseen, MOST_ROUNDS, Story};
use crate::edge_router::{
    CHURN_LIMIT, Entity, Facts, NetworkFacts, Plan, RouterSpec, SecretFacts, Step, plan,
};
use crate::token::TokenFacts;
use api::reasons::{self, types};
use api::{EdgeRouter, EdgeRouterStatus, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Stands for what the network will give.
const TO_COME: &str = "to-come";

/// What will be done for an `EdgeRouter`, as far as it can be told, and the plan
/// of the next reconcile.
pub fn edge_router(facts: &Facts<'_>) -> (Plan, Vec<Foreseen<Step>>) {
    let first = plan(facts);
    let mut object = facts.object.clone();
    let mut seen = facts.clone();
    let mut story = Story::new();
    for _ in 0..MOST_ROUNDS {
        let next = plan(&Facts {
            object: &object,
            ..seen.clone()
        });
        if next.steps.is_empty() {
            match assume(&mut seen, &mut object, &next) {
                Some(what) => story.assume(what),
                None => break,
            }
            continue;
        }
        if !story.tell(&next.steps) || next.steps.contains(&Step::ReleaseFinalizer) {
            break;
        }
        let agent = object
            .status
            .as_mut()
            .and_then(|status| status.agent.take());
        object.status = Some(EdgeRouterStatus {
            agent,
            ..next.status.clone()
        });
        for step in &next.steps {
            carry_out(&mut seen, &mut object, step);
        }
    }
    (first, story.told)
}

/// The facts once a step was carried out.
fn carry_out(facts: &mut Facts<'_>, object: &mut EdgeRouter, step: &Step) {
    let now = facts.now;
    let entities = match &mut facts.network {
        NetworkFacts::Known(view) => Some(&mut view.entities),
        NetworkFacts::NotReferenced | NetworkFacts::NoCredential(_) | NetworkFacts::Unusable(_) => {
            None
        }
    };
    let entity = |id: &String| entities.and_then(|all| all.iter_mut().find(|e| &e.id == id));
    match step {
        Step::AddFinalizer => {
            let finalizers = object.metadata.finalizers.get_or_insert_default();
            finalizers.push(names::FINALIZER_EDGE_ROUTER.to_owned());
        }
        // In the status already, which is the plan's own.
        Step::RecordIntent { .. } | Step::ReleaseFinalizer => {}
        Step::Create(spec) => {
            if let NetworkFacts::Known(view) = &mut facts.network {
                view.entities.push(created(spec));
            }
        }
        Step::Claim { id, tags } => {
            if let Some(entity) = entity(id) {
                entity.tags.clone_from(tags);
            }
        }
        Step::Update { id, changes } => {
            if let Some(entity) = entity(id) {
                changes.carry_out(entity);
            }
        }
        Step::ReEnroll { id, .. } => {
            if let Some(entity) = entity(id) {
                entity.verified = false;
                entity.fingerprint = None;
                entity.token = Some(token(id));
            }
            if let Some(status) = &mut object.status {
                status.last_re_enrollment = Some(Time(now));
            }
        }
        Step::Delete { id } => {
            if let NetworkFacts::Known(view) = &mut facts.network {
                view.entities.retain(|entity| &entity.id != id);
            }
            if let Some(status) = &mut object.status {
                status.intent = None;
            }
        }
        Step::PublishToken { digest, .. } => {
            facts.secret = SecretFacts::Ours(Some(digest.clone()));
        }
        Step::EmptyToken => facts.secret = SecretFacts::Ours(None),
    }
}

fn created(spec: &RouterSpec) -> Entity {
    Entity {
        id: TO_COME.to_owned(),
        name: spec.name.clone(),
        tags: spec.tags.clone(),
        role_attributes: spec.role_attributes.clone(),
        tunneler_enabled: spec.tunneler_enabled,
        cost: spec.cost,
        no_traversal: spec.no_traversal,
        token: Some(token(TO_COME)),
        ..Entity::default()
    }
}

fn token(id: &str) -> TokenFacts {
    TokenFacts {
        digest: TO_COME.to_owned(),
        subject: id.to_owned(),
        expires_at: None,
        names_controllers: true,
    }
}

/// Assume the next thing that the operator waits for, and say what it is.
fn assume(facts: &mut Facts<'_>, object: &mut EdgeRouter, plan: &Plan) -> Option<&'static str> {
    let NetworkFacts::Known(view) = &mut facts.network else {
        return None;
    };
    if object.metadata.deletion_timestamp.is_some() {
        let finalizers = object.metadata.finalizers.get_or_insert_default();
        let held = finalizers.iter().any(|f| f == names::FINALIZER_IN_USE);
        let online = view.entities.iter().any(|entity| entity.online);
        finalizers.retain(|f| f != names::FINALIZER_IN_USE);
        for entity in &mut view.entities {
            entity.online = false;
        }
        return (held || online).then_some("the router's pod has ended");
    }
    let lost = plan.status.conditions.iter().any(|condition| {
        condition.type_ == types::ENROLLED && condition.reason == reasons::IDENTITY_LOST
    });
    let waits = |entity: &&mut Entity| {
        !entity.online && entity.offline_for.unwrap_or_default() < CHURN_LIMIT
    };
    if lost && let Some(entity) = view.entities.iter_mut().find(waits) {
        entity.offline_for = Some(CHURN_LIMIT);
        return Some("the network has seen it offline for a minute");
    }
    None
}
