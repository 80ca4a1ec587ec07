//! What is known of one EdgeRouter, gathered for the planner. Token texts stay
//! here and are handed to `apply` alone.

use crate::context::Context;
use crate::controllers;
use crate::io;
use crate::networks::{Access, Connection, Network, Owner};
use crate::picture::Rows;
use crate::poller;
use crate::problem::{self, Error};
use api::edge_router::Enrollment;
use api::{DeletionPolicy, EdgeRouter, names, reasons};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::reflector::ObjectRef;
use plan::Settings;
use plan::edge_router::{
    Entity, Facts, NetworkBasics, NetworkFacts, Problem, SecretFacts, View, wanted_name,
};
use plan::network::Verdict;
use plan::token::TokenFacts;
use std::sync::Arc;
use std::time::Duration;
use ziti::management::{EdgeRouterEntity, SYNC_DONE};
use ziti::token::{EnrollmentMethod, EnrollmentToken};
use ziti::trust::{TrustError, verified_ca_bundle};

/// Deadline for asking a token's issuer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How far the network is asked about a router, from nothing to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Depth {
    /// The poller's picture will do.
    Picture,
    /// The router is asked for by itself.
    Fresh,
    /// And every other controller is asked whether it is online there.
    Everywhere,
}

/// Everything that was observed.
pub(super) struct Observed {
    pub(super) network: NetworkFacts,
    pub(super) provided: Option<Result<(TokenFacts, EnrollmentToken), Problem>>,
    pub(super) secret: SecretFacts,
    /// Tokens shown by the network, with their texts.
    pub(super) tokens: Vec<EnrollmentToken>,
    pub(super) connection: Option<Connection>,
}

impl Observed {
    /// The same without the texts of tokens.
    pub(super) fn facts<'a>(
        &self,
        object: &'a EdgeRouter,
        settings: &'a Settings,
        now: Timestamp,
    ) -> Facts<'a> {
        let provided = self.provided.as_ref().map(|provided| {
            let facts = provided.as_ref().map(|(facts, _)| facts.clone());
            facts.map_err(Clone::clone)
        });
        Facts {
            object,
            settings,
            network: self.network.clone(),
            provided,
            secret: self.secret.clone(),
            now,
        }
    }
}

/// Whether the router must be asked for by itself: another pod has reported
/// than the one that was seen online, so the picture may be of the time before;
/// or the object is going. A picture made before the router was registered does
/// not hold it, and letting the object go on that ground would leave the router
/// on the network for ever.
pub(super) fn needs_fresh(object: &EdgeRouter) -> bool {
    if object.metadata.deletion_timestamp.is_some() {
        return true;
    }
    let Some(status) = &object.status else {
        return false;
    };
    let reported = status.agent.as_ref().map(|agent| &agent.pod_uid);
    reported.is_some() && reported != status.online_pod.as_ref()
}

/// The network that the object names, if this process knows it.
pub(super) fn network(context: &Context, object: &EdgeRouter) -> Option<Arc<Network>> {
    let reference = object.spec.network_ref.as_ref()?;
    context
        .networks
        .get(&object.namespace().unwrap_or_default(), &reference.name)
}

pub(super) async fn observe(
    context: &Context,
    object: &EdgeRouter,
    network: Option<&Network>,
    depth: Depth,
) -> Result<Observed, Error> {
    let provided = match &object.spec.enrollment {
        Enrollment::Managed(_) => None,
        Enrollment::Provided(_) => Some(provided_token(context, object).await?),
    };
    let token = provided
        .as_ref()
        .and_then(|provided| provided.as_ref().ok())
        .map(|(_, token)| token);
    let (facts, tokens, connection) = ask(context, object, network, token, depth).await;
    let secret = enrollment_secret(context, object).await?;
    Ok(Observed {
        network: facts,
        provided,
        secret,
        tokens,
        connection,
    })
}

