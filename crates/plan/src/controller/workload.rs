//! The members' StatefulSet, as it should be.
//!
//! Each pod has its own files by its name, out of a ConfigMap and a Secret that
//! all share (`subPathExpr`); what it mounts that way it never sees change, so a
//! change comes with a new pod. The sidecar is `ziti-agent controller`.

use super::backup::{BACKUP_PORT, gives_copies};
use super::config::{CONFIG_FILE, DATA_DIR, PKI_DIR, files};
use super::render::{labels, metadata, name_of, selector};
use super::{Facts, PORT, web};
use crate::set::applied::{hash, stamp};
use crate::set::pod::{mount, restricted, unprivileged};
use crate::set::pod_options::dress_with;
use crate::set::sidecar::{
    AGENT, SIDECAR_CONTAINER, SIDECAR_PORT, http, probe, resources, sidecar_port,
};
use api::{ZitiController, names};
use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec,
    StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource,
    ExecAction, HTTPGetAction, Lifecycle, LifecycleHandler, ObjectFieldSelector,
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PodSpec, PodTemplateSpec, SecretVolumeSource,
    Volume, VolumeMount, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

/// Name of the controller's container.
pub(super) const CONTAINER: &str = "controller";
/// Stands for an image that the operator chose.
const OPERATORS_CHOICE: &str = "chosen-by-the-operator";
/// The controller's temporary directory as the sidecar sees it: its agent socket
/// is there.
const CONTROLLER_TMP: &str = "/run/controller";
/// Where the sidecar learns whether its member may make the network.
const BOOTSTRAP_DIR: &str = "/etc/ziti/bootstrap";
/// How long a leader has to hand over, in seconds.
const HANDOVER: i64 = 15;
/// What the end of a pod takes besides, in seconds.
const ENDING: i64 = 15;
/// The member's name, in arguments and paths that the kubelet expands.
const MEMBER: &str = "$(ZITI_MEMBER)";

/// The workload with that many pods.
pub(super) fn stateful_set(facts: &Facts, config_map: &str, replicas: i32) -> StatefulSet {
    let object = facts.object;
    let name = names::controller_workload(name_of(object));
    let wanted = template(
        facts,
        config_map,
        OPERATORS_CHOICE,
        object.spec.image.as_deref().unwrap_or(OPERATORS_CHOICE),
    );
    let template_hash = hash(&wanted);
    let (agent, controller) = images(facts, &template_hash);
    let mut metadata = metadata(object, &name);
    let mark = (names::ANNOTATION_TEMPLATE.to_owned(), template_hash);
    metadata.annotations = Some(BTreeMap::from([mark]));
    stamp(&StatefulSet {
        metadata,
        spec: Some(StatefulSetSpec {
            replicas: Some(replicas),
            service_name: Some(name),
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
                match_labels: Some(selector(object)),
                ..LabelSelector::default()
            },
            template: template(facts, config_map, &agent, &controller),
            volume_claim_templates: Some(vec![claim(object)]),
            ..StatefulSetSpec::default()
        }),
        status: None,
    })
}

/// The images of agent and controller. The agent's is the one that runs, unless the
/// template changes anyway; a controller's changes only where the user says so,
/// since all members must have one version, and none goes back.
fn images(facts: &Facts, template_hash: &str) -> (String, String) {
    let settings = facts.settings;
    let running = facts.stateful_set.as_ref().filter(|set| {
        let annotations = set.metadata.annotations.as_ref();
        let hash = annotations.and_then(|have| have.get(names::ANNOTATION_TEMPLATE));
        hash.map(String::as_str) == Some(template_hash)
    });
    let spec = running.and_then(|set| set.spec.as_ref()?.template.spec.as_ref());
    let image = |containers: Option<&Vec<Container>>, name: &str| {
        let mut containers = containers.into_iter().flatten();
        let found = containers.find(|container| container.name == name)?;
        found.image.clone()
    };
    let agent = image(
        spec.and_then(|spec| spec.init_containers.as_ref()),
        SIDECAR_CONTAINER,
    );
    let any = facts.stateful_set.as_ref();
    let any = any.and_then(|set| set.spec.as_ref()?.template.spec.as_ref());
    let controller = image(any.map(|spec| &spec.containers), CONTAINER);
    (
        agent.unwrap_or_else(|| settings.agent_image.clone()),
        facts
            .object
            .spec
            .image
            .clone()
            .or(controller)
            .unwrap_or_else(|| settings.controller_image.clone()),
    )
}

