//! Asks the controllers about their cluster: the leader, where there is one.

use super::clients::Seen;
use super::network;
use super::observe::Observed;
use super::secrets::{self, admin_name, certificate, credentials};
use crate::context::Context;
use crate::io;
use crate::problem;
use api::reasons::types;
use api::{ZitiController, names, reasons};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use plan::conditions::find;
use plan::controller::config::internal;
use plan::controller::{Cluster, Peer, Root};
use plan::edge_router::Problem;
use std::collections::HashMap;
use std::time::Duration;
use ziti::management::{Credential, ErrorKind, ManagementClient, ManagementError, Options};
use ziti::trust::CaBundle;
use ziti::{SecretString, Url};

/// Deadline of one call: a member that hangs must not hold up the others.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What the cluster says, by its leader where it has one and can be asked.
pub(super) async fn ask(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
) -> Result<Cluster, Problem> {
    let path = io::path(object);
    let running = running(&observed.pods);
    if running.is_empty() {
        return Err(Problem::new(reasons::PENDING, "no member runs"));
    }
    clients(context, object, observed)?;
    let mut order: Vec<String> = context.controllers.leader(&path).into_iter().collect();
    order.extend(running.iter().map(|pod| pod.name_any()));
    let mut asked: Vec<String> = Vec::new();
    let mut leaderless = None;
    let mut moved = None;
    let mut failed = None;
    while !order.is_empty() {
        let member = order.remove(0);
        if asked.contains(&member) {
            continue;
        }
        asked.push(member.clone());
        let Some(client) = context.controllers.of_member(&path, &member) else {
            continue;
        };
        match client.cluster_members().await {
            Ok(members) => {
                let peers = members.into_iter().map(peer).collect();
                let cluster = Cluster::listed(&member, peers, &mut moved);
                match cluster.leader().map(|leader| leader.id.clone()) {
                    Some(leader) if leader == member => {
                        context.controllers.set_leader(&path, &leader);
                        return complete(context, object, cluster, &client).await;
                    }
                    // A follower's view of the others is worth nothing.
                    Some(leader) => {
                        if moved.as_ref() == Some(&leader) {
                            // It did not know of itself when it was asked before.
                            asked.retain(|one| *one != leader);
                        }
                        order.insert(0, leader);
                    }
                    None => leaderless = Some(cluster),
                }
            }
            Err(error) => {
                failed.get_or_insert_with(|| told(object, observed, &error));
            }
        }
    }
    match (leaderless, failed) {
        (Some(cluster), _) => Ok(cluster),
        (None, Some(problem)) => Err(problem),
        (None, None) => Err(Problem::new(reasons::PENDING, "no member can be asked yet")),
    }
}

fn running(pods: &[Pod]) -> Vec<&Pod> {
    let mut running: Vec<&Pod> = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .filter(|pod| {
            let status = pod.status.as_ref();
            status.and_then(|status| status.phase.as_deref()) == Some("Running")
        })
        .collect();
    running.sort_by_key(|pod| pod.name_any());
    running
}

fn peer(member: ziti::management::Member) -> Peer {
    Peer {
        id: member.id,
        address: member.address,
        voter: member.voter,
        leader: member.leader,
        version: member.version,
        connected: member.connected,
    }
}

/// The same with what stands on the network.
async fn complete(
    context: &Context,
    object: &ZitiController,
    mut cluster: Cluster,
    client: &ManagementClient,
) -> Result<Cluster, Problem> {
    let path = io::path(object);
    let seen = if let Some(seen) = context.controllers.seen(&path) {
        seen
    } else {
        let seen = network::look(context, object, client).await;
        let seen: Seen = seen.map_err(|error| problem::of_management(&error))?;
        context.controllers.see(&path, Some(seen.clone()));
        seen
    };
    cluster.policies = Some(seen.policies);
    cluster.identities = seen.identities;
    Ok(cluster)
}

