//! What is in a backup, in which order: a tar of
//!
//! | file | holds |
//! | --- | --- |
//! | `manifest.json` | [`Manifest`] |
//! | `root/…` | the Secret of the root: `ca.crt`, `ca.key` |
//! | `pki/…` | the Secret of the members' certificates |
//! | `admin/…` | the Secret of the administrator: `username`, `password` |
//! | `ctrl.db` | the database, last |
//!
//! The manifest comes first, so that whoever reads knows what to expect before the large part.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};

use aws_lc_rs::digest;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tar::{Archive, Builder, EntryType, Header};

/// The names in it.
const MANIFEST: &str = "manifest.json";
const DATABASE: &str = "ctrl.db";
/// How a backup is made up.
pub(super) const FORMAT: u32 = 1;
/// The longest file but the database, in bytes: Kubernetes allows a Secret no more.
const LONGEST_FILE: u64 = 1024 * 1024;
/// How many files there may be besides the database: a hundred members have fewer.
const MOST_FILES: usize = 1000;

/// What a backup is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    /// [`FORMAT`].
    pub(super) format: u32,
    /// The namespace of the ZitiController.
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
    /// The trust domain of its network.
    pub(super) trust_domain: String,
    /// When the database was asked for.
    pub(super) taken_at: Timestamp,
    /// Which member's it is.
    pub(super) member: String,
    /// Its size.
    pub(super) database_bytes: u64,
    /// Lowercase hex.
    pub(super) database_sha256: String,
}

/// The files of the Secrets, by their names in the backup. Not to be shown.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// Why a backup was not written.
#[derive(Debug)]
pub(super) enum PackError {
    /// What came of the database is not what was announced.
    Database(String),
    /// It has nowhere to go.
    Write(io::Error),
}

/// Why a backup was not read.
#[derive(Debug)]
pub(super) enum UnpackError {
    /// It is not whole, or no backup.
    Damaged(String),
    /// The database has nowhere to go.
    Write(io::Error),
}

/// Writes a backup, and returns what it was written to.
pub(super) fn pack<W: Write>(
    to: W,
    manifest: &Manifest,
    files: &Files,
    database: impl Read,
) -> Result<W, PackError> {
    let mut tar = Builder::new(to);
    let text =
        serde_json::to_vec_pretty(manifest).map_err(|error| PackError::Write(error.into()))?;
    let header = |length: u64| {
        let mut header = Header::new_gnu();
        header.set_size(length);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(manifest.taken_at.as_second()).unwrap_or_default());
        header
    };
    let first = [(MANIFEST, &text)].into_iter();
    let files = files.iter().map(|(name, content)| (name.as_str(), content));
    for (name, content) in first.chain(files) {
        let mut header = header(content.len() as u64);
        let added = tar.append_data(&mut header, name, content.as_slice());
        added.map_err(PackError::Write)?;
    }
    let mut database = Counted::new(database.take(manifest.database_bytes));
    let mut header = header(manifest.database_bytes);
    let added = tar.append_data(&mut header, DATABASE, &mut database);
    if let Some(error) = database.broke {
        return Err(PackError::Database(error));
    }
    added.map_err(PackError::Write)?;
    if database.read != manifest.database_bytes || database.sha256() != manifest.database_sha256 {
        let why = "it is not the one whose length and digest were announced";
        return Err(PackError::Database(why.to_owned()));
    }
    tar.into_inner().map_err(PackError::Write)
}

/// Reads a backup to its very end. The database goes to `database`, once `check` has agreed to what the
/// backup is of; it is right if this succeeds.
pub(super) fn unpack<E: From<UnpackError>>(
    from: impl Read,
    database: &mut impl Write,
    check: impl FnOnce(&Manifest, &Files) -> Result<(), E>,
) -> Result<(Manifest, Files), E> {
    let damaged = |why: String| E::from(UnpackError::Damaged(why));
    let broken = |error: io::Error| damaged(error.to_string());
    let mut archive = Archive::new(from);
    let mut manifest: Option<Manifest> = None;
    let mut files = Files::new();
    let mut check = Some(check);
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        if entry.header().entry_type() != EntryType::Regular {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let Some(manifest) = &manifest else {
            let text = short(&name, &mut entry).map_err(damaged)?;
            manifest = Some(parse(&name, &text).map_err(damaged)?);
            continue;
        };
        if name != DATABASE {
            let content = short(&name, &mut entry).map_err(damaged)?;
            files.insert(name, content);
            if files.len() > MOST_FILES {
                return Err(damaged("there are too many files in it".to_owned()));
            }
        } else if let Some(check) = check.take() {
            check(manifest, &files)?;
            let mut counted = Counted::new(entry);
            copy(&mut counted, database)?;
            let expected = (manifest.database_bytes, &manifest.database_sha256);
            if (counted.read, &counted.sha256()) != expected {
                let why = "its database is not the one that its manifest names";
                return Err(damaged(why.to_owned()));
            }
        }
    }
    // What is cut short is found at the very end.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(broken)?;
    match manifest {
        Some(manifest) if check.is_none() => Ok((manifest, files)),
        Some(_) => Err(damaged(format!("there is no {DATABASE} in it"))),
        None => Err(damaged(format!("there is no {MANIFEST} in it"))),
    }
}

