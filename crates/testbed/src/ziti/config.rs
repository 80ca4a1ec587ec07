//! The configuration files of Ziti controllers and routers, in the smallest form that works on 1.6
//! and 2.x alike. Nothing is started here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::pki;

/// Where a controller keeps its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// One database file (`db`), for a controller that stays alone. Set up by
    /// `ziti controller edge init` *before* the first start. 1.6 only.
    Standalone,
    /// A Raft log (`cluster.dataDir`), for a member of a cluster, of one at first. Set up by
    /// `ziti agent cluster init` *after* the start.
    Cluster,
}

impl Storage {
    /// What a single controller of that version uses: 2.x knows the cluster alone.
    pub fn of_version(version: &str) -> Self {
        let major = version.trim_start_matches('v').split('.').next();
        if matches!(major, Some("0" | "1")) {
            Self::Standalone
        } else {
            Self::Cluster
        }
    }
}

/// What a controller's configuration says. Management API, client API and control plane share one
/// port; TLS tells them apart by ALPN.
#[derive(Debug, Clone)]
pub struct ControllerConfig {
    /// Kind of database.
    pub storage: Storage,
    /// Where the files of [`pki::ControllerPki::files`] are.
    pub pki_dir: PathBuf,
    /// Where the database goes; must exist and be writable.
    pub data_dir: PathBuf,
    /// `host:port` to listen on.
    pub bind: String,
    /// `host:port` under which it is reached. The host must be in the certificate, or tokens
    /// cannot be made.
    pub advertise: String,
    /// How long enrollment tokens live; Ziti takes less than five minutes for 180 minutes.
    pub token_life: Duration,
}

impl ControllerConfig {
    /// The file, in YAML.
    pub fn render(&self) -> Result<String> {
        let pki = |name: &str| self.pki_dir.join(name);
        // `edgeIdentity` rules the tokens of routers too (before 1.6.8); both sections must exist.
        let life = json!({"duration": format!("{}s", self.token_life.as_secs())});
        let mut config = json!({
            "v": 3,
            "identity": {
                "cert": pki(pki::CERT),
                "server_cert": pki(pki::CHAIN),
                "key": pki(pki::KEY),
                "ca": pki(pki::CA),
            },
            "ctrl": {
                "listener": format!("tls:{}", self.bind),
                "options": {"advertiseAddress": format!("tls:{}", self.advertise)},
            },
            "edge": {
                "api": {"address": self.advertise},
                "enrollment": {
                    "edgeIdentity": life,
                    "edgeRouter": life,
                    "signingCert": {"cert": pki(pki::SIGNER), "key": pki(pki::SIGNER_KEY)},
                },
            },
            "web": [{
                "name": "all",
                "bindPoints": [{"interface": self.bind, "address": self.advertise}],
                "apis": [
                    {"binding": "edge-management"},
                    {"binding": "edge-client"},
                    {"binding": "fabric"},
                    {"binding": "health-checks"},
                ],
            }],
        });
        match self.storage {
            Storage::Standalone => config["db"] = json!(self.data_dir.join("ctrl.db")),
            Storage::Cluster => config["cluster"] = json!({"dataDir": self.data_dir}),
        }
        yaml(&config)
    }
}

/// What a router's configuration says.
#[derive(Debug, Clone)]
pub struct RouterConfig {
    /// Where `ziti-router.{key,cert,server.chain.cert,cas}` and `endpoints` are; writable.
    pub identity_dir: PathBuf,
    /// `127.0.0.1:port` of the edge listener. A router without one never gets in sync on 1.6.
    pub edge: String,
    /// Whether it hosts services (tunnel listener in host mode).
    pub host_services: bool,
}

impl RouterConfig {
    /// The file, in YAML.
    pub fn render(&self) -> Result<String> {
        let file = |name: &str| self.identity_dir.join(name);
        let host = self.edge.rsplit_once(':').map_or("", |(host, _)| host);
        let mut listeners = vec![json!({
            "binding": "edge",
            "address": format!("tls:{}", self.edge),
            "options": {"advertise": self.edge},
        })];
        if self.host_services {
            listeners.push(json!({"binding": "tunnel", "options": {"mode": "host"}}));
        }
        yaml(&json!({
            "v": 3,
            "identity": {
                "cert": file("ziti-router.cert"),
                "server_cert": file("ziti-router.server.chain.cert"),
                "key": file("ziti-router.key"),
                "ca": file("ziti-router.cas"),
            },
            "ctrl": {"endpointsFile": file("endpoints"), "dataDir": self.identity_dir},
            "link": {"dialers": [{"binding": "transport"}]},
            "listeners": listeners,
            "edge": {
                "db": file("edge.db"),
                // Without `sans` the router panics.
                "csr": {"sans": {"dns": ["localhost"], "ip": [host]}},
            },
        }))
    }
}

fn yaml(config: &Value) -> Result<String> {
    serde_saphyr::to_string(config).context("writing a Ziti configuration as YAML")
}

/// Writes a configuration beside what it configures.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    crate::paths::write(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_database_follows_the_version() {
        assert_eq!(Storage::of_version("v1.6.0"), Storage::Standalone);
        assert_eq!(Storage::of_version("v2.0.3"), Storage::Cluster);
    }

    #[test]
    fn one_database_or_the_other() {
        let mut config = ControllerConfig {
            storage: Storage::Standalone,
            pki_dir: "/pki".into(),
            data_dir: "/data".into(),
            bind: "0.0.0.0:1280".into(),
            advertise: "ctrl.example:1280".into(),
            token_life: Duration::from_mins(5),
        };
        let standalone = config.render().unwrap();
        assert!(standalone.contains("/data/ctrl.db") && !standalone.contains("cluster"));
        assert!(standalone.contains("300s"), "{standalone}");
        config.storage = Storage::Cluster;
        let cluster = config.render().unwrap();
        assert!(cluster.contains("dataDir") && !cluster.contains("ctrl.db"));
    }
}
