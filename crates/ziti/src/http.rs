//! One HTTP exchange with a Ziti controller, and what its failure means. For this crate only.
//!
//! The question that matters after a failure is whether the controller may have acted. A
//! connection that never came about answers it; a lost reply does not.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap};
use reqwest::{Client, RequestBuilder, StatusCode};
use rustls::ClientConfig;
use serde::Deserialize;
use serde_json::Value;

use crate::tls;

/// Ziti closes idle connections after 5 s. Leaving earlier keeps writes off a dying one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);
/// What a controller may answer: a list of 5,000 routers is about 7 MB.
const MAX_BODY: usize = 64 * 1024 * 1024;
/// What it may answer to whoever asks for certificates, which are some 10 KB. Much less than what
/// the agent's container may take up (64 MiB).
const MAX_SMALL_BODY: usize = 1024 * 1024;

/// Why an exchange brought no reply.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No connection; nothing was sent.
    Unreachable(String),
    /// A server that is not trusted; nothing was sent.
    NotTrusted(String),
    /// The time ran out, or the connection broke, after the request may have been sent.
    ReplyLost(String),
}

/// What a controller answered.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// `{"error": …}`, the body of every refusal.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ApiError {
    pub(crate) code: String,
    pub(crate) message: String,
    cause: Option<Value>,
    #[serde(rename = "causeMessage")]
    cause_message: Option<String>,
}

/// The part of a refusal that names a field: `cause.{field,reason}`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) field: Option<String>,
    pub(crate) reason: String,
}

impl ApiError {
    /// Whether the cluster had no leader to take a write, so that nothing was changed. Ziti has a
    /// code for it (503), and where a write is a part of something larger it hides it in the text
    /// of a 500: `could not update edge router: CLUSTER_NO_LEADER: …` (seen on 2.1).
    pub(crate) fn is_for_want_of_a_leader(&self) -> bool {
        const CODE: &str = "CLUSTER_NO_LEADER";
        self.code == CODE || self.cause().reason.contains(CODE)
    }

    /// The cause, wherever this version of Ziti puts it.
    pub(crate) fn cause(&self) -> Cause {
        let text = |name: &str| {
            let value = self.cause.as_ref()?.get(name)?;
            Some(value.as_str()?.to_owned())
        };
        let reason = text("reason").or_else(|| text("message"));
        let bare = || self.cause.as_ref()?.as_str().map(str::to_owned);
        Cause {
            field: text("field"),
            reason: reason
                .or_else(bare)
                .or_else(|| self.cause_message.clone())
                .unwrap_or_default(),
        }
    }
}

impl Reply {
    /// The member `data` of the body; `None` where the body is not what Ziti sends.
    pub(crate) fn data(&self) -> Option<Value> {
        Some(self.json()?.get_mut("data")?.take())
    }

    /// The whole body; `None` where it is not JSON.
    pub(crate) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The refusal in the body; empty fields where the body is not what Ziti sends.
    pub(crate) fn error(&self) -> ApiError {
        #[derive(Deserialize)]
        struct Envelope {
            error: ApiError,
        }
        serde_json::from_slice::<Envelope>(&self.body)
            .map(|envelope| envelope.error)
            .unwrap_or_default()
    }

    /// The controller's clock when it answered (header `Date`, whole seconds).
    pub(crate) fn server_time(&self) -> Option<Timestamp> {
        let date = self.headers.get(DATE)?.to_str().ok()?;
        Some(rfc2822::parse(date).ok()?.timestamp())
    }

    /// Media type of the body, for messages.
    pub(crate) fn media_type(&self) -> &str {
        self.headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("none")
    }
}

/// A client on `config`. Environment proxies are not used: a proxy that ends TLS would break
/// both pinning and client certificates. Nothing is retried, nothing is redirected.
///
/// `connect_timeout` is shorter than a call's, so that a call without a connection is known to
/// have sent nothing.
pub(crate) fn client(
    config: ClientConfig,
    reuse: bool,
    connect_timeout: Duration,
) -> Result<Client, reqwest::Error> {
    Client::builder()
        .tls_backend_preconfigured(config)
        .http1_only()
        .no_proxy()
        .retry(reqwest::retry::never())
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(connect_timeout)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(if reuse { 8 } else { 0 })
        .build()
}

