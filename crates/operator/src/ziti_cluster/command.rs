//! `ziti-operator cluster-credential`: what the other cluster has to apply, and
//! what of it the hub gets. `main` calls [`run`].

use crate::documents;
use anyhow::{Context, Result, bail};
use api::names;
use clap::Args;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::{Client, Config};
use plan::ziti_cluster::grant;
use serde_json::{Value, json};

#[derive(Debug, Args)]
#[command(
    after_help = "Two steps, in each of which the output is applied:\n\n  \
ziti-operator cluster-credential -n edge | kubectl --context far apply -f -\n  \
ziti-operator cluster-credential -n edge --cluster far | kubectl --context hub apply -n ziti -f -\n\n\
The first prints the account and its rights, and reaches nothing. The second reads the account's token from the cluster of \
KUBECONFIG, which must be the other one, and prints a Secret with it and a ZitiCluster: keep the output as you keep a password."
)]
pub(crate) struct CredentialArgs {
    /// The namespace in the other cluster in which routers are to be deployed.
    #[arg(short, long)]
    namespace: String,

    /// Name of the account, and of everything that belongs to it.
    #[arg(long, default_value = "ziti-operator-hub")]
    name: String,

    /// Also print the right to read the cluster's nodes, which routers of topology
    /// PerNode need there.
    #[arg(long, conflicts_with = "cluster")]
    nodes: bool,

    /// Name of the ZitiCluster: print it, and the Secret that it names.
    #[arg(long)]
    cluster: Option<String>,

    /// Address of the other cluster's API as the hub reaches it, where that is
    /// not the one in KUBECONFIG.
    #[arg(long, requires = "cluster")]
    server: Option<String>,

    /// The name in the certificate of that API, where it is not the host of its
    /// address.
    #[arg(long, requires = "cluster")]
    tls_server_name: Option<String>,
}

/// Print the objects.
pub(crate) fn run(args: &CredentialArgs) -> Result<()> {
    let objects = match &args.cluster {
        None => {
            let mut objects = grant::objects(&args.name, &args.namespace);
            if args.nodes {
                objects.extend(grant::of_nodes(&args.name, &args.namespace));
            }
            objects
        }
        Some(cluster) => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("starting the runtime")?;
            runtime.block_on(for_the_hub(args, cluster))?
        }
    };
    documents::print(&objects)
}

async fn for_the_hub(args: &CredentialArgs, cluster: &str) -> Result<Vec<Value>> {
    let config = Config::infer()
        .await
        .context("finding the Kubernetes API of the other cluster, by KUBECONFIG")?;
    let server = match &args.server {
        Some(server) => server.clone(),
        None => config.cluster_url.to_string(),
    };
    let client = Client::try_from(config).context("making the Kubernetes client")?;
    let (namespace, name) = (&args.namespace, &args.name);
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let secret = api
        .get_opt(name)
        .await
        .with_context(|| format!("reading Secret {name} in namespace {namespace}"))?;
    let Some(secret) = secret else {
        bail!(
            "there is no Secret {name} in namespace {namespace} of that cluster: apply there what this command prints without --cluster"
        );
    };
    let data = secret.data.unwrap_or_default();
    let (Some(token), Some(authority)) = (data.get("token"), data.get("ca.crt")) else {
        bail!(
            "Secret {name} in namespace {namespace} has no token yet: the cluster puts it there within seconds. If it stays away, \
             something else of that name was there before"
        );
    };
    let mut spec = json!({
        "server": server.trim_end_matches('/'),
        "credential": {"token": {"name": format!("{cluster}-credential")}},
        "namespace": namespace,
    });
    if let Some(name) = &args.tls_server_name {
        spec["tlsServerName"] = json!(name);
    }
    Ok(vec![
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": format!("{cluster}-credential")},
            "type": names::SECRET_TYPE_CLUSTER,
            "data": {"token": token, "ca.crt": authority},
        }),
        json!({
            "apiVersion": "openziti.io/v1alpha1",
            "kind": "ZitiCluster",
            "metadata": {"name": cluster},
            "spec": spec,
        }),
    ])
}
