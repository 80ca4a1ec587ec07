//! What is looked for and made on the network that the controllers are: policies,
//! and identities of the operator's own.

use super::clients::Seen;
use super::secrets::{IDENTITY, MADE_AT, SERIAL};
use crate::context::Context;
use crate::io;
use crate::problem::{self, Error};
use api::{ZitiController, names, reasons};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::Api;
use plan::controller::network::{POLICY, Policies, Policy};
use plan::controller::render;
use plan::edge_router::Problem;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use tracing::{debug, info};
use ziti::ExposeSecret;
use ziti::management::{
    ErrorKind, Filter, FilterError, ManagementClient, ManagementError, NewIdentity, NewPolicy,
    PolicyKind, PolicyPatch, Semantic,
};

/// How long a member may take from its pod's making until it can be dialled.
const STARTING: SignedDuration = SignedDuration::from_mins(1);

const KINDS: [PolicyKind; 2] = [PolicyKind::EdgeRouter, PolicyKind::ServiceEdgeRouter];

/// The tags by which our things on the network are known.
fn tags(context: &Context, object: &ZitiController) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        (names::TAG_INSTALL, context.settings.install_id.clone()),
        (names::TAG_NAMESPACE, object.namespace().unwrap_or_default()),
        (names::TAG_NAME, object.name_any()),
    ])
}

fn tag_map(context: &Context, object: &ZitiController) -> Map<String, Value> {
    let tags = tags(context, object).into_iter();
    tags.map(|(key, value)| (key.to_owned(), Value::String(value)))
        .collect()
}

fn ours(context: &Context, object: &ZitiController) -> Result<Filter, FilterError> {
    let mut filter = Filter::all();
    for (key, value) in tags(context, object) {
        filter = filter.and(&Filter::tag(key, &value)?);
    }
    Ok(filter)
}

/// What of ours stands on the network.
pub(super) async fn look(
    context: &Context,
    object: &ZitiController,
    client: &ManagementClient,
) -> Result<Seen, ManagementError> {
    let all = vec!["#all".to_owned()];
    let tags = tag_map(context, object);
    let mut found = [Policy::Absent; 2];
    for (kind, found) in KINDS.into_iter().zip(&mut found) {
        let Some(policy) = client.policy_named(kind, POLICY).await? else {
            continue;
        };
        let ours = tags
            .iter()
            .all(|(key, value)| policy.tags.get(key) == Some(value));
        let whole = policy.subject_roles == all && policy.edge_router_roles == all;
        *found = match (ours, whole) {
            (true, true) => Policy::Ours,
            (true, false) => Policy::Changed,
            (false, _) => Policy::Foreign,
        };
    }
    let identities = match ours(context, object) {
        Ok(filter) => client.identities(&filter).await?.items,
        // Names of Kubernetes' have no character that a filter could not hold.
        Err(_) => Vec::new(),
    };
    let [edge_router, service_edge_router] = found;
    Ok(Seen {
        policies: Policies {
            edge_router,
            service_edge_router,
        },
        identities: identities
            .into_iter()
            .map(|identity| (identity.id, identity.name))
            .collect(),
    })
}

fn told(error: &ManagementError) -> Error {
    problem::of_management(error).into()
}

/// The client of the leader.
fn leader(context: &Context, object: &ZitiController) -> Result<ManagementClient, Error> {
    let path = io::path(object);
    let leader = context.controllers.leader(&path);
    let client = leader.and_then(|leader| context.controllers.of_member(&path, &leader));
    client.ok_or_else(|| {
        let message = "no member leads the cluster; it is tried again";
        Problem::new(reasons::CONTROLLER_UNREACHABLE, message).into()
    })
}

/// Nothing is written to a cluster by one who may have lost the Lease.
fn writer(context: &Context, object: &ZitiController) -> Result<ManagementClient, Error> {
    if !context.leadership.may_write() {
        let message = "the Lease is about to end, and nothing is written to the network";
        return Err(Problem::new(reasons::PENDING, message).into());
    }
    let client = leader(context, object)?;
    context.controllers.see(&io::path(object), None);
    Ok(client)
}

/// Takes a member in. One that has just been started does not listen yet, which
/// is no failure; a failure of any other is remembered, and stops nothing else.
pub(super) async fn add_member(
    context: &Context,
    object: &ZitiController,
    member: &str,
    address: &str,
    age: SignedDuration,
) -> Result<(), Error> {
    let client = writer(context, object)?;
    let path = io::path(object);
    if let Err(error) = client.add_member(address, true).await {
        if matches!(error.kind(), ErrorKind::NoLeader | ErrorKind::Unreachable) {
            // It is not the member's doing.
            return Err(told(&error));
        }
        debug!(controller = path, member, %error, "does not join yet");
        if age >= STARTING {
            let why = Some(problem::chain(&error));
            context.controllers.tried_to_join(&path, member, why);
        }
        return Ok(());
    }
    context.controllers.tried_to_join(&path, member, None);
    info!(controller = io::path(object), member, "joined the cluster");
    let note = format!("{member} joined the cluster");
    context.events.done(object, "MemberJoined", note).await;
    Ok(())
}

