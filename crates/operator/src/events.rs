//! Events: what happened, for `kubectl describe`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use plan::conditions::find;
use tracing::debug;

/// Publishes events. One for the process: it counts repetitions.
#[derive(Clone)]
pub(crate) struct Events(Recorder);

impl Events {
    pub(crate) fn new(client: kube::Client, identity: &str) -> Self {
        let reporter = Reporter {
            controller: "ziti-operator".to_owned(),
            instance: Some(identity.to_owned()),
        };
        Self(Recorder::new(client, reporter))
    }

    /// Something was done.
    pub(crate) async fn done<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: &str,
        note: String,
    ) {
        self.publish(object, EventType::Normal, reason, note).await;
    }

    /// Something is wrong.
    pub(crate) async fn warn<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: &str,
        note: String,
    ) {
        self.publish(object, EventType::Warning, reason, note).await;
    }

    /// Tell of conditions that turned false, or false for another reason.
    pub(crate) async fn turned<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        type_: &str,
        before: &[Condition],
        after: &[Condition],
    ) {
        let Some(now) = find(after, type_) else {
            return;
        };
        let was = find(before, type_);
        if was.is_some_and(|was| was.status == now.status && was.reason == now.reason) {
            return;
        }
        if now.status == "True" {
            self.done(object, &now.reason, now.message.clone()).await;
        } else if was.is_some()
            && !matches!(
                now.reason.as_str(),
                api::reasons::PENDING | api::reasons::DELETING | api::reasons::TOKEN_READY
            )
        {
            self.warn(object, &now.reason, now.message.clone()).await;
        }
    }

    async fn publish<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        type_: EventType,
        reason: &str,
        note: String,
    ) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            // Events of one action and reason are counted as one, with the
            // note of the first: the action keeps different notes apart.
            action: format!("{reason}-{}", plan::set::applied::hash(&note)),
            note: Some(note),
            secondary: None,
        };
        if let Err(error) = self.0.publish(&event, &object.object_ref(&())).await {
            // A namespace that is being deleted takes no events.
            debug!(%error, reason, "an event could not be published");
        }
    }
}
