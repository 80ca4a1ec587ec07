//! Keeps the picture of a network's routers by one list of them, now and then
//! ([`crate::cadence`]) and when the event stream ([`crate::stream`]) hints at
//! something. What differs wakes the EdgeRouter of it.

use crate::context::Context;
use crate::controllers;
use crate::networks::{Access, Network, is_networks_fault};
use crate::problem;
use api::edge_router::Enrollment;
use api::{EdgeRouter, names};
use k8s_openapi::jiff::Timestamp;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use tokio::time::{Instant, sleep_until};
use tracing::debug;
use ziti::management::Filter;

/// More provided routers than this are found by listing all of them.
const MOST_IDS: usize = 50;

/// Poll one network until it is forgotten.
pub(crate) async fn run(context: Arc<Context>, network: Arc<Network>) {
    loop {
        let started = Instant::now();
        poll(&context, &network).await;
        loop {
            // Listening before looking: what comes in between is not missed.
            let mut woken = pin!(network.wake.notified());
            woken.as_mut().enable();
            if !context.networks.contains(&network) {
                return;
            }
            tokio::select! {
                () = sleep_until(network.cadence().next(started)) => break,
                // Something is pending or happened, or the network was forgotten.
                () = woken => {}
            }
        }
    }
}

/// The EdgeRouters of a network, as last seen.
pub(crate) fn edge_routers_of(context: &Context, network: &Network) -> Vec<Arc<EdgeRouter>> {
    let (namespace, name) = &network.key;
    let of_network = |er: &Arc<EdgeRouter>| {
        er.metadata.namespace.as_ref() == Some(namespace)
            && er
                .spec
                .network_ref
                .as_ref()
                .is_some_and(|reference| &reference.name == name)
    };
    context
        .stores
        .edge_routers
        .state()
        .into_iter()
        .filter(of_network)
        .collect()
}

/// List the routers of a network once.
pub(crate) async fn poll(context: &Context, network: &Network) {
    let Access::Full(connection, _) = network.access(true) else {
        return;
    };
    let edge_routers = edge_routers_of(context, network);
    if edge_routers.is_empty() {
        return;
    }
    // The list goes on without a leader: it shows who is online all the same.
    if let Err(problem) = controllers::follow(context, network, &connection).await {
        debug!(
            network = network.key.1,
            reason = problem.reason,
            message = problem.message,
            "no leader"
        );
    }
    let filter = filter(context, &edge_routers);
    let asked = std::time::Instant::now();
    match connection.client.edge_routers(&filter).await {
        Ok(listed) => {
            let now = Timestamp::now();
            let changed = network.keep_rows(listed.items, listed.server_time, asked, now);
            wake(context, network, &edge_routers, &changed);
        }
        Err(error) => {
            let problem = problem::of_management(&error);
            debug!(
                network = network.key.1,
                reason = problem.reason,
                "the routers could not be listed"
            );
            if is_networks_fault(&problem) {
                context.networks.wake_network(&network.key);
            }
        }
    }
}

/// Our own routers, and those whose tokens people gave.
fn filter(context: &Context, edge_routers: &[Arc<EdgeRouter>]) -> Filter {
    let provided: Vec<&str> = edge_routers
        .iter()
        .filter(|er| matches!(er.spec.enrollment, Enrollment::Provided(_)))
        .filter_map(|er| er.status.as_ref()?.id.as_deref())
        .collect();
    let ours = Filter::tag(names::TAG_INSTALL, &context.settings.install_id);
    let Ok(mut filter) = ours else {
        return Filter::all();
    };
    if provided.len() > MOST_IDS {
        return Filter::all();
    }
    for id in provided {
        let Ok(one) = Filter::equals("id", id) else {
            return Filter::all();
        };
        filter = filter.or(&one);
    }
    filter
}

fn wake(
    context: &Context,
    network: &Network,
    edge_routers: &[Arc<EdgeRouter>],
    changed: &[String],
) {
    if changed.is_empty() {
        return;
    }
    let by_id: HashMap<&str, &EdgeRouter> = edge_routers
        .iter()
        .filter_map(|er| Some((er.status.as_ref()?.id.as_deref()?, er.as_ref())))
        .collect();
    for id in changed {
        if let Some(er) = by_id.get(id.as_str()) {
            let name = er.metadata.name.as_deref().unwrap_or_default();
            context.networks.wake_edge_router(&network.key.0, name);
        }
    }
}
