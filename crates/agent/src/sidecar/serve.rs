//! What the kubelet asks, by HTTP. Only the sidecar uses it.
//!
//! | path | answers |
//! | --- | --- |
//! | `/ready` | 200 while the neighbour is ready, else 503; and why |
//! | `/drained` | 200 when the drain is over; at once where there is none |
//!
//! Everybody who reaches the pod may ask: nothing is given away, and nothing happens.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::drain::Drain;
use super::{Neighbour, Sidecar};

/// How long after the neighbour's hook the drain may begin: the two hooks are started together, and
/// the other one has a program to start.
const BEGINS_WITHIN: Duration = Duration::from_secs(5);
/// How much longer than its limit a drain is waited for.
const SLACK: Duration = Duration::from_secs(1);
/// How many may wait for the end of a drain. The kubelet is one.
const WAITING: usize = 8;

/// Listens on all addresses of the pod, of both families where it has both.
pub(super) async fn listen(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await,
    }
}

/// Answers until the process ends.
pub(super) async fn serve<N: Neighbour>(
    listener: TcpListener,
    sidecar: Arc<Sidecar<N>>,
) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(WAITING));
    let waiting = Arc::clone(&sidecar);
    let drained = move || async move {
        let Ok(_place) = places.try_acquire() else {
            return (StatusCode::SERVICE_UNAVAILABLE, "too many are waiting\n");
        };
        drained(&waiting.drain).await
    };
    let app = Router::new()
        .route("/ready", get(ready::<N>))
        .route("/drained", get(drained))
        .with_state(sidecar);
    axum::serve(listener, app).await
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

async fn drained(drain: &Drain) -> (StatusCode, &'static str) {
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
