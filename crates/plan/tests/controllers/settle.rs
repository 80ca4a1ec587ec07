//! The end of every play: the faults stop, people mend what only people can
//! mend, and within a bounded number of rounds everything is as wished.

use super::World;
use super::act::{IMAGES, advertised};
use super::kube::{Process, member};
use super::raft::ordinal;
use super::script::Action;
use api::reasons::{self, types};
use plan::conditions::{find, is_true};
use plan::controller::config::control_plane;
use plan::set::member::{is_observed, replicas};
use std::collections::BTreeSet;

/// Rounds of some seconds within which the end must be reached.
const MOST_ROUNDS: u32 = 300;
/// Rounds after which people do what the conditions tell them to.
const PATIENCE: u32 = 60;

impl World {
    pub(crate) fn settle(&mut self) {
        self.note("--- the faults stop");
        self.change(|spec| spec.paused = false);
        if self
            .spec
            .image
            .as_deref()
            .is_some_and(|image| !IMAGES[..2].contains(&image))
        {
            self.change(|spec| spec.image = Some(IMAGES[0].to_owned()));
        }
        if let Some(root) = self.backup.take()
            && self.secrets.root.is_none()
        {
            self.note("a person puts the root back");
            self.secrets.root = Some(root);
        }
        self.store.is_away = false;
        self.mend_nodes();
        for round in 0..MOST_ROUNDS {
            if !self.can_restore() {
                // Whoever reads that there is no such backup begins anew.
                self.wish_restore(false);
            }
            if round % PATIENCE == PATIENCE - 1 {
                self.people_mend();
            }
            if self.is_lost()
                && self
                    .object
                    .as_ref()
                    .is_some_and(|object| object.spec.restore_from.is_none() || !self.can_restore())
            {
                if !self.can_restore() {
                    return self.stays_lost();
                }
                self.note("a person restores the network");
                self.wish_restore(true);
            }
            self.flow();
            self.advance(3);
            if self.broken.is_some() {
                return;
            }
            if self.leaves() {
                self.users.leaving += self.users.staying;
                self.users.staying = 0;
                continue;
            }
            if self.object.is_none() {
                self.gone();
                return;
            }
            if self.missing().is_none() {
                return self.rest();
            }
        }
        let missing = self.missing();
        let status = self
            .object
            .as_ref()
            .and_then(|object| object.status.clone());
        self.must(false, || {
            format!("it does not come to rest: {missing:?}\n{status:#?}")
        });
    }

    /// Pods of nodes that do not answer, and names of the pods' own.
    fn mend_nodes(&mut self) {
        self.cut.clear();
        self.kube.pods.retain(|_, pod| !pod.node_lost);
    }

    /// What a person does who reads the conditions.
    fn people_mend(&mut self) {
        let Some(object) = &self.object else { return };
        let conditions = object.status.iter().flat_map(|status| &status.conditions);
        let messages: Vec<String> = conditions
            .map(|condition| condition.message.clone())
            .collect();
        let says = |what: &str| messages.iter().any(|message| message.contains(what));
        self.note(&format!("people read: {messages:?}"));
        if says("the cluster had more") || says("counts on the vote of") || says("may have one") {
            self.change(|spec| spec.replicas = 5);
        }
        if says("is the only member") || says("set it back") {
            // By the addresses that most members know.
            let known = (0..5)
                .filter_map(|one| self.database(one))
                .max_by_key(|own| own.index);
            let known: Vec<String> = known
                .iter()
                .flat_map(|own| own.voters.values().cloned())
                .collect();
            let agrees = |world: &Self, which: u8| {
                let mut object = world.object.clone().expect("it is there");
                object.spec.advertised.control_plane = advertised(which);
                (0..5)
                    .filter(|one| known.contains(&format!("tls:{}", control_plane(&object, *one))))
                    .count()
            };
            let which = (0..3)
                .max_by_key(|which| agrees(self, *which))
                .unwrap_or_default();
            self.act(&Action::Advertise(which));
        }
    }

    fn leaves(&self) -> bool {
        self.object
            .as_ref()
            .is_some_and(|object| object.metadata.deletion_timestamp.is_some())
    }

    /// Whether there was a network, and its databases cannot lead any more.
    fn is_lost(&self) -> bool {
        let made = self.secrets.is_made();
        let any = self
            .kube
            .claims
            .values()
            .any(|claim| claim.database.is_some());
        self.accidents && made && !any && !self.leaves() && self.object.is_some()
    }

    /// A network that is gone is not made again, and that is said.
    fn stays_lost(&mut self) {
        let networks = self.networks;
        for _ in 0..80 {
            self.flow();
            self.advance(10);
        }
        let status = self
            .object
            .as_ref()
            .and_then(|object| object.status.clone());
        let conditions = status.unwrap_or_default().conditions;
        let ready = is_true(&conditions, types::READY);
        let mut members = self.kube.claims.keys();
        let asked = members.all(|one| {
            let stays = self.kube.pods.get(one).is_some_and(super::kube::Pod::stays);
            stays && self.process(*one).is_some()
        });
        let reason = find(&conditions, types::READY).map(|ready| ready.reason.clone());
        self.must(
            !asked || reason.as_deref() == Some(reasons::DATABASE_LOST),
            || format!("a lost network is said to be {reason:?}"),
        );
        self.must(self.networks == networks, || {
            "a lost network is made again".to_owned()
        });
        self.must(!ready, || "a lost network is said to be ready".to_owned());
    }

