//! Many clusters at once: 200 sets of 25 members, each in a cluster of its own, and
//! some that are refused since another one has their name there. Clusters go away and
//! come back at random, the operator dies, wishes change; then all heals.
//!
//! Each set has a network for itself, so that a look costs what it costs with an
//! index by name, which the operator has.

use super::turns::{BACK, DEADLINE, Turns};
use super::{Mode, Script, World};
use api::reasons;
use api::reasons::types;
use api::router::Topology;
use k8s_openapi::jiff::Timestamp;
use plan::conditions::find;
use plan::edge_router::Problem;
use std::fmt;
use std::time::{Duration, Instant};

/// How large it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) clusters: usize,
    pub(crate) members: i32,
    /// For how many seconds faults go on.
    pub(crate) trouble: i64,
}

/// Sets that are refused by name in the first cluster, so that sets there have to
/// wait for each other, and clusters that have one such set more.
const REFUSED_IN_FIRST: usize = 6;
const REFUSED_ELSEWHERE: usize = 15;
/// Within so many seconds all is as wished, after all clusters are there for good:
/// what was asked of a router before is found out within two minutes.
const CONVERGED: i64 = BACK + 240;
/// Seconds during which nothing is written at rest; the operator dies at the half.
const REST: i64 = 150;

/// Chance that can be had again (SplitMix64).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("below a usize")
    }

    /// Once in so many times.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// What it cost.
#[derive(Debug, Default)]
struct Cost {
    sets: u32,
    in_sets: Duration,
    edge_routers: u32,
    in_edge_routers: Duration,
    kubernetes: Duration,
}

/// One set, and what was last seen of it.
struct One {
    world: World,
    refused: bool,
    seen: (u64, u32),
}

/// Everything.
struct Many {
    turns: Turns,
    sets: Vec<One>,
    chance: Chance,
    size: Size,
    cost: Cost,
}

/// Play it. The error is what is wrong.
pub(crate) fn play(seed: u64, size: Size) -> Result<String, String> {
    let begun = Instant::now();
    let mut many = Many::new(seed, size);
    for _ in 0..size.trouble {
        many.trouble();
        many.tick()?;
    }
    let healed = many.heal();
    while let Some(missing) = many.missing() {
        if many.turns.now > healed + CONVERGED {
            let cost = &many.cost;
            return Err(format!("it does not come to rest: {missing} ({cost})"));
        }
        many.tick()?;
    }
    let converged = many.turns.now - healed;
    many.rest()?;
    Ok(format!(
        "{} clusters, {} members; all as wished {converged} s after all were back; {:.1?}: {}",
        size.clusters,
        many.members(),
        begun.elapsed(),
        many.cost
    ))
}

impl fmt::Display for Cost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = |count: u32, took: Duration| f64::from(count) / took.as_secs_f64();
        write!(
            formatter,
            "{} reconciles of sets in {:.1?} ({:.0} a second), {} of EdgeRouters in {:.1?} ({:.0} a second), Kubernetes and pods {:.1?}",
            self.sets,
            self.in_sets,
            each(self.sets, self.in_sets),
            self.edge_routers,
            self.in_edge_routers,
            each(self.edge_routers, self.in_edge_routers),
            self.kubernetes,
        )
    }
}

impl Many {
    fn new(seed: u64, size: Size) -> Self {
        let mut sets_of = vec![1; size.clusters];
        sets_of[0] += REFUSED_IN_FIRST;
        for more in sets_of.iter_mut().skip(1).take(REFUSED_ELSEWHERE) {
            *more += 1;
        }
        let sets = sets_of
            .iter()
            .flat_map(|sets| 0..*sets)
            .map(|place| One::new(size.members, place > 0));
        Self {
            sets: sets.collect(),
            turns: Turns::new(&sets_of, None),
            chance: Chance(seed),
            size,
            cost: Cost::default(),
        }
    }

    /// What goes wrong in this second, and what people wish.
    fn trouble(&mut self) {
        let clusters = self.size.clusters;
        // A third of them is away at a time, each for half a minute.
        for _ in 0..clusters.div_ceil(60) {
            let cluster = self.chance.below(clusters);
            self.turns.cut_off(cluster, true);
        }
        for cluster in 0..clusters {
            if self.turns.is_away(cluster) && self.chance.once_in(30) {
                self.turns.cut_off(cluster, false);
            }
        }
        let set = self.chance.below(self.sets.len());
        if self.chance.once_in(5) && !self.sets[set].refused {
            let some = i32::try_from(self.chance.below(11)).expect("a few");
            let replicas = self.size.members - 5 + some;
            let world = &mut self.sets[set].world;
            world.change_spec(|spec| spec.replicas = replicas.max(1));
        }
        if self.chance.once_in(8) {
            // It dies in the midst of a reconcile.
            let (set, writes) = (self.chance.below(self.sets.len()), self.chance.below(60));
            self.sets[set].world.budget = u32::try_from(writes).ok();
        }
    }

    /// All clusters are there again, and so is what people wish. When.
    fn heal(&mut self) -> i64 {
        for cluster in 0..self.size.clusters {
            self.turns.cut_off(cluster, false);
        }
        for one in &mut self.sets {
            let world = &mut one.world;
            world.budget = None;
            world.faulty = false;
            let replicas = self.size.members;
            if !one.refused {
                world.change_spec(|spec| spec.replicas = replicas);
            }
        }
        self.turns.now
    }

