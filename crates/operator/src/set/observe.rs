//! What is known of one set, read live: a cache that lags must not be the
//! ground on which a pod counts as gone. Eight reads, each by label.

use super::refusal;
use crate::context::Context;
use crate::edge_router::digest_of;
use crate::io;
use crate::place::Place;
use crate::problem::Error;
use api::router::Topology;
use api::{EdgeRouter, ZitiNetwork, ZitiRouter, names, reasons};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use kube::core::DynamicObject;
use plan::Settings;
use plan::conditions;
use plan::edge_router::Problem;
use plan::set::placement;
use plan::set::roster::Node;
use plan::set::{Facts, Network, TokensSecret};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Everything that was observed. The Secrets stay here: the planner sees
/// digests.
pub(super) struct Observed {
    pub(super) place: Place,
    /// Whether a person has given up its cluster, and what it has there.
    pub(super) left_behind: bool,
    pub(super) network: Network,
    pub(super) edge_routers: Vec<EdgeRouter>,
    pub(super) stateful_sets: Vec<StatefulSet>,
    pub(super) nodes: Option<Vec<Node>>,
    pub(super) services: Vec<Service>,
    pub(super) config_maps: Vec<ConfigMap>,
    pub(super) extras: Vec<DynamicObject>,
    pub(super) pods: Vec<Pod>,
    pub(super) refusal: Option<String>,
    pub(super) claims: Vec<PersistentVolumeClaim>,
    /// Those beside the ZitiRouter.
    pub(super) secrets: Vec<Secret>,
    /// The one from which the pods get their tokens.
    pub(super) mounted: Option<Secret>,
    pub(super) tokens: TokensSecret,
    pub(super) provided: Option<Result<BTreeMap<String, String>, Problem>>,
}

pub(super) async fn observe(
    context: &Context,
    object: &ZitiRouter,
    place: Place,
) -> Result<Observed, Error> {
    let namespace = object.namespace().unwrap_or_default();
    let by_label = by_label(object);

    // First the StatefulSets, then the pods: a pod that is not there was not
    // wanted either.
    let stateful_sets = place.list::<StatefulSet>(&by_label).await?;
    let pods = place.list::<Pod>(&by_label).await?;
    let refusal = refusal::last(&place, &stateful_sets, &pods).await;
    let (edge_routers, services, config_maps, claims, secrets, extras) = tokio::try_join!(
        edge_routers(context, object),
        place.list::<Service>(&by_label),
        place.list::<ConfigMap>(&by_label),
        place.list::<PersistentVolumeClaim>(&by_label),
        io::list::<Secret>(&context.client, &namespace, &by_label),
        place.list_extras(&by_label),
    )?;
    let mounted = mounted(object, &place, &secrets, &by_label).await?;
    let tokens = tokens(&place, object, mounted.as_ref()).await?;
    let network = network(context, object, &namespace).await?;
    let provided = provided(context, object, &namespace).await?;
    let nodes = nodes(&place, object).await?;
    Ok(Observed {
        place,
        left_behind: false,
        network,
        edge_routers,
        stateful_sets,
        nodes,
        services,
        config_maps,
        extras,
        pods,
        refusal,
        claims,
        secrets,
        mounted,
        tokens,
        provided,
    })
}

/// The same where the cluster of the workloads cannot be looked at: there is nothing
/// but what is here.
pub(super) async fn without_workloads(
    context: &Context,
    object: &ZitiRouter,
    there: String,
    edge_routers: Vec<EdgeRouter>,
) -> Result<Observed, Error> {
    let namespace = object.namespace().unwrap_or_default();
    let params = by_label(object);
    let secrets = io::list::<Secret>(&context.client, &namespace, &params).await?;
    Ok(Observed {
        network: network(context, object, &namespace).await?,
        provided: provided(context, object, &namespace).await?,
        place: Place::unseen(context, object, there),
        left_behind: false,
        edge_routers,
        stateful_sets: Vec::new(),
        nodes: None,
        services: Vec::new(),
        config_maps: Vec::new(),
        extras: Vec::new(),
        pods: Vec::new(),
        refusal: None,
        claims: Vec::new(),
        secrets,
        mounted: None,
        tokens: TokensSecret::Absent,
    })
}

