//! Redeeming a one-time token for an identity: of an edge router, or of an administrator.
//!
//! The key is the caller's, made and stored *before* the token is spent: whatever happens to
//! the reply, nothing is lost that cannot be had again. Expiry is left to the controller; a
//! pod's clock may be wrong. No call here is repeated: a token that was spent by a call whose
//! reply got lost is reported as [`EnrollError::ReplyLost`], and only the network can tell.
//!
//! Both paths use `POST /enroll?method=…&token=…`: `/enroll/erott` of Ziti 1.6 drops the
//! server request and refuses everything.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use snafu::{OptionExt, ResultExt, Snafu, ensure};

use crate::http::{self, Failure, Reply};
use crate::pki::{self, CertificateFacts, Key, PkiError, Sans};
use crate::tls;
use crate::token::{EnrollmentMethod, EnrollmentToken};
use crate::trust::{self, CaBundle, TrustError};

/// The client API, below the issuer's address.
pub(crate) const CLIENT_API: &str = "/edge/client/v1";

/// Why a token was not redeemed.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum EnrollError {
    /// The token is for something else.
    #[snafu(display("this is a token of method `{found}`, and `{expected}` is needed"))]
    WrongMethod {
        /// What the caller can redeem.
        expected: EnrollmentMethod,
        /// What the token says.
        found: EnrollmentMethod,
    },
    /// No answer at the issuer's address, or one that it cannot serve now: its cluster has no
    /// leader. The token is not spent.
    #[snafu(display("cannot enroll at the controller at {issuer} now: {reason}"))]
    IssuerUnreachable {
        /// The address from the token.
        issuer: String,
        /// What happened.
        reason: String,
    },
    /// The server at the issuer's address is not trusted. The token is not spent.
    #[snafu(display("the controller at {issuer} is not trusted: {source}"))]
    IssuerNotTrusted {
        /// The address from the token.
        issuer: String,
        /// In which way.
        source: TrustError,
    },
    /// The server at the issuer's address did not sign the token. It is not spent.
    #[snafu(display("{source}"))]
    SignatureInvalid {
        /// In which way.
        source: TrustError,
    },
    /// The token was redeemed before, or replaced by a newer one, or its router is gone.
    #[snafu(display(
        "the token is spent: it was redeemed before, was replaced by a newer one, or its \
         subject no longer exists on the network"
    ))]
    TokenSpent,
    /// The token was not redeemed in time, by the clock of the controller.
    #[snafu(display("the token has expired"))]
    TokenExpired,
    /// The controller does not know the identity with which another certificate was asked for:
    /// the router was re-enrolled, or is gone. No token was shown.
    #[snafu(display(
        "the controller at {issuer} does not accept this router's identity: it was re-enrolled or \
         deleted on the network"
    ))]
    IdentityRefused {
        /// The controller that was asked.
        issuer: String,
    },
    /// The controller does not accept this token in this way.
    #[snafu(display("the controller refused the token ({code}): {message}"))]
    TokenRefused {
        /// Ziti's error code.
        code: String,
        /// Ziti's sentence.
        message: String,
    },
    /// The controller does not sign what was asked for.
    #[snafu(display("the controller refused the signing request ({code}): {message}"))]
    CsrRefused {
        /// Ziti's error code.
        code: String,
        /// Ziti's sentence.
        message: String,
    },
    /// Any other refusal.
    #[snafu(display("the controller answered {status} {code}: {message}"))]
    Rejected {
        /// HTTP status.
        status: u16,
        /// Ziti's error code; empty where the body had none.
        code: String,
        /// Ziti's sentence.
        message: String,
    },
    /// The request may have been carried out, but its reply did not arrive: the token may be
    /// spent, and the certificates with it.
    #[snafu(display("the reply of the controller at {issuer} was lost: {reason}"))]
    ReplyLost {
        /// The address from the token.
        issuer: String,
        /// What happened.
        reason: String,
    },
    /// A reply that cannot be used. The token is spent.
    #[snafu(display("the controller's reply has no usable `{field}`"))]
    BadReply {
        /// The member of the reply.
        field: &'static str,
    },
    /// The key or the names cannot be used. The token is not spent.
    #[snafu(display("cannot prepare the signing request: {source}"))]
    Prepare {
        /// In which way.
        source: PkiError,
    },
    /// TLS or HTTP could not be set up with the authorities of the network. Not spent.
    #[snafu(display("cannot set up a connection to {issuer}: {reason}"))]
    Connection {
        /// The address from the token.
        issuer: String,
        /// What the library said.
        reason: String,
    },
}

