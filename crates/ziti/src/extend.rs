//! New certificates for a router that has an identity: with other names, and a
//! full year to live. The router's own way of it (over its control channel) runs
//! only while the router does, and a router whose certificate lacks what it
//! advertises ends before it gets there.
//!
//! Ziti replaces the fingerprint that it expects as it answers: from then on the
//! old certificates are void. So whoever calls this has the volume ready, and
//! writes what comes back at once; a reply that is lost costs the identity.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::StatusCode;
use reqwest::header::ACCEPT;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use snafu::{OptionExt, ResultExt, ensure};
use url::Url;

use crate::enroll::{
    BadReplySnafu, CLIENT_API, EnrollError, IdentityRefusedSnafu, PrepareSnafu, belongs, failed,
    refusal, text,
};
use crate::http;
use crate::pki::{self, Key, PkiError, Sans};
use crate::tls::{self, ClientIdentity};
use crate::trust::{self, CaBundle};

/// A router's identity, as it is on its volume.
#[derive(Debug, Clone, Copy)]
pub struct Present<'a> {
    /// The router's id: common name of its certificates.
    pub id: &'a str,
    /// Its key, which stays.
    pub key: &'a Key,
    /// Its client certificate and chain, PEM.
    pub cert_pem: &'a str,
    /// The authorities of the network.
    pub ca: &'a CaBundle,
}

/// What a router gets.
#[derive(Debug, Clone)]
pub struct Extended {
    /// Client certificate and chain, PEM.
    pub cert_pem: String,
    /// Server certificate and chain, PEM.
    pub server_cert_pem: String,
    /// Fingerprint of the client certificate, as the network shows it from now
    /// on.
    pub fingerprint: String,
    /// When the client certificate runs out.
    pub not_after: Timestamp,
}

/// Asks the controller at `controller` (`https://host:port`, of the client API)
/// for certificates with these names, within `timeout`. The router must not be
/// online: it would stay so, with certificates that no other start accepts.
pub async fn extend_router(
    controller: &Url,
    present: Present<'_>,
    sans: &Sans,
    timeout: Duration,
) -> Result<Extended, EnrollError> {
    let Present {
        id,
        key,
        cert_pem,
        ca,
    } = present;
    let issuer = trust::base(controller);
    let body = json!({
        "certCsr": pki::signing_request(key, id, &Sans::default()).context(PrepareSnafu)?,
        "serverCertCsr": pki::signing_request(key, id, sans).context(PrepareSnafu)?,
    });
    let connection = |reason: String| EnrollError::Connection {
        issuer: issuer.clone(),
        reason,
    };
    let identity = client_identity(cert_pem, key).context(PrepareSnafu)?;
    let config = tls::client_config(ca.certificates(), Some(identity))
        .map_err(|error| connection(error.to_string()))?;
    let client =
        http::client(config, false, timeout / 2).map_err(|error| connection(error.to_string()))?;
    let request = client
        .post(format!("{issuer}{CLIENT_API}/enroll/extend/router"))
        .header(ACCEPT, "application/json")
        .json(&body);
    let reply = http::exchange_small(request, timeout).await;
    let reply = reply.map_err(|failure| failed(&issuer, failure))?;
    // Its certificate is all that it has shown.
    ensure!(
        reply.status != StatusCode::UNAUTHORIZED,
        IdentityRefusedSnafu { issuer }
    );
    if !reply.status.is_success() {
        return Err(refusal(issuer, &reply));
    }
    let data = reply.data().context(BadReplySnafu { field: "data" })?;
    let (cert_pem, server_cert_pem) = (text(&data, "cert")?, text(&data, "serverCert")?);
    belongs(key, &server_cert_pem, "serverCert")?;
    let facts = belongs(key, &cert_pem, "cert")?;
    ensure!(facts.common_name == id, BadReplySnafu { field: "cert" });
    Ok(Extended {
        cert_pem,
        server_cert_pem,
        fingerprint: facts.fingerprint,
        not_after: facts.not_after,
    })
}

fn client_identity(cert_pem: &str, key: &Key) -> Result<ClientIdentity, PkiError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert_pem.as_bytes()).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    let key = PrivateKeyDer::from_pem_slice(key.expose_pem().as_bytes());
    match (chain, key) {
        (Some(chain), Ok(key)) => Ok(ClientIdentity { chain, key }),
        _ => Err(PkiError::ReadCertificate),
    }
}
