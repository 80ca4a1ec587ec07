//! The cluster of this world, as Ziti 1.6.0 builds it on Raft (`controller/raft`
//! in its source): who votes stands in each database; whoever leads speaks for
//! all; the list of members also shows connected ones that are in no cluster;
//! different versions stop writes, and not changes of the members.

use super::World;
use super::kube::{Process, member};
use plan::controller::cluster::quorum;
use plan::controller::network::{Policies, Policy};
use plan::controller::{Cluster, Peer};
use plan::edge_router::Problem;
use std::collections::{BTreeMap, BTreeSet};

/// A database, as one member has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Database {
    /// The network that it is of.
    pub(crate) network: u32,
    /// How far it is.
    pub(crate) index: u64,
    /// Voters and their addresses.
    pub(crate) voters: BTreeMap<String, String>,
    /// Identities of the operator.
    pub(crate) identities: Vec<(String, String)>,
    pub(crate) policies: Policies,
}

pub(crate) fn ordinal(member: &str) -> i32 {
    let digits = member.rsplit_once('-').map_or("", |(_, digits)| digits);
    digits.parse().unwrap_or(-1)
}

impl World {
    pub(crate) fn process(&self, ordinal: i32) -> Option<&Process> {
        self.kube.pods.get(&ordinal)?.process.as_ref()
    }

    pub(crate) fn database(&self, ordinal: i32) -> Option<&Database> {
        self.kube.claims.get(&ordinal)?.database.as_ref()
    }

    fn database_mut(&mut self, ordinal: i32) -> Option<&mut Database> {
        self.kube.claims.get_mut(&ordinal)?.database.as_mut()
    }

    fn is_cut(&self, one: i32) -> bool {
        let pod = self.kube.pods.get(&one);
        self.cut.contains(&one) || pod.is_none_or(|pod| pod.node_lost)
    }

    /// Whether a process answers whoever dials the member at that address.
    fn answers(&self, from: i32, to: &str, address: &str) -> bool {
        if member(from) == to {
            return true;
        }
        let valid = |process: &Process| process.leaf.life.until > self.now;
        let cut = |ordinal: i32| self.is_cut(ordinal);
        let target = self.process(ordinal(to));
        target.is_some_and(|target| {
            let there = target.address == address || self.old_names_live;
            valid(target) && there && self.kube.services.contains_key(to)
        }) && self.process(from).is_some_and(valid)
            && !cut(from)
            && !cut(ordinal(to))
    }

    /// The voters that a member reaches and that would have it lead, itself among
    /// them; `None` where they are no majority.
    fn votes(&self, candidate: i32) -> Option<BTreeSet<String>> {
        let own = self.database(candidate)?;
        self.process(candidate)?;
        let name = member(candidate);
        if !own.voters.contains_key(&name) {
            return None;
        }
        let grants = |voter: &String| match self.database(ordinal(voter)) {
            // One without a database refuses nobody.
            None => true,
            Some(other) => {
                other.network == own.network
                    && other.index <= own.index
                    && other.voters.contains_key(&name)
            }
        };
        let voters = own.voters.iter();
        let granted: BTreeSet<String> = voters
            .filter(|(voter, address)| self.answers(candidate, voter, address) && grants(voter))
            .map(|(voter, _)| voter.clone())
            .collect();
        (granted.len() >= quorum(own.voters.len())).then_some(granted)
    }

    /// Voters that whoever leads reaches.
    pub(crate) fn connected(&self, leader: i32) -> BTreeSet<String> {
        let voters = self
            .database(leader)
            .into_iter()
            .flat_map(|own| &own.voters);
        voters
            .filter(|(voter, address)| self.answers(leader, voter, address))
            .map(|(voter, _)| voter.clone())
            .collect()
    }