impl EnrollError {
    /// Whether the same token may succeed on a later attempt, without anybody's doing.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::IssuerUnreachable { .. } => true,
            Self::Rejected { status, .. } => matches!(status, 429 | 503),
            Self::WrongMethod { .. }
            | Self::IssuerNotTrusted { .. }
            | Self::SignatureInvalid { .. }
            | Self::TokenSpent
            | Self::TokenExpired
            | Self::TokenRefused { .. }
            | Self::IdentityRefused { .. }
            | Self::CsrRefused { .. }
            | Self::ReplyLost { .. }
            | Self::BadReply { .. }
            | Self::Prepare { .. }
            | Self::Connection { .. } => false,
        }
    }
}

/// What a router brings to its enrollment.
#[derive(Debug)]
pub struct RouterEnrollment<'a> {
    /// The router's key, already stored where it will be used.
    pub key: &'a Key,
    /// Names of the server certificate.
    pub sans: &'a Sans,
    /// The CA bundle of the network that the token should belong to, where it is known.
    pub ca: Option<&'a CaBundle>,
    /// Deadline of each of the three exchanges.
    pub timeout: Duration,
}

/// What a router gets.
#[derive(Debug, Clone)]
pub struct RouterIdentity {
    /// The edge router's id on the network, which is also the CN of its certificates.
    pub id: String,
    /// Client certificate and chain, PEM, as the controller sent it.
    pub cert_pem: String,
    /// Server certificate and chain, PEM, as the controller sent it.
    pub server_cert_pem: String,
    /// The authorities of the network, PEM, as the controller sent them.
    pub ca_pem: String,
    /// Control plane addresses (`tls:host:port`) from the token; may be empty.
    pub controllers: Vec<String>,
    /// Fingerprint of the client certificate, as the network shows it.
    pub fingerprint: String,
    /// When the client certificate runs out.
    pub not_after: Timestamp,
}

/// What an identity gets (for the operator: its credential for the management API).
#[derive(Debug, Clone)]
pub struct ClientIdentity {
    /// The identity's id on the network.
    pub id: String,
    /// Client certificate and chain, PEM.
    pub cert_pem: String,
    /// The authorities of the network, PEM.
    pub ca_pem: String,
    /// The address that issued the token.
    pub issuer: String,
    /// Fingerprint of the client certificate, as the network shows it.
    pub fingerprint: String,
    /// When the client certificate runs out.
    pub not_after: Timestamp,
}

/// Redeems a router's token (`erott`).
pub async fn enroll_router(
    token: &EnrollmentToken,
    enrollment: &RouterEnrollment<'_>,
) -> Result<RouterIdentity, EnrollError> {
    expect_method(token, &EnrollmentMethod::Erott)?;
    let RouterEnrollment {
        key,
        sans,
        ca,
        timeout,
    } = *enrollment;
    let id = token.subject();
    let body = json!({
        "certCsr": pki::signing_request(key, id, &Sans::default()).context(PrepareSnafu)?,
        "serverCertCsr": pki::signing_request(key, id, sans).context(PrepareSnafu)?,
    });
    let bundle = verified(token, ca, timeout).await?;
    let (content_type, body) = ("application/json", body.to_string());
    let data = redeem(token, &bundle, content_type, body, timeout).await?;
    let cert_pem = text(&data, "cert")?;
    let server_cert_pem = text(&data, "serverCert")?;
    let ca_pem = text(&data, "ca")?;
    CaBundle::from_pem(&ca_pem)
        .ok()
        .context(BadReplySnafu { field: "ca" })?;
    belongs(key, &server_cert_pem, "serverCert")?;
    let facts = belongs(key, &cert_pem, "cert")?;
    ensure!(facts.common_name == id, BadReplySnafu { field: "cert" });
    Ok(RouterIdentity {
        id: id.to_owned(),
        cert_pem,
        server_cert_pem,
        ca_pem,
        controllers: token.controllers().to_vec(),
        fingerprint: facts.fingerprint,
        not_after: facts.not_after,
    })
}

