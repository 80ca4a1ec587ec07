//! Carries out the planner's steps. It chooses nothing.

use super::observe::Observed;
use crate::context::Context;
use crate::controllers;
use crate::io;
use crate::networks::{Connection, Network, not_ready};
use crate::problem::Error;
use api::{EdgeRouter, names, reasons};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta};
use kube::{Resource, ResourceExt};
use plan::edge_router::{Changes, Plan, Problem, RouterSpec, Step, TokenSource};
use std::collections::BTreeMap;
use tracing::info;
use ziti::management::{EdgeRouterPatch, ManagementError, NewEdgeRouter};
use ziti::token::EnrollmentToken;

/// What a step changed.
pub(super) enum Applied {
    /// The object itself, which is now this.
    Object(Box<EdgeRouter>),
    /// The object is let go.
    Gone,
    /// Something else.
    Elsewhere,
}

pub(super) async fn apply(
    context: &Context,
    api: &Api<EdgeRouter>,
    object: &EdgeRouter,
    network: Option<&Network>,
    observed: &Observed,
    plan: &Plan,
    step: &Step,
) -> Result<Applied, Error> {
    let manager = names::FIELD_MANAGER_EDGE_ROUTER;
    let (name, version) = (
        object.name_any(),
        object.resource_version().unwrap_or_default(),
    );
    match step {
        Step::AddFinalizer => {
            let finalizers = io::with_finalizer(object, names::FINALIZER_EDGE_ROUTER);
            let changed = io::set_finalizers(api, &name, &version, &finalizers, manager).await?;
            return Ok(Applied::Object(Box::new(changed)));
        }
        Step::ReleaseFinalizer => {
            let finalizers = io::without_finalizer(object, names::FINALIZER_EDGE_ROUTER);
            io::set_finalizers(api, &name, &version, &finalizers, manager).await?;
            return Ok(Applied::Gone);
        }
        Step::RecordIntent { intent, .. } => {
            let mut status = plan.status.clone();
            status.intent = Some(intent.clone());
            let changed = io::apply_status(api, &name, &status, manager, Some(&version)).await?;
            return Ok(Applied::Object(Box::new(changed)));
        }
        Step::PublishToken { digest, source } => {
            let token = find_token(observed, digest, *source)?;
            write_secret(context, object, token.expose().as_bytes().to_vec()).await?;
            info!(
                edge_router = io::path(object),
                token = digest,
                "published a token"
            );
            let note = format!(
                "the enrollment token is in Secret {}",
                names::enrollment_secret(&name)
            );
            context.events.done(object, "TokenPublished", note).await;
        }
        Step::EmptyToken => {
            write_secret(context, object, Vec::new()).await?;
            info!(edge_router = io::path(object), "emptied the token");
        }
        Step::Create(_)
        | Step::Claim { .. }
        | Step::Update { .. }
        | Step::ReEnroll { .. }
        | Step::Delete { .. } => {
            let (Some(network), Some(connection)) = (network, &observed.connection) else {
                return Err(Problem::new(
                    reasons::NETWORK_NOT_READY,
                    "the network is not connected",
                )
                .into());
            };
            if !context.leadership.may_write() {
                // Another replica may take over before this write would end.
                return Err(lease_ends().into());
            }
            write_to_network(context, object, network, connection, step).await?;
        }
    }
    Ok(Applied::Elsewhere)
}

fn lease_ends() -> Problem {
    Problem::new(
        reasons::NETWORK_NOT_READY,
        "the Lease is about to run out: nothing is written to the network",
    )
}

