//! The pods of a set, as they should be: an init container that enrolls, the
//! stock router, and the sidecar beside it (`sidecar`). Only `render` asks for them.

use super::config::{
    CONFIG_DIR, CONFIG_FILE, IDENTITY_DIR, MEMBER_ENV, TOKEN_FILE, dns_names, ip_addresses,
};
use super::member::{ENROLL_CONTAINER, Member, ROUTER_CONTAINER, labels};
use super::render::{namespace, set_name};
use super::sidecar::{AGENT, grace_period, readiness, sidecar_container, until_drained};
use super::{Facts, Network};
use api::{ZitiRouter, names};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource,
    EnvVar, EnvVarSource, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
    ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements,
    SeccompProfile, SecretVolumeSource, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

/// User and group of the stock router image, which own the identity.
const ROUTER_USER: i64 = 2171;

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
    PodTemplateSpec {
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
            affinity: own.and_then(|member| member.node.as_deref()).map(bound_to),
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
    }
}

/// The member's name, which is that of its pod where all share a template.
fn member_env(own: Option<&Member>) -> Vec<EnvVar> {
    let pods = EnvVarSource {
        field_ref: Some(ObjectFieldSelector {
            field_path: "metadata.name".to_owned(),
            api_version: None,
        }),
        ..EnvVarSource::default()
    };
    vec![EnvVar {
        name: MEMBER_ENV.to_owned(),
        value: own.map(|member| member.name.clone()),
        value_from: own.is_none().then_some(pods),
    }]
}

/// Binds a pod to a node as a DaemonSet does. With `nodeName` instead nobody
/// would ask whether the node can take it.
fn bound_to(node: &str) -> Affinity {
    let by_name = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let selector = NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_fields: Some(vec![by_name]),
            match_expressions: None,
        }],
    };
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(selector),
            preferred_during_scheduling_ignored_during_execution: None,
        }),
        ..Affinity::default()
    }
}

pub(super) fn restricted() -> SecurityContext {
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
    for name in dns_names(&object.spec, &format!("$({MEMBER_ENV})"), namespace(object)) {
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
        command: Some(vec![AGENT.to_owned()]),
        args: Some(args),
        env: Some(member_env(own)),
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
                sub_path_expr: Some(format!("$({MEMBER_ENV})")),
                read_only: Some(true),
                ..mount("tokens", TOKEN_FILE)
            },
        ]),
        ..Container::default()
    }
}

/// The stock router.
fn router_container(object: &ZitiRouter, image: &str, own: Option<&Member>) -> Container {
    let port = |name: &str, number: u16| ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(number),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    Container {
        name: ROUTER_CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        command: Some(["ziti", "router", "run"].map(str::to_owned).to_vec()),
        args: Some(vec![format!("{CONFIG_DIR}/{CONFIG_FILE}")]),
        env: Some(member_env(own)),
        ports: Some(vec![
            port("edge", object.spec.edge.port),
            port("link", object.spec.link.port),
        ]),
        resources: object.spec.resources.clone(),
        security_context: Some(restricted()),
        readiness_probe: Some(readiness()),
        lifecycle: until_drained(object),
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