    /// A second goes by.
    fn tick(&mut self) -> Result<(), String> {
        let now = Timestamp::from_second(1_000 + self.turns.now).expect("in range");
        for (number, one) in self.sets.iter_mut().enumerate() {
            let away = self.turns.is_away(self.turns.cluster_of(number));
            one.world.cut_off(away);
            if one.go_on(now, &mut self.cost) {
                self.turns.wake(number, 0);
            }
        }
        let (sets, cost) = (&mut self.sets, &mut self.cost);
        let mut dead = false;
        self.turns.tick(&mut |number, verdict| {
            let one = &mut sets[number];
            let lives = one.world.budget.is_some();
            let again = one.work(verdict, cost);
            dead |= lives && one.world.budget.is_none();
            again
        });
        if dead {
            // One process works on all of them.
            self.crash();
        }
        let delayed = self.turns.delayed;
        if delayed > 0 {
            let cost = &self.cost;
            return Err(format!(
                "a set waits {delayed} s for what is none of its cluster ({cost})"
            ));
        }
        let broken = self.sets.iter_mut().find(|one| one.world.broken.is_some());
        match broken {
            Some(one) => Err(format!(
                "{:?}\n{}",
                one.world.broken,
                one.world.log.join("\n")
            )),
            None => Ok(()),
        }
    }

    fn crash(&mut self) {
        self.turns.crash();
        for one in &mut self.sets {
            one.world.memory = super::Memory::default();
            one.world.forget_cluster();
        }
    }

    /// The first thing that is not as wished.
    fn missing(&self) -> Option<String> {
        let mut sets = self.sets.iter().enumerate();
        sets.find_map(|(number, one)| Some(format!("set {number}: {}", one.missing()?)))
    }

    fn members(&self) -> usize {
        let pods = self.sets.iter().map(|one| one.world.kube.pods.len());
        pods.sum()
    }

    fn written(&self) -> Vec<(u64, u32)> {
        let sets = self.sets.iter();
        sets.map(|one| (one.world.kube.version(), one.world.ziti.writes))
            .collect()
    }

    /// At rest nothing is written, also where the operator begins anew.
    fn rest(&mut self) -> Result<(), String> {
        // What was done last is looked at once more.
        for _ in 0..DEADLINE {
            self.tick()?;
        }
        let before = (self.written(), self.turns.said());
        for second in 0..REST {
            if second == REST / 2 {
                self.crash();
            }
            self.tick()?;
        }
        let after = (self.written(), self.turns.said());
        let differs = before.0.iter().zip(&after.0).position(|(a, b)| a != b);
        match differs {
            Some(set) => Err(format!(
                "set {set} at rest costs writes\n{}",
                self.sets[set].world.log.join("\n")
            )),
            None if before.1 != after.1 => Err("a cluster at rest costs writes".to_owned()),
            None => Ok(()),
        }
    }
}

impl One {
    fn new(members: i32, refused: bool) -> Self {
        let mut world = World::new(&Script {
            mode: Mode::Managed,
            topology: Topology::StatefulSet,
            replicas: members,
            keep_volumes: (false, false),
            retain: false,
            afar: true,
            adopt: false,
            accept_network: false,
            actions: Vec::new(),
        });
        world.of_many = true;
        world.seats = members + 5;
        if refused {
            world.stranger(true);
        }
        Self {
            world,
            refused,
            seen: (0, 0),
        }
    }

    /// Kubernetes, the pods and the EdgeRouter controller go on, where something has
    /// happened. Whether it has.
    fn go_on(&mut self, now: Timestamp, cost: &mut Cost) -> bool {
        let world = &mut self.world;
        world.now = now;
        if self.seen == (world.kube.version(), world.ziti.writes) {
            return false;
        }
        self.seen = (world.kube.version(), world.ziti.writes);
        let begun = Instant::now();
        world.run_stateful_sets();
        world.collect();
        for name in world.kube.pods.keys().cloned().collect::<Vec<_>>() {
            world.finish_pod(&name);
            world.start_pod(&name);
            world.run_agent(&name, false);
            world.connect(&name);
        }
        cost.kubernetes += begun.elapsed();
        let begun = Instant::now();
        let budget = world.budget.take();
        for name in world.kube.edge_routers.keys().cloned().collect::<Vec<_>>() {
            world.reconcile_edge_router(&name, None, true);
            cost.edge_routers += 1;
        }
        world.budget = budget;
        world.learn_tokens();
        world.after_step();
        cost.in_edge_routers += begun.elapsed();
        true
    }

    /// One reconcile of the set.
    fn work(&mut self, verdict: &Result<(), Problem>, cost: &mut Cost) -> Option<i64> {
        let begun = Instant::now();
        let world = &mut self.world;
        world.judge_cluster(verdict);
        world.requeue = None;
        world.reconcile_set(None);
        world.after_step();
        cost.sets += 1;
        cost.in_sets += begun.elapsed();
        world.requeue.map(|after| after.as_secs().max(1))
    }

    fn missing(&self) -> Option<String> {
        if !self.refused {
            return self.world.missing();
        }
        let status = self.world.kube.set.as_ref()?.status.clone();
        let conditions = status.unwrap_or_default().conditions;
        let told = find(&conditions, types::READY).map(|ready| ready.reason.clone());
        (told.as_deref() != Some(reasons::NAME_TAKEN))
            .then(|| format!("it is not refused: {told:?}"))
    }
}

/// The same clusters without planners: for how long a set is delayed by clusters that
/// are none of its own, where all take their turns from one pool, or each from its own.
pub(crate) fn delay(seed: u64, shared: Option<usize>) -> i64 {
    let mut chance = Chance(seed);
    let mut turns = Turns::new(&[1; 200], shared);
    for second in 0..4 * BACK {
        if second > BACK && chance.once_in(3) {
            turns.cut_off(chance.below(100), true);
        }
        for _ in 0..10 {
            turns.wake(chance.below(200), 0);
        }
        turns.tick(&mut |_, _| None);
    }
    turns.delayed
}
