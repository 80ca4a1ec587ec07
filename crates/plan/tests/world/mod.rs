//! A world in memory for the planners: what a user wishes, a Kubernetes, a
//! Ziti network, and the operator's two controllers between them.
//!
//! A [`Script`] sets it up and says what happens, step by step; [`play`] runs
//! it, looks at every invariant after each step, then stops the faults and sees
//! that everything comes to rest as wished. It answers with the first thing
//! that is wrong and the log of what happened until then.

mod cluster;
mod collector;
mod edge_router_driver;
mod far;
mod invariants;
mod kube;
pub(crate) mod scale;
mod script;
mod set_driver;
mod settle;
mod tokens;
mod turns;
mod ziti;

pub(crate) use script::{Action, Cascade, Mode, Script, script};

use self::edge_router_driver::Memory;
use self::far::Far;
use self::invariants::Ledger;
use self::kube::Kube;
use self::ziti::Ziti;
use api::router::{RetentionPolicy, Topology, ZitiRouterSpec};
use api::{AdoptionPolicy, DeletionPolicy, EdgeRouter, NetworkRef, SecretRef, ZitiRouter};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plan::Settings;
use plan::set::roster::Node;
use plan::token::TokenFacts;
use std::collections::BTreeMap;

/// Where everything is.
pub(crate) const NAMESPACE: &str = "field";
/// The network that the set joins, and the one that may stand in its place.
pub(crate) const SET_NETWORK: &str = "meadow";
const OTHER_NETWORK: &str = "desert";

/// What becomes of the next request to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lose {
    /// It is carried out and answered.
    No,
    /// It is carried out, and its reply is lost.
    Done,
    /// It never arrives.
    Never,
    /// It is carried out ten seconds after its time ran out.
    Later,
}

/// Everything.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a thing that holds or does not"
)]
pub(crate) struct World {
    now: Timestamp,
    settings: Settings,
    set_name: String,
    spec: ZitiRouterSpec,
    mode: Mode,
    kube: Kube,
    /// The cluster of the workloads, where that is another one.
    far: Option<Far>,
    /// How many members there may be.
    seats: i32,
    ziti: Ziti,
    elsewhere: Ziti,
    /// The network answers.
    reachable: bool,
    /// The network that a person confirmed to be the right one now.
    confirmed: Option<String>,
    /// How the ZitiNetwork says that members are named.
    pattern: Option<String>,
    /// The tokens that the user gives, by member.
    given: BTreeMap<String, TokenFacts>,
    /// The router of every token that ever was.
    all_tokens: BTreeMap<String, String>,
    memory: Memory,
    /// Older versions of the objects, as a cache may still show them.
    past: BTreeMap<String, Vec<EdgeRouter>>,
    past_sets: Vec<ZitiRouter>,
    lose: Lose,
    /// How many writes the operator still does before it dies.
    budget: Option<u32>,
    /// Routers may stay on the network: that was the policy at some time.
    retained: bool,
    /// Faults are going on.
    faulty: bool,
    /// One of many: what costs as much as a plan itself is not looked at.
    of_many: bool,
    /// When the set is to be looked at although nothing happens.
    requeue: Option<SignedDuration>,
    broken: Option<String>,
    log: Vec<String>,
    ledger: Ledger,
}

/// Play a script. The error is what is wrong, and the log.
pub(crate) fn play(script: &Script) -> Result<(), String> {
    let mut world = World::new(script);
    for action in &script.actions {
        world.note(format!("{:>5} {action:?}", world.now.as_second()));
        world.act(action);
        world.after_step();
        if world.broken.is_some() {
            return world.verdict();
        }
    }
    world.settle(script);
    world.verdict()
}

