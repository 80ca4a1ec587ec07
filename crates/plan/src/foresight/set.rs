//! What will be done for a `ZitiRouter`.

use super::{Foreseen, MOST_ROUNDS, Story};
use crate::set::applied::is_applied;
use crate::set::extra::Kind;
use crate::set::member::members;
use crate::set::roster::{member_of, seats};
use crate::set::{Facts, Plan, Step, TokenValue, TokenWrite, TokensSecret, plan};
use api::{ZitiRouter, names};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use kube::core::DynamicObject;
use std::collections::BTreeMap;

/// Stands for a revision of the pods' template that Kubernetes will name.
const NEW_REVISION: &str = "to-come";

/// What will be done for a `ZitiRouter`, as far as it can be told, and the plan
/// of the next reconcile. `tokens` are digests (or what stands for them) of the
/// tokens that its EdgeRouters are foreseen to get, by member: see
/// [`super::edge_router`].
pub fn set(facts: &Facts<'_>, tokens: &BTreeMap<String, String>) -> (Plan, Vec<Foreseen<Step>>) {
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
            match assume(&mut seen, &object, tokens) {
                Some(what) => story.assume(what),
                None => break,
            }
            continue;
        }
        if !story.tell(&next.steps) || next.steps.contains(&Step::ReleaseFinalizer) {
            break;
        }
        for step in &next.steps {
            carry_out(&mut seen, &mut object, step);
        }
    }
    (first, story.told)
}

/// Put an object where the one of its name stands.
pub(super) fn put<K: Resource + Clone>(objects: &mut Vec<K>, object: &K) {
    let name = &object.meta().name;
    objects.retain(|known| &known.meta().name != name);
    objects.push(object.clone());
}

pub(super) fn remove<K: Resource>(objects: &mut Vec<K>, name: &str) {
    objects.retain(|known| known.meta().name.as_deref() != Some(name));
}

/// The facts once a step was carried out.
fn carry_out(facts: &mut Facts<'_>, object: &mut ZitiRouter, step: &Step) {
    match step {
        Step::AddFinalizer => {
            let finalizers = object.metadata.finalizers.get_or_insert_default();
            finalizers.push(names::FINALIZER_ROUTER.to_owned());
        }
        Step::ApplyService(service) => put(&mut facts.services, service),
        Step::ApplyConfigMap(map) => put(&mut facts.config_maps, map),
        Step::CopyProvidedTokens => {
            let provided = facts.provided.clone().and_then(Result::ok);
            facts.provided_copy = provided;
        }
        Step::ApplyEdgeRouter(er) => {
            let mut applied = er.as_ref().clone();
            let name = &applied.metadata.name;
            let known = facts.edge_routers.iter().find(|k| &k.metadata.name == name);
            if let Some(known) = known {
                applied.status.clone_from(&known.status);
                let deleted = &known.metadata.deletion_timestamp;
                applied.metadata.deletion_timestamp.clone_from(deleted);
                let version = &known.metadata.resource_version;
                applied.metadata.resource_version.clone_from(version);
            }
            put(&mut facts.edge_routers, &applied);
        }
        Step::ReportAgent {
            edge_router,
            report,
        } => {
            if let Some(er) = find(&mut facts.edge_routers, edge_router) {
                er.status.get_or_insert_default().agent = Some(report.clone());
            }
        }
        Step::WriteTokens(write) => facts.tokens = written(&facts.tokens, write),
        Step::ApplyStatefulSet(set) => {
            let name = &set.metadata.name;
            let before = facts.stateful_sets.iter();
            let before = before.clone().find(|known| &known.metadata.name == name);
            let applied = applied(before, set);
            put(&mut facts.stateful_sets, &applied);
        }
        // It comes back with the template that the StatefulSet has then.
        Step::DeletePod { name, .. } => {
            let revision = revision_for(facts, object, name);
            if let (Some(pod), Some(revision)) = (find(&mut facts.pods, name), revision) {
                let labels = pod.metadata.labels.get_or_insert_default();
                labels.insert("controller-revision-hash".to_owned(), revision);
            }
        }
        Step::DeleteStatefulSet { name, .. } => remove(&mut facts.stateful_sets, name),
        Step::ApplyExtra(_, extra) => put_extra(&mut facts.extras, extra),
        Step::DeleteExtra { kind, name } => facts.extras.retain(|known| {
            Kind::of(known) != Some(*kind) || known.metadata.name.as_ref() != Some(name)
        }),
        Step::ReleaseInUse {
            edge_router,
            finalizers,
            ..
        } => {
            if let Some(er) = find(&mut facts.edge_routers, edge_router) {
                er.metadata.finalizers = Some(finalizers.clone());
            }
        }
        Step::DeleteEdgeRouter { name, .. } => {
            let now = facts.now;
            if let Some(er) = find(&mut facts.edge_routers, name) {
                er.metadata.deletion_timestamp = Some(Time(now));
            }
        }
        Step::DeleteService { name } => remove(&mut facts.services, name),
        Step::DeleteTokens => facts.tokens = TokensSecret::Absent,
        Step::DeleteConfigMap { name } => remove(&mut facts.config_maps, name),
        Step::DeleteClaim { name, .. } => remove(&mut facts.claims, name),
        Step::ReleaseFinalizer => {}
    }
}

