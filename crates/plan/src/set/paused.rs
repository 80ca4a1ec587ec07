//! A set that a person has paused: nothing is written, and only its status goes
//! on. Its EdgeRouters have a controller of their own, which would go on writing
//! to the network, so the pause is passed on to them: the one write, and the
//! last.

use super::member::Member;
use super::{Facts, Plan, Step, render, status, teardown};
use api::{EdgeRouter, names};

/// Decide for a set that is paused, also while it is being deleted.
pub(super) fn plan(facts: &Facts, members: &[Member]) -> Plan {
    let uid = facts.object.metadata.uid.as_deref();
    // Those without an owner (`--cascade=orphan`) are not this object's.
    let owned = |er: &&EdgeRouter| {
        let mut owners = er.metadata.owner_references.iter().flatten();
        owners.any(|owner| Some(owner.uid.as_str()) == uid)
    };
    let running = members.iter().filter_map(|member| member.edge_router);
    let steps = running
        .filter(owned)
        .filter(|er| !er.spec.paused)
        .map(|er| Step::ApplyEdgeRouter(Box::new(with(facts, er, true))));
    status::paused(facts, members, steps.collect())
}

/// End the pause of members that are on their way out: nobody else brings their
/// EdgeRouters in line, and a paused one is never let go.
pub(super) fn end(facts: &Facts, members: &[Member], steps: &mut Vec<Step>) {
    for member in members {
        let leaves = member.is_leaving() || !member.wanted;
        if let Some(er) = member.edge_router.filter(|er| leaves && er.spec.paused) {
            steps.push(Step::ApplyEdgeRouter(Box::new(with(facts, er, false))));
        }
    }
}

/// The EdgeRouter as it is, but for the pause.
fn with(facts: &Facts, er: &EdgeRouter, paused: bool) -> EdgeRouter {
    let name = er.metadata.name.as_deref().unwrap_or_default();
    let mut wanted = er.clone();
    let annotations = er.metadata.annotations.as_ref();
    let node = annotations.and_then(|all| all.get(names::ANNOTATION_NODE));
    wanted.metadata = render::edge_router_metadata(facts, name, node.map(String::as_str));
    wanted.spec.paused = paused;
    wanted.status = None;
    teardown::changed(wanted, er)
}