impl World {
    fn new(script: &Script) -> Self {
        let mut world = Self {
            now: Timestamp::from_second(1_000).expect("in range"),
            settings: Settings {
                install_id: "farm".into(),
                install_uid: Some("the farm".into()),
                agent_image: "agent:1".into(),
                router_image: "router:1".into(),
                controller_image: "registry.example/controller:7".into(),
                cluster_dns: None,
            },
            set_name: "gate".into(),
            spec: ZitiRouterSpec {
                cluster_ref: script.afar.then(far::reference),
                network_ref: (script.mode != Mode::ProvidedAlone).then(|| NetworkRef {
                    name: SET_NETWORK.into(),
                }),
                tokens: None,
                tokens_secret_ref: (script.mode == Mode::ProvidedSecret).then(|| SecretRef {
                    name: "given".into(),
                }),
                topology: Some(script.topology),
                reserve_ordinals: Vec::new(),
                nodes: None,
                restart_at: None,
                replicas: script.replicas,
                image: None,
                tunnel: api::router::Tunnel::default(),
                edge: api::router::EdgeListener::default(),
                link: api::router::LinkListener::default(),
                csr: api::router::Csr::default(),
                forwarder: None,
                metrics: None,
                health_checks: None,
                ctrl: None,
                extra_config: None,
                role_attributes: Vec::new(),
                cost: 0,
                no_traversal: false,
                identity_storage: api::router::IdentityStorage::default(),
                retention: api::router::Retention {
                    when_deleted: policy(script.keep_volumes.0),
                    when_scaled: policy(script.keep_volumes.1),
                },
                resources: None,
                drain: api::router::Drain::default(),
                network_policy: api::router::NetworkPolicyOptions::default(),
                pod: api::router::PodOptions::default(),
                deletion_policy: if script.retain {
                    DeletionPolicy::Retain
                } else {
                    DeletionPolicy::Delete
                },
                adoption_policy: if script.adopt {
                    AdoptionPolicy::ByName
                } else {
                    AdoptionPolicy::IfTagged
                },
                paused: false,
            },
            mode: script.mode,
            kube: Kube::of_set(script.afar),
            far: script.afar.then(Far::default),
            seats: script.replicas.max(4),
            ziti: Ziti::named(SET_NETWORK),
            elsewhere: Ziti::named(OTHER_NETWORK),
            reachable: true,
            confirmed: None,
            pattern: None,
            given: BTreeMap::new(),
            all_tokens: BTreeMap::new(),
            memory: Memory::default(),
            past: BTreeMap::new(),
            past_sets: Vec::new(),
            lose: Lose::No,
            budget: None,
            retained: script.retain,
            faulty: true,
            of_many: false,
            requeue: None,
            broken: None,
            log: Vec::new(),
            ledger: Ledger::default(),
        };
        if world.is_provided() {
            for ordinal in 0..world.seats {
                world.give_token(ordinal);
            }
        }
        for node in 0..script.replicas {
            world.change_node(node, true);
        }
        world.create_set();
        world
    }

    fn is_per_node(&self) -> bool {
        self.spec.effective_topology() == Topology::PerNode
    }

    /// The cluster's nodes, named by number so that members have the same names
    /// in every topology.
    fn nodes(&self) -> Vec<Node> {
        let names = self.kube.nodes.iter();
        names
            .map(|name| Node {
                name: name.clone(),
                ..Node::default()
            })
            .collect()
    }

    fn change_node(&mut self, node: i32, comes: bool) {
        let name = node.to_string();
        if comes {
            self.ledger.node_left.remove(&self.member(node));
            self.kube.nodes.insert(name);
        } else if self.kube.nodes.len() > 1 && self.kube.nodes.remove(&name) {
            self.ledger.node_left.insert(self.member(node), self.now);
        }
    }

    /// Take a member out, or in again.
    fn reserve(&mut self, ordinal: i32) {
        if self.spec.effective_topology() != Topology::PerMember {
            return;
        }
        self.change_spec(|spec| match spec.reserve_ordinals.as_slice() {
            [] => spec.reserve_ordinals = vec![ordinal],
            _ => spec.reserve_ordinals.clear(),
        });
    }

    /// The members that are wanted of this object, by its topology; not those
    /// that are kept for a while since their node may come back.
    fn wished_members(&self, object: &ZitiRouter) -> Vec<String> {
        let spec = &object.spec;
        match spec.effective_topology() {
            Topology::StatefulSet => (0..spec.replicas).map(|i| self.member(i)).collect(),
            Topology::PerMember => (0..)
                .filter(|i| !spec.reserve_ordinals.contains(i))
                .take(usize::try_from(spec.replicas).expect("not below 0"))
                .map(|i| self.member(i))
                .collect(),
            Topology::PerNode => {
                let nodes = self.kube.nodes.iter();
                nodes.map(|i| format!("{}-{i}", self.set_name)).collect()
            }
        }
    }