pub(super) async fn remove_member(
    context: &Context,
    object: &ZitiController,
    member: &str,
) -> Result<(), Error> {
    let client = writer(context, object)?;
    client
        .remove_member(member)
        .await
        .map_err(|error| told(&error))?;
    info!(
        controller = io::path(object),
        member, "removed from the cluster"
    );
    let note = format!("{member} was removed from the cluster");
    context.events.done(object, "MemberRemoved", note).await;
    Ok(())
}

pub(super) async fn transfer_leadership(
    context: &Context,
    object: &ZitiController,
    to: &str,
) -> Result<(), Error> {
    let client = writer(context, object)?;
    let moved = client.transfer_leadership(Some(to)).await;
    moved.map_err(|error| told(&error))?;
    info!(
        controller = io::path(object),
        to, "handed the cluster's leadership over"
    );
    Ok(())
}

pub(super) async fn make_policies(context: &Context, object: &ZitiController) -> Result<(), Error> {
    let client = writer(context, object)?;
    let all = || vec!["#all".to_owned()];
    for kind in KINDS {
        let found = client.policy_named(kind, POLICY).await;
        let made = match found.map_err(|error| told(&error))? {
            None => {
                let new = NewPolicy {
                    name: POLICY.to_owned(),
                    semantic: Semantic::AnyOf,
                    subject_roles: all(),
                    edge_router_roles: all(),
                    tags: tag_map(context, object),
                };
                client.create_policy(kind, &new).await.map(drop)
            }
            Some(policy) if is_ours(context, object, &policy.tags) => {
                let patch = PolicyPatch {
                    subject_roles: Some(all()),
                    edge_router_roles: Some(all()),
                    tags: None,
                };
                client.patch_policy(kind, &policy.id, &patch).await
            }
            Some(_) => Ok(()),
        };
        made.map_err(|error| told(&error))?;
    }
    let note =
        format!("made the policies {POLICY}: every identity and service may use every router");
    context.events.done(object, "PoliciesMade", note).await;
    Ok(())
}

fn is_ours(context: &Context, object: &ZitiController, have: &Map<String, Value>) -> bool {
    let tags = tag_map(context, object);
    tags.iter().all(|(key, value)| have.get(key) == Some(value))
}

pub(super) async fn delete_policies(
    context: &Context,
    object: &ZitiController,
) -> Result<(), Error> {
    let client = writer(context, object)?;
    for kind in KINDS {
        let found = client.policy_named(kind, POLICY).await;
        let found = found.map_err(|error| told(&error))?;
        if let Some(policy) = found.filter(|policy| is_ours(context, object, &policy.tags)) {
            let gone = client.delete_policy(kind, &policy.id).await;
            gone.map_err(|error| told(&error))?;
        }
    }
    Ok(())
}

pub(super) async fn delete_identities(
    context: &Context,
    object: &ZitiController,
    ids: &[String],
) -> Result<(), Error> {
    let client = writer(context, object)?;
    for id in ids {
        client
            .delete_identity(id)
            .await
            .map_err(|error| told(&error))?;
    }
    Ok(())
}

/// An identity for the operator itself, and its one-time token in a Secret, with
/// which the ZitiNetwork's controller enrolls it. One whose token was not kept is left
/// over, and deleted when the next one works.
pub(super) async fn make_identity(
    context: &Context,
    object: &ZitiController,
    serial: i64,
) -> Result<(), Error> {
    let client = writer(context, object)?;
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let install = &context.settings.install_id;
    let identity = format!("ziti-operator-{install}-{namespace}-{name}-{serial}");
    let new = NewIdentity {
        name: identity,
        is_admin: true,
        permissions: Vec::new(),
        tags: tag_map(context, object),
    };
    let id = client
        .create_identity(&new)
        .await
        .map_err(|error| told(&error))?;
    let made = client.identity(&id).await.map_err(|error| told(&error))?;
    let token = made
        .and_then(|made| made.one_time_token?.jwt)
        .ok_or_else(|| {
            let message = "the identity made for the operator has no token; it is tried again";
            Error::from(Problem::new(reasons::TOKEN_MISSING, message))
        })?;
    let mut metadata = render::metadata(object, &names::controller_operator_secret(&name));
    metadata.annotations = Some(BTreeMap::from([
        (IDENTITY.to_owned(), id),
        (SERIAL.to_owned(), serial.to_string()),
        (MADE_AT.to_owned(), Timestamp::now().to_string()),
    ]));
    let text = ByteString(token.expose_secret().as_bytes().to_vec());
    let secret = Secret {
        metadata,
        data: Some(BTreeMap::from([(names::TOKEN_KEY.to_owned(), text)])),
        ..Secret::default()
    };
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    io::apply(&api, &secret, names::FIELD_MANAGER_CONTROLLER).await?;
    info!(
        controller = io::path(object),
        serial, "made an identity for the operator"
    );
    Ok(())
}
