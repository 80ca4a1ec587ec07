//! The names of what makes a set reachable: each must be had by one object
//! alone, and a Service's must not be long. Asked by `validate`.
//!
//! Names are made of parts (`<set>-<node>`, `<member>-<listener>`), and parts can
//! meet: a node `a` whose edge listener is exposed, and a node `a-edge`. Two
//! writers of one object would undo each other's work for ever.

use super::Facts;
use super::member::ordinal;
use super::reach::{self, Listener};
use super::render::set_name;
use super::tunnel::{proxied, service_name};
use crate::edge_router::Problem;
use api::reasons;
use api::router::{ExposeType, Topology};
use std::collections::BTreeMap;

/// The longest name of a Service: it is a DNS label.
const LONGEST_SERVICE: usize = 63;

/// An object that is to be.
struct Claim {
    kind: &'static str,
    name: String,
    /// What it is for.
    who: String,
    /// What a person can do if it cannot have this name.
    remedy: String,
}

/// Why the objects of the set cannot have the names that they would get, if
/// they cannot.
pub(super) fn fault(facts: &Facts) -> Option<Problem> {
    let invalid = |message| Some(Problem::new(reasons::INVALID_SPEC, message));
    let mut taken: BTreeMap<(&str, String), String> = BTreeMap::new();
    for claim in claims(facts) {
        let Claim {
            kind,
            name,
            who,
            remedy,
        } = claim;
        let length = name.len();
        if kind == "Service" && length > LONGEST_SERVICE {
            return invalid(format!(
                "the Kubernetes Service {name} of {who} would have a name of {length} characters, and {LONGEST_SERVICE} is the most: {remedy}"
            ));
        }
        if let Some(other) = taken.get(&(kind, name.clone())) {
            return invalid(format!(
                "{other} and {who} both want the Kubernetes {kind} {name}: {remedy}"
            ));
        }
        taken.insert((kind, name), who);
    }
    None
}

/// Those of members before those of offered services, whose names can be chosen.
fn claims(facts: &Facts) -> Vec<Claim> {
    let listeners = reach::listeners(&facts.object.spec);
    let mut claims = Vec::new();
    for (_, member) in reach::wanted_members(facts) {
        claims.push(Claim {
            kind: "Service",
            name: member.clone(),
            who: format!("member {member}"),
            remedy: of_member(facts),
        });
        let exposed = listeners.iter().filter(|listener| !listener.shares);
        claims.extend(exposed.filter_map(|listener| {
            Some(Claim {
                kind: kind(listener)?,
                name: listener.object_name(&member),
                who: format!("{} of {member}", listener.field()),
                remedy: of_member(facts),
            })
        }));
    }
    let set = set_name(facts.object);
    for offered in proxied(&facts.object.spec.tunnel) {
        let claim = |name: String, who: String| Claim {
            kind: "Service",
            name,
            who,
            remedy: "choose another by spec.tunnel.proxy.services[].kubernetesService.name"
                .to_owned(),
        };
        let name = service_name(facts.object, offered);
        // One that the set would have if it grew.
        let is_free = !claims.iter().any(|known| known.name == name);
        if let Some(member) = later_member(set, &listeners, &name).filter(|_| is_free) {
            claims.push(claim(name.clone(), format!("member {member}")));
        }
        let who = format!("port {} of spec.tunnel.proxy.services", offered.port);
        claims.push(claim(name, who));
    }
    claims
}

/// The kind of what exposes a listener by itself, where anything does.
fn kind(listener: &Listener) -> Option<&'static str> {
    match listener.expose.type_ {
        ExposeType::NodePort | ExposeType::LoadBalancer => Some("Service"),
        ExposeType::Ingress => Some("Ingress"),
        ExposeType::TlsRoute => Some("TLSRoute"),
        ExposeType::None | ExposeType::ClusterIP | ExposeType::HostPort => None,
    }
}

fn of_member(facts: &Facts) -> String {
    let remedy = match facts.object.spec.effective_topology() {
        Topology::PerNode => {
            "take one of the nodes out by spec.nodes.selector and serve it by a second ZitiRouter, or expose the listener by another type"
        }
        Topology::StatefulSet | Topology::PerMember => {
            "use a ZitiRouter with a shorter name, give the listener a shorter one, or expose it by another type"
        }
    };
    remedy.to_owned()
}

/// The member with an ordinal that has, or will have, an object of this name.
fn later_member<'a>(set: &str, listeners: &[Listener], name: &'a str) -> Option<&'a str> {
    let of_listeners = listeners.iter().filter_map(|listener| {
        let member = name.strip_suffix(listener.name)?.strip_suffix('-')?;
        kind(listener).map(|_| member)
    });
    std::iter::once(name)
        .chain(of_listeners)
        .find(|member| ordinal(set, member).is_some())
}
