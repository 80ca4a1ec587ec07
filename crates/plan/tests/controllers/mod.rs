//! A world in memory for the planner of `ZitiController`: a Kubernetes, a cluster
//! of Ziti controllers on it, certificates that end, a user who changes their
//! mind, and the operator between them.
//!
//! [`play`] runs a [`Script`], looks at every invariant after each step, then
//! stops the faults and sees that all comes to rest as wished. It answers with
//! the first thing that is wrong and the log of what happened until then.

mod act;
mod copies;
mod kube;
mod operator;
mod raft;
mod script;
mod secrets;
mod settle;

pub(crate) use script::{Action, Fault, Script, script};

use self::kube::Kube;
use self::secrets::Secrets;
use api::controller::ZitiControllerSpec;
use api::{ZitiController, ZitiNetwork};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plan::Settings;
use plan::controller::{FailedJoin, Users};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const NAME: &str = "ziti";
pub(crate) const NAMESPACE: &str = "farm";

/// Everything.
pub(crate) struct World {
    now: Timestamp,
    settings: Settings,
    /// What the user wishes, also while there is no object.
    spec: ZitiControllerSpec,
    object: Option<ZitiController>,
    kube: Kube,
    secrets: Secrets,
    /// Backups and restores.
    store: copies::Store,
    /// The root as a person has it.
    backup: Option<plan::controller::RootFacts>,
    network: Option<ZitiNetwork>,
    /// Serial of the operator's identity that the ZitiNetwork works with.
    enrolled: Option<i64>,
    users: Users,
    /// Who leads the cluster.
    leader: Option<i32>,
    /// When somebody was last seen to lead.
    led_at: Timestamp,
    /// Whose turn it is in an election.
    turn: i32,
    /// How many networks were made.
    networks: u32,
    /// How far the operator's clock is ahead, in seconds.
    skew: i64,
    /// Members dial each other at addresses that were in use before as well.
    old_names_live: bool,
    /// A member that was removed stays connected while it runs.
    lingering: bool,
    /// A person took volumes away.
    accidents: bool,
    /// Members whose network is broken.
    cut: BTreeSet<i32>,
    /// Members that could not be taken in, as the operator remembers them.
    joins: BTreeMap<String, FailedJoin>,
    /// How the last object said that volumes go with it, once its finalizer is off.
    kept: Option<api::router::RetentionPolicy>,
    broken: Option<String>,
    log: Vec<String>,
}

/// Play a script. The error is what is wrong, and the log.
pub(crate) fn play(script: &Script) -> Result<(), String> {
    let mut world = World::new(script);
    for action in &script.actions {
        world.note(&format!("{action:?}"));
        world.act(action);
        if world.broken.is_some() {
            return world.verdict();
        }
    }
    world.settle();
    world.verdict()
}

impl World {
    fn new(script: &Script) -> Self {
        let mut spec: ZitiControllerSpec =
            serde_json::from_value(serde_json::json!({})).expect("all has a default");
        spec.replicas = script.replicas;
        let now = Timestamp::from_second(1_000_000).expect("in range");
        let mut world = Self {
            now,
            led_at: now,
            settings: Settings {
                install_id: "farm".into(),
                agent_image: "registry.example/agent:7".into(),
                router_image: "registry.example/router:7".into(),
                controller_image: "registry.example/controller:1.6.0".into(),
                cluster_dns: None,
            },
            spec,
            object: None,
            kube: Kube::default(),
            secrets: Secrets::default(),
            store: copies::Store::default(),
            backup: None,
            network: None,
            enrolled: None,
            users: Users::default(),
            leader: None,
            turn: script.turn,
            networks: 0,
            skew: script.skew,
            old_names_live: script.old_names_live,
            lingering: script.lingering,
            accidents: false,
            cut: BTreeSet::new(),
            joins: BTreeMap::new(),
            kept: None,
            broken: None,
            log: Vec::new(),
        };
        world.create();
        world
    }

