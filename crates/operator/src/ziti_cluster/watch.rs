//! Watches what sets have in another cluster, as metadata only, and says which sets
//! are to be looked at. [`Links`](super::Links) starts one for each cluster in which
//! sets are placed and may be worked in, and ends it by dropping it.

use super::links::Link;
use crate::nodes;
use api::{ZitiRouter, names};
use futures::channel::mpsc::UnboundedSender;
use futures::stream::{self, BoxStream, StreamExt};
use kube::ResourceExt;
use kube::api::{Api, ApiResource};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use plan::ziti_cluster::rights::{RIGHTS, Right};
use std::collections::HashSet;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;
use tracing::debug;

/// After how long a watch is asked for anew, in seconds. What is on the way, a
/// circuit of Ziti for one, may have gone without a word.
pub(super) const RENEWED: u32 = 120;

/// A running watch; ends when dropped.
pub(super) struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The sets that are placed in a cluster, as far as they have asked for it.
pub(super) type Users = Arc<Mutex<HashSet<ObjectRef<ZitiRouter>>>>;

/// Watch every kind of which [`RIGHTS`] says so, and the nodes where those may be read.
pub(super) fn start(
    link: &Link,
    reads_nodes: bool,
    users: &Users,
    home: &str,
    wake: &UnboundedSender<ObjectRef<ZitiRouter>>,
) -> Watch {
    let watched = RIGHTS
        .iter()
        .filter(|right| right.verbs.contains(&"watch"))
        .map(|right| of_sets(link, right, home));
    let mut woken: Vec<BoxStream<'static, ObjectRef<ZitiRouter>>> = watched.collect();
    if reads_nodes {
        let users = users.clone();
        let changes = nodes::changes(link.watching.clone(), config());
        let of_nodes = changes.flat_map(move |()| {
            let users = users.lock().unwrap_or_else(PoisonError::into_inner).clone();
            stream::iter(users)
        });
        woken.push(of_nodes.boxed());
    }
    let wake = wake.clone();
    Watch(tokio::spawn(async move {
        let mut woken = stream::select_all(woken);
        while let Some(set) = woken.next().await {
            // Nobody listens any more where the operator ends.
            if wake.unbounded_send(set).is_err() {
                return;
            }
        }
    }))
}

fn config() -> watcher::Config {
    watcher::Config::default().timeout(RENEWED)
}

/// The sets of which an object of that kind has changed.
fn of_sets(link: &Link, right: &Right, home: &str) -> BoxStream<'static, ObjectRef<ZitiRouter>> {
    let version = "v1";
    let resource = ApiResource {
        group: right.group.to_owned(),
        version: version.to_owned(),
        api_version: match right.group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        },
        // It stands in no path.
        kind: String::new(),
        plural: right.resource.to_owned(),
    };
    let api: Api<PartialObjectMeta<DynamicObject>> =
        Api::namespaced_with(link.watching.clone(), &link.namespace, &resource);
    let (plural, home) = (right.resource, home.to_owned());
    watcher(api, config().labels(names::LABEL_SET))
        .default_backoff()
        .filter_map(move |event| {
            let changed = match event {
                Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => {
                    object.labels().get(names::LABEL_SET).cloned()
                }
                Ok(Event::Init | Event::InitDone) => None,
                Err(error) => {
                    // That the cluster is away is told by its ZitiCluster.
                    debug!(%error, plural, "watching another cluster");
                    None
                }
            };
            ready(changed.map(|set| ObjectRef::new(&set).within(&home)))
        })
        .boxed()
}
