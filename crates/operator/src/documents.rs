//! YAML documents, for the commands that read or print some.

use anyhow::{Context, Result};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;

/// Read a file, `-` for standard input.
pub(crate) fn read(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("reading standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// The documents of a YAML text.
pub(crate) fn parse(text: &str) -> Result<Vec<Value>> {
    // Its errors would show the lines around a mistake, which may be a Secret's.
    let quiet = serde_saphyr::options! { with_snippet: false };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, quiet).context("reading the YAML")?;
    Ok(documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect())
}

/// Print objects, for `kubectl apply`.
pub(crate) fn print(objects: &[Value]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for object in objects {
        let text = serde_saphyr::to_string(object).context("writing an object as YAML")?;
        writeln!(out, "---\n{text}").context("printing an object")?;
    }
    Ok(())
}