    fn still_leads(&self, leader: i32) -> bool {
        let voters = self.database(leader).map_or(0, |own| own.voters.len());
        let listed = self
            .database(leader)
            .is_some_and(|own| own.voters.contains_key(&member(leader)));
        listed && self.process(leader).is_some() && self.connected(leader).len() >= quorum(voters)
    }

    /// Who would lead, if somebody does not yet: those whose address is known to
    /// the others first.
    pub(crate) fn electable(&self) -> Option<i32> {
        let mut able: Vec<i32> = (0..5).filter(|one| self.votes(*one).is_some()).collect();
        able.sort_by_key(|one| {
            let own = self.database(*one).expect("it has votes");
            (
                self.is_hidden(*one),
                std::cmp::Reverse(own.index),
                (*one + self.turn) % 5,
            )
        });
        able.first().copied()
    }

    /// Whether a member runs at another address than the others know: where it
    /// leads, no voter is shown as the leader.
    pub(crate) fn is_hidden(&self, one: i32) -> bool {
        let known = self
            .database(one)
            .and_then(|own| own.voters.get(&member(one)));
        known != self.process(one).map(|process| &process.address)
    }

    /// Elections, and what the leader sends to the others.
    pub(crate) fn run_cluster(&mut self) {
        if self.leader.is_some_and(|leader| !self.still_leads(leader)) {
            self.leader = None;
        } else if self.leader.is_none()
            && let Some(new) = self.electable()
        {
            self.turn += 1;
            self.leader = Some(new);
            let own = self.database_mut(new).expect("it has votes");
            own.index += 1;
        }
        self.replicate();
    }

    pub(crate) fn replicate(&mut self) {
        let Some(leader) = self.leader else { return };
        let Some(database) = self.database(leader).cloned() else {
            return;
        };
        for to in self.connected(leader) {
            if let Some(claim) = self.kube.claims.get_mut(&ordinal(&to)) {
                claim.database = Some(database.clone());
            }
        }
    }

    /// What a leader does before its pod ends.
    pub(crate) fn hand_over(&mut self, leader: i32) {
        self.replicate();
        let mut heirs = self.connected(leader).into_iter();
        if let Some(heir) = heirs.find(|heir| ordinal(heir) != leader) {
            self.leader = Some(ordinal(&heir));
        }
    }

    /// A change of the leader's database.
    pub(crate) fn write(&mut self, change: impl FnOnce(&mut Database)) -> Result<(), Problem> {
        let leaderless = || Problem::new(api::reasons::CONTROLLER_UNREACHABLE, "no leader");
        let leader = self
            .leader
            .filter(|leader| self.still_leads(*leader))
            .ok_or_else(leaderless)?;
        let database = self.database_mut(leader).expect("it leads");
        database.index += 1;
        change(database);
        self.replicate();
        Ok(())
    }

    /// Whether versions differ, so that nothing but members can be changed.
    pub(crate) fn is_read_only(&self) -> bool {
        let Some(leader) = self.leader else {
            return true;
        };
        let mut versions: Vec<&str> = self
            .list(leader)
            .iter()
            .filter(|peer| peer.connected)
            .filter_map(|peer| self.process(ordinal(&peer.id)))
            .map(|process| process.version.as_str())
            .collect();
        versions.sort_unstable();
        versions.dedup();
        versions.len() > 1
    }

    pub(crate) fn add_member(&mut self, name: &str, address: &str) -> Result<(), Problem> {
        let failed = |why: &str| Problem::new(api::reasons::REFUSED, why.to_owned());
        let leader = self.leader.ok_or_else(|| failed("no leader"))?;
        let process = self
            .process(ordinal(name))
            .ok_or_else(|| failed("nobody answers"))?;
        if process.address != address || !self.answers(leader, name, address) {
            return Err(failed("nobody answers there"));
        }
        if self
            .database(leader)
            .is_some_and(|own| own.voters.get(name).is_some_and(|have| have == address))
        {
            return Ok(());
        }
        if ordinal(name) == leader {
            // Ziti takes the old entry away first, and with it its own leader.
            self.broken
                .get_or_insert_with(|| format!("{name} leads and is told to join"));
        }
        self.write(|database| {
            database.voters.insert(name.to_owned(), address.to_owned());
        })
    }

