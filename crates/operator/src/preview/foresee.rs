//! Observes with the controllers' own code, and asks the planners on.

use super::calls::Known;
use super::no_events;
use crate::context::{Backoff, Context, Stores};
use crate::controller::Clients;
use crate::leader::Leadership;
use crate::networks::{Access, Networks};
use crate::ziti_cluster::{self, Links};
use crate::{controller, edge_router, network, poller, set};
use anyhow::{Context as _, Result, bail};
use api::reasons;
use api::{EdgeRouter, ZitiController, ZitiNetwork, ZitiRouter};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{reflector, watcher};
use kube::{Client, Resource, ResourceExt};
use plan::Settings;
use plan::edge_router::Problem;
use plan::foresight::{self, Foreseen};
use plan::set as set_plan;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use tokio::sync::Semaphore;
use ziti::management::{EdgeRouterEntity, Filter};

/// Everything that the controllers look at, read once.
pub(crate) struct Look {
    context: Context,
}

/// What would be done for one ZitiNetwork.
pub(super) struct NetworkPlan {
    pub(super) object: ZitiNetwork,
    pub(super) plan: plan::network::Plan,
}

/// What would be done for one EdgeRouter.
pub(super) struct EdgeRouterPlan {
    pub(super) object: EdgeRouter,
    /// What its own steps wait for: the object is still to be made or changed.
    pub(super) after: Option<String>,
    /// Why the network could not be asked, if it could not.
    pub(super) unknown: Option<Problem>,
    pub(super) plan: plan::edge_router::Plan,
    pub(super) steps: Vec<Foreseen<plan::edge_router::Step>>,
}

/// What would be done for one ZitiRouter.
pub(super) struct SetPlan {
    pub(super) object: ZitiRouter,
    /// Its children, as they are.
    pub(super) known: Known,
    /// The namespace of its workloads.
    pub(super) namespace: String,
    pub(super) plan: set_plan::Plan,
    pub(super) steps: Vec<Foreseen<set_plan::Step>>,
}

/// What would be done for one ZitiController.
pub(super) struct ControllerPlan {
    pub(super) object: ZitiController,
    /// Why its cluster could not be asked, although it has one.
    pub(super) unknown: Option<Problem>,
    /// Its children, as they are.
    pub(super) known: Known,
    pub(super) plan: plan::controller::Plan,
    pub(super) steps: Vec<Foreseen<plan::controller::Step>>,
}

/// A set and its members.
pub(super) struct RouterPlan {
    pub(super) set: SetPlan,
    pub(super) members: Vec<EdgeRouterPlan>,
}

impl Look {
    /// Look at the networks of these namespaces. `reads_nodes`: whether the
    /// cluster's nodes may be read.
    pub(crate) async fn new(
        client: Client,
        settings: Settings,
        reads_nodes: bool,
        namespaces: &BTreeSet<String>,
    ) -> Result<Self> {
        let (networks, _wakers) = Networks::new();
        let context = Context {
            reads_nodes,
            events: no_events(&client),
            settings,
            networks,
            leadership: Leadership::alone(),
            controllers: Clients::default(),
            clusters: Links::new().0,
            turns: Semaphore::new(1),
            // Whoever asks once has seen nothing for long.
            started: Timestamp::now(),
            backoff: Backoff::default(),
            stores: Stores {
                networks: stored(&client, namespaces).await?,
                edge_routers: stored(&client, namespaces).await?,
                routers: stored(&client, namespaces).await?,
                clusters: stored(&client, namespaces).await?,
            },
            client,
        };
        let look = Self { context };
        for object in look.context.stores.networks.state() {
            look.network(&object).await?;
        }
        Ok(look)
    }

