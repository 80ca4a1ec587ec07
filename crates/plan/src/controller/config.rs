//! The controllers' configuration (v3), a file for each member: members differ
//! in their names and addresses. No `$` of a user's may come in: Ziti replaces
//! what follows one, and there is no way to escape it.

use super::{MOST_MEMBERS, PORT, web};
use crate::edge_router::Problem;
use crate::set::extra_config;
use api::controller::Console;
use api::router::{Expose, ExposeType};
use api::{ZitiController, names, reasons};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Where a member's configuration is mounted.
pub const CONFIG_FILE: &str = "/etc/ziti/controller/config.yaml";
/// Where a member's certificates and keys are.
pub const PKI_DIR: &str = "/etc/ziti/pki";
/// Where a member keeps its database.
pub const DATA_DIR: &str = "/var/lib/ziti";

/// Names of the files below [`PKI_DIR`].
pub mod files {
    /// What the network is trusted by.
    pub const CA: &str = "ca.crt";
    /// The member's certificate.
    pub const CERT: &str = "controller.crt";
    /// Its key.
    pub const KEY: &str = "controller.key";
    /// The certificate of its signer.
    pub const SIGNER: &str = "signer.crt";
    /// The signer's key.
    pub const SIGNER_KEY: &str = "signer.key";
    /// All that differ by member.
    pub const OF_MEMBER: [&str; 4] = [CERT, KEY, SIGNER, SIGNER_KEY];
}

/// Where something is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl std::fmt::Display for Address {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

/// The name by which a member is reached within the cluster: that of its own
/// Service.
pub fn internal(object: &ZitiController, ordinal: i32) -> Address {
    let (name, namespace) = name_of(object);
    Address {
        host: format!(
            "{}.{namespace}.svc",
            names::controller_member(name, ordinal)
        ),
        port: PORT,
    }
}

/// Where clients reach a member's APIs.
pub fn client_api(object: &ZitiController, ordinal: i32) -> Address {
    match &object.spec.advertised.client_api {
        Some(given) => expand(object, &given.host, given.port, ordinal),
        None => internal(object, ordinal),
    }
}

/// Where routers and other members reach a member's control plane.
pub fn control_plane(object: &ZitiController, ordinal: i32) -> Address {
    match &object.spec.advertised.control_plane {
        Some(given) => expand(object, &given.host, given.port, ordinal),
        None => internal(object, ordinal),
    }
}

fn expand(object: &ZitiController, host: &str, port: Option<u16>, ordinal: i32) -> Address {
    let (name, namespace) = name_of(object);
    let member = names::controller_member(name, ordinal);
    let host = host
        .replace("{member}", &member)
        .replace("{namespace}", namespace)
        .replace("{name}", name)
        .replace("{index}", &ordinal.to_string());
    let port = port.unwrap_or_else(|| exposed_port(object, ordinal));
    Address { host, port }
}

/// The port at which the exposure is reached.
fn exposed_port(object: &ZitiController, ordinal: i32) -> u16 {
    let Some(expose) = &object.spec.expose else {
        return PORT;
    };
    match expose.type_ {
        ExposeType::NodePort => node_port(object, expose, ordinal).unwrap_or(PORT),
        ExposeType::LoadBalancer => expose.port.unwrap_or(PORT),
        ExposeType::Ingress | ExposeType::TlsRoute => 443,
        _ => PORT,
    }
}

/// The node port of a member: its own, or that of the first and so many more.
pub(super) fn node_port(object: &ZitiController, expose: &Expose, ordinal: i32) -> Option<u16> {
    let member = names::controller_member(name_of(object).0, ordinal);
    let shift = u16::try_from(ordinal).unwrap_or_default();
    let counted = expose.node_port.map(|first| first.saturating_add(shift));
    expose.node_ports.get(&member).copied().or(counted)
}

/// Every host name and address under which a member is reached, advertised ones
/// and those within the cluster.
pub fn names_of(object: &ZitiController, ordinal: i32) -> Vec<String> {
    let (name, namespace) = name_of(object);
    let member = names::controller_member(name, ordinal);
    let all = names::controller_workload(name);
    let mut found = vec![
        client_api(object, ordinal).host,
        control_plane(object, ordinal).host,
    ];
    for service in [member, all] {
        found.push(format!("{service}.{namespace}.svc"));
        found.push(format!("{service}.{namespace}.svc.cluster.local"));
        found.push(format!("{service}.{namespace}"));
        found.push(service);
    }
    found.extend(["localhost".to_owned(), "127.0.0.1".to_owned()]);
    found.sort();
    found.dedup();
    found
}

