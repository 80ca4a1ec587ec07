//! How the operator shares its time among clusters, in seconds: the turns that sets
//! of one cluster share, calls that hang until their deadline, and a verdict on each
//! cluster that is made by looks (by the planner of ZitiClusters itself).
//!
//! The numbers are those of `crates/operator/src/ziti_cluster`.

use api::{ZitiCluster, ZitiClusterSpec, names, reasons};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plan::edge_router::Problem;
use plan::ziti_cluster::{self, Answer, Facts};
use serde_json::json;
use std::collections::VecDeque;

/// How many sets of one cluster are worked on at a time (`links.rs`).
pub(crate) const AT_ONCE: usize = 4;
/// How long a call lasts of which nothing comes back: a connection, and an answer
/// (`credential.rs`).
pub(crate) const DEADLINE: i64 = 5 + 15;
/// How long one lasts that is answered.
pub(crate) const CALL: i64 = 1;
/// The longest pause between two looks at a cluster that is away.
const LATEST: i64 = 60;
/// How soon a set is tried again whose call failed.
const RETRY: i64 = 1;

/// So long after a cluster is back, its sets are worked on: a look that began before
/// fails at its deadline, the next one comes after the longest pause, and is answered.
pub(crate) const BACK: i64 = DEADLINE + LATEST + CALL;

/// For how long a set waits at most before it is worked on, in a cluster of so many sets
/// that answers: for the end of its own reconcile, where it was woken in one, and then
/// for the others of its cluster, each of which may go before it once. No other cluster
/// is in it.
pub(crate) fn longest_wait(sets: usize) -> i64 {
    let others = sets.saturating_sub(1) / AT_ONCE;
    CALL + i64::try_from(others).expect("not many") * CALL
}

/// One reconcile of a set by the operator's verdict on its cluster; it may say in how
/// many seconds it wants another one.
pub(crate) type Work<'a> = &'a mut dyn FnMut(usize, &Result<(), Problem>) -> Option<i64>;

/// What the operator knows of one cluster, and what is true.
struct Cluster {
    object: ZitiCluster,
    verdict: Result<(), Problem>,
    away: bool,
    /// Since when it has answered without a break.
    back: i64,
    next_look: i64,
    /// When the look ends that is under way, and whether it is answered.
    look: Option<(i64, bool)>,
    turns: usize,
    queue: VecDeque<usize>,
    sets: usize,
}

/// One set.
#[derive(Clone, Default)]
struct Set {
    cluster: usize,
    /// Since when it is to be worked on, where it is; that may be in the future.
    woken: Option<i64>,
    queued: bool,
    /// When its call ends, and whether it is answered.
    call: Option<(i64, bool)>,
}

/// All clusters, and all sets.
pub(crate) struct Turns {
    pub(crate) now: i64,
    clusters: Vec<Cluster>,
    sets: Vec<Set>,
    /// One pool of turns for all, which is what must not be.
    shared: Option<usize>,
    /// The longest that a set had to wait whose cluster was there, beyond what its
    /// own cluster's sets cost it.
    pub(crate) delayed: i64,
}

impl Turns {
    /// Clusters with so many sets each. `shared`, all take their turns from one pool.
    pub(crate) fn new(sets_of: &[usize], shared: Option<usize>) -> Self {
        let mut turns = Self {
            now: 0,
            clusters: Vec::new(),
            sets: Vec::new(),
            shared,
            delayed: 0,
        };
        for (cluster, sets) in sets_of.iter().enumerate() {
            turns.clusters.push(Cluster::new(cluster, *sets));
            let set = Set {
                cluster,
                woken: Some(0),
                ..Set::default()
            };
            turns.sets.extend(std::iter::repeat_n(set, *sets));
        }
        turns
    }

    pub(crate) fn cluster_of(&self, set: usize) -> usize {
        self.sets[set].cluster
    }

    pub(crate) fn is_away(&self, cluster: usize) -> bool {
        self.clusters[cluster].away
    }

    /// A cluster goes away, or comes back.
    pub(crate) fn cut_off(&mut self, cluster: usize, away: bool) {
        let now = self.now;
        let cluster = &mut self.clusters[cluster];
        if cluster.away && !away {
            cluster.back = now;
        }
        cluster.away = away;
    }

    /// Something of a set has changed, or will have to be looked at.
    pub(crate) fn wake(&mut self, set: usize, after: i64) {
        let at = self.now + after;
        let woken = &mut self.sets[set].woken;
        *woken = Some(woken.map_or(at, |have| have.min(at)));
    }

    /// The operator dies, and begins anew: nothing is held, nothing is known.
    pub(crate) fn crash(&mut self) {
        for cluster in &mut self.clusters {
            cluster.verdict = pending();
            (cluster.look, cluster.next_look) = (None, self.now);
            cluster.turns = 0;
            cluster.queue.clear();
        }
        for set in &mut self.sets {
            (set.call, set.queued, set.woken) = (None, false, Some(self.now));
        }
    }

