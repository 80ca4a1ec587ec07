//! The identity on a volume is whole or absent, whenever the agent is killed: the world is ended
//! before and within every single file operation.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::cell::Cell;
use std::io;
use std::path::Path;

use agent::disk::{Disk, RealDisk};
use agent::volume::{Found, Volume, VolumeError};
use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use ziti::enroll::RouterIdentity;
use ziti::pki::{CertificateFacts, Key};

/// A disk that performs so many operations, half of one more, and nothing after.
struct DyingDisk {
    left: Cell<usize>,
}

impl DyingDisk {
    fn after(operations: usize) -> Self {
        Self {
            left: Cell::new(operations),
        }
    }

    fn lives(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left > 0
    }

    fn dead() -> io::Error {
        io::Error::other("killed")
    }
}

impl Disk for &DyingDisk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        if self.lives() {
            return RealDisk.create_directory(path);
        }
        Err(DyingDisk::dead())
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        if self.lives() {
            return RealDisk.write(path, content);
        }
        RealDisk.write(path, &content[..content.len() / 2])?;
        Err(DyingDisk::dead())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.lives() {
            return RealDisk.rename(from, to);
        }
        Err(DyingDisk::dead())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        if self.lives() {
            return RealDisk.remove_directory(path);
        }
        let first = std::fs::read_dir(path)?.next().transpose()?;
        if let Some(first) = first {
            std::fs::remove_file(first.path())?;
        }
        Err(DyingDisk::dead())
    }
}

/// What a controller would give to a router with this key.
fn identity(id: &str, key: &Key) -> RouterIdentity {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, id);
    let pair = KeyPair::from_pem(key.expose_pem()).unwrap();
    let pem = params.self_signed(&pair).unwrap().pem();
    RouterIdentity {
        id: id.to_owned(),
        fingerprint: CertificateFacts::from_pem(&pem).unwrap().fingerprint,
        cert_pem: pem.clone(),
        server_cert_pem: pem.clone(),
        ca_pem: pem,
        controllers: Vec::new(),
        not_after: Timestamp::MAX,
    }
}

/// All that touches the disk in an enrollment.
fn enroll<D: Disk>(volume: &Volume<D>, id: &str) -> Result<(), VolumeError> {
    volume.recover()?;
    let present = volume.inspect()?;
    let key = volume.prepare_key()?;
    if let Found::Sound(present) = present {
        volume.keep_aside(&present)?;
    }
    let endpoints = ["tls:localhost:1".to_owned()];
    volume.install(&identity(id, &key), &endpoints, digest(id))
}

/// Digest of the token of router `id`.
fn digest(id: &str) -> &'static str {
    match id {
        "old" => "01d0000000000000",
        _ => "1e30000000000000",
    }
}

fn found(directory: &Path) -> Found {
    let volume = Volume::new(directory, RealDisk);
    volume.recover().unwrap();
    volume.inspect().unwrap()
}

fn id(found: &Found) -> Option<&str> {
    match found {
        Found::Nothing => None,
        Found::Unsound(why) => panic!("neither whole nor absent: {why}"),
        Found::Sound(identity) => {
            assert!(identity.has_endpoints);
            // The digest comes and goes with the rest.
            assert_eq!(identity.token_digest.as_deref(), Some(digest(&identity.id)));
            Some(&identity.id)
        }
    }
}

/// Enrolls router `new` on a volume that `prepare` filled, killed after 0, 1, 2, … operations,
/// until one run survives. Returns what was found after each.
fn after_each_kill(prepare: impl Fn(&Path)) -> Vec<Option<String>> {
    after_each_kill_with(prepare, id)
}

/// The same, where `id` says what may be found.
fn after_each_kill_with(
    prepare: impl Fn(&Path),
    id: impl Fn(&Found) -> Option<&str>,
) -> Vec<Option<String>> {
    let mut seen = Vec::new();
    for operations in 0.. {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path());
        let disk = DyingDisk::after(operations);
        let result = enroll(&Volume::new(dir.path(), &disk), "new");

        // The next run may be killed as well, anywhere in what it has to finish.
        for again in 0..8 {
            let disk = DyingDisk::after(again);
            // Its failure is what is wanted.
            let _ = Volume::new(dir.path(), &disk).recover();
        }
        seen.push(id(&found(dir.path())).map(str::to_owned));
        if result.is_ok() {
            return seen;
        }
        enroll(&Volume::new(dir.path(), RealDisk), "new").unwrap();
        assert_eq!(id(&found(dir.path())), Some("new"));
    }
    seen
}

#[test]
fn on_an_empty_volume() {
    let seen = after_each_kill(|_| {});
    assert!(seen.len() > 10, "{} operations", seen.len());
    let committed = seen.iter().position(Option::is_some).unwrap();
    assert!(
        seen[committed..]
            .iter()
            .all(|id| id.as_deref() == Some("new"))
    );
}

