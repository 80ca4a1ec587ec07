//! What the kubelet asks, by HTTP. Only the sidecar uses it.
//!
//! | path | answers |
//! | --- | --- |
//! | `/ready` | 200 while the neighbour is ready, else 503; and why |
//! | `/drained` | 200 when the drain is over; at once where there is none |
//!
//! Everybody who reaches the pod may ask: nothing is given away, and nothing happens. So that the
//! kubelet always gets through, each address has few places, for connections and for waiting, and who
//! connects and asks nothing is hung up on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tracing::{debug, warn};

use super::places::Places;
use super::{Neighbour, PAUSE, Sidecar};

/// How long after the neighbour's hook the drain may begin: the two hooks are started together, and
/// the other one has a program to start.
const BEGINS_WITHIN: Duration = Duration::from_secs(5);
/// How much longer than its limit a drain is waited for.
const SLACK: Duration = Duration::from_secs(1);
/// How long a request may take to come in. The kubelet's probe gives up as soon.
const ASKS_WITHIN: Duration = Duration::from_secs(2);
/// How many connections there may be, and from each address. The kubelet has one for each probe and
/// one for the hook; a connection takes some 20 KiB.
pub(super) const CONNECTIONS: (usize, usize) = (48, 6);
/// How many may wait for the end of a drain, and from each address.
const WAITING: (usize, usize) = (32, 2);
/// The most that a request may take up, in bytes; the least that the library allows.
const LONGEST_REQUEST: usize = 8192;

/// Listens on all addresses of the pod, of both families where it has both.
pub(super) async fn listen(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await,
    }
}

/// Answers until the process ends.
pub(super) async fn serve<N: Neighbour>(listener: TcpListener, sidecar: Arc<Sidecar<N>>) {
    // An answer that waits for a drain is the longest; whoever does not take it is hung up on.
    let longest = ASKS_WITHIN + BEGINS_WITHIN + sidecar.drain.within() + 2 * SLACK;
    let connections = Places::new(CONNECTIONS.0, CONNECTIONS.1);
    let waiting = Places::new(WAITING.0, WAITING.1);
    let app = Router::new()
        .route("/ready", get(ready::<N>))
        .route("/drained", get(drained::<N>))
        .layer(Extension(waiting))
        .with_state(sidecar);
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "cannot take a connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let address = from.ip().to_canonical();
        // One that has no place is hung up on by being dropped.
        let Some(place) = connections.take(address) else {
            continue;
        };
        let answered = answer(stream, app.clone().layer(Extension(address)));
        tokio::spawn(async move {
            if let Ok(Err(error)) = tokio::time::timeout(longest, answered).await {
                debug!(%error, %address, "a connection ended early");
            }
            drop(place);
        });
    }
}

/// One request, and no other after it.
pub(super) async fn answer<S>(stream: S, app: Router) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(ASKS_WITHIN)
        .keep_alive(false)
        .max_buf_size(LONGEST_REQUEST);
    let service = TowerToHyperService::new(app);
    server.serve_connection(TokioIo::new(stream), service).await
}

async fn ready<N: Neighbour>(State(sidecar): State<Arc<Sidecar<N>>>) -> (StatusCode, String) {
    if sidecar.drain.is_begun() {
        let why = "the pod is leaving\n".to_owned();
        return (StatusCode::SERVICE_UNAVAILABLE, why);
    }
    match sidecar.neighbour.ready().await {
        Ok(how) => (StatusCode::OK, format!("{how}\n")),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn drained<N: Neighbour>(
    State(sidecar): State<Arc<Sidecar<N>>>,
    Extension(waiting): Extension<Arc<Places>>,
    Extension(address): Extension<IpAddr>,
) -> (StatusCode, &'static str) {
    let Some(_place) = waiting.take(address) else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many are waiting\n");
    };
    let drain = &sidecar.drain;
    if tokio::time::timeout(BEGINS_WITHIN, drain.begun())
        .await
        .is_err()
    {
        return (StatusCode::OK, "there is no drain\n");
    }
    match tokio::time::timeout(drain.within() + SLACK, drain.over()).await {
        Ok(()) => (StatusCode::OK, "the drain is over\n"),
        Err(_) => (StatusCode::OK, "the time to drain is over\n"),
    }
}