    pub(super) async fn network(&self, object: &ZitiNetwork) -> Result<NetworkPlan> {
        let key = (object.namespace().unwrap_or_default(), object.name_any());
        let (network, new) = self.context.networks.get_or_insert(&key);
        let plan = network::look(&self.context, object, &network)
            .await
            .with_context(|| format!("looking at ZitiNetwork {}/{}", key.0, key.1))?;
        if new {
            network::judge(object, &network, &plan);
            poller::poll(&self.context, &network).await;
        }
        Ok(NetworkPlan {
            object: object.clone(),
            plan,
        })
    }

    pub(super) async fn controller(&self, object: &ZitiController) -> Result<ControllerPlan> {
        let facts = controller::look(&self.context, object)
            .await
            .with_context(|| format!("looking at ZitiController {}", object.name_any()))?;
        let asked = facts.cluster.as_ref().err();
        let unknown = asked.filter(|problem| problem.reason != reasons::PENDING);
        let (plan, steps) = foresight::controller(&facts);
        Ok(ControllerPlan {
            object: object.clone(),
            unknown: unknown.cloned(),
            known: Known::of_controller_facts(&facts),
            plan,
            steps,
        })
    }

    /// The router of that name on a network.
    pub(crate) async fn router_named(
        &self,
        namespace: &str,
        network: &str,
        name: &str,
    ) -> Result<EdgeRouterEntity> {
        let known = self.context.networks.get(namespace, network);
        let known =
            known.with_context(|| format!("namespace {namespace} has no ZitiNetwork {network}"))?;
        let connection = match known.access(false) {
            Access::Full(connection, _) => connection,
            Access::No(problem) => bail!("{}: {}", problem.reason, problem.message),
            Access::Anonymous(_) => bail!(
                "ZitiNetwork {network} has no credential, so its routers cannot be looked at: set its spec.credential"
            ),
        };
        let filter = Filter::equals("name", name)?;
        let listed = connection.client.edge_routers(&filter).await;
        let listed = listed.with_context(|| format!("looking for router {name} on the network"))?;
        listed.items.into_iter().next().with_context(|| {
            format!("ZitiNetwork {network} has no router named {name}: give --router with its name there")
        })
    }

    pub(super) async fn edge_router(&self, object: &EdgeRouter) -> Result<EdgeRouterPlan> {
        let facts = edge_router::look(&self.context, object)
            .await
            .with_context(|| format!("looking at EdgeRouter {}", object.name_any()))?;
        let unknown = match &facts.network {
            plan::edge_router::NetworkFacts::Unusable(problem) => Some(problem.clone()),
            _ => None,
        };
        let (plan, steps) = foresight::edge_router(&facts);
        Ok(EdgeRouterPlan {
            object: object.clone(),
            after: None,
            unknown,
            plan,
            steps,
        })
    }

    /// Look at another cluster, so that a set there can be looked at.
    async fn reach(&self, namespace: &str, name: &str) -> Result<()> {
        let object = self.context.stores.cluster(namespace, name);
        let object =
            object.with_context(|| format!("namespace {namespace} has no ZitiCluster {name}"))?;
        match ziti_cluster::judge(&self.context, &object).await.verdict {
            Ok(()) => Ok(()),
            Err(problem) => bail!(
                "ZitiCluster {name}: {}: {}",
                problem.reason,
                problem.message
            ),
        }
    }

