//! What is known of each member of a set.

use super::{Facts, TokensSecret, storage};
use crate::conditions::{find, is_true};
use api::edge_router::AgentReport;
use api::reasons::{self, types};
use api::{EdgeRouter, names};
use k8s_openapi::api::core::v1::{ContainerStatus, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

/// Name of the init container that enrolls.
pub const ENROLL_CONTAINER: &str = "enroll";
/// Name of the router's container.
pub const ROUTER_CONTAINER: &str = "router";

/// One member: an ordinal and everything that carries its name.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// Its ordinal.
    pub ordinal: i32,
    /// Its name: that of its EdgeRouter, Service and pod.
    pub name: String,
    /// Its EdgeRouter.
    pub edge_router: Option<&'a EdgeRouter>,
    /// Its pod.
    pub pod: Option<&'a Pod>,
    /// Its Service.
    pub service: Option<&'a Service>,
    /// Its volume claim.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// Whether its identity is on a node, where nobody but its pod sees it.
    pub on_node: bool,
    /// Digest of the token in `<name>-tokens`, if there is one.
    pub mounted_token: Option<&'a str>,
    /// Digest of the token that waits in its EdgeRouter's Secret, if any.
    pub waiting_token: Option<&'a str>,
    /// Whether the network can be asked who is online.
    pub network_tells: bool,
}

/// The ordinal in a member's name.
pub fn ordinal(set: &str, member: &str) -> Option<i32> {
    let digits = member.strip_prefix(set)?.strip_prefix('-')?;
    let ordinal: i32 = digits.parse().ok()?;
    // No other spelling of the same number is a member.
    (ordinal >= 0 && digits == ordinal.to_string()).then_some(ordinal)
}

/// Name of a member's volume claim.
pub fn claim_name(member: &str) -> String {
    format!("identity-{member}")
}

/// Every member of which anything is left or wanted, by ordinal.
pub fn members<'a>(facts: &'a Facts) -> Vec<Member<'a>> {
    let set = facts.object.metadata.name.as_deref().unwrap_or_default();
    let current = current_replicas(facts);
    let named = |name: &Option<String>| name.as_deref().and_then(|name| ordinal(set, name));
    let claimed = |name: &Option<String>| {
        name.as_deref()
            .and_then(|name| name.strip_prefix("identity-"))
            .and_then(|name| ordinal(set, name))
    };
    let mut ordinals: Vec<i32> = (0..wished(facts).max(current))
        .chain(
            facts
                .pods
                .iter()
                .filter_map(|pod| named(&pod.metadata.name)),
        )
        .chain(
            facts
                .edge_routers
                .iter()
                .filter_map(|er| named(&er.metadata.name)),
        )
        .chain(
            facts
                .services
                .iter()
                .filter_map(|service| named(&service.metadata.name)),
        )
        .chain(
            facts
                .claims
                .iter()
                .filter_map(|claim| claimed(&claim.metadata.name)),
        )
        .collect();
    ordinals.sort_unstable();
    ordinals.dedup();
    ordinals
        .into_iter()
        .map(|ordinal| member(facts, set, ordinal))
        .collect()
}

fn member<'a>(facts: &'a Facts, set: &str, ordinal: i32) -> Member<'a> {
    let name = format!("{set}-{ordinal}");
    let mounted_token = match &facts.tokens {
        TokensSecret::Ours(keys) | TokensSecret::Unowned(keys) => {
            keys.get(&name).and_then(Option::as_deref)
        }
        TokensSecret::Absent | TokensSecret::Foreign => None,
    };
    Member {
        ordinal,
        edge_router: facts
            .edge_routers
            .iter()
            .find(|er| er.metadata.name.as_ref() == Some(&name)),
        pod: facts
            .pods
            .iter()
            .find(|pod| pod.metadata.name.as_ref() == Some(&name)),
        service: facts
            .services
            .iter()
            .find(|service| service.metadata.name.as_ref() == Some(&name)),
        claim: facts
            .claims
            .iter()
            .find(|claim| claim.metadata.name.as_deref() == Some(&claim_name(&name))),
        on_node: storage::is_on_node(facts.object),
        mounted_token,
        waiting_token: facts.waiting_tokens.get(&name).map(String::as_str),
        network_tells: matches!(
            facts.network,
            super::Network::Found {
                has_credential: true,
                ..
            }
        ),
        name,
    }
}

