//! Where members keep their identities: the volume `identity` of their pods.

use super::member::{Member, labels};
use super::render::{namespace, set_name};
use api::router::{IdentityStorage, TunnelMode};
use api::{ZitiRouter, names};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, EmptyDirVolumeSource, EnvVar, HostPathVolumeSource,
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PodSpec, SecurityContext, Volume,
    VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

use super::config::IDENTITY_DIR;
use super::pod::{ROUTER_USER, environment, mount};
use super::reach::MEMBER_IN_ARGS;

/// Name of the volume.
pub(super) const VOLUME: &str = "identity";

/// Whether what a member keeps outlives its pod without a claim of its own.
pub(super) fn is_on_node(object: &ZitiRouter) -> bool {
    matches!(object.spec.identity_storage, IdentityStorage::HostPath(_))
}

/// The claims of each member.
pub(super) fn claim_templates(
    object: &ZitiRouter,
    member: Option<&str>,
) -> Option<Vec<PersistentVolumeClaim>> {
    let IdentityStorage::PersistentVolumeClaim(claim) = &object.spec.identity_storage else {
        return None;
    };
    let mut labels = labels(set_name(object));
    labels.extend(member.map(|member| (names::LABEL_MEMBER.to_owned(), member.to_owned())));
    let template = PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(VOLUME.to_owned()),
            labels: Some(labels),
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
    };
    Some(vec![template])
}

/// Give a pod the volume, where no claim is it.
pub(super) fn dress(
    object: &ZitiRouter,
    router_image: &str,
    own: Option<&Member>,
    spec: &mut PodSpec,
) {
    let volume = match &object.spec.identity_storage {
        IdentityStorage::PersistentVolumeClaim(_) => return,
        IdentityStorage::HostPath(storage) => Volume {
            name: VOLUME.to_owned(),
            host_path: Some(HostPathVolumeSource {
                path: storage.path.clone(),
                type_: Some("DirectoryOrCreate".to_owned()),
            }),
            ..Volume::default()
        },
        IdentityStorage::Ephemeral(storage) => Volume {
            name: VOLUME.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource {
                size_limit: storage.size_limit.clone().map(Quantity),
                medium: None,
            }),
            ..Volume::default()
        },
    };
    spec.volumes.get_or_insert_default().push(volume);
    if !is_on_node(object) {
        return;
    }
    // The kubelet makes the directory of the member, for root.
    let of_member = format!(
        "{}/{}/{MEMBER_IN_ARGS}",
        namespace(object),
        set_name(object)
    );
    let init = spec.init_containers.get_or_insert_default();
    if object.spec.tunnel.mode != TunnelMode::Tproxy {
        init.insert(0, owner(router_image, environment(object, own)));
    }
    let mounts = init
        .iter_mut()
        .chain(&mut spec.containers)
        .flat_map(|container| container.volume_mounts.iter_mut().flatten());
    for mount in mounts.filter(|mount| mount.name == VOLUME) {
        mount.sub_path_expr = Some(of_member.clone());
    }
}

/// The init container that hands a member's directory to the router's user:
/// `fsGroup` does not reach directories of the node. (In mode `tproxy` the
/// router is root itself.)
fn owner(image: &str, environment: Vec<EnvVar>) -> Container {
    let user = format!("{ROUTER_USER}:{ROUTER_USER}");
    Container {
        name: "own".to_owned(),
        image: Some(image.to_owned()),
        command: Some(["chown", &user, IDENTITY_DIR].map(str::to_owned).to_vec()),
        env: Some(environment),
        security_context: Some(SecurityContext {
            run_as_user: Some(0),
            run_as_non_root: Some(false),
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                add: Some(vec!["CHOWN".to_owned()]),
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![mount(VOLUME, IDENTITY_DIR)]),
        ..Container::default()
    }
}
