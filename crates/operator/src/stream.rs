//! Follows the event stream of a network's controller: the coming and going of a
//! router becomes a hint to the poller ([`crate::poller`]), which looks at the
//! list. Nothing rests on it. Where there is no stream, because the controller
//! has none, the credential does not permit it or it broke, lists go on as they
//! would, and it is tried again.

use crate::context::Context;
use crate::controllers;
use crate::networks::{Access, Connection, Network};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;
use ziti::events::{EventStream, EventsError};

/// How long after an event the list is looked at: routers come and go in
/// groups, and a row follows its event.
const SETTLE: Duration = Duration::from_millis(50);
/// How long the lists go on by the clock after a stream was opened again. A
/// controller that has restarted shows its routers as offline until they are
/// back, and an outage of the controller shall cost no write for each router.
const CALM: Duration = Duration::from_secs(30);
/// The first pause after a stream broke; the next ones double.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause after a stream broke.
const LONGEST: Duration = Duration::from_mins(1);
/// The pause after a stream was refused.
const REFUSED: Duration = Duration::from_mins(5);

/// Follow the stream of one network until the network is forgotten.
pub(crate) async fn run(context: Arc<Context>, network: Arc<Network>) {
    let mut turned = network.turned.subscribe();
    let mut failures = 0;
    let mut calm = Duration::ZERO;
    while context.networks.contains(&network) {
        let Access::Full(connection, _) = network.access(true) else {
            wait(&mut turned).await;
            continue;
        };
        let begun = Instant::now();
        // The events must be of the controller whose lists are read. Where none
        // leads, the one that answers is followed until one does.
        let _ = controllers::follow(&context, &network, &connection).await;
        let at = network.controllers.led_at();
        let other = until_other(&context, &network, &connection, at.as_deref(), &mut turned);
        let ended = tokio::select! {
            error = follow(&network, &connection, calm) => Some(error),
            () = other => None,
        };
        network.streams(false);
        calm = CALM;
        let Some(error) = ended else { continue };
        if begun.elapsed() > LONGEST {
            failures = 0;
        }
        let pause = pause(failures, error.is_refusal());
        failures += 1;
        debug!(
            network = network.key.1,
            %error,
            again_in = ?pause,
            "no event stream; the routers are listed by the clock"
        );
        // Another verdict or another credential may make the difference.
        let _ = timeout(pause, wait(&mut turned)).await;
    }
}

/// How long to wait after so many failures in a row before this one.
fn pause(failures: u32, refused: bool) -> Duration {
    if refused {
        REFUSED
    } else {
        FIRST.saturating_mul(1 << failures.min(10)).min(LONGEST)
    }
}

/// Wait until something about the network itself changes. (Its other end is in
/// the network that the caller holds.)
async fn wait(turned: &mut watch::Receiver<()>) {
    let _ = turned.changed().await;
}

/// Wait until the network is forgotten, may not be used as it is now, or is led
/// at another endpoint than `at`.
async fn until_other(
    context: &Context,
    network: &Arc<Network>,
    connection: &Connection,
    at: Option<&str>,
    turned: &mut watch::Receiver<()>,
) {
    loop {
        wait(turned).await;
        let same = matches!(
            network.access(true),
            Access::Full(now, _) if now.inputs == connection.inputs
        ) && network.controllers.led_at().as_deref() == at;
        if !same || !context.networks.contains(network) {
            return;
        }
    }
}

/// Open the stream, and pass hints on until it ends.
async fn follow(network: &Network, connection: &Connection, calm: Duration) -> EventsError {
    match connection.client.events().await {
        Ok(stream) => {
            debug!(network = network.key.1, "the event stream is open");
            pass_on(network, stream, Instant::now() + calm).await
        }
        Err(error) => error,
    }
}

async fn pass_on(network: &Network, mut stream: EventStream, calm: Instant) -> EventsError {
    // When the next hint is due. The first is without an event: nothing is
    // replayed, so what happened before must be looked at.
    let mut due = Some(calm);
    loop {
        let settling = async {
            match due {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = stream.next() => match event {
                Ok(event) => {
                    let ours = network.knows(&event.router_id);
                    debug!(
                        network = network.key.1,
                        router = event.router_id,
                        change = ?event.change,
                        ours,
                        "an event"
                    );
                    if ours {
                        due.get_or_insert(Instant::now() + SETTLE);
                    }
                }
                Err(error) => return error,
            },
            () = settling => {
                due = None;
                network.streams(true);
                network.hint();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_stream_is_tried_again_soon_and_a_refused_one_late() {
        let pauses: Vec<u64> = (0..8).map(|n| pause(n, false).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause(u32::MAX, false), LONGEST);
        assert_eq!(pause(0, true), REFUSED);
    }
}