/// The EdgeRouters of a set, which are where it is itself.
pub(super) async fn edge_routers(
    context: &Context,
    object: &ZitiRouter,
) -> Result<Vec<EdgeRouter>, Error> {
    let namespace = object.namespace().unwrap_or_default();
    io::list(&context.client, &namespace, &by_label(object)).await
}

fn by_label(object: &ZitiRouter) -> ListParams {
    ListParams::default().labels(&format!("{}={}", names::LABEL_SET, object.name_any()))
}

impl Observed {
    /// The ZitiRouter as the planner sees it: with the namespace of its workloads.
    pub(super) fn placed<'a>(&self, object: &'a ZitiRouter) -> Cow<'a, ZitiRouter> {
        if self.place.is_afar() {
            Cow::Owned(placement::placed(object, self.place.namespace()))
        } else {
            Cow::Borrowed(object)
        }
    }

    /// What the planner sees of it, without the texts of tokens. `object` is
    /// [`Self::placed`], `home` the namespace that it is in itself.
    pub(super) fn facts<'a>(
        &self,
        object: &'a ZitiRouter,
        home: Option<String>,
        settings: &'a Settings,
        now: Timestamp,
    ) -> Facts<'a> {
        let waiting_tokens = self
            .edge_routers
            .iter()
            .filter_map(|er| {
                let secret = self.secret(&names::enrollment_secret(&er.name_any()))?;
                if !io::is_owned_by(secret, er) {
                    return None;
                }
                let value = secret.data.as_ref()?.get(names::TOKEN_KEY)?;
                Some((er.name_any(), digest_of(&value.0)?))
            })
            .collect();
        let copy = self
            .secret(&names::provided_tokens_secret(&object.name_any()))
            .filter(|copy| io::is_owned_by(*copy, object));
        Facts {
            object,
            settings,
            home: home.filter(|_| self.place.is_afar()),
            network: self.network.clone(),
            edge_routers: self.edge_routers.clone(),
            stateful_sets: self.stateful_sets.clone(),
            nodes: self.nodes.clone(),
            services: self.services.clone(),
            config_maps: self.config_maps.clone(),
            extras: self.extras.clone(),
            pods: self.pods.clone(),
            refusal: self.refusal.clone(),
            claims: self.claims.clone(),
            tokens: self.tokens.clone(),
            waiting_tokens,
            provided: self.provided.clone(),
            provided_copy: copy.map(digests),
            now,
        }
    }

    pub(super) fn secret(&self, name: &str) -> Option<&Secret> {
        self.secrets
            .iter()
            .find(|secret| secret.metadata.name.as_deref() == Some(name))
    }
}

/// The cluster's nodes, where the topology is by node and they may be read.
async fn nodes(place: &Place, object: &ZitiRouter) -> Result<Option<Vec<Node>>, Error> {
    let asked = object.spec.effective_topology() == Topology::PerNode;
    if !asked || !place.reads_nodes() {
        return Ok(None);
    }
    let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(place.client().clone());
    let listed = api
        .list_metadata(&ListParams::default())
        .await
        .map_err(Error::kubernetes("listing", "nodes".to_owned()))
        .map_err(|error| place.fault(error))?;
    let nodes = listed.items.into_iter().map(|node| Node {
        name: node.name_any(),
        labels: node.metadata.labels.unwrap_or_default(),
    });
    Ok(Some(nodes.collect()))
}

/// Digests of the tokens in a Secret, by key.
fn digests(secret: &Secret) -> BTreeMap<String, String> {
    let data = secret.data.iter().flatten();
    data.filter_map(|(key, value)| Some((key.clone(), digest_of(&value.0)?)))
        .collect()
}

/// The Secret from which the pods get their tokens, which is where they are. `here`
/// are the set's Secrets of this cluster.
async fn mounted(
    object: &ZitiRouter,
    place: &Place,
    here: &[Secret],
    params: &ListParams,
) -> Result<Option<Secret>, Error> {
    let name = names::tokens_secret(&object.name_any());
    let is_it = |secret: &Secret| secret.metadata.name.as_deref() == Some(&name);
    if place.is_afar() {
        let there = place.list::<Secret>(params).await?;
        return Ok(there.into_iter().find(is_it));
    }
    Ok(here.iter().find(|secret| is_it(secret)).cloned())
}

