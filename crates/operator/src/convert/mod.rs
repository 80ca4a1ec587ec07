//! `ziti-operator convert`: a manifest of the first proof of concept, or a values
//! file of the ziti-router Helm chart, as objects of ours.
//!
//! A pure mapping but for reading the file and printing. [`seed`] and [`chart`]
//! hold one function for each area of their input. Every key of the input is
//! either taken by one of them or told as left behind ([`input`]); nothing is
//! dropped in silence. `main` calls [`run`].

mod chart;
mod input;
mod seed;

use crate::documents;
use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "The objects go to standard output, and what could not be carried over to standard error, a line for \
each key. Tokens that stand in the file are put into a Secret, which is printed as well: keep the output as you keep the \
file.\n\nA router that the chart has deployed already is taken over with its identity by `ziti-operator adopt`."
)]
pub(crate) struct ConvertArgs {
    /// The file; `-` for standard input.
    #[arg(short, long)]
    file: PathBuf,

    /// Name of the ZitiRouter that a values file becomes.
    #[arg(long, default_value = "ziti-router")]
    name: String,

    /// Namespace of what names none.
    #[arg(short, long)]
    namespace: Option<String>,

    /// ZitiNetwork that the routers join. Needed where the file gives no token:
    /// the operator then registers the routers by itself.
    #[arg(long)]
    network: Option<String>,
}

/// What the caller says beside the file.
#[derive(Clone, Debug)]
struct Target {
    name: String,
    namespace: Option<String>,
    network: Option<String>,
}

/// Objects, and what is left behind.
#[derive(Debug, Default)]
struct Conversion {
    documents: Vec<Value>,
    notes: Vec<String>,
}

impl Conversion {
    /// Say why a key of the input is not carried over, or not as it was.
    fn note(&mut self, key: &str, why: impl AsRef<str>) {
        self.notes.push(format!("{key}: {}", why.as_ref()));
    }

    /// An object of ours.
    fn ours(&mut self, kind: &str, metadata: &Value, spec: &Value) {
        let version = format!("{}/{}", api::GROUP, api::VERSION);
        self.documents.push(json!({
            "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec,
        }));
    }

    /// A Secret of texts.
    fn secret(&mut self, metadata: &Value, texts: &Value) {
        self.documents.push(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": texts,
        }));
    }
}

/// Name of the Secret into which tokens of the input go.
fn given_tokens(name: &str) -> String {
    format!("{name}-given-tokens")
}

fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({"name": name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    metadata
}

/// Convert a file.
pub(crate) fn run(args: &ConvertArgs) -> Result<()> {
    let text = documents::read(&args.file)?;
    let target = Target {
        name: args.name.clone(),
        namespace: args.namespace.clone(),
        network: args.network.clone(),
    };
    let converted = convert(documents::parse(&text)?, &target)?;
    let mut out = std::io::stdout().lock();
    for document in &converted.documents {
        let text = serde_saphyr::to_string(document).context("writing an object as YAML")?;
        writeln!(out, "---\n{}", text.trim_end()).context("printing an object")?;
    }
    let mut err = std::io::stderr().lock();
    for note in &converted.notes {
        writeln!(err, "{note}").context("printing a note")?;
    }
    Ok(())
}

fn convert(documents: Vec<Value>, target: &Target) -> Result<Conversion> {
    let mut converted = Conversion::default();
    let controllers = seed::controllers(&documents);
    let mut known = 0;
    for document in documents {
        let (group, kind) = (text(&document["apiVersion"]), text(&document["kind"]));
        let of_seed = group.starts_with("ziti.dariuszski.dev/");
        match kind.as_str() {
            "ZitiRouter" if of_seed => {
                seed::router(&document, target, &controllers, &mut converted);
            }
            "ZitiController" if of_seed => seed::controller(&document, target, &mut converted),
            "" if document.is_object() => chart::router(document, target, &mut converted),
            _ => {
                converted.note(
                    &format!("{kind} {}", text(&document["metadata"]["name"])),
                    "not an object of the proof of concept: take it as it is, if it is still needed",
                );
                continue;
            }
        }
        known += 1;
    }
    if known == 0 {
        bail!(
            "the file is neither a manifest of ziti.dariuszski.dev/v1alpha1 nor a values file of the ziti-router chart"
        );
    }
    Ok(converted)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
