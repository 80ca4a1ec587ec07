//! The Ziti networks that this process is connected to.
//!
//! The ZitiNetwork controller puts them in and judges them; the EdgeRouter
//! controller asks and writes through them; the poller ([`crate::poller`]) keeps
//! a picture of all routers, so that a steady state costs one list now and then
//! and not a call for each router. A credential stays here, in memory, until
//! the last EdgeRouter of its network is gone.

use crate::cadence::Cadence;
use crate::controllers::Known;
use crate::picture::{Picture, Rows};
use crate::problem;
use api::{EdgeRouter, ZitiNetwork, names, reasons};
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use plan::edge_router::Problem;
use plan::network::Verdict;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::{Notify, watch};
use ziti::management::{EdgeRouterEntity, Filter, ManagementClient, ManagementError};
use ziti::trust::CaBundle;

/// Namespace and name of a ZitiNetwork.
pub(crate) type Key = (String, String);

/// All networks, and the ends by which others are woken.
#[derive(Clone)]
pub(crate) struct Networks {
    map: Arc<Mutex<HashMap<Key, Arc<Network>>>>,
    edge_routers: UnboundedSender<ObjectRef<EdgeRouter>>,
    owners: UnboundedSender<ObjectRef<ZitiNetwork>>,
}

/// What wakes the two controllers.
pub(crate) struct Wakers {
    pub(crate) edge_routers: UnboundedReceiver<ObjectRef<EdgeRouter>>,
    pub(crate) networks: UnboundedReceiver<ObjectRef<ZitiNetwork>>,
}

/// One network.
pub(crate) struct Network {
    pub(crate) key: Key,
    state: Mutex<State>,
    /// Writes to one network go one after another: many at a time are slower.
    pub(crate) writes: tokio::sync::Mutex<()>,
    /// Wakes the poller: something begins to be watched closely, or happened.
    pub(crate) wake: Notify,
    /// Tells the event stream that the network was judged anew, is reached in
    /// another way, or was forgotten.
    pub(crate) turned: watch::Sender<()>,
    /// Which of its controllers is worked with.
    pub(crate) controllers: Known,
}

/// How a network is reached.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) client: ManagementClient,
    pub(crate) bundle: CaBundle,
    pub(crate) has_credential: bool,
    pub(crate) credential_expiry: Option<Timestamp>,
    /// Digest of everything that the connection was made of.
    pub(crate) inputs: String,
}

struct State {
    connection: Option<Connection>,
    verdict: Result<Verdict, Problem>,
    last_good: Option<Verdict>,
    names_controllers: bool,
    picture: Picture,
    closely: HashSet<String>,
    streamed: bool,
    hinted: Option<tokio::time::Instant>,
    tokens: HashMap<String, bool>,
}