async fn write_to_network(
    context: &Context,
    object: &EdgeRouter,
    network: &Network,
    connection: &Connection,
    step: &Step,
) -> Result<(), Error> {
    // What stands in the way of all is told once, on the ZitiNetwork.
    let standing = controllers::follow(context, network, connection)
        .await
        .and_then(controllers::Standing::writable)
        .map_err(|problem| not_ready(&network.key.1, &problem))?;
    // Asking took its time.
    if !context.leadership.may_write() {
        return Err(lease_ends().into());
    }
    if let (Some(leader), Step::ReEnroll { id, .. }) = (standing.elsewhere, step) {
        // In a cluster only the leader's token is good after a re-enrollment.
        let message = format!(
            "ZitiNetwork {}: router {id} gets no new token, since the controller that leads, {}, is at none of its \
             spec.managementApi: add it there",
            network.key.1,
            leader.told()
        );
        return Err(Problem::new(reasons::NETWORK_NOT_READY, message).into());
    }
    // A re-enrollment that fell through to a follower would leave a token that is
    // no good.
    let leader = matches!(step, Step::ReEnroll { .. })
        .then(|| network.controllers.leader(connection))
        .flatten();
    let client = leader.as_ref().unwrap_or(&connection.client);
    let failed = |error: ManagementError| Error::from(network.failed(&error));
    let told_object = io::path(object);
    let (reason, note) = match step {
        Step::Create(spec) => {
            let id = client
                .create_edge_router(&new_edge_router(spec))
                .await
                .map_err(failed)?;
            (
                "Registered",
                format!("registered router {:?} with id {id}", spec.name),
            )
        }
        Step::Claim { id, tags } => {
            let patch = EdgeRouterPatch {
                tags: Some(json_map(tags)),
                ..EdgeRouterPatch::default()
            };
            client.patch_edge_router(id, &patch).await.map_err(failed)?;
            (
                "TakenOver",
                format!("took over router {id}: it carries this object's tags now"),
            )
        }
        Step::Update { id, changes } => {
            client
                .patch_edge_router(id, &patch(changes))
                .await
                .map_err(failed)?;
            // With the wish that was carried out before, the difference is
            // somebody else's doing.
            let drifted = object.status.as_ref().is_some_and(|status| {
                status.observed_generation == object.metadata.generation
                    && status.id.as_ref() == Some(id)
                    && !changes.only_mark_installation()
            });
            let (reason, done) = if drifted {
                ("PutBack", "put back")
            } else {
                ("Updated", "updated")
            };
            (reason, format!("{done} router {id}: {}", changes.told()))
        }
        Step::ReEnroll { id, why } => {
            client.re_enroll(id).await.map_err(failed)?;
            ("ReEnrolled", format!("gave router {id} a new token: {why}"))
        }
        Step::Delete { id } => {
            client.delete_edge_router(id).await.map_err(failed)?;
            ("Deleted", format!("deleted router {id} from the network"))
        }
        Step::AddFinalizer
        | Step::RecordIntent { .. }
        | Step::PublishToken { .. }
        | Step::EmptyToken
        | Step::ReleaseFinalizer => {
            return Ok(());
        }
    };
    info!(
        edge_router = told_object,
        network = network.key.1,
        note,
        "wrote to the network"
    );
    context.events.done(object, reason, note).await;
    Ok(())
}

fn find_token<'a>(
    observed: &'a Observed,
    digest: &str,
    source: TokenSource,
) -> Result<&'a EnrollmentToken, Error> {
    let found = match source {
        TokenSource::Network => observed
            .tokens
            .iter()
            .find(|token| token.digest() == digest),
        TokenSource::Provided => {
            let provided = observed
                .provided
                .as_ref()
                .and_then(|provided| provided.as_ref().ok());
            provided
                .map(|(_, token)| token)
                .filter(|token| token.digest() == digest)
        }
    };
    found.ok_or_else(|| {
        Problem::new(
            reasons::TOKEN_MISSING,
            "the token went away while it was being published; it is looked up again",
        )
        .into()
    })
}

/// Write the Secret `<name>-enrollment`, which the operator owns.
async fn write_secret(context: &Context, object: &EdgeRouter, token: Vec<u8>) -> Result<(), Error> {
    let api: Api<Secret> = Api::namespaced(
        context.client.clone(),
        &object.namespace().unwrap_or_default(),
    );
    let mut labels = BTreeMap::from([(
        names::LABEL_MANAGED_BY.to_owned(),
        names::MANAGER.to_owned(),
    )]);
    for label in [names::LABEL_SET, names::LABEL_MEMBER] {
        if let Some(value) = object.labels().get(label) {
            labels.insert(label.to_owned(), value.clone());
        }
    }
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(names::enrollment_secret(&object.name_any())),
            namespace: object.namespace(),
            labels: Some(labels),
            owner_references: object.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(
            names::TOKEN_KEY.to_owned(),
            ByteString(token),
        )])),
        ..Secret::default()
    };
    io::apply(&api, &secret, names::FIELD_MANAGER_EDGE_ROUTER)
        .await
        .map(|_| ())
}

fn json_map(tags: &BTreeMap<String, String>) -> serde_json::Map<String, serde_json::Value> {
    tags.iter()
        .map(|(key, value)| (key.clone(), serde_json::Value::String(value.clone())))
        .collect()
}

fn cost(cost: i32) -> u16 {
    u16::try_from(cost).unwrap_or(u16::MAX)
}

/// A router to be registered, as the network takes it.
pub(crate) fn new_edge_router(spec: &RouterSpec) -> NewEdgeRouter {
    let RouterSpec {
        name,
        role_attributes,
        tunneler_enabled,
        cost: wanted_cost,
        no_traversal,
        tags,
    } = spec;
    NewEdgeRouter {
        name: name.clone(),
        role_attributes: role_attributes.clone(),
        is_tunneler_enabled: *tunneler_enabled,
        cost: cost(*wanted_cost),
        no_traversal: *no_traversal,
        tags: json_map(tags),
        app_data: serde_json::Map::new(),
    }
}

/// A change of a router, as the network takes it.
pub(crate) fn patch(changes: &Changes) -> EdgeRouterPatch {
    let Changes {
        role_attributes,
        tunneler_enabled,
        cost: wanted_cost,
        no_traversal,
        tags,
    } = changes;
    EdgeRouterPatch {
        role_attributes: role_attributes.as_ref().map(|change| change.to.clone()),
        is_tunneler_enabled: tunneler_enabled.as_ref().map(|change| change.to),
        cost: wanted_cost.as_ref().map(|change| cost(change.to)),
        no_traversal: no_traversal.as_ref().map(|change| change.to),
        tags: tags.as_ref().map(|change| json_map(&change.to)),
        app_data: None,
    }
}
