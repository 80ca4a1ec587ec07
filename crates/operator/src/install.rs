//! What tells this installation from another one that was given the same id: the uid of
//! the namespace in which the operator is installed. `run` and `preview` ask for it once.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt};

/// The uid of this namespace.
pub(crate) async fn uid(client: &Client, namespace: &str) -> Result<String> {
    let api: Api<Namespace> = Api::all(client.clone());
    let found = api.get(namespace).await.with_context(|| {
        format!(
            "reading Namespace {namespace}, whose uid goes into the tags of routers: the account needs the right to get it, which the \
             chart's Role in that namespace gives"
        )
    })?;
    found
        .uid()
        .with_context(|| format!("Namespace {namespace} has no uid"))
}