/// What the network says of this router.
async fn ask(
    context: &Context,
    object: &EdgeRouter,
    network: Option<&Network>,
    token: Option<&EnrollmentToken>,
    depth: Depth,
) -> (NetworkFacts, Vec<EnrollmentToken>, Option<Connection>) {
    let Some(reference) = &object.spec.network_ref else {
        return (NetworkFacts::NotReferenced, Vec::new(), None);
    };
    let unusable = |problem| (NetworkFacts::Unusable(problem), Vec::new(), None);
    let deleting = object.metadata.deletion_timestamp.is_some();
    if deleting && object.spec.deletion_policy == DeletionPolicy::Retain {
        // The way out when the network is gone for ever: do not wait for it.
        return unusable(Problem::new(reasons::DELETING, "the network is not asked"));
    }
    let Some(network) = network else {
        let key = ObjectRef::new(&reference.name).within(&object.namespace().unwrap_or_default());
        let problem = if context.stores.networks.get(&key).is_some() {
            Problem::new(
                reasons::NETWORK_NOT_READY,
                format!("ZitiNetwork {} has not been reached yet", reference.name),
            )
        } else {
            let message = format!(
                "ZitiNetwork {} does not exist in this namespace: create it, or correct spec.networkRef",
                reference.name
            );
            Problem::new(reasons::NETWORK_NOT_FOUND, message)
        };
        return unusable(problem);
    };
    let (connection, verdict) = match network.access(deleting) {
        Access::No(problem) => return unusable(problem),
        Access::Anonymous(connection) => {
            let basics = NetworkBasics {
                server_time: None,
                token_is_ours: is_ours(network, &connection, token).await,
                names_controllers: network.names_controllers(),
                leader_elsewhere: network.controllers.elsewhere(),
            };
            return (
                NetworkFacts::NoCredential(basics),
                Vec::new(),
                Some(connection),
            );
        }
        Access::Full(connection, verdict) => (connection, verdict),
    };
    match view(context, object, network, &connection, verdict, token, depth).await {
        Ok((view, tokens)) => (NetworkFacts::Known(view), tokens, Some(connection)),
        Err(problem) => {
            if problem.reason == reasons::NETWORK_NOT_READY {
                context.networks.wake_network(&network.key);
            }
            unusable(problem)
        }
    }
}

async fn view(
    context: &Context,
    object: &EdgeRouter,
    network: &Network,
    connection: &Connection,
    verdict: Verdict,
    token: Option<&EnrollmentToken>,
    depth: Depth,
) -> Result<(View, Vec<EnrollmentToken>), Problem> {
    let status = object.status.as_ref();
    // A provided token names its router; what is recorded may be of the token
    // before it.
    let id = token
        .map(EnrollmentToken::subject)
        .or_else(|| status.and_then(|status| status.id.as_deref()));
    let name = wanted_name(object);
    let now = Timestamp::now();
    // The picture holds our own routers and those named before, so one that a
    // new token names is asked for: it must not pass for one of another network.
    let pictured =
        |rows: &Rows| token.is_none_or(|token| rows.entities.contains_key(token.subject()));
    let picture = network
        .rows()
        .filter(|rows| depth == Depth::Picture && pictured(rows));
    let (rows, server_time, fresh) = if let Some(rows) = picture {
        let server_time = rows.server_now(now);
        let ours = |entity: &&EdgeRouterEntity| {
            Some(entity.id.as_str()) == id
                || entity.name == name
                || Owner::of(object).is_named_by(&entity.tags)
        };
        (
            rows.entities.values().filter(ours).cloned().collect(),
            server_time,
            false,
        )
    } else {
        let (rows, server_time) = network
            .look_up(connection, id, &name, &Owner::of(object))
            .await?;
        (rows, server_time, true)
    };
    let mut tokens = Vec::new();
    let mut entities: Vec<Entity> = rows
        .iter()
        .map(|row| entity(row, network, now, &mut tokens))
        .collect();
    if depth == Depth::Everywhere {
        for entity in entities.iter_mut().filter(|entity| !entity.online) {
            let elsewhere = controllers::online_elsewhere(network, connection, &entity.id).await;
            if elsewhere.is_some() {
                network.seen_online(&entity.id);
            }
            entity.online_elsewhere = elsewhere;
        }
    }
    let view = View {
        identity: verdict.identity.unwrap_or_default(),
        identity_confirmed: verdict.identity_confirmed,
        confirmed_install: verdict.confirmed_install,
        basics: NetworkBasics {
            server_time,
            token_is_ours: is_ours(network, connection, token).await,
            names_controllers: network.names_controllers(),
            leader_elsewhere: network.controllers.elsewhere(),
        },
        entities,
        many_missing: many_missing(context, network),
        fresh,
    };
    Ok((view, tokens))
}

fn entity(
    row: &EdgeRouterEntity,
    network: &Network,
    now: Timestamp,
    tokens: &mut Vec<EnrollmentToken>,
) -> Entity {
    let token = row.enrollment_token().and_then(Result::ok);
    let facts = token.as_ref().map(token_facts);
    tokens.extend(token);
    let text = |value: &serde_json::Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    Entity {
        id: row.id.clone(),
        name: row.name.clone(),
        tags: row
            .tags
            .iter()
            .map(|(key, value)| (key.clone(), text(value)))
            .collect(),
        role_attributes: row.role_attributes.clone(),
        tunneler_enabled: row.is_tunneler_enabled,
        cost: i32::try_from(row.cost).unwrap_or(i32::MAX),
        no_traversal: row.no_traversal,
        verified: row.is_verified,
        online: row.is_online,
        online_elsewhere: None,
        synced: row.sync_status == SYNC_DONE,
        fingerprint: row.fingerprint.clone(),
        certificate_expiry: row.certificate_expiry,
        token: facts,
        offline_for: network.offline_for(row, now),
        version: row.version.clone(),
        hostname: Some(row.hostname.clone()).filter(|hostname| !hostname.is_empty()),
    }
}

fn token_facts(token: &EnrollmentToken) -> TokenFacts {
    TokenFacts {
        digest: token.digest().to_owned(),
        subject: token.subject().to_owned(),
        expires_at: token.expires_at(),
        names_controllers: !token.controllers().is_empty(),
    }
}

