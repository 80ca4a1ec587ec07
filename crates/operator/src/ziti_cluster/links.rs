//! The clients of other clusters and what is thought of each, kept from one reconcile
//! to the next. The ZitiCluster controller fills it; the ZitiRouter controller asks
//! [`Links::way`] before each reconcile of a set in another cluster.

use super::watch::{self, Users, Watch};
use api::{ZitiCluster, ZitiRouter, reasons};
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::runtime::reflector::ObjectRef;
use plan::edge_router::Problem;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// How long it is believed what may be done in a cluster: some sixty questions are
/// not asked each minute. A refusal ends the belief.
const BELIEVED: Duration = Duration::from_hours(1);
/// How many sets of one cluster are worked on at a time. Only they wait for each
/// other.
const AT_ONCE: usize = 4;

/// The links to all clusters, by `namespace/name` of their ZitiClusters.
pub(crate) struct Links {
    map: Mutex<HashMap<String, Entry>>,
    sets: UnboundedSender<ObjectRef<ZitiRouter>>,
    clusters: UnboundedSender<ObjectRef<ZitiCluster>>,
}

/// What the links wake: sets whose cluster came back or has changed something of
/// theirs, and clusters that are to be looked at anew.
pub(crate) struct Wakers {
    pub(crate) sets: UnboundedReceiver<ObjectRef<ZitiRouter>>,
    pub(crate) clusters: UnboundedReceiver<ObjectRef<ZitiCluster>>,
}

/// What is known of one cluster.
struct Entry {
    link: Option<Link>,
    /// Whether anything may be done there.
    verdict: Result<(), Problem>,
    /// What may not be done there, and when that was asked.
    missing: Option<(Instant, Vec<String>)>,
    reads_nodes: bool,
    permits: Arc<Semaphore>,
    users: Users,
    watch: Option<Watch>,
}

/// How one is reached.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) client: Client,
    /// For watches, whose answers take longer than others may.
    pub(super) watching: Client,
    /// The namespace there.
    pub(super) namespace: String,
    /// What the clients were made of.
    pub(super) inputs: String,
    /// When their token has to be replaced, where it is one that we asked for.
    pub(super) renew_at: Option<Timestamp>,
}

/// The way to a cluster in which something may be done.
pub(crate) struct Way {
    pub(crate) client: Client,
    /// The namespace there.
    pub(crate) namespace: String,
    /// Whether the nodes there may be read.
    pub(crate) reads_nodes: bool,
}

impl Links {
    pub(crate) fn new() -> (Self, Wakers) {
        let (sets, woken_sets) = unbounded();
        let (clusters, woken_clusters) = unbounded();
        let links = Self {
            map: Mutex::default(),
            sets,
            clusters,
        };
        (
            links,
            Wakers {
                sets: woken_sets,
                clusters: woken_clusters,
            },
        )
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        lock(&self.map)
    }

    /// The way to a cluster for one of its sets, or why nothing may be done there;
    /// `None` where it was not looked at yet. From now on what sets have there is
    /// watched.
    pub(crate) fn way(
        &self,
        path: &str,
        set: ObjectRef<ZitiRouter>,
    ) -> Option<Result<Way, Problem>> {
        let mut map = self.lock();
        let entry = map.get_mut(path)?;
        lock(&entry.users).insert(set);
        if let Err(problem) = &entry.verdict {
            return Some(Err(problem.clone()));
        }
        let link = entry.link.clone()?;
        if entry.watch.is_none() {
            entry.watch = Some(self.watch(path, &link, entry));
        }
        Some(Ok(Way {
            client: link.client,
            namespace: link.namespace,
            reads_nodes: entry.reads_nodes,
        }))
    }

    fn watch(&self, path: &str, link: &Link, entry: &Entry) -> Watch {
        let home = path.split('/').next().unwrap_or_default();
        watch::start(link, entry.reads_nodes, &entry.users, home, &self.sets)
    }