/// Sends `request` and reads the whole reply within `timeout`.
pub(crate) async fn exchange(request: RequestBuilder, timeout: Duration) -> Result<Reply, Failure> {
    exchange_at_most(request, timeout, MAX_BODY).await
}

/// The same, for what is answered with certificates.
pub(crate) async fn exchange_small(
    request: RequestBuilder,
    timeout: Duration,
) -> Result<Reply, Failure> {
    exchange_at_most(request, timeout, MAX_SMALL_BODY).await
}

async fn exchange_at_most(
    request: RequestBuilder,
    timeout: Duration,
    most: usize,
) -> Result<Reply, Failure> {
    let mut response = request.timeout(timeout).send().await.map_err(classify)?;
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(classify)? {
        if body.len() + chunk.len() > most {
            let reason = format!("the reply is larger than {most} bytes");
            return Err(Failure::ReplyLost(reason));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Reply {
        status,
        headers,
        body,
    })
}

fn classify(error: reqwest::Error) -> Failure {
    // The URL may hold a one-time token, and the caller names the call in its own words.
    let error = error.without_url();
    if let Some(reason) = tls::untrusted(&error) {
        Failure::NotTrusted(reason)
    } else if error.is_connect() {
        Failure::Unreachable(innermost(&error))
    } else if error.is_timeout() {
        Failure::ReplyLost("no reply in time".to_owned())
    } else {
        Failure::ReplyLost(innermost(&error))
    }
}

/// The last error of a chain: "connection refused" rather than "error sending request".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(body: &str) -> Reply {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, "Wed, 21 Oct 2015 07:28:00 GMT".parse().unwrap());
        Reply {
            status: StatusCode::BAD_REQUEST,
            headers,
            body: body.as_bytes().to_vec(),
        }
    }

    #[test]
    fn reads_the_forms_of_a_cause() {
        let field = reply(r#"{"error":{"code":"C","cause":{"field":"name","reason":"taken"}}}"#);
        let cause = field.error().cause();
        assert_eq!(cause.field.as_deref(), Some("name"));
        assert_eq!(cause.reason, "taken");
        let nested = reply(r#"{"error":{"cause":{"code":"X","message":"why"}}}"#);
        assert_eq!(nested.error().cause().reason, "why");
        let old = reply(r#"{"error":{"causeMessage":"older"}}"#);
        assert_eq!(old.error().cause().reason, "older");
        assert_eq!(reply("<html>").error().cause(), Cause::default());
    }

    #[test]
    fn sees_the_want_of_a_leader_in_both_places() {
        let plain = reply(r#"{"error":{"code":"CLUSTER_NO_LEADER","message":"m"}}"#);
        assert!(plain.error().is_for_want_of_a_leader());
        // As 2.1 answers to `/enroll` between its start and the election.
        let said = "could not update edge router: CLUSTER_NO_LEADER: Cluster has no leader";
        let cause = format!(r#"{{"code":"UNHANDLED","message":"{said}"}}"#);
        let hidden = reply(&format!(
            r#"{{"error":{{"code":"UNHANDLED","message":"m","cause":{cause}}}}}"#
        ));
        assert!(hidden.error().is_for_want_of_a_leader());
        assert!(!reply("").error().is_for_want_of_a_leader());
    }

    /// The agent enrolls within 64 MiB, whoever answers.
    #[tokio::test]
    async fn an_endless_reply_is_cut_off() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            // An answer before the question is no answer.
            stream.read_exact(&mut [0; 4]).await.unwrap();
            let head = b"HTTP/1.1 200 OK\r\n\r\n";
            stream.write_all(head).await.unwrap();
            while stream.write_all(&[b' '; 4096]).await.is_ok() {}
        });
        let key = rcgen::KeyPair::generate().unwrap();
        let anybody = rcgen::CertificateParams::default().self_signed(&key);
        let config = tls::pinned_config(anybody.unwrap().der().clone()).unwrap();
        let client = client(config, false, Duration::from_secs(5)).unwrap();
        let reply = exchange_small(client.get(url), Duration::from_mins(1)).await;
        let Err(Failure::ReplyLost(reason)) = reply else {
            panic!("it was read");
        };
        assert!(reason.contains("larger than 1048576 bytes"), "{reason}");
    }

    #[test]
    fn reads_the_clock_of_the_controller() {
        let time = reply("").server_time().unwrap();
        assert_eq!(time.to_string(), "2015-10-21T07:28:00Z");
    }
}
