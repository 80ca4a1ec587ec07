//! A router's identity on its volume: what is there, is it sound, and how a new one gets there.
//!
//! The files are those of the stock image: `ziti-router.key`, `.cert`, `.server.chain.cert`, `.cas`
//! and `endpoints`. Beside them `.token-digest` says which token the identity was made with; where
//! somebody else made it, there is none. Only [`crate::enroll`] uses this module. A new identity is built up in `.enrolling`, its key first, before any token is
//! spent. Renaming that directory to `.enrolled` is the one moment in which the identity comes to
//! be; what follows (its files taking their places) is finished by the next run where this one is
//! cut short. So a kill at any point leaves what was there before, or the new identity whole.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use snafu::{ResultExt, Snafu};
use ziti::enroll::RouterIdentity;
use ziti::extend::Extended;
use ziti::pki::{CertificateFacts, Key, PkiError};
use ziti::trust::CaBundle;

use crate::disk::Disk;

const KEY: &str = "ziti-router.key";
const CERT: &str = "ziti-router.cert";
const SERVER_CERT: &str = "ziti-router.server.chain.cert";
const CAS: &str = "ziti-router.cas";
const ENDPOINTS: &str = "endpoints";
/// Where a router that the Helm chart deployed keeps the same, in the same form.
const CHART_ENDPOINTS: &str = "endpoints.yml";
const TOKEN_DIGEST: &str = ".token-digest";
/// The controller that enrolled the router, which can extend its certificates.
const ISSUER: &str = ".issuer";
/// The addresses of the controllers that were last given from outside.
const GIVEN_ENDPOINTS: &str = ".endpoints-given";

/// The order in which a new identity takes its places; the certificate makes it complete.
const FILES: [&str; 6] = [KEY, CAS, SERVER_CERT, ENDPOINTS, TOKEN_DIGEST, CERT];

/// An identity in the making: a key, and later all of it.
const ENROLLING: &str = ".enrolling";
/// A complete identity, about to take its places.
const ENROLLED: &str = ".enrolled";

/// What the volume would not do.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum VolumeError {
    /// A file could not be written, moved or removed.
    #[snafu(display("cannot {act} {}", path.display()))]
    Change {
        /// `write`, `create`, …
        act: &'static str,
        /// Of what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is there and cannot be read.
    #[snafu(display("cannot read {}", path.display()))]
    Read {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No key could be made.
    #[snafu(display("cannot make a key for the router"))]
    MakeKey {
        /// What the cryptography library said.
        source: PkiError,
    },
}

/// What [`Volume::inspect`] finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// No certificate: nothing that could be an identity.
    Nothing,
    /// Something that a router could not start with, and why.
    Unsound(String),
    /// A complete identity whose parts belong together.
    Sound(Identity),
}

/// A sound identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The router's id on the network: common name of its certificates.
    pub id: String,
    /// Fingerprint of the client certificate, as the network shows it.
    pub fingerprint: String,
    /// When the first of its two certificates runs out.
    pub not_after: Timestamp,
    /// Host names that its server certificate is valid for.
    pub dns: Vec<String>,
    /// Addresses that its server certificate is valid for.
    pub ips: Vec<IpAddr>,
    /// Whether the addresses of the controllers are there as well.
    pub has_endpoints: bool,
    /// Digest of the token that it was made with, as [`ziti::token::EnrollmentToken::digest`] gives
    /// it. None where the agent did not make it, as on a volume taken over from the Helm chart.
    pub token_digest: Option<String>,
}

/// The directory of an identity.
#[derive(Debug)]
pub struct Volume<D> {
    directory: PathBuf,
    disk: D,
}

impl<D: Disk> Volume<D> {
    /// The identity in `directory`, which need not exist yet.
    pub fn new(directory: impl Into<PathBuf>, disk: D) -> Self {
        Self {
            directory: directory.into(),
            disk,
        }
    }

    /// Finishes what an earlier run began to put in place. To be called before all else.
    pub fn recover(&self) -> Result<(), VolumeError> {
        let enrolled = self.path(ENROLLED);
        if !enrolled.is_dir() {
            return Ok(());
        }
        for name in FILES {
            let from = enrolled.join(name);
            if from.exists() {
                self.rename(&from, &self.path(name))?;
            }
        }
        self.remove(&enrolled)
    }

