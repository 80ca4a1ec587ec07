//! Whether a set can be reached and configured as it is written: what the API
//! server's rules cannot see. Asked by `validate`.

use super::config::router_config;
use super::reach::{self, Address, Listener, Spelling};
use super::sidecar::SIDECAR_PORT;
use super::{Facts, config_check, extra_config};
use crate::edge_router::Problem;
use api::router::{ExposeType, Topology, TunnelMode};
use api::{ZitiRouter, reasons};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Placeholders of an advertised host.
const PLACEHOLDERS: [&str; 6] = [
    "{member}",
    "{namespace}",
    "{set}",
    "{index}",
    "{node}",
    "{hostIP}",
];

/// Stands for an address that is not known yet.
const UNKNOWN: &str = "unknown.invalid";

/// Why the set cannot be reached or configured as it is written, if it cannot.
pub(super) fn fault(facts: &Facts) -> Option<Problem> {
    let object = facts.object;
    let spec = &object.spec;
    if let Some(problem) = dollar(object) {
        return Some(problem);
    }
    if let Some(problem) = spec.extra_config.as_ref().and_then(extra_config::refused) {
        return Some(problem);
    }
    let listeners = reach::listeners(spec);
    let invalid = |message: String| Problem::new(reasons::INVALID_SPEC, message);
    if let Some(message) = listeners.iter().find_map(listener_fault) {
        return Some(invalid(message));
    }
    if spec.effective_topology() == Topology::PerNode
        && let Some(listener) = listeners.iter().find(|one| one.counts())
    {
        let field = listener.field();
        return Some(invalid(format!(
            "{field} counts members, by {{index}} or expose.nodePort, and members of topology PerNode have no ordinals: use {{member}} or {{node}}, and leave the node port to the cluster"
        )));
    }
    if let Some(message) = together(&listeners).or_else(|| alike(facts, &listeners)) {
        return Some(invalid(message));
    }
    // The first member and the last: what counts upwards overflows there.
    let members = reach::wanted_members(facts);
    let ends = members.first().into_iter().chain(members.last());
    ends.cloned()
        .find_map(|(index, member)| config_fault(facts, &listeners, &member, index))
}

/// A `$` that would come into the configuration.
fn dollar(object: &ZitiRouter) -> Option<Problem> {
    let spec = &object.spec;
    let json = |value: serde_json::Result<Value>| value.unwrap_or_default();
    let fields = [
        ("spec.edge", json(serde_json::to_value(&spec.edge))),
        ("spec.link", json(serde_json::to_value(&spec.link))),
        ("spec.ctrl", json(serde_json::to_value(&spec.ctrl))),
        (
            "spec.extraConfig",
            json(serde_json::to_value(&spec.extra_config)),
        ),
    ];
    // What stands in annotations never reaches the router.
    let found = fields.iter().find_map(|(field, value)| {
        let mut value = value.clone();
        strip_annotations(&mut value);
        extra_config::dollar(&value, field)
    });
    found.map(|(field, value)| {
        let message = format!(
            "{field} holds {value:?}: the router replaces everything behind a $ from its environment, and there is no way to write a literal one. Write the value itself"
        );
        Problem::new(reasons::DOLLAR_IN_STRING, message)
    })
}

fn strip_annotations(listener: &mut Value) {
    let Value::Object(map) = listener else {
        return;
    };
    if let Some(Value::Object(expose)) = map.get_mut("expose") {
        expose.remove("annotations");
    }
    if let Some(Value::Array(more)) = map.get_mut("listeners") {
        more.iter_mut().for_each(strip_annotations);
    }
}

