//! Decides for one `EdgeRouter`: register it, give it a token, take the token
//! away once used, heal a lost identity, let it go.
//!
//! The controller observes [`Facts`], calls [`plan`], applies the steps in
//! their order, stops at the first that fails, observes again and calls again
//! until no step is left; then it writes the status. [`delete`] and [`token`]
//! hold the two longer decisions; [`draft`] gathers what is decided, and [`status`]
//! puts facts into words.

mod certificate;
mod decide;
mod delete;
mod desired;
mod draft;
mod owner;
mod paused;
mod provided;
mod status;
mod taken;
mod token;

pub use certificate::RENEWED_BY;
pub use decide::plan;
pub use desired::wanted_name;
pub use draft::after_failure;
pub use owner::{Claim, Owner, is_ours, owner, tags_are_of_object};

use crate::Settings;
use crate::token::TokenFacts;
use api::edge_router::Intent;
use api::{EdgeRouter, EdgeRouterStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// How long a router must be offline before a new identity may be made for it:
/// within this time of a connection the controller refuses a second one
/// (`network.routerConnectChurnLimit`, 1 minute by default).
pub const CHURN_LIMIT: SignedDuration = SignedDuration::from_secs(60);

/// The least time between two re-enrollments of one router.
pub const RE_ENROLL_INTERVAL: SignedDuration = SignedDuration::from_secs(120);

/// How often a router that could not be registered is looked at again. What is
/// in its way may go without a sign to us: the list of our routers does not
/// hold somebody else's that has its name.
const UNREGISTERED: SignedDuration = SignedDuration::from_secs(10);

/// How long a request whose reply was lost may still be carried out. The
/// controller gives a request 10 s.
pub const LATE_COMMIT: SignedDuration = SignedDuration::from_secs(15);

/// Everything that was observed.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The object, with its last status.
    pub object: &'a EdgeRouter,
    /// This installation.
    pub settings: &'a Settings,
    /// What the network says.
    pub network: NetworkFacts,
    /// The token that a person gave; `None` where tokens are managed.
    pub provided: Option<Result<TokenFacts, Problem>>,
    /// The Secret `<name>-enrollment`.
    pub secret: SecretFacts,
    /// The operator's clock.
    pub now: Timestamp,
}

/// A cause that keeps something from being done, in the API's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A constant of [`api::reasons`].
    pub reason: &'static str,
    /// A sentence that names the object and what to do next.
    pub message: String,
}

impl Problem {
    /// A problem.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// What the network says.
#[derive(Clone, Debug, PartialEq)]
pub enum NetworkFacts {
    /// The object names no network.
    NotReferenced,
    /// The network has no credential: it can be reached but not asked.
    NoCredential(NetworkBasics),
    /// The network cannot be asked now.
    Unusable(Problem),
    /// The network was asked.
    Known(View),
}

/// What is known of a network without a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkBasics {
    /// The controller's clock, where it was read.
    pub server_time: Option<Timestamp>,
    /// Whether the provided token was signed by this network's controller;
    /// `None` where that could not be found out.
    pub token_is_ours: Option<bool>,
    /// Whether the network itself names the controllers that routers dial.
    pub names_controllers: bool,
    /// The controller that leads the cluster, in a few words, where none of the
    /// ZitiNetwork's addresses leads to it: only its new tokens are good.
    pub leader_elsewhere: Option<String>,
}

/// What the network said when it was asked for this router.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Identity of the network (see `ZitiNetwork.status.networkIdentity`).
    pub identity: String,
    /// Whether a person confirmed that this is the right network now.
    pub identity_confirmed: bool,
    /// The installation that this one takes over from, on a person's word: the
    /// value of [`api::names::ANNOTATION_CONFIRM_INSTALL`] on the ZitiNetwork.
    pub confirmed_install: Option<String>,
    /// What else is known of the network.
    pub basics: NetworkBasics,
    /// Every router that has the recorded id, the id that a provided token is
    /// for, our tags (of whatever uid), or the wanted name.
    pub entities: Vec<Entity>,
    /// Whether so many of our routers are missing at once that something else
    /// must be wrong.
    pub many_missing: bool,
    /// Whether the network was asked after the object was read, rather than
    /// some seconds before.
    pub fresh: bool,
}