    /// What is said of all clusters.
    pub(crate) fn said(&self) -> Vec<Option<api::ZitiClusterStatus>> {
        let clusters = self.clusters.iter();
        clusters
            .map(|cluster| cluster.object.status.clone())
            .collect()
    }

    /// A second goes by.
    pub(crate) fn tick(&mut self, work: Work) {
        for cluster in 0..self.clusters.len() {
            self.look(cluster);
        }
        self.end_calls();
        for set in 0..self.sets.len() {
            let is_due = self.sets[set].woken.is_some_and(|at| at <= self.now);
            if is_due && !self.sets[set].queued && self.sets[set].call.is_none() {
                self.sets[set].queued = true;
                self.clusters[self.sets[set].cluster].queue.push_back(set);
            }
        }
        for cluster in 0..self.clusters.len() {
            while self.has_turn(cluster)
                && let Some(set) = self.clusters[cluster].queue.pop_front()
            {
                self.begin(set, work);
            }
        }
        self.now += 1;
    }

    fn has_turn(&self, cluster: usize) -> bool {
        match self.shared {
            Some(turns) => self.clusters.iter().map(|one| one.turns).sum::<usize>() < turns,
            None => self.clusters[cluster].turns < AT_ONCE,
        }
    }

    /// A set has its turn.
    fn begin(&mut self, set: usize, work: Work) {
        let woken = self.sets[set].woken.take().unwrap_or(self.now);
        self.sets[set].queued = false;
        let cluster = &mut self.clusters[self.sets[set].cluster];
        if !cluster.away && woken >= cluster.back + BACK {
            let waited = self.now - woken - longest_wait(cluster.sets);
            self.delayed = self.delayed.max(waited);
        }
        if cluster.verdict.is_ok() {
            cluster.turns += 1;
            let lasts = if cluster.away { DEADLINE } else { CALL };
            self.sets[set].call = Some((self.now + lasts, !cluster.away));
            if cluster.away {
                return;
            }
        }
        let verdict = cluster.verdict.clone();
        if let Some(after) = work(set, &verdict) {
            self.wake(set, after);
        }
    }

    fn end_calls(&mut self) {
        for set in 0..self.sets.len() {
            let Some((_, answered)) = self.sets[set].call.filter(|(at, _)| *at <= self.now) else {
                continue;
            };
            self.sets[set].call = None;
            let cluster = &mut self.clusters[self.sets[set].cluster];
            cluster.turns -= 1;
            if !answered {
                // It may be the cluster: look now, and try again.
                cluster.next_look = self.now;
                self.wake(set, RETRY);
            }
        }
    }

    fn look(&mut self, of: usize) {
        let cluster = &mut self.clusters[of];
        match cluster.look {
            None if cluster.next_look <= self.now => {
                let lasts = if cluster.away { DEADLINE } else { CALL };
                cluster.look = Some((self.now + lasts, !cluster.away));
                cluster.next_look = i64::MAX;
            }
            Some((ends, answered)) if ends <= self.now => {
                cluster.look = None;
                let turned = cluster.judge(answered, self.now);
                for set in 0..self.sets.len() {
                    if turned && self.sets[set].cluster == of {
                        self.wake(set, 0);
                    }
                }
            }
            _ => {}
        }
    }
}

impl Cluster {
    fn new(number: usize, sets: usize) -> Self {
        let spec: ZitiClusterSpec = serde_json::from_value(json!({
            "server": "https://far:6443",
            "credential": {"token": {"name": "far"}},
        }))
        .expect("a spec");
        let mut object = ZitiCluster::new(&format!("far-{number}"), spec);
        object.metadata.finalizers = Some(vec![names::FINALIZER_CLUSTER.to_owned()]);
        Self {
            object,
            verdict: pending(),
            away: false,
            back: 0,
            next_look: 0,
            look: None,
            turns: 0,
            queue: VecDeque::new(),
            sets,
        }
    }

    /// Whether the verdict has turned.
    fn judge(&mut self, answered: bool, now: i64) -> bool {
        let answer = Answer {
            version: "v1.34.4".to_owned(),
            latency: SignedDuration::from_millis(30),
            missing: Vec::new(),
            identity: Some("a".to_owned()),
        };
        let away = Problem::new(reasons::CLUSTER_UNREACHABLE, "it does not answer");
        let plan = ziti_cluster::plan(&Facts {
            object: &self.object,
            answer: if answered { Ok(answer) } else { Err(away) },
            users: self.sets,
            now: Timestamp::from_second(now).expect("in range"),
        });
        let turned = self.verdict != plan.verdict;
        self.verdict = plan.verdict;
        self.object.status = Some(plan.status);
        // One that was asked for meanwhile comes at once.
        self.next_look = self.next_look.min(now + plan.requeue.as_secs());
        turned
    }
}

fn pending() -> Result<(), Problem> {
    Err(Problem::new(
        reasons::PENDING,
        "it has not been reached yet",
    ))
}
