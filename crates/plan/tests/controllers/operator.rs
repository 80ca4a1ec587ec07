//! The operator: it observes, asks the planner, and carries out the steps, as
//! `crates/operator/src/controller` does; and what must never follow from it.

use super::kube::member;
use super::raft::ordinal;
use super::script::Fault;
use super::{NAME, World};
use api::reasons::types;
use api::{ZitiControllerStatus, names};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use plan::conditions::{find, is_true};
use plan::controller::cluster::quorum;
use plan::controller::{Facts, FailedJoin, Plan, Step, after_failure, backup, plan, restore};
use plan::edge_router::Problem;
use plan::set::member::replicas;
use std::collections::{BTreeMap, BTreeSet};

/// An election is over by then.
const ELECTION: SignedDuration = SignedDuration::from_secs(15);

/// How the cluster stood when the operator looked.
struct Before {
    /// Who votes.
    voters: BTreeSet<String>,
    /// Those of them that work together.
    working: BTreeSet<String>,
    /// Members that should have a pod which stays, and have none.
    missing: Vec<i32>,
}

impl World {
    fn facts(&self) -> Facts<'_> {
        Facts {
            object: self.object.as_ref().expect("there is one"),
            settings: &self.settings,
            stateful_set: self.kube.set.clone(),
            pods: self.kube.pod_objects(),
            services: self.kube.services.values().cloned().collect(),
            config_maps: self.kube.maps.values().cloned().collect(),
            claims: self.kube.claim_objects(),
            extras: self.kube.extras.values().cloned().collect(),
            root: self.secrets.root(),
            pki: self.secrets.pki(),
            issuer: None,
            admin: self.secrets.admin(),
            bootstrap: self.secrets.bootstrap.clone(),
            web_certificates: BTreeMap::new(),
            cluster: self.ask(),
            joins: self.joins.clone(),
            operator: self.secrets.operator.clone(),
            network: self.network.clone(),
            copies: self.copies(),
            users: self.users,
            now: self.operators_clock(),
        }
    }

    /// What the operator takes for now.
    pub(crate) fn operators_clock(&self) -> Timestamp {
        let skew = SignedDuration::from_secs(self.skew);
        self.now.checked_add(skew).expect("in range")
    }

    fn before(&self) -> Before {
        // Nobody can see that one is about to lead whom the others do not know.
        let next = || self.electable().filter(|one| !self.is_hidden(*one));
        let leads = self.leader.or_else(next);
        let count = self.kube.set.as_ref().map_or(0, replicas);
        let stays = |ordinal: &i32| {
            self.kube
                .pods
                .get(ordinal)
                .is_some_and(super::kube::Pod::stays)
        };
        Before {
            voters: leads
                .and_then(|leader| self.database(leader))
                .map(|own| own.voters.keys().cloned().collect())
                .unwrap_or_default(),
            working: leads
                .map(|leader| self.connected(leader))
                .unwrap_or_default(),
            missing: (0..count).filter(|ordinal| !stays(ordinal)).collect(),
        }
    }

    /// What the planner says now.
    pub(crate) fn plan(&self) -> Option<Plan> {
        self.object.as_ref().map(|_| plan(&self.facts()))
    }

    /// One reconcile; `ticks` pass between its reads and its writes.
    pub(crate) fn reconcile(&mut self, fault: Fault, ticks: u8) {
        self.carry_out(fault, ticks);
        let object = self.object.as_ref();
        let status = object.and_then(|object| object.status.as_ref());
        let recorded = status.is_some_and(|status| status.initialized.is_some());
        if recorded || self.secrets.is_made() {
            self.known = self.networks;
        }
    }

    fn carry_out(&mut self, fault: Fault, ticks: u8) {
        let Some(plan) = self.plan() else { return };
        let before = self.before();
        for _ in 0..ticks {
            self.tick();
        }
        let paused = self
            .object
            .as_ref()
            .is_some_and(|object| object.spec.paused);
        // A permission that has been used is taken back, also then.
        let withdraws = |step: &Step| {
            let (initialize, restore) = (None, None);
            *step
                == Step::WriteBootstrap {
                    initialize,
                    restore,
                }
        };
        self.must(!paused || plan.steps.iter().all(withdraws), || {
            "it writes while it is paused".to_owned()
        });
        for (index, step) in plan.steps.iter().enumerate() {
            let at = |number: u8| usize::from(number) == index;
            if matches!(fault, Fault::Crash(after) if at(after)) {
                self.joins.clear();
                return self.note("  the operator ends");
            }
            self.note(&format!("  {}", short(step)));
            self.judge(step, &before);
            let mut done = match fault {
                Fault::Fail(number) if at(number) => {
                    Err(Problem::new(api::reasons::REFUSED, "it failed"))
                }
                _ => self.apply(step),
            };
            if matches!(fault, Fault::LoseReply(number) if at(number)) {
                done = Err(Problem::new(api::reasons::REFUSED, "no reply"));
            }
            let now = self.operators_clock();
            let Some(object) = &mut self.object else {
                return;
            };
            if let Err(problem) = done {
                object.status = Some(after_failure(
                    &plan,
                    &problem,
                    object.metadata.generation,
                    now,
                ));
                return self.note(&format!("    {}", problem.message));
            }
        }
        if let Some(object) = &mut self.object {
            let before = object.status.replace(plan.status);
            self.judge_status(&before.unwrap_or_default());
        }
    }

    /// A cluster that had a leader moments ago is not lost.
    fn judge_status(&mut self, before: &ZitiControllerStatus) {
        // By what can be seen: one that leads with a certificate that has ended, or alone from
        // an address that is not known, is seen by nobody.
        if self.ask().is_ok_and(|cluster| cluster.leader().is_some()) {
            self.led_at = self.now;
        }
        let object = self.object.as_ref();
        let Some(status) = object.and_then(|object| object.status.as_ref()) else {
            return;
        };
        let ready = find(&status.conditions, types::READY);
        let lost = ready.is_some_and(|ready| ready.reason == api::reasons::QUORUM_LOST);
        let hasty = is_true(&before.conditions, types::READY)
            && lost
            && status.leaderless_since.is_some()
            && self.now.duration_since(self.led_at) < ELECTION;
        self.must(!hasty, || "an election is called a lost quorum".to_owned());
    }

    /// What must hold of each step, whatever comes of it.
    fn judge(&mut self, step: &Step, before: &Before) {
        let wanted = |name: &str| {
            ordinal(name) < self.spec.replicas
                && self
                    .object
                    .as_ref()
                    .is_some_and(|object| ordinal(name) < object.spec.replicas)
        };
        let (voters, working) = (&before.voters, &before.working);
        let had = working.len() >= quorum(voters.len());
        let keeps = |voters: usize, working: usize| !had || working >= quorum(voters);
        let wrong = match step {
            Step::DeletePod { name, .. } => {
                let left = working.iter().filter(|one| *one != name).count();
                let lost = voters.len() > 1 && working.contains(name) && !keeps(voters.len(), left);
                let others: Vec<_> = before
                    .missing
                    .iter()
                    .filter(|one| member(**one) != *name && voters.contains(&member(**one)))
                    .collect();
                if lost {
                    Some(format!("{name} is restarted, and quorum is given up"))
                } else {
                    (!others.is_empty())
                        .then(|| format!("{name} is restarted while {others:?} are missing"))
                }
            }
            Step::RemoveMember { member } => {
                let rest = voters.iter().filter(|one| *one != member).count();
                let left = working.iter().filter(|one| *one != member).count();
                if wanted(member) {
                    Some(format!("{member} is wanted, and removed"))
                } else if rest == 0 {
                    Some(format!("{member} is the last member, and removed"))
                } else {
                    (!keeps(rest, left))
                        .then(|| format!("{member} is removed, and quorum is given up"))
                }
            }
            Step::AddMember { member, .. } => {
                let all = voters.len() + usize::from(!voters.contains(member));
                let left = working.len() + usize::from(!working.contains(member));
                (!wanted(member) || !keeps(all, left))
                    .then(|| format!("{member} joins, and quorum is given up"))
            }
            Step::DeleteClaim { name, .. } => {
                let name = name.trim_start_matches("data-");
                let ends = self
                    .object
                    .as_ref()
                    .is_some_and(|object| object.metadata.deletion_timestamp.is_some());
                let by_wish =
                    ends && self.spec.storage.when_deleted == api::router::RetentionPolicy::Delete;
                // What a restore that ends has made, and nobody has used.
                let claim = self.kube.claims.get(&ordinal(name));
                let unused = ends
                    && self.secrets.root.is_none()
                    && claim.is_some_and(|claim| claim.database.is_none());
                (!by_wish && !unused && (wanted(name) || voters.contains(name)))
                    .then(|| format!("the volume of {name} is deleted"))
            }
            Step::MakeRoot { .. } => (self.secrets.root.is_some()
                || self.networks > 0
                    && self
                        .kube
                        .claims
                        .values()
                        .any(|claim| claim.database.is_some()))
            .then(|| "another root is made".to_owned()),
            Step::TransferLeadership { to } => {
                (!wanted(to)).then(|| format!("{to} is to lead, and to go"))
            }
            _ => None,
        };
        self.must(wrong.is_none(), || wrong.clone().unwrap_or_default());
    }

    /// A failure is the operator's to remember, unless nobody leads, or its pod is
    /// only just there.
    fn tries_to_join(&mut self, name: &str, address: &str) -> Result<(), Problem> {
        let tried = self.add_member(name, address);
        let before = self.joins.remove(name).map_or(0, |before| before.times);
        let Err(problem) = tried else { return Ok(()) };
        if self.leader.is_none() {
            return Err(problem);
        }
        self.note(&format!("    {}", problem.message));
        let pod = self.kube.pods.get(&ordinal(name));
        let age = pod.map(|pod| self.now.duration_since(pod.created));
        if age.is_some_and(|age| age >= SignedDuration::from_mins(1)) {
            let failed = FailedJoin {
                at: self.operators_clock(),
                times: before + 1,
                why: problem.message,
            };
            self.joins.insert(name.to_owned(), failed);
        }
        Ok(())
    }

    fn apply(&mut self, step: &Step) -> Result<(), Problem> {
        let read_only = || {
            Problem::new(
                api::reasons::REFUSED,
                "In a readonly state: different versions detected in cluster",
            )
        };
        match step {
            Step::AddFinalizer => {
                let object = self.object.as_mut().expect("it was planned for");
                object.metadata.finalizers = Some(vec![names::FINALIZER_CONTROLLER.to_owned()]);
            }
            Step::ReleaseFinalizer => {
                self.kept = Some(self.spec.storage.when_deleted);
                self.collect();
            }
            Step::ApplyService(service) => {
                self.kube
                    .services
                    .insert(service.name_any(), (**service).clone());
            }
            Step::ApplyConfigMap(map) => {
                self.kube.maps.insert(map.name_any(), (**map).clone());
            }
            Step::ApplyExtra(_, extra) => self.kube.apply_extra(extra),
            Step::ApplyStatefulSet(set) => self.kube.apply_set((**set).clone()),
            Step::ApplyNetwork(network) => {
                let status = self.network.take().and_then(|network| network.status);
                let mut network = (**network).clone();
                network.metadata.uid = Some(self.kube.uid());
                network.status = status;
                self.network = Some(network);
            }
            Step::MakeRoot { trust_domain, life } => {
                self.secrets.make_root(trust_domain, *life);
            }
            Step::RenewRoot { life } => self.secrets.renew_root(*life),
            Step::Issue(issues) => self.secrets.issue(issues, self.now),
            Step::ForgetMembers(gone) => {
                for name in gone {
                    self.secrets.members.remove(name);
                }
            }
            Step::MakeAdmin => self.secrets.admin = true,
            Step::MarkMade => {
                if let Some(root) = &mut self.secrets.root {
                    root.made = true;
                    root.restoring = None;
                }
            }
            Step::WriteBootstrap {
                initialize,
                restore,
            } => {
                self.secrets
                    .write_bootstrap(initialize.as_deref(), restore.clone());
            }
            Step::Backup(act) => self.apply_backup(act),
            Step::Restore(act) => self.apply_restore(act),
            Step::AddMember { member, address } => self.tries_to_join(member, address)?,
            Step::RemoveMember { member } => return self.remove_member(member),
            Step::TransferLeadership { to } => return self.transfer(to),
            Step::DeletePod { name, uid, .. } => {
                let one = ordinal(name);
                if self.kube.pods.get(&one).is_some_and(|pod| pod.uid == *uid) {
                    self.end_pod(one);
                }
            }
            Step::MakePolicies
            | Step::DeletePolicies
            | Step::MakeOperatorIdentity { .. }
            | Step::DeleteIdentities(_)
                if self.is_read_only() =>
            {
                return Err(read_only());
            }
            Step::MakePolicies | Step::DeletePolicies => {
                use plan::controller::network::{Policies, Policy};
                let both = if *step == Step::MakePolicies {
                    Policy::Ours
                } else {
                    Policy::Absent
                };
                return self.write(|database| {
                    database.policies = Policies {
                        edge_router: both,
                        service_edge_router: both,
                    }
                });
            }
            Step::MakeOperatorIdentity { serial } => self.make_identity(*serial),
            Step::DeleteIdentities(ids) => {
                return self
                    .write(|database| database.identities.retain(|(id, _)| !ids.contains(id)));
            }
            Step::EndNetwork => {
                if let Some(network) = &mut self.network {
                    network
                        .annotations_mut()
                        .insert(names::ANNOTATION_NETWORK_ENDS.to_owned(), "true".to_owned());
                }
            }
            Step::DeleteNetwork { .. } => {
                if let Some(network) = &mut self.network {
                    network.metadata.deletion_timestamp = Some(
                        k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now),
                    );
                }
            }
            Step::DeleteStatefulSet { .. } => self.kube.set = None,
            Step::DeleteService { name } => {
                self.kube.services.remove(name);
            }
            Step::DeleteConfigMap { name } => {
                self.kube.maps.remove(name);
            }
            Step::DeleteExtra { kind, name } => {
                self.kube.extras.remove(&(kind.kind, name.clone()));
            }
            Step::DeleteClaim { name, .. } => {
                let one = ordinal(name);
                let mounted = self.kube.pods.contains_key(&one);
                if let Some(claim) = self.kube.claims.get_mut(&one) {
                    claim.ending = true;
                }
                if !mounted {
                    self.kube.claims.remove(&one);
                }
            }
            Step::DeleteSecrets => self.secrets.delete(),
            Step::KeepTrust { .. } | Step::Adopt(_) | Step::Reissue(_) => {
                unreachable!("the root of this world is its own")
            }
        }
        Ok(())
    }
}

/// A step in one line.
pub(crate) fn short(step: &Step) -> String {
    match step {
        Step::ApplyService(service) => format!("ApplyService {}", service.name_any()),
        Step::ApplyConfigMap(map) => format!("ApplyConfigMap {}", map.name_any()),
        Step::ApplyExtra(kind, _) => format!("ApplyExtra {}", kind.kind),
        Step::ApplyStatefulSet(set) => format!("ApplyStatefulSet of {}", replicas(set)),
        Step::ApplyNetwork(_) => format!("ApplyNetwork {NAME}"),
        Step::Issue(issues) => {
            let issues = issues.iter().map(|issue| {
                (
                    &issue.member,
                    issue.certificate.is_some(),
                    issue.signer.is_some(),
                )
            });
            format!("Issue {:?}", issues.collect::<Vec<_>>())
        }
        Step::Backup(backup::Act::Apply(_)) => "ApplyCronJob".to_owned(),
        Step::Restore(restore::Act::CreateClaim(_)) => "CreateClaim".to_owned(),
        Step::Restore(restore::Act::CreateJob(job)) => format!("CreateJob {}", job.name_any()),
        step => format!("{step:?}"),
    }
}
