//! How a backup is made: a member's database and the Secrets into one encrypted file, that file to where
//! backups are, and those that are too many away.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind};
use std::path::{Path, PathBuf};

use futures::TryStreamExt;
use jiff::Timestamp;
use tokio::sync::watch;
use tracing::{info, warn};
use ziti::backup::{Recipient, encrypt};
use ziti::pki::CertificateFacts;

use super::archive::{FORMAT, Files, Manifest, PackError, pack};
use super::members::{Members, Snapshot, chain};
use super::names::{Origin, Series};
use super::pipe::pipe;
use super::report::{Failure, Reason, Report, Saved};
use super::store::{Place, Store};

/// The backup on its way, below the scratch directory.
const SPOOL: &str = "backup.tar.age";

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Save {
    /// Whose backup.
    pub series: Series,
    /// The uid of the ZitiController.
    pub uid: String,
    /// Where it goes.
    pub place: Place,
    /// Who has the database.
    pub members: Members,
    /// The Secret of the root, mounted.
    pub root: PathBuf,
    /// The Secret of the members' certificates, mounted.
    pub pki: PathBuf,
    /// The Secret of the administrator, mounted.
    pub admin: PathBuf,
    /// The age public keys of those who can read it.
    pub recipients: Vec<String>,
    /// How many are kept; at least one.
    pub keep: usize,
    /// A directory with room for it.
    pub scratch: PathBuf,
}

/// Makes a backup.
pub async fn save(request: &Save, stop: watch::Receiver<bool>) -> Report {
    match super::unless_stopped(stop, request.run()).await {
        Ok(saved) => Report::Saved(saved),
        Err(failure) => Report::Failed(failure),
    }
}

impl Save {
    async fn run(&self) -> Result<Saved, Failure> {
        let recipients = self.recipients()?;
        let files = self.files()?;
        let origin = self.origin(&files)?;
        let store = Store::open(&self.place)?;
        Store::sweep(&self.place, |file| self.series.has(file));
        // Before anybody is asked for a database: there is one a minute.
        let before = store.list().await?;
        let spool = self.scratch.join(SPOOL);
        let manifest = self.pack(&recipients, &files, &spool).await?;
        let snapshot = self.series.file(manifest.taken_at, &origin);
        info!(snapshot, place = store.place(), "storing the backup");
        let bytes = store.put(&snapshot, &spool).await?;
        let packed = std::fs::metadata(&spool).map_err(|error| self.unwritten(&error))?;
        if packed.len() != bytes {
            let why = format!(
                "{snapshot} has {bytes} bytes in {}, and {} were written: delete it",
                store.place(),
                packed.len()
            );
            return Err(Failure::new(Reason::Damaged, why));
        }
        let (kept, message) = self.prune(&store, &snapshot, &origin, before).await;
        Ok(Saved {
            snapshot,
            bytes,
            taken_at: manifest.taken_at,
            kept,
            message,
        })
    }

    fn recipients(&self) -> Result<Vec<Recipient>, Failure> {
        let recipients = self.recipients.iter().map(|text| text.parse());
        recipients
            .collect::<Result<_, _>>()
            .map_err(|error: ziti::backup::BackupError| {
                Failure::new(Reason::Misconfigured, error.to_string())
            })
    }

    /// The Secrets. What a restore cannot do without must be there.
    fn files(&self) -> Result<Files, Failure> {
        let mut files = Files::new();
        for (name, directory) in [
            ("root", &self.root),
            ("pki", &self.pki),
            ("admin", &self.admin),
        ] {
            let mounted = mounted(directory).map_err(|error| {
                let why = format!("cannot read {}: {error}", directory.display());
                Failure::new(Reason::Misconfigured, why)
            })?;
            let named = mounted.into_iter();
            files.extend(named.map(|(file, content)| (format!("{name}/{file}"), content)));
        }
        for needed in [
            "root/ca.crt",
            "root/ca.key",
            "admin/username",
            "admin/password",
        ] {
            if files.get(needed).is_none_or(Vec::is_empty) {
                let why = format!("the Secrets that are mounted lack {needed}");
                return Err(Failure::new(Reason::Misconfigured, why));
            }
        }
        Ok(files)
    }

