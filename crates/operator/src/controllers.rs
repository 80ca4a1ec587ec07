//! Keeps the connection to a network with the controller that leads, and asks the others where
//! one word is not enough.
//!
//! Which one that is, [`plan::controllers`] decides; here the controllers are asked and the
//! connection is turned. It is looked at before each list, each write and each opening of the event
//! stream, which costs one small read; a controller that stands alone is asked nothing.

use crate::context::Context;
use crate::networks::{Connection, Network};
use crate::problem;
use api::reasons;
use futures::future::join_all;
use plan::controllers::{Endpoint, Leading, Member, leading, mixed};
use plan::edge_router::Problem;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::timeout;
use tracing::{debug, info};
use ziti::management::{ErrorKind, ManagementClient, ManagementError};

/// How long one of several controllers may take: one that is away shall not hold up a write.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is remembered of the controllers of one network.
#[derive(Default)]
pub(crate) struct Known(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    clustered: bool,
    /// The endpoint that is worked with, and who leads.
    led: Option<(String, Option<String>)>,
    /// The leader, where no endpoint leads to it.
    elsewhere: Option<String>,
    /// Which member answers at an endpoint, by its certificate.
    who: HashMap<String, String>,
    /// Clients for one endpoint alone.
    only: HashMap<String, ManagementClient>,
}

impl Known {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The network is reached in another way now.
    pub(crate) fn forget(&self) {
        let mut memory = self.memory();
        // It is the same network.
        let clustered = memory.clustered;
        *memory = Memory {
            clustered,
            ..Memory::default()
        };
    }

    /// Keep whether they are a cluster, of whatever size, so that one leads.
    pub(crate) fn clustered(&self, clustered: bool) {
        self.memory().clustered = clustered;
    }

    /// The endpoint that is worked with, once a leader was looked for.
    pub(crate) fn led_at(&self) -> Option<String> {
        self.memory().led.as_ref().map(|(at, _)| at.clone())
    }

    /// The leader's name and address, where no endpoint leads to it, as last looked for.
    pub(crate) fn elsewhere(&self) -> Option<String> {
        self.memory().elsewhere.clone()
    }

    /// Keep which endpoint is worked with, and who leads. Says whether that is news.
    fn led_by(&self, endpoint: &str, leader: Option<String>) -> bool {
        let led = Some((endpoint.to_owned(), leader));
        let mut memory = self.memory();
        let news = memory.led != led;
        memory.led = led;
        news
    }

    /// A client for the leader alone, where one is known: a call that must not fall
    /// through to another controller.
    pub(crate) fn leader(&self, connection: &Connection) -> Option<ManagementClient> {
        let at = self.led_at().filter(|_| self.memory().clustered)?;
        self.only(connection, &at)
    }

    /// Which member answers at these endpoints, by what was found earlier.
    fn who(&self, endpoints: &[Endpoint]) -> Vec<Endpoint> {
        let memory = self.memory();
        let known = |endpoint: &Endpoint| Endpoint {
            url: endpoint.url.clone(),
            member: memory.who.get(&endpoint.url).cloned(),
        };
        endpoints.iter().map(known).collect()
    }

    fn keep_who(&self, endpoints: &[Endpoint]) {
        let known = endpoints
            .iter()
            .filter_map(|endpoint| Some((endpoint.url.clone(), endpoint.member.clone()?)));
        self.memory().who.extend(known);
    }

    /// A client for one endpoint of the connection alone; its session is kept.
    fn only(&self, connection: &Connection, endpoint: &str) -> Option<ManagementClient> {
        let mut memory = self.memory();
        if let Some(client) = memory.only.get(endpoint) {
            return Some(client.clone());
        }
        let client = connection.client.only(endpoint).ok()?;
        memory.only.insert(endpoint.to_owned(), client.clone());
        Some(client)
    }
}

/// How the controllers of a network stand.
#[derive(Default)]
pub(crate) struct Standing {
    /// All of them, by the word of the leader; none where they are no cluster, or where the
    /// credential may not ask.
    pub(crate) members: Vec<Member>,
    /// The leader, where no endpoint leads to it.
    pub(crate) elsewhere: Option<Member>,
}

impl Standing {
    /// The same where the cluster takes writes.
    ///
    /// # Errors
    /// While its members run different versions: a write would fail, some of it after
    /// it was begun.
    pub(crate) fn writable(self) -> Result<Self, Problem> {
        match mixed(&self.members) {
            Some(problem) => Err(problem),
            None => Ok(self),
        }
    }
}

