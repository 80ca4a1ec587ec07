//! Carries out what a script says.

use super::World;
use super::script::{Action, Fault, Secret};
use api::controller::{AdvertisedAddress, BootstrapPolicies};
use api::router::RetentionPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

/// Images that work, one that does not exist and one that crashes.
pub(crate) const IMAGES: [&str; 4] = [
    "registry.example/controller:1.6.0",
    "registry.example/controller:1.6.1",
    "registry.example/controller:1.6.2-missing",
    "registry.example/controller:1.6.3-crash",
];

/// Where members are reached: by default, or by names of their own.
pub(crate) fn advertised(which: u8) -> Option<AdvertisedAddress> {
    (which > 0).then(|| AdvertisedAddress {
        host: format!("{{member}}.field-{which}.example"),
        port: Some(6262),
    })
}

impl World {
    pub(crate) fn act(&mut self, action: &Action) {
        let now = self.now;
        match *action {
            Action::Reconcile(fault) => self.reconcile(fault, 0),
            Action::SlowReconcile(ticks) => self.reconcile(Fault::None, ticks),
            Action::Tick(times) => (0..times).for_each(|_| self.tick()),
            Action::Flow(rounds) => (0..rounds).for_each(|_| self.flow()),
            Action::Hours(hours) => self.advance(hours * 3600),
            Action::Replicas(replicas) => self.change(|spec| spec.replicas = replicas),
            Action::Image(which) => {
                self.change(|spec| spec.image = Some(IMAGES[usize::from(which)].to_owned()));
            }
            Action::Restart => self.change(|spec| spec.restart_at = Some(Time(now))),
            Action::Advertise(which) => self.change(|spec| {
                spec.advertised.control_plane = advertised(which);
            }),
            Action::Expose(exposed) => self.change(|spec| {
                let expose = json!({"type": "LoadBalancer"});
                spec.expose = exposed.then(|| serde_json::from_value(expose).expect("it is valid"));
                spec.advertised.client_api = exposed.then(|| AdvertisedAddress {
                    host: "{member}.example".to_owned(),
                    port: None,
                });
            }),
            Action::Policies(all) => self.change(|spec| {
                spec.bootstrap_policies = if all {
                    BootstrapPolicies::AllRouters
                } else {
                    BootstrapPolicies::None
                };
            }),
            Action::Pause(paused) => self.change(|spec| spec.paused = paused),
            Action::KeepVolumes(_) if self.object.is_none() => {}
            Action::KeepVolumes(keep) => self.change(|spec| {
                spec.storage.when_deleted = if keep {
                    RetentionPolicy::Retain
                } else {
                    RetentionPolicy::Delete
                };
            }),
            Action::Kill(ordinal) => self.kill(ordinal),
            Action::Evict(ordinal) => self.end_pod(ordinal),
            // A restore that was taken and then loses its volume stays, and a person has to
            // delete the object: a limit that docs/controllers.md tells ("Restore").
            Action::LoseVolume(0) if self.has_taken_a_restore() => {}
            Action::LoseVolume(ordinal) => self.lose_volume(ordinal),
            Action::LoseNode(ordinal) => {
                if let Some(pod) = self.kube.pods.get_mut(&ordinal) {
                    pod.node_lost = true;
                    pod.set_ready(false, now);
                    pod.ending = Some(1);
                }
            }
            Action::Cut(ordinal, true) => {
                self.cut.insert(ordinal);
            }
            Action::Cut(ordinal, false) => {
                self.cut.remove(&ordinal);
            }
            Action::IsAsWished => {
                let missing = self.missing();
                self.must(missing.is_none(), || format!("not as wished: {missing:?}"));
            }
            Action::AreUpToDate => self.are_up_to_date(),
            Action::ForceDelete(ordinal) => {
                if self
                    .kube
                    .pods
                    .get(&ordinal)
                    .is_some_and(|pod| pod.ending.is_some())
                {
                    self.kill(ordinal);
                }
            }
            Action::Users(count) => {
                if self
                    .network
                    .as_ref()
                    .is_some_and(|network| network.metadata.deletion_timestamp.is_none())
                {
                    self.users.staying += count;
                }
            }
            Action::UsersLeave => {
                self.users.leaving += self.users.staying;
                self.users.staying = 0;
            }
            Action::Delete => self.delete(),
            Action::Recreate(replicas) => {
                if self.object.is_none() {
                    self.spec.replicas = replicas;
                    self.create();
                }
            }
            Action::DeleteWorkload => self.kube.set = None,
            Action::LoseStatus => {
                if let Some(object) = &mut self.object {
                    object.status = None;
                }
            }
            Action::LoseSecret(which) => self.lose(which),
            Action::BackUp => self.back_up(),
            Action::WishBackups(wished) => self.wish_backups(wished),
            Action::WishRestore(wished) => self.wish_restore(wished),
            Action::StoreAway(away) => self.store.is_away = away,
            Action::LoseAll(restore) => self.lose_all(restore),
        }
    }

    /// One round of all.
    pub(crate) fn flow(&mut self) {
        self.tick();
        self.reconcile(Fault::None, 0);
    }

    fn delete(&mut self) {
        let now = self.now;
        let Some(object) = &mut self.object else {
            return;
        };
        if object.metadata.finalizers.is_none() {
            self.collect();
        } else {
            object.metadata.deletion_timestamp.get_or_insert(Time(now));
        }
    }

    /// Whether a restore has its keys, and the first member not its database yet.
    fn has_taken_a_restore(&self) -> bool {
        let root = self.secrets.root.as_ref();
        root.is_some_and(|root| root.restoring.is_some())
    }

    fn lose_volume(&mut self, ordinal: i32) {
        self.accidents = true;
        self.kill(ordinal);
        let claim = self.kube.claims.remove(&ordinal);
        let Some(lost) = claim.and_then(|claim| claim.database) else {
            return;
        };
        let mut others = self.kube.claims.values();
        let is_last = others.all(|claim| claim.database.is_none());
        if is_last && lost.network > self.known && !self.secrets.is_made() {
            let nobody = lost.identities.is_empty() && lost.voters.len() == 1;
            self.must(nobody, || "somebody is enrolled unrecorded".to_owned());
            self.unknown += 1;
        }
    }

    fn lose(&mut self, which: Secret) {
        match which {
            // Before a network is made with it, another root would do as well;
            // and a person has a backup of it.
            Secret::Root => {
                if let Some(root) = self.secrets.root.take_if(|root| root.made) {
                    self.backup = Some(root);
                }
            }
            Secret::Certificates => {
                self.secrets.has_pki = false;
                self.secrets.members.clear();
                self.secrets.bundle.clear();
            }
            Secret::Admin => self.secrets.admin = false,
            Secret::Bootstrap => self.secrets.bootstrap = None,
            Secret::Operator => self.secrets.operator = None,
        }
    }
}
