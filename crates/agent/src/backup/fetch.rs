//! How a backup is got back: found, opened and checked, its database to where a member restores it from,
//! and its keys to the operator, which alone writes Secrets.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tokio::sync::watch;
use tracing::info;
use ziti::SecretString;
use ziti::backup::{Admin, BackupError, Identity, Keys, Recipient, Root, Signer, decrypt, seal};
use ziti::pki::{CertificateFacts, Key};

use super::archive::{Files, Manifest, UnpackError, unpack};
use super::names::Series;
use super::pipe::{Reader, pipe};
use super::report::{Failure, Fetched, LONGEST_FETCHED, Reason, Report};
use super::store::{Place, Store};
use super::{text, vacant};
use crate::disk::{Disk, RealDisk};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Fetch {
    /// Whose backup.
    pub series: Series,
    /// Where it is.
    pub place: Place,
    /// Its file, which may be of another name; the newest of the series where there is none.
    pub snapshot: Option<String>,
    /// The age private key with which it is opened.
    pub identity: PathBuf,
    /// To whom the keys are encrypted.
    pub recipient: String,
    /// Where the database goes.
    pub to: PathBuf,
    /// The identifier of the root's key, where the network has a root already.
    pub root_key_id: Option<String>,
}

/// Fetches a backup.
pub async fn fetch(request: &Fetch, stop: watch::Receiver<bool>) -> Report {
    match super::unless_stopped(stop, request.run()).await {
        Ok(fetched) => Report::Fetched(fetched),
        Err(failure) => Report::Failed(failure),
    }
}

impl From<UnpackError> for Failure {
    fn from(error: UnpackError) -> Self {
        match error {
            UnpackError::Damaged(why) => Self::new(Reason::Damaged, why),
            UnpackError::Write(error) => unwritten(&error),
        }
    }
}

/// Whose database is right, is checked before anything is written of it.
#[derive(Debug, Clone)]
struct Wanted {
    /// `None` where a person named the file.
    series: Option<Series>,
    root_key_id: Option<String>,
}

impl Fetch {
    async fn run(&self) -> Result<Fetched, Failure> {
        let wrong = |error: BackupError, what: String| {
            Failure::new(Reason::Misconfigured, format!("{what}: {error}"))
        };
        let identity = SecretString::from(text(&self.identity)?);
        let identity = Identity::parse(ziti::ExposeSecret::expose_secret(&identity))
            .map_err(|error| wrong(error, self.identity.display().to_string()))?;
        let recipient = self.recipient.parse::<Recipient>();
        let recipient = recipient.map_err(|error| wrong(error, "--recipient".to_owned()))?;
        if let Some(data) = self.to.parent() {
            vacant::check(data)?;
        }
        let store = Store::open(&self.place)?;
        let snapshot = self.find(&store).await?;
        info!(snapshot, place = store.place(), "fetching the backup");
        let (manifest, files) = self.unpack(&store, &snapshot, identity).await?;
        info!(bytes = manifest.database_bytes, to = %self.to.display(), "the database is there");
        let keys = keys(&files).map_err(|failure| named(&snapshot, &failure))?;
        let mut fetched = Fetched {
            snapshot,
            taken_at: manifest.taken_at,
            trust_domain: manifest.trust_domain,
            database_sha256: manifest.database_sha256,
            keys: String::new(),
        };
        let taken = Report::Fetched(fetched.clone()).to_line().len();
        // The line ends with a break.
        let room = LONGEST_FETCHED.saturating_sub(taken + 1);
        fetched.keys = seal(&keys, &recipient, room)
            .map_err(|error| Failure::new(Reason::Damaged, error.to_string()))?;
        Ok(fetched)
    }

