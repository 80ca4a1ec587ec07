//! What the kubelet asks, by HTTP. Only the sidecar uses it.
//!
//! | path | answers |
//! | --- | --- |
//! | `/ready` | 200 while the router is ready, else 503 and why |
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

use super::Sidecar;
use crate::router_socket::RouterSocket;

/// How long after the router's hook the drain may begin: the two hooks are started together, and
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
pub(super) async fn serve(listener: TcpListener, sidecar: Arc<Sidecar>) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(WAITING));
    let waiting = Arc::clone(&sidecar);
    let drained = move || async move {
        let Ok(_place) = places.try_acquire() else {
            return (StatusCode::SERVICE_UNAVAILABLE, "too many are waiting\n");
        };
        drained(&waiting).await
    };
    let app = Router::new()
        .route("/ready", get(ready))
        .route("/drained", get(drained))
        .with_state(sidecar);
    axum::serve(listener, app).await
}

async fn ready(State(sidecar): State<Arc<Sidecar>>) -> (StatusCode, &'static str) {
    let why = match RouterSocket::find(&sidecar.router_tmp) {
        _ if sidecar.drain.is_begun() => "the pod is leaving\n",
        Err(_) | Ok(None) => "the router does not listen yet\n",
        Ok(Some(router)) if !sidecar.latch.holds(router.life()) => {
            "the router has not been online yet\n"
        }
        Ok(Some(router)) if !router.is_alive().await => "the router does not run\n",
        Ok(Some(_)) => return (StatusCode::OK, "the router has been online\n"),
    };
    (StatusCode::SERVICE_UNAVAILABLE, why)
}

async fn drained(sidecar: &Sidecar) -> (StatusCode, &'static str) {
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
