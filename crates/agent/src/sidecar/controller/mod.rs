//! The sidecar's part beside a controller that is a member of a cluster, of one at first. Only the
//! sidecar uses this module.
//!
//! **The first start**: one member, and only the one that the orders name, makes the cluster with its
//! first administrator, or restores a database ([`orders`], [`restore`]). It does so while it is alone.
//! Every other member, and one that has lost its volume, waits until the leader adds it: two members
//! that each make a cluster could never become one. That there is an administrator already is asked
//! of the controller in each life of its process, since a process can end between making a cluster and
//! making its administrator.
//!
//! **Ready** is a member that the cluster's list shows, and which is connected with a leader that the
//! list shows ([`standing`]). It is not latched: a member without a leader refuses every write. That its
//! API answers is for the kubelet to ask, by an HTTPS probe of the controller's own container: a member
//! that comes back to its cluster has a leader before it has opened its API.
//!
//! **Leaving**: whoever leads hands over first ([`handover`]).
//!
//! **Backups** get the database from it ([`snapshots`]).

mod handover;
mod orders;
mod restore;
pub(super) mod snapshots;
mod standing;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::{error, info, warn};
use ziti::ExposeSecret;

pub use self::orders::Orders;
use self::restore::Restores;
use self::standing::{Record, Standing, has_company};
use super::drain::Drain;
use super::{Neighbour, Told};
use crate::socket::controller::{Administrator, Initialized, Member, initialize, members};
use crate::socket::{AgentSocket, Life, SocketError};

/// How often a controller that is no member yet is asked.
const EAGER: Duration = Duration::from_millis(250);
/// How often a member is asked.
const AT_REST: Duration = Duration::from_secs(1);
/// How long nothing is tried again after an act that failed.
const RETRY: Duration = Duration::from_secs(2);
/// How long a controller has to list its members; it takes a few milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How long an initialization may take: two to four seconds on a machine at rest.
const INITIALIZE_WITHIN: Duration = Duration::from_secs(30);

/// A controller beside the sidecar.
#[derive(Debug)]
pub(super) struct Controller {
    tmp: PathBuf,
    orders: Orders,
    record: Mutex<Record>,
}

impl Controller {
    /// The controller whose temporary directory this is.
    pub(super) fn new(tmp: PathBuf, orders: Orders) -> Self {
        Self {
            tmp,
            orders,
            record: Mutex::default(),
        }
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, life: Option<&Life>, standing: Standing) {
        self.record().note(life, standing, Instant::now());
    }

    /// How the controller stands now, after what had to be done for it. `settled` is the life in which
    /// there is an administrator for certain.
    async fn look(
        &self,
        controller: &AgentSocket,
        settled: &mut Option<Life>,
        drain: &Drain,
        told: &mut Told,
    ) -> Standing {
        let members = match members(controller, ANSWER_WITHIN).await {
            Ok(members) => members,
            Err(SocketError::Connect { .. }) => return Standing::Dead,
            Err(error) => {
                if told.is_new(&error.to_string()) {
                    warn!(%error, "the controller does not list its members");
                }
                return Standing::Unanswering;
            }
        };
        let standing = Standing::of(&self.orders.member, &members);
        if drain.is_begun() || standing == Standing::Leaderless || !self.may_act(&members) {
            return standing;
        }
        match self
            .act(controller, settled, standing, members.is_empty())
            .await
        {
            Ok(standing) => standing,
            Err(problem) => {
                if told.is_new(&problem) {
                    error!(problem, "cannot initialize or restore; trying again");
                }
                tokio::time::sleep(RETRY).await;
                Standing::Stuck
            }
        }
    }

    /// Whether this is the member that makes the cluster, and still the only one of it.
    fn may_act(&self, members: &[Member]) -> bool {
        !has_company(&self.orders.member, members) && self.orders.is_appointed()
    }

    /// Restores or initializes where that is still to be done. `is_empty` says whether it lists nobody.
    async fn act(
        &self,
        controller: &AgentSocket,
        settled: &mut Option<Life>,
        standing: Standing,
        is_empty: bool,
    ) -> Result<Standing, String> {
        let life = controller.life();
        let restore = self.orders.restore().map_err(|error| error.to_string())?;
        if let Some(restore) = restore {
            let restores = Restores::on(&self.orders.data);
            return match restores.last().filter(|last| last.is_of(&restore)) {
                Some(last) if last.is_fresh(life) => Ok(Standing::Restored),
                // The administrator is that of the restored database.
                Some(_) => Ok(standing),
                None => {
                    self.note(Some(life), Standing::Restoring);
                    let done = restores.carry_out(&restore, controller, is_empty).await;
                    done.map_err(|error| error.to_string())?;
                    Ok(Standing::Restored)
                }
            };
        }
        if settled.as_ref() == Some(life) {
            return Ok(standing);
        }
        let administrator = self.orders.administrator();
        let administrator = administrator.map_err(|error| error.to_string())?;
        self.note(Some(life), Standing::Appointed);
        match initialize(controller, &administrator, INITIALIZE_WITHIN).await {
            Ok(Initialized::Now) => info!("the controller is initialized"),
            Ok(Initialized::Before) => info!("the controller has been initialized before"),
            Err(error) => return Err(without_password(&error.to_string(), &administrator)),
        }
        *settled = Some(life.clone());
        // What the list said is of before.
        Ok(Standing::Appointed)
    }
}

/// A controller may say what was wrong with a value by showing it.
fn without_password(message: &str, administrator: &Administrator) -> String {
    message.replace(administrator.password.expose_secret(), "******")
}

impl Neighbour for Controller {
    async fn ready(&self) -> Result<String, String> {
        let verdict = match AgentSocket::find(&self.tmp) {
            Err(_) | Ok(None) => Err(Standing::Silent),
            Ok(Some(controller)) => self.record().verdict(controller.life(), Instant::now()),
        };
        let text = |standing: Standing| standing.text().to_owned();
        verdict.map(text).map_err(text)
    }

    async fn watch(&self, drain: &Drain) {
        let mut settled = None;
        let mut before = Standing::Silent;
        let mut told = Told::default();
        loop {
            let (life, standing) = match AgentSocket::find(&self.tmp) {
                Ok(Some(controller)) => {
                    let standing = self.look(&controller, &mut settled, drain, &mut told);
                    (Some(controller.life().clone()), standing.await)
                }
                Ok(None) => (None, Standing::Silent),
                Err(error) => {
                    if told.is_new(&error.to_string()) {
                        error!(%error, "cannot look for the controller");
                    }
                    (None, Standing::Silent)
                }
            };
            self.note(life.as_ref(), standing);
            if standing != before {
                info!("{}", standing.text());
                before = standing;
            }
            let rest = if standing == Standing::Member {
                AT_REST
            } else {
                EAGER
            };
            tokio::time::sleep(rest).await;
        }
    }

    async fn leave(&self) -> Result<(), SocketError> {
        match AgentSocket::find(&self.tmp)? {
            Some(controller) => handover::hand_over(&controller, &self.orders.member).await,
            None => Ok(()),
        }
    }
}
