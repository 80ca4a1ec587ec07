//! `ziti-operator run`: the controllers, wired up.

use crate::cli::{LogFormat, RunArgs};
use crate::context::{Backoff, Context, Stores};
use crate::controller::{self, Clients};
use crate::events::Events;
use crate::health::{self, Readiness};
use crate::leader::{Candidate, Leadership};
use crate::networks::{Networks, Wakers};
use crate::ziti_cluster::{self, Links};
use crate::{cluster_dns, edge_router, network, set};
use anyhow::{Context as _, Result};
use api::{EdgeRouter, ZitiCluster, ZitiController, ZitiNetwork, ZitiRouter};
use futures::StreamExt;
use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::controller::Config as ControllerConfig;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Config, Resource};
use plan::Settings;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;

/// Run until a signal, or until the Lease is lost.
pub(crate) fn run(args: RunArgs) -> Result<()> {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("info,kube_runtime=warn,kube_client=off"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // Colours are for people, not for what collects logs.
        .with_ansi(std::io::stdout().is_terminal())
        .with_target(false);
    match args.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    // Two threads: the work is waiting, and each more costs memory.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the runtime")?;
    runtime.block_on(serve(args))
}

async fn serve(args: RunArgs) -> Result<()> {
    let stop = CancellationToken::new();
    stop_on_signal(stop.clone())?;
    let mut config = Config::infer()
        .await
        .context("finding the Kubernetes API: in a pod, or by KUBECONFIG")?;
    // The client's own retries would replay writes and hold a reconcile for
    // minutes; ours back off by object.
    config.default_retry = false;
    let client = Client::try_from(config).context("making the Kubernetes client")?;
    let version = client
        .apiserver_version()
        .await
        .context("reaching the Kubernetes API")?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        kubernetes = version.git_version,
        install = args.install_id,
        "ziti-operator starts"
    );
    let readiness = Readiness::default();
    let probes = tokio::spawn(health::serve(args.health_address, readiness.clone()));
    readiness.ready();

    let identity = args
        .identity
        .clone()
        .unwrap_or_else(|| "ziti-operator".to_owned());
    let Some(namespace) = args.lease_namespace.clone() else {
        warn!("no --lease-namespace: works without a Lease, so no second replica may run");
        return finish(
            controllers(&args, &client, &identity, Leadership::alone(), &stop).await,
            &probes,
        );
    };
    let candidate = Candidate::new(
        client.clone(),
        &namespace,
        args.lease_name.clone(),
        identity.clone(),
    );
    let leadership = tokio::select! {
        leadership = candidate.acquire() => leadership?,
        () = stop.cancelled() => return Ok(()),
    };
    let worked = tokio::select! {
        worked = controllers(&args, &client, &identity, leadership.clone(), &stop) => worked,
        lost = candidate.hold(&leadership) => lost.context("this process may no longer work"),
    };
    if worked.is_ok() {
        candidate.release().await;
    }
    finish(worked, &probes)
}

fn finish(worked: Result<()>, probes: &tokio::task::JoinHandle<Result<()>>) -> Result<()> {
    probes.abort();
    info!("ziti-operator ends");
    worked
}

fn stop_on_signal(stop: CancellationToken) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    Ok(())
}

/// Run the controllers of every scope until told to stop.
async fn controllers(
    args: &RunArgs,
    client: &Client,
    identity: &str,
    leadership: Leadership,
    stop: &CancellationToken,
) -> Result<()> {
    let settings = Settings {
        install_id: args.install_id.clone(),
        agent_image: args.agent_image.clone(),
        router_image: args.router_image.clone(),
        controller_image: args.controller_image.clone(),
        cluster_dns: cluster_dns::own(),
    };
    let events = Events::new(client.clone(), identity);
    let scopes: Vec<Option<String>> = if args.watch_namespaces.is_empty() {
        vec![None]
    } else {
        args.watch_namespaces.iter().cloned().map(Some).collect()
    };
    let running = scopes.into_iter().map(|namespace| {
        let scope = Scope {
            client: client.clone(),
            namespace,
            concurrency: args.concurrency,
            reads_nodes: args.nodes,
        };
        scope.run(
            settings.clone(),
            events.clone(),
            leadership.clone(),
            stop.clone(),
        )
    });
    join_all(running).await;
    Ok(())
}