fn template(facts: &Facts, config_map: &str, agent: &str, image: &str) -> PodTemplateSpec {
    let object = facts.object;
    let restart = object.spec.restart_at.as_ref();
    let restart = restart.map(|at| (names::ANNOTATION_RESTART.to_owned(), at.0.to_string()));
    let web = web::digest(facts).map(|digest| (names::ANNOTATION_WEB.to_owned(), digest));
    let annotations: BTreeMap<_, _> = restart.into_iter().chain(web).collect();
    let mut template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels(name_of(object))),
            annotations: (!annotations.is_empty()).then_some(annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            init_containers: Some(vec![sidecar(object, agent)]),
            containers: vec![controller(object, image)],
            termination_grace_period_seconds: Some(HANDOVER + ENDING),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            security_context: Some(unprivileged()),
            volumes: Some(volumes(object, config_map)),
            ..PodSpec::default()
        }),
    };
    let members = (names::LABEL_CONTROLLER, name_of(object));
    dress_with(&object.spec.pod, members, CONTAINER, &mut template);
    template
}

fn volumes(object: &ZitiController, config_map: &str) -> Vec<Volume> {
    let volume = |name: &str| Volume {
        name: name.to_owned(),
        ..Volume::default()
    };
    let secret = |name: String, optional: bool| SecretVolumeSource {
        secret_name: Some(name),
        default_mode: Some(0o440),
        optional: optional.then_some(true),
        ..SecretVolumeSource::default()
    };
    let name = name_of(object);
    let mut volumes = vec![
        Volume {
            config_map: Some(ConfigMapVolumeSource {
                name: config_map.to_owned(),
                ..ConfigMapVolumeSource::default()
            }),
            ..volume("config")
        },
        Volume {
            secret: Some(secret(names::controller_pki_secret(name), false)),
            ..volume("pki")
        },
        Volume {
            secret: Some(secret(names::controller_bootstrap_secret(name), true)),
            ..volume("bootstrap")
        },
        Volume {
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..volume("tmp")
        },
    ];
    volumes.extend(web::volumes(object));
    volumes
}

fn environment() -> Vec<EnvVar> {
    vec![EnvVar {
        name: "ZITI_MEMBER".to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: "metadata.name".to_owned(),
                api_version: None,
            }),
            ..EnvVarSource::default()
        }),
        value: None,
    }]
}

/// One file of those that all members share, or of those that have the member's
/// name.
fn file(volume: &str, key: String, path: &str) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        sub_path_expr: Some(key),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}

/// What the network is trusted by, and these files of the member's own.
fn pki_files(own: &[&str]) -> Vec<VolumeMount> {
    let own = own.iter().map(|name| (format!("{MEMBER}.{name}"), *name));
    std::iter::once((files::CA.to_owned(), files::CA))
        .chain(own)
        .map(|(key, name)| file("pki", key, &format!("{PKI_DIR}/{name}")))
        .collect()
}

