//! TLS between programs of ours, by the certificates of a network: a backup asks the members' sidecars
//! for the database. The agent is who uses this, at both ends.
//!
//! Each end trusts what a root of the network signed *itself*, and by its URI alone knows who it is. A
//! certificate that a member's signer signed counts for nothing here: Ziti has it sign whatever URIs a
//! router asks for when it enrolls (read in the source of 1.6.0), so any router could be a backup.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    ServerConfig, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use snafu::{OptionExt, ResultExt, Snafu};

use crate::authority::{AuthorityError, backup_uri};
use crate::pki::{CertificateFacts, Key, PkiError};
use crate::tls::provider;
use crate::trust::CaBundle;

/// Why there is no TLS.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum MutualError {
    /// The own certificate cannot be read.
    #[snafu(display("cannot read the certificate"))]
    Certificate {
        /// What is wrong with it.
        source: PkiError,
    },
    /// The own certificate is not that of a member.
    #[snafu(display(
        "the certificate of {subject} has no URI `spiffe://<trust domain>/controller/<id>`: it is not \
         that of a controller"
    ))]
    NotOfController {
        /// Its subject.
        subject: String,
    },
    /// Not what SPIFFE allows.
    #[snafu(transparent)]
    TrustDomain {
        /// What is wrong with it.
        source: AuthorityError,
    },
    /// The library refused what it was given.
    #[snafu(display("cannot set up TLS: certificate, key and trust bundle do not fit together"))]
    Tls {
        /// What the library said.
        source: Error,
    },
}

/// One end of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Party<'a> {
    /// Its certificate, PEM.
    pub cert_pem: &'a str,
    /// Its key.
    pub key: &'a Key,
    /// The roots of the network.
    pub trust: &'a CaBundle,
}

/// The end of a member of a network, whom only a backup of the same trust domain may ask.
pub fn member_config(member: Party<'_>) -> Result<ServerConfig, MutualError> {
    let facts = CertificateFacts::from_pem(member.cert_pem).context(CertificateSnafu)?;
    let trust_domain = facts.uris.iter().find_map(|uri| {
        let rest = uri.strip_prefix("spiffe://")?;
        rest.split_once("/controller/").map(|(domain, _)| domain)
    });
    let subject = facts.subject.as_str();
    let trust_domain = trust_domain.context(NotOfControllerSnafu { subject })?;
    let peer = Peer::Is(backup_uri(trust_domain)?);
    let config = || -> Result<ServerConfig, Error> {
        let inner = WebPkiClientVerifier::builder_with_provider(roots(member)?, provider());
        let inner = inner.build().map_err(general)?;
        let (chain, key) = identity(member)?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(Direct { peer, inner }))
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    };
    config().context(TlsSnafu)
}

/// The end of a backup, which asks only members of the network of that trust domain.
pub fn backup_config(backup: Party<'_>, trust_domain: &str) -> Result<ClientConfig, MutualError> {
    let peer = Peer::Begins(format!("spiffe://{trust_domain}/controller/"));
    let config = || -> Result<ClientConfig, Error> {
        let inner = WebPkiServerVerifier::builder_with_provider(roots(backup)?, provider());
        let inner = inner.build().map_err(general)?;
        let (chain, key) = identity(backup)?;
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Direct { peer, inner }))
            .with_client_auth_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    };
    config().context(TlsSnafu)
}