    /// Looks at the identity. Changes nothing.
    pub fn inspect(&self) -> Result<Found, VolumeError> {
        let (Some(cert), Some(server_cert), Some(key), Some(cas)) = (
            self.read(CERT)?,
            self.read(SERVER_CERT)?,
            self.read(KEY)?,
            self.read(CAS)?,
        ) else {
            return Ok(match self.read(CERT)? {
                Some(_) => Found::Unsound("a file of the identity is missing".to_owned()),
                None => Found::Nothing,
            });
        };
        let sound = || -> Result<Identity, String> {
            let (client, server) = (facts(CERT, &cert)?, facts(SERVER_CERT, &server_cert)?);
            let key = Key::from_pem(&key).map_err(|error| format!("{KEY}: {error}"))?;
            CaBundle::from_pem(&cas).map_err(|error| format!("{CAS}: {error}"))?;
            for (name, pem) in [(CERT, &cert), (SERVER_CERT, &server_cert)] {
                if !key.belongs_to(pem).unwrap_or(false) {
                    return Err(format!("{KEY} does not belong to {name}"));
                }
            }
            if client.common_name.is_empty() || client.common_name != server.common_name {
                return Err(format!("{CERT} and {SERVER_CERT} name different routers"));
            }
            Ok(Identity {
                id: client.common_name,
                fingerprint: client.fingerprint,
                not_after: client.not_after.min(server.not_after),
                dns: server.dns,
                ips: server.ips,
                has_endpoints: self.has_endpoints(),
                token_digest: self.token_digest(),
            })
        };
        Ok(match sound() {
            Ok(identity) => Found::Sound(identity),
            Err(reason) => Found::Unsound(reason),
        })
    }

    /// The key of the identity in the making: that of an attempt that was cut short, else a new
    /// one. It is on the disk when this returns.
    pub fn prepare_key(&self) -> Result<Key, VolumeError> {
        let enrolling = self.path(ENROLLING);
        self.create(&enrolling)?;
        let path = enrolling.join(KEY);
        if let Some(key) = read(&path)?.and_then(|pem| Key::from_pem(&pem).ok()) {
            return Ok(key);
        }
        let key = Key::generate().context(MakeKeySnafu)?;
        self.write(&path, key.expose_pem())?;
        Ok(key)
    }

    /// Puts a new identity in place, made with the key of [`Self::prepare_key`] and the token of
    /// this digest.
    pub fn install(
        &self,
        identity: &RouterIdentity,
        endpoints: &[String],
        token_digest: &str,
    ) -> Result<(), VolumeError> {
        let enrolling = self.path(ENROLLING);
        let endpoints = endpoints_file(endpoints);
        let token_digest = format!("{token_digest}\n");
        for (name, content) in [
            (CAS, &identity.ca_pem),
            (SERVER_CERT, &identity.server_cert_pem),
            (ENDPOINTS, &endpoints),
            (TOKEN_DIGEST, &token_digest),
            (CERT, &identity.cert_pem),
        ] {
            self.write(&enrolling.join(name), content)?;
        }
        self.rename(&enrolling, &self.path(ENROLLED))?;
        self.recover()
    }

    /// Puts other certificates for the same key in place.
    pub fn exchange(&self, extended: &Extended) -> Result<(), VolumeError> {
        let enrolling = self.path(ENROLLING);
        for (name, content) in [
            (SERVER_CERT, &extended.server_cert_pem),
            (CERT, &extended.cert_pem),
        ] {
            self.write(&enrolling.join(name), content)?;
        }
        self.rename(&enrolling, &self.path(ENROLLED))?;
        self.recover()
    }

    /// Makes room for [`Self::exchange`]: what can fail is done before the old
    /// certificates are void. A key of an attempt that was cut short goes; its
    /// token is spent.
    pub fn prepare_exchange(&self) -> Result<(), VolumeError> {
        let enrolling = self.path(ENROLLING);
        if enrolling.exists() {
            self.remove(&enrolling)?;
        }
        self.create(&enrolling)
    }

    /// What [`ziti::extend`] needs of the identity: key, client certificate, authorities.
    pub fn present(&self) -> Result<Option<(Key, String, CaBundle)>, VolumeError> {
        let (key, cert, cas) = (self.read(KEY)?, self.read(CERT)?, self.read(CAS)?);
        let key = key.and_then(|pem| Key::from_pem(&pem).ok());
        let cas = cas.and_then(|pem| CaBundle::from_pem(&pem).ok());
        Ok(key
            .zip(cert)
            .zip(cas)
            .map(|((key, cert), cas)| (key, cert, cas)))
    }

    /// Writes down which controller enrolled the router.
    pub fn note_issuer(&self, issuer: &str) -> Result<(), VolumeError> {
        self.write(&self.path(ISSUER), &format!("{issuer}\n"))
    }

    /// The controller that enrolled the router, where the agent did it.
    pub fn issuer(&self) -> Option<String> {
        let text = self.read(ISSUER).ok().flatten()?;
        Some(text.trim().to_owned())
    }

