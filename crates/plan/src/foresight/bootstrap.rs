//! What a set begins with in a cluster that nobody has reached yet: where the way to
//! the cluster is a router of the very set, somebody has to apply it there by hand
//! (`ziti-operator bootstrap`). The operator then finds what it would have made.

use crate::set::{Facts, Step};
use std::collections::BTreeMap;

/// The steps, parted by where they are done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beginning {
    /// Those that are done where the ZitiRouter is: the operator does them itself.
    pub here: Vec<Step>,
    /// Those that make an object in the other cluster, each as it is in the end. The
    /// Secret with the tokens is not among them.
    pub there: Vec<Step>,
}

/// What a set begins with, by facts in which there is nothing of it in its cluster.
pub fn beginning(facts: &Facts<'_>) -> Beginning {
    let (_, told) = super::set(facts, &BTreeMap::new());
    let mut beginning = Beginning::default();
    for foreseen in told {
        let step = foreseen.step;
        if !step.is_of_workloads() {
            beginning.here.push(step);
            continue;
        }
        let Some(object) = made(&step) else {
            continue;
        };
        let mut there = beginning.there.iter();
        match there.position(|known| made(known) == Some(object)) {
            Some(place) => beginning.there[place] = step,
            None => beginning.there.push(step),
        }
    }
    beginning
}

/// Kind and name of what a step makes.
fn made(step: &Step) -> Option<(&'static str, Option<&String>)> {
    Some(match step {
        Step::ApplyService(service) => ("Service", service.metadata.name.as_ref()),
        Step::ApplyConfigMap(map) => ("ConfigMap", map.metadata.name.as_ref()),
        Step::ApplyStatefulSet(set) => ("StatefulSet", set.metadata.name.as_ref()),
        Step::ApplyExtra(kind, object) => (kind.kind, object.metadata.name.as_ref()),
        _ => return None,
    })
}
