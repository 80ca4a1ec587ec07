//! Keys, certificate signing requests, and what a certificate says.
//!
//! Used by enrollment, by the agent (is the identity on this volume sound?) and by the
//! operator (when does a credential run out?). No network here.

use std::fmt;
use std::net::IpAddr;

use aws_lc_rs::digest;
use jiff::Timestamp;
use rcgen::string::Ia5String;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData, SanType};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};
use snafu::{OptionExt, ResultExt, Snafu};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};

/// What can go wrong with a key, a request or a certificate.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum PkiError {
    /// The system gave no key.
    #[snafu(display("cannot generate a P-256 key"))]
    GenerateKey {
        /// What the cryptography library said.
        source: rcgen::Error,
    },
    /// Not a private key in PEM, or of a kind that Ziti does not use.
    #[snafu(display("cannot read the private key: it must be a PEM block with an EC or RSA key"))]
    ReadKey {
        /// What the cryptography library said.
        source: rcgen::Error,
    },
    /// A name that a certificate cannot hold.
    #[snafu(display("`{name}` cannot be a subject alternative name"))]
    BadName {
        /// The offending name.
        name: String,
        /// What the library said.
        source: rcgen::Error,
    },
    /// The request could not be signed.
    #[snafu(display("cannot make a certificate signing request for `{common_name}`"))]
    SignRequest {
        /// The subject of the request.
        common_name: String,
        /// What the cryptography library said.
        source: rcgen::Error,
    },
    /// No certificate in the text.
    #[snafu(display("there is no PEM certificate in it"))]
    NoCertificate,
    /// A block that claims to be a certificate and is none.
    #[snafu(display("the certificate cannot be read"))]
    ReadCertificate,
    /// A time outside of what can be represented.
    #[snafu(display("the certificate has a validity that no calendar holds"))]
    BadValidity,
}

/// A private key in PEM. Prints nothing of itself.
#[derive(Clone)]
pub struct Key {
    pem: SecretString,
}

impl Key {
    /// A new P-256 key (PKCS#8), the kind that Ziti's own programs accept in all versions.
    pub fn generate() -> Result<Self, PkiError> {
        let pair =
            KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).context(GenerateKeySnafu)?;
        Ok(Self {
            pem: pair.serialize_pem().into(),
        })
    }

    /// Takes an existing key: PKCS#8, SEC 1 or PKCS#1. `ziti router enroll` makes RSA keys by
    /// default, so an adopted volume may hold one.
    pub fn from_pem(pem: &str) -> Result<Self, PkiError> {
        KeyPair::from_pem(pem).context(ReadKeySnafu)?;
        Ok(Self { pem: pem.into() })
    }

    /// The PEM text, for the one place that stores it.
    pub fn expose_pem(&self) -> &str {
        self.pem.expose_secret()
    }

    /// Whether this key belongs to the first certificate of `certificate_pem`.
    pub fn belongs_to(&self, certificate_pem: &str) -> Result<bool, PkiError> {
        let pair = self.pair()?;
        let der = first_certificate(certificate_pem)?;
        let certificate = parse(&der)?;
        Ok(certificate.public_key().raw == pair.subject_public_key_info())
    }

    pub(crate) fn pair(&self) -> Result<KeyPair, PkiError> {
        KeyPair::from_pem(self.expose_pem()).context(ReadKeySnafu)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key([redacted])")
    }
}

/// Subject alternative names that a server certificate shall carry. Every name under which a
/// listener is advertised must be among them, or the router (the controller) refuses to start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sans {
    /// Host names.
    pub dns: Vec<String>,
    /// Addresses.
    pub ips: Vec<IpAddr>,
    /// URIs.
    pub uris: Vec<String>,
}