    /// The member of a pod's name.
    fn member_of_pod(&self, pod: &str) -> String {
        if self.spec.effective_topology().is_per_member() {
            pod.strip_suffix("-0").unwrap_or(pod).to_owned()
        } else {
            pod.to_owned()
        }
    }

    pub(crate) fn is_provided(&self) -> bool {
        self.mode != Mode::Managed
    }

    pub(crate) fn has_credential(&self) -> bool {
        self.mode != Mode::ProvidedAlone
    }

    fn member(&self, ordinal: i32) -> String {
        format!("{}-{ordinal}", self.set_name)
    }

    fn create_set(&mut self) {
        if self.kube.set.is_some() || self.kube.terminating {
            return;
        }
        let mut set = ZitiRouter::new(&self.set_name, self.spec.clone());
        set.metadata.namespace = Some(NAMESPACE.into());
        self.kube
            .born(&mut set.metadata, self.now)
            .expect("the namespace is there");
        self.ledger.wished(set.spec.replicas);
        self.ledger.orphaned = false;
        self.kube.set = Some(set);
        self.write_tokens_into_spec();
    }

    fn note(&mut self, line: String) {
        if self.of_many && self.log.len() > KEPT_LINES {
            self.log.drain(..KEPT_LINES / 2);
        }
        self.log.push(line);
    }

    /// What must hold; the first that does not ends the play.
    fn must(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.broken.is_none() {
            let what = what();
            self.note(format!("BROKEN: {what}"));
            self.broken = Some(what);
        }
    }

    fn verdict(self) -> Result<(), String> {
        match self.broken {
            None => Ok(()),
            Some(what) => Err(format!(
                "{what}\n--- what happened\n{}",
                self.log.join("\n")
            )),
        }
    }

    fn advance(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
        self.ziti.land(self.now, false);
        self.elsewhere.land(self.now, false);
        self.learn_tokens();
    }

    fn change_spec(&mut self, change: impl Fn(&mut ZitiRouterSpec)) {
        change(&mut self.spec);
        self.kube.change_set(|set| change(&mut set.spec));
        if let Some(set) = &self.kube.set {
            let replicas = set.spec.replicas;
            if set.metadata.deletion_timestamp.is_none() {
                self.ledger.wished(replicas);
            }
        }
    }

    fn delete_set(&mut self, cascade: Cascade) {
        let now = self.now;
        let fresh = self
            .kube
            .set
            .as_ref()
            .is_some_and(|set| set.metadata.deletion_timestamp.is_none());
        if !fresh {
            return;
        }
        if cascade == Cascade::Orphan {
            self.ledger.orphaned = true;
            self.leave_orphans_afar();
        }
        self.kube.change_set(|set| {
            set.metadata.deletion_timestamp = Some(Time(now));
            set.metadata.generation = set.metadata.generation.map(|generation| generation + 1);
            match cascade {
                Cascade::Background => {}
                Cascade::Foreground => set
                    .metadata
                    .finalizers
                    .get_or_insert_default()
                    .push("foregroundDeletion".into()),
                Cascade::Orphan => set
                    .metadata
                    .finalizers
                    .get_or_insert_default()
                    .push("orphan".into()),
            }
        });
    }

    /// Keep what a cache may still show later.
    fn remember(&mut self) {
        for (name, er) in &self.kube.edge_routers {
            let versions = self.past.entry(name.clone()).or_default();
            if versions.last() != Some(er) {
                versions.push(er.clone());
            }
        }
        if let Some(set) = &self.kube.set
            && self.past_sets.last() != Some(set)
        {
            self.past_sets.push(set.clone());
        }
    }
}

/// How many lines one world of many keeps of its log.
const KEPT_LINES: usize = 200;

/// The beginning of every token's text.
pub(crate) const TOKEN_TEXT: &str = "eyJ-the-text-of-";

fn policy(keep: bool) -> RetentionPolicy {
    if keep {
        RetentionPolicy::Retain
    } else {
        RetentionPolicy::Delete
    }
}
