//! Installs the operator as a user does: from its image, with the chart, with the real Helm.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::command::Cmd;
use crate::paths;

/// The namespace and the release of the demo and the tests.
pub const RELEASE: &str = "ziti-operator";

/// What is installed.
#[derive(Debug, Clone)]
pub struct Installation {
    /// The kubeconfig to install with.
    pub kubeconfig: PathBuf,
    /// The context in it; none: the current one.
    pub context: Option<String>,
    /// `installId` of the chart.
    pub install_id: String,
    /// The operator's image, for example `docker.io/openziti/ziti-operator:0.1.0`.
    pub image: String,
    /// The image of routers.
    pub router_image: String,
    /// `watchNamespaces` of the chart; empty: all.
    pub watch_namespaces: Vec<String>,
    /// `logLevel` of the chart.
    pub log_level: String,
}

impl Installation {
    /// Installs or upgrades, and waits until the operator is ready.
    ///
    /// # Errors
    /// When Helm refuses, or the operator is not ready within two minutes.
    pub fn install(&self) -> Result<()> {
        let (repository, tag, digest) = split_image(&self.image);
        let values = json!({
            "installId": self.install_id,
            "image": {"repository": repository, "tag": tag, "digest": digest},
            "routerImage": self.router_image,
            "watchNamespaces": self.watch_namespaces,
            "logLevel": self.log_level,
        });
        self.helm(&["upgrade", "--install", RELEASE])?
            .arg(chart())
            .args([
                "--create-namespace",
                "--wait",
                "--timeout",
                "2m",
                "--values",
                "-",
            ])
            .stdin(values.to_string())
            .timeout(Duration::from_mins(3))
            .run()
            .context("installing the operator with its chart")
    }

    /// Removes the release. The kinds and all objects stay.
    pub fn uninstall(&self) -> Result<()> {
        self.helm(&["uninstall", RELEASE])?
            .args(["--wait", "--ignore-not-found"])
            .timeout(Duration::from_mins(3))
            .run()
            .context("removing the operator's release")
    }

    fn helm(&self, args: &[&str]) -> Result<Cmd> {
        let home = paths::cache()?.join("helm");
        let command = Cmd::new(paths::program("helm")?)
            .args(args)
            .args(["--namespace", RELEASE])
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            // The person's own Helm is left alone.
            .env("HELM_CACHE_HOME", home.join("cache"))
            .env("HELM_CONFIG_HOME", home.join("config"))
            .env("HELM_DATA_HOME", home.join("data"));
        Ok(match &self.context {
            Some(context) => command.args(["--kube-context", context]),
            None => command,
        })
    }
}

/// The chart in this repository.
pub fn chart() -> PathBuf {
    paths::repository().join("charts").join("ziti-operator")
}

/// The directory of the generated CRDs in the chart.
pub fn crds() -> PathBuf {
    chart().join(Path::new("files/crds"))
}

/// `repository[:tag][@digest]`. A colon before the last slash is a registry's port.
fn split_image(image: &str) -> (&str, &str, &str) {
    let (name, digest) = image.split_once('@').unwrap_or((image, ""));
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag, digest),
        _ => (name, "", digest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_come_apart() {
        assert_eq!(split_image("a.io:5/b/c:1.0"), ("a.io:5/b/c", "1.0", ""));
        assert_eq!(split_image("a.io:5/b/c"), ("a.io:5/b/c", "", ""));
        assert_eq!(split_image("b/c@sha256:0"), ("b/c", "", "sha256:0"));
    }
}