fn name_of(object: &ZitiController) -> (&str, &str) {
    let metadata = &object.metadata;
    (
        metadata.name.as_deref().unwrap_or_default(),
        metadata.namespace.as_deref().unwrap_or_default(),
    )
}

/// The files of all members that there can be, by the name of the file.
pub fn all_files(object: &ZitiController) -> BTreeMap<String, String> {
    let (name, _) = name_of(object);
    let members = (0..MOST_MEMBERS).map(|ordinal| {
        let config = of_member(object, ordinal);
        let text = serde_saphyr::to_string(&config).unwrap_or_default();
        let member = names::controller_member(name, ordinal);
        (format!("{member}.yaml"), text)
    });
    members.collect()
}

/// The configuration of one member.
pub fn of_member(object: &ZitiController, ordinal: i32) -> Value {
    let spec = &object.spec;
    let file = |name: &str| format!("{PKI_DIR}/{name}");
    let (api, plane) = (client_api(object, ordinal), control_plane(object, ordinal));
    let bind = format!("0.0.0.0:{PORT}");
    let minutes = |minutes: i32| json!({"duration": format!("{minutes}m")});
    let mut apis: Vec<Value> = [
        "edge-management",
        "edge-client",
        "fabric",
        "health-checks",
        "edge-oidc",
    ]
    .iter()
    .map(|binding| json!({"binding": binding}))
    .collect();
    if spec.console == Console::Enabled {
        apis.push(json!({
            "binding": "zac",
            "options": {"location": "/ziti-console", "indexFile": "index.html"},
        }));
    }
    let mut config = json!({
        "v": 3,
        "cluster": {"dataDir": DATA_DIR},
        "identity": {
            "cert": file(files::CERT),
            "server_cert": file(files::CERT),
            "key": file(files::KEY),
            "ca": file(files::CA),
        },
        "ctrl": {
            "listener": format!("tls:{bind}"),
            "options": {"advertiseAddress": format!("tls:{plane}")},
        },
        "edge": {
            "api": {"address": api.to_string()},
            "enrollment": {
                "edgeIdentity": minutes(spec.enrollment.identity_minutes),
                "edgeRouter": minutes(spec.enrollment.router_minutes),
                "signingCert": {"cert": file(files::SIGNER), "key": file(files::SIGNER_KEY)},
            },
        },
        "web": web::section(object, ordinal, &bind, &api, &apis),
    });
    if let Some(extra) = &spec.extra_config {
        extra_config::merge(&mut config, extra);
    }
    config
}

/// Keys that the operator owns, and why.
const OWNED: &[(&str, &str)] = &[
    ("v", "the operator writes configurations of version 3"),
    (
        "db",
        "members keep their database in a cluster, of one at first",
    ),
    ("raft", "it is called cluster"),
    (
        "cluster.dataDir",
        "nothing can be written but on the member's volume",
    ),
    ("identity", "the operator issues the members' certificates"),
    ("trustDomain", "set spec.trustDomain"),
    ("ctrl.listener", "the members' Services lead to this port"),
    (
        "ctrl.options.advertiseAddress",
        "set spec.advertised.controlPlane",
    ),
    ("edge.api.address", "set spec.advertised.clientApi"),
    (
        "web",
        "set spec.web: its addresses must be those in certificates and tokens, and the operator asks these APIs",
    ),
    (
        "edge.enrollment.signingCert",
        "the operator issues the members' signers",
    ),
    (
        "edge.enrollment.edgeIdentity",
        "set spec.enrollment.identityMinutes",
    ),
    (
        "edge.enrollment.edgeRouter",
        "set spec.enrollment.routerMinutes",
    ),
];

/// The first fault of what the user merges in, if there is one.
pub(super) fn fault(extra: Option<&Map<String, Value>>) -> Option<Problem> {
    let extra = extra?;
    if let Some((path, why)) = OWNED
        .iter()
        .find(|(path, _)| extra_config::has(extra, path))
    {
        let message = format!("spec.extraConfig holds {path}, which the operator must own: {why}");
        return Some(Problem::new(reasons::CONFIG_KEY_REFUSED, message));
    }
    let (path, text) = extra_config::dollar(&Value::Object(extra.clone()), "spec.extraConfig")?;
    let message = format!(
        "{path} holds {text:?}: Ziti replaces what follows a $ and knows no way to escape it. Write the value itself"
    );
    Some(Problem::new(reasons::DOLLAR_IN_STRING, message))
}
