//! What the API server's rules cannot see, or cannot say well enough.

use super::{Facts, Network, object_names, pod_options, reach_check, tunnel, workload};
use crate::edge_router::Problem;
use api::reasons;
use api::router::Topology;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A router of a newer major version than its controllers does not get on with
/// them: those are upgraded first. What runs already is not judged.
fn too_new(facts: &Facts) -> Option<Problem> {
    let Network::Found { version, .. } = &facts.network else {
        return None;
    };
    let network = version.as_deref()?;
    let image = workload::wanted_image(facts);
    if workload::running_images(facts).any(|running| running == image) {
        return None;
    }
    workload::is_too_new(&image, network).then(|| {
        let message = format!(
            "image {image} is of a newer major version than the controllers of the network ({network}): upgrade those first, or set spec.image to a router of their version"
        );
        Problem::new(reasons::VERSION_REFUSED, message)
    })
}

/// Why the set cannot be run as it is written, if it cannot.
pub(super) fn fault(facts: &Facts) -> Option<Problem> {
    let spec = &facts.object.spec;
    if let Network::Missing(problem) = &facts.network {
        return Some(problem.clone());
    }
    if facts.provided.is_none() && !matches!(facts.network, Network::Found { .. }) {
        return Some(Problem::new(
            reasons::INVALID_SPEC,
            "spec.networkRef is missing: name a ZitiNetwork, or provide the tokens",
        ));
    }
    if let Network::Found {
        has_credential: false,
        ..
    } = &facts.network
        && facts.provided.is_none()
    {
        return Some(Problem::new(
            reasons::NO_CREDENTIAL,
            "the ZitiNetwork has no credential, so no router can be registered: set its spec.credential, or provide the tokens",
        ));
    }
    if spec.effective_topology() == Topology::PerNode && facts.nodes.is_none() {
        let message = match spec.cluster() {
            None => "topology PerNode needs to know the cluster's nodes, which this operator may not read: install its chart with rbac.nodes=true".to_owned(),
            Some(cluster) => format!(
                "topology PerNode needs to know the nodes of ZitiCluster {cluster}, which the credential may not read: apply there what \
                 `ziti-operator cluster-credential --nodes` prints"
            ),
        };
        return Some(Problem::new(reasons::FORBIDDEN, message));
    }
    let named = [
        ("spec.csr.sans.dns", spec.csr.sans.dns.as_slice()),
        ("spec.csr.sans.ip", spec.csr.sans.ip.as_slice()),
    ];
    for (field, values) in named {
        if let Some(value) = values.iter().find(|value| value.contains('$')) {
            return Some(Problem::new(
                reasons::DOLLAR_IN_STRING,
                format!(
                    "{field} holds {value:?}: the router replaces everything behind a $ from its environment, and there is no way to write a literal one. Write the value itself"
                ),
            ));
        }
    }
    if let Some(value) = spec
        .csr
        .sans
        .ip
        .iter()
        .find(|value| value.parse::<IpAddr>().is_err())
    {
        return Some(Problem::new(
            reasons::INVALID_SPEC,
            format!("spec.csr.sans.ip holds {value:?}, which is no IP address"),
        ));
    }
    if let Some(problem) = reach_check::fault(facts) {
        return Some(problem);
    }
    if let Some(problem) = too_new(facts) {
        return Some(problem);
    }
    let problem = tunnel::fault(facts)
        .or_else(|| object_names::fault(facts))
        .or_else(|| pod_options::storage_fault(facts))
        .or_else(|| pod_options::fault(&spec.pod));
    if problem.is_some() {
        return problem;
    }
    if let Some(Err(problem)) = &facts.provided {
        return Some(problem.clone());
    }
    None
}

/// Members whose token stands under another member's key as well. Such a token
/// is given to neither: only one could use it, and nobody can tell which was
/// meant.
pub(super) fn duplicated(tokens: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut by_digest: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (member, digest) in tokens {
        by_digest.entry(digest).or_default().push(member);
    }
    by_digest
        .into_values()
        .filter(|members| members.len() > 1)
        .flatten()
        .map(str::to_owned)
        .collect()
}

/// What `{cluster}` stands for in the names of a set that is where the operator is.
const LOCAL_CLUSTER: &str = "local";

/// A member's name on the network, where a pattern makes another of it. `namespace`
/// is that of the ZitiRouter, `cluster` the ZitiCluster in which it is placed;
/// `None` for a set that is where the operator is.
pub fn member_network_name(
    namespace: &str,
    pattern: Option<&str>,
    install_id: &str,
    cluster: Option<&str>,
    member: &str,
) -> Option<String> {
    let pattern = pattern?;
    let name = pattern
        .replace("{member}", member)
        .replace("{namespace}", namespace)
        .replace("{cluster}", cluster.unwrap_or(LOCAL_CLUSTER))
        .replace("{install}", install_id);
    (name != member).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(pattern: &str, cluster: Option<&str>) -> Option<String> {
        member_network_name("coast", Some(pattern), "pier", cluster, "lamp-0")
    }

    #[test]
    fn a_pattern_names_members_by_where_they_are() {
        let all = "{install}.{cluster}.{namespace}.{member}";
        assert_eq!(
            named(all, Some("far")).as_deref(),
            Some("pier.far.coast.lamp-0")
        );
        assert_eq!(named(all, None).as_deref(), Some("pier.local.coast.lamp-0"));
        assert_eq!(named("{member}", Some("far")), None);
    }
}
