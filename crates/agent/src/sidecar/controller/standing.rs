//! What the list of members says about this one, and what follows for its readiness. No clock and no
//! socket here. Only [`super`] uses this module.

use std::time::{Duration, Instant};

use crate::socket::Life;
use crate::socket::controller::Member;

/// How long a member stays ready after it was last seen to be one. A leadership that is handed over
/// leaves a moment without a leader, and a busy controller misses an answer: neither may take all
/// members out of their Service at once.
pub(super) const GRACE: Duration = Duration::from_secs(3);
/// How long nothing but empty lists have to come, in one life of the process, before it counts that they
/// are empty: a controller that starts lists nobody until it has read its log. A whole network is
/// restored on this word, so it is by this process' clock, and no other.
const SURE: Duration = Duration::from_mins(1);

/// How this member stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// There is no socket yet.
    Silent,
    /// There is a socket that nobody listens on.
    Dead,
    /// The list did not come.
    Unanswering,
    /// It is in no cluster, and is the one that makes it.
    Appointed,
    /// It could not do what it was told.
    Stuck,
    /// It is not in the cluster that it sees.
    Outside,
    /// It sees nobody, not even itself: it is in no cluster, or has just started.
    Empty,
    /// It has seen nobody for a minute without a break.
    Nowhere,
    /// Its database is being replaced.
    Restoring,
    /// Its database has been replaced, and its process is about to end.
    Restored,
    /// Nobody leads, as far as it knows.
    Leaderless,
    /// It has no connection with whoever leads.
    Apart,
    /// All is well.
    Member,
}

impl Standing {
    /// How a member of that id stands by the list. That other members are connected is not asked for:
    /// followers show each other as away, and one restart would make all of them unready.
    pub(super) fn of(member: &str, members: &[Member]) -> Self {
        if members.is_empty() {
            return Self::Empty;
        }
        if !members.iter().any(|row| row.id == member) {
            return Self::Outside;
        }
        match members.iter().find(|row| row.is_leader) {
            None => Self::Leaderless,
            Some(leader) if !leader.is_connected => Self::Apart,
            Some(_) => Self::Member,
        }
    }

    /// A sentence for whoever asks whether the pod is ready.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Silent => "the controller does not listen yet",
            Self::Dead => "the controller does not run",
            Self::Unanswering => "the controller does not answer",
            Self::Appointed => "the controller is being initialized",
            Self::Stuck => {
                "the controller could not be initialized or restored: the log of the container \
                 of ziti-agent says why"
            }
            Self::Outside | Self::Empty => "the controller waits to be added to its cluster",
            Self::Nowhere => "the controller has been in no cluster for a minute",
            Self::Restoring => "the database is being restored",
            Self::Restored => "the database has been restored, and the controller restarts",
            Self::Leaderless => "the cluster has no leader",
            Self::Apart => "there is no connection with the leader of the cluster",
            Self::Member => "a member of its cluster, which has a leader",
        }
    }

    /// Whether it may pass by itself, so that one sight of it makes no member unready.
    fn is_passing(self) -> bool {
        matches!(self, Self::Unanswering | Self::Leaderless | Self::Apart)
    }
}

/// Whether this member is in a cluster with others, or knows of some: then it never makes one.
pub(super) fn has_company(member: &str, members: &[Member]) -> bool {
    members.iter().any(|row| row.id != member)
}

/// What was seen of a member, in one life of its process.
#[derive(Debug)]
pub(super) struct Record {
    life: Option<Life>,
    standing: Standing,
    member_at: Option<Instant>,
    /// Since when all lists were empty, and when the last one of them came.
    empty: Option<(Instant, Instant)>,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            life: None,
            standing: Standing::Silent,
            member_at: None,
            empty: None,
        }
    }
}

impl Record {
    /// Takes down what was seen.
    pub(super) fn note(&mut self, life: Option<&Life>, standing: Standing, now: Instant) {
        if self.life.as_ref() != life {
            self.member_at = None;
            self.empty = None;
            self.life = life.cloned();
        }
        self.standing = standing;
        self.empty = (standing == Standing::Empty)
            .then(|| (self.empty.map_or(now, |(since, _)| since), now));
        if standing == Standing::Member {
            self.member_at = Some(now);
        } else if !standing.is_passing() {
            self.member_at = None;
        }
    }

    /// Whether the process in that life is ready.
    pub(super) fn verdict(&self, life: &Life, now: Instant) -> Result<Standing, Standing> {
        if self.life.as_ref() != Some(life) {
            return Err(Standing::Silent);
        }
        match self.member_at {
            Some(at) if now.duration_since(at) <= GRACE => Ok(Standing::Member),
            // A sidecar that does not come round is no witness.
            _ if self.standing == Standing::Member => Err(Standing::Unanswering),
            _ if self.is_nowhere(now) => Err(Standing::Nowhere),
            _ => Err(self.standing),
        }
    }

