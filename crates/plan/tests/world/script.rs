//! What can happen, and how often.

use super::{Lose, NAMESPACE, World};
use api::router::Topology;
use api::{DeletionPolicy, names};
use proptest::collection::vec;
use proptest::prelude::*;

/// Where tokens come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The operator registers the routers.
    Managed,
    /// A Secret of the user's, in a network that can be asked.
    ProvidedSecret,
    /// Written in the ZitiRouter, with no access to any network.
    ProvidedAlone,
}

/// How a ZitiRouter is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cascade {
    Background,
    Foreground,
    Orphan,
}

/// One thing that happens. Members are picked by ordinal.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    SetReplicas(i32),
    EditSpec(u8),
    Pause(bool),
    ReconcileSet,
    ReconcileEdgeRouter(i32),
    /// The operator reconciles from its last list of the network.
    ReconcileFromList(i32),
    /// The operator dies after so many writes of a reconcile of the set.
    CrashInSet(u32),
    CrashInEdgeRouter(i32, u32),
    /// The next request to the network in this reconcile is lost in some way.
    LoseReply(i32, Lose),
    /// The cache shows an older object.
    StaleEdgeRouter(i32, usize),
    StaleSet(usize),
    RunStatefulSet,
    PodStarts(i32),
    AgentRuns(i32),
    AgentLosesReply(i32),
    RouterConnects(i32),
    RouterDrops(i32),
    PodEnds(i32),
    Evict(i32),
    VolumeLost(i32),
    Poll,
    AdvanceClock(i64),
    LateWritesLand,
    NetworkAway(bool),
    NetworkSwapped,
    ForeignRouter(i32),
    /// A person deletes the router on the network.
    RouterDeleted(i32),
    /// A person deletes the EdgeRouter.
    DeleteEdgeRouter(i32),
    DeleteSet(Cascade),
    PatchPolicy(bool),
    RecreateSet,
    NamespaceDeleted,
    Collect,
    /// A person gives a new token.
    GiveToken(i32),
    /// A node comes, or goes.
    Node(i32, bool),
    /// A member is taken out, or is wanted again.
    Reserve(i32),
    /// The cluster of the workloads cannot be reached, or can again.
    ClusterAway(bool),
    /// The way there breaks in a reconcile of the set, after so many writes: with
    /// the reply of one that was carried out, or before it arrived.
    ClusterBreaks(u32, bool),
    /// A person gives the cluster up, or takes that back.
    GiveUp(bool),
    /// Another ZitiRouter of this name has something there, or no more.
    Stranger(bool),
    /// All of Kubernetes and every pod goes on for a while.
    Flow(u8),
}

/// A world, and what happens in it.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a thing that holds or does not"
)]
pub(crate) struct Script {
    pub(crate) mode: Mode,
    pub(crate) topology: Topology,
    pub(crate) replicas: i32,
    /// Keep volumes when the set is deleted, when it is scaled.
    pub(crate) keep_volumes: (bool, bool),
    pub(crate) retain: bool,
    /// The workloads are in another cluster.
    pub(crate) afar: bool,
    pub(crate) adopt: bool,
    /// At the end, a person accepts the network that stands there.
    pub(crate) accept_network: bool,
    pub(crate) actions: Vec<Action>,
}

