//! What a user says of the pods (`spec.pod`), put into the template, and what of
//! it cannot be.

use super::Facts;
use super::member::ROUTER_CONTAINER;
use super::render::set_name;
use crate::edge_router::Problem;
use api::router::{
    IdentityStorage, ImagePullPolicy, PodOptions, Topology, TunnelMode, ZitiRouterSpec,
};
use api::{ZitiRouter, names, reasons};
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, EnvVar, LocalObjectReference, PodDNSConfig, PodSpec,
    PodTemplateSpec, TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use std::collections::{BTreeMap, BTreeSet};

/// Volumes that a user adds are named so, and by that never like ours.
const EXTRA: &str = "extra-";

/// Why the options cannot be as they are written, if they cannot.
pub(crate) fn fault(options: &PodOptions) -> Option<Problem> {
    let dollar = |value: &&String| value.contains('$');
    if let Some(value) = options.env.values().find(dollar) {
        let message = format!(
            "spec.pod.env holds {value:?}: what follows a $ may be replaced on the way to the program. Write the value itself"
        );
        return Some(Problem::new(reasons::DOLLAR_IN_STRING, message));
    }
    let mut paths = BTreeSet::new();
    let mut volumes = options.extra_volumes.iter();
    let twice = volumes.find(|volume| !paths.insert(volume.mount_path.trim_end_matches('/')))?;
    let message = format!(
        "spec.pod.extraVolumes mounts two volumes at {}: give each a path of its own",
        twice.mount_path
    );
    Some(Problem::new(reasons::INVALID_SPEC, message))
}

/// Why identities cannot be kept where they are wanted, if they cannot.
pub(super) fn storage_fault(facts: &Facts) -> Option<Problem> {
    let spec = &facts.object.spec;
    // A set that runs so, from before this was refused, cannot be changed.
    if !facts.stateful_sets.is_empty() {
        return None;
    }
    let on_node = matches!(spec.identity_storage, IdentityStorage::HostPath(_));
    if on_node && spec.effective_topology() != Topology::PerNode {
        let message = "spec.identityStorage.hostPath is for topology PerNode, whose members stay on their nodes: elsewhere a member that \
            moves would leave its key behind and come back to one that is void. Use persistentVolumeClaim or ephemeral";
        return Some(Problem::new(reasons::INVALID_SPEC, message));
    }
    None
}

/// Why the pods need a namespace of Pod Security level `privileged`, if they do.
pub(super) fn privileged(spec: &ZitiRouterSpec) -> Option<&'static str> {
    if spec.tunnel.mode == TunnelMode::Tproxy {
        return Some("mode tproxy needs NET_ADMIN");
    }
    matches!(spec.identity_storage, IdentityStorage::HostPath(_))
        .then_some("identityStorage.hostPath is a directory of the node")
}

/// Put the options into a template of a set that is complete without them.
pub(super) fn dress(object: &ZitiRouter, template: &mut PodTemplateSpec) {
    let members = (names::LABEL_SET, set_name(object));
    dress_with(&object.spec.pod, members, ROUTER_CONTAINER, template);
}

