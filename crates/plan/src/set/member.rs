//! What is known of each member of a set.

use super::roster::Seat;
use super::{Facts, TokensSecret, storage};
use crate::conditions::{find, is_true};
use api::edge_router::AgentReport;
use api::reasons::{self, types};
use api::router::Topology;
use api::{EdgeRouter, names};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ContainerStatus, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use serde::Deserialize;

/// Name of the init container that enrolls.
pub const ENROLL_CONTAINER: &str = "enroll";
/// Name of the router's container.
pub const ROUTER_CONTAINER: &str = "router";

/// One member and everything that belongs to it.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts, each by itself")]
pub struct Member<'a> {
    /// Its ordinal; 0 for all members of topology `PerNode`.
    pub ordinal: i32,
    /// Its name: that of its EdgeRouter and Service, and of its pod in a
    /// StatefulSet of all.
    pub name: String,
    /// The node to which it is bound, if it is.
    pub node: Option<String>,
    /// Whether the user wants it.
    pub wanted: bool,
    /// Its workload: the StatefulSet of all, or its own.
    pub workload: Option<&'a StatefulSet>,
    /// Whether its workload is told to run it.
    pub told: bool,
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

/// Name of a member's pod.
pub fn pod_name(topology: Topology, member: &str) -> String {
    if topology.is_per_member() {
        format!("{member}-0")
    } else {
        member.to_owned()
    }
}

/// Name of the volume claim of a pod.
pub fn claim_name(pod: &str) -> String {
    format!("identity-{pod}")
}

/// Every member of which anything is left or wanted, by ordinal or name.
pub fn members<'a>(facts: &'a Facts, seats: &[Seat]) -> Vec<Member<'a>> {
    seats.iter().map(|seat| member(facts, seat)).collect()
}

fn member<'a>(facts: &'a Facts, seat: &Seat) -> Member<'a> {
    let topology = facts.object.spec.effective_topology();
    let name = seat.name.clone();
    let pod = pod_name(topology, &name);
    let claim = claim_name(&pod);
    let mounted_token = match &facts.tokens {
        TokensSecret::Ours(keys) | TokensSecret::Unowned(keys) => {
            keys.get(&name).and_then(Option::as_deref)
        }
        TokensSecret::Absent | TokensSecret::Foreign => None,
    };
    let ordinal = seat.ordinal.unwrap_or_default();
    let workload = if topology.is_per_member() {
        named(&facts.stateful_sets, &name)
    } else {
        shared_workload(facts)
    };
    let place = if topology.is_per_member() { 0 } else { ordinal };
    Member {
        ordinal,
        node: seat.node.clone(),
        wanted: seat.wanted,
        workload,
        told: workload.is_some_and(|workload| place < replicas(workload)),
        edge_router: named(&facts.edge_routers, &name),
        pod: named(&facts.pods, &pod),
        service: named(&facts.services, &name),
        claim: named(&facts.claims, &claim),
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

fn named<'a, K: Resource>(objects: &'a [K], name: &str) -> Option<&'a K> {
    objects
        .iter()
        .find(|object| object.meta().name.as_deref() == Some(name))
}

/// The StatefulSet of all members, where the topology has one.
pub fn shared_workload<'a>(facts: &'a Facts) -> Option<&'a StatefulSet> {
    let name = facts.object.metadata.name.as_deref().unwrap_or_default();
    let shared = !facts.object.spec.effective_topology().is_per_member();
    named(&facts.stateful_sets, name).filter(|_| shared)
}

/// How many pods a StatefulSet is told to run.
pub fn replicas(workload: &StatefulSet) -> i32 {
    let spec = workload.spec.as_ref();
    spec.map_or(1, |spec| spec.replicas.unwrap_or(1))
}

/// Whether the StatefulSets' controller has seen what this one says.
pub fn is_observed(workload: &StatefulSet) -> bool {
    let status = workload.status.as_ref();
    status.and_then(|status| status.observed_generation) >= workload.metadata.generation
}

/// How many members the user wants.
pub fn wished(members: &[Member]) -> usize {
    members.iter().filter(|member| member.wanted).count()
}

impl Member<'_> {
    /// The name of its pod, where it has one.
    pub fn pod_name(&self) -> &str {
        let name = self.pod.and_then(|pod| pod.metadata.name.as_deref());
        name.unwrap_or(&self.name)
    }

    /// Whether its pod is gone and none will be made: its workload does not
    /// want one, and the StatefulSets' controller knows that.
    pub fn is_stopped(&self) -> bool {
        let observed = self.workload.is_none_or(is_observed);
        self.pod.is_none() && !self.told && observed
    }

    /// The revision of its workload's template, as far as its controller has
    /// seen it.
    pub fn revision(&self) -> Option<&str> {
        let workload = self.workload.filter(|workload| is_observed(workload))?;
        workload.status.as_ref()?.update_revision.as_deref()
    }

    /// Whether its pod was made from another template than its workload has.
    pub fn is_outdated(&self) -> bool {
        let label = |pod: &Pod| {
            let labels = pod.metadata.labels.as_ref()?;
            labels.get("controller-revision-hash").cloned()
        };
        let revision = self.revision();
        self.pod
            .is_some_and(|pod| revision.is_some() && label(pod).as_deref() != revision)
    }

    /// Whether the scheduler finds no node for its pod.
    pub fn is_unschedulable(&self) -> bool {
        self.refusal_of_scheduler().is_some()
    }

    /// What the scheduler says where it finds no node for its pod.
    pub(super) fn refusal_of_scheduler(&self) -> Option<&str> {
        let status = self.pod?.status.as_ref()?;
        let refused = status.conditions.iter().flatten().find(|condition| {
            condition.type_ == "PodScheduled"
                && condition.status == "False"
                && condition.reason.as_deref() == Some("Unschedulable")
        })?;
        Some(refused.message.as_deref().unwrap_or("it does not say why"))
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

    /// Whether it is registered and has not used its token yet.
    pub fn is_enrolling(&self) -> bool {
        self.is_registered() && !self.is_enrolled()
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
    fn lost_with_its_volume(&self) -> Option<AgentReport> {
        let lost = !self.told
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
    pub fn news(&self) -> Option<AgentReport> {
        let lost = || self.lost_with_its_volume().filter(|_| self.wanted);
        self.report().or_else(lost)
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
    let (reason, token_reason) = if enrolled {
        (AgentReport::ENROLLED.to_owned(), message.reason)
    } else {
        (message.reason.unwrap_or(message.outcome), None)
    };
    Some(AgentReport {
        pod_uid,
        reason,
        message: message
            .message
            .filter(|_| !enrolled || token_reason.is_some()),
        router_id: message.router_id,
        fingerprint: message.fingerprint,
        not_after: message
            .not_after
            .and_then(|text| text.parse().ok())
            .map(Time),
        token_digest: message.token_digest,
        token_reason,
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
