//! When the cluster's nodes change in what members depend on: which there are,
//! and their labels. That they report how they are, every few minutes each, is
//! of no interest here.

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use std::collections::{BTreeMap, HashMap};
use std::future::ready;

/// Yields once for each such change, and once when all nodes were read.
pub(crate) fn changes(
    client: Client,
    config: watcher::Config,
) -> impl Stream<Item = ()> + Send + 'static {
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(client);
    let mut known: HashMap<String, BTreeMap<String, String>> = HashMap::new();
    watcher(nodes, config)
        .default_backoff()
        .filter_map(move |event| {
            let changed = match event {
                Ok(Event::Apply(node)) => {
                    let labels = node.metadata.labels.clone().unwrap_or_default();
                    known.insert(node.name_any(), labels.clone()) != Some(labels)
                }
                Ok(Event::InitApply(node)) => {
                    let labels = node.metadata.labels.clone().unwrap_or_default();
                    known.insert(node.name_any(), labels);
                    false
                }
                Ok(Event::Delete(node)) => {
                    known.remove(&node.name_any());
                    true
                }
                // Who went while the watch was broken is not told.
                Ok(Event::InitDone) => true,
                Ok(Event::Init) => {
                    known.clear();
                    false
                }
                Err(error) => {
                    tracing::warn!(%error, "watching the cluster's nodes");
                    false
                }
            };
            ready(changed.then_some(()))
        })
}