fn action(afar: bool) -> impl Strategy<Value = Action> {
    let member = 0..4i32;
    let lose = prop_oneof![Just(Lose::Done), Just(Lose::Never), Just(Lose::Later)];
    let cascade = prop_oneof![2 => Just(Cascade::Background), 2 => Just(Cascade::Foreground), 1 => Just(Cascade::Orphan)];
    let life = prop_oneof![
        8 => Just(Action::ReconcileSet),
        8 => member.clone().prop_map(Action::ReconcileEdgeRouter),
        3 => member.clone().prop_map(Action::ReconcileFromList),
        4 => Just(Action::RunStatefulSet),
        3 => member.clone().prop_map(Action::PodStarts),
        3 => member.clone().prop_map(Action::AgentRuns),
        3 => member.clone().prop_map(Action::RouterConnects),
        3 => member.clone().prop_map(Action::PodEnds),
        3 => Just(Action::Collect),
        2 => Just(Action::Poll),
        14 => (1..4u8).prop_map(Action::Flow),
        5 => prop_oneof![Just(1i64), Just(5), Just(20), Just(61), Just(125)].prop_map(Action::AdvanceClock),
        1 => Just(Action::AdvanceClock(1900)),
    ];
    let wishes = prop_oneof![
        6 => (0..4i32).prop_map(Action::SetReplicas),
        4 => (0..6u8).prop_map(Action::EditSpec),
        2 => prop::bool::weighted(0.4).prop_map(Action::Pause),
        2 => cascade.prop_map(Action::DeleteSet),
        1 => any::<bool>().prop_map(Action::PatchPolicy),
        2 => Just(Action::RecreateSet),
        1 => Just(Action::NamespaceDeleted),
        2 => member.clone().prop_map(Action::GiveToken),
        1 => member.clone().prop_map(Action::DeleteEdgeRouter),
    ];
    let faults = prop_oneof![
        4 => (0..7u32).prop_map(Action::CrashInSet),
        5 => (member.clone(), 0..5u32).prop_map(|(member, writes)| Action::CrashInEdgeRouter(member, writes)),
        6 => (member.clone(), lose).prop_map(|(member, lose)| Action::LoseReply(member, lose)),
        3 => (member.clone(), 1..12usize).prop_map(|(member, age)| Action::StaleEdgeRouter(member, age)),
        2 => (1..12usize).prop_map(Action::StaleSet),
        2 => member.clone().prop_map(Action::AgentLosesReply),
        3 => member.clone().prop_map(Action::RouterDrops),
        3 => member.clone().prop_map(Action::Evict),
        3 => member.clone().prop_map(Action::VolumeLost),
        2 => Just(Action::LateWritesLand),
        2 => any::<bool>().prop_map(Action::NetworkAway),
        1 => Just(Action::NetworkSwapped),
        2 => member.clone().prop_map(Action::ForeignRouter),
        2 => member.clone().prop_map(Action::RouterDeleted),
        3 => (member.clone(), any::<bool>()).prop_map(|(member, comes)| Action::Node(member, comes)),
        1 => member.prop_map(Action::Reserve),
    ];
    let cluster = prop_oneof![
        3 => prop::bool::weighted(0.6).prop_map(Action::ClusterAway),
        3 => (0..7u32, any::<bool>()).prop_map(|(writes, done)| Action::ClusterBreaks(writes, done)),
        1 => any::<bool>().prop_map(Action::GiveUp),
        1 => any::<bool>().prop_map(Action::Stranger),
    ];
    let clusters = if afar { 4 } else { 0 };
    prop_oneof![24 => life, 6 => wishes, 10 => faults, clusters => cluster]
}

/// Any script of a set; `afar`, one whose workloads are in another cluster.
pub(crate) fn script(afar: bool) -> impl Strategy<Value = Script> {
    let mode = prop_oneof![4 => Just(Mode::Managed), 1 => Just(Mode::ProvidedSecret), 1 => Just(Mode::ProvidedAlone)];
    let keep = (any::<bool>(), any::<bool>());
    let rarely = prop::bool::weighted(0.2);
    let topology = prop_oneof![
        3 => Just(Topology::StatefulSet),
        1 => Just(Topology::PerMember),
        1 => Just(Topology::PerNode)
    ];
    (
        mode,
        topology,
        1..4i32,
        keep,
        rarely,
        rarely,
        any::<bool>(),
        vec(action(afar), 5..70),
    )
        .prop_map(
            move |(
                mode,
                topology,
                replicas,
                keep_volumes,
                retain,
                adopt,
                accept_network,
                actions,
            )| {
                Script {
                    mode,
                    topology,
                    replicas,
                    keep_volumes,
                    retain,
                    afar,
                    adopt,
                    accept_network,
                    actions,
                }
            },
        )
}