/// How many members the user wants.
pub fn wished(facts: &Facts) -> i32 {
    if facts.object.metadata.deletion_timestamp.is_some() {
        0
    } else {
        facts.object.spec.replicas
    }
}

/// How many pods the StatefulSet is told to run.
pub fn current_replicas(facts: &Facts) -> i32 {
    let spec = facts
        .stateful_set
        .as_ref()
        .and_then(|set| set.spec.as_ref());
    spec.map_or(0, |spec| spec.replicas.unwrap_or(1))
}

/// Whether the StatefulSet's controller has seen what the StatefulSet says.
pub fn stateful_set_is_observed(facts: &Facts) -> bool {
    facts.stateful_set.as_ref().is_none_or(|set| {
        set.status
            .as_ref()
            .and_then(|status| status.observed_generation)
            >= set.metadata.generation
    })
}

impl Member<'_> {
    /// Whether its pod is gone and none will be made: the StatefulSet does not
    /// want one, and its controller knows that.
    pub fn is_stopped(&self, facts: &Facts) -> bool {
        let wanted = match &facts.stateful_set {
            None => false,
            Some(_) => self.ordinal < current_replicas(facts) || !stateful_set_is_observed(facts),
        };
        self.pod.is_none() && !wanted
    }

    /// Whether the pod is being removed.
    pub fn is_terminating(&self) -> bool {
        self.pod
            .is_some_and(|pod| pod.metadata.deletion_timestamp.is_some())
    }

    /// Whether Kubernetes says that the pod is ready.
    pub fn is_ready(&self) -> bool {
        let conditions = self
            .pod
            .and_then(|pod| pod.status.as_ref())
            .and_then(|status| status.conditions.as_ref());
        conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }

    /// Whether the network last said that the router is online.
    pub fn is_online(&self) -> bool {
        let status = self.edge_router.and_then(|er| er.status.as_ref());
        let wanted = if self.network_tells {
            types::ONLINE
        } else {
            types::ENROLLED
        };
        status.is_some_and(|status| is_true(&status.conditions, wanted))
    }

    /// Whether this very pod is ready and was seen online: what a rollout
    /// waits for before it takes the next one.
    pub fn is_up(&self) -> bool {
        let status = self.edge_router.and_then(|er| er.status.as_ref());
        let uid = self.pod.and_then(|pod| pod.metadata.uid.as_ref());
        let seen = status.is_some_and(|status| status.online_pod.as_ref() == uid);
        self.pod.is_some()
            && !self.is_terminating()
            && self.is_ready()
            && self.is_online()
            && (seen || !self.network_tells)
    }

    /// Whether its pod may be added: its token is there, or it has an identity
    /// on its volume. What stands under its key in `<name>-tokens` does not
    /// count: without a token that waits it is a spent one, about to be emptied.
    pub fn may_start(&self) -> bool {
        self.is_registered()
            && (self.waiting_token.is_some() || (self.is_enrolled() && self.has_volume()))
    }

    /// Whether it has an EdgeRouter that is there to stay.
    pub fn is_registered(&self) -> bool {
        self.edge_router
            .is_some_and(|er| er.metadata.deletion_timestamp.is_none())
    }

    /// Whether its EdgeRouter is being deleted.
    pub fn is_leaving(&self) -> bool {
        self.edge_router
            .is_some_and(|er| er.metadata.deletion_timestamp.is_some())
    }

    /// Whether its router has an identity, as far as its EdgeRouter tells. A
    /// provided token that was redeemed in an earlier life of the set counts as
    /// well: what came of it is on the volume that was kept. Where no network
    /// can tell, one that ran out may have been. A pod that has reported since
    /// knew better.
    fn is_enrolled(&self) -> bool {
        let status = self.edge_router.and_then(|er| er.status.as_ref());
        let unheard = status.is_some_and(|status| status.agent.is_none());
        let enrolled = status.and_then(|status| find(&status.conditions, types::ENROLLED));
        enrolled.is_some_and(|enrolled| {
            let used = enrolled.reason == reasons::TOKEN_SPENT
                || (enrolled.reason == reasons::TOKEN_EXPIRED && !self.network_tells);
            enrolled.status == "True" || (used && unheard)
        })
    }

    fn has_volume(&self) -> bool {
        let claim = self.claim.map(|claim| &claim.metadata);
        self.on_node || claim.is_some_and(|claim| claim.deletion_timestamp.is_none())
    }

    /// Whether the network sees it connected, if perhaps not in sync or with an
    /// identity that was replaced since: taking it down is then a disruption.
    pub fn is_connected(&self) -> bool {
        let status = self.edge_router.and_then(|er| er.status.as_ref());
        let online = status.and_then(|status| find(&status.conditions, types::ONLINE));
        online.is_some_and(|online| online.status == "True" || online.reason == reasons::SYNCING)
    }

    /// What is known of its identity, where no pod can say it: with neither pod
    /// nor volume there is none. Without this a router that the network holds
    /// enrolled, from an earlier life of the set, would wait for ever.
    fn lost_with_its_volume(&self, current: i32) -> Option<AgentReport> {
        let lost = self.ordinal >= current
            && self.pod.is_none()
            && self.claim.is_none()
            && !self.on_node
            && self.waiting_token.is_none()
            && self.is_registered()
            && self.is_enrolled();
        lost.then(|| AgentReport {
            reason: reasons::TOKEN_MISSING.to_owned(),
            message: Some("it has no volume, so its identity is gone".to_owned()),
            ..AgentReport::default()
        })
    }

    /// What is to be told of its identity: its pod's own report, or that it has
    /// neither pod nor volume although it is wanted.
    pub fn news(&self, facts: &Facts) -> Option<AgentReport> {
        let wanted = self.ordinal < wished(facts);
        let lost = || self.lost_with_its_volume(current_replicas(facts));
        self.report().or_else(|| lost().filter(|_| wanted))
    }

    /// What its pod reports, if it has reported.
    pub fn report(&self) -> Option<AgentReport> {
        report(self.pod?)
    }
}

