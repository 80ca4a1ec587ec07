//! What goes when a ZitiController is deleted, and in which order.
//!
//! While EdgeRouters use its network that nobody is deleting, nothing goes: their
//! routers would be cut off. Those that are being deleted need not be deleted from
//! a network that ends with them, and are let go.

use super::render::name_of;
use super::{Facts, Plan, Root, Step, backup, restore, status};
use crate::set::extra::Kind;
use api::names;
use api::router::RetentionPolicy;
use kube::ResourceExt;

/// Take everything away, step by step.
pub(super) fn plan(facts: &Facts) -> Plan {
    let object = facts.object;
    let held = object
        .finalizers()
        .iter()
        .any(|held| held == names::FINALIZER_CONTROLLER);
    if !held {
        return status::leaving(facts, Vec::new(), "somebody else's finalizer holds it");
    }
    if facts.users.staying > 0 {
        return status::in_use(facts);
    }
    let mut steps = Vec::new();
    let Some(waits) = next(facts, &mut steps) else {
        steps.push(Step::ReleaseFinalizer);
        return status::leaving(facts, steps, "it is gone");
    };
    status::leaving(facts, steps, waits)
}

/// The next steps, and what is waited for; `None` where nothing is left.
fn next(facts: &Facts, steps: &mut Vec<Step>) -> Option<&'static str> {
    let object = facts.object;
    if let Some(network) = facts
        .network
        .as_ref()
        .filter(|network| owned(facts, network))
    {
        let annotated = network
            .annotations()
            .contains_key(names::ANNOTATION_NETWORK_ENDS);
        if !annotated {
            steps.push(Step::EndNetwork);
        }
        if network.metadata.deletion_timestamp.is_none() {
            let uid = network.uid().unwrap_or_default();
            steps.push(Step::DeleteNetwork { uid });
        }
        return Some("the EdgeRouters of its network go");
    }
    if let Some(set) = &facts.stateful_set {
        if set.metadata.deletion_timestamp.is_none() {
            let uid = set.uid().unwrap_or_default();
            steps.push(Step::DeleteStatefulSet { uid });
        }
        return Some("its members stop");
    }
    if !facts.pods.is_empty() {
        return Some("its members stop");
    }
    backup::remove(facts, steps);
    restore::abandon(facts, steps);
    let going = |metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        metadata.deletion_timestamp.is_some()
    };
    for service in facts.services.iter().filter(|one| !going(&one.metadata)) {
        steps.push(Step::DeleteService {
            name: service.name_any(),
        });
    }
    for extra in facts.extras.iter().filter(|one| !going(&one.metadata)) {
        if let Some(kind) = Kind::of(extra) {
            steps.push(Step::DeleteExtra {
                kind,
                name: extra.name_any(),
            });
        }
    }
    for map in facts.config_maps.iter().filter(|one| !going(&one.metadata)) {
        steps.push(Step::DeleteConfigMap {
            name: map.name_any(),
        });
    }
    if object.spec.storage.when_deleted == RetentionPolicy::Delete {
        for claim in facts.claims.iter().filter(|one| !going(&one.metadata)) {
            steps.push(Step::DeleteClaim {
                name: claim.name_any(),
                uid: claim.uid().unwrap_or_default(),
            });
        }
        steps.push(Step::DeleteSecrets);
    } else if is_unmarked(facts) {
        steps.push(Step::MarkMade);
    }
    None
}

/// Whether the object alone says that its network was made, and not the root, which
/// outlives it: one that was paused or refused all its life had no root marked.
fn is_unmarked(facts: &Facts) -> bool {
    let status = facts.object.status.as_ref();
    let recorded = status.is_some_and(|status| status.initialized.is_some());
    recorded && matches!(&facts.root, Root::Sound(root) if !root.made && root.restoring.is_none())
}

fn owned(facts: &Facts, network: &api::ZitiNetwork) -> bool {
    let labels = network.labels();
    labels.get(names::LABEL_CONTROLLER).map(String::as_str) == Some(name_of(facts.object))
}