/// Redeems an identity's token (`ott`). `ca` and `timeout` as in [`RouterEnrollment`].
pub async fn enroll_identity(
    token: &EnrollmentToken,
    key: &Key,
    ca: Option<&CaBundle>,
    timeout: Duration,
) -> Result<ClientIdentity, EnrollError> {
    expect_method(token, &EnrollmentMethod::Ott)?;
    let id = token.subject();
    let request = pki::signing_request(key, id, &Sans::default()).context(PrepareSnafu)?;
    let bundle = verified(token, ca, timeout).await?;
    // Not JSON: this endpoint takes the bare request, and tells it by the content type.
    let data = redeem(token, &bundle, "application/x-pem-file", request, timeout).await?;
    let cert_pem = text(&data, "cert")?;
    let facts = belongs(key, &cert_pem, "cert")?;
    Ok(ClientIdentity {
        id: id.to_owned(),
        cert_pem,
        ca_pem: bundle.to_pem(),
        issuer: trust::base(token.issuer()),
        fingerprint: facts.fingerprint,
        not_after: facts.not_after,
    })
}

fn expect_method(token: &EnrollmentToken, expected: &EnrollmentMethod) -> Result<(), EnrollError> {
    let found = token.method();
    ensure!(
        found == expected,
        WrongMethodSnafu {
            expected: expected.clone(),
            found: found.clone()
        }
    );
    Ok(())
}

async fn verified(
    token: &EnrollmentToken,
    ca: Option<&CaBundle>,
    timeout: Duration,
) -> Result<CaBundle, EnrollError> {
    let issuer = trust::base(token.issuer());
    trust::verified_ca_bundle(token, ca, timeout)
        .await
        .map_err(|source| match source {
            TrustError::IssuerUnreachable { reason, .. } => {
                EnrollError::IssuerUnreachable { issuer, reason }
            }
            TrustError::SignatureInvalid { .. } | TrustError::AlgorithmNotAccepted { .. } => {
                EnrollError::SignatureInvalid { source }
            }
            TrustError::NoAuthorities { reason, .. } => EnrollError::IssuerUnreachable {
                issuer,
                reason: format!("it does not publish its certificate authorities: {reason}"),
            },
            TrustError::NotPem
            | TrustError::NoCertificate
            | TrustError::BadCertificate { .. }
            | TrustError::IssuerNotTrusted { .. }
            | TrustError::Tls { .. }
            | TrustError::Http { .. } => EnrollError::IssuerNotTrusted { issuer, source },
        })
}

async fn redeem(
    token: &EnrollmentToken,
    bundle: &CaBundle,
    content_type: &str,
    body: String,
    timeout: Duration,
) -> Result<Value, EnrollError> {
    let issuer = trust::base(token.issuer());
    let connection = |reason: String| EnrollError::Connection {
        issuer: issuer.clone(),
        reason,
    };
    let config = tls::client_config(bundle.certificates(), None)
        .map_err(|error| connection(error.to_string()))?;
    let client =
        http::client(config, false, timeout / 2).map_err(|error| connection(error.to_string()))?;
    let request = client
        .post(format!("{issuer}{CLIENT_API}/enroll"))
        .query(&[
            ("method", token.method().as_str()),
            ("token", token.one_time_token().expose_secret()),
        ])
        .header(CONTENT_TYPE, content_type)
        .header(ACCEPT, "application/json")
        .body(body);
    let reply = http::exchange_small(request, timeout)
        .await
        .map_err(|failure| failed(&issuer, failure))?;
    if !reply.status.is_success() {
        return Err(refusal(issuer, &reply));
    }
    reply.data().context(BadReplySnafu { field: "data" })
}

