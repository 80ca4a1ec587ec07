//! The sidecar's part beside a router. Only the sidecar uses this module.
//!
//! **Ready** is a router that has been online in this life of its process. The latch is kept with the
//! life that it is of ([`super::latch`]): a controller that goes away later un-readies nobody, a router
//! that restarts has to connect again, a sidecar that restarts remembers. The first sign of being online
//! is a `dequiesce` that a controller carried out, which at the same time takes back what a drain before
//! had left in the controller's database.
//!
//! **Leaving**: new circuits are steered away, running ones get time. What can be done on the router's
//! side is to fail the precedence of the router's terminators: the controllers then choose others for
//! new circuits, where there are others. Circuits that an SDK begins at this router's edge listener are
//! not steered away.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::drain::Drain;
use super::latch::Latch;
use super::{Neighbour, Told};
use crate::socket::router::{Request, ask, circuits};
use crate::socket::{AgentSocket, Life, SocketError};

/// How often a router that is not online yet is asked.
const EAGER: Duration = Duration::from_millis(250);
/// How often it is looked whether the router is still the same.
const AT_REST: Duration = Duration::from_secs(1);
/// How long a router has to answer that it is online. One that never was does not answer; asking
/// anew is quicker than waiting, since the router looks for a controller ever less often. (It carries
/// out what was asked before as well, when it is online at last. So a drain within the first seconds
/// of a router that was long in coming may be taken back: circuits get their time all the same.)
const ONLINE_WITHIN: Duration = Duration::from_secs(2);
/// How old a life of the router is before it is asked at all. Until then the network may still hold
/// what the life before hosted, which leads nowhere: taken back from `failed`, it would draw requests
/// away from other hosts. A router clears it away and hosts anew within milliseconds of its start
/// (1.6), or three seconds (2.1).
const SETTLED: Duration = Duration::from_secs(4);
/// How long the controllers have to carry out the quiesce; the router itself waits that long.
const QUIESCE_WITHIN: Duration = Duration::from_secs(6);
/// Circuits that were on their way at the moment of the quiesce are there after that long.
const SETTLE: Duration = Duration::from_secs(1);
/// How often the circuits are counted.
const COUNT_EVERY: Duration = Duration::from_millis(250);
/// How long the router has to list them.
const COUNT_WITHIN: Duration = Duration::from_secs(2);

/// A router beside the sidecar.
#[derive(Debug)]
pub(super) struct Router {
    tmp: PathBuf,
    latch: Latch,
}

impl Router {
    /// The router whose temporary directory this is.
    pub(super) fn new(tmp: PathBuf) -> Self {
        let latch = Latch::restore(&tmp);
        Self { tmp, latch }
    }
}

impl Neighbour for Router {
    async fn ready(&self) -> Result<String, String> {
        let why = match AgentSocket::find(&self.tmp) {
            Err(_) | Ok(None) => "the router does not listen yet",
            Ok(Some(router)) if !self.latch.holds(router.life()) => {
                "the router has not been online yet"
            }
            Ok(Some(router)) if !router.is_alive().await => "the router does not run",
            Ok(Some(_)) => return Ok("the router has been online".to_owned()),
        };
        Err(why.to_owned())
    }

    /// Closes the latch when the router is online, in each life of it.
    async fn watch(&self, drain: &Drain) {
        let mut told = Told::default();
        let mut seen: Option<(Life, Instant)> = None;
        loop {
            let problem = match AgentSocket::find(&self.tmp) {
                Err(error) => Some(error.to_string()),
                Ok(None) => None,
                Ok(Some(router)) if self.latch.holds(router.life()) => {
                    tokio::time::sleep(AT_REST).await;
                    continue;
                }
                // What a drain has done must stay.
                Ok(Some(_)) if drain.is_begun() => None,
                Ok(Some(router)) if !is_settled(&mut seen, router.life()) => None,
                Ok(Some(router)) => match ask(&router, Request::Dequiesce, ONLINE_WITHIN).await {
                    Ok(_) => {
                        self.latch.close(router.life());
                        info!("the router is online");
                        told = Told::default();
                        None
                    }
                    Err(error) => Some(error.to_string()),
                },
            };
            if let Some(problem) = problem.filter(|problem| told.is_new(problem)) {
                info!(problem, "the router is not online yet");
            }
            tokio::time::sleep(EAGER).await;
        }
    }

    /// Returns when no circuit is left.
    async fn leave(&self) -> Result<(), SocketError> {
        let router = AgentSocket::find(&self.tmp)?;
        // One that never was online carries nothing, and would not answer.
        let Some(router) = router.filter(|router| self.latch.holds(router.life())) else {
            return Ok(());
        };
        match ask(&router, Request::Quiesce, QUIESCE_WITHIN).await {
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
            match circuits(&router, COUNT_WITHIN).await {
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
}

/// Whether this life of the router is no new one. `seen` is the last that was seen, and since when.
fn is_settled(seen: &mut Option<(Life, Instant)>, life: &Life) -> bool {
    match seen {
        Some((known, since)) if known == life => since.elapsed() >= SETTLED,
        _ => {
            *seen = Some((life.clone(), Instant::now()));
            false
        }
    }
}
