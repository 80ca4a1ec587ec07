//! The sidecar of a router's pod, and what the router's container asks of it:
//! readiness, and the drain before it ends. Only `pod` asks for them; the agent
//! that runs in it is `crates/agent/src/sidecar`.
//!
//! It is a native sidecar (an init container that is restarted always): it is
//! there before the router starts and until after it has ended, and holds up no
//! pod that is done. Both preStop hooks are started together; the router's
//! returns when the drain is over, and only then is the router ended.
//!
//! The readiness probe is the router container's, though the sidecar answers
//! it: so a router that restarts is not ready until the first probe of its new
//! life, whatever was true of the one before.

use super::pod::{mount, restricted};
use api::ZitiRouter;
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, ExecAction, HTTPGetAction, Lifecycle, LifecycleHandler, Probe,
    ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Name of the sidecar's container.
pub const SIDECAR_CONTAINER: &str = "sidecar";
/// Where the kubelet asks the sidecar; no listener of the router may have it.
pub const SIDECAR_PORT: u16 = 10090;
/// The program, in the operator's image.
pub(crate) const AGENT: &str = "/usr/local/bin/ziti-agent";
/// The router's temporary directory, where its agent socket is, as the sidecar
/// sees it.
const ROUTER_TMP: &str = "/run/router";
/// What the end of a pod takes besides the drain, in seconds: the start of the
/// hooks, the router's own end (up to two seconds), the sidecar's.
const ENDING: i64 = 15;

/// The sidecar.
pub(super) fn sidecar_container(object: &ZitiRouter, image: &str) -> Container {
    let drain = object.spec.drain.timeout_seconds;
    let args = [
        "sidecar".to_owned(),
        "--router-tmp".to_owned(),
        ROUTER_TMP.to_owned(),
        "--port".to_owned(),
        SIDECAR_PORT.to_string(),
        "--drain-seconds".to_owned(),
        drain.to_string(),
    ];
    Container {
        name: SIDECAR_CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        command: Some(vec![AGENT.to_owned()]),
        args: Some(args.to_vec()),
        restart_policy: Some("Always".to_owned()),
        lifecycle: hook(
            object,
            LifecycleHandler {
                exec: Some(ExecAction {
                    command: Some(
                        [AGENT, "drain", "--router-tmp", ROUTER_TMP]
                            .map(str::to_owned)
                            .to_vec(),
                    ),
                }),
                ..LifecycleHandler::default()
            },
        ),
        ports: Some(vec![sidecar_port()]),
        resources: Some(resources()),
        security_context: Some(restricted()),
        // The identity is not among them: it needs none.
        volume_mounts: Some(vec![mount("tmp", ROUTER_TMP)]),
        ..Container::default()
    }
}

/// Whether the router has been online in this life of its container. Local on
/// purpose: a controller that is away must not unpublish routers that still
/// forward.
pub(super) fn readiness() -> Probe {
    probe(http("/ready"))
}

/// A readiness probe by HTTP.
pub(crate) fn probe(http_get: HTTPGetAction) -> Probe {
    Probe {
        http_get: Some(http_get),
        period_seconds: Some(2),
        timeout_seconds: Some(2),
        failure_threshold: Some(3),
        ..Probe::default()
    }
}

/// The port at which the kubelet asks any sidecar.
pub(crate) fn sidecar_port() -> ContainerPort {
    ContainerPort {
        name: Some("sidecar".to_owned()),
        container_port: i32::from(SIDECAR_PORT),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

/// Any sidecar takes less than 8 MiB, and its hook is a second process for a while.
pub(crate) fn resources() -> ResourceRequirements {
    let quantity = |text: &str| Quantity(text.to_owned());
    ResourceRequirements {
        requests: Some(
            [
                ("cpu".to_owned(), quantity("5m")),
                ("memory".to_owned(), quantity("8Mi")),
            ]
            .into(),
        ),
        limits: Some([("memory".to_owned(), quantity("32Mi"))].into()),
        claims: None,
    }
}

/// What holds the router until the drain is over.
pub(super) fn until_drained(object: &ZitiRouter) -> Option<Lifecycle> {
    hook(
        object,
        LifecycleHandler {
            http_get: Some(http("/drained")),
            ..LifecycleHandler::default()
        },
    )
}

/// How long a pod has to end.
pub(super) fn grace_period(object: &ZitiRouter) -> i64 {
    i64::from(object.spec.drain.timeout_seconds) + ENDING
}

fn hook(object: &ZitiRouter, pre_stop: LifecycleHandler) -> Option<Lifecycle> {
    (object.spec.drain.timeout_seconds > 0).then(|| Lifecycle {
        pre_stop: Some(pre_stop),
        ..Lifecycle::default()
    })
}

pub(crate) fn http(path: &str) -> HTTPGetAction {
    HTTPGetAction {
        path: Some(path.to_owned()),
        port: IntOrString::Int(i32::from(SIDECAR_PORT)),
        ..HTTPGetAction::default()
    }
}
