//! The Services by which members are reached, as they should be.

use super::applied::stamp;
use super::member::pod_name;
use super::render::metadata;
use api::ZitiRouter;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

/// The Service by which one member is reached.
pub fn service(object: &ZitiRouter, member: &str) -> Service {
    let port = |name: &str, number: u16| ServicePort {
        name: Some(name.to_owned()),
        port: i32::from(number),
        target_port: Some(IntOrString::Int(i32::from(number))),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    };
    stamp(&Service {
        metadata: metadata(object, member, Some(member)),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            selector: Some(BTreeMap::from([(
                "statefulset.kubernetes.io/pod-name".to_owned(),
                pod_name(object.spec.effective_topology(), member),
            )])),
            ports: Some(vec![
                port("edge", object.spec.edge.port),
                port("link", object.spec.link.port),
            ]),
            // Other routers dial as soon as the controller names this one,
            // which is before its pod is Ready.
            publish_not_ready_addresses: Some(true),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    })
}