    fn note(&mut self, line: &str) {
        // What is done again and again is told once.
        if !self.log.last().is_some_and(|last| last.ends_with(line)) {
            self.log
                .push(format!("{:>10} {line}", self.now.as_second()));
        }
    }

    fn must(&mut self, holds: bool, why: impl FnOnce() -> String) {
        if !holds && self.broken.is_none() {
            self.broken = Some(why());
        }
    }

    fn verdict(&self) -> Result<(), String> {
        let Some(broken) = &self.broken else {
            return Ok(());
        };
        let from = self.log.len().saturating_sub(120);
        Err(format!("{}\n=> {broken}", self.log[from..].join("\n")))
    }

    /// The user makes the object, again or for the first time.
    fn create(&mut self) {
        if self.object.is_some() {
            return;
        }
        let mut object = ZitiController::new(NAME, self.spec.clone());
        object.metadata.namespace = Some(NAMESPACE.to_owned());
        object.metadata.uid = Some(self.kube.uid());
        object.metadata.generation = Some(1);
        self.object = Some(object);
        self.kept = None;
    }

    /// The user changes a wish.
    fn change(&mut self, change: impl Fn(&mut ZitiControllerSpec)) {
        change(&mut self.spec);
        if let Some(object) = &mut self.object
            && object.spec != self.spec
        {
            object.spec = self.spec.clone();
            object.metadata.generation =
                object.metadata.generation.map(|generation| generation + 1);
        }
    }

    /// Everything but the operator goes on for two seconds.
    fn tick(&mut self) {
        self.advance(2);
        self.run_workload();
        self.run_kubelets();
        self.run_jobs();
        self.run_cluster();
        self.run_sidecars();
        self.run_network();
    }

    fn advance(&mut self, seconds: i64) {
        self.now = self
            .now
            .checked_add(SignedDuration::from_secs(seconds))
            .expect("in range");
    }

    /// The ZitiNetwork's controller comes round once.
    fn run_network(&mut self) {
        let Some(network) = &mut self.network else {
            self.users.leaving = 0;
            return;
        };
        if network.metadata.deletion_timestamp.is_some() {
            let ends = network.metadata.annotations.as_ref();
            if ends.is_some_and(|have| have.contains_key(api::names::ANNOTATION_NETWORK_ENDS)) {
                self.users.leaving = 0;
            }
            if self.users.leaving == 0 && self.users.staying == 0 {
                self.network = None;
            }
            return;
        }
        let database = self
            .leader
            .and_then(|leader| self.kube.claims.get(&leader)?.database.as_ref());
        let operator = self.secrets.operator.clone();
        let token = operator.filter(|operator| {
            database.is_some_and(|database| {
                database
                    .identities
                    .iter()
                    .any(|(id, _)| *id == operator.identity)
            })
        });
        if let Some(token) = token
            && self.enrolled != Some(token.serial)
        {
            self.enrolled = Some(token.serial);
            let year = SignedDuration::from_hours(24 * 365);
            let mut conditions = plan::conditions::Conditions::new(&[], None, self.now);
            conditions.set(
                api::reasons::types::READY,
                plan::conditions::Truth::True,
                api::reasons::CONNECTED,
                "",
            );
            network.status = Some(api::ZitiNetworkStatus {
                credential_expiry: Some(Time(self.now.checked_add(year).expect("in range"))),
                conditions: conditions.into_vec(),
                ..api::ZitiNetworkStatus::default()
            });
        }
    }

    /// The finalizer is off: what the object owned goes with it.
    fn collect(&mut self) {
        let gone = |owners: &Option<Vec<OwnerReference>>| owners.is_some();
        if self
            .network
            .as_ref()
            .is_some_and(|network| gone(&network.metadata.owner_references))
        {
            self.network = None;
        }
        self.kube.collect();
        self.object = None;
    }
}
