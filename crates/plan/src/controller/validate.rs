//! What the API server's rules cannot see, or cannot say well enough.

use super::cluster::{address, is_made};
use super::config::{self, client_api, control_plane};
use super::member::{members, ordinal_of};
use super::{Admin, Facts, Root, restore, web};
use crate::edge_router::Problem;
use crate::set::pod_options;
use crate::version;
use api::router::ExposeType;
use api::{names, reasons};
use std::collections::BTreeSet;

/// Why the controllers cannot be run as they are written, if they cannot.
pub(super) fn fault(facts: &Facts) -> Option<Problem> {
    let spec = &facts.object.spec;
    config::fault(spec.extra_config.as_ref())
        .or_else(|| pod_options::fault(&spec.pod))
        .or_else(|| same_address(facts))
        .or_else(|| another_network(facts))
        .or_else(|| versions(facts))
        .or_else(|| root(facts))
        .or_else(|| admin(facts))
        .or_else(|| web::fault(facts))
        .or_else(|| unexpanded(facts))
        .or_else(|| routed(facts))
        .or_else(|| lone_member_moves(facts))
        .or_else(|| too_few(facts))
}

/// A workload that has to be made anew for fewer members than there are databases:
/// a minority of a cluster has no leader, and without one nobody can leave it.
fn too_few(facts: &Facts) -> Option<Problem> {
    if facts.stateful_set.is_some() || !is_made(facts) {
        return None;
    }
    let wished = facts.object.spec.replicas;
    let members = members(facts);
    let kept = members.iter().filter(|member| {
        let claim = member.claim.map(|claim| &claim.metadata);
        claim.is_some_and(|claim| claim.deletion_timestamp.is_none())
    });
    let last = kept.max_by_key(|member| member.ordinal)?;
    (last.ordinal >= wished).then(|| {
        let message = format!(
            "the cluster had more than {wished} members, by the volume of {}: set spec.replicas to {}, and lower it when the cluster is Ready; or delete that claim if the member had left before",
            last.name,
            last.size()
        );
        Problem::new(reasons::INVALID_SPEC, message)
    })
}

/// A member whose address changes leaves the cluster and joins it again: the only
/// one can do neither. Started with another address it would lead, and Ziti 1.6
/// would show nobody who does (`controller/raft/member.go` goes by addresses).
fn lone_member_moves(facts: &Facts) -> Option<Problem> {
    let cluster = facts.cluster.as_ref().ok()?;
    let mut voters = cluster.members.iter().filter(|peer| peer.voter);
    let (only, None) = (voters.next()?, voters.next()) else {
        return None;
    };
    let wanted = address(facts, ordinal_of(facts, &only.id)?);
    (only.address != wanted).then(|| {
        let message = format!(
            "{} is the only member of its cluster, and is known in it by {}: spec.advertised.controlPlane (or what it is derived from) would make that {wanted}, which needs others who stay. Set it back, scale to 3 members, and change it then",
            only.id, only.address
        );
        Problem::new(reasons::INVALID_SPEC, message)
    })
}

/// The network is made with an administrator, who must be there by then.
fn admin(facts: &Facts) -> Option<Problem> {
    let object = facts.object;
    let given = object.spec.admin_secret_ref.as_ref();
    if is_made(facts) {
        return None;
    }
    match (&facts.admin, given) {
        (Admin::Unusable(why), _) => Some(Problem::new(reasons::SOURCE_INVALID, why.clone())),
        (Admin::Absent, Some(given)) => {
            let message = format!(
                "Secret {}, named in spec.adminSecretRef, does not exist in this namespace: create it with username and password",
                given.name
            );
            Some(Problem::new(reasons::SOURCE_MISSING, message))
        }
        (Admin::Absent, None) | (Admin::Ready { .. }, _) => None,
    }
}

/// A placeholder that nobody knows.
fn unexpanded(facts: &Facts) -> Option<Problem> {
    let object = facts.object;
    let hosts = [client_api(object, 0).host, control_plane(object, 0).host];
    let host = hosts.into_iter().find(|host| host.contains(['{', '}']))?;
    let message = format!(
        "spec.advertised gives a member the host {host:?}: {{member}}, {{namespace}}, {{name}} and {{index}} are known"
    );
    Some(Problem::new(reasons::INVALID_SPEC, message))
}

/// Ingresses and TLSRoutes go by the name that is asked for, and have one.
fn routed(facts: &Facts) -> Option<Problem> {
    let object = facts.object;
    let kind = object.spec.expose.as_ref()?.type_;
    let plane = object.spec.advertised.control_plane.as_ref()?;
    let by_name = matches!(kind, ExposeType::Ingress | ExposeType::TlsRoute);
    let (asked, routed) = (control_plane(object, 0).host, client_api(object, 0).host);
    let within = config::internal(object, 0).host;
    (by_name && asked != routed && asked != within).then(|| {
        let message = format!(
            "spec.advertised.controlPlane is {}, and the {} of each member leads to it by the name of clientApi alone: give both the same host",
            plane.host,
            if kind == ExposeType::Ingress { "Ingress" } else { "TLSRoute" }
        );
        Problem::new(reasons::INVALID_SPEC, message)
    })
}