    /// The addresses in the file of the controllers' addresses.
    pub fn endpoints(&self) -> Vec<String> {
        let text = self.read(ENDPOINTS).ok().flatten().unwrap_or_default();
        let lines = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- "));
        lines
            .map(|line| line.trim().trim_matches(['"', '\'']).to_owned())
            .collect()
    }

    /// Writes the controllers' addresses that are given from outside, where they are others than
    /// the last time. What the router has learned since is not undone without need.
    pub fn take_endpoints(&self, given: &[String]) -> Result<bool, VolumeError> {
        let text = endpoints_file(given);
        if self.read(GIVEN_ENDPOINTS)?.as_ref() == Some(&text) {
            return Ok(false);
        }
        self.write_endpoints(given)?;
        self.write(&self.path(GIVEN_ENDPOINTS), &text)?;
        Ok(true)
    }

    /// Copies an identity into `replaced-<fingerprint>`, before another takes its place.
    pub fn keep_aside(&self, identity: &Identity) -> Result<(), VolumeError> {
        let aside = self.aside(identity);
        self.create(&aside)?;
        for name in FILES {
            if let Some(content) = self.read(name)? {
                self.write(&aside.join(name), &content)?;
            }
        }
        Ok(())
    }

    /// Removes the copy again: no other identity came to take its place.
    pub fn forget_aside(&self, identity: &Identity) -> Result<(), VolumeError> {
        self.remove(&self.aside(identity))
    }

    /// Writes the file with the controllers' addresses.
    pub fn write_endpoints(&self, endpoints: &[String]) -> Result<(), VolumeError> {
        // Through another name: a router that reads half a list would take it for the whole.
        let unfinished = self.path(".endpoints");
        self.write(&unfinished, &endpoints_file(endpoints))?;
        self.rename(&unfinished, &self.path(ENDPOINTS))
    }

    /// Copies the controllers' addresses that a router deployed by the Helm chart has left. False
    /// where there are none.
    pub fn take_over_endpoints(&self) -> Result<bool, VolumeError> {
        let Some(text) = self.read(CHART_ENDPOINTS)?.filter(|text| lists_any(text)) else {
            return Ok(false);
        };
        let unfinished = self.path(".endpoints");
        self.write(&unfinished, &text)?;
        self.rename(&unfinished, &self.path(ENDPOINTS))?;
        Ok(true)
    }

    fn has_endpoints(&self) -> bool {
        let text = self.read(ENDPOINTS).ok().flatten();
        text.is_some_and(|text| lists_any(&text))
    }

    /// Anything but a digest counts as none: at worst the token is tried.
    fn token_digest(&self) -> Option<String> {
        let text = self.read(TOKEN_DIGEST).ok().flatten()?;
        let digest = text.trim();
        let is_digest = !digest.is_empty() && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_digest.then(|| digest.to_owned())
    }

    fn aside(&self, identity: &Identity) -> PathBuf {
        self.path(&format!("replaced-{}", identity.fingerprint))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn read(&self, name: &str) -> Result<Option<String>, VolumeError> {
        read(&self.path(name))
    }

    fn write(&self, path: &Path, content: &str) -> Result<(), VolumeError> {
        let result = self.disk.write(path, content.as_bytes());
        result.context(ChangeSnafu { act: "write", path })
    }

    fn create(&self, path: &Path) -> Result<(), VolumeError> {
        let result = self.disk.create_directory(path);
        let act = "create";
        result.context(ChangeSnafu { act, path })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), VolumeError> {
        let result = self.disk.rename(from, to);
        let act = "put in place";
        result.context(ChangeSnafu { act, path: to })
    }

    fn remove(&self, path: &Path) -> Result<(), VolumeError> {
        let result = self.disk.remove_directory(path);
        let act = "remove";
        result.context(ChangeSnafu { act, path })
    }
}

/// Whether a file of endpoints names one.
fn lists_any(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with("- "))
}

/// The form that routers of all versions read: `Endpoints` with a capital.
fn endpoints_file(endpoints: &[String]) -> String {
    let mut text = String::from("Endpoints:\n");
    for endpoint in endpoints {
        text.extend(["- ", endpoint, "\n"]);
    }
    text
}

fn read(path: &Path) -> Result<Option<String>, VolumeError> {
    match fs::read(path) {
        // A file that is no text is as good as one that is not PEM.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(VolumeError::Read {
            path: path.to_path_buf(),
            source,
        }),
    }
}

fn facts(name: &str, pem: &str) -> Result<CertificateFacts, String> {
    CertificateFacts::from_pem(pem).map_err(|error| format!("{name}: {error}"))
}
