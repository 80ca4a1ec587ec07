//! The workload of a set, as it should be: replicas are decided elsewhere, and
//! the images are those that run unless the template changes anyway.

use super::applied::{ANNOTATION_GENERATION, hash, stamp};
use super::member::{ENROLL_CONTAINER, Member, ROUTER_CONTAINER};
use super::pod::{self, pod_template};
use super::render::{metadata, on_node, set_name};
use super::storage;
use super::{Facts, Network};
use crate::version;
use api::{ZitiRouter, names};
use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec,
    StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use std::collections::BTreeMap;

/// Stands for an image that the operator chose, so that another default is no
/// change of the template.
const OPERATORS_CHOICE: &str = "chosen-by-the-operator";

/// The StatefulSet of all members. `replicas` is decided elsewhere.
pub fn stateful_set(facts: &Facts, config_map: &str, replicas: i32) -> StatefulSet {
    build(facts, config_map, replicas, None)
}

/// The StatefulSet of one member, where each has its own.
pub fn of_member(facts: &Facts, config_map: &str, member: &Member, replicas: i32) -> StatefulSet {
    build(facts, config_map, replicas, Some(member))
}

fn build(facts: &Facts, config_map: &str, replicas: i32, own: Option<&Member>) -> StatefulSet {
    let object = facts.object;
    let wanted = pod_template(
        facts,
        config_map,
        OPERATORS_CHOICE,
        object.spec.image.as_deref().unwrap_or(OPERATORS_CHOICE),
        // The same for all members, whatever differs by member.
        None,
    );
    let template_hash = hash(&wanted);
    let member = own.map(|member| member.name.as_str());
    let name = member.unwrap_or(set_name(object));
    let (agent_image, router_image) = images(facts, name, &template_hash);
    let mut metadata = metadata(object, name, member);
    let node = own.and_then(|member| member.node.as_deref());
    let mut annotations = node.map(on_node).unwrap_or_default();
    annotations.insert(names::ANNOTATION_TEMPLATE.to_owned(), template_hash);
    metadata.annotations = Some(annotations);
    let mut selector = BTreeMap::from([(names::LABEL_SET.to_owned(), set_name(object).to_owned())]);
    selector.extend(member.map(|member| (names::LABEL_MEMBER.to_owned(), member.to_owned())));
    stamp(&StatefulSet {
        metadata,
        spec: Some(StatefulSetSpec {
            replicas: Some(replicas),
            service_name: Some(name.to_owned()),
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
            template: pod_template(facts, config_map, &agent_image, &router_image, own),
            volume_claim_templates: storage::claim_templates(object, member),
            ..StatefulSetSpec::default()
        }),
        status: None,
    })
}

/// The StatefulSet that is there with another number of pods: its template
/// cannot be said yet.
pub(super) fn resized(actual: &StatefulSet, replicas: i32) -> StatefulSet {
    let metadata = &actual.metadata;
    let mut spec = actual.spec.clone().unwrap_or_default();
    spec.replicas = Some(replicas);
    StatefulSet {
        metadata: ObjectMeta {
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            labels: metadata.labels.clone(),
            annotations: metadata.annotations.clone(),
            owner_references: metadata.owner_references.clone(),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
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
/// anyway. An upgrade of the operator is no reason to restart a router; and a
/// member that comes gets what its siblings have.
fn images(facts: &Facts, name: &str, template_hash: &str) -> (String, String) {
    let settings = facts.settings;
    let alike = facts.stateful_sets.iter().filter(|set| {
        let annotations = set.metadata.annotations.as_ref();
        annotations
            .and_then(|annotations| annotations.get(names::ANNOTATION_TEMPLATE))
            .map(String::as_str)
            == Some(template_hash)
    });
    let order = |set: &&StatefulSet| {
        let of = set.metadata.name.clone();
        (of.as_deref() != Some(name), of)
    };
    let running = alike.min_by_key(order);
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
    let given = facts.object.spec.image.clone();
    (
        agent.unwrap_or_else(|| settings.agent_image.clone()),
        given.or(router).unwrap_or_else(|| wanted_image(facts)),
    )
}

/// The image of routers that a changed template gets: the one that is given, else the
/// operator's choice, else, where that is too new for the network, the one that runs.
pub(super) fn wanted_image(facts: &Facts) -> String {
    let given = facts.object.spec.image.clone();
    let choice = &facts.settings.router_image;
    let too_new = match &facts.network {
        Network::Found {
            version: Some(network),
            ..
        } => is_too_new(choice, network),
        _ => false,
    };
    let running = || running_images(facts).next().filter(|_| too_new);
    given.or_else(running).unwrap_or_else(|| choice.clone())
}

/// The images of routers that the set's workloads have.
pub(super) fn running_images(facts: &Facts) -> impl Iterator<Item = String> {
    facts.stateful_sets.iter().filter_map(|set| {
        let spec = set.spec.as_ref()?.template.spec.as_ref()?;
        let mut containers = spec.containers.iter();
        let router = containers.find(|container| container.name == ROUTER_CONTAINER)?;
        router.image.clone()
    })
}

/// Whether an image is of a newer major version than a network. Builds that have no
/// version say 0.
pub(super) fn is_too_new(image: &str, network: &str) -> bool {
    let versions = version::of_image(image).zip(version::of(network));
    versions.is_some_and(|(image, network)| network.0 > 0 && image.0 > network.0)
}

/// The names of the ConfigMaps that the pods of a StatefulSet mount.
pub(super) fn mounted_config_maps(set: &StatefulSet) -> impl Iterator<Item = &str> {
    let template = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    template.into_iter().flat_map(pod::mounted_config_maps)
}