impl Sans {
    /// The same, as the library takes them.
    pub(crate) fn names(&self) -> Result<Vec<SanType>, PkiError> {
        let name = |text: &String| -> Result<Ia5String, PkiError> {
            Ia5String::try_from(text.as_str()).context(BadNameSnafu { name: text })
        };
        let mut names = Vec::new();
        for dns in &self.dns {
            names.push(SanType::DnsName(name(dns)?));
        }
        names.extend(self.ips.iter().copied().map(SanType::IpAddress));
        for uri in &self.uris {
            names.push(SanType::URI(name(uri)?));
        }
        Ok(names)
    }
}

/// A PEM signing request with the subject `CN=common_name` alone and the given names.
///
/// Ziti checks that the CN of a router's client request is the router's id, and ignores the
/// rest of the subject.
pub fn signing_request(key: &Key, common_name: &str, sans: &Sans) -> Result<String, PkiError> {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, common_name);
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = subject;
    parameters.subject_alt_names = sans.names()?;
    parameters
        .serialize_request(&key.pair()?)
        .and_then(|request| request.pem())
        .context(SignRequestSnafu { common_name })
}

/// What the first certificate of a PEM text says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Subject common name; for a router, its id. Empty where there is none.
    pub common_name: String,
    /// First moment at which it is valid.
    pub not_before: Timestamp,
    /// Last moment at which it is valid. Ziti gives routers and identities one year.
    pub not_after: Timestamp,
    /// Host names it is valid for.
    pub dns: Vec<String>,
    /// Addresses it is valid for.
    pub ips: Vec<IpAddr>,
    /// URIs it is valid for; a controller's SPIFFE id is one.
    pub uris: Vec<String>,
    /// The whole subject, such as `CN=ctrl-0`.
    pub subject: String,
    /// Whether it may sign others.
    pub is_ca: bool,
    /// Lowercase hex of the identifier of its own key; `None` where it states none.
    pub key_id: Option<String>,
    /// Lowercase hex of the identifier of the key that signed it, which is [`Self::key_id`] of its
    /// issuer; `None` where it states none.
    pub issuer_key_id: Option<String>,
    /// Lowercase hex SHA-1 of the DER, which is how Ziti names certificates (`fingerprint`).
    pub fingerprint: String,
}

impl CertificateFacts {
    /// Reads the first certificate in `pem` (the leaf, where it is a chain).
    pub fn from_pem(pem: &str) -> Result<Self, PkiError> {
        Self::from_der(&first_certificate(pem)?)
    }

    pub(crate) fn from_der(der: &CertificateDer<'_>) -> Result<Self, PkiError> {
        let certificate = parse(der)?;
        let validity = certificate.validity();
        let moment = |seconds| {
            Timestamp::from_second(seconds)
                .ok()
                .context(BadValiditySnafu)
        };
        let mut facts = Self {
            common_name: certificate
                .subject()
                .iter_common_name()
                .find_map(|name| name.as_str().ok())
                .unwrap_or_default()
                .to_owned(),
            not_before: moment(validity.not_before.timestamp())?,
            not_after: moment(validity.not_after.timestamp())?,
            dns: Vec::new(),
            ips: Vec::new(),
            uris: Vec::new(),
            subject: certificate.subject().to_string(),
            is_ca: certificate.is_ca(),
            key_id: None,
            issuer_key_id: None,
            fingerprint: fingerprint(der),
        };
        for extension in certificate.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => {
                    facts.key_id = Some(hex::encode(id.0));
                }
                ParsedExtension::AuthorityKeyIdentifier(issuer) => {
                    let id = issuer.key_identifier.as_ref();
                    facts.issuer_key_id = id.map(|id| hex::encode(id.0));
                }
                _ => {}
            }
        }
        let names = certificate.subject_alternative_name().ok().flatten();
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::DNSName(dns) => facts.dns.push((*dns).to_owned()),
                GeneralName::IPAddress(bytes) => facts.ips.extend(ip_address(bytes)),
                GeneralName::URI(uri) => facts.uris.push((*uri).to_owned()),
                _ => {}
            }
        }
        Ok(facts)
    }
}

