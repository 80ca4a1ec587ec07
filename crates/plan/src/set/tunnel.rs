//! The tunneler of a set: its listener in the configuration, the Kubernetes
//! Services of the ports that mode `proxy` offers, and what cannot be. How pods
//! differ for mode `tproxy` is in `tproxy`.

use super::applied::{is_applied, is_stamped, stamp};
use super::render::{metadata, set_name};
use super::sidecar::SIDECAR_PORT;
use super::{Facts, Step, reach, tproxy};
use crate::edge_router::Problem;
use api::router::{ProxyProtocol, ProxyService, ServiceType, Tunnel, TunnelMode, ZitiRouterSpec};
use api::{ZitiRouter, names, reasons};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The listener of the tunneler in the router's configuration, if it has one.
pub(super) fn listener(tunnel: &Tunnel) -> Option<Value> {
    let options = match tunnel.mode {
        TunnelMode::None => return None,
        TunnelMode::Host => json!({"mode": "host"}),
        TunnelMode::Proxy => json!({
            "mode": "proxy",
            "services": proxied(tunnel).iter().map(entry).collect::<Vec<_>>(),
        }),
        TunnelMode::Tproxy => tproxy::listener_options(tunnel),
    };
    Some(json!({"binding": "tunnel", "options": options}))
}

/// The services that the set offers at ports of its own.
pub(super) fn proxied(tunnel: &Tunnel) -> &[ProxyService] {
    let proxy = tunnel.proxy.as_ref();
    let offers = tunnel.mode == TunnelMode::Proxy;
    proxy
        .filter(|_| offers)
        .map(|proxy| proxy.services.as_slice())
        .unwrap_or_default()
}

/// One service as the router reads it.
fn entry(offered: &ProxyService) -> String {
    match offered.protocol {
        ProxyProtocol::Tcp => format!("{}:{}", offered.service, offered.port),
        ProxyProtocol::Udp => format!("{}:{}:udp", offered.service, offered.port),
    }
}

/// The protocol's name in Kubernetes.
pub(super) fn protocol(offered: &ProxyService) -> &'static str {
    match offered.protocol {
        ProxyProtocol::Tcp => "TCP",
        ProxyProtocol::Udp => "UDP",
    }
}

/// Name of the Kubernetes Service in front of an offered service.
pub(super) fn service_name(object: &ZitiRouter, offered: &ProxyService) -> String {
    let given = offered.kubernetes_service.name.clone();
    given.unwrap_or_else(|| format!("{}-proxy-{}", set_name(object), offered.port))
}

/// The Kubernetes Services of the offered ports. Each selects all members: any
/// of them carries what is asked for there.
pub fn services(object: &ZitiRouter) -> Vec<Service> {
    let offered = proxied(&object.spec.tunnel).iter();
    offered.map(|offered| service(object, offered)).collect()
}

fn service(object: &ZitiRouter, offered: &ProxyService) -> Service {
    let wish = &offered.kubernetes_service;
    let mut metadata = metadata(object, &service_name(object, offered), None);
    if !wish.annotations.is_empty() {
        metadata.annotations = Some(wish.annotations.clone());
    }
    let members = BTreeMap::from([(names::LABEL_SET.to_owned(), set_name(object).to_owned())]);
    let type_ = match wish.type_ {
        ServiceType::ClusterIP => "ClusterIP",
        ServiceType::NodePort => "NodePort",
        ServiceType::LoadBalancer => "LoadBalancer",
    };
    stamp(&Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some(type_.to_owned()),
            selector: Some(members),
            ports: Some(vec![ServicePort {
                name: Some("proxy".to_owned()),
                port: i32::from(wish.port.unwrap_or(offered.port)),
                target_port: Some(IntOrString::Int(i32::from(offered.port))),
                node_port: wish.node_port.map(i32::from),
                protocol: Some(protocol(offered).to_owned()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    })
}

/// Bring the Services of the offered ports in line, and take away those of ports
/// that are offered no more. Those of members carry the member's label and are
/// no matter of this.
pub(super) fn plan_services(facts: &Facts, steps: &mut Vec<Step>) {
    let wanted = services(facts.object);
    for service in &wanted {
        let name = &service.metadata.name;
        let mut actual = facts.services.iter();
        let actual = actual.find(|actual| actual.metadata.name == *name);
        if !actual.is_some_and(|actual| is_applied(service, actual)) {
            steps.push(Step::ApplyService(Box::new(service.clone())));
        }
    }
    let of_member = |service: &Service| {
        let labels = service.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(names::LABEL_MEMBER))
    };
    for actual in &facts.services {
        let is_wanted = wanted
            .iter()
            .any(|service| service.metadata.name == actual.metadata.name);
        let going = actual.metadata.deletion_timestamp.is_some();
        if !is_wanted && !of_member(actual) && !going && is_stamped(&actual.metadata) {
            steps.push(Step::DeleteService {
                name: actual.metadata.name.clone().unwrap_or_default(),
            });
        }
    }
}

/// Why the tunneler cannot be as it is written, if it cannot.
pub(super) fn fault(facts: &Facts) -> Option<Problem> {
    let spec = &facts.object.spec;
    offered_fault(facts.object).or_else(|| tproxy::fault(spec, facts.settings.cluster_dns.as_ref()))
}

/// What the list of offered services gets wrong by itself.
fn offered_fault(object: &ZitiRouter) -> Option<Problem> {
    let spec = &object.spec;
    let mut services = BTreeSet::new();
    for offered in proxied(&spec.tunnel) {
        if let Some(problem) = unusable_name(&offered.service) {
            return Some(problem);
        }
        if !services.insert(&offered.service) {
            let message = format!(
                "spec.tunnel.proxy.services names {:?} twice, and a router knows one port for each service: offer it once, or by a second ZitiRouter",
                offered.service
            );
            return Some(Problem::new(reasons::INVALID_SPEC, message));
        }
        if let Some(listener) = own_port(spec, offered.port) {
            let message = format!(
                "spec.tunnel.proxy.services and {listener} both want port {}: give each its own",
                offered.port
            );
            return Some(Problem::new(reasons::INVALID_SPEC, message));
        }
    }
    None
}

/// Why a router cannot be told of a service of this name, if it cannot: it reads
/// `name:port` from a string in which it has replaced everything behind a `$`.
fn unusable_name(service: &str) -> Option<Problem> {
    if service.contains('$') {
        let message = format!(
            "spec.tunnel.proxy.services names {service:?}: the router replaces everything behind a $ from its environment, and there is no way to write a literal one. Rename the service"
        );
        return Some(Problem::new(reasons::DOLLAR_IN_STRING, message));
    }
    let unusable = service.contains(':') || service.chars().any(char::is_control);
    unusable.then(|| {
        let message = format!(
            "spec.tunnel.proxy.services names {service:?}: a router is told of a service as \"name:port\", which cannot carry a colon or a control character. Rename the service"
        );
        Problem::new(reasons::SERVICE_NAME_UNUSABLE, message)
    })
}

/// Which listener of the router itself has this port.
fn own_port(spec: &ZitiRouterSpec, port: u16) -> Option<String> {
    if port == SIDECAR_PORT {
        return Some("the sidecar of each pod".to_owned());
    }
    let listeners = reach::listeners(spec);
    let taken = listeners.iter().find(|listener| listener.port == port);
    taken.map(|listener| format!("{}.port", listener.field()))
}
