//! The PodDisruptionBudget of a set: a node is drained of one member at a time.

use super::render::{metadata, set_name};
use api::{ZitiRouter, names};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

/// The budget of a set of two or more. The only member of a set has none: it
/// would make each drain of its node wait for ever.
pub(super) fn budget(object: &ZitiRouter) -> Option<PodDisruptionBudget> {
    if object.spec.replicas < 2 {
        return None;
    }
    let labels = BTreeMap::from([(names::LABEL_SET.to_owned(), set_name(object).to_owned())]);
    Some(PodDisruptionBudget {
        metadata: metadata(object, set_name(object), None),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
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