impl World {
    /// Let it happen.
    pub(crate) fn act(&mut self, action: &Action) {
        match action.clone() {
            Action::SetReplicas(replicas) => self.change_spec(|spec| spec.replicas = replicas),
            Action::EditSpec(what) => self.edit(what),
            Action::Pause(paused) => self.change_spec(|spec| spec.paused = paused),
            Action::ReconcileSet => self.reconcile_set(None),
            Action::ReconcileEdgeRouter(i) => {
                self.reconcile_edge_router(&self.member(i), None, true);
            }
            Action::ReconcileFromList(i) => {
                self.reconcile_edge_router(&self.member(i), None, false);
            }
            Action::CrashInSet(writes) => {
                self.budget = Some(writes);
                self.reconcile_set(None);
                self.budget = None;
            }
            Action::CrashInEdgeRouter(i, writes) => {
                self.budget = Some(writes);
                self.reconcile_edge_router(&self.member(i), None, true);
                self.budget = None;
            }
            Action::LoseReply(i, lose) => {
                self.lose = lose;
                self.reconcile_edge_router(&self.member(i), None, true);
                self.lose = Lose::No;
            }
            Action::StaleEdgeRouter(i, age) => {
                let versions = self.past.get(&self.member(i)).cloned().unwrap_or_default();
                if let Some(old) = versions
                    .len()
                    .checked_sub(age)
                    .map(|at| versions[at].clone())
                {
                    self.reconcile_edge_router(&self.member(i), Some(old), false);
                }
            }
            Action::StaleSet(age) => {
                // The driver makes sure that the object is there still, and
                // not being deleted.
                let live = self.kube.set.as_ref();
                let live = live.filter(|set| set.metadata.deletion_timestamp.is_none());
                let live = live.and_then(|set| set.metadata.uid.clone());
                let at = self.past_sets.len().checked_sub(age);
                let old = at.map(|at| self.past_sets[at].clone());
                if let Some(old) = old.filter(|old| live.is_some() && old.metadata.uid == live) {
                    self.ledger.stale = true;
                    self.reconcile_set(Some(old));
                    self.ledger.stale = false;
                }
            }
            Action::RunStatefulSet => self.run_stateful_sets(),
            Action::PodStarts(i) => self.start_pod(&self.member(i)),
            Action::AgentRuns(i) => self.run_agent(&self.member(i), false),
            Action::AgentLosesReply(i) => self.run_agent(&self.member(i), true),
            Action::RouterConnects(i) => self.connect(&self.member(i)),
            Action::RouterDrops(i) => self.drop_connection(&self.member(i)),
            Action::PodEnds(i) => self.finish_pod(&self.member(i)),
            Action::Evict(i) => self.evict(&self.member(i)),
            Action::VolumeLost(i) => self.lose_volume(&self.member(i)),
            Action::Poll => {
                self.poll();
                self.look_at_cluster();
            }
            Action::AdvanceClock(seconds) => self.advance(seconds),
            Action::LateWritesLand => self.ziti.land(self.now, true),
            Action::NetworkAway(away) => self.reachable = !away,
            Action::NetworkSwapped => self.swap_network(),
            Action::ForeignRouter(i) => self.make_foreign(i),
            Action::RouterDeleted(i) => self.delete_router_by_hand(i),
            Action::DeleteEdgeRouter(i) => self.delete_edge_router_by_hand(i),
            Action::DeleteSet(cascade) => self.delete_set(cascade),
            Action::PatchPolicy(retain) => {
                let policy = if retain {
                    DeletionPolicy::Retain
                } else {
                    DeletionPolicy::Delete
                };
                self.retained |= retain;
                self.change_spec(|spec| spec.deletion_policy = policy);
            }
            Action::RecreateSet => self.create_set(),
            Action::NamespaceDeleted => self.kube.terminating = true,
            Action::Collect => self.collect(),
            Action::GiveToken(i) => {
                if self.is_provided() {
                    self.give_token(i);
                }
            }
            Action::Node(i, comes) => self.change_node(i, comes),
            Action::Reserve(i) => self.reserve(i),
            Action::ClusterAway(away) => self.cut_off(away),
            Action::ClusterBreaks(writes, done) => self.break_in_reconcile(writes, done),
            Action::GiveUp(gives) => self.give_up(gives),
            Action::Stranger(comes) => self.stranger(comes),
            Action::Flow(rounds) => {
                for _ in 0..rounds {
                    self.flow();
                    self.reconcile_all();
                    self.after_step();
                }
            }
        }
        self.learn_tokens();
        self.remember();
    }

