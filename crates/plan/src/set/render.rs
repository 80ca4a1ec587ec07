//! The objects of a set, as they should be: what they have in common, the
//! configuration and the EdgeRouters. `service`, `workload`, `pod` and `extra`
//! have the others.

use super::applied::hash;
use super::config::{CONFIG_FILE, shared_config};
use super::member::labels;
use super::{Facts, Network, member_network_name};
use api::edge_router::{EdgeRouterSpec, Enrollment, ManagedEnrollment, ProvidedEnrollment};
use api::router::TunnelMode;
use api::{EdgeRouter, SecretKeyRef, ZitiRouter, names};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use std::collections::BTreeMap;

pub(super) fn set_name(object: &ZitiRouter) -> &str {
    object.metadata.name.as_deref().unwrap_or_default()
}

/// The namespace of the set's workloads.
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

/// Says for which node an object is.
pub(super) fn on_node(node: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(names::ANNOTATION_NODE.to_owned(), node.to_owned())])
}

/// How the names of a set's ConfigMaps begin.
pub(super) fn config_prefix(object: &ZitiRouter) -> String {
    format!("{}-config-", set_name(object))
}

/// The ConfigMap with the configuration of all members. Its name carries a hash of its
/// content: a container that restarts by itself cannot pick up a change that
/// has not been rolled out to it.
pub fn config_map(object: &ZitiRouter) -> ConfigMap {
    let config = shared_config(object);
    let text = serde_saphyr::to_string(&config).unwrap_or_default();
    let name = format!("{}{}", config_prefix(object), &hash(&text)[..8]);
    ConfigMap {
        metadata: metadata(object, &name, None),
        data: Some(BTreeMap::from([(CONFIG_FILE.to_owned(), text)])),
        immutable: Some(true),
        ..ConfigMap::default()
    }
}

/// Metadata of the EdgeRouter of one member, which is where the ZitiRouter is.
pub(super) fn edge_router_metadata(facts: &Facts, member: &str, node: Option<&str>) -> ObjectMeta {
    let mut metadata = metadata(facts.object, member, Some(member));
    metadata.annotations = node.map(on_node);
    if let Some(home) = &facts.home {
        metadata.namespace = Some(home.clone());
    }
    if let Some(cluster) = facts.object.spec.cluster() {
        let labels = metadata.labels.get_or_insert_default();
        labels.insert(names::LABEL_CLUSTER.to_owned(), cluster.to_owned());
    }
    metadata
}

/// The EdgeRouter of one member, without finalizers and resource version.
pub fn edge_router(facts: &Facts, member: &str, node: Option<&str>) -> EdgeRouter {
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
    let home = facts.home.as_deref().unwrap_or(namespace(object));
    EdgeRouter {
        metadata: edge_router_metadata(facts, member, node),
        spec: EdgeRouterSpec {
            network_ref: spec.network_ref.clone(),
            name: member_network_name(home, pattern, &facts.settings.install_id, member),
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
