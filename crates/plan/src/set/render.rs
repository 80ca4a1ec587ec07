//! The objects of a set, as they should be. `pod` has the pods themselves.

use super::applied::{ANNOTATION_GENERATION, hash, stamp};
use super::config::{CONFIG_FILE, router_config};
use super::member::{ENROLL_CONTAINER, ROUTER_CONTAINER, labels};
use super::pod::pod_template;
use super::{Facts, Network, member_network_name};
use api::edge_router::{EdgeRouterSpec, Enrollment, ManagedEnrollment, ProvidedEnrollment};
use api::router::{IdentityStorage, TunnelMode};
use api::{EdgeRouter, SecretKeyRef, ZitiRouter, names};
use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec,
    StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, PersistentVolumeClaim, PersistentVolumeClaimSpec, Service, ServicePort,
    ServiceSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource;
use std::collections::BTreeMap;

/// Stands for an image that the operator chose, so that another default is no
/// change of the template.
const OPERATORS_CHOICE: &str = "chosen-by-the-operator";

pub(super) fn set_name(object: &ZitiRouter) -> &str {
    object.metadata.name.as_deref().unwrap_or_default()
}

pub(super) fn namespace(object: &ZitiRouter) -> &str {
    object.metadata.namespace.as_deref().unwrap_or_default()
}

/// The ZitiRouter as owner of everything that it makes.
pub fn owner(object: &ZitiRouter) -> OwnerReference {
    OwnerReference {
        api_version: ZitiRouter::api_version(&()).into_owned(),
        kind: ZitiRouter::kind(&()).into_owned(),
        name: set_name(object).to_owned(),
        uid: object.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Metadata of an object of the set; only our own labels, since children that
/// inherit a parent's tracking label are pruned by GitOps tools.
pub fn metadata(object: &ZitiRouter, name: &str, member: Option<&str>) -> ObjectMeta {
    let mut labels = labels(set_name(object));
    if let Some(member) = member {
        labels.insert(names::LABEL_MEMBER.to_owned(), member.to_owned());
    }
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: object.metadata.namespace.clone(),
        labels: Some(labels),
        owner_references: Some(vec![owner(object)]),
        ..ObjectMeta::default()
    }
}

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
                member.to_owned(),
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

/// The ConfigMap with the configuration. Its name carries a hash of its
/// content: a container that restarts by itself cannot pick up a change that
/// has not been rolled out to it.
pub fn config_map(object: &ZitiRouter) -> ConfigMap {
    let config = router_config(&object.spec, namespace(object));
    let text = serde_saphyr::to_string(&config).unwrap_or_default();
    let name = format!("{}-config-{}", set_name(object), &hash(&text)[..8]);
    ConfigMap {
        metadata: metadata(object, &name, None),
        data: Some(BTreeMap::from([(CONFIG_FILE.to_owned(), text)])),
        immutable: Some(true),
        ..ConfigMap::default()
    }
}

/// The EdgeRouter of one member, without finalizers and resource version.
pub fn edge_router(facts: &Facts, member: &str) -> EdgeRouter {
    let object = facts.object;
    let spec = &object.spec;
    let pattern = match &facts.network {
        Network::Found { name_pattern, .. } => name_pattern.as_deref(),
        Network::NotReferenced | Network::Missing(_) => None,
    };
    let enrollment = if spec.tokens.is_some() || spec.tokens_secret_ref.is_some() {
        let secret = spec
            .tokens_secret_ref
            .as_ref()
            .map(|reference| reference.name.clone());
        let name = secret.unwrap_or_else(|| names::provided_tokens_secret(set_name(object)));
        Enrollment::Provided(ProvidedEnrollment {
            secret_key_ref: SecretKeyRef {
                name,
                key: member.to_owned(),
            },
        })
    } else {
        Enrollment::Managed(ManagedEnrollment::default())
    };
    EdgeRouter {
        metadata: metadata(object, member, Some(member)),
        spec: EdgeRouterSpec {
            network_ref: spec.network_ref.clone(),
            name: member_network_name(object, pattern, &facts.settings.install_id, member),
            role_attributes: spec.role_attributes.clone(),
            tunneler_enabled: spec.tunnel.mode != TunnelMode::None,
            cost: spec.cost,
            no_traversal: spec.no_traversal,
            tags: BTreeMap::new(),
            enrollment,
            deletion_policy: spec.deletion_policy,
            adoption_policy: spec.adoption_policy,
            paused: spec.paused,
        },
        status: None,
    }
}

/// The StatefulSet of all members. `replicas` is decided elsewhere.
pub fn stateful_set(facts: &Facts, config_map: &str, replicas: i32) -> StatefulSet {
    let object = facts.object;
    let wanted = pod_template(
        facts,
        config_map,
        OPERATORS_CHOICE,
        object.spec.image.as_deref().unwrap_or(OPERATORS_CHOICE),
    );
    let template_hash = hash(&wanted);
    let (agent_image, router_image) = images(facts, &template_hash);
    let mut metadata = metadata(object, set_name(object), None);
    metadata.annotations = Some(BTreeMap::from([(
        names::ANNOTATION_TEMPLATE.to_owned(),
        template_hash,
    )]));
    let selector = BTreeMap::from([(names::LABEL_SET.to_owned(), set_name(object).to_owned())]);
    stamp(&StatefulSet {
        metadata,
        spec: Some(StatefulSetSpec {
            replicas: Some(replicas),
            service_name: Some(set_name(object).to_owned()),
            // Members do not wait for each other; the operator decides who may
            // start, who is replaced and what becomes of volumes.
            pod_management_policy: Some("Parallel".to_owned()),
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".to_owned()),
                rolling_update: None,
            }),
            persistent_volume_claim_retention_policy: Some(
                StatefulSetPersistentVolumeClaimRetentionPolicy {
                    when_deleted: Some("Retain".to_owned()),
                    when_scaled: Some("Retain".to_owned()),
                },
            ),
            selector: LabelSelector {
                match_labels: Some(selector),
                ..LabelSelector::default()
            },
            template: pod_template(facts, config_map, &agent_image, &router_image),
            volume_claim_templates: Some(vec![claim_template(object)]),
            ..StatefulSetSpec::default()
        }),
        status: None,
    })
}