/// Members that would be reached at one address are one to everybody else.
fn same_address(facts: &Facts) -> Option<Problem> {
    let object = facts.object;
    let of = [
        ("clientApi", client_api as fn(_, _) -> _),
        ("controlPlane", control_plane),
    ];
    of.into_iter().find_map(|(field, address)| {
        let mut seen = BTreeSet::new();
        let mut members = 0..object.spec.replicas;
        let twice = members.find(|ordinal| !seen.insert(address(object, *ordinal).to_string()))?;
        let message = format!(
            "spec.advertised.{field} gives two members the address {}: put {{member}} or {{index}} into the host",
            address(object, twice)
        );
        Some(Problem::new(reasons::INVALID_SPEC, message))
    })
}

/// A ZitiNetwork of this name that somebody else made.
fn another_network(facts: &Facts) -> Option<Problem> {
    let network = facts.network.as_ref()?;
    let uid = facts.object.metadata.uid.as_ref();
    let mut owners = network.metadata.owner_references.iter().flatten();
    if owners.any(|owner| Some(&owner.uid) == uid) {
        return None;
    }
    let name = network.metadata.name.as_deref().unwrap_or_default();
    let ours = network.metadata.labels.as_ref();
    let ours = ours.is_some_and(|labels| {
        labels.get(names::LABEL_CONTROLLER).map(String::as_str) == Some(name)
    });
    // One that an earlier ZitiController of this name left is taken back.
    (!ours).then(|| {
        let message = format!(
            "a ZitiNetwork {name} exists and is not this ZitiController's: delete or rename it, or rename the ZitiController"
        );
        Problem::new(reasons::SOURCE_INVALID, message)
    })
}

/// Ziti is tested from one major version to the next, and never back: a
/// database that a newer version wrote is not read by an older one.
fn versions(facts: &Facts) -> Option<Problem> {
    let running = facts.object.status.as_ref()?.version.as_deref()?;
    let image = facts.object.spec.image.as_deref()?;
    let (from, to) = (version::of(running)?, version::of_image(image)?);
    let message = if to.0 < from.0 {
        format!(
            "spec.image would take the network from {running} back to {image}: a database is not read by an older major version. Stay with {running}, or make another ZitiController"
        )
    } else if to.0 > from.0 + 1 {
        format!(
            "spec.image would take the network from {running} to {image}, over a major version: go to the versions between first, one after another"
        )
    } else {
        return None;
    };
    Some(Problem::new(reasons::VERSION_REFUSED, message))
}

/// The root is made once. Without it nothing can be issued, and another one
/// would make a network that nobody who is enrolled trusts.
fn root(facts: &Facts) -> Option<Problem> {
    let object = facts.object;
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let secret = names::controller_root_secret(name);
    let status = object.status.as_ref();
    let known = status.and_then(|status| status.root_key.as_deref());
    if restore::fetched_from(facts).is_some() {
        return None;
    }
    let kept = facts.claims.iter();
    let kept = kept
        .filter(|claim| !restore::is_empty(facts, claim))
        .count();
    let message = match (&facts.root, known) {
        (Root::Absent, None) if kept > 0 => format!(
            "Secret {secret} with the root of the network's certificates is gone, and databases of that network are there: put it back from a backup, or delete the claims to begin a new network"
        ),
        (Root::Absent, None) => return None,
        (Root::Absent, Some(_)) if facts.issuer.is_some() => format!(
            "Secret {secret} with what the network is trusted by is gone: put it back with the ca.crt of ConfigMap {} (label it as it was, or not at all). Members run on until their certificates end",
            names::controller_trust(name)
        ),
        (Root::Absent, Some(_)) if kept == 0 && facts.pods.is_empty() => format!(
            "Secret {secret} with the root of the network's certificates is gone, and so are its databases: set spec.restoreFrom to a backup, or delete this ZitiController and apply it again to begin a new network"
        ),
        (Root::Absent, Some(_)) => format!(
            "Secret {secret} with the root of the network's certificates is gone: put it back from a backup. Members run on until their certificates end, and no other root is made, since nobody who is enrolled would trust it"
        ),
        (Root::Unusable(why), _) => format!("Secret {secret} cannot be used: {why}"),
        // An issuer's authority may be another one; what was trusted stays in the Secret.
        (Root::Sound(root), Some(known)) if root.key != known && facts.issuer.is_none() => format!(
            "Secret {secret} holds the key of another root than the one that made this network: put the right one back"
        ),
        // Put back from what members are told, which names no trust domain.
        (Root::Sound(root), _) if root.trust_domain.is_none() && facts.issuer.is_some() => {
            return None;
        }
        (Root::Sound(root), _) => {
            let wanted = object.trust_domain();
            let have = root.trust_domain.as_deref().unwrap_or_default();
            if have == wanted {
                return None;
            }
            format!(
                "Secret {secret} holds a root of trust domain {have:?}, and {wanted:?} is wanted: set spec.trustDomain to the one that is there, or remove the Secret if that network is gone for good"
            )
        }
    };
    Some(Problem::new(reasons::ROOT_UNUSABLE, message))
}
