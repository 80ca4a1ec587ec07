//! The router's configuration (v3).
//!
//! Where members differ only in what the router expands from its environment
//! (`${ZITI_MEMBER}`), one file serves all of them; `per_member` has the others. For
//! the same reason no `$` of a user's may come in: there is no way to escape one.

use super::extra_config;
use super::reach::{self, Address, Kind, Listener, Spelling};
use super::tunnel;
use api::ZitiRouter;
use api::router::{EdgeProtocol, ZitiRouterSpec};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Where the identity and everything that the router writes lives: the names
/// are those of the ziti-router chart, so that a volume of its can be taken
/// over.
pub const IDENTITY_DIR: &str = "/etc/ziti/config";
/// Where the configuration is mounted.
pub const CONFIG_DIR: &str = "/etc/ziti/router";
/// Name of the configuration file.
pub const CONFIG_FILE: &str = "ziti-router.yaml";
/// The mounted token.
pub const TOKEN_FILE: &str = "/etc/ziti/enroll/token";

/// The configuration of every member of a set in which they do not differ.
pub fn shared_config(object: &ZitiRouter) -> Value {
    let at = Spelling::in_config(object);
    let listeners = reach::listeners(&object.spec);
    let addresses = listeners
        .iter()
        .filter_map(|one| one.address(&at, None).ok());
    router_config(object, &at, &addresses.collect::<Vec<_>>())
}

/// The configuration of a member: `addresses` are those of its listeners, in
/// their order.
pub(super) fn router_config(object: &ZitiRouter, at: &Spelling, addresses: &[Address]) -> Value {
    let spec = &object.spec;
    let listeners = reach::listeners(spec);
    let reached = || listeners.iter().zip(addresses);
    let edges = reached().filter_map(|(listener, address)| edge_listener(listener, address));
    let mut xgress: Vec<Value> = edges.collect();
    xgress.extend(tunnel::listener(&spec.tunnel));
    let links = reached().filter_map(|(listener, address)| link_listener(listener, address));
    let links: Vec<Value> = links.collect();
    let names = reach::names(spec, at, addresses.iter().cloned());
    let file = |name: &str| format!("{IDENTITY_DIR}/{name}");
    let mut config = json!({
        "v": 3,
        "identity": {
            "cert": file("ziti-router.cert"),
            "server_cert": file("ziti-router.server.chain.cert"),
            "key": file("ziti-router.key"),
            "ca": file("ziti-router.cas"),
        },
        // No endpoint here: the file is written at enrollment, kept up by the
        // router itself, and wins over the configuration.
        "ctrl": {"endpointsFile": file("endpoints"), "dataDir": IDENTITY_DIR},
        "link": {"dialers": dialers(spec)},
        "listeners": xgress,
        "edge": {
            // Beside the configuration, where it would land otherwise, nothing
            // can be written.
            "db": file("edge.db"),
            "csr": {"sans": {"dns": names.dns, "ip": names.ip}},
        },
    });
    if !links.is_empty() {
        config["link"]["listeners"] = Value::Array(links);
    }
    options(spec, &mut config);
    if let Some(extra) = &spec.extra_config {
        extra_config::merge(&mut config, extra);
    }
    config
}

fn edge_listener(listener: &Listener, address: &Address) -> Option<Value> {
    let Kind::Edge { protocol, options } = listener.kind else {
        return None;
    };
    let scheme = match protocol {
        EdgeProtocol::Tls => "tls",
        EdgeProtocol::Wss => "wss",
    };
    let bind = if listener.is_exposed() {
        "0.0.0.0"
    } else {
        "127.0.0.1"
    };
    let mut options = options.cloned().unwrap_or_default();
    let advertise = format!("{}:{}", address.host, address.port);
    options.insert("advertise".to_owned(), Value::String(advertise));
    Some(json!({
        "binding": "edge",
        "address": format!("{scheme}:{bind}:{}", listener.port),
        "options": options,
    }))
}

fn link_listener(listener: &Listener, address: &Address) -> Option<Value> {
    let Kind::Link {
        groups,
        bind_interface,
        options,
    } = listener.kind
    else {
        return None;
    };
    let mut value = json!({
        "binding": "transport",
        "bind": format!("tls:0.0.0.0:{}", listener.port),
        "advertise": format!("tls:{}:{}", address.host, address.port),
    });
    put(&mut value, "groups", (!groups.is_empty()).then_some(groups));
    put(&mut value, "bindInterface", bind_interface);
    put(&mut value, "options", options);
    Some(value)
}

fn dialers(spec: &ZitiRouterSpec) -> Vec<Value> {
    if spec.link.dialers.is_empty() {
        return vec![json!({"binding": "transport"})];
    }
    let dialers = spec.link.dialers.iter().map(|dialer| {
        let mut value = json!(dialer);
        value["binding"] = Value::String("transport".to_owned());
        value
    });
    dialers.collect()
}

/// What the spec says of timings and sizes: its fields are named as the router's
/// keys.
fn options(spec: &ZitiRouterSpec, config: &mut Value) {
    put(config, "forwarder", spec.forwarder.as_ref());
    put(config, "metrics", spec.metrics.as_ref());
    put(config, "healthChecks", spec.health_checks.as_ref());
    let heartbeat = spec.edge.heartbeat_interval_seconds;
    put(&mut config["edge"], "heartbeatIntervalSeconds", heartbeat);
    if let Some(Ok(Value::Object(ctrl))) = spec.ctrl.as_ref().map(serde_json::to_value) {
        merge_into(&mut config["ctrl"], ctrl);
    }
}

fn put(object: &mut Value, key: &str, value: Option<impl Serialize>) {
    if let Some(value) = value.and_then(|value| serde_json::to_value(value).ok()) {
        object[key] = value;
    }
}

fn merge_into(object: &mut Value, keys: Map<String, Value>) {
    for (key, value) in keys {
        object[key] = value;
    }
}