/// What is wrong with one listener by itself.
fn listener_fault(listener: &Listener) -> Option<String> {
    let field = listener.field();
    let host = listener.advertise.host.as_deref();
    if let Some(host) = host {
        let mut rest = host.to_owned();
        for placeholder in PLACEHOLDERS {
            rest = rest.replace(placeholder, "x");
        }
        if rest.contains(['{', '}']) {
            let known = PLACEHOLDERS.join(", ");
            return Some(format!(
                "{field}.advertise.host is {host:?}; what may be in braces is {known}"
            ));
        }
        let by_node = host.contains("{node}") || host.contains("{hostIP}");
        if by_node && listener.expose.type_ != ExposeType::HostPort {
            return Some(format!(
                "{field}.advertise.host is {host:?}: a node is where the member is reached only with expose type HostPort"
            ));
        }
        if by_node && host.contains("{index}") {
            return Some(format!(
                "{field}.advertise.host is {host:?}: {{index}} is written by the operator and a node by the pod, so both cannot stand in one name. Use {{member}}"
            ));
        }
        if host.contains("{hostIP}") && host != "{hostIP}" {
            return Some(format!(
                "{field}.advertise.host is {host:?}: {{hostIP}} is an address, and nothing can stand beside it"
            ));
        }
    }
    let needs_host = matches!(
        listener.expose.type_,
        ExposeType::NodePort | ExposeType::Ingress | ExposeType::TlsRoute
    );
    if needs_host && host.is_none() {
        return Some(format!(
            "{field}.advertise.host is missing: with expose type {} nothing else says under which name members are reached",
            listener.expose.type_name()
        ));
    }
    let routed = matches!(
        listener.expose.type_,
        ExposeType::Ingress | ExposeType::TlsRoute
    );
    if routed && host.is_some_and(|host| host.parse::<Ipv4Addr>().is_ok()) {
        return Some(format!(
            "{field}.advertise.host must be a name: by it the traffic is told apart"
        ));
    }
    if !listener.is_exposed() && listener.advertise != api::router::Advertise::default() {
        return Some(format!(
            "{field} has expose type None and advertise: what is not exposed cannot be advertised"
        ));
    }
    None
}

/// What is wrong with listeners together.
fn together(listeners: &[Listener]) -> Option<String> {
    let mut names = BTreeSet::new();
    let mut ports: BTreeMap<u16, &Listener> = BTreeMap::new();
    for listener in listeners {
        if !names.insert(listener.name) {
            return Some(format!(
                "two listeners have the name {}: an edge listener and a link listener may not share one",
                listener.name
            ));
        }
        if listener.port == SIDECAR_PORT {
            return Some(format!(
                "{}.port is {SIDECAR_PORT}, where the sidecar of each pod listens: take another",
                listener.field()
            ));
        }
        match ports.get(&listener.port) {
            None => {
                ports.insert(listener.port, listener);
            }
            Some(edge) if listener.shares && edge.is_exposed() && !edge.is_wss() => {}
            Some(other) => {
                return Some(format!(
                    "{}.port and {}.port are both {}: give each its own. Only spec.link may have spec.edge's, where that is exposed and of protocol tls, and spec.link has no exposure of its own",
                    other.field(),
                    listener.field(),
                    listener.port
                ));
            }
        }
    }
    None
}

/// Whether two would be told to be at one address. Where a node is part of it,
/// that is for the scheduler to prevent.
fn alike(facts: &Facts, listeners: &[Listener]) -> Option<String> {
    let mut taken: BTreeMap<Address, String> = BTreeMap::new();
    for (index, member) in reach::wanted_members(facts) {
        let at = Spelling::of(facts.object, &member, index);
        for listener in listeners
            .iter()
            .filter(|one| one.is_exposed() && !one.shares)
        {
            let Ok(address) = listener.address(&at, None) else {
                continue;
            };
            if address.host.contains('$') {
                continue;
            }
            let who = format!("{} of {member}", listener.name);
            let message = |other: &str| {
                format!(
                    "{other} and {who} would both be advertised at {}:{}: put {{member}} or {{index}} into advertise.host, or give each its port",
                    address.host, address.port
                )
            };
            if let Some(other) = taken.get(&address) {
                return Some(message(other));
            }
            taken.insert(address, who);
        }
    }
    None
}

/// What the router would not take of the configuration.
fn config_fault(
    facts: &Facts,
    listeners: &[Listener],
    member: &str,
    index: i32,
) -> Option<Problem> {
    let object = facts.object;
    let spec = &object.spec;
    let at = Spelling::of(object, member, index);
    let address = |listener: &Listener| {
        let known = listener.address(&at, None);
        known.unwrap_or_else(|_| Address {
            host: UNKNOWN.to_owned(),
            port: listener.port,
        })
    };
    for listener in listeners {
        let counted = listener.expose.node_port.is_some() && listener.advertise.port.is_none();
        if counted && listener.node_port(member, index).is_none() {
            let message = format!(
                "{}.expose.nodePort leaves no port for {member}: ports end at 65535",
                listener.field()
            );
            return Some(Problem::new(reasons::INVALID_SPEC, message));
        }
    }
    let addresses: Vec<Address> = listeners.iter().map(address).collect();
    let names = reach::names(spec, &at, addresses.iter().cloned());
    let config = router_config(object, &at, &addresses);
    let tunneler = spec.tunnel.mode != TunnelMode::None;
    let fault = config_check::fault(&config, &names, tunneler, spec.edge.port)?;
    Some(Problem::new(
        reasons::CONFIG_INVALID,
        format!("the router's configuration would not be taken: {fault}"),
    ))
}
