//! The session with a network: which controller is spoken to, who is logged in there, and
//! what a 401 means. For [`super::ManagementClient`] only.
//!
//! A session is known to the controller that gave it and to no other, so session and endpoint
//! change together. A 401 can mean three things: the session is over, the identity lacks the
//! permission, or the credential is wrong. Which one is found out by asking for the session
//! itself; a login follows only where it is over, and at most once per call.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::{Client, Method, StatusCode};
use rustls::ClientConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use snafu::{OptionExt, ensure};
use tokio::sync::Mutex;
use tracing::debug;
use url::Url;

use super::error::{
    BadCredentialsSnafu, Call, ConfigurationSnafu, ForbiddenSnafu, ManagementError,
    NoCredentialSnafu, UnexpectedSnafu, from_failure, from_refusal,
};
use crate::http::{self, Failure, Reply};
use crate::tls::{self, ClientIdentity};
use crate::trust::{self, CaBundle};

const MANAGEMENT_API: &str = "/edge/management/v1";
/// The other API of an administrator, with the same sessions.
const FABRIC_API: &str = "/fabric/v1/";
/// The header that carries the session, both ways.
pub(super) const SESSION_HEADER: &str = "zt-session";
const AUTHENTICATE: &str = "/authenticate";
const CURRENT_SESSION: &str = "/current-api-session";
/// A connection that takes longer than this will not come.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How the operator proves who it is.
#[derive(Clone)]
pub enum Credential {
    /// An administrator's user name and password.
    Password {
        /// User name.
        username: String,
        /// Password.
        password: SecretString,
    },
    /// A client certificate, shown in the TLS handshake: a proxy that ends TLS breaks it.
    ClientCertificate {
        /// Certificate and chain, PEM.
        cert_pem: String,
        /// Private key, PEM.
        key_pem: SecretString,
    },
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { .. } => formatter.write_str("Password([redacted])"),
            Self::ClientCertificate { .. } => formatter.write_str("ClientCertificate([redacted])"),
        }
    }
}

/// One request, below [`MANAGEMENT_API`], or with a whole path in [`FABRIC_API`]. No `Debug`: the body of a login is a password.
pub(super) struct Request<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) body: Option<Value>,
    /// Whether it needs a session.
    pub(super) authenticated: bool,
}

impl Request<'_> {
    pub(super) fn call(&self) -> Call {
        Call {
            method: self.method.clone(),
            path: self.path.to_owned(),
        }
    }
}

pub(super) struct Connection {
    /// `https://host:port` each; never empty.
    pub(super) endpoints: Vec<String>,
    /// What is trusted, and the certificate that is shown.
    pub(super) tls: Arc<ClientConfig>,
    credential: Option<Credential>,
    timeout: Duration,
    /// Keeps connections for a moment.
    pooled: Client,
    /// A new connection for every request: logins and second attempts.
    fresh: Client,
    state: Mutex<State>,
}

struct State {
    /// Index of the endpoint that worked last.
    current: usize,
    session: Option<Session>,
}

struct Session {
    endpoint: usize,
    token: SecretString,
}

impl Connection {
    pub(super) fn new(
        endpoints: &[Url],
        ca: &CaBundle,
        credential: Option<Credential>,
        timeout: Duration,
    ) -> Result<Self, ManagementError> {
        ensure!(
            !endpoints.is_empty(),
            ConfigurationSnafu {
                reason: "there is no management API endpoint"
            }
        );
        for endpoint in endpoints {
            ensure!(
                endpoint.scheme() == "https" && endpoint.host_str().is_some(),
                ConfigurationSnafu {
                    reason: format!("{endpoint} is not an https address")
                }
            );
        }
        let identity = credential.as_ref().and_then(client_identity).transpose()?;
        let config = tls::client_config(ca.certificates(), identity);
        let config = config.map_err(|error| unusable(&error))?;
        let endpoints = endpoints.iter().map(trust::base).collect();
        Self::with(endpoints, Arc::new(config), credential, timeout)
    }

    /// The same for one of the endpoints alone, with a session of its own.
    pub(super) fn only(&self, endpoint: usize) -> Result<Self, ManagementError> {
        Self::with(
            vec![self.endpoints[endpoint].clone()],
            Arc::clone(&self.tls),
            self.credential.clone(),
            self.timeout,
        )
    }

