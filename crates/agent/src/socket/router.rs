//! What a running router can be asked by its agent socket. [`crate::sidecar`] is who asks.
//!
//! Seen on 1.6.0 and 2.1:
//! - `dequiesce` makes a round trip to a controller, so its success is proof that the router is
//!   online. Nothing else on this socket is, on 1.6. While the router has never been connected, the
//!   request is not answered at all; afterwards, it fails after five seconds.
//! - `quiesce` sets the precedence of all of the router's terminators to `failed`, in the
//!   controller's database. It outlives the router; `dequiesce` takes it back. Both may be repeated.

use std::time::Duration;

use snafu::OptionExt;

use super::{AgentSocket, App, Question, SocketError, StrangeSnafu};

/// What a router can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// The text of its forwarding tables.
    Tables = 10074,
    /// New circuits shall avoid its terminators.
    Quiesce = 10077,
    /// Its terminators are as good as any again.
    Dequiesce = 10078,
}

impl Request {
    fn name(self) -> &'static str {
        match self {
            Self::Tables => "the request for the forwarding tables",
            Self::Quiesce => "the quiesce",
            Self::Dequiesce => "the dequiesce",
        }
    }
}

/// Asks, and returns the text of the answer.
pub async fn ask(
    router: &AgentSocket,
    request: Request,
    within: Duration,
) -> Result<String, SocketError> {
    let question = Question {
        app: App::Router,
        what: request.name(),
        kind: request as i32,
        headers: &[],
        body: &[],
    };
    let answer = router.ask(question, within).await?;
    Ok(String::from_utf8_lossy(&answer.body).trim_end().to_owned())
}

/// How many circuits begin or end at the router and are in use. Those that only pass through are
/// not among them: the controller leads them another way when the router is gone.
pub async fn circuits(router: &AgentSocket, within: Duration) -> Result<usize, SocketError> {
    let tables = ask(router, Request::Tables, within).await?;
    count(&tables).context(StrangeSnafu {
        what: Request::Tables.name(),
        why: "it has no line `xgress (n):`",
    })
}

/// The number in the line `xgress (n):`.
fn count(tables: &str) -> Option<usize> {
    let lines = tables.lines().rev();
    let mut counts = lines.filter_map(|line| line.strip_prefix("xgress ("));
    counts.next()?.strip_suffix("):")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circuits_in_use_are_counted_and_those_that_ended_are_not() {
        let ended = "circuits (1):\n\n\tc/SrUN\t\t@/ROoa -> @/Lymw\n\ndestinations (0):\n\n\nxgress (0):\n\n\n";
        assert_eq!(count(ended), Some(0));
        let two = "circuits (0):\n\ndestinations (2):\n\n\nxgress (2):\n\n\tc/SrUN:\n\t\t@/Lymw\n";
        assert_eq!(count(two), Some(2));
        assert_eq!(count("another text"), None);
    }
}
