//! `ziti-operator`: runs Ziti routers as Kubernetes runs everything else.
//!
//! This room watches, observes, applies and writes status; what to do is
//! decided in `plan`, what to say to Ziti is known by `ziti`. Three controllers
//! of the same shape (observe, plan, apply, status) live in [`network`],
//! [`edge_router`] and [`set`]; [`networks`] is what they share.

mod adopt;
mod cadence;
mod claim;
mod cli;
mod cluster_dns;
mod context;
mod controller;
mod controllers;
mod convert;
mod documents;
mod edge_router;
mod events;
mod health;
mod install;
mod io;
mod leader;
mod network;
mod networks;
mod nodes;
mod picture;
mod place;
mod poller;
mod preview;
mod problem;
mod run;
mod set;
mod spread;
mod stream;
mod watches;
mod ziti_cluster;

use anyhow::Result;
use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything speaks TLS: with no default provider rustls panics.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    // Not clap's own exit: its 2 means here that something would be done.
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let asked = !error.use_stderr();
            let printed = error.print().is_ok();
            return ExitCode::from(u8::from(!(asked && printed)));
        }
    };
    match carry_out(cli.command) {
        Ok(code) => code,
        Err(error) => {
            // As main would print it.
            let _ = writeln!(std::io::stderr(), "Error: {error:?}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(command: cli::Command) -> Result<ExitCode> {
    match command {
        cli::Command::Run(args) => run::run(args)?,
        cli::Command::Crds => cli::print_crds()?,
        cli::Command::Adopt(args) => adopt::run(&args)?,
        cli::Command::Convert(args) => convert::run(&args)?,
        cli::Command::ClusterCredential(args) => ziti_cluster::command::run(&args)?,
        cli::Command::Spread(args) => spread::run(&args)?,
        cli::Command::Bootstrap(args) => preview::bootstrap::run(&args)?,
        cli::Command::Plan(args) => return preview::run(&args),
    }
    Ok(ExitCode::SUCCESS)
}