    /// The namespace in another cluster, and the objects with which a set begins there.
    pub(super) async fn bootstrap(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<(String, Vec<Value>)> {
        let reference = ObjectRef::<ZitiRouter>::new(name).within(namespace);
        let object = self.context.stores.routers.get(&reference);
        let object =
            object.with_context(|| format!("namespace {namespace} has no ZitiRouter {name}"))?;
        let cluster = object.spec.cluster();
        let cluster = cluster.with_context(|| {
            format!("ZitiRouter {name} has no spec.clusterRef: it runs in this cluster, where the operator deploys it")
        })?;
        let known = self.context.stores.cluster(namespace, cluster);
        let known =
            known.with_context(|| format!("namespace {namespace} has no ZitiCluster {cluster}"))?;
        let there = known.remote_namespace();
        let objects = set::bootstrap(&self.context, &object, &there).await?;
        Ok((there, objects))
    }

    /// First the set without tokens: that gives its EdgeRouters. They give the
    /// tokens that are to come, and with those the set is asked again.
    pub(super) async fn router(&self, object: &ZitiRouter) -> Result<RouterPlan> {
        if let Some(cluster) = object.spec.cluster() {
            self.reach(&object.namespace().unwrap_or_default(), cluster)
                .await?;
        }
        let seen = set::look(&self.context, object)
            .await
            .with_context(|| format!("looking at ZitiRouter {}", object.name_any()))?;
        let facts = seen.facts(&self.context);
        let (_, steps) = foresight::set(&facts, &BTreeMap::new());
        let mut tokens = BTreeMap::new();
        let mut members = Vec::new();
        for (er, after) in edge_routers(object, &facts, &steps) {
            let mut member = self.edge_router(&er).await?;
            member.after = after;
            for foreseen in &member.steps {
                if let plan::edge_router::Step::PublishToken { digest, .. } = &foreseen.step {
                    tokens.insert(er.name_any(), format!("{}/{digest}", er.name_any()));
                }
            }
            members.push(member);
        }
        let (plan, steps) = foresight::set(&facts, &tokens);
        Ok(RouterPlan {
            set: SetPlan {
                object: object.clone(),
                known: Known::of(&facts),
                namespace: facts.object.namespace().unwrap_or_default(),
                plan,
                steps,
            },
            members,
        })
    }
}

/// The EdgeRouters of a set as its controller leaves them, and what that waits
/// for where it changes them.
fn edge_routers(
    set: &ZitiRouter,
    facts: &set_plan::Facts<'_>,
    steps: &[Foreseen<set_plan::Step>],
) -> Vec<(EdgeRouter, Option<String>)> {
    let mut all: BTreeMap<String, (EdgeRouter, Option<String>)> = facts
        .edge_routers
        .iter()
        .map(|er| (er.name_any(), (er.clone(), None)))
        .collect();
    let done = |what: &str| Some(format!("ZitiRouter {} has {what} it", set.name_any()));
    for foreseen in steps {
        match &foreseen.step {
            set_plan::Step::ApplyEdgeRouter(wanted) => {
                let mut er = wanted.as_ref().clone();
                let known = all.get(&er.name_any()).map(|(known, _)| known);
                if let Some(known) = known {
                    er.status.clone_from(&known.status);
                    let deleted = &known.metadata.deletion_timestamp;
                    er.metadata.deletion_timestamp.clone_from(deleted);
                }
                let what = if known.is_some() { "changed" } else { "made" };
                er.metadata.uid.get_or_insert("to-come".to_owned());
                all.insert(er.name_any(), (er, done(what)));
            }
            set_plan::Step::DeleteEdgeRouter { name, .. } => {
                if let Some((er, after)) = all.get_mut(name) {
                    let now = Time(facts.now);
                    er.metadata.deletion_timestamp.get_or_insert(now);
                    *after = done("deleted");
                }
            }
            _ => {}
        }
    }
    all.into_values().collect()
}

/// The objects of a kind, as a watch would have them.
async fn stored<K>(client: &Client, namespaces: &BTreeSet<String>) -> Result<reflector::Store<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let (store, mut writer) = reflector::store();
    writer.apply_watcher_event(&watcher::Event::Init);
    for namespace in namespaces {
        let api: Api<K> = Api::namespaced(client.clone(), namespace);
        let listed = api
            .list(&ListParams::default())
            .await
            .with_context(|| format!("listing {} of namespace {namespace}", K::plural(&())))?;
        for object in listed {
            writer.apply_watcher_event(&watcher::Event::InitApply(object));
        }
    }
    writer.apply_watcher_event(&watcher::Event::InitDone);
    Ok(store)
}
