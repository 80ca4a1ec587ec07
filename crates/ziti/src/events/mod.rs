//! The event stream of a Ziti controller: a router came, a router went, told within some
//! milliseconds. Made by [`ManagementClient::events`], with its trust, credential and session.
//!
//! It is a websocket (`/fabric/v1/ws-api`, part of the `fabric` API that only administrators may
//! use) which carries messages of a Ziti channel. What was seen of it, on 1.6.0 and 2.1.0:
//!
//! - Nothing is replayed. Whoever connects must look at the whole once.
//! - In a cluster each controller tells of the routers that are connected to itself.
//! - A subscription to a kind of event that a controller does not know is answered with success.
//! - The stream outlives its session.
//!
//! So an event is a hint to look, and silence says nothing.
//!
//! **Changes of entities are not subscribed to**, though there are events for them: the controller
//! puts those into the stream's buffer from within its own transaction, so a reader that stands still
//! would hold up every write to the network once the buffer is full; and they carry whole rows. The
//! coming and going of routers is told from a task of its own.

mod frame;

use std::fmt;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::json;
use snafu::{OptionExt, ResultExt, Snafu, ensure};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::management::{ManagementClient, ManagementError};
use frame::{Frame, MAX_FRAME};

pub use frame::FrameError;

/// Asks for events (`StreamEventsRequestType`).
const SUBSCRIBE: u32 = 10040;
/// Brings one (`StreamEventsEventType`).
const EVENT: u32 = 10041;
/// Answers a request.
const RESULT: u32 = 2;
/// In an answer: the sequence of what is answered.
const REPLY_FOR: u32 = 1;
/// In an answer: whether it went well.
const SUCCESS: u32 = 2;
/// The sequence of the one message that is sent.
const SEQUENCE: u32 = 1;

/// How often the controller is asked for a sign of life.
const PING: Duration = Duration::from_secs(10);
/// How long it may be without one.
const SILENCE: Duration = Duration::from_secs(25);

/// Something happened to a router. A hint: ask for the router to know how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouterEvent {
    /// Id of the router.
    pub router_id: String,
    /// What happened.
    pub change: RouterChange,
}

/// What happened to a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouterChange {
    /// It connected to this controller. It is in sync some tenths of a second later.
    Online,
    /// Its connection to this controller ended.
    Offline,
    /// Something that this client does not know.
    Other,
}

/// Why there is no event stream, or no longer.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
#[non_exhaustive]
pub enum EventsError {
    /// There is no session.
    #[snafu(display("the event stream needs a session: {source}"))]
    Login {
        /// What the login came to.
        source: ManagementError,
    },
    /// No connection.
    #[snafu(display("cannot reach the event stream of {endpoint}: {reason}"))]
    Unreachable {
        /// The controller.
        endpoint: String,
        /// What happened.
        reason: String,
    },
    /// The server's certificate does not verify under the network's CA bundle.
    #[snafu(display("the certificate of {endpoint} is not trusted: {reason}"))]
    NotTrusted {
        /// The controller.
        endpoint: String,
        /// What TLS said.
        reason: String,
    },
    /// The session is good, and the identity behind it is no administrator.
    #[snafu(display(
        "{endpoint} refused the event stream: the identity of the credential is no administrator"
    ))]
    Forbidden {
        /// The controller.
        endpoint: String,
    },
    /// The controller has no event stream: its `fabric` API is not bound to this address, or a
    /// proxy stands between that knows no websockets.
    #[snafu(display("{endpoint} has no event stream: it answered with status {status}"))]
    Unsupported {
        /// The controller.
        endpoint: String,
        /// HTTP status.
        status: u16,
    },
    /// The controller did not take the subscription.
    #[snafu(display("{endpoint} refused the subscription: {reason}"))]
    Refused {
        /// The controller.
        endpoint: String,
        /// Its own sentence.
        reason: String,
    },
    /// The connection ended.
    #[snafu(display("the event stream of {endpoint} ended: {reason}"))]
    Ended {
        /// The controller.
        endpoint: String,
        /// What happened.
        reason: String,
    },
    /// The controller gives no sign of life any more.
    #[snafu(display("the event stream of {endpoint} was silent for {SILENCE:?}"))]
    Silent {
        /// The controller.
        endpoint: String,
    },
    /// The controller sent something else than events.
    #[snafu(display("{endpoint} sent something unreadable on the event stream: {source}"))]
    Malformed {
        /// The controller.
        endpoint: String,
        /// What was wrong with it.
        source: FrameError,
    },
}

impl EventsError {
    /// Whether trying again soon is of no use: the credential or the controller must change.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Forbidden { .. } | Self::Unsupported { .. } | Self::Refused { .. }
        )
    }
}

pub(crate) type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// The limits of the websocket: events are small and few, and the buffers stay for its life.
pub(crate) fn limits() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(4 * 1024)
        .write_buffer_size(0)
        .max_write_buffer_size(MAX_FRAME)
        .max_message_size(Some(MAX_FRAME))
        .max_frame_size(Some(MAX_FRAME))
}

/// The coming and going of routers, as one controller sees it. Ends when dropped.
pub struct EventStream {
    socket: Socket,
    endpoint: String,
    /// When the controller last gave a sign of life.
    heard: Instant,
    /// When it is asked for the next.
    ping: Instant,
}

