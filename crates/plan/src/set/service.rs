//! The Services by which members are reached, as they should be: each member's
//! own, within the cluster, and those that expose a listener of it beyond.

use super::applied::{is_stamped, stamp};
use super::member::{Member, pod_name};
use super::reach::{self, Listener};
use super::render::metadata;
use api::router::{ExposeType, TrafficPolicy};
use api::{ZitiRouter, names};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

/// The name by which a member is reached within the cluster: that of its own
/// Service.
pub fn host(member: &str, namespace: &str) -> String {
    format!("{member}.{namespace}.svc")
}

/// By what a Service finds the pod of a member.
fn selector(object: &ZitiRouter, member: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(
        "statefulset.kubernetes.io/pod-name".to_owned(),
        pod_name(object.spec.effective_topology(), member),
    )])
}

fn port(name: &str, port: u16, target: u16) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: i32::from(port),
        target_port: Some(IntOrString::Int(i32::from(target))),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}

/// The Service by which one member is reached within the cluster. It has every
/// listener, since Ingresses and routes go through it.
pub fn service(object: &ZitiRouter, member: &str) -> Service {
    let listeners = reach::listeners(&object.spec);
    // One that is on loopback is named here where it is the only one: a Service
    // must have a port.
    let named = listeners.iter().enumerate().filter(|(index, listener)| {
        let only = *index == 0 && !listeners.iter().any(Listener::is_exposed);
        !listener.shares && (listener.is_exposed() || only)
    });
    let ports = named.map(|(_, listener)| port(listener.name, listener.port, listener.port));
    stamp(&Service {
        metadata: metadata(object, member, Some(member)),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            selector: Some(selector(object, member)),
            ports: Some(ports.collect()),
            // Other routers dial as soon as the controller names this one,
            // which is before its pod is Ready.
            publish_not_ready_addresses: Some(true),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    })
}

/// The Services that expose a member's listeners beyond the cluster: one for
/// each listener of type NodePort or LoadBalancer.
pub fn exposing(object: &ZitiRouter, member: &str, index: i32) -> Vec<Service> {
    reach::listeners(&object.spec)
        .iter()
        .filter(|listener| !listener.shares)
        .filter_map(|listener| {
            let spec = match listener.expose.type_ {
                ExposeType::NodePort => node_port(listener, member, index),
                ExposeType::LoadBalancer => load_balancer(listener),
                _ => return None,
            };
            let expose = &listener.expose;
            let policy = expose.external_traffic_policy.map(|policy| match policy {
                TrafficPolicy::Cluster => "Cluster".to_owned(),
                TrafficPolicy::Local => "Local".to_owned(),
            });
            let name = listener.object_name(member);
            let mut metadata = metadata(object, &name, Some(member));
            let annotations = &expose.annotations;
            metadata.annotations = (!annotations.is_empty()).then(|| annotations.clone());
            Some(stamp(&Service {
                metadata,
                spec: Some(ServiceSpec {
                    type_: Some(expose.type_name().to_owned()),
                    selector: Some(selector(object, member)),
                    external_traffic_policy: policy,
                    publish_not_ready_addresses: Some(true),
                    ..spec
                }),
                ..Service::default()
            }))
        })
        .collect()
}

fn node_port(listener: &Listener, member: &str, index: i32) -> ServiceSpec {
    let given = listener.node_port(member, index).map(i32::from);
    ServiceSpec {
        ports: Some(vec![ServicePort {
            node_port: given,
            ..port(listener.name, listener.port, listener.port)
        }]),
        ..ServiceSpec::default()
    }
}

fn load_balancer(listener: &Listener) -> ServiceSpec {
    let expose = &listener.expose;
    let ranges = &expose.source_ranges;
    let outside = expose.port.unwrap_or(listener.port);
    ServiceSpec {
        ports: Some(vec![port(listener.name, outside, listener.port)]),
        load_balancer_class: expose.load_balancer_class.clone(),
        load_balancer_source_ranges: (!ranges.is_empty()).then(|| ranges.clone()),
        ..ServiceSpec::default()
    }
}

/// Whether a Service exposes a listener, rather than being a member's own, and
/// its member does not need it for its last connections. Then it goes unless it
/// is wanted.
pub(super) fn is_surplus(service: &Service, members: &[Member]) -> bool {
    let metadata = &service.metadata;
    let labels = metadata.labels.as_ref();
    let Some(member) = labels.and_then(|labels| labels.get(names::LABEL_MEMBER)) else {
        return false;
    };
    if metadata.name.as_ref() == Some(member) || !is_stamped(metadata) {
        return false;
    }
    let member = members.iter().find(|known| known.name == *member);
    member.is_none_or(|member| member.wanted || member.is_stopped())
}