    fn is_nowhere(&self, now: Instant) -> bool {
        self.empty.is_some_and(|(since, last)| {
            last.duration_since(since) >= SURE && now.duration_since(last) <= GRACE
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::socket::AgentSocket;

    fn row(id: &str, is_leader: bool, is_connected: bool) -> Member {
        Member {
            id: id.to_owned(),
            is_voter: true,
            is_leader,
            is_connected,
        }
    }

    #[test]
    fn the_list_says_how_a_member_stands() {
        let own = row("c0", false, true);
        let rows = [
            (vec![], Standing::Empty),
            (vec![row("c1", true, true)], Standing::Outside),
            (vec![own.clone()], Standing::Leaderless),
            (vec![own.clone(), row("c1", true, false)], Standing::Apart),
            (vec![row("c0", true, true)], Standing::Member),
            (
                vec![own, row("c1", true, true), row("c2", false, false)],
                Standing::Member,
            ),
        ];
        for (members, expected) in rows {
            assert_eq!(Standing::of("c0", &members), expected, "{members:?}");
        }
    }

    #[test]
    fn a_cluster_is_made_only_by_whoever_is_alone() {
        assert!(!has_company("c0", &[]));
        assert!(!has_company("c0", &[row("c0", true, true)]));
        // One that lost its volume, and is connected to by the others already.
        assert!(has_company("c0", &[row("c1", false, true)]));
    }

    fn life() -> Life {
        let dir = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(dir.path().join("gops-agent.1.sock")).unwrap();
        let socket = AgentSocket::find(dir.path()).unwrap().unwrap();
        socket.life().clone()
    }

    #[test]
    fn a_controller_that_starts_is_not_taken_for_one_without_a_database() {
        let (first, second) = (life(), life());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut record = Record::default();
        // It crashes and comes back for an hour, and lists nobody whenever it starts.
        for round in 0..60 {
            let life = if round % 2 == 0 { &first } else { &second };
            for second in [0, 30, 59] {
                let now = at(round * 60 + second);
                record.note(Some(life), Standing::Empty, now);
                assert_eq!(record.verdict(life, now), Err(Standing::Empty));
            }
        }
        // Any other sight begins the minute anew.
        for seen in [
            Standing::Unanswering,
            Standing::Outside,
            Standing::Leaderless,
        ] {
            let mut record = Record::default();
            record.note(Some(&first), Standing::Empty, at(0));
            record.note(Some(&first), seen, at(30));
            record.note(Some(&first), Standing::Empty, at(31));
            record.note(Some(&first), Standing::Empty, at(90));
            assert_eq!(record.verdict(&first, at(90)), Err(Standing::Empty));
            record.note(Some(&first), Standing::Empty, at(91));
            assert_eq!(record.verdict(&first, at(91)), Err(Standing::Nowhere));
            // Nobody has looked since.
            assert_eq!(record.verdict(&first, at(95)), Err(Standing::Empty));
        }
    }

    #[test]
    fn one_miss_is_no_loss_and_readiness_is_of_one_life() {
        let (first, second) = (life(), life());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut record = Record::default();
        let verdict = |record: &Record, seconds| record.verdict(&first, at(seconds));
        assert_eq!(verdict(&record, 0), Err(Standing::Silent));

        // Before it has been a member, a passing state is no readiness.
        record.note(Some(&first), Standing::Leaderless, at(0));
        assert_eq!(verdict(&record, 0), Err(Standing::Leaderless));

        record.note(Some(&first), Standing::Member, at(1));
        record.note(Some(&first), Standing::Leaderless, at(2));
        record.note(Some(&first), Standing::Unanswering, at(3));
        assert_eq!(verdict(&record, 4), Ok(Standing::Member));
        assert_eq!(verdict(&record, 5), Err(Standing::Unanswering));

        // What does not pass by itself counts at once.
        record.note(Some(&first), Standing::Member, at(6));
        record.note(Some(&first), Standing::Dead, at(6));
        assert_eq!(verdict(&record, 6), Err(Standing::Dead));
        record.note(Some(&first), Standing::Leaderless, at(6));
        assert_eq!(verdict(&record, 6), Err(Standing::Leaderless));

        record.note(Some(&first), Standing::Member, at(7));
        assert_eq!(record.verdict(&second, at(7)), Err(Standing::Silent));
        record.note(Some(&second), Standing::Apart, at(7));
        assert_eq!(record.verdict(&second, at(7)), Err(Standing::Apart));

        // Nobody has looked for a while.
        record.note(Some(&second), Standing::Member, at(8));
        let stale = record.verdict(&second, at(12));
        assert_eq!(stale, Err(Standing::Unanswering));
    }
}
