//! Connections beside the calls of [`super::ManagementClient`], for that module only: the websocket
//! of [`crate::events`], on the session that the calls use, and a look at a served certificate.

use std::sync::Arc;

use reqwest::{Method, StatusCode};
use rustls_pki_types::{CertificateDer, ServerName};
use secrecy::{ExposeSecret, SecretString};
use snafu::{OptionExt, ResultExt, ensure};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::{self, ClientRequestBuilder};
use tracing::debug;
use url::Url;

use super::error::Call;
use super::session::{Connection, SESSION_HEADER};
use crate::events::{
    EventsError, ForbiddenSnafu, LoginSnafu, NotTrustedSnafu, Socket, UnreachableSnafu,
    UnsupportedSnafu, limits,
};
use crate::tls;

const EVENTS: &str = "/fabric/v1/ws-api";

impl Connection {
    /// An open websocket at the endpoint that worked last, and that endpoint. Another one is not
    /// tried: in a cluster the events must be of the controller whose lists are read.
    pub(super) async fn open_events(
        &self,
        deadline: Instant,
    ) -> Result<(Socket, String), EventsError> {
        let index = self.current().await;
        let endpoint = &self.endpoints[index];
        let (call, until) = (events_call(), deadline.into_std());
        let session = self.session(index, &call, None, until).await;
        let session = session.context(LoginSnafu)?;
        if let Some(socket) = self.upgraded(endpoint, &session, deadline).await? {
            return Ok((socket, endpoint.clone()));
        }
        let alive = self.is_alive(index, &session, until).await;
        ensure!(!alive.context(LoginSnafu)?, ForbiddenSnafu { endpoint });
        debug!(endpoint, "the session is over");
        let session = self.session(index, &call, Some(&session), until).await;
        let session = session.context(LoginSnafu)?;
        let socket = self.upgraded(endpoint, &session, deadline).await?;
        let socket = socket.context(ForbiddenSnafu { endpoint })?;
        Ok((socket, endpoint.clone()))
    }

    /// One attempt; `None` where the session is refused.
    async fn upgraded(
        &self,
        endpoint: &str,
        session: &SecretString,
        deadline: Instant,
    ) -> Result<Option<Socket>, EventsError> {
        let unreachable = |reason: String| UnreachableSnafu { endpoint, reason };
        let address = format!("wss{}{EVENTS}", endpoint.trim_start_matches("https"));
        let address = address.parse().ok();
        let address = address.with_context(|| unreachable("it is no address".to_owned()))?;
        let request =
            ClientRequestBuilder::new(address).with_header(SESSION_HEADER, session.expose_secret());
        let opened = timeout_at(deadline, async {
            let stream = self.connected(endpoint).await?;
            Ok(client_async_with_config(request, stream, Some(limits())).await)
        });
        let Ok(opened) = opened.await else {
            return unreachable("no answer in time".to_owned()).fail();
        };
        match opened? {
            Ok((socket, _)) => Ok(Some(socket)),
            Err(tungstenite::Error::Http(reply)) => {
                let status = reply.status();
                ensure!(
                    status == StatusCode::UNAUTHORIZED,
                    UnsupportedSnafu {
                        endpoint,
                        status: status.as_u16()
                    }
                );
                Ok(None)
            }
            Err(error) => unreachable(error.to_string()).fail(),
        }
    }

    /// The certificate that is served there, where it is trusted.
    pub(super) async fn served_leaf(&self, endpoint: &str) -> Option<CertificateDer<'static>> {
        let stream = self.connected(endpoint).await.ok()?;
        let (_, session) = stream.get_ref();
        let leaf = session.peer_certificates()?.first()?;
        Some(leaf.clone().into_owned())
    }

    /// A TLS connection of its own, under the trust and with the certificate of all calls.
    async fn connected(&self, endpoint: &str) -> Result<TlsStream<TcpStream>, EventsError> {
        let unreachable = |reason: String| UnreachableSnafu { endpoint, reason };
        let url: Option<Url> = endpoint.parse().ok();
        let host = url.as_ref().and_then(Url::host_str);
        let host = host.with_context(|| unreachable("it is no address".to_owned()))?;
        // A URL writes an IPv6 host in brackets, sockets and certificates do not.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = url.as_ref().and_then(Url::port_or_known_default);
        let name = ServerName::try_from(host.to_owned()).ok();
        let name = name.with_context(|| unreachable("it is no host name".to_owned()))?;
        let connected = async {
            let stream = TcpStream::connect((host, port.unwrap_or(443))).await?;
            TlsConnector::from(Arc::clone(&self.tls))
                .connect(name, stream)
                .await
        };
        connected
            .await
            .map_err(|error| match tls::untrusted(&error) {
                Some(reason) => NotTrustedSnafu { endpoint, reason }.build(),
                None => unreachable(error.to_string()).build(),
            })
    }
}

fn events_call() -> Call {
    Call {
        method: Method::GET,
        path: EVENTS.to_owned(),
    }
}
