//! The one drain in the life of a pod: who begins it, and who waits for its end. What is done in it is
//! the neighbour's ([`super::Neighbour::leave`]). Only the sidecar uses this module.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::{info, warn};

use crate::socket::SocketError;

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

    /// Does what `leave` says, or waits for the drain that has begun.
    pub(super) async fn run(&self, leave: impl Future<Output = Result<(), SocketError>>) {
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
        let left = tokio::time::timeout(self.within, leave).await;
        let took = format!("{:.1} s", started.elapsed().as_secs_f32());
        match left {
            Ok(Ok(())) => info!(took, "drained"),
            Ok(Err(error)) => warn!(%error, took, "cannot drain"),
            Err(_) => warn!(took, "the time to drain is over before its work"),
        }
        self.stage.send_replace(Stage::Over);
    }
}