async fn tokens(
    place: &Place,
    object: &ZitiRouter,
    mounted: Option<&Secret>,
) -> Result<TokensSecret, Error> {
    if let Some(secret) = mounted {
        let keys = secret
            .data
            .iter()
            .flatten()
            .map(|(key, value)| (key.clone(), digest_of(&value.0)))
            .collect();
        if place.is_anothers(&secret.metadata) {
            return Ok(TokensSecret::Foreign);
        }
        return Ok(if io::is_owned_by(secret, object) {
            TokensSecret::Ours(keys)
        } else {
            TokensSecret::Unowned(keys)
        });
    }
    let name = names::tokens_secret(&object.name_any());
    let api: Api<Secret> = place.api();
    let foreign = api
        .get_metadata_opt(&name)
        .await
        .map_err(Error::kubernetes("reading", format!("Secret {name}")))
        .map_err(|error| place.fault(error))?;
    Ok(if foreign.is_some() {
        TokensSecret::Foreign
    } else {
        TokensSecret::Absent
    })
}

async fn network(
    context: &Context,
    object: &ZitiRouter,
    namespace: &str,
) -> Result<Network, Error> {
    let Some(reference) = &object.spec.network_ref else {
        return Ok(Network::NotReferenced);
    };
    let api: Api<ZitiNetwork> = Api::namespaced(context.client.clone(), namespace);
    let found = api
        .get_opt(&reference.name)
        .await
        .map_err(Error::kubernetes(
            "reading",
            format!("ZitiNetwork {}", reference.name),
        ))?;
    let Some(network) = found else {
        let message = format!(
            "ZitiNetwork {} does not exist in this namespace: create it, or correct spec.networkRef",
            reference.name
        );
        return Ok(Network::Missing(Problem::new(
            reasons::NETWORK_NOT_FOUND,
            message,
        )));
    };
    let ready = network
        .status
        .as_ref()
        .and_then(|status| conditions::find(&status.conditions, reasons::types::READY));
    let fault = match ready {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(Problem::new(
            reasons::NETWORK_NOT_READY,
            ready.message.clone(),
        )),
        None => Some(Problem::new(
            reasons::NETWORK_NOT_READY,
            "it has not been reached yet",
        )),
    };
    Ok(Network::Found {
        fault,
        name_pattern: network.spec.name_pattern.clone(),
        control_endpoints: network
            .spec
            .control_plane
            .map(|plane| plane.endpoints)
            .unwrap_or_default(),
        has_credential: network.spec.credential.is_some(),
        asked_since: ready
            .filter(|ready| ready.status == "True")
            .map(|ready| ready.last_transition_time.0.max(context.started)),
        version: network.status.and_then(|status| status.version),
    })
}

/// The tokens that a person gave, as digests.
async fn provided(
    context: &Context,
    object: &ZitiRouter,
    namespace: &str,
) -> Result<Option<Result<BTreeMap<String, String>, Problem>>, Error> {
    if let Some(tokens) = &object.spec.tokens {
        let digests = tokens
            .iter()
            .filter_map(|(member, text)| Some((member.clone(), digest_of(text.0.as_bytes())?)))
            .collect();
        return Ok(Some(Ok(digests)));
    }
    let Some(reference) = &object.spec.tokens_secret_ref else {
        return Ok(None);
    };
    let api: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let found = api
        .get_opt(&reference.name)
        .await
        .map_err(Error::kubernetes(
            "reading",
            format!("Secret {}", reference.name),
        ))?;
    Ok(Some(found.as_ref().map(digests).ok_or_else(|| {
        let message = format!(
            "Secret {}, named in spec.tokensSecretRef, does not exist in this namespace: create it with a token under each member's name",
            reference.name
        );
        Problem::new(reasons::SOURCE_MISSING, message)
    })))
}