    /// The file that is wanted.
    async fn find(&self, store: &Store) -> Result<String, Failure> {
        let files = store.list().await?;
        let wanted = self.snapshot.as_ref();
        if let Some(wanted) = wanted.filter(|wanted| files.contains(wanted)) {
            return Ok(wanted.clone());
        }
        let count = files.len();
        let of_any = self.series.newest_first(files.clone()).into_iter().next();
        let newest = match self.series.candidates(files, self.root_key_id.as_deref()) {
            Ok(files) => files.into_iter().next(),
            Err(newest) if wanted.is_none() => {
                let why = format!(
                    "in {} are backups of {} networks of this name: name the right one as snapshot. The newest \
                     of each: {}",
                    store.place(),
                    newest.len(),
                    newest.join(", ")
                );
                return Err(Failure::new(Reason::OtherNetwork, why));
            }
            Err(newest) => newest.into_iter().next(),
        };
        let Series { namespace, name } = &self.series;
        let place = store.place();
        let why = match (wanted, newest) {
            (None, Some(newest)) => return Ok(newest),
            (None, None) if of_any.is_some() => {
                let why = format!(
                    "the backups of {name} in {place} are of other networks: their roots have other keys than \
                     that of this network, and routers would not trust it. The newest of them: {}",
                    of_any.unwrap_or_default()
                );
                return Err(Failure::new(Reason::OtherNetwork, why));
            }
            (None, None) => format!(
                "there is no backup of {name} in namespace {namespace} in {place}, which holds {count} other \
                 files: name one of them if it is of another name"
            ),
            (Some(wanted), Some(newest)) => {
                format!("there is no {wanted} in {place}; the newest of {name} is {newest}")
            }
            (Some(wanted), None) => {
                format!(
                    "there is no {wanted} in {place}, and none of {name} in namespace {namespace}"
                )
            }
        };
        Err(Failure::new(Reason::NoBackup, why))
    }

    /// Reads the whole backup. The database is at its place only if all of it was right.
    async fn unpack(
        &self,
        store: &Store,
        snapshot: &str,
        identity: Identity,
    ) -> Result<(Manifest, Files), Failure> {
        let pieces = store.get(snapshot).await?;
        let (inlet, reader) = pipe();
        let to = self.to.clone();
        let unfinished = aside(&to);
        let wanted = Wanted {
            series: self.snapshot.is_none().then(|| self.series.clone()),
            root_key_id: self.root_key_id.clone(),
        };
        let unpacking = tokio::task::spawn_blocking(move || {
            sweep(&to);
            let unpacked = unpacked(reader, &identity, &wanted, &unfinished, &to);
            if unpacked.is_err() {
                let _ = std::fs::remove_file(&unfinished);
            }
            unpacked
        });
        let (filled, unpacked) = tokio::join!(inlet.fill(pieces), unpacking);
        // Why it broke off is known at the end that was filled.
        filled.map_err(|error| store.unread(&error))?;
        let unpacked = unpacked.unwrap_or_else(|_| {
            let why = "unpacking did not come to its end";
            Err(Failure::new(Reason::Damaged, why))
        });
        unpacked.map_err(|failure| named(snapshot, &failure))
    }
}

fn named(snapshot: &str, failure: &Failure) -> Failure {
    Failure::new(failure.reason, format!("{snapshot}: {failure}"))
}

/// How the name of a database ends before it is known to be right.
const UNFINISHED: &str = ".unfinished";

/// The database before it is known to be right: a name of this run alone, so that no other one that is
/// still on its way writes into it.
fn aside(to: &Path) -> PathBuf {
    to.with_extension(format!(
        "{:x}{UNFINISHED}",
        Timestamp::now().as_nanosecond()
    ))
}