    /// The turn to work in a cluster: its sets share a few, and wait for no other
    /// cluster's.
    pub(crate) fn permits(&self, path: &str) -> Option<Arc<Semaphore>> {
        Some(self.lock().get(path)?.permits.clone())
    }

    /// Look at a cluster now: a call of it failed in a way that may be its own, or a
    /// set has left it.
    pub(crate) fn look_at(&self, path: &str) {
        if let Some((namespace, name)) = path.split_once('/') {
            // Nobody listens any more where the operator ends.
            let _ = self
                .clusters
                .unbounded_send(ObjectRef::new(name).within(namespace));
        }
    }

    /// The link of that ZitiCluster.
    pub(super) fn get(&self, path: &str) -> Option<Link> {
        self.lock().get(path)?.link.clone()
    }

    /// Keep a new link. Made of other inputs than the last one, nothing that was
    /// thought of the cluster before holds any more.
    pub(super) fn put(&self, path: &str, link: Link) {
        let mut map = self.lock();
        let entry = map.entry(path.to_owned()).or_insert_with(Entry::new);
        if entry
            .link
            .as_ref()
            .is_some_and(|known| known.inputs == link.inputs)
        {
            if entry.watch.is_some() {
                entry.watch = Some(self.watch(path, &link, entry));
            }
            entry.link = Some(link);
            return;
        }
        *entry = Entry {
            link: Some(link),
            permits: entry.permits.clone(),
            users: entry.users.clone(),
            ..Entry::new()
        };
    }

    /// Forget one that is gone, and its credential with it.
    pub(super) fn forget(&self, path: &str) {
        self.lock().remove(path);
    }

    /// What may not be done there, as far as it is believed: that nothing is
    /// missing is, and what is missing is asked anew.
    pub(super) fn believed(&self, path: &str) -> Option<Vec<String>> {
        let map = self.lock();
        let (at, missing) = map.get(path)?.missing.as_ref()?;
        (missing.is_empty() && at.elapsed() < BELIEVED).then(|| missing.clone())
    }

    /// Keep what may not be done there, and whether its nodes may be read.
    pub(super) fn learn(&self, path: &str, missing: &[String], reads_nodes: bool) {
        if let Some(entry) = self.lock().get_mut(path) {
            entry.missing = Some((Instant::now(), missing.to_vec()));
            if entry.reads_nodes != reads_nodes {
                entry.reads_nodes = reads_nodes;
                entry.watch = None;
            }
        }
    }

    /// Keep whether anything may be done there. Its sets are told when that has
    /// changed.
    pub(super) fn judge(&self, path: &str, verdict: Result<(), Problem>) {
        let mut map = self.lock();
        let entry = map.entry(path.to_owned()).or_insert_with(Entry::new);
        let turned = entry.verdict != verdict;
        entry.verdict = verdict;
        if entry.verdict.is_err() {
            entry.watch = None;
        }
        if turned {
            for set in lock(&entry.users).iter() {
                let _ = self.sets.unbounded_send(set.clone());
            }
        }
    }

    /// Keep which sets are placed there. Without any, nothing there is of interest.
    pub(super) fn used_by(&self, path: &str, sets: HashSet<ObjectRef<ZitiRouter>>) {
        // Also before the first look, whose verdict is to wake them.
        let mut map = self.lock();
        let entry = map.entry(path.to_owned()).or_insert_with(Entry::new);
        if sets.is_empty() {
            entry.watch = None;
        }
        *lock(&entry.users) = sets;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Entry {
    fn new() -> Self {
        Self {
            link: None,
            verdict: Err(Problem::new(
                reasons::PENDING,
                "it has not been reached yet",
            )),
            missing: None,
            reads_nodes: false,
            permits: Arc::new(Semaphore::new(AT_ONCE)),
            users: Users::default(),
            watch: None,
        }
    }
}