fn roots(party: Party<'_>) -> Result<Arc<RootCertStore>, Error> {
    let mut store = RootCertStore::empty();
    for root in party.trust.certificates() {
        store.add(root.clone())?;
    }
    Ok(Arc::new(store))
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(party: Party<'_>) -> Result<Identity, Error> {
    let chain = CertificateDer::pem_slice_iter(party.cert_pem.as_bytes());
    let chain = chain.collect::<Result<_, _>>().map_err(general)?;
    let key = PrivateKeyDer::from_pem_slice(party.key.expose_pem().as_bytes());
    Ok((chain, key.map_err(general)?))
}

fn general(error: impl std::fmt::Display) -> Error {
    Error::General(error.to_string())
}

/// Who may be at the other end, by the URI of its certificate.
#[derive(Debug)]
enum Peer {
    Is(String),
    Begins(String),
}

impl Peer {
    /// One URI, as SPIFFE has it, and the right one.
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let facts = CertificateFacts::from_der(certificate).map_err(general)?;
        let is_right = match (self, facts.uris.as_slice()) {
            (Self::Is(wanted), [uri]) => uri == wanted,
            (Self::Begins(wanted), [uri]) => uri.starts_with(wanted),
            _ => false,
        };
        if is_right {
            Ok(())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }
}

/// Trusts what a root signed itself, for a peer of that URI.
#[derive(Debug)]
struct Direct<V: ?Sized> {
    peer: Peer,
    inner: Arc<V>,
}

impl ClientCertVerifier for Direct<dyn ClientCertVerifier> {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(end_entity, &[], now)?;
        self.peer.check(end_entity).map(|()| verified)
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

impl ServerCertVerifier for Direct<WebPkiServerVerifier> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let inner = &self.inner;
        let verified =
            inner.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)?;
        self.peer.check(end_entity).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;
    use crate::authority::{Authority, Validity};
    use crate::pki::Sans;

    const DOMAIN: &str = "example.com";

    type Pair = (String, Key);

    fn validity() -> Validity {
        let now = Timestamp::now();
        Validity {
            not_before: now - SignedDuration::from_mins(5),
            not_after: now + SignedDuration::from_hours(1),
        }
    }

    fn root(domain: &str) -> Authority {
        Authority::root(domain, validity()).unwrap()
    }

    fn member(authority: &Authority, domain: &str) -> Pair {
        let sans = Sans {
            dns: vec!["localhost".to_owned()],
            ..Sans::default()
        };
        authority
            .controller_certificate("c0", &sans, domain, validity())
            .unwrap()
    }

    fn backup(authority: &Authority, domain: &str) -> Pair {
        authority.backup_certificate(domain, validity()).unwrap()
    }

    /// With what `signer` signed, and its own certificate after it, as a router would send it.
    fn chained((leaf, key): Pair, signer: &Authority) -> Pair {
        (format!("{leaf}{}", signer.cert_pem()), key)
    }

    /// Whether the two can talk.
    async fn talk(root: &Authority, server: &Pair, client: &Pair) -> bool {
        let trust = &CaBundle::from_pem(root.cert_pem()).unwrap();
        let [server, client] = [server, client].map(|(cert_pem, key)| Party {
            cert_pem,
            key,
            trust,
        });
        let server = member_config(server).unwrap();
        let client = backup_config(client, DOMAIN).unwrap();
        let (one, other) = tokio::io::duplex(16 * 1024);
        let name = ServerName::try_from("localhost").unwrap();
        let answered = async {
            let mut stream = TlsAcceptor::from(Arc::new(server)).accept(one).await?;
            stream.write_all(b"hello").await?;
            stream.shutdown().await
        };
        let asked = async {
            let connector = TlsConnector::from(Arc::new(client));
            let mut stream = connector.connect(name, other).await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            Ok::<_, std::io::Error>(text)
        };
        let (answered, asked) = tokio::join!(answered, asked);
        answered.is_ok() && asked.is_ok_and(|text| text == "hello")
    }

    #[tokio::test]
    async fn a_backup_and_a_member_of_one_network_talk_and_nobody_else_does() {
        let root = root(DOMAIN);
        let (server, client) = (member(&root, DOMAIN), backup(&root, DOMAIN));
        assert!(talk(&root, &server, &client).await);

        // Of a root of the same name, of another trust domain, or with another URI.
        let other = Authority::root(DOMAIN, validity()).unwrap();
        for client in [
            backup(&other, DOMAIN),
            backup(&root, "example.org"),
            member(&root, DOMAIN),
        ] {
            assert!(!talk(&root, &server, &client).await, "{}", client.0);
        }
        for server in [member(&other, DOMAIN), member(&root, "example.org")] {
            assert!(!talk(&root, &server, &client).await, "{}", server.0);
        }

        // What a router may have had signed.
        let signer = root.signer("c0", None, validity()).unwrap();
        let forged = chained(backup(&signer, DOMAIN), &signer);
        assert!(!talk(&root, &server, &forged).await);
        let forged = chained(member(&signer, DOMAIN), &signer);
        assert!(!talk(&root, &forged, &client).await);
    }

    #[test]
    fn who_is_no_controller_serves_nothing() {
        let root = root(DOMAIN);
        let (cert_pem, key) = backup(&root, DOMAIN);
        let trust = CaBundle::from_pem(root.cert_pem()).unwrap();
        let party = Party {
            cert_pem: &cert_pem,
            key: &key,
            trust: &trust,
        };
        let error = member_config(party).unwrap_err();
        assert!(
            matches!(error, MutualError::NotOfController { .. }),
            "{error}"
        );
        let other = Key::generate().unwrap();
        let (cert_pem, _) = member(&root, DOMAIN);
        let party = Party {
            cert_pem: &cert_pem,
            key: &other,
            trust: &trust,
        };
        let error = member_config(party).unwrap_err();
        assert!(matches!(error, MutualError::Tls { .. }), "{error}");
    }
}
