//! What is in a namespace, for the message of a failed test: objects, descriptions, events and
//! logs, as kubectl shows them. Secrets appear by name and size only, and whatever looks like a
//! token is blanked.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;

use crate::kubernetes;

/// How many lines of each log.
const LOG_LINES: &str = "--tail=200";
/// What is listed. A kind that the cluster does not know makes one line and no failure.
const LISTED: &[&str] = &[
    "ziticontrollers,zitinetworks,edgerouters,zitirouters",
    "statefulsets,deployments,pods,services,configmaps,secrets,persistentvolumeclaims",
    "poddisruptionbudgets,ingresses",
];

/// Collects all of it as text. It never fails: what cannot be had is noted in the text.
pub fn namespace(kubeconfig: &Path, namespace: &str) -> String {
    let mut text = format!("======== namespace {namespace} ========\n");
    for kinds in LISTED {
        section(
            &mut text,
            kubeconfig,
            namespace,
            &["get", kinds, "-o", "wide"],
        );
    }
    section(
        &mut text,
        kubeconfig,
        namespace,
        &[
            "get",
            "ziticontrollers,zitinetworks,edgerouters,zitirouters",
            "-o",
            "yaml",
        ],
    );
    section(&mut text, kubeconfig, namespace, &["describe", "pods"]);
    section(
        &mut text,
        kubeconfig,
        namespace,
        &["get", "events", "--sort-by=.metadata.creationTimestamp"],
    );
    let pods = kubectl(kubeconfig, namespace, &["get", "pods", "-o", "name"]).unwrap_or_default();
    for pod in pods.lines() {
        let logs = ["logs", pod, "--all-containers", "--prefix", LOG_LINES];
        section(&mut text, kubeconfig, namespace, &logs);
    }
    blank_tokens(&text)
}

fn section(text: &mut String, kubeconfig: &Path, namespace: &str, args: &[&str]) {
    // Writing to a String does not fail.
    let _ = writeln!(text, "\n---- kubectl {}", args.join(" "));
    match kubectl(kubeconfig, namespace, args) {
        Ok(output) => text.push_str(&output),
        Err(error) => {
            let _ = writeln!(text, "({error:#})");
        }
    }
}

fn kubectl(kubeconfig: &Path, namespace: &str, args: &[&str]) -> Result<String> {
    kubernetes::kubectl(kubeconfig, None)?
        .args(["--namespace", namespace])
        .args(args)
        .output()
}

/// Replaces JSON Web Tokens, which all begin with `eyJ` (the base64 of `{"`).
fn blank_tokens(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("eyJ") {
        let (before, from) = rest.split_at(start);
        clean.push_str(before);
        let end = from
            .find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)))
            .unwrap_or(from.len());
        clean.push_str("<token>");
        rest = &from[end..];
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_blanked() {
        assert_eq!(
            blank_tokens("edge-0: eyJhbGciOi.eyJpc3Mi.c2ln_-9 and \"eyJh.b.c\"\n"),
            "edge-0: <token> and \"<token>\"\n"
        );
    }
}