fn controller(object: &ZitiController, image: &str) -> Container {
    let mut mounts = vec![file("config", format!("{MEMBER}.yaml"), CONFIG_FILE)];
    mounts.extend(pki_files(&files::OF_MEMBER));
    mounts.push(data());
    mounts.push(mount("tmp", "/tmp"));
    mounts.extend(web::mounts(object));
    let api = ContainerPort {
        name: Some("ziti".to_owned()),
        container_port: i32::from(PORT),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    Container {
        name: CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        command: Some(
            ["ziti", "controller", "run", CONFIG_FILE]
                .map(str::to_owned)
                .to_vec(),
        ),
        env: Some(environment()),
        ports: Some([api].into_iter().chain(web::port(object)).collect()),
        resources: object.spec.resources.clone(),
        security_context: Some(restricted()),
        // That it has a leader is the sidecar's to tell, and may be so before
        // its APIs are open.
        readiness_probe: Some(probe(HTTPGetAction {
            path: Some("/edge/client/v1/version".to_owned()),
            port: IntOrString::Int(i32::from(PORT)),
            scheme: Some("HTTPS".to_owned()),
            ..HTTPGetAction::default()
        })),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler {
                http_get: Some(http("/drained")),
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
        }),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

fn sidecar(object: &ZitiController, image: &str) -> Container {
    let mut args = vec![
        "controller".to_owned(),
        "--member".to_owned(),
        MEMBER.to_owned(),
        "--controller-tmp".to_owned(),
        CONTROLLER_TMP.to_owned(),
        "--bootstrap".to_owned(),
        BOOTSTRAP_DIR.to_owned(),
        "--data".to_owned(),
        DATA_DIR.to_owned(),
        "--port".to_owned(),
        SIDECAR_PORT.to_string(),
        "--drain-seconds".to_owned(),
        HANDOVER.to_string(),
    ];
    let mut ports = vec![sidecar_port()];
    let mut mounts = vec![
        mount("tmp", CONTROLLER_TMP),
        data(),
        VolumeMount {
            read_only: Some(true),
            ..mount("bootstrap", BOOTSTRAP_DIR)
        },
    ];
    if gives_copies(object) {
        // Whoever makes backups asks here; whether or not there are any, so that to
        // begin with them restarts nobody.
        args.extend([
            "--backup-port".to_owned(),
            BACKUP_PORT.to_string(),
            "--certificate".to_owned(),
            format!("{PKI_DIR}/{}", files::CERT),
            "--key".to_owned(),
            format!("{PKI_DIR}/{}", files::KEY),
            "--trust".to_owned(),
            format!("{PKI_DIR}/{}", files::CA),
        ]);
        ports.push(backup_port());
        mounts.extend(pki_files(&[files::CERT, files::KEY]));
    }
    let hook = [AGENT, "drain", "--controller-tmp", CONTROLLER_TMP].map(str::to_owned);
    Container {
        name: SIDECAR_CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        command: Some(vec![AGENT.to_owned()]),
        args: Some(args),
        env: Some(environment()),
        restart_policy: Some("Always".to_owned()),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler {
                exec: Some(ExecAction {
                    command: Some(hook.to_vec()),
                }),
                ..LifecycleHandler::default()
            }),
            ..Lifecycle::default()
        }),
        ports: Some(ports),
        resources: Some(resources()),
        security_context: Some(restricted()),
        // It sees a leader and is connected to it: neither the port nor any of
        // Ziti's own answers tells that.
        readiness_probe: Some(probe(http("/ready"))),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

fn backup_port() -> ContainerPort {
    ContainerPort {
        name: Some("backup".to_owned()),
        container_port: i32::from(BACKUP_PORT),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

/// The database, below the top of its volume: what a file system keeps there is
/// not Ziti's.
fn data() -> VolumeMount {
    VolumeMount {
        sub_path: Some("data".to_owned()),
        ..mount("data", DATA_DIR)
    }
}

pub(super) fn claim(object: &ZitiController) -> PersistentVolumeClaim {
    let storage = &object.spec.storage;
    let size = ("storage".to_owned(), Quantity(storage.size.clone()));
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some("data".to_owned()),
            labels: Some(labels(name_of(object))),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: storage.storage_class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([size])),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}
