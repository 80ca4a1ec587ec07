//! The commands of a working day, as `cargo xtask <command>`. Each is thin: what it does lies in
//! `crates/testbed`, what it shows lies in [`output`].

mod bench;
mod build;
mod cluster_commands;
mod crds;
mod demo;
mod output;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use testbed::{cluster, interrupt};

/// The commands of a working day.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// From a bare machine to two enrolled routers: the README's first command.
    Demo(demo::Demo),
    /// Measures the operator beside the same routers started by hand.
    Bench(bench::Bench),
    /// Formatting, lints and all tests: what must pass before a change is done.
    Test(test::Test),
    /// Builds the pinned programs (Kubernetes, etcd, CoreDNS, Helm, Ziti) into the cache.
    Tools,
    /// Starts a local Kubernetes, or what of it does not run.
    Up {
        #[command(flatten)]
        place: Place,
        /// How many nodes it has at least.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=i64::from(cluster::MAX_NODES)))]
        nodes: u8,
        /// With a second cluster beside it, which it reaches.
        #[arg(long)]
        second: bool,
    },
    /// Ends a local Kubernetes and removes all that it left.
    Down {
        #[command(flatten)]
        place: Place,
        /// Ends every cluster in the cache.
        #[arg(long, conflicts_with_all = ["name", "dir"])]
        all: bool,
    },
    /// Generates the chart's CRDs from the kinds. (`test` checks that they are up to date.)
    Crds,
}

/// Which local cluster.
#[derive(Debug, Clone, Args)]
struct Place {
    /// The cluster's name; several live side by side.
    #[arg(long, default_value = cluster::DEFAULT_NAME)]
    name: String,
    /// Where its state goes, instead of `run/<name>` in the cache.
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl Place {
    /// The arguments that name it, each after a space; none for the default.
    fn arguments(&self) -> String {
        let named = self.name != cluster::DEFAULT_NAME;
        let name = named.then(|| format!(" --name {}", self.name));
        let dir = self
            .dir
            .as_ref()
            .map(|dir| format!(" --dir {}", dir.display()));
        name.into_iter().chain(dir).collect()
    }
}

fn main() -> ExitCode {
    let outcome = tokio::runtime::Runtime::new()
        .context("starting the runtime")
        .and_then(|runtime| runtime.block_on(run(Cli::parse())));
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        // What is wrong is said already.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            output::failure(&error);
            ExitCode::FAILURE
        }
    }
}

/// Runs a command; returns whether all is well.
async fn run(cli: Cli) -> Result<bool> {
    interrupt::listen()?;
    match cli.command {
        Command::Demo(demo) => demo.run().await?,
        Command::Bench(bench) => bench.run().await?,
        Command::Test(test) => return test.run().await,
        Command::Crds => crds::write()?,
        Command::Tools => cluster_commands::tools().await?,
        Command::Up {
            place,
            nodes,
            second,
        } => cluster_commands::up(place, nodes, second).await?,
        Command::Down { place, all } => cluster_commands::down(place, all).await?,
    }
    Ok(true)
}
