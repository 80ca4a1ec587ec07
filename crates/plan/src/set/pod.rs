//! The pods of a set, as they should be: an init container that enrolls, and the
//! stock router. Only `render` asks for them.

use super::config::{CONFIG_DIR, CONFIG_FILE, IDENTITY_DIR, TOKEN_FILE, dns_names, ip_addresses};
use super::member::{ENROLL_CONTAINER, ROUTER_CONTAINER, labels};
use super::render::{namespace, set_name};
use super::{Facts, Network, pod_options, storage, tproxy, tunnel};
use api::{ZitiRouter, names};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, EnvVar,
    EnvVarSource, ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec, Probe,
    ResourceRequirements, SeccompProfile, SecretVolumeSource, SecurityContext, TCPSocketAction,
    Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// User and group of the stock router image, which own the identity.
pub(super) const ROUTER_USER: i64 = 2171;

/// The template of every pod.
pub(super) fn pod_template(
    facts: &Facts,
    config_map: &str,
    agent_image: &str,
    router_image: &str,
) -> PodTemplateSpec {
    let object = facts.object;
    let set = set_name(object);
    let volume = |name: &str| Volume {
        name: name.to_owned(),
        ..Volume::default()
    };
    let mut template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels(set)),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            init_containers: Some(vec![enroll_container(facts, agent_image)]),
            containers: vec![router_container(object, router_image)],
            // A router asks nothing of the Kubernetes API.
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            security_context: Some(PodSecurityContext {
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
            }),
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
        storage::dress(object, router_image, spec);
        let cluster_dns = facts.settings.cluster_dns.as_ref();
        tproxy::dress(object, cluster_dns, router_image, spec);
    }
    pod_options::dress(object, &mut template);
    template
}

pub(super) fn pod_name_env() -> Vec<EnvVar> {
    vec![EnvVar {
        name: "POD_NAME".to_owned(),
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

fn restricted() -> SecurityContext {
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

pub(super) fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    }
}

/// The init container that turns a token into an identity on the volume.
fn enroll_container(facts: &Facts, image: &str) -> Container {
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
    for name in dns_names(&object.spec, "$(POD_NAME)", namespace(object)) {
        args.extend(["--dns".to_owned(), name]);
    }
    for address in ip_addresses(&object.spec) {
        args.extend(["--ip".to_owned(), address]);
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
    let quantity = |text: &str| Quantity(text.to_owned());
    Container {
        name: ENROLL_CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        command: Some(vec!["/usr/local/bin/ziti-agent".to_owned()]),
        args: Some(args),
        env: Some(pod_name_env()),
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
        volume_mounts: Some(vec![
            mount("identity", IDENTITY_DIR),
            VolumeMount {
                // Each pod sees its own key and no other.
                sub_path_expr: Some("$(POD_NAME)".to_owned()),
                read_only: Some(true),
                ..mount("tokens", TOKEN_FILE)
            },
        ]),
        ..Container::default()
    }
}

/// The ports at which a member listens.
pub(super) fn ports(object: &ZitiRouter) -> Vec<ContainerPort> {
    let port = |name: String, number: u16, protocol: &str| ContainerPort {
        name: Some(name),
        container_port: i32::from(number),
        protocol: Some(protocol.to_owned()),
        ..ContainerPort::default()
    };
    let own = [
        port("edge".to_owned(), object.spec.edge.port, "TCP"),
        port("link".to_owned(), object.spec.link.port, "TCP"),
    ];
    let proxied = tunnel::proxied(&object.spec.tunnel).iter().map(|offered| {
        let name = format!("proxy-{}", offered.port);
        port(name, offered.port, tunnel::protocol(offered))
    });
    own.into_iter().chain(proxied).collect()
}

/// The stock router.
fn router_container(object: &ZitiRouter, image: &str) -> Container {
    let edge_port = i32::from(object.spec.edge.port);
    Container {
        name: ROUTER_CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        command: Some(["ziti", "router", "run"].map(str::to_owned).to_vec()),
        args: Some(vec![format!("{CONFIG_DIR}/{CONFIG_FILE}")]),
        env: Some(pod_name_env()),
        ports: Some(ports(object)),
        resources: object.spec.resources.clone(),
        security_context: Some(restricted()),
        // Local on purpose: a controller that is away must not unpublish
        // routers that still forward.
        readiness_probe: Some(Probe {
            tcp_socket: Some(TCPSocketAction {
                port: IntOrString::Int(edge_port),
                host: None,
            }),
            period_seconds: Some(2),
            failure_threshold: Some(3),
            ..Probe::default()
        }),
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