/// Lowercase hex SHA-1 of a certificate's DER, as Ziti computes it (also a token's `kid`).
/// A name, not a protection: Ziti chose the hash.
pub(crate) fn fingerprint(der: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, der))
}

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, bytes))
}

pub(crate) fn parse<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, PkiError> {
    X509Certificate::from_der(der)
        .ok()
        .map(|(_, certificate)| certificate)
        .context(ReadCertificateSnafu)
}

fn first_certificate(pem: &str) -> Result<CertificateDer<'static>, PkiError> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .next()
        .context(NoCertificateSnafu)?
        .ok()
        .context(ReadCertificateSnafu)
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::CertificateSigningRequestParams;

    fn self_signed(key: &Key, names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, "r1");
        parameters.self_signed(&key.pair().unwrap()).unwrap().pem()
    }

    #[test]
    fn a_request_carries_the_common_name_alone_and_the_names() {
        let key = Key::generate().unwrap();
        let sans = Sans {
            dns: vec!["a.example".into()],
            ips: vec!["127.0.0.1".parse().unwrap()],
            uris: vec!["spiffe://x/y".into()],
        };
        let request = signing_request(&key, "r1", &sans).unwrap();
        let read = CertificateSigningRequestParams::from_pem(&request).unwrap();
        assert_eq!(read.params.subject_alt_names.len(), 3);
        assert_eq!(read.params.distinguished_name.iter().count(), 1);
        let plain = signing_request(&key, "r1", &Sans::default()).unwrap();
        let read = CertificateSigningRequestParams::from_pem(&plain).unwrap();
        assert!(read.params.subject_alt_names.is_empty());
    }

    #[test]
    fn a_name_outside_ascii_is_refused_by_name() {
        let key = Key::generate().unwrap();
        let sans = Sans {
            dns: vec!["münchen".into()],
            ..Sans::default()
        };
        let error = signing_request(&key, "r1", &sans).unwrap_err();
        assert!(error.to_string().contains("münchen"));
    }

    #[test]
    fn facts_and_ownership() {
        let key = Key::generate().unwrap();
        let pem = self_signed(&key, &["a.example", "10.0.0.1"]);
        let facts = CertificateFacts::from_pem(&pem).unwrap();
        assert_eq!(facts.common_name, "r1");
        assert_eq!(facts.dns, ["a.example"]);
        assert_eq!(facts.ips, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(facts.fingerprint.len(), 40);
        assert!(facts.not_after > facts.not_before);
        assert!(key.belongs_to(&pem).unwrap());
        assert!(!Key::generate().unwrap().belongs_to(&pem).unwrap());
    }

    #[test]
    fn what_is_no_certificate_says_so() {
        let error = CertificateFacts::from_pem("hello").unwrap_err();
        assert!(matches!(error, PkiError::NoCertificate), "{error}");
        let garbage = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
        let error = CertificateFacts::from_pem(garbage).unwrap_err();
        assert!(matches!(error, PkiError::ReadCertificate), "{error}");
    }

    #[test]
    fn keys_of_other_tools_are_read_and_never_printed() {
        // `openssl ecparam -name prime256v1 -genkey -noout`: SEC 1, as `ziti` writes them.
        let sec1 = "-----BEGIN EC PRIVATE KEY-----\n\
            MHcCAQEEIBG5HJU4JwnfKzLkd9C6BLNZFMSyzsOSlrBzHFyhRP5yoAoGCCqGSM49\n\
            AwEHoUQDQgAE\n-----END EC PRIVATE KEY-----\n";
        assert!(Key::from_pem(sec1).is_err(), "a truncated key is refused");
        let key = Key::generate().unwrap();
        assert!(Key::from_pem(key.expose_pem()).is_ok());
        assert_eq!(format!("{key:?}"), "Key([redacted])");
    }
}
