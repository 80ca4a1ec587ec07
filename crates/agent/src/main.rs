//! `ziti-agent`: the command line of the [`agent`] library.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use agent::backup::{self, cli::BackupArgs, cli::RestoreArgs};
use agent::cli::{Cli, Command, ControllerArgs, DrainArgs, EnrollArgs, SidecarArgs, SnapshotArgs};
use agent::disk::RealDisk;
use agent::enroll::{Request, enroll};
use agent::report::{Outcome, Report};
use agent::sidecar;
use agent::socket::controller::take_snapshot;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;

/// One thread: the agent waits more than it works, and its memory counts in every pod.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_env_filter(filter)
        .init();
    match cli.command {
        Command::Enroll(args) => run_enroll(&args).await,
        Command::Sidecar(args) => run_sidecar(&args).await,
        Command::Controller(args) => run_controller(&args).await,
        Command::Drain(args) => run_drain(&args).await,
        Command::Snapshot(args) => run_snapshot(&args).await,
        Command::Backup(args) => run_backup(&args).await,
        Command::Restore(args) => run_restore(&args).await,
    }
}

async fn run_sidecar(args: &SidecarArgs) -> ExitCode {
    told(sidecar::run_beside_router(&args.into(), stopped()).await)
}

async fn run_controller(args: &ControllerArgs) -> ExitCode {
    let (options, snapshots) = (args.options(), args.snapshots());
    let orders = args.orders();
    told(sidecar::run_beside_controller(&options, orders, snapshots.as_ref(), stopped()).await)
}

async fn run_drain(args: &DrainArgs) -> ExitCode {
    told(sidecar::request_drain(&args.router_tmp).await)
}

async fn run_snapshot(args: &SnapshotArgs) -> ExitCode {
    let taken = take_snapshot(&args.controller_tmp, &args.file).await;
    told(taken.map(|path| info!(path, "the database is in the snapshot")))
}

async fn run_backup(args: &BackupArgs) -> ExitCode {
    let report = backup::save(&args.into(), stopped()).await;
    reported(&report, &args.place.termination_log)
}

async fn run_restore(args: &RestoreArgs) -> ExitCode {
    let report = backup::fetch(&args.into(), stopped()).await;
    reported(&report, &args.place.termination_log)
}

fn reported(report: &backup::report::Report, termination_log: &Path) -> ExitCode {
    let line = report.to_line();
    write_last(&line, termination_log);
    if report.is_failure() {
        error!(report = line, "no backup");
        return ExitCode::FAILURE;
    }
    info!(report = line, "done");
    ExitCode::SUCCESS
}

fn told(ended: Result<(), impl Error>) -> ExitCode {
    let Err(problem) = ended else {
        return ExitCode::SUCCESS;
    };
    let cause = problem.source().map(ToString::to_string);
    error!(cause, "{problem}");
    ExitCode::FAILURE
}

async fn run_enroll(args: &EnrollArgs) -> ExitCode {
    let report = enroll(&Request::from(args), RealDisk, stopped()).await;
    publish(&report, &args.termination_log);
    if report.outcome == Outcome::Failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Turns true at SIGTERM. The first process of a container has no default action for signals:
/// without this, a pod that waits for a controller takes its whole grace period to go.
fn stopped() -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::spawn(async move {
                terminate.recv().await;
                // Nobody listens when the work is done already.
                let _ = sender.send(true);
            });
        }
        Err(error) => warn!(%error, "cannot listen for SIGTERM"),
    }
    receiver
}

fn publish(report: &Report, termination_log: &Path) {
    let line = report.to_line();
    match report.outcome {
        Outcome::Failed => error!(report = line, "no identity"),
        Outcome::Enrolled | Outcome::AlreadyEnrolled => info!(report = line, "identity ready"),
    }
    write_last(&line, termination_log);
}

fn write_last(line: &str, termination_log: &Path) {
    // Outside of a pod there is none, and the log has said it.
    if let Err(error) = std::fs::write(termination_log, format!("{line}\n")) {
        warn!(%error, path = %termination_log.display(), "cannot write the termination message");
    }
}
