//! The objects of a ZitiController, as they should be, but for its workload.

use super::backup::{BACKUP_PORT, gives_copies};
use super::config::{all_files, client_api, node_port};
use super::{Facts, PORT, RootFacts};
use crate::set::applied::{hash, stamp};
use crate::set::extra::dynamic;
use crate::set::route::{Backend, passed_through};
use api::router::{ExposeType, TrafficPolicy};
use api::{ZitiController, names};
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::DynamicObject;
use std::collections::BTreeMap;

/// Name of the port in Services.
const PORT_NAME: &str = "ziti";

/// The name of the object.
pub(super) fn name_of(object: &ZitiController) -> &str {
    object.metadata.name.as_deref().unwrap_or_default()
}

/// The labels that every object of a ZitiController carries.
pub fn labels(controller: &str) -> BTreeMap<String, String> {
    [
        (names::LABEL_NAME, "ziti-controller"),
        (names::LABEL_INSTANCE, controller),
        (names::LABEL_COMPONENT, "controller"),
        (names::LABEL_MANAGED_BY, names::MANAGER),
        (names::LABEL_CONTROLLER, controller),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

/// By what its pods are found.
pub(super) fn selector(object: &ZitiController) -> BTreeMap<String, String> {
    BTreeMap::from([(
        names::LABEL_CONTROLLER.to_owned(),
        name_of(object).to_owned(),
    )])
}

/// Metadata of an object of that name. Nothing has an owner reference: a foreground
/// deletion would take the members away while routers use their network, and what
/// makes the network may outlive its ZitiController. Objects are found by label or
/// name, and taken away by the plan.
pub fn metadata(object: &ZitiController, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: object.metadata.namespace.clone(),
        labels: Some(labels(name_of(object))),
        ..ObjectMeta::default()
    }
}

/// Every Service: one for all members that are ready, one for each member, and
/// those that expose members.
pub(super) fn services(object: &ZitiController) -> Vec<Service> {
    let all = names::controller_workload(name_of(object));
    let mut services = vec![service(object, &all, selector(object), false)];
    for ordinal in 0..object.spec.replicas {
        let member = names::controller_member(name_of(object), ordinal);
        // Members look for each other, and the operator for them, before they
        // are ready.
        services.push(member_service(object, &member));
        services.extend(exposing(object, &member, ordinal));
    }
    services.iter().map(stamp).collect()
}

fn of_member(member: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(
        "statefulset.kubernetes.io/pod-name".to_owned(),
        member.to_owned(),
    )])
}

fn service(
    object: &ZitiController,
    name: &str,
    selector: BTreeMap<String, String>,
    not_ready: bool,
) -> Service {
    Service {
        metadata: metadata(object, name),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            selector: Some(selector),
            ports: Some(vec![port(PORT)]),
            publish_not_ready_addresses: not_ready.then_some(true),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// One member, with the port at which backups ask it.
fn member_service(object: &ZitiController, member: &str) -> Service {
    let mut service = service(object, member, of_member(member), true);
    let backup = ServicePort {
        name: Some("backup".to_owned()),
        target_port: Some(IntOrString::Int(i32::from(BACKUP_PORT))),
        ..port(BACKUP_PORT)
    };
    if let Some(spec) = &mut service.spec
        && gives_copies(object)
    {
        spec.ports.get_or_insert_default().push(backup);
    }
    service
}

fn port(port: u16) -> ServicePort {
    ServicePort {
        name: Some(PORT_NAME.to_owned()),
        port: i32::from(port),
        target_port: Some(IntOrString::Int(i32::from(PORT))),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}

fn exposing(object: &ZitiController, member: &str, ordinal: i32) -> Option<Service> {
    let expose = object.spec.expose.as_ref()?;
    let advertised = client_api(object, ordinal);
    let spec = match expose.type_ {
        ExposeType::NodePort => {
            let given = node_port(object, expose, ordinal).map(i32::from);
            ServiceSpec {
                ports: Some(vec![ServicePort {
                    node_port: given,
                    ..port(PORT)
                }]),
                ..ServiceSpec::default()
            }
        }
        ExposeType::LoadBalancer => ServiceSpec {
            ports: Some(vec![port(expose.port.unwrap_or(advertised.port))]),
            load_balancer_class: expose.load_balancer_class.clone(),
            load_balancer_source_ranges: (!expose.source_ranges.is_empty())
                .then(|| expose.source_ranges.clone()),
            ..ServiceSpec::default()
        },
        _ => return None,
    };
    let mut metadata = metadata(object, &format!("{member}-public"));
    metadata.annotations = (!expose.annotations.is_empty()).then(|| expose.annotations.clone());
    let policy = expose.external_traffic_policy.map(|policy| match policy {
        TrafficPolicy::Cluster => "Cluster".to_owned(),
        TrafficPolicy::Local => "Local".to_owned(),
    });
    Some(Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some(expose.type_name().to_owned()),
            selector: Some(of_member(member)),
            external_traffic_policy: policy,
            publish_not_ready_addresses: Some(true),
            ..spec
        }),
        ..Service::default()
    })
}

/// Ingresses, TLSRoutes and the PodDisruptionBudget.
pub(super) fn extras(object: &ZitiController) -> Vec<DynamicObject> {
    let mut extras: Vec<DynamicObject> = budget(object).iter().filter_map(dynamic).collect();
    let Some(expose) = &object.spec.expose else {
        return extras;
    };
    for ordinal in 0..object.spec.replicas {
        let member = names::controller_member(name_of(object), ordinal);
        let host = client_api(object, ordinal).host;
        let metadata = metadata(object, &format!("{member}-public"));
        let to = Backend {
            service: &member,
            port_name: PORT_NAME,
            port: PORT,
        };
        extras.extend(passed_through(metadata, expose, &host, &to));
    }
    extras
}

/// One member may be missed at a time, where there is more than one. The only
/// one has no budget: a drain must end.
fn budget(object: &ZitiController) -> Option<PodDisruptionBudget> {
    let name = names::controller_workload(name_of(object));
    (object.spec.replicas > 1).then(|| PodDisruptionBudget {
        metadata: metadata(object, &name),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(LabelSelector {
                match_labels: Some(selector(object)),
                ..LabelSelector::default()
            }),
            // Unlike a router, a member that is not ready has a vote to lose.
            unhealthy_pod_eviction_policy: Some("IfHealthyBudget".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    })
}

/// The ConfigMap with the configurations of all members that there can be. Its
/// name carries a hash of its content, as that of a set's does.
pub(super) fn config_map(object: &ZitiController) -> ConfigMap {
    let files = all_files(object);
    let name = format!("{}{}", config_prefix(object), &hash(&files)[..8]);
    stamp(&ConfigMap {
        metadata: metadata(object, &name),
        data: Some(files),
        immutable: Some(true),
        ..ConfigMap::default()
    })
}

/// How the names of its configurations begin.
pub(super) fn config_prefix(object: &ZitiController) -> String {
    format!("{}-config-", names::controller_workload(name_of(object)))
}

/// The ConfigMap with what the network is trusted by.
pub(super) fn trust(facts: &Facts, root: &RootFacts) -> ConfigMap {
    let object = facts.object;
    let bundle = [("ca.crt".to_owned(), root.bundle.clone())];
    stamp(&ConfigMap {
        metadata: metadata(object, &names::controller_trust(name_of(object))),
        data: Some(BTreeMap::from(bundle)),
        ..ConfigMap::default()
    })
}
