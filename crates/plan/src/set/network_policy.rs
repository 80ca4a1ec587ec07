//! The NetworkPolicy of a set. A router in mode `proxy` listens on all of its
//! addresses, so whoever reaches the pod reaches the proxied service, as if he
//! had the router's rights on the Ziti network.

use super::pod::ports;
use super::render::{metadata, set_name};
use super::tunnel::{protocol, proxied};
use api::router::{ProxyService, ServiceType};
use api::{ZitiRouter, names};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

/// The policy of a set, where it has one.
pub fn policy(object: &ZitiRouter) -> Option<NetworkPolicy> {
    let options = &object.spec.network_policy;
    let offered = proxied(&object.spec.tunnel);
    if !options.enabled.unwrap_or(!offered.is_empty()) {
        return None;
    }
    // Probes come from the node, which every policy lets in.
    let open: Vec<NetworkPolicyPort> = ports(object)
        .into_iter()
        .filter(|port| {
            let is_offered =
                |offered: &ProxyService| i32::from(offered.port) == port.container_port;
            !offered.iter().any(is_offered)
        })
        .map(|port| {
            policy_port(
                port.container_port,
                port.protocol.as_deref().unwrap_or("TCP"),
            )
        })
        .collect();
    // A rule without ports is one for all of them.
    let listeners = (!open.is_empty()).then(|| NetworkPolicyIngressRule {
        from: options.listeners_from.clone(),
        ports: Some(open),
    });
    let services = offered.iter().map(|offered| NetworkPolicyIngressRule {
        from: who(object, offered),
        ports: Some(vec![policy_port(
            i32::from(offered.port),
            protocol(offered),
        )]),
    });
    let members = BTreeMap::from([(names::LABEL_SET.to_owned(), set_name(object).to_owned())]);
    Some(NetworkPolicy {
        metadata: metadata(object, set_name(object), None),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(members),
                ..LabelSelector::default()
            }),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(listeners.into_iter().chain(services).collect()),
            egress: None,
        }),
    })
}

/// Who may reach an offered port; `None` is everybody. Who asks for a node port
/// or a load balancer wants to be reached from outside.
fn who(object: &ZitiRouter, offered: &ProxyService) -> Option<Vec<NetworkPolicyPeer>> {
    let given = object.spec.network_policy.proxy_from.clone();
    let same_namespace = || NetworkPolicyPeer {
        pod_selector: Some(LabelSelector::default()),
        ..NetworkPolicyPeer::default()
    };
    let inside = offered.kubernetes_service.type_ == ServiceType::ClusterIP;
    given.or_else(|| inside.then(|| vec![same_namespace()]))
}

fn policy_port(port: i32, protocol: &str) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(port)),
        protocol: Some(protocol.to_owned()),
        end_port: None,
    }
}
