//! Why Kubernetes makes no pods for a StatefulSet. Its status does not say it;
//! its events do.

use crate::context::Context;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use tracing::debug;

/// What was said when a pod was last refused, where pods are missing and none
/// was made since. It only serves for words, so a failed read is no failure.
pub(super) async fn last(
    context: &Context,
    namespace: &str,
    set: Option<&StatefulSet>,
    pods: &[Pod],
) -> Option<String> {
    let set = set?;
    let wanted = set.spec.as_ref()?.replicas.unwrap_or(1);
    if usize::try_from(wanted).is_ok_and(|wanted| pods.len() >= wanted) {
        return None;
    }
    let uid = set.uid()?;
    let api: Api<Event> = Api::namespaced(context.client.clone(), namespace);
    let fields = format!("regarding.uid={uid},reason=FailedCreate");
    let events = match api.list(&ListParams::default().fields(&fields)).await {
        Ok(events) => events.items,
        Err(error) => {
            debug!(%error, namespace, "events cannot be listed");
            return None;
        }
    };
    let newest = events
        .into_iter()
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
