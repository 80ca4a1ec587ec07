//! The certificates of a Ziti network that is provisioned here: one root, a signer for each
//! controller, and each controller's own certificate.
//!
//! For the operator, which keeps the results in Secrets. Nothing here reads a clock: when a
//! certificate begins and ends is the caller's word. The keys are EC P-256, which is what Ziti
//! takes in all versions.
//!
//! ```text
//! root              CN=<trust domain> root, URI spiffe://<trust domain>
//! ├─ signer         CN=<member> signer, signs nothing but leaves (path length 0)
//! │  └─ …           what routers and identities are given when they enroll at this member
//! ├─ controller     CN=<member>, URI spiffe://<trust domain>/controller/<member>
//! └─ backup         CN=backup, URI spiffe://<trust domain>/backup, a client of the members' sidecars alone
//! ```
//!
//! Which file of a controller's configuration holds what (seen to be accepted by 1.6.0 and 2.1):
//!
//! | key | content |
//! | --- | --- |
//! | `identity.ca` | the root; after a root was replaced, both |
//! | `identity.cert` | the controller's certificate |
//! | `identity.server_cert` | the controller's certificate, then the certificate of its issuer where that is not the root |
//! | `identity.key` | the controller's key |
//! | `edge.enrollment.signingCert.cert` | the signer's certificate, then the root |
//! | `edge.enrollment.signingCert.key` | the signer's key |
//!
//! The root's key signs signers and controllers and nothing else, so no controller needs it. The
//! members of a cluster share the root, and only the root: that is what makes a certificate of
//! one member's signer good at every other.

use std::time::SystemTime;

use aws_lc_rs::rand;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SerialNumber,
};
use snafu::{OptionExt, ResultExt, Snafu, ensure};

use crate::pki::{CertificateFacts, Key, PkiError, Sans, sha256_hex};

/// The longest common name that X.509 allows (`ub-common-name`), in bytes.
const LONGEST_COMMON_NAME: usize = 64;
/// The longest trust domain that SPIFFE allows, in bytes.
const LONGEST_TRUST_DOMAIN: usize = 255;
/// How much of a certificate's number is chance, in bytes; RFC 5280 allows 20 in all.
const SERIAL_LENGTH: usize = 16;

/// Why there is no such certificate.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum AuthorityError {
    /// A key, a name or a certificate that cannot be used.
    #[snafu(transparent)]
    Pki {
        /// What is wrong with it.
        source: PkiError,
    },
    /// Not what SPIFFE allows as the name of a trust domain.
    #[snafu(display(
        "`{trust_domain}` cannot be a trust domain: use 1 to 255 lowercase letters, digits, `.`, \
         `-` and `_`"
    ))]
    BadTrustDomain {
        /// The offending name.
        trust_domain: String,
    },
    /// Ziti takes a controller's id from its certificate, so the name cannot be cut.
    #[snafu(display(
        "`{id}` cannot be the id of a controller: use 1 to 64 letters, digits, `.`, `-` and `_`"
    ))]
    BadControllerId {
        /// The offending id.
        id: String,
    },
    /// It would never be valid.
    #[snafu(display("a certificate cannot end at {not_after} when it begins at {not_before}"))]
    BadValidity {
        /// Its begin.
        not_before: Timestamp,
        /// Its end.
        not_after: Timestamp,
    },
    /// A certificate that may not sign others.
    #[snafu(display("the certificate of {subject} is not that of an authority: it may not sign"))]
    NotAnAuthority {
        /// Its subject.
        subject: String,
    },
    /// Certificate and key are not of one pair.
    #[snafu(display("the key does not belong to the certificate of {subject}"))]
    OtherKey {
        /// The subject of the certificate.
        subject: String,
    },
    /// Only who signed its own certificate can renew it.
    #[snafu(display("{subject} is not a root: its issuer must sign it anew"))]
    NotARoot {
        /// The subject of the certificate.
        subject: String,
    },
    /// The system has no randomness to give.
    #[snafu(display("cannot draw the number of the certificate of `{name}`"))]
    Randomness {
        /// Whose certificate it is.
        name: String,
    },
    /// The library refused to sign.
    #[snafu(display("cannot sign the certificate of `{name}`"))]
    Sign {
        /// Whose certificate it is.
        name: String,
        /// What the library said.
        source: rcgen::Error,
    },
}

