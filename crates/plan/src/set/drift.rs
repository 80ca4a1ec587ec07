//! What somebody else changed in the cluster, in words, for the event that says
//! that it was put back.

use super::applied::{ANNOTATION_APPLIED, Difference, differences};
use super::extra::Kind;
use super::roster::member_of;
use super::{Facts, Step, workload};
use api::reasons::types;
use api::{ZitiRouterStatus, names};
use kube::core::{DynamicObject, ObjectMeta};
use kube::{Resource, ResourceExt};
use serde::Serialize;

/// What a step puts back: `None` where it carries out a new wish, or builds.
///
/// The wish is the same as before where the status speaks of this generation,
/// and where the object was stamped with the very hash that it should have (an
/// upgrade of the operator, or a member that may start now, changes that).
pub fn told(facts: &Facts<'_>, step: &Step) -> Option<String> {
    let status = facts.object.status.as_ref()?;
    if status.observed_generation != facts.object.metadata.generation {
        return None;
    }
    match step {
        Step::ApplyService(service) => {
            let name = &service.metadata.name;
            let known = facts
                .edge_routers
                .iter()
                .any(|er| &er.metadata.name == name);
            changed(service.as_ref(), &facts.services, known)
        }
        Step::ApplyConfigMap(map) => {
            let templates = facts.stateful_sets.iter();
            let mut named = templates.flat_map(workload::mounted_config_maps);
            let known = named.any(|name| Some(name) == map.metadata.name.as_deref());
            // What is in it changes by us alone: entries of members that come.
            let there = facts.config_maps.iter();
            let mut there = there.map(|actual| &actual.metadata.name);
            if there.any(|name| *name == map.metadata.name) {
                return None;
            }
            changed(map.as_ref(), &facts.config_maps, known)
        }
        Step::ApplyEdgeRouter(er) => changed(er.as_ref(), &facts.edge_routers, false),
        Step::ApplyStatefulSet(set) => {
            let own = set.metadata.labels.as_ref();
            let own = own.and_then(|labels| labels.get(names::LABEL_MEMBER));
            let set_name = facts.object.metadata.name.as_deref().unwrap_or_default();
            let known = facts.pods.iter().any(|pod| {
                own.is_none_or(|own| member_of(set_name, &pod.metadata).as_ref() == Some(own))
            });
            changed(set.as_ref(), &facts.stateful_sets, known)
        }
        Step::ApplyExtra(kind, extra) => {
            let of_kind = facts.extras.iter();
            let of_kind = of_kind.filter(|actual| Kind::of(actual).as_ref() == Some(kind));
            let known = was_built(facts, status, extra);
            put_back(kind.kind, extra.as_ref(), of_kind, known)
        }
        _ => None,
    }
}

/// Whether an object beside the workload had been made. It comes last, so that
/// nothing else shows it: the last reconcile carried out all of its steps, and
/// the member that it is for, if it is for one, is no new one.
fn was_built(facts: &Facts<'_>, status: &ZitiRouterStatus, extra: &DynamicObject) -> bool {
    let says = |type_: &str| {
        let mut conditions = status.conditions.iter();
        conditions.any(|condition| condition.type_ == type_ && condition.status == "True")
    };
    let member_is_known = extra
        .labels()
        .get(names::LABEL_MEMBER)
        .is_none_or(|member| {
            let mut known = facts.edge_routers.iter();
            known.any(|er| er.metadata.name.as_ref() == Some(member))
        });
    says(types::READY) && !says(types::DEGRADED) && member_is_known
}

/// `was_there`: whether something else shows that the object had been made.
fn changed<K: Resource<DynamicType = ()> + Serialize>(
    wanted: &K,
    actual: &[K],
    was_there: bool,
) -> Option<String> {
    put_back(&K::kind(&()), wanted, actual.iter(), was_there)
}

fn put_back<'a, K: Resource + Serialize + 'a>(
    kind: &str,
    wanted: &K,
    mut actual: impl Iterator<Item = &'a K>,
    was_there: bool,
) -> Option<String> {
    let name = wanted.meta().name.as_deref()?;
    let known = actual.find(|known| known.meta().name.as_deref() == Some(name));
    let Some(known) = known else {
        return was_there.then(|| format!("made {kind} {name} again, which somebody had deleted"));
    };
    if stamp(wanted.meta()) != stamp(known.meta()) {
        return None;
    }
    let mut found = differences(wanted, known);
    // The condition of our own write, and what it is bound to.
    found.retain(|difference| difference.path != "metadata.resourceVersion");
    let told: Vec<String> = found.iter().map(Difference::to_string).collect();
    (!told.is_empty()).then(|| format!("put back {kind} {name}: {}", told.join(", ")))
}

fn stamp(metadata: &ObjectMeta) -> Option<&String> {
    metadata.annotations.as_ref()?.get(ANNOTATION_APPLIED)
}