    pub(crate) fn remove_member(&mut self, name: &str) -> Result<(), Problem> {
        self.write(|database| {
            database.voters.remove(name);
        })?;
        if self.leader == Some(ordinal(name)) {
            self.leader = None;
        }
        Ok(())
    }

    pub(crate) fn transfer(&mut self, to: &str) -> Result<(), Problem> {
        let failed = || Problem::new(api::reasons::REFUSED, "it cannot take over");
        let leader = self.leader.ok_or_else(failed)?;
        if !self.connected(leader).contains(to) || self.database(ordinal(to)).is_none() {
            return Err(failed());
        }
        self.replicate();
        self.leader = Some(ordinal(to));
        Ok(())
    }

    /// The members as one of them lists them.
    fn list(&self, asked: i32) -> Vec<Peer> {
        let leads = self.leader == Some(asked);
        let leader = self
            .leader
            .and_then(|leader| self.process(leader))
            .map(|process| process.address.clone());
        let Some(own) = self.database(asked) else {
            return Vec::new();
        };
        let peer = |id: &str, address: &str, voter: bool, connected: bool| Peer {
            id: id.to_owned(),
            address: address.to_owned(),
            voter,
            leader: leader.as_deref() == Some(address),
            version: match self.process(ordinal(id)).filter(|_| connected) {
                Some(process) => format!("v{}", process.version),
                None => "<not connected>".to_owned(),
            },
            connected,
        };
        let mut peers: Vec<Peer> = own
            .voters
            .iter()
            .map(|(id, address)| {
                let to_leader = self.leader == Some(ordinal(id));
                let looks = leads || to_leader || self.leader.is_none();
                peer(
                    id,
                    address,
                    true,
                    ordinal(id) == asked || looks && self.answers(asked, id, address),
                )
            })
            .collect();
        for (other, pod) in &self.kube.pods {
            let (id, Some(process)) = (member(*other), &pod.process) else {
                continue;
            };
            let of_network = self
                .database(*other)
                .is_some_and(|database| database.network == own.network);
            let known = own.voters.get(&id) == Some(&process.address);
            let dials = self
                .database(*other)
                .is_some_and(|database| database.voters.len() > 1);
            if *other != asked && of_network && dials && !known && leads && self.lingering {
                peers.push(peer(&id, &process.address, false, true));
            }
        }
        // A leader at another address than is known stands beside the voters.
        if let Some(leader) = self.leader.filter(|leader| *leader != asked)
            && self.is_hidden(leader)
            && self.connected(leader).contains(&member(asked))
            && let Some(process) = self.process(leader)
        {
            let (id, address) = (member(leader), process.address.clone());
            peers.retain(|peer| peer.address != address);
            peers.push(peer(&id, &address, false, true));
        }
        peers
    }

