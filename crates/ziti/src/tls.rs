//! TLS towards Ziti: what is trusted, and nothing else. For this crate only.
//!
//! Two kinds of trust exist: certificate authorities ([`client_config`]), and one exact
//! certificate ([`pinned_config`]), which serves the single moment when a token is all that
//! is known of a network. The provider is passed explicitly, so a caller need not install a
//! process-wide default.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A client certificate with its chain, and the key that goes with it.
pub(crate) struct ClientIdentity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// Why [`served_leaf`] has no answer.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// Nobody answered, or not in TLS, or not in time.
    Unreachable(String),
    /// Somebody answered whose certificate is not trusted.
    NotTrusted(String),
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A TLS client that trusts `roots` and presents `identity`, where there is one.
pub(crate) fn client_config(
    roots: &[CertificateDer<'static>],
    identity: Option<ClientIdentity>,
) -> Result<ClientConfig, Error> {
    let verifier = authorities(roots)?;
    with_verifier(verifier, identity)
}

/// A TLS client that trusts this one certificate.
pub(crate) fn pinned_config(leaf: CertificateDer<'static>) -> Result<ClientConfig, Error> {
    with_verifier(Arc::new(Pinned::new(Some(leaf))), None)
}

/// Connects to `host:port` and returns the certificate served there. With `roots` it must
/// verify under them; without, whatever is served comes back, and the caller must find out
/// by other means whether to believe it.
pub(crate) async fn served_leaf(
    host: &str,
    port: u16,
    roots: Option<&[CertificateDer<'static>]>,
    timeout: Duration,
) -> Result<CertificateDer<'static>, HandshakeError> {
    let verifier = match roots {
        Some(roots) => authorities(roots).map_err(|e| HandshakeError::NotTrusted(e.to_string()))?,
        None => Arc::new(Pinned::new(None)),
    };
    let unreachable = |reason: String| HandshakeError::Unreachable(reason);
    let config = with_verifier(verifier, None).map_err(|e| unreachable(e.to_string()))?;
    // A URL writes an IPv6 host in brackets, sockets and certificates do not.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| unreachable(format!("`{host}` is not a host name")))?;
    let handshake = async {
        let stream = TcpStream::connect((host, port)).await?;
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await
    };
    let stream = tokio::time::timeout(timeout, handshake)
        .await
        .map_err(|_| unreachable(format!("no answer within {timeout:?}")))?
        .map_err(|error| match untrusted(&error) {
            Some(reason) => HandshakeError::NotTrusted(reason),
            None => unreachable(error.to_string()),
        })?;
    let (_, session) = stream.get_ref();
    session
        .peer_certificates()
        .and_then(|chain| chain.first())
        .map(|leaf| leaf.clone().into_owned())
        .ok_or_else(|| unreachable("no certificate was served".to_owned()))
}

/// Whether `error` comes from a certificate that is not trusted, and the reason.
pub(crate) fn untrusted(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(current) = next {
        // `io::Error` hides what it wraps from `source`.
        let inner = current
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        if let Some(inner) = inner
            && let Some(reason) = untrusted(inner)
        {
            return Some(reason);
        }
        if let Some(error @ Error::InvalidCertificate(_)) = current.downcast_ref() {
            return Some(error.to_string());
        }
        next = current.source();
    }
    None
}

fn with_verifier(
    verifier: Arc<dyn ServerCertVerifier>,
    identity: Option<ClientIdentity>,
) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        Some(ClientIdentity { chain, key }) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    };
    // The control plane may share the port; it is told apart by ALPN (`ziti-ctrl`).
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn authorities(roots: &[CertificateDer<'static>]) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root.clone())?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider())
        .build()
        .map_err(|error| Error::General(error.to_string()))?;
    Ok(verifier)
}

/// Trusts one certificate, or, with `None`, any: the handshake then proves only that the
/// server holds the key of what it serves.
#[derive(Debug)]
struct Pinned {
    leaf: Option<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn new(leaf: Option<CertificateDer<'static>>) -> Self {
        let provider = provider();
        Self { leaf, provider }
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.leaf {
            Some(leaf) if leaf != end_entity => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        None
    }
}
