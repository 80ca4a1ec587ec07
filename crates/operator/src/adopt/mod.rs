//! `ziti-operator adopt`: the steps by which a router that the ziti-router Helm
//! chart deployed becomes a ZitiRouter, with its id, its policies, its identity
//! and its volume.
//!
//! [`release`] reads what runs today, from Kubernetes; [`objects`] makes of it,
//! without a client, what it becomes, and [`script`] a shell script for a person to
//! read and run; [`way_back`] is the part of it that undoes the rest.
//! Nothing is changed here. `main` calls [`run`].

mod objects;
mod release;
mod script;
mod way_back;

use crate::preview::{Look, Overlay, connect, reading};
use anyhow::{Context, Result};
use api::ZitiNetwork;
use clap::Args;
use kube::api::Api;
use plan::Settings;
use std::collections::BTreeSet;
use std::io::Write;

#[derive(Debug, Args)]
#[command(
    after_help = "The script goes to standard output; nothing is changed until you run it. Read it first:\n  \
ziti-operator adopt my-router -n ziti --network my-network > adopt.sh\n  sh adopt.sh\n\nThe router is offline from the moment \
when its old pod stops until the new one has started. It is not enrolled anew: its id, its key, the policies that name it \
and the address that it advertises stay. Until you remove what the chart made, `sh adopt.sh back` undoes it."
)]
pub(crate) struct AdoptArgs {
    /// The Deployment that runs the router.
    deployment: String,

    /// Namespace of the Deployment, of the ZitiNetwork, and of the ZitiRouter to
    /// be. Default: that of the kubeconfig.
    #[arg(short, long)]
    namespace: Option<String>,

    /// The ZitiNetwork in which the router is registered.
    #[arg(long)]
    network: String,

    /// Name of the router on the network. Default: that of the Deployment.
    #[arg(long)]
    router: Option<String>,

    /// Name of the ZitiRouter to be. Default: that of the Deployment.
    #[arg(long)]
    name: Option<String>,
}

/// Print the steps.
pub(crate) fn run(args: &AdoptArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let text = runtime.block_on(steps(args))?;
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).context("printing the steps")
}

async fn steps(args: &AdoptArgs) -> Result<String> {
    let client = connect().await?;
    let namespace = args.namespace.clone();
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let client = reading(client, Overlay::default());
    let release = release::read(&client, &namespace, &args.deployment).await?;

    let networks: Api<ZitiNetwork> = Api::namespaced(client.clone(), &namespace);
    let network = networks
        .get(&args.network)
        .await
        .with_context(|| format!("reading ZitiNetwork {namespace}/{}", args.network))?;
    // Whose installation this is stands there; the images are not looked at.
    let settings = Settings {
        install_id: network
            .status
            .and_then(|status| status.install_id)
            .unwrap_or_default(),
        install_uid: None,
        agent_image: String::new(),
        router_image: String::new(),
        controller_image: String::new(),
        cluster_dns: None,
    };
    let look = Look::new(
        client,
        settings,
        false,
        &BTreeSet::from([namespace.clone()]),
    )
    .await?;
    let router = args.router.as_ref().unwrap_or(&args.deployment);
    let found = look.router_named(&namespace, &args.network, router).await?;
    let target = script::Target {
        network: args.network.clone(),
        name: args.name.clone().unwrap_or_else(|| args.deployment.clone()),
    };
    script::script(&release, &found, &target)
}
