//! What the operator does in the life of a set, beside its start: the router of a node that joins,
//! and a rollout. Both are measured as often as the start.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::ZitiRouter;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use testbed::cluster::{Cluster, NodeOptions};
use testbed::kubernetes;
use testbed::progress::seconds;

use super::{Field, NAMESPACE, WITHIN, network_object};
use crate::output;

/// How many routers are rolled out.
const ROLLED: i32 = 3;
/// The label of the nodes that get a router.
const JOINED: &str = "bench.openziti.io/joined";

/// The times of one round.
pub(super) struct Lives {
    /// From the node's registration to the node being ready.
    node_ready: Duration,
    /// From the node's registration to its router being online.
    node_online: Duration,
    /// From a change of the template to all routers being ready and online again.
    rollout: Duration,
}

impl Field {
    /// Plays one round.
    pub(super) async fn lives(&self, cluster: &Cluster, round: usize) -> Result<Lives> {
        let network = format!("lives-{round}");
        kubernetes::apply(&self.client, network_object(&network), NAMESPACE).await?;
        let rollout = self.rollout(&network, round).await?;
        let (node_ready, node_online) = self.join(cluster, &network, round).await?;
        self.delete("openziti.io", "v1alpha1", "ZitiNetwork", &network)
            .await?;
        Ok(Lives {
            node_ready,
            node_online,
            rollout,
        })
    }

    async fn rollout(&self, network: &str, round: usize) -> Result<Duration> {
        let set = format!("roll-{round}");
        let spec = json!({"replicas": ROLLED});
        self.make(&set, network, spec).await?;
        self.settled(&set, ROLLED).await?;
        let restart = json!({"spec": {"restartAt": "2026-01-01T00:00:00Z"}});
        let started = Instant::now();
        self.sets()
            .patch(&set, &PatchParams::default(), &Patch::Merge(restart))
            .await
            .with_context(|| format!("changing {set}"))?;
        self.settled(&set, ROLLED).await?;
        let took = started.elapsed();
        self.unmake(&set).await?;
        Ok(took)
    }

    /// A node joins, whose image store is filled already.
    async fn join(
        &self,
        cluster: &Cluster,
        network: &str,
        round: usize,
    ) -> Result<(Duration, Duration)> {
        let set = format!("node-{round}");
        let value = format!("round-{round}");
        let nodes = json!({"selector": {"matchLabels": {JOINED: value}}});
        let spec = json!({"topology": "PerNode", "nodes": nodes});
        self.make(&set, network, spec).await?;
        self.settled(&set, 0).await?;
        let options = NodeOptions {
            labels: [(JOINED.to_owned(), value.clone())].into(),
            ..NodeOptions::default()
        };
        let router_online = async {
            let (node, registered) = registered(&self.client, &value).await?;
            self.online(&[format!("{set}-{node}")]).await?;
            anyhow::Ok((registered, registered.elapsed()))
        };
        let node_ready = async {
            let node = cluster.add_node(&options).await?;
            anyhow::Ok((node, Instant::now()))
        };
        let ((node, ready), (registered, online)) = tokio::try_join!(node_ready, router_online)?;
        self.unmake(&set).await?;
        node.remove().await?;
        Ok((ready.duration_since(registered), online))
    }

    fn sets(&self) -> Api<ZitiRouter> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn make(&self, set: &str, network: &str, mut spec: Value) -> Result<()> {
        spec["networkRef"] = json!({"name": network});
        let object = json!({
            "apiVersion": "openziti.io/v1alpha1", "kind": "ZitiRouter",
            "metadata": {"name": set}, "spec": spec,
        });
        kubernetes::apply(&self.client, object, NAMESPACE).await?;
        Ok(())
    }

    async fn unmake(&self, set: &str) -> Result<()> {
        self.delete("openziti.io", "v1alpha1", "ZitiRouter", set)
            .await?;
        self.gone("openziti.io", "v1alpha1", "ZitiRouter", set)
            .await
    }

    /// Waits until the set has nothing to do, and so many members are ready and online.
    async fn settled(&self, set: &str, members: i32) -> Result<()> {
        let settled = |set: Option<&ZitiRouter>| {
            set.is_some_and(|set| {
                set.status.as_ref().is_some_and(|status| {
                    status.observed_generation == set.metadata.generation
                        && status.ready_replicas == members
                        && status.online_replicas == members
                        && status.conditions.iter().any(|condition| {
                            condition.type_ == "Progressing" && condition.status == "False"
                        })
                })
            })
        };
        kubernetes::wait_for(self.sets(), set, "settled", settled, WITHIN).await?;
        Ok(())
    }
}

/// Waits until the node with that label is there: its name, and when it was first seen.
async fn registered(client: &Client, value: &str) -> Result<(String, Instant)> {
    let nodes: Api<Node> = Api::all(client.clone());
    let labelled = ListParams::default().labels(&format!("{JOINED}={value}"));
    kubernetes::poll("the node to register", WITHIN, async || {
        let found = nodes.list_metadata(&labelled).await;
        let found = found.context("listing nodes")?.items.into_iter().next();
        Ok(found.map(|node| (node.name_any(), Instant::now())))
    })
    .await
}

/// Prints a table of the rounds.
pub(super) fn show(rounds: &[Lives]) {
    output::heading("In the life of a set");
    let row = |title: &str, pick: fn(&Lives) -> Duration| {
        let mut all: Vec<Duration> = rounds.iter().map(pick).collect();
        let each = all.iter().map(|time| seconds(*time)).collect::<Vec<_>>();
        all.sort_unstable();
        let median = all.get(all.len() / 2).copied().unwrap_or_default();
        vec![title.to_owned(), seconds(median), each.join(", ")]
    };
    output::table(
        &["WHAT", "MEDIAN", "ROUNDS"],
        [
            row("a node joins: node ready", |round| round.node_ready),
            row("a node joins: its router online", |round| round.node_online),
            row("3 routers rolled out, ready and online", |round| {
                round.rollout
            }),
        ],
    );
}
