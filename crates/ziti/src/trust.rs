//! Which certificates may speak for a Ziti network.
//!
//! Trust starts from one of two things a person hands over: a bundle of certificate
//! authorities, or a token that the network signed. There is no trust on first use. For a
//! token the path is: take the certificate served at the issuer, check that its key signed
//! the token, fetch the network's authorities over a connection that trusts this certificate
//! alone.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use snafu::{OptionExt, ResultExt, Snafu, ensure};
use url::Url;

use crate::http::{self, Failure};
use crate::signature::{self, Refusal};
use crate::tls::{self, HandshakeError};
use crate::token::EnrollmentToken;
use crate::{pkcs7, pki};

/// Where Ziti publishes its authorities (RFC 8951 names the path).
const CA_CERTIFICATES: &str = "/.well-known/est/cacerts";

/// Why there is no trust to be had.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum TrustError {
    /// The text holds no PEM at all.
    #[snafu(display("the CA bundle is not PEM: it has no `-----BEGIN CERTIFICATE-----`"))]
    NotPem,
    /// There are PEM blocks, but none is a certificate (a key in the wrong place, often).
    #[snafu(display("the CA bundle has no certificate in it, only other PEM blocks"))]
    NoCertificate,
    /// A block that claims to be a certificate and is none.
    #[snafu(display("certificate {position} of the CA bundle cannot be read"))]
    BadCertificate {
        /// Which one, counted from 1.
        position: usize,
    },
    /// Nobody answers where the token was issued.
    #[snafu(display("cannot reach {issuer}, which issued the token: {reason}"))]
    IssuerUnreachable {
        /// The address from the token.
        issuer: String,
        /// What happened.
        reason: String,
    },
    /// The server at the issuer's address is not of the network that the CA bundle names.
    #[snafu(display(
        "the certificate of {issuer} is not signed by the CA bundle of the network ({reason}): \
         the token belongs to another network, or the bundle is wrong"
    ))]
    IssuerNotTrusted {
        /// The address from the token.
        issuer: String,
        /// What TLS said.
        reason: String,
    },
    /// The server at the issuer's address did not sign this token.
    #[snafu(display(
        "the token was not signed by the key that {issuer} serves now: it belongs to another \
         network, or the controller's certificate was replaced since, and a new token is needed"
    ))]
    SignatureInvalid {
        /// The address from the token.
        issuer: String,
    },
    /// The token names an algorithm that is no signature by a key pair.
    #[snafu(display("the token is signed with `{algorithm}`, which is not accepted"))]
    AlgorithmNotAccepted {
        /// Header `alg`.
        algorithm: String,
    },
    /// The issuer answered something else than a list of certificates.
    #[snafu(display("{issuer}{CA_CERTIFICATES} did not answer with certificates: {reason}"))]
    NoAuthorities {
        /// The address from the token.
        issuer: String,
        /// What it answered.
        reason: String,
    },
    /// The TLS library refused a configuration made from good parts.
    #[snafu(display("cannot set up TLS towards {issuer}"))]
    Tls {
        /// The address from the token.
        issuer: String,
        /// What the library said.
        source: rustls::Error,
    },
    /// The HTTP library refused its configuration.
    #[snafu(display("cannot set up HTTP towards {issuer}"))]
    Http {
        /// The address from the token.
        issuer: String,
        /// What the library said.
        source: reqwest::Error,
    },
}

/// One or more certificate authorities. Never empty, and each one can be read.
#[derive(Clone, PartialEq, Eq)]
pub struct CaBundle {
    certificates: Vec<CertificateDer<'static>>,
}

impl CaBundle {
    /// Takes every certificate of a PEM text. Other blocks are passed over, as long as there
    /// is one certificate.
    pub fn from_pem(pem: &str) -> Result<Self, TrustError> {
        let mut certificates = Vec::new();
        for (index, item) in CertificateDer::pem_slice_iter(pem.as_bytes()).enumerate() {
            let position = index + 1;
            let certificate = item.ok().context(BadCertificateSnafu { position })?;
            ensure!(usable(&certificate), BadCertificateSnafu { position });
            certificates.push(certificate);
        }
        if certificates.is_empty() {
            ensure!(pem.contains("-----BEGIN "), NotPemSnafu);
            return NoCertificateSnafu.fail();
        }
        Ok(Self { certificates })
    }

    /// The bundle as PEM, one block after the other.
    pub fn to_pem(&self) -> String {
        self.certificates.iter().map(|der| pem(der)).collect()
    }

    /// How many certificates it holds; at least one.
    pub fn len(&self) -> usize {
        self.certificates.len()
    }

    /// Always false; here because a length wants one.
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    pub(crate) fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }
}

impl fmt::Debug for CaBundle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fingerprints = self.certificates.iter().map(|der| pki::fingerprint(der));
        formatter.write_str("CaBundle")?;
        formatter.debug_list().entries(fingerprints).finish()
    }
}

/// What a person hands over so that a network can be recognized.
#[derive(Debug, Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each network, and a box would be in everybody's way"
)]
pub enum TrustAnchor {
    /// The network's certificate authorities.
    CaBundle(CaBundle),
    /// A token that the network signed: an enrollment token, or a network JWT
    /// (`GET /network-jwts`). Nothing is redeemed.
    Token(EnrollmentToken),
}

