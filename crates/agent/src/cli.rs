//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use ziti::pki::Sans;

use crate::enroll::{OnMismatch, Request};
use crate::sidecar;

/// What runs beside a Ziti router.
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
    /// Asks the sidecar for the drain and waits for its end: a preStop hook.
    Drain(DrainArgs),
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
            router_tmp: args.router_tmp.clone(),
            port: args.port,
            drain_within: Duration::from_secs(args.drain_seconds),
        }
    }
}

/// Arguments of `drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// As the sidecar has it.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
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
            endpoints: args.endpoint.clone(),
            on_mismatch: args.on_mismatch,
            ca_file: args.ca_file.clone(),
            retry_for: Duration::from_secs(args.retry_seconds),
        }
    }
}
