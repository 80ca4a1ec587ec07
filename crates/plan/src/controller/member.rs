//! What is known of each member.

use super::pki::MemberPki;
use super::{Cluster, Facts, Peer};
use crate::set::member::is_observed;
use api::names;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::jiff::SignedDuration;

/// One member and everything that belongs to it.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// Its ordinal.
    pub ordinal: i32,
    /// Its name.
    pub name: String,
    /// Whether the user wants it.
    pub wanted: bool,
    /// Its pod.
    pub pod: Option<&'a Pod>,
    /// What the cluster says of it, if it is in it.
    pub peer: Option<&'a Peer>,
    /// Its certificates.
    pub pki: Option<&'a MemberPki>,
    /// Its volume claim.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// The revision of the template that the workload has now.
    revision: Option<&'a str>,
}

/// How many members the user wants.
pub fn wished(facts: &Facts) -> i32 {
    facts.object.spec.replicas
}

/// The ordinal in a member's name.
pub fn ordinal_of(facts: &Facts, member: &str) -> Option<i32> {
    let name = facts.object.metadata.name.as_deref().unwrap_or_default();
    crate::set::member::ordinal(&names::controller_workload(name), member)
}

/// Every member of which anything is left or wanted, by ordinal.
pub fn members<'a>(facts: &'a Facts) -> Vec<Member<'a>> {
    let name = facts.object.metadata.name.as_deref().unwrap_or_default();
    let cluster = facts.cluster.as_ref().ok();
    let peers = cluster.into_iter().flat_map(|cluster| &cluster.members);
    let pods = facts
        .pods
        .iter()
        .filter_map(|pod| pod.metadata.name.as_deref());
    let claims = facts.claims.iter();
    let claims = claims.filter_map(|claim| claim.metadata.name.as_deref()?.strip_prefix("data-"));
    let left = peers.map(|peer| peer.id.as_str()).chain(pods).chain(claims);
    let mut ordinals: Vec<i32> = left
        .filter_map(|member| ordinal_of(facts, member))
        .collect();
    ordinals.extend(0..wished(facts));
    ordinals.sort_unstable();
    ordinals.dedup();
    let of = |ordinal| {
        member(
            facts,
            cluster,
            names::controller_member(name, ordinal),
            ordinal,
        )
    };
    ordinals.into_iter().map(of).collect()
}

fn member<'a>(
    facts: &'a Facts,
    cluster: Option<&'a Cluster>,
    name: String,
    ordinal: i32,
) -> Member<'a> {
    let workload = facts.stateful_set.as_ref().filter(|set| is_observed(set));
    let status = workload.and_then(|set| set.status.as_ref());
    let named = |have: &Option<String>, wanted: &str| have.as_deref() == Some(wanted);
    let claim = format!("data-{name}");
    Member {
        ordinal,
        wanted: ordinal < wished(facts),
        pod: facts
            .pods
            .iter()
            .find(|pod| named(&pod.metadata.name, &name)),
        peer: cluster.and_then(|cluster| cluster.peer(&name)),
        pki: facts.pki.as_ref().and_then(|pki| pki.get(&name)),
        claim: facts
            .claims
            .iter()
            .find(|have| named(&have.metadata.name, &claim)),
        revision: status.and_then(|status| status.update_revision.as_deref()),
        name,
    }
}

impl Member<'_> {
    /// The size of the smallest cluster that it is of: sizes are odd.
    pub fn size(&self) -> i32 {
        self.ordinal + 1 + self.ordinal % 2
    }

    /// Whether its pod is being removed.
    pub fn is_terminating(&self) -> bool {
        let ends = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
        self.pod.is_some_and(ends)
    }

    /// Whether Kubernetes says that its pod is ready.
    pub fn is_ready(&self) -> bool {
        let status = self.pod.and_then(|pod| pod.status.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }

    /// Whether its pod is there to stay and its controller has been started.
    pub fn runs(&self) -> bool {
        let status = self.pod.and_then(|pod| pod.status.as_ref());
        let containers = status.and_then(|status| status.container_statuses.as_ref());
        let mut containers = containers.into_iter().flatten();
        let started = containers.any(|container| {
            let state = container.state.as_ref();
            state.is_some_and(|state| state.running.is_some())
        });
        started && !self.is_terminating()
    }

    /// Whether it votes, and the leader is connected to it.
    pub fn is_connected(&self) -> bool {
        self.peer.is_some_and(|peer| peer.connected)
    }

    /// Whether it leads.
    pub fn leads(&self) -> bool {
        self.peer.is_some_and(|peer| peer.leader)
    }

    /// Whether it does what it is for: ready, and connected by the leader's word.
    pub fn is_up(&self) -> bool {
        self.is_ready() && self.is_connected() && !self.is_terminating()
    }

    /// Why its pod has to be replaced, if it has to.
    pub fn outdated(&self) -> Option<&'static str> {
        let pod = self.pod?;
        let labels = pod.metadata.labels.as_ref();
        let revision = labels.and_then(|labels| labels.get("controller-revision-hash"));
        if self.revision.is_some() && revision.map(String::as_str) != self.revision {
            return Some("its template changed");
        }
        self.was_renewed()
            .then_some("it has new certificates, and reads them when it starts")
    }

    /// Whether it was given certificates after its pod was made.
    fn was_renewed(&self) -> bool {
        let written = self.pki.and_then(|pki| pki.written_at);
        let started = self
            .pod
            .and_then(|pod| pod.metadata.creation_timestamp.as_ref());
        // Both are the API server's, and whole seconds: a pod of the same second has
        // not mounted anything yet.
        let started = started.map(|started| started.0);
        started.is_some_and(|started| written.is_some_and(|written| written > started))
    }

    /// Whether what its pod read when it started has ended: it has new ones, and
    /// its pod is older than the life that certificates are given.
    pub fn certificate_has_ended(&self, facts: &Facts) -> bool {
        let days = i64::from(facts.object.spec.pki.certificate_days);
        self.was_renewed() && self.age(facts) >= SignedDuration::from_hours(24 * days)
    }

    /// How long Kubernetes has not called its pod ready.
    pub fn unready_for(&self, facts: &Facts) -> SignedDuration {
        let status = self.pod.and_then(|pod| pod.status.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        let ready = conditions.find(|condition| condition.type_ == "Ready");
        let turned = ready.and_then(|condition| condition.last_transition_time.as_ref());
        turned.map_or(self.age(facts), |at| facts.now.duration_since(at.0))
    }

    /// How long its pod has been there.
    pub fn age(&self, facts: &Facts) -> SignedDuration {
        let made = self
            .pod
            .and_then(|pod| pod.metadata.creation_timestamp.as_ref());
        made.map_or(SignedDuration::ZERO, |made| {
            facts.now.duration_since(made.0)
        })
    }
}