impl TrustAnchor {
    /// The certificate authorities behind the anchor. A bundle is returned as it is; for a
    /// token the issuer is asked, twice, each within `timeout`.
    pub async fn resolve(&self, timeout: Duration) -> Result<CaBundle, TrustError> {
        match self {
            Self::CaBundle(bundle) => Ok(bundle.clone()),
            Self::Token(token) => verified_ca_bundle(token, None, timeout).await,
        }
    }
}

/// Verifies `token` against its issuer and fetches the authorities of the issuer's network.
///
/// With `expected` (the CA bundle of the network that this token should belong to), the
/// issuer's certificate must verify under it first, so a token of another network fails as
/// [`TrustError::IssuerNotTrusted`] before anything of that network is believed.
///
/// Each of the two connections has `timeout` to itself.
pub async fn verified_ca_bundle(
    token: &EnrollmentToken,
    expected: Option<&CaBundle>,
    timeout: Duration,
) -> Result<CaBundle, TrustError> {
    let issuer = base(token.issuer());
    let host = token.issuer().host_str().unwrap_or_default();
    let port = token.issuer().port_or_known_default().unwrap_or(443);
    let roots = expected.map(CaBundle::certificates);
    let leaf = tls::served_leaf(host, port, roots, timeout)
        .await
        .map_err(|error| match error {
            HandshakeError::Unreachable(reason) => TrustError::IssuerUnreachable {
                issuer: issuer.clone(),
                reason,
            },
            HandshakeError::NotTrusted(reason) => TrustError::IssuerNotTrusted {
                issuer: issuer.clone(),
                reason,
            },
        })?;
    match signature::verify(token, &leaf) {
        Ok(()) => {}
        Err(Refusal::Algorithm) => {
            let algorithm = token.algorithm();
            return AlgorithmNotAcceptedSnafu { algorithm }.fail();
        }
        Err(Refusal::Mismatch) => return SignatureInvalidSnafu { issuer }.fail(),
    }
    authorities(&issuer, leaf, timeout).await
}

async fn authorities(
    issuer: &str,
    leaf: CertificateDer<'static>,
    timeout: Duration,
) -> Result<CaBundle, TrustError> {
    let config = tls::pinned_config(leaf).context(TlsSnafu { issuer })?;
    let client = http::client(config, false, timeout / 2).context(HttpSnafu { issuer })?;
    let request = client.get(format!("{issuer}{CA_CERTIFICATES}"));
    let reply = http::exchange_small(request, timeout)
        .await
        .map_err(|failure| match failure {
            Failure::Unreachable(reason) | Failure::ReplyLost(reason) => {
                let issuer = issuer.to_owned();
                TrustError::IssuerUnreachable { issuer, reason }
            }
            Failure::NotTrusted(reason) => {
                let issuer = issuer.to_owned();
                TrustError::IssuerNotTrusted { issuer, reason }
            }
        })?;
    let unusable = |reason: String| NoAuthoritiesSnafu { issuer, reason };
    ensure!(
        reply.status.is_success(),
        unusable(format!("status {}", reply.status.as_u16()))
    );
    // Ziti breaks the base64 into lines of 64 characters.
    let mut text = reply.body.clone();
    text.retain(|byte| !byte.is_ascii_whitespace());
    let certificates = STANDARD
        .decode(text)
        .ok()
        .and_then(|message| pkcs7::certificates(&message))
        .with_context(|| unusable(format!("a body of type {}", reply.media_type())))?;
    // What TLS cannot use as an anchor would only break the bundle for everybody.
    let certificates: Vec<_> = certificates.into_iter().filter(usable).collect();
    ensure!(
        !certificates.is_empty(),
        unusable("an empty list".to_owned())
    );
    Ok(CaBundle { certificates })
}

/// `https://host:port` without a slash at the end: network JWTs have one, others do not.
pub(crate) fn base(issuer: &Url) -> String {
    issuer.as_str().trim_end_matches('/').to_owned()
}

fn usable(certificate: &CertificateDer<'static>) -> bool {
    RootCertStore::empty().add(certificate.clone()).is_ok()
}

fn pem(der: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(der);
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    fn certificate() -> String {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(vec!["ca.example".to_owned()]).unwrap();
        parameters.self_signed(&key).unwrap().pem()
    }

    #[test]
    fn a_bundle_survives_the_way_through_pem() {
        let text = format!("a comment\n{}{}", certificate(), certificate());
        let bundle = CaBundle::from_pem(&text).unwrap();
        assert_eq!(bundle.len(), 2);
        assert_eq!(CaBundle::from_pem(&bundle.to_pem()).unwrap(), bundle);
    }

    #[test]
    fn each_fault_of_a_bundle_has_its_name() {
        let key = KeyPair::generate().unwrap().serialize_pem();
        let garbage = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
        assert!(matches!(CaBundle::from_pem(""), Err(TrustError::NotPem)));
        assert!(matches!(
            CaBundle::from_pem("hello"),
            Err(TrustError::NotPem)
        ));
        assert!(matches!(
            CaBundle::from_pem(&key),
            Err(TrustError::NoCertificate)
        ));
        let second = format!("{}{garbage}", certificate());
        let error = CaBundle::from_pem(&second).unwrap_err();
        assert!(
            matches!(error, TrustError::BadCertificate { position: 2 }),
            "{error}"
        );
    }
}