fn parse(name: &str, text: &[u8]) -> Result<Manifest, String> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let strange = || format!("its first file is no {MANIFEST} of a backup");
    if name != MANIFEST {
        return Err(strange());
    }
    let Format { format } = serde_json::from_slice(text).map_err(|_| strange())?;
    if format != FORMAT {
        return Err(format!(
            "it is of format {format}, and this version knows {FORMAT}: take the version that made it"
        ));
    }
    serde_json::from_slice(text).map_err(|_| strange())
}

fn short(name: &str, entry: &mut impl Read) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    let read = entry.take(LONGEST_FILE + 1).read_to_end(&mut content);
    read.map_err(|error| error.to_string())?;
    if content.len() as u64 > LONGEST_FILE {
        return Err(format!("the file {name} in it is too long"));
    }
    Ok(content)
}

/// As [`io::copy`], which does not say on which side it failed.
fn copy<E: From<UnpackError>>(from: &mut impl Read, to: &mut impl Write) -> Result<(), E> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                let written = to.write_all(&buffer[..read]);
                written.map_err(UnpackError::Write)?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(UnpackError::Damaged(error.to_string()).into()),
        }
    }
}

/// Counts and digests what is read.
struct Counted<R> {
    inner: R,
    read: u64,
    digest: digest::Context,
    broke: Option<String>,
}

impl<R> Counted<R> {
    fn new(inner: R) -> Self {
        Self {
            inner,
            read: 0,
            digest: digest::Context::new(&digest::SHA256),
            broke: None,
        }
    }

    fn sha256(&self) -> String {
        hex::encode(self.digest.clone().finish())
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer);
        match &read {
            Ok(read) => {
                self.read += *read as u64;
                self.digest.update(&buffer[..*read]);
            }
            Err(error) => self.broke = Some(error.to_string()),
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DB: &[u8] = &[7; 200_000];

    fn manifest(database: &[u8]) -> Manifest {
        Manifest {
            format: FORMAT,
            namespace: "ns".to_owned(),
            name: "net".to_owned(),
            trust_domain: "example.com".to_owned(),
            taken_at: Timestamp::UNIX_EPOCH,
            member: "net-controller-0".to_owned(),
            database_bytes: database.len() as u64,
            database_sha256: hex::encode(digest::digest(&digest::SHA256, database)),
        }
    }

    fn files() -> Files {
        let long = format!("pki/{}-controller-0.controller.crt", "n".repeat(120));
        let names = ["root/ca.crt", "root/ca.key", &long, "admin/username"];
        let files = names.map(|name| (name.to_owned(), format!("of {name}").into_bytes()));
        files.into_iter().collect()
    }

    fn read(file: &[u8]) -> Result<(Manifest, Files, Vec<u8>), UnpackError> {
        let mut database = Vec::new();
        let (manifest, files) = unpack(file, &mut database, |_, _| Ok::<_, UnpackError>(()))?;
        Ok((manifest, files, database))
    }

    #[test]
    fn what_is_packed_is_unpacked_and_the_manifest_is_first() {
        let file = pack(Vec::new(), &manifest(DB), &files(), DB).unwrap();
        let (back, others, database) = read(&file).unwrap();
        assert_eq!((back, others), (manifest(DB), files()));
        assert!(database == DB);
        let mut archive = Archive::new(file.as_slice());
        let names = archive.entries().unwrap();
        let names: Vec<_> = names
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(names.first().unwrap(), MANIFEST);
        assert_eq!(names.last().unwrap(), DATABASE);
    }

    #[test]
    fn a_database_that_is_not_the_announced_one_makes_no_backup() {
        let other = vec![8; DB.len()];
        for database in [&DB[1..], &other] {
            let packed = pack(Vec::new(), &manifest(DB), &files(), database);
            assert!(matches!(packed, Err(PackError::Database(_))), "{packed:?}");
        }
        let full = |database: &[u8]| {
            let mut room = [0; 4096];
            pack(room.as_mut_slice(), &manifest(DB), &files(), database).map(drop)
        };
        assert!(matches!(full(DB), Err(PackError::Write(_))));
    }

    #[test]
    fn what_is_cut_changed_or_something_else_is_damaged() {
        let file = pack(Vec::new(), &manifest(DB), &files(), DB).unwrap();
        let mut changed = file.clone();
        let at = changed.len() - 100_000;
        changed[at] ^= 1;
        let mut later = manifest(DB);
        later.format = 2;
        let later = pack(Vec::new(), &later, &files(), DB).unwrap();
        for (file, why) in [
            (&file[..file.len() / 2], "its database is not the one"),
            (&file[..2048], "no ctrl.db"),
            (&[], "no manifest.json"),
            (b"hello".as_slice(), "failed to read entire block"),
            (&changed, "its database is not the one"),
            (&later, "it is of format 2"),
        ] {
            match read(file) {
                Err(UnpackError::Damaged(said)) => assert!(said.contains(why), "{said}"),
                other => panic!("{why}: {other:?}"),
            }
        }
    }

    #[test]
    fn nothing_is_written_of_what_is_not_wanted() {
        let file = pack(Vec::new(), &manifest(DB), &files(), DB).unwrap();
        let mut database = Vec::new();
        let refused = unpack(file.as_slice(), &mut database, |_, _| {
            Err(UnpackError::Damaged("not wanted".to_owned()))
        });
        assert!(refused.is_err() && database.is_empty());
    }
}