fn find<'a, K: Resource>(objects: &'a mut [K], name: &str) -> Option<&'a mut K> {
    let named = |object: &&mut K| object.meta().name.as_deref() == Some(name);
    objects.iter_mut().find(named)
}

/// The revision that a pod comes back with: that of its workload's template.
fn revision_for(facts: &Facts<'_>, object: &ZitiRouter, pod: &str) -> Option<String> {
    let now = Facts {
        object,
        ..facts.clone()
    };
    let members = members(&now, &seats(&now));
    let is_of = |known: &Pod| known.metadata.name.as_deref() == Some(pod);
    let member = members.iter().find(|member| member.pod.is_some_and(is_of));
    let status = member?.workload?.status.as_ref()?;
    status.update_revision.clone()
}

fn put_extra(extras: &mut Vec<DynamicObject>, extra: &DynamicObject) {
    let same = |known: &DynamicObject| {
        Kind::of(known) == Kind::of(extra) && known.metadata.name == extra.metadata.name
    };
    extras.retain(|known| !same(known));
    extras.push(extra.clone());
}

fn written(before: &TokensSecret, write: &TokenWrite) -> TokensSecret {
    let mut keys = match before {
        TokensSecret::Ours(keys) | TokensSecret::Unowned(keys) => keys.clone(),
        TokensSecret::Absent | TokensSecret::Foreign => BTreeMap::new(),
    };
    for (member, value) in &write.set {
        let digest = match value {
            TokenValue::Empty => None,
            TokenValue::Waiting { digest } => Some(digest.clone()),
        };
        keys.insert(member.clone(), digest);
    }
    for member in &write.remove {
        keys.remove(member);
    }
    TokensSecret::Ours(keys)
}

/// A StatefulSet after a write, which its controller has not taken up.
pub(super) fn applied(before: Option<&StatefulSet>, set: &StatefulSet) -> StatefulSet {
    let mut applied = set.clone();
    let generation = before.and_then(|before| before.metadata.generation);
    applied.metadata.generation = Some(generation.unwrap_or_default() + 1);
    applied.status = before.and_then(|before| before.status.clone());
    let template = |set: &StatefulSet| set.spec.as_ref().map(|spec| spec.template.clone());
    let rolled = before.is_some_and(|before| !is_applied(&template(set), &template(before)));
    if rolled {
        let status = applied.status.get_or_insert_default();
        status.update_revision = Some(NEW_REVISION.to_owned());
    }
    applied
}

/// Assume the next thing that the operator waits for, and say what it is.
fn assume(
    facts: &mut Facts<'_>,
    object: &ZitiRouter,
    tokens: &BTreeMap<String, String>,
) -> Option<&'static str> {
    let waiting = facts.waiting_tokens.len();
    for er in &facts.edge_routers {
        let name = er.metadata.name.clone().unwrap_or_default();
        if let Some(token) = tokens.get(&name) {
            facts.waiting_tokens.entry(name).or_insert(token.clone());
        }
    }
    if facts.waiting_tokens.len() > waiting {
        return Some("the tokens are there");
    }
    let mut taken_up = false;
    for set in &mut facts.stateful_sets {
        let generation = set.metadata.generation;
        let status = set.status.get_or_insert_default();
        taken_up |= status.observed_generation < generation;
        status.observed_generation = generation;
    }
    if taken_up {
        return Some("Kubernetes has taken up the StatefulSet");
    }
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let now = Facts {
        object,
        ..facts.clone()
    };
    let stays: Vec<String> = members(&now, &seats(&now))
        .iter()
        .filter(|member| member.told && member.wanted)
        .map(|member| member.name.clone())
        .collect();
    let goes =
        |pod: &Pod| member_of(name, &pod.metadata).is_some_and(|member| !stays.contains(&member));
    if facts.pods.iter().any(goes) {
        facts.pods.retain(|pod| !goes(pod));
        return Some("the pods have ended");
    }
    let let_go = |metadata: &ObjectMeta| {
        let mut finalizers = metadata.finalizers.iter().flatten();
        metadata.deletion_timestamp.is_some() && finalizers.all(|f| f != names::FINALIZER_IN_USE)
    };
    let before = facts.edge_routers.len();
    facts.edge_routers.retain(|er| !let_go(&er.metadata));
    if facts.edge_routers.len() < before {
        // Its own Secret goes with it.
        let left: Vec<String> = facts
            .edge_routers
            .iter()
            .filter_map(|er| er.metadata.name.clone())
            .collect();
        facts.waiting_tokens.retain(|name, _| left.contains(name));
        return Some("the routers are gone from the network");
    }
    None
}
