//! `ziti-operator`: runs Ziti routers as Kubernetes runs everything else.
//!
//! This room watches, observes, applies and writes status; what to do is
//! decided in `plan`, what to say to Ziti is known by `ziti`. Three controllers
//! of the same shape (observe, plan, apply, status) live in [`network`],
//! [`edge_router`] and [`set`]; [`networks`] is what they share.

mod cli;
mod cluster_dns;
mod context;
mod edge_router;
mod events;
mod health;
mod io;
mod leader;
mod network;
mod networks;
mod picture;
mod poller;
mod problem;
mod run;
mod set;

use anyhow::Result;
use clap::Parser;

fn main() -> Result<()> {
    // Before anything speaks TLS: with no default provider rustls panics.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match cli::Cli::parse().command {
        cli::Command::Run(args) => run::run(args),
        cli::Command::Crds => cli::print_crds(),
    }
}
