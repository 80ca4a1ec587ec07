//! The arguments of `backup` and `restore`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{Bucket, Fetch, Members, Place, Save, Series};

/// Whose backups.
#[derive(Debug, Args)]
pub struct SeriesArgs {
    /// The namespace of the ZitiController.
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: String,
    /// The name of the ZitiController.
    #[arg(long, value_name = "NAME")]
    pub name: String,
}

/// One of both.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct WhereArgs {
    /// The directory of the backups.
    #[arg(long, value_name = "DIR")]
    volume: Option<PathBuf>,
    /// The bucket of the backups.
    #[arg(long, value_name = "NAME")]
    bucket: Option<String>,
}

/// Where backups are, and where it is said how it ended. The credentials of a bucket are taken from the
/// environment, as AWS names it.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// Below which path of the bucket.
    #[arg(long, value_name = "PATH", requires = "bucket")]
    prefix: Option<String>,
    /// The region of the bucket; `us-east-1` where neither this nor the environment says it.
    #[arg(long, value_name = "REGION", requires = "bucket")]
    region: Option<String>,
    /// The server, where it is not AWS: `https://host[:port]`.
    #[arg(long, value_name = "URL", requires = "bucket")]
    endpoint: Option<String>,
    /// CA bundle (PEM) of the server, in place of the public authorities.
    #[arg(long, value_name = "FILE", requires = "bucket")]
    ca: Option<PathBuf>,
    /// Where the report goes, besides the log.
    #[arg(long, value_name = "FILE", default_value = "/dev/termination-log")]
    pub termination_log: PathBuf,
}

/// Arguments of `backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    #[command(flatten)]
    pub(super) series: SeriesArgs,
    /// Where it goes, and how it ended.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// The uid of the ZitiController, which tells its backups from those of others of its name.
    #[arg(long, value_name = "UID")]
    pub(super) uid: String,
    /// The trust domain of the network.
    #[arg(long, value_name = "DOMAIN")]
    pub(super) trust_domain: String,
    /// Where the members give snapshots.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', required = true)]
    pub(super) members: Vec<String>,
    /// The client certificate of backups (PEM).
    #[arg(long, value_name = "FILE")]
    pub(super) certificate: PathBuf,
    /// Its key.
    #[arg(long, value_name = "FILE")]
    pub(super) key: PathBuf,
    /// The roots of the network (PEM).
    #[arg(long, value_name = "FILE")]
    pub(super) trust: PathBuf,
    /// The Secret of the root, mounted.
    #[arg(long, value_name = "DIR")]
    pub(super) root: PathBuf,
    /// The Secret of the members' certificates, mounted.
    #[arg(long, value_name = "DIR")]
    pub(super) pki: PathBuf,
    /// The Secret of the administrator, mounted.
    #[arg(long, value_name = "DIR")]
    pub(super) admin: PathBuf,
    /// The age public keys of those who can read it.
    #[arg(long, value_name = "AGE1…", value_delimiter = ',', required = true)]
    pub(super) recipients: Vec<String>,
    /// How many backups of this network are kept.
    #[arg(long, value_name = "COUNT")]
    pub(super) keep: usize,
    /// A directory with room for a backup; what is written there is encrypted.
    #[arg(long, value_name = "DIR")]
    pub(super) scratch: PathBuf,
    /// How long the members are asked for a snapshot.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(super) within: u64,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    #[command(flatten)]
    pub(super) series: SeriesArgs,
    /// Where it is, and how it ended.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// The file of the backup, which may be of another name; the newest of this name where it is not
    /// said.
    #[arg(long, value_name = "FILE")]
    pub(super) snapshot: Option<String>,
    /// The age private key with which it is opened.
    #[arg(long, value_name = "FILE")]
    pub(super) identity: PathBuf,
    /// The age public key to which the keys of the network are encrypted in the report.
    #[arg(long, value_name = "AGE1…")]
    pub(super) recipient: String,
    /// The data volume of the member that restores the database.
    #[arg(long, value_name = "DIR")]
    pub(super) data: PathBuf,
    /// The name that the database gets there.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "ziti-agent.restore-from.db"
    )]
    pub(super) file: String,
    /// The identifier of the root's key, where the network has a root already.
    #[arg(long, value_name = "HEX")]
    pub(super) root_key_id: Option<String>,
}

impl From<&SeriesArgs> for Series {
    fn from(args: &SeriesArgs) -> Self {
        Self {
            namespace: args.namespace.clone(),
            name: args.name.clone(),
        }
    }
}

impl PlaceArgs {
    fn place(&self) -> Place {
        match (&self.place.volume, &self.place.bucket) {
            (_, Some(name)) => Place::Bucket(Bucket {
                name: name.clone(),
                prefix: self.prefix.clone().unwrap_or_default(),
                region: self.region.clone(),
                endpoint: self.endpoint.clone(),
                ca: self.ca.clone(),
            }),
            // The group above has seen to it that one of both is there.
            (volume, None) => Place::Volume(volume.clone().unwrap_or_default()),
        }
    }
}

impl From<&BackupArgs> for Save {
    fn from(args: &BackupArgs) -> Self {
        Self {
            series: (&args.series).into(),
            uid: args.uid.clone(),
            place: args.place.place(),
            members: Members {
                hosts: args.members.clone(),
                trust_domain: args.trust_domain.clone(),
                certificate: args.certificate.clone(),
                key: args.key.clone(),
                trust: args.trust.clone(),
                within: Duration::from_secs(args.within),
            },
            root: args.root.clone(),
            pki: args.pki.clone(),
            admin: args.admin.clone(),
            recipients: args.recipients.clone(),
            keep: args.keep,
            scratch: args.scratch.clone(),
        }
    }
}

impl From<&RestoreArgs> for Fetch {
    fn from(args: &RestoreArgs) -> Self {
        Self {
            series: (&args.series).into(),
            place: args.place.place(),
            snapshot: args.snapshot.clone(),
            identity: args.identity.clone(),
            recipient: args.recipient.clone(),
            to: args.data.join(&args.file),
            root_key_id: args.root_key_id.clone(),
        }
    }
}