/// One edge router on the network.
#[expect(
    clippy::struct_excessive_bools,
    reason = "as the network's API has them"
)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entity {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its tags; one that is no string is given as JSON.
    pub tags: BTreeMap<String, String>,
    /// Its role attributes, sorted.
    pub role_attributes: Vec<String>,
    /// Whether it may host and dial services.
    pub tunneler_enabled: bool,
    /// Its cost.
    pub cost: i32,
    /// Whether paths may not pass through it.
    pub no_traversal: bool,
    /// Whether its token was redeemed.
    pub verified: bool,
    /// Whether it is connected.
    pub online: bool,
    /// Another controller of the network to which it is connected, where this
    /// one says that it is not. Asked for only before a re-enrollment.
    pub online_elsewhere: Option<String>,
    /// Whether its data is in sync.
    pub synced: bool,
    /// Fingerprint of the certificate that is expected of it.
    pub fingerprint: Option<String>,
    /// When that certificate runs out, where the network shows it.
    pub certificate_expiry: Option<Timestamp>,
    /// The token that waits for it.
    pub token: Option<TokenFacts>,
    /// How long this operator has seen it offline, not verified otherwise and
    /// with no other fingerprint than now; `None` while online. A certificate
    /// that was made a moment ago is about to be used.
    pub offline_for: Option<SignedDuration>,
    /// The version that it reports.
    pub version: Option<String>,
    /// The host name that it reports.
    pub hostname: Option<String>,
}

/// The Secret `<name>-enrollment`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretFacts {
    /// It does not exist.
    Absent,
    /// It exists and the operator did not make it.
    Foreign,
    /// It exists; the digest is that of the token in it, if any.
    Ours(Option<String>),
}

impl SecretFacts {
    /// Digest of the token in it, if any.
    pub fn digest(&self) -> Option<&str> {
        match self {
            Self::Ours(digest) => digest.as_deref(),
            Self::Absent | Self::Foreign => None,
        }
    }
}

/// What is to be done, and what to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What to do, in this order.
    pub steps: Vec<Step>,
    /// The status to write when no step is left. The report of the pod is not
    /// in it: another field manager owns that.
    pub status: EdgeRouterStatus,
    /// When to look again although nothing happened.
    pub requeue: Option<SignedDuration>,
    /// Whether something is pending that only the network can tell, so that
    /// it is asked often.
    pub watch_closely: bool,
}

impl Plan {
    /// Whether the network must be asked anew before any of this is done: a
    /// list of some seconds ago is no ground for writing to the network, nor
    /// for believing that a router is gone from it.
    pub fn needs_fresh_look(&self) -> bool {
        let lets_go = |step: &Step| *step == Step::ReleaseFinalizer;
        self.steps
            .iter()
            .any(|step| step.writes_to_network() || lets_go(step))
    }

    /// Whether every controller of the network must be asked about the router
    /// before any of this is done: one that sees it offline may be the one that
    /// is cut off, and a new token voids the certificate that the router uses.
    pub fn needs_every_controller(&self) -> bool {
        let voids = |step: &Step| matches!(step, Step::ReEnroll { .. });
        self.steps.iter().any(voids)
    }
}

/// Whether so many of the routers that were registered are missing at once that
/// chance is no explanation: all of them, or more than three and more than a
/// tenth. The only one counts as all: what answers may be another network.
pub fn many_missing(registered: usize, missing: usize) -> bool {
    missing > 0 && (missing >= registered || missing > (registered / 10).max(3))
}

/// One act.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Put our finalizer on the object.
    AddFinalizer,
    /// Write the intent (and the time of a re-enrollment) into the status, on
    /// condition that the object is the one observed.
    RecordIntent {
        /// The intent.
        intent: Intent,
        /// Whether this is a re-enrollment, whose time is kept.
        re_enrollment: bool,
    },
    /// Register the router.
    Create(RouterSpec),
    /// Put our tags on a router, taking it over.
    Claim {
        /// Its id.
        id: String,
        /// All of its tags, ours among them.
        tags: BTreeMap<String, String>,
    },
    /// Bring the router in line with the object.
    Update {
        /// Its id.
        id: String,
        /// What differs.
        changes: Changes,
    },
    /// Give the router a new token; its old certificate is void at once.
    ReEnroll {
        /// Its id.
        id: String,
        /// Why, for the event.
        why: String,
    },
    /// Delete the router.
    Delete {
        /// Its id.
        id: String,
    },
    /// Put the token with this digest into the Secret.
    PublishToken {
        /// Digest of the token.
        digest: String,
        /// Whose token it is.
        source: TokenSource,
    },
    /// Empty the Secret.
    EmptyToken,
    /// Take our finalizer off.
    ReleaseFinalizer,
}

