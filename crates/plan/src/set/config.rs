//! The router's configuration (v3).
//!
//! One file serves all members of a set: the router expands `${POD_NAME}` from
//! its environment in every string. For the same reason no `$` of a user's may
//! come in: there is no way to escape one.

use super::tunnel;
use api::router::ZitiRouterSpec;
use serde_json::{Value, json};

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

/// What the kubelet and the router put in place of the member's name.
const MEMBER_IN_CONFIG: &str = "${POD_NAME}";

/// The name under which a member is reached, with `member` in its place.
pub fn advertised_host(member: &str, namespace: &str) -> String {
    format!("{member}.{namespace}.svc")
}

/// The DNS names in a member's certificate: what it advertises, what a user
/// adds, and the name by which it reaches itself.
pub fn dns_names(spec: &ZitiRouterSpec, member: &str, namespace: &str) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), advertised_host(member, namespace)];
    for name in &spec.csr.sans.dns {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// The IP addresses in a member's certificate.
pub fn ip_addresses(spec: &ZitiRouterSpec) -> Vec<String> {
    let mut addresses = vec!["127.0.0.1".to_owned()];
    for address in &spec.csr.sans.ip {
        if !addresses.contains(address) {
            addresses.push(address.clone());
        }
    }
    addresses
}

/// The configuration of every member of a set.
pub fn router_config(spec: &ZitiRouterSpec, namespace: &str) -> Value {
    let host = advertised_host(MEMBER_IN_CONFIG, namespace);
    let file = |name: &str| format!("{IDENTITY_DIR}/{name}");
    let mut listeners = vec![json!({
        "binding": "edge",
        "address": format!("tls:0.0.0.0:{}", spec.edge.port),
        "options": {"advertise": format!("{host}:{}", spec.edge.port)},
    })];
    listeners.extend(tunnel::listener(&spec.tunnel));
    json!({
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
        "link": {
            "dialers": [{"binding": "transport"}],
            "listeners": [{
                "binding": "transport",
                "bind": format!("tls:0.0.0.0:{}", spec.link.port),
                "advertise": format!("tls:{host}:{}", spec.link.port),
            }],
        },
        "listeners": listeners,
        "edge": {
            // Beside the configuration, where it would land otherwise, nothing
            // can be written.
            "db": file("edge.db"),
            "csr": {
                "sans": {
                    "dns": dns_names(spec, MEMBER_IN_CONFIG, namespace),
                    "ip": ip_addresses(spec),
                },
            },
        },
    })
}
