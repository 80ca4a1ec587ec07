//! `ziti-operator run`: the controllers, wired up.

use crate::cli::{LogFormat, RunArgs};
use crate::context::{Backoff, Context, Stores};
use crate::events::Events;
use crate::health::{self, Readiness};
use crate::leader::{Candidate, Leadership};
use crate::networks::{Networks, Wakers};
use crate::{cluster_dns, edge_router, network, nodes, set};
use anyhow::{Context as _, Result};
use api::edge_router::Enrollment;
use api::router::Topology;
use api::{EdgeRouter, ZitiNetwork, ZitiRouter, names};
use futures::StreamExt;
use futures::future::join_all;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use kube::core::DynamicObject;
use kube::core::PartialObjectMeta;
use kube::runtime::controller::Config as ControllerConfig;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Config, Resource, ResourceExt};
use plan::Settings;
use plan::set::extra::KINDS;
use plan::set::roster::member_of;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;

/// Run until a signal, or until the Lease is lost.
pub(crate) fn run(args: RunArgs) -> Result<()> {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("info,kube_runtime=warn,kube_client=error"));
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
    let candidate = Candidate::new(client.clone(), &namespace, identity.clone());
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
struct Scope {
    client: Client,
    namespace: Option<String>,
    concurrency: u16,
    reads_nodes: bool,
}

impl Scope {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    fn config(&self) -> ControllerConfig {
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
        let config = self.config();
        let network_controller =
            Controller::new(self.api::<ZitiNetwork>(), watcher::Config::default())
                .with_config(config.clone());
        let edge_router_controller =
            Controller::new(self.api::<EdgeRouter>(), watcher::Config::default())
                .with_config(config.clone());
        let set_controller = Controller::new(self.api::<ZitiRouter>(), watcher::Config::default())
            .with_config(config);
        let stores = Stores {
            networks: network_controller.store(),
            edge_routers: edge_router_controller.store(),
            routers: set_controller.store(),
        };
        let context = Arc::new(Context {
            client: self.client.clone(),
            settings,
            networks,
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
                    .graceful_shutdown_on(stopped())
                    .run(
                        set::reconcile,
                        |object, error, context| set::failed(&object, error, &context),
                        context.clone()
                    )
            ),
        );
    }

    /// EdgeRouters of sets, and their pods.
    fn orphan_watches(&self) -> Controller<EdgeRouter> {
        let ours = || watcher::Config::default().labels(names::LABEL_SET);
        Controller::new(self.api::<EdgeRouter>(), ours())
            .with_config(self.config())
            .watches(self.api::<PartialObjectMeta<Pod>>(), ours(), |pod| {
                let labels = pod.labels();
                let member = member_of(labels.get(names::LABEL_SET)?, pod.meta())?;
                Some(ObjectRef::new(&member).within(&pod.namespace()?))
            })
    }

    /// What a ZitiNetwork names: Secrets and ConfigMaps, as metadata only.
    fn network_watches(
        &self,
        controller: Controller<ZitiNetwork>,
        context: &Arc<Context>,
    ) -> Controller<ZitiNetwork> {
        let (secrets, maps) = (context.clone(), context.clone());
        controller
            .watches(
                self.api::<PartialObjectMeta<Secret>>(),
                watcher::Config::default(),
                move |secret| named(&secrets.stores.networks, &secret, names_source),
            )
            .watches(
                self.api::<PartialObjectMeta<ConfigMap>>(),
                watcher::Config::default(),
                move |map| named(&maps.stores.networks, &map, names_source),
            )
    }

    /// Its own Secret, and the one in which a person gave the token.
    fn edge_router_watches(
        &self,
        controller: Controller<EdgeRouter>,
        context: &Arc<Context>,
    ) -> Controller<EdgeRouter> {
        let context = context.clone();
        controller.watches(
            self.api::<PartialObjectMeta<Secret>>(),
            watcher::Config::default(),
            move |secret| {
                let mut wanted = named(
                    &context.stores.edge_routers,
                    &secret,
                    |er: &EdgeRouter, name| match &er.spec.enrollment {
                        Enrollment::Provided(provided) => provided.secret_key_ref.name == name,
                        Enrollment::Managed(_) => false,
                    },
                );
                wanted.extend(owner::<EdgeRouter>(secret.meta()));
                wanted.extend(stands_at(
                    &context.stores.edge_routers,
                    &secret,
                    names::enrollment_secret,
                ));
                wanted
            },
        )
    }

