//! When an EdgeRouter without a ZitiRouter may be let go.

use super::Step;
use super::member::{is_observed, ordinal, replicas};
use super::roster::member_of;
use super::teardown::release_in_use;
use api::{EdgeRouter, names};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::core::ObjectMeta;

/// For an EdgeRouter of a set whose ZitiRouter is gone (deleted with
/// `--cascade=orphan`, or before its members were): let go of it when it is
/// being deleted and its pod has ended for good. `None` where there is nothing
/// to do.
pub fn release_orphan(
    edge_router: &EdgeRouter,
    workloads: &[StatefulSet],
    pods: &[Pod],
) -> Option<Step> {
    let metadata = &edge_router.metadata;
    let name = metadata.name.as_deref()?;
    let set = metadata.labels.as_ref()?.get(names::LABEL_SET)?;
    let mut finalizers = metadata.finalizers.iter().flatten();
    let held = finalizers.any(|finalizer| finalizer == names::FINALIZER_IN_USE);
    let is_of = |metadata: &ObjectMeta| member_of(set, metadata).as_deref() == Some(name);
    let runs = pods.iter().any(|pod| is_of(&pod.metadata));
    let ended = !runs && !may_make_pod(workloads, set, name);
    (metadata.deletion_timestamp.is_some() && held && ended).then(|| release_in_use(edge_router))
}

/// Whether one of the set's StatefulSets, read before the pods were, may still
/// make the pod of this member.
pub fn may_make_pod(workloads: &[StatefulSet], set: &str, member: &str) -> bool {
    workloads.iter().any(|workload| {
        let labels = workload.metadata.labels.as_ref();
        let place = match labels.and_then(|labels| labels.get(names::LABEL_MEMBER)) {
            Some(own) => (own == member).then_some(0),
            None => ordinal(set, member),
        };
        place.is_some_and(|place| place < replicas(workload) || !is_observed(workload))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::{StatefulSetSpec, StatefulSetStatus};

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
        let may = |workload| may_make_pod(&[workload], "edge", "edge-1");
        assert!(!may_make_pod(&[], "edge", "edge-1"));
        assert!(may(workload(2, 2)));
        assert!(may(workload(1, 1)));
        assert!(!may(workload(1, 2)));
    }

    #[test]
    fn a_workload_of_one_member_makes_the_pod_of_no_other() {
        let mut own = workload(1, 2);
        let label = (names::LABEL_MEMBER.to_owned(), "edge-1".to_owned());
        own.metadata.labels = Some([label].into());
        assert!(may_make_pod(std::slice::from_ref(&own), "edge", "edge-1"));
        assert!(!may_make_pod(&[own], "edge", "edge-0"));
    }
}