/// What a failed exchange with `issuer` means.
pub(crate) fn failed(issuer: &str, failure: Failure) -> EnrollError {
    let issuer = issuer.to_owned();
    match failure {
        Failure::Unreachable(reason) => EnrollError::IssuerUnreachable { issuer, reason },
        Failure::NotTrusted(reason) => EnrollError::IssuerNotTrusted {
            issuer: issuer.clone(),
            source: TrustError::IssuerNotTrusted { issuer, reason },
        },
        Failure::ReplyLost(reason) => EnrollError::ReplyLost { issuer, reason },
    }
}

/// What a refusal means. The codes are those of Ziti 1.6 and 2.x (`controller/apierror`).
pub(crate) fn refusal(issuer: String, reply: &Reply) -> EnrollError {
    let error = reply.error();
    let reason = error.cause().reason;
    if error.is_for_want_of_a_leader() {
        let reason = "its cluster has no leader".to_owned();
        return EnrollError::IssuerUnreachable { issuer, reason };
    }
    let (code, mut message) = (error.code, error.message);
    if !reason.is_empty() {
        message = format!("{message} ({reason})");
    }
    match code.as_str() {
        "INVALID_ENROLLMENT_TOKEN" => EnrollError::TokenSpent,
        "ENROLLMENT_EXPIRED" => EnrollError::TokenExpired,
        "COULD_NOT_PROCESS_CSR"
        | "MISSING_OR_INVALID_CSR"
        | "EDGE_ROUTER_ENROLL_COMMON_NAME_INVALID" => EnrollError::CsrRefused { code, message },
        "INVALID_ENROLL_METHOD" | "UNAUTHORIZED" | "INVALID_AUTH" => {
            EnrollError::TokenRefused { code, message }
        }
        _ => EnrollError::Rejected {
            status: reply.status.as_u16(),
            code,
            message,
        },
    }
}

pub(crate) fn text(data: &Value, field: &'static str) -> Result<String, EnrollError> {
    data.get(field)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
        .context(BadReplySnafu { field })
}

pub(crate) fn belongs(
    key: &Key,
    pem: &str,
    field: &'static str,
) -> Result<CertificateFacts, EnrollError> {
    let ours = key.belongs_to(pem).unwrap_or(false);
    ensure!(ours, BadReplySnafu { field });
    CertificateFacts::from_pem(pem)
        .ok()
        .context(BadReplySnafu { field })
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::StatusCode;
    use reqwest::header::HeaderMap;

    fn reply(status: u16, body: &str) -> Reply {
        Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: body.as_bytes().to_vec(),
        }
    }

    /// Bodies as Ziti 1.6.0 sends them. Waiting for a real expiry takes five minutes, so it
    /// is told apart here.
    #[test]
    fn tells_refusals_apart() {
        let body = |code: &str| format!(r#"{{"error":{{"code":"{code}","message":"m"}}}}"#);
        let of = |status, code| refusal("https://a".to_owned(), &reply(status, &body(code)));
        assert!(matches!(
            of(400, "INVALID_ENROLLMENT_TOKEN"),
            EnrollError::TokenSpent
        ));
        assert!(matches!(
            of(400, "ENROLLMENT_EXPIRED"),
            EnrollError::TokenExpired
        ));
        let csr = of(400, "COULD_NOT_PROCESS_CSR");
        assert!(matches!(csr, EnrollError::CsrRefused { .. }));
        let method = of(400, "INVALID_ENROLL_METHOD");
        assert!(matches!(method, EnrollError::TokenRefused { .. }));
        let other = of(500, "UNHANDLED");
        assert!(
            matches!(other, EnrollError::Rejected { status: 500, .. }) && !other.is_retryable()
        );
        let busy = of(429, "SERVER_TOO_MANY_REQUESTS");
        assert!(busy.is_retryable());
        let proxy = reply(502, "<html>bad gateway</html>");
        let proxy = refusal("https://a".to_owned(), &proxy);
        assert!(matches!(proxy, EnrollError::Rejected { status: 502, .. }));
        let leaderless = of(503, "CLUSTER_NO_LEADER");
        assert!(
            matches!(leaderless, EnrollError::IssuerUnreachable { .. })
                && leaderless.is_retryable()
        );
    }
}