    fn with(
        endpoints: Vec<String>,
        tls: Arc<ClientConfig>,
        credential: Option<Credential>,
        timeout: Duration,
    ) -> Result<Self, ManagementError> {
        let client = |reuse: bool| {
            let count = u32::try_from(endpoints.len()).unwrap_or(u32::MAX);
            let patience = CONNECT_TIMEOUT.min(timeout / count);
            http::client((*tls).clone(), reuse, patience).map_err(|error| unusable(&error))
        };
        let (pooled, fresh) = (client(true)?, client(false)?);
        Ok(Self {
            endpoints,
            tls,
            credential,
            timeout,
            pooled,
            fresh,
            state: Mutex::new(State {
                current: 0,
                session: None,
            }),
        })
    }

    /// How long one call may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Index of the endpoint that worked last.
    pub(super) async fn current(&self) -> usize {
        self.state.lock().await.current
    }

    /// Has the next call go to `endpoint`.
    pub(super) async fn turn_to(&self, endpoint: usize) {
        self.state.lock().await.current = endpoint;
    }

    /// Carries `request` out on the endpoint that worked last, or on the next one that can be
    /// reached, all within the timeout of one call.
    pub(super) async fn call(&self, request: &Request<'_>) -> Result<Reply, ManagementError> {
        let deadline = Instant::now() + self.timeout;
        let first = self.state.lock().await.current;
        let mut endpoint = first;
        loop {
            let result = self.call_at(endpoint, request, deadline).await;
            let next = (endpoint + 1) % self.endpoints.len();
            match result {
                Err(ManagementError::Unreachable { reason, .. })
                    if next != first && Instant::now() < deadline =>
                {
                    debug!(endpoint = self.endpoints[endpoint], reason, "moving on");
                    endpoint = next;
                }
                Err(error @ ManagementError::Timeout { .. }) => {
                    // Not tried elsewhere now, it may have been carried out; but a controller
                    // that hangs shall not cost every later call its whole time.
                    self.move_on(first, next).await;
                    return Err(error);
                }
                other => {
                    self.move_on(first, endpoint).await;
                    return other;
                }
            }
        }
    }

    /// What a call found out about the endpoint that it began with, unless another one was chosen
    /// meanwhile.
    async fn move_on(&self, first: usize, to: usize) {
        let mut state = self.state.lock().await;
        if state.current == first {
            state.current = to;
        }
    }

    async fn call_at(
        &self,
        endpoint: usize,
        request: &Request<'_>,
        deadline: Instant,
    ) -> Result<Reply, ManagementError> {
        if !request.authenticated {
            return self.exchange(endpoint, request, None, deadline).await;
        }
        let call = request.call();
        let session = self.session(endpoint, &call, None, deadline).await?;
        let reply = self
            .exchange(endpoint, request, Some(&session), deadline)
            .await?;
        if reply.status != StatusCode::UNAUTHORIZED {
            return Ok(reply);
        }
        // A 401 was not carried out, so even a write may be sent again.
        ensure!(
            !self.is_alive(endpoint, &session, deadline).await?,
            ForbiddenSnafu { call }
        );
        debug!(endpoint = self.endpoints[endpoint], "the session is over");
        let session = self
            .session(endpoint, &call, Some(&session), deadline)
            .await?;
        let reply = self
            .exchange(endpoint, request, Some(&session), deadline)
            .await?;
        ensure!(
            reply.status != StatusCode::UNAUTHORIZED,
            ForbiddenSnafu { call }
        );
        Ok(reply)
    }

    /// The session at `endpoint`, after a login where there is none, or only the `ended` one.
    /// One login at a time: callers that find the session over at once share the next.
    pub(super) async fn session(
        &self,
        endpoint: usize,
        call: &Call,
        ended: Option<&SecretString>,
        deadline: Instant,
    ) -> Result<SecretString, ManagementError> {
        let mut state = self.state.lock().await;
        if let Some(session) = &state.session {
            let is_over =
                ended.is_some_and(|ended| ended.expose_secret() == session.token.expose_secret());
            if session.endpoint == endpoint && !is_over {
                return Ok(session.token.clone());
            }
        }
        state.session = None;
        let token = self.log_in(endpoint, call, deadline).await?;
        state.session = Some(Session {
            endpoint,
            token: token.clone(),
        });
        Ok(token)
    }

