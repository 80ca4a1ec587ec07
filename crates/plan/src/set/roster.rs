//! Who the members of a set are: the wanted ones by topology, and the others of
//! which something is left.

use super::Facts;
use super::applied::hash;
use super::member::ordinal;
use api::names;
use api::router::{Nodes, Topology, ZitiRouterSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use k8s_openapi::jiff::SignedDuration;
use std::collections::{BTreeMap, BTreeSet};

/// The longest name of a StatefulSet whose pods can carry its revision as a
/// label.
const LONGEST_WORKLOAD: usize = 52;

/// A node of the cluster, as far as it matters here: a node that is not ready
/// is as good as another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// A member that is wanted, or was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seat {
    /// The member's name.
    pub name: String,
    /// Its ordinal, where it has one.
    pub ordinal: Option<i32>,
    /// Its node, where it is bound to one.
    pub node: Option<String>,
    /// Whether it is wanted.
    pub wanted: bool,
    /// Since when its node is gone, if it is.
    pub gone_since: Option<Time>,
}

/// Every seat, in the order of ordinals or names.
pub fn seats(facts: &Facts) -> Vec<Seat> {
    let mut seats: BTreeMap<(i32, String), Seat> = BTreeMap::new();
    let mut add = |seat: Seat| {
        let key = (seat.ordinal.unwrap_or_default(), seat.name.clone());
        seats.entry(key).or_insert(seat);
    };
    let deleted = facts.object.metadata.deletion_timestamp.is_some();
    let set = facts.object.metadata.name.as_deref().unwrap_or_default();
    let topology = facts.object.spec.effective_topology();
    let wanted = match topology {
        _ if deleted => Vec::new(),
        Topology::StatefulSet | Topology::PerMember => of_ordinals(set, &facts.object.spec),
        Topology::PerNode => of_nodes(facts, set),
    };
    wanted.into_iter().for_each(&mut add);
    for name in known(facts, set, topology) {
        add(Seat {
            ordinal: (topology != Topology::PerNode)
                .then(|| ordinal(set, &name))
                .flatten(),
            node: node_of(facts, &name),
            name,
            ..Seat::default()
        });
    }
    seats.into_values().collect()
}

/// The first `replicas` ordinals that are not reserved.
fn of_ordinals(set: &str, spec: &ZitiRouterSpec) -> Vec<Seat> {
    let count = usize::try_from(spec.replicas).unwrap_or(0);
    (0..i32::MAX)
        .filter(|ordinal| !spec.reserve_ordinals.contains(ordinal))
        .take(count)
        .map(|ordinal| Seat {
            name: format!("{set}-{ordinal}"),
            ordinal: Some(ordinal),
            wanted: true,
            ..Seat::default()
        })
        .collect()
}

/// One for each node that matches, and for each that is gone for a short time
/// only. A cluster without any node is a list that cannot be true.
fn of_nodes(facts: &Facts, set: &str) -> Vec<Seat> {
    let nodes = facts.object.spec.nodes.clone().unwrap_or_default();
    let present = facts.nodes.as_deref().unwrap_or_default();
    let names: BTreeSet<&str> = present.iter().map(|node| node.name.as_str()).collect();
    let mut seats: Vec<Seat> = present
        .iter()
        .filter(|node| selects(&nodes.selector, &node.labels))
        .map(|node| Seat {
            name: node_member(set, &node.name),
            node: Some(node.name.clone()),
            wanted: true,
            ..Seat::default()
        })
        .collect();
    // What was only kept, such as a volume, is no member.
    let registered = facts.edge_routers.iter();
    for name in registered.filter_map(|er| er.metadata.name.clone()) {
        let node = node_of(facts, &name);
        let is_there = node.as_deref().is_some_and(|node| names.contains(node));
        if is_there || seats.iter().any(|seat| seat.name == name) {
            continue;
        }
        let since = gone_since(facts, &name);
        let wanted = present.is_empty() || left(facts, &nodes, &since).is_positive();
        seats.push(Seat {
            name,
            node,
            wanted,
            gone_since: Some(since),
            ..Seat::default()
        });
    }
    seats
}

fn gone_since(facts: &Facts, member: &str) -> Time {
    let status = facts.object.status.as_ref();
    let recorded = status.and_then(|status| status.nodes_gone.get(member).cloned());
    recorded.unwrap_or(Time(facts.now))
}

/// For how long a member whose node is gone is kept still.
fn left(facts: &Facts, nodes: &Nodes, since: &Time) -> SignedDuration {
    let grace = SignedDuration::from_secs(i64::from(nodes.gone_after_seconds));
    grace.saturating_sub(facts.now.duration_since(since.0))
}

/// When the next member has waited long enough for its node.
pub(super) fn next_farewell(facts: &Facts, seats: &[Seat]) -> Option<SignedDuration> {
    let nodes = facts.object.spec.nodes.clone().unwrap_or_default();
    let waits = seats.iter().filter(|seat| seat.wanted);
    waits
        .filter_map(|seat| Some(left(facts, &nodes, seat.gone_since.as_ref()?)))
        .min()
        .map(|left| left.max(SignedDuration::from_secs(1)))
}