impl Step {
    /// Whether the step changes the network.
    pub fn writes_to_network(&self) -> bool {
        match self {
            Self::Create(_)
            | Self::Claim { .. }
            | Self::Update { .. }
            | Self::ReEnroll { .. }
            | Self::Delete { .. } => true,
            Self::AddFinalizer
            | Self::RecordIntent { .. }
            | Self::PublishToken { .. }
            | Self::EmptyToken
            | Self::ReleaseFinalizer => false,
        }
    }
}

/// Where a token's text is to be taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// From the router's row on the network.
    Network,
    /// From the Secret that a person gave.
    Provided,
}

/// A router to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterSpec {
    /// Its name.
    pub name: String,
    /// Its role attributes, sorted.
    pub role_attributes: Vec<String>,
    /// Whether it may host and dial services.
    pub tunneler_enabled: bool,
    /// Its cost.
    pub cost: i32,
    /// Whether paths may not pass through it.
    pub no_traversal: bool,
    /// Its tags, ours among them.
    pub tags: BTreeMap<String, String>,
}

/// A value that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<T> {
    /// What it is.
    pub from: T,
    /// What it should be.
    pub to: T,
}

/// What differs between a router and its object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// New role attributes.
    pub role_attributes: Option<Change<Vec<String>>>,
    /// New tunneler permission.
    pub tunneler_enabled: Option<Change<bool>>,
    /// New cost.
    pub cost: Option<Change<i32>>,
    /// New traversal rule.
    pub no_traversal: Option<Change<bool>>,
    /// All tags anew: Ziti replaces the map whole.
    pub tags: Option<Change<BTreeMap<String, String>>>,
}

impl Changes {
    /// Whether nothing differs. An empty PATCH is a server error in a cluster.
    pub fn is_empty(&self) -> bool {
        self == &Self::default()
    }

    /// Whether they do no more than tell the installation from others of its
    /// id: what an upgrade brings, and nobody's doing.
    pub fn only_mark_installation(&self) -> bool {
        let Some(tags) = &self.tags else {
            return false;
        };
        let mut before = tags.from.clone();
        let mut after = tags.to.clone();
        before.remove(api::names::TAG_INSTALL_UID);
        after.remove(api::names::TAG_INSTALL_UID);
        let others = Self {
            tags: None,
            ..self.clone()
        };
        before == after && others.is_empty()
    }

    /// The router as it is with them.
    pub fn carry_out(&self, entity: &mut Entity) {
        let Self {
            role_attributes,
            tunneler_enabled,
            cost,
            no_traversal,
            tags,
        } = self;
        if let Some(change) = role_attributes {
            entity.role_attributes.clone_from(&change.to);
        }
        if let Some(change) = tunneler_enabled {
            entity.tunneler_enabled = change.to;
        }
        if let Some(change) = cost {
            entity.cost = change.to;
        }
        if let Some(change) = no_traversal {
            entity.no_traversal = change.to;
        }
        if let Some(change) = tags {
            entity.tags.clone_from(&change.to);
        }
    }

    /// What they are, from what to what, in words.
    pub fn told(&self) -> String {
        fn told<T: Debug>(what: &str, change: Option<&Change<T>>) -> Option<String> {
            change.map(|change| format!("{what} {:?} → {:?}", change.from, change.to))
        }
        let tags = self.tags.as_ref().map(|change| {
            let have = |key: &String| change.from.get(key) != change.to.get(key);
            let keys: BTreeSet<&String> = change.from.keys().chain(change.to.keys()).collect();
            let differing = keys.into_iter().filter(|key| have(key));
            let told = differing.map(|key| {
                let value = |tags: &BTreeMap<String, String>| match tags.get(key) {
                    Some(value) => format!("{value:?}"),
                    None => "nothing".to_owned(),
                };
                format!("tag {key} {} → {}", value(&change.from), value(&change.to))
            });
            told.collect::<Vec<_>>().join(", ")
        });
        let parts = [
            told("role attributes", self.role_attributes.as_ref()),
            told("tunneler enabled", self.tunneler_enabled.as_ref()),
            told("cost", self.cost.as_ref()),
            told("no traversal", self.no_traversal.as_ref()),
            tags,
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}