/// When a certificate is valid, in whole seconds, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First moment. Some minutes before now, or machines whose clocks lag refuse it.
    pub not_before: Timestamp,
    /// Last moment. Beyond that of the issuer it is of no use until the issuer is renewed.
    pub not_after: Timestamp,
}

/// A certificate that may sign others, and its key. `Debug` does not show the key.
#[derive(Debug, Clone)]
pub struct Authority {
    cert_pem: String,
    key: Key,
}

impl Authority {
    /// A new root for `trust_domain`, with a new key.
    pub fn root(trust_domain: &str, validity: Validity) -> Result<Self, AuthorityError> {
        let uri = spiffe(trust_domain)?;
        let mut params = params(&short(&format!("{trust_domain} root")), validity)?;
        // Not limited in depth: whoever brings a root of their own may have one more level.
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = signing();
        params.subject_alt_names = Sans {
            uris: vec![uri],
            ..Sans::default()
        }
        .names()?;
        let key = Key::generate()?;
        Self::self_signed(&params, key, trust_domain)
    }

    /// An authority that was made before, of its certificate (the first in `cert_pem`) and key.
    pub fn load(cert_pem: &str, key: Key) -> Result<Self, AuthorityError> {
        let facts = CertificateFacts::from_pem(cert_pem)?;
        let subject = facts.subject;
        ensure!(facts.is_ca, NotAnAuthoritySnafu { subject });
        ensure!(key.belongs_to(cert_pem)?, OtherKeySnafu { subject });
        Ok(Self {
            cert_pem: cert_pem.to_owned(),
            key,
        })
    }

    /// Its certificate, PEM.
    pub fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    /// Its key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// This root with another validity: subject, names and key stay. So what was signed by the
    /// one verifies under the other as well, and the two can be exchanged in any order.
    pub fn renewed(&self, validity: Validity) -> Result<Self, AuthorityError> {
        let facts = CertificateFacts::from_pem(&self.cert_pem)?;
        let is_root = facts.key_id.is_some()
            && (facts.issuer_key_id.is_none() || facts.issuer_key_id == facts.key_id);
        let subject = facts.subject;
        ensure!(is_root, NotARootSnafu { subject });
        let mut renewed = params(&facts.common_name, validity)?;
        renewed.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        renewed.key_usages = signing();
        renewed.subject_alt_names = Sans {
            dns: facts.dns,
            ips: facts.ips,
            uris: facts.uris,
        }
        .names()?;
        Self::self_signed(&renewed, self.key.clone(), &facts.common_name)
    }

    /// The signer of a controller: it signs what enrolls there, and can make no other authority.
    /// With the `key` of the signer before it, what that one signed stays good; without, the key
    /// is new.
    pub fn signer(
        &self,
        member: &str,
        key: Option<Key>,
        validity: Validity,
    ) -> Result<Self, AuthorityError> {
        let mut params = params(&short(&format!("{member} signer")), validity)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = signing();
        let key = key.map_or_else(Key::generate, Ok)?;
        let cert_pem = self.sign(&params, &key, member)?;
        Ok(Self { cert_pem, key })
    }