/// What a caller may do with a network now.
pub(crate) enum Access {
    /// Nothing yet, or not now.
    No(Problem),
    /// Reach it, but not log in.
    Anonymous(Connection),
    /// Everything.
    Full(Connection, Verdict),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is kept is replaced whole; a panic elsewhere leaves it usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Networks {
    pub(crate) fn new() -> (Self, Wakers) {
        let (edge_routers, woken_edge_routers) = unbounded();
        let (networks, woken_networks) = unbounded();
        let all = Self {
            map: Arc::default(),
            edge_routers,
            owners: networks,
        };
        (
            all,
            Wakers {
                edge_routers: woken_edge_routers,
                networks: woken_networks,
            },
        )
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<Network>> {
        lock(&self.map)
            .get(&(namespace.to_owned(), name.to_owned()))
            .cloned()
    }

    /// The network of that name; the second says whether it is new.
    pub(crate) fn get_or_insert(&self, key: &Key) -> (Arc<Network>, bool) {
        let mut map = lock(&self.map);
        if let Some(network) = map.get(key) {
            return (network.clone(), false);
        }
        let network = Arc::new(Network::new(key.clone()));
        map.insert(key.clone(), network.clone());
        (network, true)
    }

    /// Forget a network, and with it its credential.
    pub(crate) fn remove(&self, key: &Key) {
        let removed = lock(&self.map).remove(key);
        if let Some(network) = removed {
            // Ends the poller and the event stream.
            network.wake.notify_waiters();
            network.turned.send_replace(());
        }
    }

    pub(crate) fn contains(&self, network: &Arc<Network>) -> bool {
        lock(&self.map)
            .get(&network.key)
            .is_some_and(|known| Arc::ptr_eq(known, network))
    }

    pub(crate) fn wake_edge_router(&self, namespace: &str, name: &str) {
        // The other end is gone only when the process ends.
        let _ = self
            .edge_routers
            .unbounded_send(ObjectRef::new(name).within(namespace));
    }

    pub(crate) fn wake_network(&self, key: &Key) {
        let _ = self
            .owners
            .unbounded_send(ObjectRef::new(&key.1).within(&key.0));
    }
}

impl Network {
    fn new(key: Key) -> Self {
        let waiting = Problem::new(
            reasons::NETWORK_NOT_READY,
            format!("ZitiNetwork {} has not been reached yet", key.1),
        );
        Self {
            key,
            state: Mutex::new(State {
                connection: None,
                verdict: Err(waiting),
                last_good: None,
                names_controllers: false,
                picture: Picture::default(),
                closely: HashSet::new(),
                streamed: false,
                hinted: None,
                tokens: HashMap::new(),
            }),
            writes: tokio::sync::Mutex::new(()),
            wake: Notify::new(),
            turned: watch::Sender::new(()),
            controllers: Known::default(),
        }
    }

    pub(crate) fn connection(&self) -> Option<Connection> {
        lock(&self.state).connection.clone()
    }

    /// Keep a connection; one made of other inputs makes the picture void.
    pub(crate) fn connect(&self, connection: Connection) {
        let mut state = lock(&self.state);
        if state.connection.as_ref().map(|known| &known.inputs) != Some(&connection.inputs) {
            state.picture.clear();
            state.tokens.clear();
            self.controllers.forget();
            self.turned.send_replace(());
        }
        state.connection = Some(connection);
    }

    /// Keep what was found about the network. Says whether that is news.
    pub(crate) fn judge(&self, verdict: Result<Verdict, Problem>, names_controllers: bool) -> bool {
        let mut state = lock(&self.state);
        let same = match (&state.verdict, &verdict) {
            (Ok(have), Ok(new)) => have == new,
            (Err(have), Err(new)) => have.reason == new.reason,
            _ => false,
        } && state.names_controllers == names_controllers;
        if let Ok(good) = &verdict {
            let known = state.last_good.replace(good.clone());
            if known.is_some_and(|known| known.identity != good.identity) {
                // A person confirmed another network: the picture is of the
                // one before it.
                state.picture.clear();
                state.tokens.clear();
            }
        }
        state.verdict = verdict;
        state.names_controllers = names_controllers;
        if !same {
            self.turned.send_replace(());
        }
        !same
    }

    pub(crate) fn names_controllers(&self) -> bool {
        lock(&self.state).names_controllers
    }

    /// What may be done with the network. `deleting`: for an EdgeRouter that is
    /// being deleted, a Secret that went first is no obstacle while the
    /// credential is still in memory.
    pub(crate) fn access(&self, deleting: bool) -> Access {
        let state = lock(&self.state);
        let (Some(connection), name) = (state.connection.clone(), &self.key.1) else {
            return Access::No(match &state.verdict {
                Err(problem) => not_ready(&self.key.1, problem),
                Ok(_) => Problem::new(
                    reasons::NETWORK_NOT_READY,
                    format!("ZitiNetwork {} has not been reached yet", self.key.1),
                ),
            });
        };
        let sourceless = |problem: &Problem| {
            matches!(
                problem.reason,
                reasons::SOURCE_MISSING | reasons::KEY_MISSING
            )
        };
        let verdict = match (&state.verdict, &state.last_good) {
            (Ok(verdict), _) => verdict.clone(),
            (Err(problem), Some(good)) if deleting && sourceless(problem) => good.clone(),
            (Err(problem), _) => return Access::No(not_ready(name, problem)),
        };
        if connection.has_credential {
            Access::Full(connection, verdict)
        } else {
            Access::Anonymous(connection)
        }
    }

    pub(crate) fn rows(&self) -> Option<Rows> {
        lock(&self.state).picture.rows()
    }

    /// Keep a list of the routers that was asked for at `asked`. Returns the
    /// ids of which something differs.
    pub(crate) fn keep_rows(
        &self,
        entities: Vec<EdgeRouterEntity>,
        server_time: Option<Timestamp>,
        asked: Instant,
        now: Timestamp,
    ) -> Vec<String> {
        lock(&self.state)
            .picture
            .list(entities, server_time, asked, now)
    }

    /// How long the router has been seen offline.
    pub(crate) fn offline_for(
        &self,
        entity: &EdgeRouterEntity,
        now: Timestamp,
    ) -> Option<SignedDuration> {
        lock(&self.state).picture.offline_for(entity, now)
    }

    /// Another controller has just seen the router online: how long it was
    /// offline is counted anew.
    pub(crate) fn seen_online(&self, id: &str) {
        lock(&self.state).picture.seen_online(id);
    }

    /// Ask for every router of this id, name or owner, now.
    pub(crate) async fn look_up(
        &self,
        connection: &Connection,
        id: Option<&str>,
        name: &str,
        owner: &Owner,
    ) -> Result<(Vec<EdgeRouterEntity>, Option<Timestamp>), Problem> {
        let filter = filter_for(id, name, owner)
            .map_err(|error| Problem::new(reasons::NAME_INVALID, error))?;
        let asked = Instant::now();
        let listed = connection
            .client
            .edge_routers(&filter)
            .await
            .map_err(|error| self.failed(&error))?;
        self.learn(id, owner, &listed.items, asked);
        Ok((listed.items, listed.server_time))
    }

    /// Keep what a look showed of the router that was looked for. Of others
    /// that have its name, whoever has them learns from the next list.
    fn learn(&self, id: Option<&str>, owner: &Owner, found: &[EdgeRouterEntity], asked: Instant) {
        let own = |entity: &&EdgeRouterEntity| {
            let uid = entity.tags.get(names::TAG_UID);
            Some(entity.id.as_str()) == id || uid.is_some_and(|uid| *uid == owner.uid)
        };
        let picture = &mut lock(&self.state).picture;
        for entity in found.iter().filter(own) {
            picture.look(&entity.id, Some(entity), asked);
        }
        if let Some(id) = id
            && found.iter().all(|entity| entity.id != id)
        {
            picture.look(id, None, asked);
        }
    }

    /// A failure in the API's words; where the network itself is at fault, it
    /// is told there, and the routers only wait.
    pub(crate) fn failed(&self, error: &ManagementError) -> Problem {
        let problem = problem::of_management(error);
        if is_networks_fault(&problem) {
            not_ready(&self.key.1, &problem)
        } else {
            problem
        }
    }

    /// Whether a token was signed by this network, if that was found out.
    pub(crate) fn token_is_ours(&self, digest: &str) -> Option<bool> {
        lock(&self.state).tokens.get(digest).copied()
    }

    pub(crate) fn keep_token(&self, digest: &str, ours: bool) {
        lock(&self.state).tokens.insert(digest.to_owned(), ours);
    }

    /// Begin or end to watch an EdgeRouter closely.
    pub(crate) fn watch(&self, edge_router: &str, closely: bool) {
        let mut state = lock(&self.state);
        if !closely {
            state.closely.remove(edge_router);
        } else if state.closely.insert(edge_router.to_owned()) {
            self.wake.notify_waiters();
        }
    }

    /// Whether the event stream tells what happens.
    pub(crate) fn streams(&self, streamed: bool) {
        lock(&self.state).streamed = streamed;
    }

    /// Something happened to a router: have the poller look.
    pub(crate) fn hint(&self) {
        lock(&self.state).hinted = Some(tokio::time::Instant::now());
        self.wake.notify_waiters();
    }

    /// Whether a router may be of interest. All are until they were listed.
    pub(crate) fn knows(&self, id: &str) -> bool {
        let rows = self.rows();
        rows.is_none_or(|rows| rows.entities.contains_key(id))
    }

    /// What the next list waits for.
    pub(crate) fn cadence(&self) -> Cadence {
        let state = lock(&self.state);
        Cadence {
            closely: !state.closely.is_empty(),
            streamed: state.streamed,
            hinted: state.hinted,
        }
    }
}

/// Whether a problem is the network's and not that of one router.
pub(crate) fn is_networks_fault(problem: &Problem) -> bool {
    matches!(
        problem.reason,
        reasons::CONTROLLER_UNREACHABLE
            | reasons::CONTROLLER_NOT_TRUSTED
            | reasons::BAD_CREDENTIALS
            | reasons::FORBIDDEN
    )
}

/// A network's fault, as an EdgeRouter tells it.
pub(crate) fn not_ready(network: &str, problem: &Problem) -> Problem {
    match problem.reason {
        // These stop an EdgeRouter in their own right.
        reasons::NETWORK_CHANGED | reasons::FOREIGN_INSTALL | reasons::NETWORK_ENDS => {
            problem.clone()
        }
        _ => Problem::new(
            reasons::NETWORK_NOT_READY,
            format!("ZitiNetwork {network} is not ready: {}", problem.message),
        ),
    }
}

/// The object that a router on the network belongs to, by the tags that it
/// carries.
pub(crate) struct Owner {
    uid: String,
    namespace: String,
    name: String,
}

impl Owner {
    pub(crate) fn of(object: &EdgeRouter) -> Self {
        Self {
            uid: object.uid().unwrap_or_default(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        }
    }

    /// Whether the tags name this object, or one that was in its place: a
    /// restore or a re-creation has another uid.
    pub(crate) fn is_named_by(&self, tags: &serde_json::Map<String, serde_json::Value>) -> bool {
        let is = |key: &str, value: &str| tags.get(key).is_some_and(|have| have == value);
        is(names::TAG_UID, &self.uid)
            || (is(names::TAG_NAMESPACE, &self.namespace) && is(names::TAG_NAME, &self.name))
    }
}

fn filter_for(id: Option<&str>, name: &str, owner: &Owner) -> Result<Filter, String> {
    let told = |error: ziti::management::FilterError| error.to_string();
    let tag = |key: &str, value: &str| Filter::tag(key, value).map_err(told);
    let mut filter = Filter::equals("name", name).map_err(told)?;
    filter = filter.or(&tag(names::TAG_UID, &owner.uid)?);
    let place = tag(names::TAG_NAMESPACE, &owner.namespace)?;
    filter = filter.or(&place.and(&tag(names::TAG_NAME, &owner.name)?));
    if let Some(id) = id {
        filter = filter.or(&Filter::equals("id", id).map_err(told)?);
    }
    Ok(filter)
}