    /// Everything that carries the set's label, and what the set names.
    fn set_watches(
        &self,
        controller: Controller<ZitiRouter>,
        context: &Arc<Context>,
    ) -> Controller<ZitiRouter> {
        let ours = || watcher::Config::default().labels(names::LABEL_SET);
        let (secrets, networks) = (context.clone(), context.clone());
        // A kind that a cluster may lack is not watched, but read with the rest.
        let controller = if self.reads_nodes {
            let sets = context.clone();
            let wanted = nodes::changes(self.client.clone())
                .flat_map(move |()| futures::stream::iter(by_node(&sets.stores.routers)));
            controller.reconcile_on(wanted)
        } else {
            controller
        };
        let always = KINDS.iter().filter(|kind| !kind.optional);
        always
            .fold(controller, |controller, kind| {
                let resource = kind.resource();
                let api: Api<DynamicObject> = match &self.namespace {
                    Some(namespace) => {
                        Api::namespaced_with(self.client.clone(), namespace, &resource)
                    }
                    None => Api::all_with(self.client.clone(), &resource),
                };
                controller.watches_with(api, resource, ours(), |object| of_set(object.meta()))
            })
            .watches(
                self.api::<PartialObjectMeta<EdgeRouter>>(),
                ours(),
                |object| of_set(object.meta()),
            )
            .watches(
                self.api::<PartialObjectMeta<StatefulSet>>(),
                ours(),
                |object| of_set(object.meta()),
            )
            .watches(self.api::<PartialObjectMeta<Pod>>(), ours(), |object| {
                of_set(object.meta())
            })
            .watches(
                self.api::<PartialObjectMeta<PersistentVolumeClaim>>(),
                ours(),
                |object| of_set(object.meta()),
            )
            .watches(
                self.api::<PartialObjectMeta<k8s_openapi::api::core::v1::Service>>(),
                ours(),
                |object| of_set(object.meta()),
            )
            .watches(
                self.api::<PartialObjectMeta<k8s_openapi::api::core::v1::ConfigMap>>(),
                ours(),
                |object| of_set(object.meta()),
            )
            .watches(
                self.api::<PartialObjectMeta<Secret>>(),
                watcher::Config::default(),
                move |secret| {
                    let mut wanted = named(
                        &secrets.stores.routers,
                        &secret,
                        |router: &ZitiRouter, name| {
                            router
                                .spec
                                .tokens_secret_ref
                                .as_ref()
                                .is_some_and(|reference| reference.name == name)
                        },
                    );
                    wanted.extend(of_set(secret.meta()));
                    wanted.extend(stands_at(
                        &secrets.stores.routers,
                        &secret,
                        names::tokens_secret,
                    ));
                    wanted
                },
            )
            .watches(
                self.api::<ZitiNetwork>(),
                watcher::Config::default(),
                move |network| {
                    named(
                        &networks.stores.routers,
                        &network,
                        |router: &ZitiRouter, name| {
                            router
                                .spec
                                .network_ref
                                .as_ref()
                                .is_some_and(|reference| reference.name == name)
                        },
                    )
                },
            )
    }
}

/// Run a controller to its end. What reconciles return was dealt with there.
async fn drain<T>(controller: impl futures::Stream<Item = T>) {
    controller.for_each(|_| std::future::ready(())).await;
}

/// The sets that follow the nodes of the cluster.
fn by_node(store: &Store<ZitiRouter>) -> Vec<ObjectRef<ZitiRouter>> {
    let all = store.state().into_iter();
    all.filter(|set| set.spec.effective_topology() == Topology::PerNode)
        .map(|set| ObjectRef::from_obj(set.as_ref()))
        .collect()
}

fn of_set(metadata: &kube::core::ObjectMeta) -> Option<ObjectRef<ZitiRouter>> {
    let set = metadata.labels.as_ref()?.get(names::LABEL_SET)?;
    Some(ObjectRef::new(set).within(metadata.namespace.as_deref()?))
}

fn owner<K: Resource<DynamicType = ()>>(metadata: &kube::core::ObjectMeta) -> Option<ObjectRef<K>> {
    let owner = metadata
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.kind == K::kind(&()))?;
    Some(ObjectRef::new(&owner.name).within(metadata.namespace.as_deref()?))
}

/// The objects in the same namespace that name this one.
fn named<K, O>(
    store: &Store<K>,
    object: &O,
    names_it: impl Fn(&K, &str) -> bool,
) -> Vec<ObjectRef<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    O: ResourceExt,
{
    let (namespace, name) = (object.namespace(), object.name_any());
    let all = store.state().into_iter();
    all.filter(|candidate| candidate.namespace() == namespace && names_it(candidate, &name))
        .map(|candidate| ObjectRef::from_obj(candidate.as_ref()))
        .collect()
}

/// The object at whose Secret's place this one stands. It may be somebody
/// else's, which is in the way until it is gone.
fn stands_at<K, O>(store: &Store<K>, secret: &O, place: fn(&str) -> String) -> Vec<ObjectRef<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    O: ResourceExt,
{
    let (namespace, name) = (secret.namespace(), secret.name_any());
    let all = store.state().into_iter();
    all.filter(|candidate| {
        candidate.namespace() == namespace && place(&candidate.name_any()) == name
    })
    .map(|candidate| ObjectRef::from_obj(candidate.as_ref()))
    .collect()
}

/// Whether a ZitiNetwork names this Secret or ConfigMap. Their names may be
/// equal: a look too many costs little.
fn names_source(network: &ZitiNetwork, name: &str) -> bool {
    use api::ziti_network::{Credential, Trust};
    let trust = match &network.spec.trust {
        Trust::ConfigMap(reference) => &reference.name,
        Trust::Secret(reference) | Trust::Token(reference) => &reference.name,
    };
    let credential = network
        .spec
        .credential
        .as_ref()
        .map(|credential| match credential {
            Credential::ClientCertificate(reference) | Credential::Password(reference) => {
                &reference.name
            }
            Credential::EnrollmentToken(reference) => &reference.name,
        });
    trust == name || credential.is_some_and(|credential| credential == name)
}