    /// Nothing is left but what is kept.
    fn gone(&mut self) {
        for _ in 0..10 {
            self.tick();
        }
        let left = (
            self.kube.set.is_some(),
            self.kube.pods.len(),
            self.kube.services.len(),
            self.network.is_some(),
        );
        self.must(left == (false, 0, 0, false), || {
            format!("something is left: {left:?}")
        });
        let deleted = self.kept == Some(api::router::RetentionPolicy::Delete);
        let kept = self.kube.claims.len();
        self.must(!deleted || kept == 0, || format!("{kept} volumes are left"));
    }

    /// What is not as wished.
    pub(crate) fn missing(&self) -> Option<String> {
        let object = self.object.as_ref()?;
        let wished = object.spec.replicas;
        let all: BTreeSet<i32> = (0..wished).collect();
        let names: BTreeSet<String> = all.iter().map(|one| member(*one)).collect();
        let Some(leader) = self.leader else {
            return Some("nobody leads".to_owned());
        };
        let voters = self.database(leader)?.voters.clone();
        let addresses = all
            .iter()
            .map(|one| (member(*one), format!("tls:{}", control_plane(object, *one))))
            .collect();
        if voters != addresses {
            return Some(format!("the voters are {voters:?}"));
        }
        if self.connected(leader) != names {
            return Some(format!("connected are {:?}", self.connected(leader)));
        }
        let Some(set) = &self.kube.set else {
            return Some("there is no workload".to_owned());
        };
        let revision = set
            .status
            .as_ref()
            .and_then(|status| status.update_revision.clone());
        if replicas(set) != wished || !is_observed(set) {
            return Some("the workload is not of the wished size".to_owned());
        }
        let pods: BTreeSet<i32> = self.kube.pods.keys().copied().collect();
        let claims: BTreeSet<i32> = self.kube.claims.keys().copied().collect();
        if pods != all || claims != all {
            return Some(format!("pods {pods:?} and volumes {claims:?}"));
        }
        for (ordinal, pod) in &self.kube.pods {
            let (name, Some(process)) = (member(*ordinal), &pod.process) else {
                return Some(format!("{} does not run", member(*ordinal)));
            };
            let current = self.has_read(&name, process);
            if !pod.ready || Some(&pod.revision) != revision.as_ref() || !current {
                return Some(format!(
                    "{name} is not ready, or of an old template, certificate or bundle"
                ));
            }
            if process.leaf.life.until <= self.now || process.bundle.is_empty() {
                return Some(format!("the certificate of {name} has ended"));
            }
        }
        let status = object.status.as_ref();
        let ready = status.is_some_and(|status| is_true(&status.conditions, types::READY));
        let changing = status.is_some_and(|status| is_true(&status.conditions, types::PROGRESSING));
        let failing = status.is_some_and(|status| is_true(&status.conditions, types::DEGRADED));
        if !ready || changing || failing {
            return Some("the conditions say otherwise".to_owned());
        }
        if !self.restore_is_over() {
            return Some("a restore is not over".to_owned());
        }
        let steps = self.plan()?.steps;
        let steps: Vec<String> = steps.iter().map(super::operator::short).collect();
        (!steps.is_empty()).then(|| format!("steps are left: {steps:?}"))
    }

    /// Whether a process has read what the Secret holds for it.
    fn has_read(&self, name: &str, process: &Process) -> bool {
        let pki = &self.secrets.members[name];
        pki.certificate.as_ref() == Some(&process.leaf)
            && pki.signer == Some(process.signer)
            && self.secrets.bundle == process.bundle
    }

    /// What must not wait for one that cannot join.
    pub(crate) fn are_up_to_date(&mut self) {
        let voters = self.leader.and_then(|leader| self.database(leader));
        let voters: Vec<String> = voters
            .into_iter()
            .flat_map(|own| own.voters.keys().cloned())
            .collect();
        let behind: Vec<String> = voters
            .into_iter()
            .filter(|name| {
                let process = self.process(ordinal(name));
                !process.is_some_and(|process| self.has_read(name, process))
            })
            .collect();
        self.must(behind.is_empty() && self.leader.is_some(), || {
            format!("{behind:?} run with old certificates")
        });
    }

    /// At rest nothing is written, and the status stays as it is.
    fn rest(&mut self) {
        for _ in 0..8 {
            let before = self
                .object
                .as_ref()
                .and_then(|object| object.status.clone());
            self.flow();
            let steps = self.plan().map(|plan| plan.steps).unwrap_or_default();
            let after = self
                .object
                .as_ref()
                .and_then(|object| object.status.clone());
            self.must(steps.is_empty(), || {
                format!("it does not stay at rest: {steps:?}")
            });
            self.must(before == after, || "the status changes at rest".to_owned());
            let missing = self.missing();
            self.must(missing.is_none(), || {
                format!("it does not stay at rest: {missing:?}")
            });
        }
        let networks = self.networks - self.unknown;
        let roots = self.secrets.roots;
        self.must(networks <= roots, || {
            format!("{networks} networks under {roots} roots")
        });
    }
}