/// Deletes what other runs left. One that still runs fails then, and says so.
fn sweep(to: &Path) {
    let (Some(directory), Some(stem)) = (to.parent(), to.file_stem()) else {
        return;
    };
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if name.starts_with(stem.as_encoded_bytes()) && name.ends_with(UNFINISHED.as_bytes()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn unpacked(
    from: Reader,
    identity: &Identity,
    wanted: &Wanted,
    unfinished: &Path,
    to: &Path,
) -> Result<(Manifest, Files), Failure> {
    let opened = decrypt(from, identity).map_err(|error| {
        let reason = match error {
            BackupError::OtherRecipient => Reason::CannotDecrypt,
            _ => Reason::Damaged,
        };
        Failure::new(reason, error.to_string())
    })?;
    let mut database = File::create_new(unfinished).map_err(|error| unwritten(&error))?;
    let unpacked = unpack(opened, &mut database, |manifest, files| {
        wanted.check(manifest, files)
    })?;
    let kept = database
        .sync_all()
        .and_then(|()| RealDisk.rename(unfinished, to));
    kept.map_err(|error| unwritten(&error))?;
    Ok(unpacked)
}

fn unwritten(error: &io::Error) -> Failure {
    let reason = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Reason::NoSpace,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Reason::AccessDenied,
        _ => Reason::Misconfigured,
    };
    let why = format!("cannot write the database onto the data volume: {error}");
    Failure::new(reason, why)
}

impl Wanted {
    fn check(&self, manifest: &Manifest, files: &Files) -> Result<(), Failure> {
        let other = |why: String| Err(Failure::new(Reason::OtherNetwork, why));
        if let Some(Series { namespace, name }) = &self.series
            && (namespace, name) != (&manifest.namespace, &manifest.name)
        {
            return other(format!(
                "it is of {} in namespace {}: name this file if it is the right one",
                manifest.name, manifest.namespace
            ));
        }
        // So that nothing is restored whose keys are no use.
        let keys = keys(files)?;
        let root = CertificateFacts::from_pem(&keys.root.certificate);
        let key_id = root.ok().and_then(|facts| facts.key_id).unwrap_or_default();
        match &self.root_key_id {
            Some(wanted) if !wanted.eq_ignore_ascii_case(&key_id) => other(format!(
                "its root has the key {key_id}, and that of this network the key {wanted}: routers would \
                 not trust it"
            )),
            _ => Ok(()),
        }
    }
}

/// What the Secrets are made of again.
fn keys(files: &Files) -> Result<Keys, Failure> {
    const SIGNER: &str = ".signer.key";
    let lacks = |name: &str| Failure::new(Reason::Damaged, format!("{name} in it is no use"));
    let text = |name: &str| -> Result<String, Failure> {
        let content = files
            .get(name)
            .and_then(|content| String::from_utf8(content.clone()).ok());
        content
            .filter(|text| !text.is_empty())
            .ok_or_else(|| lacks(name))
    };
    let key = |name: &str| Key::from_pem(&text(name)?).map_err(|_| lacks(name));
    let root = Root {
        certificate: text("root/ca.crt")?,
        key: key("root/ca.key")?,
    };
    let belongs = root.key.belongs_to(&root.certificate);
    if !belongs.unwrap_or(false) {
        return Err(lacks("root/ca.key"));
    }
    let mut signers = BTreeMap::new();
    for name in files.keys() {
        let member = name
            .strip_prefix("pki/")
            .and_then(|name| name.strip_suffix(SIGNER));
        if let Some(member) = member {
            let signer = Signer {
                certificate: text(&format!("pki/{member}.signer.crt")).ok(),
                key: key(name)?,
            };
            signers.insert(member.to_owned(), signer);
        }
    }
    Ok(Keys {
        root,
        signers,
        admin: Admin {
            username: text("admin/username")?,
            password: SecretString::from(text("admin/password")?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_run_writes_into_the_file_of_another() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("ziti-agent.restore-from.db");
        let (first, second) = (aside(&to), aside(&to));
        assert_ne!(first, second);
        std::fs::write(&first, "half").unwrap();
        std::fs::write(&to, "whole").unwrap();
        std::fs::write(dir.path().join("raft.db"), "").unwrap();
        sweep(&to);
        // Whoever still writes it gives its half to nobody.
        assert!(RealDisk.rename(&first, &to).is_err());
        assert_eq!(std::fs::read_to_string(&to).unwrap(), "whole");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