/// Since when the nodes of members are gone, as the status has it: also of a set
/// that is paused or cannot be run, so that a node which came back is not taken
/// for one that has been gone all the time.
pub(super) fn nodes_gone(facts: &Facts) -> BTreeMap<String, Time> {
    let by_node = facts.object.spec.effective_topology() == Topology::PerNode;
    if by_node && facts.nodes.is_none() {
        // Not known is not gone.
        let status = facts.object.status.as_ref();
        return status.map_or_else(BTreeMap::new, |status| status.nodes_gone.clone());
    }
    let seats = seats(facts).into_iter();
    seats
        .filter_map(|seat| Some((seat.name, seat.gone_since?)))
        .collect()
}

/// Members of which anything is there.
fn known(facts: &Facts, set: &str, topology: Topology) -> BTreeSet<String> {
    let labelled = facts
        .edge_routers
        .iter()
        .map(|er| &er.metadata)
        .chain(facts.services.iter().map(|service| &service.metadata))
        .chain(facts.stateful_sets.iter().map(|set| &set.metadata))
        .chain(facts.pods.iter().map(|pod| &pod.metadata))
        .chain(facts.claims.iter().map(|claim| &claim.metadata));
    let mut names: BTreeSet<String> = labelled
        .filter_map(|metadata| member_of(set, metadata))
        .collect();
    if topology == Topology::StatefulSet {
        // Told to run, whether or not there is anything of it yet.
        let told = super::member::shared_workload(facts)
            .and_then(|workload| workload.spec.as_ref()?.replicas)
            .unwrap_or(0);
        names.extend((0..told).map(|ordinal| format!("{set}-{ordinal}")));
    }
    names
}

/// The member to which an object belongs: by its label, or by its name where
/// the StatefulSet of all made it.
pub fn member_of(set: &str, metadata: &ObjectMeta) -> Option<String> {
    let label = metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(names::LABEL_MEMBER));
    if let Some(member) = label {
        return Some(member.clone());
    }
    let name = metadata.name.as_deref()?;
    let name = name.strip_prefix("identity-").unwrap_or(name);
    ordinal(set, name).map(|_| name.to_owned())
}

/// The node that a member was made for.
fn node_of(facts: &Facts, member: &str) -> Option<String> {
    let er = facts
        .edge_routers
        .iter()
        .find(|er| er.metadata.name.as_deref() == Some(member))
        .map(|er| &er.metadata);
    let workload = facts
        .stateful_sets
        .iter()
        .find(|set| set.metadata.name.as_deref() == Some(member))
        .map(|set| &set.metadata);
    er.into_iter()
        .chain(workload)
        .find_map(|metadata| metadata.annotations.as_ref()?.get(names::ANNOTATION_NODE))
        .cloned()
}

/// A member's name by its node. A Service has no dots in its name, and a
/// StatefulSet's must not be long; what had to be changed gets a hash, so that
/// two nodes are not one.
pub fn node_member(set: &str, node: &str) -> String {
    let plain = format!("{set}-{}", node.replace('.', "-"));
    if plain.len() <= LONGEST_WORKLOAD && !node.contains('.') {
        return plain;
    }
    let digest = &hash(&(set, node))[..8];
    let room = LONGEST_WORKLOAD - digest.len() - 1;
    let kept = plain.get(..room.min(plain.len())).unwrap_or_default();
    format!("{}-{digest}", kept.trim_end_matches('-'))
}

/// Whether labels match a selector. An operator that Kubernetes does not know
/// matches nothing.
fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    let mut equal = equal.map(|(key, value)| labels.get(key) == Some(value));
    equal.all(|holds| holds)
        && expressions.all(|wanted| {
            let has = labels.get(&wanted.key);
            let values = wanted.values.as_deref().unwrap_or_default();
            match wanted.operator.as_str() {
                "In" => has.is_some_and(|value| values.contains(value)),
                "NotIn" => has.is_none_or(|value| !values.contains(value)),
                "Exists" => has.is_some(),
                "DoesNotExist" => has.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

    #[test]
    fn a_member_is_named_after_its_node_and_two_nodes_are_never_one() {
        assert_eq!(node_member("edge", "worker-3"), "edge-worker-3");
        let dotted = node_member("edge", "ip-10-0-0-1.ec2.internal");
        assert!(dotted.starts_with("edge-ip-10-0-0-1-ec2-internal-"));
        assert_ne!(dotted, node_member("edge", "ip-10-0-0-1-ec2.internal"));
        let long = node_member("edge", &"n".repeat(200));
        assert!(long.len() <= LONGEST_WORKLOAD, "{long}");
        assert_ne!(long, node_member("edge", &"n".repeat(201)));
    }

    #[test]
    fn a_selector_selects_as_kubernetes_does() {
        let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        let expression = |operator: &str, values: &[&str]| LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "zone".into(),
                operator: operator.into(),
                values: Some(values.iter().map(|&value| value.to_owned()).collect()),
            }]),
            ..LabelSelector::default()
        };
        assert!(selects(&LabelSelector::default(), &labels));
        assert!(selects(&expression("In", &["a", "b"]), &labels));
        assert!(!selects(&expression("NotIn", &["a"]), &labels));
        assert!(selects(&expression("NotIn", &["a"]), &BTreeMap::new()));
        assert!(selects(&expression("Exists", &[]), &labels));
        assert!(!selects(&expression("DoesNotExist", &[]), &labels));
        assert!(!selects(&expression("Near", &["a"]), &labels));
    }
}
