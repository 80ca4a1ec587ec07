//! What ends objects: the garbage collector with its three ways of deletion, the
//! protection of claims, and the namespace controller.

use super::World;
use super::kube::{Refusal, is_owned};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use plan::set::member::claim_name;

impl World {
    /// The garbage collector, the claim protection and the namespace controller
    /// look once.
    pub(crate) fn collect(&mut self) {
        self.cascade();
        if self.kube.terminating {
            self.empty_namespace();
        }
        let uid = self
            .kube
            .set
            .as_ref()
            .and_then(|set| set.metadata.uid.clone());
        // Owned by a ZitiRouter that is no more.
        let lost = |meta: &ObjectMeta| {
            let owners = meta.owner_references.as_deref().unwrap_or_default();
            !owners.is_empty() && owners.iter().all(|owner| Some(&owner.uid) != uid.as_ref())
        };
        let before = (self.kube.services.len(), self.kube.config_maps.len());
        self.kube
            .services
            .retain(|_, service| !lost(&service.metadata));
        self.kube.config_maps.retain(|_, map| !lost(&map.metadata));
        self.kube.extras.retain(|_, extra| !lost(&extra.metadata));
        if before != (self.kube.services.len(), self.kube.config_maps.len()) {
            self.kube.next();
        }
        let before = self.kube.stateful_sets.len();
        self.kube
            .stateful_sets
            .retain(|_, set| !lost(&set.metadata));
        if before != self.kube.stateful_sets.len() {
            self.kube.next();
        }
        for name in self.kube.edge_routers.keys().cloned().collect::<Vec<_>>() {
            let meta = &self.kube.edge_routers[&name].metadata;
            if lost(meta) && meta.deletion_timestamp.is_none() {
                self.kube
                    .delete_edge_router(&name, None, self.now)
                    .expect("it is there");
            }
        }
        let gone = |owner: &Option<String>| owner.is_some() && *owner != uid;
        if !self.kube.afar
            && self
                .kube
                .tokens
                .as_ref()
                .is_some_and(|secret| gone(&secret.owner))
        {
            self.kube.tokens = None;
        }
        if self
            .kube
            .provided_copy
            .as_ref()
            .is_some_and(|secret| gone(&secret.owner))
        {
            self.kube.provided_copy = None;
        }
        let edge_routers = &self.kube.edge_routers;
        self.kube.enrollment.retain(|_, secret| {
            edge_routers
                .values()
                .any(|er| er.metadata.uid == secret.owner)
        });
        let workloads = self.kube.stateful_sets.values();
        let workloads: Vec<String> = workloads
            .filter_map(|set| set.metadata.uid.clone())
            .collect();
        for name in self.kube.pods.keys().cloned().collect::<Vec<_>>() {
            let meta = &self.kube.pods[&name].pod.metadata;
            let owners = meta.owner_references.as_deref().unwrap_or_default();
            let lost =
                !owners.is_empty() && owners.iter().all(|owner| !workloads.contains(&owner.uid));
            if lost && meta.deletion_timestamp.is_none() {
                self.kube
                    .delete_pod(&name, None, self.now)
                    .expect("it is there");
            }
        }
        let pods = &self.kube.pods;
        let before = self.kube.claims.len();
        self.kube.claims.retain(|claim, volume| {
            volume.claim.metadata.deletion_timestamp.is_none()
                || pods.keys().any(|pod| claim_name(pod) == *claim)
        });
        if before != self.kube.claims.len() {
            self.kube.next();
        }
    }

