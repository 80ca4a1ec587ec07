//! `ziti-operator plan`: what the controllers would do, told and not done.
//!
//! Observation and plan are the controllers' own; [`overlay`] makes a file look
//! applied and keeps every write from leaving the process, [`foresee`] asks the
//! planners on, [`calls`] puts their steps as the calls that carry them out, and
//! [`report`] prints them; [`bootstrap`] prints what somebody else has to apply. `main` calls [`run`].

pub(crate) mod bootstrap;
mod calls;
mod controller_calls;
mod documents;
mod foresee;
mod overlay;
mod report;

pub(crate) use foresee::Look;
pub(crate) use overlay::{Overlay, reading};

use crate::cluster_dns;
use crate::events::Events;
use crate::install;
use anyhow::{Context as _, Result, bail};
use clap::{ArgAction, Args, ValueEnum};
use documents::{Documents, Subject};
use kube::{Client, Config};
use plan::Settings;
use report::Report;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code where something would be done.
const SOMETHING: u8 = 2;
/// Exit code where it could not be told.
const FAILED: u8 = 1;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 when nothing would be done, 2 when something would be done, 1 when it \
failed or could not be told.\n\nNothing is written: not to Kubernetes, not to Ziti. A file is checked by the API server with a \
dry run. The quickest way is in the operator's own pod, where all else is known:\n  kubectl exec -i \
-n ziti-operator deploy/ziti-operator -- ziti-operator plan -n my-namespace -f - < router.yaml"
)]
pub(crate) struct PlanArgs {
    /// An object: NAME, or KIND/NAME where several have that name.
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    name: Option<String>,

    /// A file with ZitiControllers, ZitiRouters, EdgeRouters and ZitiNetworks (and
    /// the Secrets and ConfigMaps that they name), taken as if it had been applied; `-` for
    /// standard input.
    #[arg(short, long)]
    file: Option<PathBuf>,

    /// Namespace of what names none. Default: that of the kubeconfig.
    #[arg(short, long)]
    namespace: Option<String>,

    /// Form of the answer.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,

    #[command(flatten)]
    installation: Installation,

    /// As given to `ziti-operator run`: whether the cluster's nodes may be read.
    #[arg(long, env = "ZITI_OPERATOR_NODES", action = ArgAction::Set, default_value_t = true)]
    nodes: bool,
}

/// The installation of the operator: in its own pod, all of it is known.
#[derive(Debug, Args)]
pub(crate) struct Installation {
    /// As given to `ziti-operator run`.
    #[arg(long, env = "ZITI_OPERATOR_INSTALL_ID")]
    install_id: String,

    /// As given to `ziti-operator run`: the namespace in which it is installed.
    /// Without it, a router that a re-creation left is told as another's.
    #[arg(long, env = "POD_NAMESPACE")]
    lease_namespace: Option<String>,

    /// As given to `ziti-operator run`.
    #[arg(long, env = "ZITI_OPERATOR_AGENT_IMAGE")]
    agent_image: String,

    /// As given to `ziti-operator run`.
    #[arg(long, env = "ZITI_OPERATOR_ROUTER_IMAGE")]
    router_image: String,

    /// As given to `ziti-operator run`.
    #[arg(
        long,
        env = "ZITI_OPERATOR_CONTROLLER_IMAGE",
        default_value = "docker.io/openziti/ziti-controller:2.0.3"
    )]
    controller_image: String,
}

impl Installation {
    async fn settings(&self, client: &Client) -> Result<Settings> {
        let install_uid = match &self.lease_namespace {
            Some(namespace) => Some(install::uid(client, namespace).await?),
            None => None,
        };
        Ok(Settings {
            install_id: self.install_id.clone(),
            install_uid,
            agent_image: self.agent_image.clone(),
            router_image: self.router_image.clone(),
            controller_image: self.controller_image.clone(),
            cluster_dns: cluster_dns::own(),
        })
    }
}

/// Form of what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Lines for a person.
    Text,
    /// One JSON object, with the bodies of the calls.
    Json,
}

/// Tell what would be done.
pub(crate) fn run(args: &PlanArgs) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let report = runtime.block_on(plan(args))?;
    let text = match args.output {
        Output::Text => report.to_string(),
        Output::Json => {
            serde_json::to_string_pretty(&report).context("writing the plan as JSON")? + "\n"
        }
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .context("printing the plan")?;
    Ok(ExitCode::from(if !report.is_known() {
        FAILED
    } else if report.is_empty() {
        0
    } else {
        SOMETHING
    }))
}

async fn plan(args: &PlanArgs) -> Result<Report> {
    let client = connect().await?;
    let namespace = match &args.namespace {
        Some(namespace) => namespace.clone(),
        None => client.default_namespace().to_owned(),
    };
    let documents = match (&args.file, &args.name) {
        (Some(file), _) => {
            let text = crate::documents::read(file)?;
            documents::of_file(&client, &text, &namespace).await?
        }
        (None, Some(name)) => Documents {
            subjects: vec![documents::by_name(&client, name, &namespace).await?],
            overlay: Overlay::default(),
            notes: Vec::new(),
        },
        (None, None) => bail!("give a NAME, or -f FILE"),
    };
    let namespaces: BTreeSet<String> = documents.subjects.iter().map(Subject::namespace).collect();
    let settings = args.installation.settings(&client).await?;
    let client = reading(client, documents.overlay);
    let look = Look::new(client, settings, args.nodes, &namespaces).await?;
    let mut report = Report::new(documents.notes);
    for subject in &documents.subjects {
        match subject {
            Subject::Controller(object) => report.controller(look.controller(object).await?),
            Subject::Network(object) => report.network(&look.network(object).await?),
            Subject::EdgeRouter(object) => report.edge_router(&look.edge_router(object).await?),
            Subject::Router(object) => {
                let seen = look.router(object).await?;
                report.router(seen.set);
                for member in &seen.members {
                    report.edge_router(member);
                }
            }
        }
    }
    Ok(report)
}

/// The cluster, as kubectl would reach it, or as a pod does.
pub(crate) async fn connect() -> Result<Client> {
    // With the client's own retries: there is nothing that they could repeat.
    let config = Config::infer()
        .await
        .context("finding the Kubernetes API: in a pod, or by KUBECONFIG")?;
    Client::try_from(config).context("making the Kubernetes client")
}

/// Events of a process that publishes none: its client cannot write.
fn no_events(client: &Client) -> Events {
    Events::new(client.clone(), "ziti-operator-plan")
}