    /// By which the backups of this network are told from those of others of its name.
    fn origin(&self, files: &Files) -> Result<Origin, Failure> {
        let root = files
            .get("root/ca.crt")
            .map(Vec::as_slice)
            .unwrap_or_default();
        let root = CertificateFacts::from_pem(&String::from_utf8_lossy(root));
        let key_id = root.ok().and_then(|facts| facts.key_id).ok_or_else(|| {
            let why = "ca.crt in the Secret of the root is no certificate with a key identifier";
            Failure::new(Reason::Misconfigured, why)
        })?;
        Ok(Origin::new(&key_id, &self.uid))
    }

    /// Asks for the database until one has come whole, and packs it.
    async fn pack(
        &self,
        recipients: &[Recipient],
        files: &Files,
        spool: &Path,
    ) -> Result<Manifest, Failure> {
        let members = self.members.ask()?;
        loop {
            let taken_at = Timestamp::now();
            let snapshot = members.snapshot().await?;
            let manifest = Manifest {
                format: FORMAT,
                namespace: self.series.namespace.clone(),
                name: self.series.name.clone(),
                trust_domain: self.members.trust_domain.clone(),
                taken_at,
                member: snapshot.member.clone(),
                database_bytes: snapshot.bytes,
                database_sha256: snapshot.sha256.clone(),
            };
            let (member, bytes) = (&manifest.member, manifest.database_bytes);
            info!(member, bytes, "receiving the database");
            match packed(snapshot, &manifest, recipients, files, spool).await {
                Ok(()) => return Ok(manifest),
                Err(PackError::Write(error)) => return Err(self.unwritten(&error)),
                Err(PackError::Database(why)) => {
                    let why = format!("the database of {member} did not come whole: {why}");
                    if !members.may_go_on() {
                        return Err(Failure::new(Reason::NotReady, why));
                    }
                    warn!("{why}; asking again");
                }
            }
        }
    }

    fn unwritten(&self, error: &io::Error) -> Failure {
        let reason = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Reason::NoSpace,
            _ => Reason::Misconfigured,
        };
        let scratch = self.scratch.display();
        Failure::new(reason, format!("cannot write to {scratch}: {error}"))
    }

    /// Deletes what is too much. The backup is there, so nothing here makes it fail. Returns how many
    /// there are then, and what was in the way.
    async fn prune(
        &self,
        store: &Store,
        new: &str,
        origin: &Origin,
        mut files: Vec<String>,
    ) -> (usize, Option<String>) {
        files.retain(|file| file != new);
        files.push(new.to_owned());
        let files = self.series.own(files, origin);
        let mut kept = files.len().min(self.keep.max(1));
        let mut problem = None;
        // The new one, even where an older one is of a later time.
        for file in files.iter().skip(kept).filter(|file| *file != new) {
            match store.delete(file).await {
                Ok(()) => info!(file, "an older backup is deleted"),
                Err(failure) => {
                    kept += 1;
                    warn!(file, %failure, "an older backup stays");
                    problem = Some(format!("{file} stays: {failure}"));
                }
            }
        }
        (kept, problem)
    }
}

async fn packed(
    snapshot: Snapshot,
    manifest: &Manifest,
    recipients: &[Recipient],
    files: &Files,
    spool: &Path,
) -> Result<(), PackError> {
    let (inlet, database) = pipe();
    let (manifest, recipients) = (manifest.clone(), recipients.to_vec());
    let (files, spool) = (files.clone(), spool.to_path_buf());
    let packing = tokio::task::spawn_blocking(move || {
        let file = File::create(spool).map_err(PackError::Write)?;
        let encrypted = encrypt(BufWriter::new(file), &recipients);
        let encrypted = encrypted.map_err(|error| PackError::Write(io::Error::other(error)))?;
        let whole = pack(encrypted, &manifest, &files, database)?;
        let whole = whole.finish().and_then(|file| Ok(file.into_inner()?));
        whole.map(drop).map_err(PackError::Write)
    });
    let pieces = snapshot.response.bytes_stream();
    let pieces = pieces.map_err(|error| PackError::Database(chain(&error.without_url())));
    let (filled, packed) = tokio::join!(inlet.fill(pieces), packing);
    // Why it broke off is known at the end that was filled.
    filled?;
    packed.unwrap_or_else(|_| {
        let why = "packing did not come to its end";
        Err(PackError::Write(io::Error::other(why)))
    })
}

/// The files of a Secret, without those that are the kubelet's own.
fn mounted(directory: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let (name, path) = (
            entry.file_name().to_string_lossy().into_owned(),
            entry.path(),
        );
        if name.starts_with("..") || !path.is_file() {
            continue;
        }
        files.push((name, std::fs::read(path)?));
    }
    Ok(files)
}