    /// What foreground deletion and orphaning do to the set's dependents.
    fn cascade(&mut self) {
        let Some(set) = self.kube.set.clone() else {
            return;
        };
        let uid = set.metadata.uid.clone().unwrap_or_default();
        let finalizers = set.metadata.finalizers.clone().unwrap_or_default();
        let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
        if has("orphan") {
            self.orphan(&uid);
        }
        let mut left = false;
        if has("foregroundDeletion") {
            for name in self.kube.edge_routers.keys().cloned().collect::<Vec<_>>() {
                if is_owned(&self.kube.edge_routers[&name].metadata, &uid) {
                    self.kube
                        .delete_edge_router(&name, Some(&self.uid_of(&name)), self.now)
                        .ok();
                    left |= self.kube.edge_routers.contains_key(&name);
                }
            }
            self.kube
                .services
                .retain(|_, service| !is_owned(&service.metadata, &uid));
            self.kube
                .config_maps
                .retain(|_, map| !is_owned(&map.metadata, &uid));
            self.kube
                .extras
                .retain(|_, extra| !is_owned(&extra.metadata, &uid));
            let afar = self.kube.afar;
            self.kube.tokens = self
                .kube
                .tokens
                .take()
                .filter(|secret| afar || secret.owner.as_ref() != Some(&uid));
            self.kube.provided_copy = self
                .kube
                .provided_copy
                .take()
                .filter(|secret| secret.owner.as_ref() != Some(&uid));
            for workload in self
                .kube
                .stateful_sets
                .values_mut()
                .filter(|workload| is_owned(&workload.metadata, &uid))
            {
                workload
                    .metadata
                    .deletion_timestamp
                    .get_or_insert(Time(self.now));
                left = true;
            }
        }
        // A StatefulSet that is deleted in the foreground goes after its pods.
        let ending = self.kube.stateful_sets.clone().into_iter();
        for (workload_name, workload) in
            ending.filter(|(_, set)| set.metadata.deletion_timestamp.is_some())
        {
            let owner = workload.metadata.uid.clone().unwrap_or_default();
            let mut pods = false;
            for name in self.kube.pods.keys().cloned().collect::<Vec<_>>() {
                if is_owned(&self.kube.pods[&name].pod.metadata, &owner) {
                    pods = true;
                    if self.kube.pods[&name]
                        .pod
                        .metadata
                        .deletion_timestamp
                        .is_none()
                    {
                        self.kube
                            .delete_pod(&name, None, self.now)
                            .expect("it is there");
                    }
                }
            }
            if !pods {
                self.kube.stateful_sets.remove(&workload_name);
                self.kube.next();
            }
        }
        if has("orphan") || (has("foregroundDeletion") && !left) {
            self.kube.change_set(|set| {
                set.metadata
                    .finalizers
                    .iter_mut()
                    .for_each(|list| list.retain(|f| f != "orphan" && f != "foregroundDeletion"));
            });
        }
    }

    fn uid_of(&self, edge_router: &str) -> String {
        self.kube
            .edge_routers
            .get(edge_router)
            .and_then(|er| er.metadata.uid.clone())
            .unwrap_or_default()
    }

    fn orphan(&mut self, uid: &str) {
        let strip = |meta: &mut ObjectMeta| {
            if let Some(owners) = &mut meta.owner_references {
                owners.retain(|owner| owner.uid != uid);
            }
        };
        for name in self.kube.edge_routers.keys().cloned().collect::<Vec<_>>() {
            let stripped: Result<(), Refusal> = self
                .kube
                .change_edge_router(&name, |er| strip(&mut er.metadata));
            stripped.expect("it is there");
        }
        self.kube
            .services
            .values_mut()
            .for_each(|service| strip(&mut service.metadata));
        self.kube
            .config_maps
            .values_mut()
            .for_each(|map| strip(&mut map.metadata));
        for set in self.kube.stateful_sets.values_mut() {
            strip(&mut set.metadata);
        }
        for extra in self.kube.extras.values_mut() {
            strip(&mut extra.metadata);
        }
        for owner in self
            .kube
            .tokens
            .iter_mut()
            .filter(|_| !self.kube.afar)
            .map(|keys| &mut keys.owner)
            .chain(
                self.kube
                    .provided_copy
                    .iter_mut()
                    .map(|keys| &mut keys.owner),
            )
        {
            *owner = None;
        }
        self.kube.next();
    }

    /// Kubernetes 1.34 ends the pods of a terminating namespace first.
    fn empty_namespace(&mut self) {
        if !self.kube.afar && !self.kube.pods.is_empty() {
            for name in self.kube.pods.keys().cloned().collect::<Vec<_>>() {
                if self.kube.pods[&name]
                    .pod
                    .metadata
                    .deletion_timestamp
                    .is_none()
                {
                    self.kube
                        .delete_pod(&name, None, self.now)
                        .expect("it is there");
                }
            }
            return;
        }
        let now = self.now;
        self.kube.change_set(|set| {
            if set.metadata.deletion_timestamp.is_none() {
                set.metadata.deletion_timestamp = Some(Time(now));
            }
        });
        for name in self.kube.edge_routers.keys().cloned().collect::<Vec<_>>() {
            self.kube
                .delete_edge_router(&name, None, now)
                .expect("it is there");
        }
        self.kube.enrollment.clear();
        self.kube.provided_copy = None;
        if self.kube.afar {
            return;
        }
        self.kube.stateful_sets.clear();
        self.kube.services.clear();
        self.kube.config_maps.clear();
        self.kube.extras.clear();
        self.kube.claims.clear();
        self.kube.tokens = None;
    }
}
