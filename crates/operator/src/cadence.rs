//! When the routers of a network are listed again: a pure decision of the poller
//! ([`crate::poller`]).

use std::time::Duration;
use tokio::time::Instant;

/// While something is pending, and after a hint. Never more often.
const CLOSELY: Duration = Duration::from_secs(1);
/// While something is pending of which the event stream tells most: that a token
/// was spent without its router coming, it does not tell.
const LOOSELY: Duration = Duration::from_secs(5);
/// At rest. The stream makes no difference here: what somebody else changes
/// about a router is no event.
const AT_REST: Duration = Duration::from_secs(30);
/// How long lists follow a hint: a router is in sync some tenths of a second
/// after the event of its coming.
const AFTERMATH: Duration = Duration::from_secs(2);

/// What the next list waits for.
pub(crate) struct Cadence {
    /// Something is pending that only the network can tell.
    pub(crate) closely: bool,
    /// The event stream tells what happens.
    pub(crate) streamed: bool,
    /// When something was last said to have happened.
    pub(crate) hinted: Option<Instant>,
}

impl Cadence {
    /// When to list again after a list that began at `started`; may lie in the
    /// past.
    pub(crate) fn next(&self, started: Instant) -> Instant {
        let after_hint = self
            .hinted
            .is_some_and(|hinted| hinted + AFTERMATH > started);
        started
            + match (after_hint, self.closely, self.streamed) {
                (true, _, _) | (false, true, false) => CLOSELY,
                (false, true, true) => LOOSELY,
                (false, false, _) => AT_REST,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(closely: bool, streamed: bool, hinted: Option<Duration>) -> Duration {
        let started = Instant::now();
        let cadence = Cadence {
            closely,
            streamed,
            hinted: hinted.map(|after| started + after),
        };
        cadence.next(started) - started
    }

    #[test]
    fn a_stream_saves_lists_only_while_something_is_pending() {
        assert_eq!(pause(false, false, None), AT_REST);
        assert_eq!(pause(false, true, None), AT_REST);
        assert_eq!(pause(true, false, None), CLOSELY);
        assert_eq!(pause(true, true, None), LOOSELY);
    }

    #[test]
    fn a_hint_is_looked_at_at_once_and_no_more_than_once_a_second() {
        for (closely, streamed) in [(false, true), (true, true), (false, false)] {
            // A list at rest was long ago, so its next is due in the past.
            let long_after = Some(Duration::from_secs(20));
            assert_eq!(pause(closely, streamed, long_after), CLOSELY);
        }
    }

    #[test]
    fn lists_follow_a_hint_until_what_it_told_has_settled() {
        let hinted = Instant::now();
        let cadence = Cadence {
            closely: false,
            streamed: true,
            hinted: Some(hinted),
        };
        let mut lists = vec![hinted];
        while let Some(last) = lists.last()
            && cadence.next(*last) < hinted + AT_REST
        {
            lists.push(cadence.next(*last));
        }
        let after: Vec<u64> = lists.iter().map(|at| (*at - hinted).as_secs()).collect();
        assert_eq!(after, [0, 1, 2]);
    }
}
