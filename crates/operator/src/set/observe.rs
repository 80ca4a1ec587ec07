//! What is known of one set, read live: a cache that lags must not be the
//! ground on which a pod counts as gone. Eight reads, each by label.

use super::refusal;
use crate::context::Context;
use crate::edge_router::digest_of;
use crate::io;
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
use plan::set::roster::Node;
use plan::set::{Facts, Network, TokensSecret};
use std::collections::BTreeMap;

/// Everything that was observed. The Secrets stay here: the planner sees
/// digests.
pub(super) struct Observed {
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
    pub(super) secrets: Vec<Secret>,
    pub(super) tokens: TokensSecret,
    pub(super) provided: Option<Result<BTreeMap<String, String>, Problem>>,
}

pub(super) async fn observe(context: &Context, object: &ZitiRouter) -> Result<Observed, Error> {
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    let by_label = ListParams::default().labels(&format!("{}={name}", names::LABEL_SET));

    // First the StatefulSets, then the pods: a pod that is not there was not
    // wanted either.
    let stateful_sets = io::list::<StatefulSet>(context, &namespace, &by_label).await?;
    let pods = io::list::<Pod>(context, &namespace, &by_label).await?;
    let refusal = refusal::last(context, &namespace, &stateful_sets, &pods).await;
    let (edge_routers, services, config_maps, claims, secrets, extras) = tokio::try_join!(
        io::list::<EdgeRouter>(context, &namespace, &by_label),
        io::list::<Service>(context, &namespace, &by_label),
        io::list::<ConfigMap>(context, &namespace, &by_label),
        io::list::<PersistentVolumeClaim>(context, &namespace, &by_label),
        io::list::<Secret>(context, &namespace, &by_label),
        io::list_extras(context, &namespace, &by_label),
    )?;
    let tokens = tokens(
        context,
        object,
        &namespace,
        &names::tokens_secret(&name),
        &secrets,
    )
    .await?;
    let network = network(context, object, &namespace).await?;
    let provided = provided(context, object, &namespace).await?;
    Ok(Observed {
        network,
        edge_routers,
        stateful_sets,
        nodes: nodes(context, object).await?,
        services,
        config_maps,
        extras,
        pods,
        refusal,
        claims,
        secrets,
        tokens,
        provided,
    })
}

impl Observed {
    /// The same without the texts of tokens.
    pub(super) fn facts<'a>(
        &self,
        object: &'a ZitiRouter,
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
async fn nodes(context: &Context, object: &ZitiRouter) -> Result<Option<Vec<Node>>, Error> {
    let asked = object.spec.effective_topology() == Topology::PerNode;
    if !asked || !context.reads_nodes {
        return Ok(None);
    }
    let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(context.client.clone());
    let listed = api
        .list_metadata(&ListParams::default())
        .await
        .map_err(Error::kubernetes("listing", "nodes".to_owned()))?;
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

async fn tokens(
    context: &Context,
    object: &ZitiRouter,
    namespace: &str,
    name: &str,
    labelled: &[Secret],
) -> Result<TokensSecret, Error> {
    if let Some(secret) = labelled
        .iter()
        .find(|secret| secret.metadata.name.as_deref() == Some(name))
    {
        let keys = secret
            .data
            .iter()
            .flatten()
            .map(|(key, value)| (key.clone(), digest_of(&value.0)))
            .collect();
        return Ok(if io::is_owned_by(secret, object) {
            TokensSecret::Ours(keys)
        } else {
            TokensSecret::Unowned(keys)
        });
    }
    let api: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let foreign = api
        .get_metadata_opt(name)
        .await
        .map_err(Error::kubernetes("reading", format!("Secret {name}")))?;
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