    async fn log_in(
        &self,
        endpoint: usize,
        call: &Call,
        deadline: Instant,
    ) -> Result<SecretString, ManagementError> {
        let credential = self.credential.as_ref();
        let (method, body) = match credential.context(NoCredentialSnafu { call: call.clone() })? {
            Credential::Password { username, password } => {
                let password = password.expose_secret();
                let body = json!({"username": username, "password": password});
                ("password", body)
            }
            Credential::ClientCertificate { .. } => ("cert", json!({})),
        };
        let request = Request {
            method: Method::POST,
            path: AUTHENTICATE,
            query: &[("method", method)],
            body: Some(body),
            authenticated: false,
        };
        let reply = self.exchange(endpoint, &request, None, deadline).await?;
        let call = request.call();
        if reply.status == StatusCode::UNAUTHORIZED {
            let (endpoint, code) = (self.endpoints[endpoint].clone(), reply.error().code);
            return BadCredentialsSnafu {
                call,
                endpoint,
                code,
            }
            .fail();
        }
        if !reply.status.is_success() {
            return Err(from_refusal(&call, &reply));
        }
        debug!(endpoint = self.endpoints[endpoint], method, "logged in");
        let data = reply.data();
        let token = data.as_ref().and_then(|data| data.get("token"));
        let token = token.and_then(Value::as_str).context(UnexpectedSnafu {
            call,
            status: reply.status.as_u16(),
            code: "",
            message: "there is no session token in it",
        })?;
        Ok(token.into())
    }

    pub(super) async fn is_alive(
        &self,
        endpoint: usize,
        session: &SecretString,
        deadline: Instant,
    ) -> Result<bool, ManagementError> {
        let request = Request {
            method: Method::GET,
            path: CURRENT_SESSION,
            query: &[],
            body: None,
            authenticated: true,
        };
        let reply = self
            .exchange(endpoint, &request, Some(session), deadline)
            .await?;
        match reply.status {
            StatusCode::UNAUTHORIZED => Ok(false),
            status if status.is_success() => Ok(true),
            _ => Err(from_refusal(&request.call(), &reply)),
        }
    }

    /// One exchange. A GET whose reply got lost is sent once more, on a new connection: the
    /// controller closes idle ones, and a request can meet that moment. A write never is.
    async fn exchange(
        &self,
        endpoint: usize,
        request: &Request<'_>,
        session: Option<&SecretString>,
        deadline: Instant,
    ) -> Result<Reply, ManagementError> {
        let pooled = if request.path == AUTHENTICATE {
            &self.fresh
        } else {
            &self.pooled
        };
        let first = self
            .send(pooled, endpoint, request, session, deadline)
            .await;
        let result = match first {
            Err(Failure::ReplyLost(reason))
                if request.method == Method::GET && Instant::now() < deadline =>
            {
                debug!(path = request.path, reason, "reading once more");
                self.send(&self.fresh, endpoint, request, session, deadline)
                    .await
            }
            other => other,
        };
        result.map_err(|failure| from_failure(&request.call(), &self.endpoints[endpoint], failure))
    }

    async fn send(
        &self,
        client: &Client,
        endpoint: usize,
        request: &Request<'_>,
        session: Option<&SecretString>,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        let api = if request.path.starts_with(FABRIC_API) {
            ""
        } else {
            MANAGEMENT_API
        };
        let url = format!("{}{api}{}", self.endpoints[endpoint], request.path);
        let mut builder = client
            .request(request.method.clone(), url)
            .header(reqwest::header::ACCEPT, "application/json")
            .query(request.query);
        if let Some(session) = session {
            builder = builder.header(SESSION_HEADER, session.expose_secret());
        }
        if let Some(body) = &request.body {
            builder = builder.json(body);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        http::exchange(builder, left).await
    }
}

fn unusable(error: &dyn fmt::Display) -> ManagementError {
    ManagementError::Configuration {
        reason: error.to_string(),
    }
}

fn client_identity(credential: &Credential) -> Option<Result<ClientIdentity, ManagementError>> {
    let Credential::ClientCertificate { cert_pem, key_pem } = credential else {
        return None;
    };
    let identity = || {
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(cert_pem.as_bytes()).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let chain = chain.context(ConfigurationSnafu {
            reason: "the client certificate is not PEM",
        })?;
        let key = PrivateKeyDer::from_pem_slice(key_pem.expose_secret().as_bytes()).ok();
        let key = key.context(ConfigurationSnafu {
            reason: "the key of the client certificate is not PEM",
        })?;
        Ok(ClientIdentity { chain, key })
    };
    Some(identity())
}