/// The one line that `ziti-agent enroll` leaves behind.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TerminationMessage {
    outcome: String,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    router_id: Option<String>,
    #[serde(default)]
    fingerprint: Option<String>,
    #[serde(default)]
    not_after: Option<String>,
    #[serde(default)]
    token_digest: Option<String>,
}

/// What a pod's init container reported in its last attempt.
pub fn report(pod: &Pod) -> Option<AgentReport> {
    let statuses = pod.status.as_ref()?.init_container_statuses.as_ref()?;
    let status = statuses
        .iter()
        .find(|status| status.name == ENROLL_CONTAINER)?;
    let text = last_message(status)?;
    let pod_uid = pod.metadata.uid.clone().unwrap_or_default();
    let message: TerminationMessage = serde_json::from_str(text.trim()).ok()?;
    let enrolled = matches!(message.outcome.as_str(), "Enrolled" | "AlreadyEnrolled");
    let reason = if enrolled {
        AgentReport::ENROLLED.to_owned()
    } else {
        message.reason.unwrap_or(message.outcome)
    };
    Some(AgentReport {
        pod_uid,
        reason,
        message: message.message.filter(|_| !enrolled),
        router_id: message.router_id,
        fingerprint: message.fingerprint,
        not_after: message
            .not_after
            .and_then(|text| text.parse().ok())
            .map(Time),
        token_digest: message.token_digest,
    })
}

fn last_message(status: &ContainerStatus) -> Option<&str> {
    let now = status
        .state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
    let before = status
        .last_state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
    now.or(before)
        .and_then(|terminated| terminated.message.as_deref())
}

/// The labels that every object of a set carries.
pub fn labels(set: &str) -> std::collections::BTreeMap<String, String> {
    [
        (names::LABEL_NAME, "ziti-router"),
        (names::LABEL_INSTANCE, set),
        (names::LABEL_COMPONENT, "router"),
        (names::LABEL_MANAGED_BY, names::MANAGER),
        (names::LABEL_SET, set),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}