#[test]
fn in_place_of_another_identity() {
    let seen = after_each_kill(|dir| {
        enroll(&Volume::new(dir, RealDisk), "old").unwrap();
    });
    let committed = seen.iter().position(|id| id.as_deref() == Some("new"));
    let (before, after) = seen.split_at(committed.unwrap());
    assert!(!before.is_empty() && before.iter().all(|id| id.as_deref() == Some("old")));
    assert!(after.iter().all(|id| id.as_deref() == Some("new")));
}

#[test]
fn in_place_of_an_identity_that_the_agent_did_not_make() {
    let seen = after_each_kill_with(
        |dir| {
            enroll(&Volume::new(dir, RealDisk), "old").unwrap();
            std::fs::remove_file(dir.join(".token-digest")).unwrap();
        },
        |found| match found {
            Found::Sound(identity) if identity.id == "old" => {
                assert_eq!(identity.token_digest, None);
                Some("old")
            }
            found => id(found),
        },
    );
    let committed = seen.iter().position(|id| id.as_deref() == Some("new"));
    let (before, after) = seen.split_at(committed.unwrap());
    assert!(!before.is_empty() && before.iter().all(|id| id.as_deref() == Some("old")));
    assert!(after.iter().all(|id| id.as_deref() == Some("new")));
}

#[test]
fn what_is_no_digest_counts_as_none() {
    let dir = tempfile::tempdir().unwrap();
    enroll(&Volume::new(dir.path(), RealDisk), "new").unwrap();
    for text in ["", "\n", "no digest", "\u{fffd}"] {
        std::fs::write(dir.path().join(".token-digest"), text).unwrap();
        let Found::Sound(identity) = found(dir.path()) else {
            panic!("no identity");
        };
        assert_eq!(identity.token_digest, None, "{text:?}");
    }
}

#[test]
fn an_identity_that_gives_way_is_kept_aside() {
    let dir = tempfile::tempdir().unwrap();
    let volume = Volume::new(dir.path(), RealDisk);
    enroll(&volume, "old").unwrap();
    let Found::Sound(old) = volume.inspect().unwrap() else {
        panic!("no identity");
    };
    enroll(&volume, "new").unwrap();
    let aside = dir.path().join(format!("replaced-{}", old.fingerprint));
    let Found::Sound(kept) = Volume::new(&aside, RealDisk).inspect().unwrap() else {
        panic!("the old identity is not whole");
    };
    assert_eq!(kept, old);
    volume.forget_aside(&old).unwrap();
    assert!(!aside.exists());
}

#[test]
fn the_key_of_an_unfinished_attempt_serves_again() {
    let dir = tempfile::tempdir().unwrap();
    let volume = Volume::new(dir.path(), RealDisk);
    let first = volume.prepare_key().unwrap();
    let second = volume.prepare_key().unwrap();
    assert_eq!(first.expose_pem(), second.expose_pem());
}

type Spoil = fn(&Path);

#[test]
fn parts_that_do_not_belong_together_are_no_identity() {
    let whole = |dir: &Path| enroll(&Volume::new(dir, RealDisk), "r").unwrap();
    let spoil: [(&str, Spoil); 5] = [
        ("missing", |dir| {
            std::fs::remove_file(dir.join("ziti-router.cas")).unwrap();
        }),
        ("ziti-router.key", |dir| {
            std::fs::write(dir.join("ziti-router.key"), "").unwrap();
        }),
        ("ziti-router.cas", |dir| {
            std::fs::write(dir.join("ziti-router.cas"), [0xff, 0xfe]).unwrap();
        }),
        ("does not belong", |dir| {
            let other = Key::generate().unwrap();
            std::fs::write(dir.join("ziti-router.key"), other.expose_pem()).unwrap();
        }),
        ("different routers", |dir| {
            let key = std::fs::read_to_string(dir.join("ziti-router.key")).unwrap();
            let other = identity("other", &Key::from_pem(&key).unwrap());
            std::fs::write(dir.join("ziti-router.server.chain.cert"), other.cert_pem).unwrap();
        }),
    ];
    for (expected, spoil) in spoil {
        let dir = tempfile::tempdir().unwrap();
        whole(dir.path());
        spoil(dir.path());
        let Found::Unsound(why) = found(dir.path()) else {
            panic!("{expected}: taken for sound");
        };
        assert!(why.contains(expected), "{why:?} should say {expected:?}");
    }
}

#[test]
fn nobody_else_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    enroll(&Volume::new(dir.path(), RealDisk), "r").unwrap();
    let entries: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(entries.len(), 6);
    for entry in entries {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", entry.path());
    }
}
