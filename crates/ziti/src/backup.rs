//! The encryption of a network's backups, and the keys of a network on their way out of one.
//!
//! A backup is a file of [age](https://age-encryption.org/v1), encrypted to X25519 recipients: whoever
//! makes it cannot read it, and every other program of age can. Used by the agent, which makes and opens
//! backups.
//!
//! Whoever opens one in a pod hands the [`Keys`] in it over to the operator by a line of text that
//! others may read: [`seal`] encrypts them to a key that only the operator has, who calls [`open`].

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::iter;
use std::str::FromStr;

use age::stream::{StreamReader, StreamWriter};
use age::{DecryptError, Decryptor, EncryptError, Encryptor, x25519};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use snafu::{OptionExt, ResultExt, Snafu, ensure};

use crate::pki::Key;

/// The end of a PEM certificate; the first in a bundle is the newest.
const END: &str = "-----END CERTIFICATE-----";
/// More than the keys of any network take, in bytes: a small text can unpack to gigabytes.
const LONGEST_KEYS: u64 = 256 * 1024;

/// Why something was not encrypted, or not opened.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum BackupError {
    /// Not a public key that a backup can be encrypted to. It is not shown whole: it may be a private one.
    #[snafu(display(
        "`{beginning}…` is no age recipient: one begins with `age1`, and `age-keygen -y` shows it"
    ))]
    BadRecipient {
        /// The first characters of what was given.
        beginning: String,
    },
    /// Not a private key. It is not shown.
    #[snafu(display(
        "there is no age identity in it: there must be one line that begins with `AGE-SECRET-KEY-1`, \
         as `age-keygen` makes it"
    ))]
    BadIdentity,
    /// It would be for nobody, or cannot be written.
    #[snafu(display("cannot encrypt"))]
    Encrypt {
        /// What the library said.
        source: EncryptError,
    },
    /// The identity is of none of the recipients.
    #[snafu(display("it is not encrypted to the identity that was given"))]
    OtherRecipient,
    /// It is no age file, or not a whole one.
    #[snafu(display("it is no whole age file: {reason}"))]
    Damaged {
        /// What the library said.
        reason: String,
    },
    /// It could not be read.
    #[snafu(display("cannot read it"))]
    Read {
        /// Why not.
        source: std::io::Error,
    },
    /// It was opened, and no keys are in it.
    #[snafu(display("what is sealed in it are not the keys of a network"))]
    NoKeys,
    /// Even the keys alone are too many.
    #[snafu(display("the keys do not fit into {longest} bytes"))]
    TooLong {
        /// How many there may be.
        longest: usize,
    },
}

/// Whom a backup is encrypted to: an age public key, which is no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Recipient(x25519::Recipient);

impl FromStr for Recipient {
    type Err = BackupError;

    fn from_str(text: &str) -> Result<Self, BackupError> {
        let recipient = x25519::Recipient::from_str(text).ok();
        recipient.map(Self).with_context(|| BadRecipientSnafu {
            beginning: text.chars().take(8).collect::<String>(),
        })
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Debug for Recipient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Recipient({})", self.0)
    }
}

/// Who can open a backup: an age private key. Prints nothing of itself.
#[derive(Clone)]
pub struct Identity(x25519::Identity);

impl Identity {
    /// A new one.
    pub fn generate() -> Self {
        Self(x25519::Identity::generate())
    }

    /// Takes what `age-keygen` writes: one identity; comments and empty lines are passed over.
    pub fn parse(text: &str) -> Result<Self, BackupError> {
        let lines = text.lines().map(str::trim);
        let mut keys = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let key = keys.next().filter(|_| keys.next().is_none());
        let identity = key.and_then(|key| x25519::Identity::from_str(key).ok());
        identity.map(Self).context(BadIdentitySnafu)
    }

    /// The text, for the one place that stores it.
    pub fn expose(&self) -> SecretString {
        self.0.to_string()
    }

    /// Its public key.
    pub fn recipient(&self) -> Recipient {
        Recipient(self.0.to_public())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Identity([redacted])")
    }
}

/// A writer that encrypts to each of the recipients. Without its `finish` at the end, the file counts
/// as cut short.
pub fn encrypt<W: Write>(to: W, recipients: &[Recipient]) -> Result<StreamWriter<W>, BackupError> {
    let recipients = recipients.iter().map(|one| &one.0 as &dyn age::Recipient);
    let encryptor = Encryptor::with_recipients(recipients).context(EncryptSnafu)?;
    let writer = encryptor.wrap_output(to).map_err(EncryptError::Io);
    writer.context(EncryptSnafu)
}

/// A reader of what was encrypted. It fails at the end where that is not the end of the file.
pub fn decrypt<R: Read>(from: R, identity: &Identity) -> Result<StreamReader<R>, BackupError> {
    let identities = iter::once(&identity.0 as &dyn age::Identity);
    let opened = Decryptor::new(from).and_then(|file| file.decrypt(identities));
    opened.map_err(|error| match error {
        DecryptError::NoMatchingKeys => BackupError::OtherRecipient,
        // A file that ends too early is an error of reading for the library.
        DecryptError::Io(source) if source.kind() != std::io::ErrorKind::UnexpectedEof => {
            BackupError::Read { source }
        }
        error => BackupError::Damaged {
            reason: error.to_string(),
        },
    })
}

