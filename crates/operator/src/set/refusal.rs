//! Why Kubernetes makes no pods for a set's StatefulSets. Their status does not say
//! it; their events do.

use crate::place::Place;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use plan::set::member::replicas;
use tracing::debug;

/// What was said when a pod was last refused, where pods are missing and none
/// was made since. It only serves for words, so a failed read is no failure.
pub(super) async fn last(place: &Place, sets: &[StatefulSet], pods: &[Pod]) -> Option<String> {
    let wanted: i32 = sets.iter().map(replicas).sum();
    if usize::try_from(wanted).is_ok_and(|wanted| pods.len() >= wanted) {
        return None;
    }
    let api: Api<Event> = place.api();
    let fields = ListParams::default().fields("regarding.kind=StatefulSet,reason=FailedCreate");
    let events = match api.list(&fields).await {
        Ok(events) => events.items,
        Err(error) => {
            debug!(%error, namespace = place.namespace(), "events cannot be listed");
            return None;
        }
    };
    let uids: Vec<String> = sets.iter().filter_map(ResourceExt::uid).collect();
    let is_ours = |event: &Event| {
        let regarding = event.regarding.as_ref();
        let uid = regarding.and_then(|regarding| regarding.uid.as_ref());
        uid.is_some_and(|uid| uids.contains(uid))
    };
    let newest = events
        .into_iter()
        .filter(is_ours)
        .filter_map(|event| Some((time(&event)?, event.note?)))
        .max_by_key(|(time, _)| *time);
    let made = pods.iter().filter_map(ResourceExt::creation_timestamp);
    let made = made.map(|time| time.0).max();
    newest
        .filter(|(time, _)| Some(*time) >= made)
        .map(|(_, note)| note)
}

/// When it happened last.
fn time(event: &Event) -> Option<Timestamp> {
    let series = event
        .series
        .as_ref()
        .map(|series| series.last_observed_time.0);
    let old = event.deprecated_last_timestamp.as_ref().map(|time| time.0);
    let first = event.event_time.as_ref().map(|time| time.0);
    series.max(old).max(first)
}
