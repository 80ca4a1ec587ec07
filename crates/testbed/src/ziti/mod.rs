//! Ziti on loopback: real controllers and routers for tests, and the two things that a controller
//! anywhere needs, its certificates ([`pki`]) and its configuration ([`config`]). Those two start
//! nothing, so that the manifest of the controller in a cluster is made of them as well.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::paths;

mod cluster;
pub mod config;
mod controller;
pub mod pki;
pub(crate) mod port;
mod router;

pub use cluster::{LocalCluster, LocalMember};
pub use controller::{ControllerOptions, LocalController};
pub use router::{LocalRouter, RouterOptions};

/// Environment variable that puts another Ziti in place of the pinned one.
pub const ZITI_BIN: &str = "ZITI_BIN";

/// The Ziti program: `$ZITI_BIN`, else the pinned one from the cache.
///
/// # Errors
/// When there is none; the message says how to get it. A test without Ziti fails, it is never
/// skipped.
pub fn ziti_bin() -> Result<PathBuf> {
    let Some(path) = std::env::var_os(ZITI_BIN).filter(|path| !path.is_empty()) else {
        return paths::program("ziti").with_context(|| format!("no Ziti; {ZITI_BIN} is not set"));
    };
    let path = PathBuf::from(path);
    ensure!(
        path.is_file(),
        "{ZITI_BIN} is {}, which is no file",
        path.display()
    );
    Ok(path)
}

/// What a Ziti program says of itself, for example `v1.6.0`.
pub fn version(program: &std::path::Path) -> Result<String> {
    let output = Command::new(program)
        .arg("version")
        .output()
        .with_context(|| format!("running {} version", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split_whitespace().next().unwrap_or_default();
    ensure!(
        version.starts_with('v') && output.status.success(),
        "{} version printed {text:?} instead of a version",
        program.display()
    );
    Ok(version.to_owned())
}