/// Makes sure that there are clients for what the Secrets hold now.
fn clients(context: &Context, object: &ZitiController, observed: &Observed) -> Result<(), Problem> {
    let path = io::path(object);
    let Root::Sound(root) = secrets::root(&observed.secrets) else {
        return Err(Problem::new(
            reasons::PENDING,
            "there are no certificates yet",
        ));
    };
    let credential = credential(object, observed)?;
    let said = match &credential {
        Given::Certificate(cert, key) => (cert, key),
        Given::Password(username, password) => (username, password),
    };
    let members = u8::try_from(plan::controller::MOST_MEMBERS).unwrap_or_default();
    let inputs = plan::set::applied::hash(&(&root.bundle, said));
    if context.controllers.are_of(&path, &inputs) {
        return Ok(());
    }
    let bundle = CaBundle::from_pem(&root.bundle)
        .map_err(|error| problem::of_trust(&error, "the root of the network's certificates"))?;
    let mut of_members = HashMap::new();
    for ordinal in 0..i32::from(members) {
        let url = format!("https://{}", internal(object, ordinal));
        let Ok(url) = url.parse::<Url>() else {
            continue;
        };
        let client = ManagementClient::new(
            &[url],
            &bundle,
            Some(credential.clone().into()),
            &Options { timeout: TIMEOUT },
        )
        .map_err(|error| problem::of_management(&error))?;
        let member = names::controller_member(&object.name_any(), ordinal);
        of_members.insert(member, client);
    }
    context.controllers.put(&path, &inputs, of_members);
    Ok(())
}

#[derive(Clone)]
enum Given {
    Certificate(String, String),
    Password(String, String),
}

impl From<Given> for Credential {
    fn from(given: Given) -> Self {
        match given {
            Given::Certificate(cert_pem, key_pem) => Self::ClientCertificate {
                cert_pem,
                key_pem: SecretString::from(key_pem),
            },
            Given::Password(username, password) => Self::Password {
                username,
                password: SecretString::from(password),
            },
        }
    }
}

/// The operator's own certificate, once the ZitiNetwork works with it; the
/// administrator's password before, and when that certificate is refused.
fn credential(object: &ZitiController, observed: &Observed) -> Result<Given, Problem> {
    let status = observed
        .network
        .as_ref()
        .and_then(|network| network.status.as_ref());
    let ready = status.and_then(|status| find(&status.conditions, types::READY));
    let refused = [
        reasons::BAD_CREDENTIALS,
        reasons::TOKEN_SPENT,
        reasons::TOKEN_EXPIRED,
        reasons::TOKEN_REFUSED,
    ];
    let works = ready.is_some_and(|ready| !refused.contains(&ready.reason.as_str()));
    match (
        certificate(&observed.secrets),
        credentials(&observed.secrets),
    ) {
        (Some((cert, key)), _) if works => Ok(Given::Certificate(cert, key)),
        (_, Some((username, password))) => Ok(Given::Password(username, password)),
        (Some((cert, key)), None) => Ok(Given::Certificate(cert, key)),
        (None, None) => Err(Problem::new(
            reasons::SOURCE_MISSING,
            format!(
                "there is no certificate of the operator's own, and no Secret {} with one: {}",
                admin_name(object),
                remedy(object)
            ),
        )),
    }
}

/// Why a member could not be asked. That it refuses the password is told in words of
/// this object: nobody has set `spec.credential`, of which the general words speak.
fn told(object: &ZitiController, observed: &Observed, error: &ManagementError) -> Problem {
    let general = problem::of_management(error);
    if error.kind() != ErrorKind::BadCredentials {
        return general;
    }
    let refused = match credential(object, observed) {
        Ok(Given::Certificate(..)) => "the operator's own certificate".to_owned(),
        _ => format!(
            "the username and password in Secret {}, and the operator has no certificate of its own that it takes",
            admin_name(object)
        ),
    };
    let message = format!("the network refuses {refused}: {}", remedy(object));
    Problem::new(general.reason, message)
}

fn remedy(object: &ZitiController) -> String {
    format!(
        "put username and password of an administrator of the network into Secret {}. They are used until the operator has made itself another identity",
        admin_name(object)
    )
}