    /// What the operator's driver finds out, as `crates/operator` does it.
    pub(crate) fn ask(&self) -> Result<Cluster, Problem> {
        let problem = |reason, message: &str| Problem::new(reason, message.to_owned());
        let mut order: Vec<i32> = self
            .kube
            .pods
            .iter()
            .filter(|(_, pod)| pod.stays())
            .filter(|(_, pod)| pod.process.is_some())
            .map(|(ordinal, _)| *ordinal)
            .collect();
        if order.is_empty() {
            return Err(problem(api::reasons::PENDING, "no member runs"));
        }
        let (mut asked, mut leaderless, mut failed) = (BTreeSet::new(), None, None);
        let mut moved = None;
        while !order.is_empty() {
            let one = order.remove(0);
            if !asked.insert(one) {
                continue;
            }
            let valid = self
                .process(one)
                .is_some_and(|process| process.leaf.life.until > self.now);
            let cut = self.is_cut(one);
            let answer = match self.database(one) {
                _ if !valid || cut => Err(problem(
                    api::reasons::CONTROLLER_UNREACHABLE,
                    "it does not answer",
                )),
                None => Err(problem(api::reasons::BAD_CREDENTIALS, "it knows nobody")),
                Some(own) => Ok((self.list(one), own)),
            };
            match answer {
                Err(problem) => {
                    failed.get_or_insert(problem);
                }
                Ok((members, own)) => {
                    let mut cluster = Cluster::listed(&member(one), members, &mut moved);
                    let leader = cluster.leader().map(|leader| ordinal(&leader.id));
                    match leader {
                        Some(leader) if leader == one => {
                            cluster.policies = Some(own.policies);
                            cluster.identities.clone_from(&own.identities);
                            return Ok(cluster);
                        }
                        Some(leader) => {
                            if moved == Some(member(leader)) {
                                asked.remove(&leader);
                            }
                            order.insert(0, leader);
                        }
                        None => leaderless = Some(cluster),
                    }
                }
            }
        }
        leaderless.map_or_else(
            || Err(failed.unwrap_or_else(|| problem(api::reasons::PENDING, "nobody answers"))),
            Ok,
        )
    }

    /// The sidecars come round once: one may make the network, and each says
    /// whether its member is ready.
    pub(crate) fn run_sidecars(&mut self) {
        let ordinals: Vec<i32> = self.kube.pods.keys().copied().collect();
        for one in ordinals {
            let name = member(one);
            let runs = self.process(one).is_some() && self.kube.pods[&one].stays();
            let appointed = self.secrets.bootstrap.as_ref().is_some_and(|orders| {
                orders.initialize.as_deref() == Some(&name) && orders.admin.is_some()
            });
            let company = self.kube.pods.keys().any(|other| {
                *other != one
                    && self.database(*other).is_some_and(|database| {
                        database
                            .voters
                            .get(&name)
                            .is_some_and(|address| self.answers(*other, &name, address))
                    })
            });
            let order = self.secrets.bootstrap.as_ref();
            let order = order.and_then(|orders| orders.restore.clone());
            match order {
                Some(order) if runs && appointed && !company => {
                    self.take_database(one, &order.id);
                }
                None if runs && appointed && !company && self.database(one).is_none() => {
                    self.initialize(one);
                }
                _ => {}
            }
            let follows = self
                .leader
                .is_some_and(|leader| leader == one || self.connected(leader).contains(&name));
            let hidden = self.leader == Some(one) && self.is_hidden(one);
            let now = self.now;
            if let Some(pod) = self.kube.pods.get_mut(&one) {
                let ready = runs && follows && !hidden && !pod.node_lost;
                pod.set_ready(ready, now);
            }
        }
    }

    fn initialize(&mut self, one: i32) {
        let known = self
            .object
            .as_ref()
            .and_then(|object| object.status.as_ref())
            .is_some_and(|status| status.initialized.is_some());
        let others = self
            .kube
            .claims
            .values()
            .any(|claim| claim.database.is_some());
        let restores = self
            .secrets
            .root
            .as_ref()
            .is_some_and(|root| root.restored_from.is_some());
        if known || others || restores || self.secrets.is_made() {
            self.broken
                .get_or_insert_with(|| format!("{} makes a second network", member(one)));
        }
        self.networks += 1;
        let address = self
            .process(one)
            .map(|process| process.address.clone())
            .unwrap_or_default();
        let database = Database {
            network: self.networks,
            index: 1,
            voters: [(member(one), address)].into(),
            identities: Vec::new(),
            policies: Policies {
                edge_router: Policy::Absent,
                service_edge_router: Policy::Absent,
            },
        };
        if let Some(claim) = self.kube.claims.get_mut(&one) {
            claim.database = Some(database);
        }
        self.leader = Some(one);
    }
}