impl fmt::Debug for EventStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EventStream")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl ManagementClient {
    /// Subscribes to the coming and going of routers at the controller that is spoken to, all
    /// within the timeout of one call. From the return on nothing is missed, so the routers are
    /// to be looked at once then.
    pub async fn events(&self) -> Result<EventStream, EventsError> {
        let deadline = Instant::now() + self.timeout();
        let (socket, endpoint) = self.open_events(deadline).await?;
        let now = Instant::now();
        let mut stream = EventStream {
            socket,
            endpoint,
            heard: now,
            ping: now + PING,
        };
        let subscribed = timeout_at(deadline, stream.subscribe()).await;
        subscribed.unwrap_or_else(|_| {
            UnreachableSnafu {
                endpoint: &stream.endpoint,
                reason: "no answer to the subscription in time",
            }
            .fail()
        })?;
        Ok(stream)
    }
}

impl EventStream {
    /// The next event. Waits for as long as the controller gives signs of life; may be given up
    /// and called again. After an error the stream is of no more use.
    pub async fn next(&mut self) -> Result<RouterEvent, EventsError> {
        loop {
            let bytes = self.receive().await?;
            let frame = self.decode(&bytes)?;
            if frame.content_type == EVENT
                && let Some(event) = event(frame.body)
            {
                return Ok(event);
            }
        }
    }

    async fn subscribe(&mut self) -> Result<(), EventsError> {
        let body = json!({"format": "json", "subscriptions": [{"type": "router"}]}).to_string();
        let request = Frame::new(SUBSCRIBE, SEQUENCE, body.as_bytes());
        let endpoint = &self.endpoint;
        let request = request.encode().context(MalformedSnafu { endpoint })?;
        self.send(Message::binary(request)).await?;
        loop {
            let bytes = self.receive().await?;
            let frame = self.decode(&bytes)?;
            if frame.content_type != RESULT
                || frame.header(REPLY_FOR) != Some(&SEQUENCE.to_le_bytes())
            {
                continue;
            }
            let reason = String::from_utf8_lossy(frame.body);
            let endpoint = &self.endpoint;
            ensure!(
                frame.header(SUCCESS) == Some(&[1]),
                RefusedSnafu { endpoint, reason }
            );
            return Ok(());
        }
    }

    fn decode<'a>(&self, bytes: &'a [u8]) -> Result<Frame<'a>, EventsError> {
        let endpoint = &self.endpoint;
        Frame::decode(bytes).context(MalformedSnafu { endpoint })
    }

    /// The next message of the channel, while the controller lives.
    async fn receive(&mut self) -> Result<Vec<u8>, EventsError> {
        loop {
            let patience = self.heard + SILENCE;
            let message = tokio::select! {
                biased;
                message = self.socket.next() => message,
                () = sleep_until(patience) => {
                    let endpoint = &self.endpoint;
                    return SilentSnafu { endpoint }.fail();
                }
                () = sleep_until(self.ping) => {
                    self.ping = Instant::now() + PING;
                    self.send(Message::Ping(Vec::new().into())).await?;
                    continue;
                }
            };
            let endpoint = &self.endpoint;
            let reason = "the controller closed it";
            let message = message.context(EndedSnafu { endpoint, reason })?;
            let message = message.map_err(|error| self.lost(error))?;
            self.heard = Instant::now();
            match message {
                Message::Binary(bytes) => return Ok(bytes.into()),
                Message::Close(_) => return EndedSnafu { endpoint, reason }.fail(),
                // Pings are answered below us, pongs were heard, and a text is no channel.
                _ => {}
            }
        }
    }

    /// Sends a message; a peer that takes nothing any more counts as silent.
    async fn send(&mut self, message: Message) -> Result<(), EventsError> {
        let sent = timeout_at(self.heard + SILENCE, self.socket.send(message)).await;
        let endpoint = &self.endpoint;
        let sent = sent.ok().context(SilentSnafu { endpoint })?;
        sent.map_err(|error| self.lost(error))
    }

    fn lost(&self, error: tungstenite::Error) -> EventsError {
        let endpoint = self.endpoint.clone();
        match error {
            tungstenite::Error::Capacity(tungstenite::error::CapacityError::MessageTooLong {
                size,
                ..
            }) => EventsError::Malformed {
                endpoint,
                source: FrameError::TooLarge { length: size },
            },
            error => EventsError::Ended {
                endpoint,
                reason: error.to_string(),
            },
        }
    }
}

/// An event of a router; `None` for what is none.
fn event(body: &[u8]) -> Option<RouterEvent> {
    #[derive(Deserialize)]
    struct Event {
        event_type: String,
        router_id: String,
    }
    let event: Event = serde_json::from_slice(body).ok()?;
    let change = match event.event_type.as_str() {
        "router-online" => RouterChange::Online,
        "router-offline" => RouterChange::Offline,
        _ => RouterChange::Other,
    };
    Some(RouterEvent {
        router_id: event.router_id,
        change,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_events_of_routers_and_passes_over_others() {
        let of = |kind: &str| {
            let body = json!({"namespace": "router", "event_src_id": "ctrl", "event_type": kind,
                "timestamp": "2025-04-24T10:00:00Z", "router_id": "abc", "router_online": true});
            event(body.to_string().as_bytes()).map(|event| (event.router_id, event.change))
        };
        let told = |change| Some(("abc".to_owned(), change));
        assert_eq!(of("router-online"), told(RouterChange::Online));
        assert_eq!(of("router-offline"), told(RouterChange::Offline));
        assert_eq!(of("router-upside-down"), told(RouterChange::Other));
        assert_eq!(event(br#"{"namespace":"entityChange"}"#), None);
        assert_eq!(event(b"not JSON"), None);
    }
}
