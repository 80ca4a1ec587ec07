//! The pods of a set, as they should be: an init container that enrolls, the
//! stock router, and the sidecar beside it (`sidecar`). Only `render` asks for them.

use super::binding::bind;
use super::config::{CONFIG_DIR, CONFIG_FILE, IDENTITY_DIR, TOKEN_FILE};
use super::member::{ENROLL_CONTAINER, Member, ROUTER_CONTAINER, labels};
use super::reach::{self, MEMBER_ENV, MEMBER_IN_ARGS, Spelling};
use super::render::set_name;
use super::sidecar::{AGENT, grace_period, readiness, sidecar_container, until_drained};
use super::{Facts, Network, per_member, pod_options, storage, tproxy, tunnel};
use api::router::ExposeType;
use api::{ZitiRouter, names};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, EnvVar,
    EnvVarSource, ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec,
    ResourceRequirements, SeccompProfile, SecretVolumeSource, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

/// User and group of the stock router image, which own the identity.
pub(crate) const ROUTER_USER: i64 = 2171;

/// The names of the ConfigMaps that a pod mounts.
pub(super) fn mounted_config_maps(spec: &PodSpec) -> impl Iterator<Item = &str> {
    let volumes = spec.volumes.iter().flatten();
    volumes.filter_map(|volume| Some(volume.config_map.as_ref()?.name.as_str()))
}

/// The template of every pod.
pub(super) fn pod_template(
    facts: &Facts,
    config_map: &str,
    agent_image: &str,
    router_image: &str,
    own: Option<&Member>,
) -> PodTemplateSpec {
    let object = facts.object;
    let set = set_name(object);
    let mut labels = labels(set);
    if let Some(member) = own {
        labels.insert(names::LABEL_MEMBER.to_owned(), member.name.clone());
    }
    let restart = object.spec.restart_at.as_ref();
    let restart = restart.map(|at| [(names::ANNOTATION_RESTART.to_owned(), at.0.to_string())]);
    let volume = |name: &str| Volume {
        name: name.to_owned(),
        ..Volume::default()
    };
    let mut template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels),
            annotations: restart.map(BTreeMap::from),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            init_containers: Some(vec![
                enroll_container(facts, agent_image, own),
                sidecar_container(object, agent_image),
            ]),
            containers: vec![router_container(object, router_image, own)],
            termination_grace_period_seconds: Some(grace_period(object)),
            // A router asks nothing of the Kubernetes API.
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            security_context: Some(unprivileged()),
            volumes: Some(vec![
                Volume {
                    config_map: Some(ConfigMapVolumeSource {
                        name: config_map.to_owned(),
                        ..ConfigMapVolumeSource::default()
                    }),
                    ..volume("config")
                },
                Volume {
                    secret: Some(SecretVolumeSource {
                        secret_name: Some(names::tokens_secret(set)),
                        default_mode: Some(0o440),
                        ..SecretVolumeSource::default()
                    }),
                    ..volume("tokens")
                },
                Volume {
                    empty_dir: Some(EmptyDirVolumeSource::default()),
                    ..volume("tmp")
                },
            ]),
            ..PodSpec::default()
        }),
    };
    if let Some(spec) = &mut template.spec {
        storage::dress(object, router_image, own, spec);
        let cluster_dns = facts.settings.cluster_dns.as_ref();
        tproxy::dress(object, cluster_dns, spec);
    }
    pod_options::dress(object, &mut template);
    if let Some(node) = own.and_then(|member| member.node.as_deref())
        && let Some(spec) = &mut template.spec
    {
        bind(spec, node);
    }
    template
}

/// What a member's texts expand: its name, which is that of its pod where all
/// share a template, and its node where that is advertised.
pub(super) fn environment(object: &ZitiRouter, own: Option<&Member>) -> Vec<EnvVar> {
    let of_pod = |name: &str, path: &str| EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: path.to_owned(),
                api_version: None,
            }),
            ..EnvVarSource::default()
        }),
        value: None,
    };
    let member = match own {
        None => of_pod(MEMBER_ENV, "metadata.name"),
        Some(member) => EnvVar {
            name: MEMBER_ENV.to_owned(),
            value: Some(member.name.clone()),
            value_from: None,
        },
    };
    let mut variables = vec![member];
    for (placeholder, name, path) in [
        ("{node}", "NODE_NAME", "spec.nodeName"),
        ("{hostIP}", "HOST_IP", "status.hostIP"),
    ] {
        if reach::uses(&object.spec, placeholder) {
            variables.push(of_pod(name, path));
        }
    }
    variables
}

/// A pod whose processes are the stock images' user, as restricted Pod Security
/// wants it.
pub(crate) fn unprivileged() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(ROUTER_USER),
        run_as_group: Some(ROUTER_USER),
        fs_group: Some(ROUTER_USER),
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        }),
        ..PodSecurityContext::default()
    }
}

