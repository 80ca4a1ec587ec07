//! The drain: new circuits are steered away, running ones get time. Only the sidecar uses it.
//!
//! What it can do on the router's side is to fail the precedence of the router's terminators: the
//! controllers then choose others for new circuits, where there are others. Circuits that an SDK
//! begins at this router's edge listener are not steered away.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::{info, warn};

use super::latch::Latch;
use crate::router_socket::{Request, RouterSocket, SocketError};

/// How long the controllers have to carry out the quiesce; the router itself waits that long.
const QUIESCE_WITHIN: Duration = Duration::from_secs(6);
/// Circuits that were on their way at the moment of the quiesce are there after that long.
const SETTLE: Duration = Duration::from_secs(1);
/// How often the circuits are counted.
const COUNT_EVERY: Duration = Duration::from_millis(250);
/// How long the router has to list them.
const COUNT_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Waiting,
    Begun,
    Over,
}

/// The one drain in the life of a pod.
#[derive(Debug)]
pub(super) struct Drain {
    within: Duration,
    stage: watch::Sender<Stage>,
}

impl Drain {
    pub(super) fn new(within: Duration) -> Self {
        Self {
            within,
            stage: watch::Sender::new(Stage::Waiting),
        }
    }

    /// How long it may take.
    pub(super) fn within(&self) -> Duration {
        self.within
    }

    /// Whether it has begun; it may be over.
    pub(super) fn is_begun(&self) -> bool {
        *self.stage.borrow() >= Stage::Begun
    }

    /// Returns when it has begun.
    pub(super) async fn begun(&self) {
        self.reached(Stage::Begun).await;
    }

    /// Returns when it is over.
    pub(super) async fn over(&self) {
        self.reached(Stage::Over).await;
    }

    async fn reached(&self, stage: Stage) {
        // Fails only where the sender is gone, which is here.
        let _ = self.stage.subscribe().wait_for(|now| *now >= stage).await;
    }

    /// Drains the router, or waits for the drain that has begun.
    pub(super) async fn run(&self, router_tmp: &Path, latch: &Latch) {
        let first = self.stage.send_if_modified(|stage| {
            let first = *stage == Stage::Waiting;
            if first {
                *stage = Stage::Begun;
            }
            first
        });
        if !first {
            return self.over().await;
        }
        let started = Instant::now();
        let drained = tokio::time::timeout(self.within, drain(router_tmp, latch)).await;
        let took = format!("{:.1} s", started.elapsed().as_secs_f32());
        match drained {
            Ok(Ok(())) => info!(took, "drained: no circuit begins or ends here"),
            Ok(Err(error)) => warn!(%error, took, "cannot drain"),
            Err(_) => info!(
                took,
                "the time to drain is over, and there are circuits still"
            ),
        }
        self.stage.send_replace(Stage::Over);
    }
}

/// Returns when no circuit is left.
async fn drain(router_tmp: &Path, latch: &Latch) -> Result<(), SocketError> {
    let router = RouterSocket::find(router_tmp)?;
    // One that never was online carries nothing, and would not answer.
    let Some(router) = router.filter(|router| latch.holds(router.life())) else {
        return Ok(());
    };
    match router.ask(Request::Quiesce, QUIESCE_WITHIN).await {
        Ok(_) => info!("new circuits are steered away from this router"),
        // A router that does not run has no circuits.
        Err(error @ SocketError::Connect { .. }) => return Err(error),
        // Running circuits need no controller, and get their time.
        Err(error) => warn!(%error, "new circuits may still come to this router"),
    }
    let quiesced = Instant::now();
    let mut told = usize::MAX;
    loop {
        tokio::time::sleep(COUNT_EVERY).await;
        match router.circuits(COUNT_WITHIN).await {
            Ok(0) if quiesced.elapsed() >= SETTLE => return Ok(()),
            Ok(0) => {}
            Ok(count) if count < told => {
                info!(count, "waiting for circuits to end");
                told = count;
            }
            Ok(_) => {}
            Err(error @ SocketError::Connect { .. }) => return Err(error),
            // Not to be counted is not to be without.
            Err(error) => warn!(%error, "cannot count the circuits"),
        }
    }
}
