//! Our own programs, built by cargo into a target directory in the cache, so that a fresh checkout
//! starts warm.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use testbed::command::{Cmd, Stream};
use testbed::image::{self, Archive};
use testbed::paths;
use testbed::progress::Step;

/// cargo, in the root of this repository.
pub(crate) fn cargo() -> Result<Cmd> {
    Ok(
        Cmd::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .cwd(paths::repository())
            .env("CARGO_TARGET_DIR", target_dir()?)
            .env("CARGO_TERM_COLOR", "never"),
    )
}

/// `$CARGO_TARGET_DIR`, else `target` in the cache.
pub(crate) fn target_dir() -> Result<PathBuf> {
    match std::env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => Ok(dir.into()),
        None => Ok(paths::cache()?.join("target")),
    }
}

/// Builds operator and agent as they are released, and makes the image of them.
pub(crate) fn operator_image(step: &Step) -> Result<Archive> {
    let mut crates = 0_usize;
    cargo()?
        .args(["build", "--release", "--locked"])
        .args(["--package", "ziti-operator", "--package", "ziti-agent"])
        .timeout(Duration::from_mins(45))
        .lines(|stream, line| {
            if stream == Stream::Err && line.trim_start().starts_with("Compiling") {
                crates += 1;
                step.say(&format!("{crates} crates, now {}", line.trim()));
            }
        })
        .context("building the operator and the agent")?;
    image::operator(&target_dir()?.join("release"))
}
