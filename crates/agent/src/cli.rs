//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use ziti::pki::Sans;

use crate::backup::cli::{BackupArgs, RestoreArgs};
use crate::enroll::{OnMismatch, Request};
use crate::sidecar;

/// What runs beside a Ziti router or controller.
#[derive(Debug, Parser)]
#[command(name = "ziti-agent", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the agent can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Makes sure that there is an identity for the router on its volume.
    Enroll(Box<EnrollArgs>),
    /// Says when the router beside it is ready, and drains it when the pod leaves.
    Sidecar(SidecarArgs),
    /// Initializes the controller beside it, says when it is ready, and hands over when the pod leaves.
    Controller(ControllerArgs),
    /// Asks the sidecar for the drain and waits for its end: a preStop hook.
    Drain(DrainArgs),
    /// Has the controller beside it write its database into a file.
    Snapshot(SnapshotArgs),
    /// Makes a backup of a network: the members' database and the Secrets, encrypted.
    Backup(Box<BackupArgs>),
    /// Fetches a backup: puts the database where a member restores it from, and hands over the keys.
    Restore(Box<RestoreArgs>),
}

/// Arguments of `controller`.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// The id of this member: the common name of the controller's certificate.
    #[arg(long, value_name = "ID")]
    pub member: String,
    /// The temporary directory (`TMPDIR`) of the controller, shared with it; writable.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    pub controller_tmp: PathBuf,
    /// What this member may do: a Secret that is filled and emptied while the pod runs.
    #[arg(long, value_name = "DIR", default_value = "/etc/ziti/bootstrap")]
    pub bootstrap: PathBuf,
    /// The controller's data directory, at the same path in both containers; writable.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ziti")]
    pub data: PathBuf,
    /// Port for the kubelet's requests.
    #[arg(long, value_name = "PORT", default_value_t = 10090)]
    pub port: u16,
    /// How long the leadership has to be handed over when the pod leaves.
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    pub drain_seconds: u64,
    /// Port on which backups get the database, by TLS; none without it.
    #[arg(long, value_name = "PORT", requires_all = ["certificate", "key", "trust"])]
    pub backup_port: Option<u16>,
    /// The controller's certificate, for that port.
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// The roots of the network, one of which must have signed the certificate of a backup.
    #[arg(long, value_name = "FILE")]
    pub trust: Option<PathBuf>,
}

impl ControllerArgs {
    /// How backups get the database, where they do.
    pub fn snapshots(&self) -> Option<sidecar::Snapshots> {
        Some(sidecar::Snapshots {
            port: self.backup_port?,
            certificate: self.certificate.clone()?,
            key: self.key.clone()?,
            trust: self.trust.clone()?,
        })
    }

    /// How the sidecar runs.
    pub fn options(&self) -> sidecar::Options {
        sidecar::Options {
            tmp: self.controller_tmp.clone(),
            port: self.port,
            drain_within: Duration::from_secs(self.drain_seconds),
        }
    }

    /// Where it finds what it may do.
    pub fn orders(&self) -> sidecar::Orders {
        sidecar::Orders {
            member: self.member.clone(),
            bootstrap: self.bootstrap.clone(),
            data: self.data.clone(),
        }
    }
}

/// Arguments of `snapshot`.
#[derive(Debug, Args)]
pub struct SnapshotArgs {
    /// The temporary directory (`TMPDIR`) of the controller.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    pub controller_tmp: PathBuf,
    /// Where the snapshot goes, as the controller sees it.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Arguments of `sidecar`.
#[derive(Debug, Args)]
pub struct SidecarArgs {
    /// The temporary directory (`TMPDIR`) of the router, shared with it; writable.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    pub router_tmp: PathBuf,
    /// Port for the kubelet's requests.
    #[arg(long, value_name = "PORT", default_value_t = 10090)]
    pub port: u16,
    /// How long running circuits have to end when the pod leaves.
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    pub drain_seconds: u64,
}

impl From<&SidecarArgs> for sidecar::Options {
    fn from(args: &SidecarArgs) -> Self {
        Self {
            tmp: args.router_tmp.clone(),
            port: args.port,
            drain_within: Duration::from_secs(args.drain_seconds),
        }
    }
}

/// Arguments of `drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// As the sidecar has it.
    #[arg(
        long,
        visible_alias = "controller-tmp",
        value_name = "DIR",
        default_value = "/tmp"
    )]
    pub router_tmp: PathBuf,
}

/// Arguments of `enroll`.
#[derive(Debug, Args)]
pub struct EnrollArgs {
    /// Where the identity is, or goes; writable.
    #[arg(long, value_name = "DIR", default_value = "/etc/ziti/config")]
    pub identity_dir: PathBuf,
    /// The enrollment token. Empty, absent or a directory all mean that there is none.
    #[arg(long, value_name = "FILE", default_value = "/etc/ziti/enroll/token")]
    pub token_file: PathBuf,
    /// A host name of the router's server certificate.
    #[arg(long, value_name = "NAME")]
    pub dns: Vec<String>,
    /// An address of the router's server certificate.
    #[arg(long, value_name = "IP")]
    pub ip: Vec<IpAddr>,
    /// More names and addresses of the router's server certificate, one a line.
    #[arg(long, value_name = "FILE")]
    pub names_file: Option<PathBuf>,
    /// Where the router finds a controller (`tls:host:port`), in place of what the token says.
    #[arg(long, value_name = "ADDRESS")]
    pub endpoint: Vec<String>,
    /// What to do with the identity of another router than the token's.
    #[arg(long, value_enum, default_value = "refuse")]
    pub on_mismatch: OnMismatch,
    /// CA bundle (PEM) of the network that the token must belong to.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// How long to go on while the controller cannot be reached.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub retry_seconds: u64,
    /// Where the report goes, besides the log.
    #[arg(long, value_name = "FILE", default_value = "/dev/termination-log")]
    pub termination_log: PathBuf,
}

impl From<&EnrollArgs> for Request {
    fn from(args: &EnrollArgs) -> Self {
        Self {
            identity_dir: args.identity_dir.clone(),
            token_file: args.token_file.clone(),
            sans: Sans {
                dns: args.dns.clone(),
                ips: args.ip.clone(),
                uris: Vec::new(),
            },
            names_file: args.names_file.clone(),
            endpoints: args.endpoint.clone(),
            on_mismatch: args.on_mismatch,
            ca_file: args.ca_file.clone(),
            retry_for: Duration::from_secs(args.retry_seconds),
        }
    }
}
