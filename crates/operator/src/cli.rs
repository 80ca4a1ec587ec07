//! The command line.

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::io::Write;

/// Runs Ziti routers on Kubernetes.
#[derive(Debug, Parser)]
#[command(version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the controllers.
    Run(RunArgs),
    /// Print the custom resource definitions as YAML.
    Crds,
    /// Tell what would be done for an object, without doing it.
    Plan(crate::preview::PlanArgs),
    /// Make our objects of the proof of concept's manifest or of a chart's values.
    Convert(crate::convert::ConvertArgs),
    /// Print the steps that take over a router which the Helm chart deployed.
    Adopt(crate::adopt::AdoptArgs),
    /// Print what another cluster has to apply, so that routers can be deployed there.
    ClusterCredential(crate::ziti_cluster::command::CredentialArgs),
    /// Print a ZitiRouter for each of many clusters, made of one.
    Spread(crate::spread::SpreadArgs),
    /// Print with what a set begins in a cluster that is reached through that very set.
    Bootstrap(crate::preview::bootstrap::BootstrapArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Id of this installation: put as a tag on every router that it registers,
    /// so that two installations on one network keep off each other's routers.
    /// Never change it while routers are registered.
    #[arg(long, env = "ZITI_OPERATOR_INSTALL_ID", value_parser = install_id)]
    pub(crate) install_id: String,

    /// Image that holds `ziti-agent`, for the init container of routers:
    /// the operator's own.
    #[arg(long, env = "ZITI_OPERATOR_AGENT_IMAGE")]
    pub(crate) agent_image: String,

    /// Image of routers whose ZitiRouter names none.
    #[arg(long, env = "ZITI_OPERATOR_ROUTER_IMAGE")]
    pub(crate) router_image: String,

    /// Image of controllers whose ZitiController names none.
    #[arg(
        long,
        env = "ZITI_OPERATOR_CONTROLLER_IMAGE",
        default_value = "docker.io/openziti/ziti-controller:2.0.3"
    )]
    pub(crate) controller_image: String,

    /// Namespace to serve; may be given more than once. Default: all.
    #[arg(
        long = "watch-namespace",
        env = "ZITI_OPERATOR_WATCH_NAMESPACES",
        value_delimiter = ','
    )]
    pub(crate) watch_namespaces: Vec<String>,

    /// Namespace in which the operator is installed: of the Lease by which one
    /// of several replicas is chosen. Its uid, put as a tag on routers beside
    /// the installation's id, tells two installations of one id apart.
    #[arg(long, env = "POD_NAMESPACE")]
    pub(crate) lease_namespace: Option<String>,

    /// Name of that Lease. Two releases in one namespace need two, or one of
    /// them would wait for ever.
    #[arg(long, default_value = "ziti-operator")]
    pub(crate) lease_name: String,

    /// Name under which this process holds the Lease.
    #[arg(long, env = "POD_NAME")]
    pub(crate) identity: Option<String>,

    /// Address of `/healthz` and `/readyz`.
    #[arg(long, default_value = "0.0.0.0:8081")]
    pub(crate) health_address: std::net::SocketAddr,

    /// Whether the cluster's nodes may be read, as topology `PerNode` needs.
    #[arg(long, action = clap::ArgAction::Set, default_value_t = true)]
    pub(crate) nodes: bool,

    /// How many objects of a kind are worked on at the same time.
    #[arg(long, default_value_t = 8)]
    pub(crate) concurrency: u16,

    /// Form of the log.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for a person.
    Text,
    /// One JSON object a line.
    Json,
}

fn install_id(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    if text.is_empty() || text.len() > 63 || !text.chars().all(plain) {
        return Err("1 to 63 characters of a-z, A-Z, 0-9, '-', '_' and '.'".to_owned());
    }
    Ok(text.to_owned())
}

pub(crate) fn print_crds() -> Result<()> {
    let mut out = std::io::stdout().lock();
    for crd in api::crds() {
        let text = serde_saphyr::to_string(&crd).context("writing a CRD as YAML")?;
        writeln!(out, "---\n{text}").context("printing a CRD")?;
    }
    Ok(())
}