/// Put the options into a template: pods with the label `members` spread over
/// the nodes, and the container `main` gets what is for the program itself.
pub(crate) fn dress_with(
    options: &PodOptions,
    members: (&str, &str),
    main: &str,
    template: &mut PodTemplateSpec,
) {
    let metadata = template.metadata.get_or_insert_default();
    mark(options, metadata);
    let Some(spec) = &mut template.spec else {
        return;
    };
    schedule(options, members, spec);
    groups(options, spec);
    images(options, spec);
    let routers = spec.containers.iter_mut();
    for router in routers.filter(|container| container.name == main) {
        equip(options, router);
    }
    let volumes = spec.volumes.get_or_insert_default();
    volumes.extend(options.extra_volumes.iter().map(|extra| Volume {
        name: format!("{EXTRA}{}", extra.name),
        config_map: Some(ConfigMapVolumeSource {
            name: extra.config_map.name.clone(),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    }));
    if !options.host_aliases.is_empty() {
        spec.host_aliases = Some(options.host_aliases.clone());
    }
    if let Some(more) = &options.dns_config {
        let mut config = spec.dns_config.take().unwrap_or_default();
        add_dns(&mut config, more);
        spec.dns_config = Some(config);
    }
}

/// Labels and annotations. Of two labels with one key ours stays: objects select
/// pods by it.
fn mark(options: &PodOptions, metadata: &mut ObjectMeta) {
    let labels = metadata.labels.get_or_insert_default();
    for (key, value) in &options.labels {
        labels.entry(key.clone()).or_insert_with(|| value.clone());
    }
    if !options.annotations.is_empty() {
        let annotations = metadata.annotations.get_or_insert_default();
        for (key, value) in &options.annotations {
            let entry = annotations.entry(key.clone());
            entry.or_insert_with(|| value.clone());
        }
    }
}

/// On which nodes, beside whom, and how important.
fn schedule(options: &PodOptions, members: (&str, &str), spec: &mut PodSpec) {
    if !options.node_selector.is_empty() {
        spec.node_selector = Some(options.node_selector.clone());
    }
    if !options.tolerations.is_empty() {
        spec.tolerations = Some(options.tolerations.clone());
    }
    if let Some(affinity) = &options.affinity {
        spec.affinity = Some(affinity.clone());
    }
    // The same for one member as for many: to scale a set is no reason to
    // restart those that run.
    spec.topology_spread_constraints = match &options.topology_spread_constraints {
        Some(own) if own.is_empty() => None,
        Some(own) => Some(own.clone()),
        None => Some(vec![over_nodes(members)]),
    };
    spec.priority_class_name
        .clone_from(&options.priority_class_name);
    spec.runtime_class_name
        .clone_from(&options.runtime_class_name);
}

/// One more member on a node than on another is enough, and more is better than
/// a member that waits.
fn over_nodes((label, value): (&str, &str)) -> TopologySpreadConstraint {
    let members = BTreeMap::from([(label.to_owned(), value.to_owned())]);
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: "kubernetes.io/hostname".to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: Some(LabelSelector {
            match_labels: Some(members),
            ..LabelSelector::default()
        }),
        ..TopologySpreadConstraint::default()
    }
}

fn groups(options: &PodOptions, spec: &mut PodSpec) {
    let security = spec.security_context.get_or_insert_default();
    if let Some(group) = options.security_context.fs_group {
        security.fs_group = Some(group);
    }
    let more = &options.security_context.supplemental_groups;
    if !more.is_empty() {
        security.supplemental_groups = Some(more.clone());
    }
}

fn images(options: &PodOptions, spec: &mut PodSpec) {
    if !options.image_pull_secrets.is_empty() {
        let secrets = options.image_pull_secrets.iter();
        let named = |name: &String| LocalObjectReference { name: name.clone() };
        spec.image_pull_secrets = Some(secrets.map(|secret| named(&secret.name)).collect());
    }
    let Some(policy) = options.image_pull_policy else {
        return;
    };
    let policy = match policy {
        ImagePullPolicy::Always => "Always",
        ImagePullPolicy::IfNotPresent => "IfNotPresent",
        ImagePullPolicy::Never => "Never",
    };
    let init = spec.init_containers.iter_mut().flatten();
    for container in init.chain(&mut spec.containers) {
        container.image_pull_policy = Some(policy.to_owned());
    }
}

/// What only the router gets.
fn equip(options: &PodOptions, router: &mut Container) {
    let env = options.env.iter().map(|(name, value)| EnvVar {
        name: name.clone(),
        value: Some(value.clone()),
        value_from: None,
    });
    router.env.get_or_insert_default().extend(env);
    let mounts = options.extra_volumes.iter().map(|extra| VolumeMount {
        name: format!("{EXTRA}{}", extra.name),
        mount_path: extra.mount_path.clone(),
        read_only: Some(true),
        ..VolumeMount::default()
    });
    router.volume_mounts.get_or_insert_default().extend(mounts);
}

/// Behind what the pod has anyway: in mode `tproxy` the router must be asked
/// first.
fn add_dns(config: &mut PodDNSConfig, more: &PodDNSConfig) {
    fn add<T: Clone>(to: &mut Option<Vec<T>>, more: Option<&Vec<T>>) {
        if let Some(more) = more {
            to.get_or_insert_default().extend(more.iter().cloned());
        }
    }
    add(&mut config.nameservers, more.nameservers.as_ref());
    add(&mut config.searches, more.searches.as_ref());
    add(&mut config.options, more.options.as_ref());
}
