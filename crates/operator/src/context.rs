//! What every reconcile is given.

use crate::controller::Clients;
use crate::events::Events;
use crate::leader::Leadership;
use crate::networks::Networks;
use crate::problem::{self, Error};
use crate::ziti_cluster::Links;
use api::{EdgeRouter, ZitiCluster, ZitiNetwork, ZitiRouter};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, Store};
use plan::Settings;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Shared by the controllers of one scope (a namespace, or all).
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) networks: Networks,
    pub(crate) controllers: Clients,
    pub(crate) clusters: Links,
    pub(crate) events: Events,
    pub(crate) leadership: Leadership,
    pub(crate) stores: Stores,
    pub(crate) backoff: Backoff,
    /// The turns of sets whose workloads are in this cluster.
    pub(crate) turns: Semaphore,
    /// When this process began to look.
    pub(crate) started: Timestamp,
    /// Whether the cluster's nodes may be read.
    pub(crate) reads_nodes: bool,
}

/// What the watches of our own kinds have seen. Never the ground for
/// destroying anything: they lag.
pub(crate) struct Stores {
    pub(crate) networks: Store<ZitiNetwork>,
    pub(crate) edge_routers: Store<EdgeRouter>,
    pub(crate) routers: Store<ZitiRouter>,
    pub(crate) clusters: Store<ZitiCluster>,
}

impl Stores {
    /// The ZitiCluster of that name.
    pub(crate) fn cluster(&self, namespace: &str, name: &str) -> Option<Arc<ZitiCluster>> {
        self.clusters.get(&ObjectRef::new(name).within(namespace))
    }
}

/// How long to wait after failures, for each object by itself.
#[derive(Default)]
pub(crate) struct Backoff(Mutex<HashMap<String, u32>>);

impl Backoff {
    const FIRST: Duration = Duration::from_millis(250);
    const LONGEST: Duration = Duration::from_mins(1);

    /// The object went well.
    pub(crate) fn reset(&self, key: &str) {
        if let Ok(mut failures) = self.0.lock() {
            failures.remove(key);
        }
    }

    /// What to do after a reconcile failed: say so, unless it is of no interest
    /// to anybody, and come back later. `key` is `kind/namespace/name`.
    pub(crate) fn failed(&self, key: &str, error: &Error) -> Action {
        if !error.is_conflict() && !error.is_namespace_ending() {
            tracing::warn!(
                object = key,
                error = problem::chain(error),
                "reconcile failed"
            );
        }
        self.after(key, error)
    }

    /// The object failed: doubles from a quarter of a second to a minute, with
    /// up to a quarter more by chance, so that many do not come back at once.
    fn after(&self, key: &str, error: &Error) -> Action {
        if error.is_conflict() {
            return Action::requeue(Duration::from_millis(50));
        }
        let failures = self.0.lock().map_or(1, |mut failures| {
            let count = failures.entry(key.to_owned()).or_insert(0);
            *count = (*count + 1).min(16);
            *count
        });
        let pause = Self::FIRST
            .saturating_mul(1 << (failures - 1).min(8))
            .min(Self::LONGEST);
        let chance = RandomState::new().build_hasher().finish() % 256;
        Action::requeue(
            pause + pause.mul_f64(f64::from(u8::try_from(chance).unwrap_or(0)) / 1024.0),
        )
    }
}
