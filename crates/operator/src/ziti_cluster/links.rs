//! The clients of other clusters, kept from one reconcile to the next.

use kube::Client;
use plan::edge_router::Problem;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

/// How long it is believed what may be done in a cluster: some sixty questions are
/// not asked each minute. A refusal ends the belief.
const BELIEVED: Duration = Duration::from_hours(1);

/// The links to all clusters, by `namespace/name` of their ZitiClusters.
#[derive(Default)]
pub(crate) struct Links(Mutex<HashMap<String, Link>>);

/// The link to one.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) client: Client,
    /// What the client was made of.
    pub(super) inputs: String,
    /// When its token has to be replaced, where it is one that we asked for.
    pub(super) renew_at: Option<Timestamp>,
    /// What may not be done there, and when that was asked.
    missing: Option<(Instant, Vec<String>)>,
    /// Whether anything may be done there.
    verdict: Result<(), Problem>,
}

impl Link {
    pub(super) fn new(client: Client, inputs: String, renew_at: Option<Timestamp>) -> Self {
        Self {
            client,
            inputs,
            renew_at,
            missing: None,
            verdict: Err(Problem::new(
                api::reasons::PENDING,
                "it has not been reached yet",
            )),
        }
    }

    /// What may not be done there, as far as it is believed: that nothing is
    /// missing is, and what is missing is asked anew.
    pub(super) fn believed(&self) -> Option<Vec<String>> {
        let (at, missing) = self.missing.as_ref()?;
        (missing.is_empty() && at.elapsed() < BELIEVED).then(|| missing.clone())
    }
}

impl Links {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Link>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link of that ZitiCluster.
    pub(super) fn get(&self, path: &str) -> Option<Link> {
        self.lock().get(path).cloned()
    }

    pub(super) fn put(&self, path: &str, link: Link) {
        self.lock().insert(path.to_owned(), link);
    }

    /// Forget one that is gone, and its credential with it.
    pub(super) fn forget(&self, path: &str) {
        self.lock().remove(path);
    }

    /// Keep what may not be done there.
    pub(super) fn learn(&self, path: &str, missing: &[String]) {
        if let Some(link) = self.lock().get_mut(path) {
            link.missing = Some((Instant::now(), missing.to_vec()));
        }
    }

    /// Keep whether anything may be done there.
    pub(super) fn judge(&self, path: &str, verdict: Result<(), Problem>) {
        if let Some(link) = self.lock().get_mut(path) {
            link.verdict = verdict;
        }
    }
}
