//! A real Ziti router on loopback, for tests.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::config::{self, RouterConfig};
use super::{port, ziti_bin};
use crate::process::{Daemon, Fate, Running, tail};

/// How a router differs from the usual one.
#[derive(Debug, Clone, Copy, Default)]
pub struct RouterOptions {
    /// Whether it hosts services; its entity must be enabled as a tunneler then.
    pub host_services: bool,
}

/// A running `ziti router run`, on an identity that is already there. Whether it is online is for
/// the controller to say. It ends when this value is dropped, or when the process ends.
#[derive(Debug)]
pub struct LocalRouter {
    log: PathBuf,
    running: Running,
}

impl LocalRouter {
    /// Address that a router's server certificate must be valid for.
    pub const ADDRESS: &str = "127.0.0.1";

    /// Starts a router on `identity_dir`, which holds `ziti-router.{key,cert,server.chain.cert,cas}`
    /// and `endpoints`. Its configuration and its log go there too.
    pub fn start(identity_dir: &Path, options: RouterOptions) -> Result<Self> {
        let config = RouterConfig {
            identity_dir: identity_dir.to_path_buf(),
            edge: format!("{}:{}", Self::ADDRESS, port::free()?),
            host_services: options.host_services,
        };
        let file = identity_dir.join("router.yaml");
        config::write(&file, &config.render()?)?;
        let log = identity_dir.join("router.log");
        let mut daemon = Daemon::new("ziti-router", ziti_bin()?, &log);
        daemon = daemon.args([OsString::from("router"), "run".into(), file.into()]);
        daemon
            .env
            .insert("TMPDIR".to_owned(), identity_dir.display().to_string());
        daemon.fate = Fate::DiesWithUs;
        let running = daemon.start()?;
        Ok(Self { log, running })
    }

    /// Fails with the end of its log when it no longer runs.
    pub fn ensure_alive(&self) -> Result<()> {
        self.running.ensure_alive()
    }

    /// The end of its log, for the message of a failed test.
    pub fn log(&self) -> String {
        tail(&self.log, 40)
    }

    /// Ends it and waits until it is gone.
    pub fn stop(self) -> Result<()> {
        self.running.stop(Duration::from_secs(10))
    }
}

impl Drop for LocalRouter {
    fn drop(&mut self) {
        self.running.kill();
    }
}