/// What a network cannot do without, besides its database. `Debug` shows no secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Keys {
    /// The root.
    pub root: Root,
    /// The members' signers, by the id of the member.
    #[serde(default)]
    pub signers: BTreeMap<String, Signer>,
    /// The first administrator, as a person logs in.
    pub admin: Admin,
}

/// The root of a network.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Root {
    /// PEM: its certificate, then those before it that are still trusted.
    pub certificate: String,
    /// The key of the first of them.
    #[serde(with = "pem")]
    pub key: Key,
}

/// The signer of a member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Signer {
    /// PEM. `None` where there was no room for it: it can be signed anew for the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Its key. What it signed stays good as long as this stays.
    #[serde(with = "pem")]
    pub key: Key,
}

/// The first administrator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Admin {
    /// With which to log in.
    pub username: String,
    /// With which to log in.
    #[serde(with = "password")]
    pub password: SecretString,
}

impl Keys {
    fn without_signers_certificates(mut self) -> Self {
        for signer in self.signers.values_mut() {
            signer.certificate = None;
        }
        self
    }

    fn without_older_roots(mut self) -> Self {
        let bundle = &mut self.root.certificate;
        if let Some(at) = bundle.find(END) {
            bundle.truncate(at + END.len());
            bundle.push('\n');
        }
        self
    }
}

/// Encrypts the keys into one line of at most `longest` bytes. Where they are too long, what can be made
/// again gives way: the certificates of the signers, then those of roots before this one. (The library
/// adds a random stanza to each file: the same keys differ by some two hundred bytes.)
pub fn seal(keys: &Keys, recipient: &Recipient, longest: usize) -> Result<String, BackupError> {
    let smaller = keys.clone().without_signers_certificates();
    let smallest = smaller.clone().without_older_roots();
    for keys in [keys, &smaller, &smallest] {
        let text = sealed(keys, recipient)?;
        if text.len() <= longest {
            return Ok(text);
        }
    }
    TooLongSnafu { longest }.fail()
}

fn sealed(keys: &Keys, recipient: &Recipient) -> Result<String, BackupError> {
    let written = || -> Result<Vec<u8>, BackupError> {
        let to = encrypt(Vec::new(), std::slice::from_ref(recipient))?;
        let mut packed = ZlibEncoder::new(to, Compression::best());
        let json = SecretString::from(serde_json::to_string(keys).ok().context(NoKeysSnafu)?);
        let file = packed
            .write_all(json.expose_secret().as_bytes())
            .and_then(|()| packed.finish()?.finish());
        file.map_err(EncryptError::Io).context(EncryptSnafu)
    };
    written().map(|file| STANDARD.encode(file))
}

/// Opens what [`seal`] made.
pub fn open(text: &str, identity: &Identity) -> Result<Keys, BackupError> {
    let reason = "it is no base64";
    let file = STANDARD.decode(text.trim()).ok();
    let file = file.context(DamagedSnafu { reason })?;
    let packed = decrypt(file.as_slice(), identity)?;
    let mut json = String::new();
    let read = ZlibDecoder::new(packed)
        .take(LONGEST_KEYS)
        .read_to_string(&mut json);
    let json = SecretString::from(json);
    ensure!(
        read.is_ok(),
        DamagedSnafu {
            reason: "it cannot be unpacked"
        }
    );
    // What the parser says may show what it read.
    serde_json::from_str(json.expose_secret())
        .ok()
        .context(NoKeysSnafu)
}

/// A key is its PEM text, where it is encrypted.
mod pem {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    use crate::pki::Key;

