//! When an EdgeRouter without a ZitiRouter may be let go.

use super::Step;
use super::member::ordinal;
use super::teardown::release_in_use;
use api::{EdgeRouter, names};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;

/// For an EdgeRouter of a set whose ZitiRouter is gone (deleted with
/// `--cascade=orphan`, or before its members were): let go of it when it is
/// being deleted and its pod has ended for good. `None` where there is nothing
/// to do.
pub fn release_orphan(
    edge_router: &EdgeRouter,
    workload: Option<&StatefulSet>,
    pods: &[Pod],
) -> Option<Step> {
    let metadata = &edge_router.metadata;
    let name = metadata.name.as_deref()?;
    let set = metadata.labels.as_ref()?.get(names::LABEL_SET)?;
    let mut finalizers = metadata.finalizers.iter().flatten();
    let held = finalizers.any(|finalizer| finalizer == names::FINALIZER_IN_USE);
    let runs = pods
        .iter()
        .any(|pod| pod.metadata.name.as_deref() == Some(name));
    let ended = !runs && !may_make_pod(workload, set, name);
    (metadata.deletion_timestamp.is_some() && held && ended).then(|| release_in_use(edge_router))
}

/// Whether a StatefulSet, read before the pods were, may still make the pod of
/// this member.
pub fn may_make_pod(workload: Option<&StatefulSet>, set: &str, member: &str) -> bool {
    let Some(workload) = workload else {
        return false;
    };
    let replicas = workload
        .spec
        .as_ref()
        .map_or(1, |spec| spec.replicas.unwrap_or(1));
    let status = workload.status.as_ref();
    let observed =
        status.and_then(|status| status.observed_generation) >= workload.metadata.generation;
    ordinal(set, member).is_some_and(|ordinal| ordinal < replicas || !observed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::{StatefulSetSpec, StatefulSetStatus};
    use kube::core::ObjectMeta;

    fn workload(replicas: i32, observed: i64) -> StatefulSet {
        StatefulSet {
            metadata: ObjectMeta {
                generation: Some(2),
                ..ObjectMeta::default()
            },
            spec: Some(StatefulSetSpec {
                replicas: Some(replicas),
                ..StatefulSetSpec::default()
            }),
            status: Some(StatefulSetStatus {
                observed_generation: Some(observed),
                ..StatefulSetStatus::default()
            }),
        }
    }

    #[test]
    fn a_pod_may_come_while_the_workload_wants_it_or_has_not_heard_that_it_does_not() {
        assert!(!may_make_pod(None, "edge", "edge-1"));
        assert!(may_make_pod(Some(&workload(2, 2)), "edge", "edge-1"));
        assert!(may_make_pod(Some(&workload(1, 1)), "edge", "edge-1"));
        assert!(!may_make_pod(Some(&workload(1, 2)), "edge", "edge-1"));
    }
}
