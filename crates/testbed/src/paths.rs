//! Where the testbed keeps its things on disk. Every other module asks here, nobody builds such a
//! path by hand.
//!
//! ```text
//! ~/.cache/ziti-operator/          or $ZITI_OPERATOR_CACHE
//!   bin/<key>/<program>            programs, by the hash of their pin
//!   bin/<program>                  symbolic link to the one in use
//!   images/<key>.tar               image archives, by the hash of their content
//!   run/<name>/                    one running cluster
//! ```

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Environment variable that moves the cache away from `~/.cache/ziti-operator`.
pub const CACHE_ENV: &str = "ZITI_OPERATOR_CACHE";

/// The root of the cache: `$ZITI_OPERATOR_CACHE`, else `$HOME/.cache/ziti-operator`.
///
/// # Errors
/// When neither variable is set.
pub fn cache() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os(CACHE_ENV).filter(|dir| !dir.is_empty()) {
        return Ok(PathBuf::from(dir));
    }
    let home = std::env::var_os("HOME")
        .with_context(|| format!("neither {CACHE_ENV} nor HOME is set: no place for the cache"))?;
    Ok(Path::new(&home).join(".cache/ziti-operator"))
}

/// The directory of the programs. A stable link `bin/<program>` leads to the one in use.
pub fn bin() -> Result<PathBuf> {
    Ok(cache()?.join("bin"))
}

/// The program of that name, built earlier by [`crate::tools`].
///
/// # Errors
/// When it was not built yet; the message says how to.
pub fn program(name: &str) -> Result<PathBuf> {
    let path = bin()?.join(name);
    anyhow::ensure!(
        path.exists(),
        "{} is missing: build the pinned programs first with `cargo xtask tools`",
        path.display()
    );
    Ok(path)
}

/// The directory of a cluster's state.
pub fn run(name: &str) -> Result<PathBuf> {
    Ok(cache()?.join("run").join(name))
}

/// The root of this repository, from where this crate was compiled.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Creates a directory and its parents.
pub(crate) fn make_dir(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))
}

/// Writes a file, creating its directory.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    std::fs::write(path, content).with_context(|| format!("writing {}", path.display()))
}

/// Writes a file only its owner may read: keys and what embeds them.
pub(crate) fn write_private(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("opening {} for writing", path.display()))?;
    file.write_all(content.as_ref())
        .with_context(|| format!("writing {}", path.display()))
}

/// Reads a text file.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// Says which file could not be seen: a context for metadata and directory reads.
pub(crate) fn reading(path: &Path) -> impl FnOnce() -> String + '_ {
    move || format!("reading {}", path.display())
}
