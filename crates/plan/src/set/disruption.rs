//! The PodDisruptionBudget of a set: a node is drained of one member at a time.

use super::member::{Member, wished};
use super::render::{metadata, set_name};
use api::router::Topology;
use api::{ZitiRouter, names};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

/// The budget of a set of two or more. The only member of a set has none, and
/// neither have those that are bound to their nodes: it would make a drain wait
/// for what cannot come. For the same reason members that no node will have are
/// not waited for: the drain of the last node always ends.
pub(super) fn budget(object: &ZitiRouter, members: &[Member]) -> Option<PodDisruptionBudget> {
    let wished = wished(members);
    if wished < 2 || object.spec.effective_topology() == Topology::PerNode {
        return None;
    }
    let homeless = members.iter().filter(|member| member.is_unschedulable());
    let homeless = i32::try_from(homeless.count()).unwrap_or(i32::MAX);
    let labels = BTreeMap::from([(names::LABEL_SET.to_owned(), set_name(object).to_owned())]);
    Some(PodDisruptionBudget {
        metadata: metadata(object, set_name(object), None),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(homeless.saturating_add(1))),
            selector: Some(LabelSelector {
                match_labels: Some(labels),
                ..LabelSelector::default()
            }),
            // A member that is not ready serves nobody: a drain must not wait
            // for it to become so.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    })
}
