//! `cargo xtask crds`: the chart's CRDs, generated from the kinds in `crates/api` by the operator
//! itself, and checked in.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testbed::command::Cmd;
use testbed::operator_install;

use crate::{build, output};

/// Stands above each generated file.
const HEADER: &str = "# Generated from crates/api by `cargo xtask crds`. Do not edit.\n";

/// Writes the files.
pub(crate) fn write() -> Result<()> {
    let generate = build::cargo()?
        .args(["run", "--quiet", "--package", "ziti-operator", "--", "crds"])
        .timeout(Duration::from_mins(30));
    run(generate, false)
}

/// Fails when the files are not what the operator at this path generates.
pub(crate) fn check(operator: &Path) -> Result<()> {
    run(Cmd::new(operator).arg("crds"), true)
}

fn run(generate: Cmd, check: bool) -> Result<()> {
    let wanted = files(
        &generate
            .output()
            .context("asking the operator for its CRDs")?,
    )?;
    let dir = operator_install::crds();
    let mut present = BTreeMap::new();
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let text = fs::read_to_string(entry.path())
                .with_context(|| format!("reading {}", entry.path().display()))?;
            present.insert(name, text);
        }
    }
    if wanted == present {
        output::line(format!("{} CRDs, as generated", wanted.len()));
        return Ok(());
    }
    if check {
        bail!(
            "the CRDs in {} are not those of crates/api: run `cargo xtask crds` and commit",
            dir.display()
        );
    }
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    for name in present.keys().filter(|name| !wanted.contains_key(*name)) {
        fs::remove_file(dir.join(name)).with_context(|| format!("removing {name}"))?;
    }
    for (name, text) in &wanted {
        fs::write(dir.join(name), text).with_context(|| format!("writing {name}"))?;
        output::line(format!("wrote {}", dir.join(name).display()));
    }
    Ok(())
}

/// The files by name: one CRD each, from what `ziti-operator crds` prints.
fn files(text: &str) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for document in text.split("---\n").filter(|part| !part.trim().is_empty()) {
        let crd: serde_json::Value =
            serde_saphyr::from_str(document).context("reading a generated CRD")?;
        let name = crd["metadata"]["name"]
            .as_str()
            .context("a generated CRD has no name")?;
        files.insert(format!("{name}.yaml"), format!("{HEADER}{document}"));
    }
    if files.is_empty() {
        bail!("`ziti-operator crds` printed no CRD");
    }
    Ok(files)
}