/// Find the leader, and have the next calls go there. Wakes whoever must know when it is another
/// one than before.
///
/// # Errors
/// Where no controller answers, or none of those that do knows a leader.
pub(crate) async fn follow(
    context: &Context,
    network: &Network,
    connection: &Connection,
) -> Result<Standing, Problem> {
    if !network.controllers.memory().clustered || !connection.has_credential {
        return Ok(Standing::default());
    }
    let members = match members(network, connection).await {
        Ok(members) => members,
        // Lists and writes may be allowed nevertheless.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Forbidden | ErrorKind::NotFound | ErrorKind::NotACluster
            ) =>
        {
            debug!(network = network.key.1, %error, "the leader cannot be asked for");
            return Ok(Standing::default());
        }
        Err(error) => return Err(problem::of_management(&error)),
    };
    let client = &connection.client;
    let mut endpoints: Vec<Endpoint> = client.endpoints().iter().map(|url| plain(url)).collect();
    if let Leading::Elsewhere(_) = leading(&members, &endpoints) {
        endpoints = network.controllers.who(&endpoints);
    }
    if let Leading::Elsewhere(_) = leading(&members, &endpoints) {
        // Addresses differ inside and outside of a cluster; certificates do not.
        let answering = endpoints.iter().map(|endpoint| who(client, &endpoint.url));
        endpoints = join_all(answering).await;
        network.controllers.keep_who(&endpoints);
    }
    let (at, elsewhere) = match leading(&members, &endpoints) {
        Leading::Nobody => return Err(leaderless(network)),
        Leading::Alone => (client.endpoint().await.to_owned(), None),
        Leading::Elsewhere(leader) => {
            let leader = Some(leader.clone());
            (client.endpoint().await.to_owned(), leader)
        }
        Leading::At(url) => {
            client.turn_to(url).await;
            (url.to_owned(), None)
        }
    };
    let told = elsewhere.as_ref().map(Member::told);
    network.controllers.memory().elsewhere = told;
    let leader = members.iter().find(|member| member.leader);
    let leader = leader.map(|leader| leader.id.clone());
    if network.controllers.led_by(&at, leader.clone()) {
        network.turned.send_replace(());
        info!(
            network = network.key.1,
            endpoint = at,
            leader,
            "the controller to work with"
        );
        context.networks.wake_network(&network.key);
    }
    Ok(Standing { members, elsewhere })
}

/// Another controller that sees the router online. Those that cannot be asked say nothing.
pub(crate) async fn online_elsewhere(
    network: &Network,
    connection: &Connection,
    router: &str,
) -> Option<String> {
    let asked = others(network, connection).await;
    let asked = asked.iter().map(async |(endpoint, client)| {
        let router = timeout(PATIENCE, client.edge_router(router)).await;
        match router {
            Ok(Ok(router)) => router.is_some_and(|router| router.is_online),
            Ok(Err(error)) => {
                debug!(endpoint, %error, "this controller could not be asked");
                false
            }
            Err(_) => {
                debug!(endpoint, "this controller did not answer");
                false
            }
        }
        .then(|| endpoint.clone())
    });
    join_all(asked).await.into_iter().flatten().next()
}

/// Who is in the cluster, by a controller that knows a leader, if there is one. One that is cut off
/// knows of none; one that has lost its volume refuses every credential until it has caught up.
async fn members(
    network: &Network,
    connection: &Connection,
) -> Result<Vec<Member>, ManagementError> {
    let told = connection.client.cluster_members().await.map(read);
    let knows = |members: &[Member]| members.iter().any(|member| member.leader);
    if told.as_ref().is_ok_and(|members| knows(members)) {
        return told;
    }
    let others = others(network, connection).await;
    let asked = others
        .iter()
        .map(|(_, client)| timeout(PATIENCE, client.cluster_members()));
    let answers = join_all(asked).await.into_iter().flatten().flatten();
    let better = answers.map(read).find(|members| knows(members));
    better.map_or(told, Ok)
}

fn read(members: Vec<ziti::management::Member>) -> Vec<Member> {
    members
        .into_iter()
        .map(|member| Member {
            version: Some(member.version).filter(|_| member.connected),
            id: member.id,
            address: member.address,
            leader: member.leader,
        })
        .collect()
}

/// Clients for every endpoint but the one that is worked with.
async fn others(network: &Network, connection: &Connection) -> Vec<(String, ManagementClient)> {
    let current = connection.client.endpoint().await;
    let endpoints = connection.client.endpoints().iter();
    let others = endpoints.filter(|endpoint| *endpoint != current);
    others
        .filter_map(|endpoint| {
            Some((
                endpoint.clone(),
                network.controllers.only(connection, endpoint)?,
            ))
        })
        .collect()
}

async fn who(client: &ManagementClient, url: &str) -> Endpoint {
    let member = timeout(PATIENCE, client.member_at(url)).await;
    Endpoint {
        url: url.to_owned(),
        member: member.ok().flatten(),
    }
}

fn plain(url: &str) -> Endpoint {
    Endpoint {
        url: url.to_owned(),
        member: None,
    }
}

fn leaderless(network: &Network) -> Problem {
    Problem::new(
        reasons::CONTROLLER_UNREACHABLE,
        format!(
            "the controllers of ZitiNetwork {} have no leader, so they take no writes: it is tried again, and running routers are left \
             alone. If it stays so, more than half of the controllers are away: bring them back",
            network.key.1
        ),
    )
}