    pub(super) fn serialize<S: Serializer>(key: &Key, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(key.expose_pem())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Key, D::Error> {
        Key::from_pem(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// A password is its text, where it is encrypted.
mod password {
    use secrecy::{ExposeSecret, SecretString};
    use serde::de::{Deserialize, Deserializer};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(text: &SecretString, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(text.expose_secret())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<SecretString, D::Error> {
        String::deserialize(from).map(SecretString::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::{Authority, Validity};
    use jiff::{SignedDuration, Timestamp};

    /// The message of a container, less what else is in its line.
    const MESSAGE: usize = 4096 - 400;

    fn keys(members: usize, roots: usize) -> Keys {
        let now = Timestamp::now();
        let validity = Validity {
            not_before: now,
            not_after: now + SignedDuration::from_hours(1000),
        };
        let root = Authority::root("example.com", validity).unwrap();
        let older = (1..roots).map(|_| root.renewed(validity).unwrap().cert_pem().to_owned());
        let signers = (0..members).map(|ordinal| {
            let member = format!("network-controller-{ordinal}");
            let signer = root.signer(&member, None, validity).unwrap();
            let signer = Signer {
                certificate: Some(signer.cert_pem().to_owned()),
                key: signer.key().clone(),
            };
            (member, signer)
        });
        Keys {
            signers: signers.collect(),
            admin: Admin {
                username: "admin".to_owned(),
                password: SecretString::from("a-password"),
            },
            root: Root {
                certificate: iter::once(root.cert_pem().to_owned())
                    .chain(older)
                    .collect(),
                key: root.key().clone(),
            },
        }
    }

    #[test]
    fn keys_come_back_whole_and_are_never_shown() {
        let (keys, identity) = (keys(1, 1), Identity::generate());
        let text = seal(&keys, &identity.recipient(), MESSAGE).unwrap();
        let back = open(&text, &identity).unwrap();
        assert_eq!(
            serde_json::to_value(&back).unwrap(),
            serde_json::to_value(&keys).unwrap()
        );
        let shown = format!("{back:?} {identity:?}");
        assert!(
            !shown.contains("PRIVATE") && !shown.contains("a-password"),
            "{shown}"
        );
        assert!(!shown.contains("AGE-SECRET"), "{shown}");
    }

    #[test]
    fn what_can_be_made_again_gives_way() {
        let identity = Identity::generate();
        let recipient = identity.recipient();
        let all = keys(5, 3);
        let text = seal(&all, &recipient, MESSAGE).unwrap();
        let back = open(&text, &identity).unwrap();
        assert_eq!(back.signers.len(), 5, "no key is left out");
        assert!(
            back.signers
                .values()
                .all(|signer| signer.certificate.is_none())
        );
        assert_eq!(back.root.certificate, all.root.certificate, "it fits");

        let all = keys(5, 20);
        let text = seal(&all, &recipient, MESSAGE).unwrap();
        let back = open(&text, &identity).unwrap();
        assert_eq!(back.root.certificate.matches(END).count(), 1);
        assert!(
            all.root
                .certificate
                .starts_with(back.root.certificate.trim_end())
        );
        assert!(back.root.key.belongs_to(&back.root.certificate).unwrap());

        let error = seal(&all, &recipient, 1000).unwrap_err();
        assert!(matches!(error, BackupError::TooLong { .. }), "{error}");
    }

    #[test]
    fn who_has_another_key_or_half_a_text_opens_nothing() {
        let (keys, identity) = (keys(1, 1), Identity::generate());
        let text = seal(&keys, &identity.recipient(), MESSAGE).unwrap();
        let error = open(&text, &Identity::generate()).unwrap_err();
        assert!(matches!(error, BackupError::OtherRecipient), "{error}");
        for damaged in ["", "?", &text[..40], &text[..400], &text[..text.len() - 40]] {
            let error = open(damaged, &identity).unwrap_err();
            assert!(
                matches!(error, BackupError::Damaged { .. }),
                "{damaged}: {error}"
            );
        }
        let mut other = encrypt(Vec::new(), &[identity.recipient()]).unwrap();
        let mut packed = ZlibEncoder::new(&mut other, Compression::best());
        packed.write_all(b"{}").unwrap();
        packed.finish().unwrap();
        let text = STANDARD.encode(other.finish().unwrap());
        let error = open(&text, &identity).unwrap_err();
        assert!(matches!(error, BackupError::NoKeys), "{error}");
    }

    #[test]
    fn each_recipient_can_read_it() {
        let identities = [Identity::generate(), Identity::generate()];
        let recipients = identities.each_ref().map(Identity::recipient);
        let mut file = encrypt(Vec::new(), &recipients).unwrap();
        file.write_all(b"hello").unwrap();
        let file = file.finish().unwrap();
        for identity in &identities {
            let mut text = String::new();
            let mut opened = decrypt(file.as_slice(), identity).unwrap();
            opened.read_to_string(&mut text).unwrap();
            assert_eq!(text, "hello");
        }
        assert!(encrypt(Vec::new(), &[]).is_err(), "it would be for nobody");
    }

    #[test]
    fn keys_are_read_as_age_writes_them() {
        let identity = Identity::generate();
        let recipient = identity.recipient().to_string();
        let secret = identity.expose();
        let text = format!(
            "# created: now\n# public key: {recipient}\n{}\n",
            secret.expose_secret()
        );
        assert_eq!(
            Identity::parse(&text).unwrap().recipient().to_string(),
            recipient
        );
        assert_eq!(
            recipient.parse::<Recipient>().unwrap().to_string(),
            recipient
        );
        for bad in ["", "# nothing", &recipient, &format!("{text}{text}")] {
            assert!(matches!(
                Identity::parse(bad),
                Err(BackupError::BadIdentity)
            ));
        }
        for bad in ["", "age1", "ssh-ed25519 AAAA", secret.expose_secret()] {
            let error = bad.parse::<Recipient>().unwrap_err().to_string();
            assert!(error.contains("is no age recipient"), "{error}");
            assert!(!error.contains(secret.expose_secret()), "{error}");
        }
    }
}
