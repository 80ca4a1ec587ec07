//! Ingresses and TLSRoutes: TLS is passed through to the member's own Service,
//! by the name that the client asks for. Nothing may end it on the way: clients
//! and routers show certificates of their own.

use super::Facts;
use super::extra::dynamic;
use super::reach::{self, Spelling};
use super::render::metadata;
use api::router::{Expose, ExposeType};
use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule,
    IngressServiceBackend, IngressSpec, ServiceBackendPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use serde_json::json;

/// What makes Ingress controllers pass TLS through: ingress-nginx (which must
/// run with `--enable-ssl-passthrough`), HAProxy Technologies' and the
/// community's HAProxy controller. Others do not look at it.
const PASSTHROUGH: [&str; 3] = [
    "nginx.ingress.kubernetes.io/ssl-passthrough",
    "haproxy.org/ssl-passthrough",
    "haproxy-ingress.github.io/ssl-passthrough",
];

/// The Ingresses and TLSRoutes of all wanted members.
pub(super) fn routes(facts: &Facts) -> Vec<DynamicObject> {
    let object = facts.object;
    let listeners = reach::listeners(&object.spec);
    let mut routes = Vec::new();
    for (index, member) in reach::wanted_members(facts) {
        let at = Spelling::of(object, &member, index);
        for listener in listeners.iter().filter(|listener| !listener.shares) {
            let Ok(address) = listener.address(&at, None) else {
                continue;
            };
            routes.extend(match listener.expose.type_ {
                ExposeType::Ingress | ExposeType::TlsRoute => {
                    let metadata = metadata(object, &listener.object_name(&member), Some(&member));
                    let to = Backend {
                        service: &member,
                        port_name: listener.name,
                        port: listener.port,
                    };
                    passed_through(metadata, &listener.expose, &address.host, &to)
                }
                _ => None,
            });
        }
    }
    routes
}

/// The Service to which TLS is passed through.
pub(crate) struct Backend<'a> {
    /// Its name.
    pub(crate) service: &'a str,
    /// The name of its port.
    pub(crate) port_name: &'a str,
    /// The port.
    pub(crate) port: u16,
}

/// The Ingress or TLSRoute that passes TLS for `host` through; none for the
/// other exposures.
pub(crate) fn passed_through(
    metadata: ObjectMeta,
    expose: &Expose,
    host: &str,
    to: &Backend,
) -> Option<DynamicObject> {
    match expose.type_ {
        ExposeType::Ingress => dynamic(&ingress(metadata, expose, host, to)),
        ExposeType::TlsRoute => tls_route(metadata, expose, host, to),
        _ => None,
    }
}

fn ingress(mut metadata: ObjectMeta, expose: &Expose, host: &str, to: &Backend) -> Ingress {
    let passthrough = PASSTHROUGH.map(|key| (key.to_owned(), "true".to_owned()));
    let mut annotations: std::collections::BTreeMap<_, _> = passthrough.into();
    annotations.extend(expose.annotations.clone());
    metadata.annotations = Some(annotations);
    Ingress {
        metadata,
        spec: Some(IngressSpec {
            ingress_class_name: expose.ingress_class_name.clone(),
            rules: Some(vec![IngressRule {
                host: Some(host.to_owned()),
                http: Some(HTTPIngressRuleValue {
                    paths: vec![HTTPIngressPath {
                        path: Some("/".to_owned()),
                        path_type: "Prefix".to_owned(),
                        backend: IngressBackend {
                            service: Some(IngressServiceBackend {
                                name: to.service.to_owned(),
                                port: Some(ServiceBackendPort {
                                    name: Some(to.port_name.to_owned()),
                                    number: None,
                                }),
                            }),
                            resource: None,
                        },
                    }],
                }),
            }]),
            ..IngressSpec::default()
        }),
        status: None,
    }
}

fn tls_route(
    mut metadata: ObjectMeta,
    expose: &Expose,
    host: &str,
    to: &Backend,
) -> Option<DynamicObject> {
    let annotations = &expose.annotations;
    metadata.annotations = (!annotations.is_empty()).then(|| annotations.clone());
    dynamic(&json!({
        "apiVersion": "gateway.networking.k8s.io/v1alpha2",
        "kind": "TLSRoute",
        "metadata": metadata,
        "spec": {
            "parentRefs": expose.parent_refs,
            "hostnames": [host],
            "rules": [{"backendRefs": [{"name": to.service, "port": to.port}]}],
        },
    }))
}