/// One namespace, or all of them.
pub(crate) struct Scope {
    pub(crate) client: Client,
    pub(crate) namespace: Option<String>,
    concurrency: u16,
    pub(crate) reads_nodes: bool,
}

impl Scope {
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    pub(crate) fn config(&self) -> ControllerConfig {
        ControllerConfig::default()
            .concurrency(self.concurrency)
            .debounce(Duration::from_millis(20))
    }

    async fn run(
        self,
        settings: Settings,
        events: Events,
        leadership: Leadership,
        stop: CancellationToken,
    ) {
        let (networks, wakers) = Networks::new();
        let (links, woken) = Links::new();
        let config = self.config();
        let network_controller =
            Controller::new(self.api::<ZitiNetwork>(), watcher::Config::default())
                .with_config(config.clone());
        let edge_router_controller =
            Controller::new(self.api::<EdgeRouter>(), watcher::Config::default())
                .with_config(config.clone());
        // Without a bound of their own: a call of another cluster that hangs must not
        // take the place of anybody else's. Their turns are taken in the reconcile.
        let unbounded = config.clone().concurrency(0);
        let set_controller = Controller::new(self.api::<ZitiRouter>(), watcher::Config::default())
            .with_config(unbounded.clone());
        let ziti_controllers =
            Controller::new(self.api::<ZitiController>(), watcher::Config::default())
                .with_config(config.clone());
        let clusters = Controller::new(self.api::<ZitiCluster>(), watcher::Config::default())
            .with_config(unbounded);
        let stores = Stores {
            networks: network_controller.store(),
            edge_routers: edge_router_controller.store(),
            routers: set_controller.store(),
            clusters: clusters.store(),
        };
        let context = Arc::new(Context {
            client: self.client.clone(),
            settings,
            networks,
            controllers: Clients::default(),
            clusters: links,
            turns: Semaphore::new(self.concurrency.into()),
            started: Timestamp::now(),
            events,
            leadership,
            reads_nodes: self.reads_nodes,
            backoff: Backoff::default(),
            stores,
        });
        let Wakers {
            edge_routers,
            networks,
        } = wakers;
        let stopped = || stop.clone().cancelled_owned();
        tokio::join!(
            drain(
                self.network_watches(network_controller, &context)
                    .reconcile_on(networks)
                    .graceful_shutdown_on(stopped())
                    .run(
                        network::reconcile,
                        |object, error, context| network::failed(&object, error, &context),
                        context.clone()
                    )
            ),
            drain(
                self.edge_router_watches(edge_router_controller, &context)
                    .reconcile_on(edge_routers)
                    .graceful_shutdown_on(stopped())
                    .run(
                        edge_router::reconcile,
                        |object, error, context| edge_router::failed(&object, error, &context),
                        context.clone()
                    )
            ),
            drain(self.orphan_watches().graceful_shutdown_on(stopped()).run(
                set::orphans::reconcile,
                |object, error, context| set::orphans::failed(&object, error, &context),
                context.clone()
            )),
            drain(
                self.set_watches(set_controller, &context)
                    .reconcile_on(woken.sets)
                    .graceful_shutdown_on(stopped())
                    .run(
                        set::reconcile,
                        |object, error, context| set::failed(&object, error, &context),
                        context.clone()
                    )
            ),
            drain(
                self.controller_watches(ziti_controllers)
                    .graceful_shutdown_on(stopped())
                    .run(
                        controller::reconcile,
                        |object, error, context| controller::failed(&object, error, &context),
                        context.clone()
                    )
            ),
            drain(
                self.cluster_watches(clusters, &context)
                    .reconcile_on(woken.clusters)
                    .graceful_shutdown_on(stopped())
                    .run(
                        ziti_cluster::reconcile,
                        |object, error, context| ziti_cluster::failed(&object, error, &context),
                        context.clone()
                    )
            ),
        );
    }
}

/// Run a controller to its end. What reconciles return was dealt with there.
async fn drain<T>(controller: impl futures::Stream<Item = T>) {
    controller.for_each(|_| std::future::ready(())).await;
}
