//! How a leader leaves: another voter leads before the process ends, so that no write fails meanwhile.
//! A follower leaves as it is: from it, the same request would move the leader. Only [`super`] uses
//! this module.

use std::time::Duration;

use tracing::{info, warn};

use super::ANSWER_WITHIN;
use crate::socket::controller::{Member, members, transfer_leadership};
use crate::socket::{AgentSocket, SocketError};

/// How long a handover may take; Raft itself gives it the five seconds of an election.
const TRANSFER_WITHIN: Duration = Duration::from_secs(6);
/// How often it is looked who leads.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the new leader keeps this one's vote. It has to connect with the other voters: followers
/// have no need of each other, and one that has just come back is known to the old leader alone. A leader
/// that leaves before that takes the majority of the new one with it.
const SETTLE: Duration = Duration::from_secs(2);

/// What a member that leaves has to do.
#[derive(Debug, PartialEq, Eq)]
enum Course<'a> {
    /// Another one leads.
    Go,
    /// It leads, and nobody is there to take over.
    Alone,
    /// It leads; these can take over.
    Offer(Vec<&'a str>),
    /// Nobody leads.
    Leaderless,
}

fn course<'a>(member: &str, members: &'a [Member]) -> Course<'a> {
    match members.iter().find(|row| row.is_leader) {
        None => Course::Leaderless,
        Some(leader) if leader.id != member => Course::Go,
        Some(_) => {
            let others = members.iter().filter(|row| row.id != member);
            let able = others.filter(|row| row.is_voter && row.is_connected);
            let able: Vec<_> = able.map(|row| row.id.as_str()).collect();
            if able.is_empty() {
                Course::Alone
            } else {
                Course::Offer(able)
            }
        }
    }
}

/// Returns when this member does not lead, or nobody can take over.
pub(super) async fn hand_over(controller: &AgentSocket, member: &str) -> Result<(), SocketError> {
    let mut asked = 0;
    let mut settled = false;
    loop {
        let members = members(controller, ANSWER_WITHIN).await?;
        match course(member, &members) {
            // It never led, or whom it handed over to leads still.
            Course::Go if asked == 0 || settled => return Ok(()),
            Course::Go => {
                info!("another member leads");
                settled = true;
                tokio::time::sleep(SETTLE).await;
            }
            // It had nothing to hand over.
            Course::Leaderless if asked == 0 => return Ok(()),
            Course::Leaderless => settled = false,
            Course::Alone => {
                info!("this member leads, and no other voter is connected: it leaves as it is");
                return Ok(());
            }
            // Named, since Raft's own choice may be one that is away; another one after a refusal.
            Course::Offer(able) => {
                let to = able[asked % able.len()];
                asked += 1;
                settled = false;
                info!(to, "handing over the leadership");
                let handed = transfer_leadership(controller, to, TRANSFER_WITHIN).await;
                if let Err(error) = handed {
                    warn!(to, %error, "the leadership was not handed over");
                }
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_leader_hands_over_and_only_to_a_voter_that_is_there() {
        let row = |id: &str, flags: &str| Member {
            id: id.to_owned(),
            is_voter: flags.contains('v'),
            is_leader: flags.contains('l'),
            is_connected: flags.contains('c'),
        };
        let rows = [
            (vec![], Course::Leaderless),
            (vec![row("a", "vc"), row("b", "vc")], Course::Leaderless),
            (vec![row("a", "vc"), row("b", "vlc")], Course::Go),
            (vec![row("a", "vc"), row("b", "vl")], Course::Go),
            (vec![row("a", "vlc")], Course::Alone),
            (
                vec![row("a", "vlc"), row("b", "v"), row("c", "c")],
                Course::Alone,
            ),
            (
                vec![row("a", "vlc"), row("b", "v"), row("c", "vc")],
                Course::Offer(vec!["c"]),
            ),
        ];
        for (members, expected) in rows {
            assert_eq!(course("a", &members), expected, "{members:?}");
        }
    }
}