/// The StatefulSet, bound to the one that was observed and marked with the
/// version of the ZitiRouter that it was made for: somebody who decided on older
/// facts cannot write it.
pub(super) fn bound(
    mut wanted: StatefulSet,
    object: &ZitiRouter,
    actual: Option<&StatefulSet>,
) -> StatefulSet {
    let generation = object.metadata.generation.unwrap_or_default();
    let annotations = wanted.metadata.annotations.get_or_insert_default();
    annotations.insert(ANNOTATION_GENERATION.to_owned(), generation.to_string());
    if let Some(actual) = actual {
        wanted.metadata.uid.clone_from(&actual.metadata.uid);
        let version = &actual.metadata.resource_version;
        wanted.metadata.resource_version.clone_from(version);
    }
    wanted
}

/// The images of agent and router: those that run, unless the template changes
/// anyway. An upgrade of the operator is no reason to restart a router.
fn images(facts: &Facts, template_hash: &str) -> (String, String) {
    let settings = facts.settings;
    let wanted_router = facts.object.spec.image.clone();
    let running = facts.stateful_set.as_ref().filter(|set| {
        let annotations = set.metadata.annotations.as_ref();
        annotations
            .and_then(|annotations| annotations.get(names::ANNOTATION_TEMPLATE))
            .map(String::as_str)
            == Some(template_hash)
    });
    let template = running.and_then(|set| set.spec.as_ref()?.template.spec.as_ref());
    let image = |containers: Option<&Vec<Container>>, name: &str| {
        containers
            .into_iter()
            .flatten()
            .find(|container| container.name == name)
            .and_then(|container| container.image.clone())
    };
    let agent = image(
        template.and_then(|spec| spec.init_containers.as_ref()),
        ENROLL_CONTAINER,
    );
    let router = image(template.map(|spec| &spec.containers), ROUTER_CONTAINER);
    (
        agent.unwrap_or_else(|| settings.agent_image.clone()),
        wanted_router
            .or(router)
            .unwrap_or_else(|| settings.router_image.clone()),
    )
}

fn claim_template(object: &ZitiRouter) -> PersistentVolumeClaim {
    let IdentityStorage::PersistentVolumeClaim(claim) = &object.spec.identity_storage;
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some("identity".to_owned()),
            labels: Some(labels(set_name(object))),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: claim.storage_class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([(
                    "storage".to_owned(),
                    Quantity(claim.size.clone()),
                )])),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}