pub(crate) fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            add: None,
        }),
        ..SecurityContext::default()
    }
}

pub(crate) fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    }
}

/// The init container that turns a token into an identity on the volume.
fn enroll_container(facts: &Facts, image: &str, own: Option<&Member>) -> Container {
    let object = facts.object;
    let mut args: Vec<String> = [
        "enroll",
        "--identity-dir",
        IDENTITY_DIR,
        "--token-file",
        TOKEN_FILE,
    ]
    .into_iter()
    .map(str::to_owned)
    .collect();
    let names = reach::shared_names(&object.spec, &Spelling::in_args(object));
    for name in names.dns {
        args.extend(["--dns".to_owned(), name]);
    }
    for address in names.ip {
        args.extend(["--ip".to_owned(), address]);
    }
    let differs = reach::differs_by_member(&object.spec);
    if differs {
        let key = per_member::names_key(MEMBER_IN_ARGS);
        args.extend(["--names-file".to_owned(), format!("{CONFIG_DIR}/{key}")]);
    }
    if let Network::Found {
        control_endpoints, ..
    } = &facts.network
    {
        for endpoint in control_endpoints {
            args.extend(["--endpoint".to_owned(), endpoint.clone()]);
        }
    }
    // Where the operator registers the routers it alone decides which identity
    // is right; where a person gives tokens, a token for another router than
    // the volume's is a mistake that must not cost a sound identity.
    let managed = object.spec.tokens.is_none() && object.spec.tokens_secret_ref.is_none();
    args.extend([
        "--on-mismatch".to_owned(),
        if managed { "replace" } else { "refuse" }.to_owned(),
    ]);
    let mut mounts = vec![
        mount("identity", IDENTITY_DIR),
        VolumeMount {
            // Each pod sees its own key and no other.
            sub_path_expr: Some(MEMBER_IN_ARGS.to_owned()),
            read_only: Some(true),
            ..mount("tokens", TOKEN_FILE)
        },
    ];
    if differs {
        mounts.push(VolumeMount {
            read_only: Some(true),
            ..mount("config", CONFIG_DIR)
        });
    }
    let quantity = |text: &str| Quantity(text.to_owned());
    Container {
        name: ENROLL_CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        command: Some(vec![AGENT.to_owned()]),
        args: Some(args),
        env: Some(environment(object, own)),
        resources: Some(ResourceRequirements {
            requests: Some(
                [
                    ("cpu".to_owned(), quantity("10m")),
                    ("memory".to_owned(), quantity("16Mi")),
                ]
                .into(),
            ),
            limits: Some([("memory".to_owned(), quantity("64Mi"))].into()),
            claims: None,
        }),
        security_context: Some(restricted()),
        termination_message_policy: Some("File".to_owned()),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

/// The ports on which a router listens beyond its own pod.
pub(super) fn ports(object: &ZitiRouter) -> Vec<ContainerPort> {
    let listeners = reach::listeners(&object.spec);
    let open = listeners
        .iter()
        .filter(|one| one.is_exposed() && !one.shares)
        .map(|listener| ContainerPort {
            name: Some(listener.name.to_owned()),
            container_port: i32::from(listener.port),
            host_port: (listener.expose.type_ == ExposeType::HostPort)
                .then(|| i32::from(listener.expose.host_port.unwrap_or(listener.port))),
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        });
    let proxied = tunnel::proxied(&object.spec.tunnel).iter();
    let proxied = proxied.map(|offered| ContainerPort {
        name: Some(format!("proxy-{}", offered.port)),
        container_port: i32::from(offered.port),
        protocol: Some(tunnel::protocol(offered).to_owned()),
        ..ContainerPort::default()
    });
    open.chain(proxied).collect()
}

/// The stock router.
fn router_container(object: &ZitiRouter, image: &str, own: Option<&Member>) -> Container {
    let file = if reach::differs_by_member(&object.spec) {
        per_member::config_key(MEMBER_IN_ARGS)
    } else {
        CONFIG_FILE.to_owned()
    };
    Container {
        name: ROUTER_CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        command: Some(["ziti", "router", "run"].map(str::to_owned).to_vec()),
        args: Some(vec![format!("{CONFIG_DIR}/{file}")]),
        env: Some(environment(object, own)),
        resources: object.spec.resources.clone(),
        security_context: Some(restricted()),
        readiness_probe: Some(readiness()),
        lifecycle: until_drained(object),
        ports: Some(ports(object)),
        volume_mounts: Some(vec![
            mount("identity", IDENTITY_DIR),
            VolumeMount {
                read_only: Some(true),
                ..mount("config", CONFIG_DIR)
            },
            mount("tmp", "/tmp"),
        ]),
        ..Container::default()
    }
}