    /// The certificate of the controller `id`, for both ends of a connection, and its new key.
    ///
    /// `sans` must hold every host under which the controller is reached or advertised: Ziti ends
    /// at its start where its own address is missing, and makes no tokens where that of the client
    /// API is. The SPIFFE id is added here.
    pub fn controller_certificate(
        &self,
        id: &str,
        sans: &Sans,
        trust_domain: &str,
        validity: Validity,
    ) -> Result<(String, Key), AuthorityError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        ensure!(
            (1..=LONGEST_COMMON_NAME).contains(&id.len()) && id.chars().all(allowed),
            BadControllerIdSnafu { id }
        );
        let mut params = params(id, validity)?;
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let mut sans = sans.clone();
        // A second SPIFFE id beside it is an error in Ziti.
        sans.uris.retain(|uri| !uri.starts_with("spiffe://"));
        let uri = format!("{}/controller/{id}", spiffe(trust_domain)?);
        sans.uris.push(uri);
        params.subject_alt_names = sans.names()?;
        let key = Key::generate()?;
        let cert_pem = self.sign(&params, &key, id)?;
        Ok((cert_pem, key))
    }

    /// The certificate with which a backup asks the members' sidecars for the database, and its new
    /// key. Ziti knows nobody of that name.
    pub fn backup_certificate(
        &self,
        trust_domain: &str,
        validity: Validity,
    ) -> Result<(String, Key), AuthorityError> {
        const NAME: &str = "backup";
        let mut params = params(NAME, validity)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let sans = Sans {
            uris: vec![backup_uri(trust_domain)?],
            ..Sans::default()
        };
        params.subject_alt_names = sans.names()?;
        let key = Key::generate()?;
        let cert_pem = self.sign(&params, &key, NAME)?;
        Ok((cert_pem, key))
    }

    fn self_signed(
        params: &CertificateParams,
        key: Key,
        name: &str,
    ) -> Result<Self, AuthorityError> {
        let certificate = params.self_signed(&key.pair()?);
        let cert_pem = certificate.context(SignSnafu { name })?.pem();
        Ok(Self { cert_pem, key })
    }

    fn sign(
        &self,
        params: &CertificateParams,
        key: &Key,
        name: &str,
    ) -> Result<String, AuthorityError> {
        let issuer: Issuer<'_, KeyPair> =
            Issuer::from_ca_cert_pem(&self.cert_pem, self.key.pair()?)
                .context(SignSnafu { name })?;
        let certificate = params.signed_by(&key.pair()?, &issuer);
        Ok(certificate.context(SignSnafu { name })?.pem())
    }
}

/// What all certificates have: a subject of one name, a number of chance (a renewed root would
/// otherwise have the number of the one before it), and who signed it with which key.
fn params(common_name: &str, validity: Validity) -> Result<CertificateParams, AuthorityError> {
    let Validity {
        not_before,
        not_after,
    } = validity;
    ensure!(
        not_before < not_after,
        BadValiditySnafu {
            not_before,
            not_after
        }
    );
    let mut params = CertificateParams::default();
    params.not_before = SystemTime::from(not_before).into();
    params.not_after = SystemTime::from(not_after).into();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, common_name);
    params.distinguished_name = subject;
    let mut number = [0; SERIAL_LENGTH];
    rand::fill(&mut number)
        .ok()
        .context(RandomnessSnafu { name: common_name })?;
    // Positive, and of one length.
    number[0] = number[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&number));
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn signing() -> Vec<KeyUsagePurpose> {
    vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign]
}

/// The URI in the certificate of [`Authority::backup_certificate`].
pub fn backup_uri(trust_domain: &str) -> Result<String, AuthorityError> {
    Ok(format!("{}/backup", spiffe(trust_domain)?))
}

/// `spiffe://<trust domain>`.
fn spiffe(trust_domain: &str) -> Result<String, AuthorityError> {
    let allowed =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_');
    ensure!(
        (1..=LONGEST_TRUST_DOMAIN).contains(&trust_domain.len())
            && trust_domain.chars().all(allowed),
        BadTrustDomainSnafu { trust_domain }
    );
    Ok(format!("spiffe://{trust_domain}"))
}

/// A common name of what may be too long for one: cut, and told from others of the same beginning
/// by a digest.
fn short(name: &str) -> String {
    const DIGEST: usize = 16;
    if name.len() <= LONGEST_COMMON_NAME {
        return name.to_owned();
    }
    let mut end = LONGEST_COMMON_NAME - DIGEST - 1;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!(
        "{} {}",
        &name[..end],
        &sha256_hex(name.as_bytes())[..DIGEST]
    )
}