    /// Kubernetes and the pods go on by themselves.
    pub(crate) fn flow(&mut self) {
        self.advance(2);
        self.look_at_cluster();
        self.run_stateful_sets();
        self.collect();
        for i in 0..self.seats {
            let name = self.member(i);
            self.finish_pod(&name);
            self.start_pod(&name);
            self.run_agent(&name, false);
            self.connect(&name);
        }
    }

    /// Both controllers see everything.
    pub(crate) fn reconcile_all(&mut self) {
        for i in 0..self.seats {
            self.reconcile_edge_router(&self.member(i), None, true);
        }
        self.reconcile_set(None);
    }

    fn edit(&mut self, what: u8) {
        match what {
            0 => self.change_spec(|spec| {
                spec.edge.port = if spec.edge.port == 3022 { 3033 } else { 3022 }
            }),
            1 => self.change_spec(|spec| {
                spec.image = if spec.image.is_none() {
                    Some("router:own".into())
                } else {
                    None
                }
            }),
            2 => self.change_spec(|spec| {
                spec.role_attributes = if spec.role_attributes.is_empty() {
                    vec!["b".into(), "a".into()]
                } else {
                    vec![]
                }
            }),
            3 => self.change_spec(|spec| spec.cost = (spec.cost + 1) % 3),
            4 => {
                self.pattern = if self.pattern.is_none() {
                    Some("{namespace}.{member}".into())
                } else {
                    None
                }
            }
            _ => self.change_spec(|spec| {
                spec.tunnel.mode = match spec.tunnel.mode {
                    api::router::TunnelMode::None => api::router::TunnelMode::Host,
                    _ => api::router::TunnelMode::None,
                }
            }),
        }
    }

    /// Another network answers at the address, or the first one again.
    pub(crate) fn swap_network(&mut self) {
        for i in 0..self.seats {
            let name = self.member(i);
            self.drop_connection(&name);
            self.ledger.voluntary.remove(&name);
        }
        std::mem::swap(&mut self.ziti, &mut self.elsewhere);
        self.memory.forget_rows();
    }

    fn make_foreign(&mut self, i: i32) {
        let name = self.member(i);
        let free = !self
            .ziti
            .routers
            .values()
            .any(|router| router.entity.name == name);
        if !free {
            return;
        }
        // Of a person, or of an operator in another cluster that was given the same id and has an
        // object of the same namespace and name.
        let tags = if i % 2 == 0 {
            vec![("team", "other")]
        } else {
            vec![
                (names::TAG_INSTALL, self.settings.install_id.as_str()),
                (names::TAG_INSTALL_UID, "of the other farm"),
                (names::TAG_NAMESPACE, NAMESPACE),
                (names::TAG_NAME, name.as_str()),
                (names::TAG_UID, "of the other member"),
            ]
        };
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let tags = tags.into_iter().map(owned).collect();
        self.ziti.create(&name, tags, self.now);
    }

    fn delete_router_by_hand(&mut self, i: i32) {
        let id = self
            .kube
            .edge_routers
            .get(&self.member(i))
            .and_then(|er| er.status.as_ref()?.id.clone());
        if let Some(id) = id.filter(|_| !self.is_provided()) {
            self.ziti.routers.remove(&id);
            self.ledger.voluntary.remove(&self.member(i));
        }
    }

    fn delete_edge_router_by_hand(&mut self, i: i32) {
        let name = self.member(i);
        if let Some(er) = self.kube.edge_routers.get(&name) {
            self.ledger
                .by_hand
                .insert(er.metadata.uid.clone().unwrap_or_default());
            self.kube.delete_edge_router(&name, None, self.now).ok();
        }
    }
}