/// Whether too many of our routers are missing from the last list.
fn many_missing(context: &Context, network: &Network) -> bool {
    let Some(rows) = network.rows() else {
        return true;
    };
    let registered = poller::edge_routers_of(context, network);
    let ids: Vec<String> = registered
        .iter()
        .filter(|er| matches!(er.spec.enrollment, Enrollment::Managed(_)))
        .filter_map(|er| er.status.as_ref()?.id.clone())
        .collect();
    let missing = ids
        .iter()
        .filter(|id| !rows.entities.contains_key(*id))
        .count();
    plan::edge_router::many_missing(ids.len(), missing)
}

/// Whether the provided token was signed by this network; remembered.
async fn is_ours(
    network: &Network,
    connection: &Connection,
    token: Option<&EnrollmentToken>,
) -> Option<bool> {
    let token = token?;
    if let Some(known) = network.token_is_ours(token.digest()) {
        return Some(known);
    }
    let found = match verified_ca_bundle(token, Some(&connection.bundle), TIMEOUT).await {
        Ok(_) => true,
        Err(TrustError::IssuerNotTrusted { .. } | TrustError::SignatureInvalid { .. }) => false,
        Err(_) => return None,
    };
    network.keep_token(token.digest(), found);
    Some(found)
}

/// The token that a person gave.
async fn provided_token(
    context: &Context,
    object: &EdgeRouter,
) -> Result<Result<(TokenFacts, EnrollmentToken), Problem>, Error> {
    let Enrollment::Provided(provided) = &object.spec.enrollment else {
        return Ok(Err(Problem::new(
            reasons::TOKEN_MISSING,
            "no token is provided",
        )));
    };
    let reference = &provided.secret_key_ref;
    let api: Api<Secret> = Api::namespaced(
        context.client.clone(),
        &object.namespace().unwrap_or_default(),
    );
    let secret = api
        .get_opt(&reference.name)
        .await
        .map_err(Error::kubernetes(
            "reading",
            format!("Secret {}", reference.name),
        ))?;
    let Some(secret) = secret else {
        let message = format!(
            "Secret {} does not exist in this namespace: create it with the token under the key {}",
            reference.name, reference.key
        );
        return Ok(Err(Problem::new(reasons::SOURCE_MISSING, message)));
    };
    let Some(value) = secret
        .data
        .as_ref()
        .and_then(|data| data.get(&reference.key))
    else {
        let message = format!(
            "Secret {} has no key {}: add the token under it",
            reference.name, reference.key
        );
        return Ok(Err(Problem::new(reasons::KEY_MISSING, message)));
    };
    let malformed = |said: String| {
        let message = format!(
            "key {} of Secret {} holds no enrollment token of an edge router: {said}",
            reference.key, reference.name
        );
        Ok(Err(Problem::new(reasons::TOKEN_MALFORMED, message)))
    };
    let Ok(text) = std::str::from_utf8(&value.0) else {
        return malformed("it is not text".to_owned());
    };
    match EnrollmentToken::parse(text) {
        Err(error) => malformed(problem::chain(&error)),
        Ok(token) if *token.method() != EnrollmentMethod::Erott => malformed(format!(
            "it is a token of another kind ({})",
            token.method()
        )),
        Ok(token) => Ok(Ok((token_facts(&token), token))),
    }
}

/// The Secret in which the token is put.
async fn enrollment_secret(context: &Context, object: &EdgeRouter) -> Result<SecretFacts, Error> {
    let api: Api<Secret> = Api::namespaced(
        context.client.clone(),
        &object.namespace().unwrap_or_default(),
    );
    let name = names::enrollment_secret(&object.name_any());
    let secret = api
        .get_opt(&name)
        .await
        .map_err(Error::kubernetes("reading", format!("Secret {name}")))?;
    Ok(match secret {
        None => SecretFacts::Absent,
        Some(secret)
            if secret
                .labels()
                .get(names::LABEL_MANAGED_BY)
                .is_none_or(|manager| manager != names::MANAGER) =>
        {
            SecretFacts::Foreign
        }
        // Of an earlier object of this name, and on its way out.
        Some(secret) if !io::is_owned_by(&secret, object) => SecretFacts::Absent,
        Some(secret) => {
            let text = secret
                .data
                .as_ref()
                .and_then(|data| data.get(names::TOKEN_KEY));
            SecretFacts::Ours(text.and_then(|text| digest_of(&text.0)))
        }
    })
}

/// Digest of a token as it stands in a Secret; `None` where there is none.
pub(crate) fn digest_of(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?.trim();
    if text.is_empty() {
        return None;
    }
    // What is no token has a digest as well, so that it is seen and replaced.
    let parsed = EnrollmentToken::parse(text)
        .ok()
        .map(|token| token.digest().to_owned());
    Some(parsed.unwrap_or_else(|| plan::set::applied::hash(&text)))
}
