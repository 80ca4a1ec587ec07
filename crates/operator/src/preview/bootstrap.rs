//! `ziti-operator bootstrap`: what somebody applies in a cluster that the operator
//! cannot reach before a router runs there. `main` calls [`run`].

use super::{Installation, Look, Overlay, connect, reading};
use crate::documents;
use anyhow::{Context as _, Result};
use clap::Args;
use plan::ziti_cluster::grant;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[derive(Debug, Args)]
#[command(
    after_help = "The output has the enrollment tokens of the routers: keep it as you keep a password, and apply it once.\n\n  \
kubectl exec -n ziti-operator deploy/ziti-operator -- ziti-operator bootstrap -n ziti far-api > far.yaml\n  \
kubectl --context far apply -f far.yaml\n\n\
Nothing is written by this command. Once the operator reaches the cluster, it takes these objects for its own: no router enrolls anew."
)]
pub(crate) struct BootstrapArgs {
    /// Name of a ZitiRouter with `spec.clusterRef`.
    name: String,

    /// Its namespace. Default: that of the kubeconfig.
    #[arg(short, long)]
    namespace: Option<String>,

    /// Name of the account for the operator, and of everything that belongs to it.
    #[arg(long, default_value = "ziti-operator-hub")]
    account: String,

    #[command(flatten)]
    installation: Installation,
}

/// Print the objects.
pub(crate) fn run(args: &BootstrapArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let objects = runtime.block_on(objects(args))?;
    documents::print(&objects)
}

async fn objects(args: &BootstrapArgs) -> Result<Vec<Value>> {
    let client = connect().await?;
    let namespace = match &args.namespace {
        Some(namespace) => namespace.clone(),
        None => client.default_namespace().to_owned(),
    };
    let settings = args.installation.settings(&client).await?;
    let client = reading(client, Overlay::default());
    let namespaces = BTreeSet::from([namespace.clone()]);
    let look = Look::new(client, settings, false, &namespaces).await?;
    let (there, of_set) = look.bootstrap(&namespace, &args.name).await?;
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": there}});
    let account = grant::objects(&args.account, &there);
    Ok(std::iter::once(space)
        .chain(account)
        .chain(of_set)
        .collect())
}
