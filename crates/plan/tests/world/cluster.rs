//! Kubernetes' own controllers, the kubelet, and what runs in a pod: the agent
//! that enrolls and the router that connects.

use super::World;
use super::kube::{Identity, Refusal, RunningPod, Volume, is_owned};
use api::names;
use k8s_openapi::api::apps::v1::StatefulSetStatus;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, PersistentVolumeClaim, Pod,
    PodCondition, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use plan::set::applied::hash;
use plan::set::member::{ENROLL_CONTAINER, claim_name, ordinal};
use serde_json::json;

impl World {
    /// The StatefulSet's controller looks once.
    pub(crate) fn run_stateful_set(&mut self) {
        let Some(set) = self.kube.stateful_set.clone() else {
            return;
        };
        if set.metadata.deletion_timestamp.is_some() {
            return;
        }
        let spec = set.spec.clone().expect("a StatefulSet has a spec");
        let uid = set.metadata.uid.clone().expect("a stored object has a uid");
        let revision = format!("rev-{}", hash(&spec.template));
        let owner = OwnerReference {
            uid: uid.clone(),
            controller: Some(true),
            kind: "StatefulSet".into(),
            ..OwnerReference::default()
        };
        for running in self.kube.pods.values_mut() {
            let references = running
                .pod
                .metadata
                .owner_references
                .get_or_insert_default();
            if references.is_empty() {
                references.push(owner.clone());
            }
        }
        let replicas = spec.replicas.unwrap_or(1);
        for ordinal in 0..replicas {
            let name = format!("{}-{ordinal}", self.set_name);
            if self.kube.pods.contains_key(&name) {
                continue;
            }
            let claim = claim_name(&name);
            let template = spec
                .volume_claim_templates
                .iter()
                .flatten()
                .next()
                .expect("identity");
            match self.kube.claims.get(&claim) {
                Some(volume) if volume.claim.metadata.deletion_timestamp.is_some() => continue,
                Some(_) => {}
                None => {
                    let mut metadata = ObjectMeta {
                        name: Some(claim.clone()),
                        labels: template.metadata.labels.clone(),
                        ..ObjectMeta::default()
                    };
                    if self.kube.born(&mut metadata, self.now).is_err() {
                        continue;
                    }
                    let new = PersistentVolumeClaim {
                        metadata,
                        ..PersistentVolumeClaim::default()
                    };
                    self.kube.claims.insert(
                        claim,
                        Volume {
                            claim: new,
                            identity: None,
                        },
                    );
                }
            }
            let mut labels = spec
                .template
                .metadata
                .as_ref()
                .and_then(|meta| meta.labels.clone())
                .unwrap_or_default();
            labels.insert("controller-revision-hash".into(), revision.clone());
            labels.insert("statefulset.kubernetes.io/pod-name".into(), name.clone());
            let mut metadata = ObjectMeta {
                name: Some(name.clone()),
                labels: Some(labels),
                owner_references: Some(vec![owner.clone()]),
                ..ObjectMeta::default()
            };
            if self.kube.born(&mut metadata, self.now).is_ok() {
                let pod = Pod {
                    metadata,
                    spec: spec.template.spec.clone(),
                    status: None,
                };
                self.note(format!("  pod {name} is made"));
                self.kube.pods.insert(
                    name,
                    RunningPod {
                        pod,
                        mounted: None,
                        router: None,
                    },
                );
            }
        }
        for name in self.kube.pods.keys().cloned().collect::<Vec<_>>() {
            let surplus = ordinal(&self.set_name, &name).is_some_and(|ordinal| ordinal >= replicas);
            let running = &self.kube.pods[&name];
            if surplus
                && running.pod.metadata.deletion_timestamp.is_none()
                && is_owned(&running.pod.metadata, &uid)
            {
                self.kube
                    .delete_pod(&name, None, self.now)
                    .expect("it is there");
            }
        }
        let status = StatefulSetStatus {
            observed_generation: set.metadata.generation,
            update_revision: Some(revision),
            ..StatefulSetStatus::default()
        };
        if set.status.as_ref() != Some(&status) {
            let number = self.kube.next().to_string();
            let set = self.kube.stateful_set.as_mut().expect("looked at above");
            set.status = Some(status);
            set.metadata.resource_version = Some(number);
        }
    }

    /// The kubelet starts a pod: it mounts what the Secret holds now.
    pub(crate) fn start_pod(&mut self, name: &str) {
        let Some(running) = self.kube.pods.get(name) else {
            return;
        };
        if running.mounted.is_some() || running.pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        let volumes = running
            .pod
            .spec
            .iter()
            .flat_map(|spec| spec.volumes.iter().flatten());
        let config = volumes
            .filter_map(|volume| volume.config_map.as_ref())
            .all(|map| self.kube.config_maps.contains_key(&map.name));
        let (Some(secret), true) = (&self.kube.tokens, config) else {
            return;
        };
        // A missing key becomes a folder, which the agent takes for no token.
        let token = secret.keys.get(name).cloned().flatten();
        if let Some(digest) = &token {
            self.token_given(name, digest.clone());
        }
        self.note(format!("  pod {name} starts with {token:?}"));
        let number = self.kube.next().to_string();
        let running = self.kube.pods.get_mut(name).expect("looked at above");
        running.mounted = Some(token);
        running.pod.metadata.resource_version = Some(number);
    }

    /// The init container runs once.
    pub(crate) fn run_agent(&mut self, name: &str, lose_reply: bool) {
        let Some(running) = self.kube.pods.get(name) else {
            return;
        };
        let (Some(token), None) = (running.mounted.clone(), &running.router) else {
            return;
        };
        if running.pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        let claim = claim_name(name);
        let Some(volume) = self.kube.claims.get(&claim) else {
            return;
        };
        let found = volume.identity.clone();
        let result = match (&found, &token) {
            (Some(identity), Some(digest)) if *digest != identity.token => {
                let subject = self.all_tokens.get(digest).cloned().unwrap_or_default();
                if subject != identity.router && self.is_provided() {
                    Err(("IdentityMismatch", Some(digest.clone())))
                } else {
                    // Refused: a sound identity is kept.
                    Ok(self
                        .redeem(digest, lose_reply)
                        .unwrap_or_else(|_| identity.clone()))
                }
            }
            (Some(identity), _) => Ok(identity.clone()),
            (None, None) => Err(("TokenMissing", None)),
            (None, Some(digest)) => self
                .redeem(digest, lose_reply)
                .map_err(|reason| (reason, Some(digest.clone()))),
        };
        self.note(format!("  agent of {name}: {result:?}"));
        let message = match &result {
            Ok(identity) => json!({
                "outcome": "Enrolled",
                "routerId": identity.router,
                "fingerprint": identity.certificate,
                "tokenDigest": token.clone().unwrap_or(identity.token.clone()),
            }),
            Err((reason, digest)) => {
                json!({"outcome": "Failed", "reason": reason, "message": "no", "tokenDigest": digest})
            }
        };
        if let Ok(identity) = &result {
            self.kube
                .claims
                .get_mut(&claim)
                .expect("looked at above")
                .identity = Some(identity.clone());
        }
        let number = self.kube.next().to_string();
        let running = self.kube.pods.get_mut(name).expect("looked at above");
        let ended = ContainerStateTerminated {
            message: Some(message.to_string()),
            ..ContainerStateTerminated::default()
        };
        let state = ContainerState {
            terminated: Some(ended),
            ..ContainerState::default()
        };
        let status = ContainerStatus {
            name: ENROLL_CONTAINER.to_owned(),
            state: Some(state),
            ..ContainerStatus::default()
        };
        let ready = PodCondition {
            type_: "Ready".into(),
            status: "True".into(),
            ..PodCondition::default()
        };
        running.pod.status = Some(PodStatus {
            init_container_statuses: Some(vec![status]),
            conditions: result.is_ok().then(|| vec![ready]),
            ..PodStatus::default()
        });
        running.pod.metadata.resource_version = Some(number);
        running.router = result.ok();
        if running.router.is_some() && self.mode == super::Mode::ProvidedAlone {
            // Nobody could tell whether it is online: that it runs is all.
            self.ledger.voluntary.remove(name);
        }
    }

    fn redeem(&mut self, digest: &str, lose_reply: bool) -> Result<Identity, &'static str> {
        if !self.reachable {
            return Err("ControllerUnreachable");
        }
        let (router, certificate) = self.ziti.enroll(digest, self.now)?;
        if lose_reply {
            return Err("ReplyLost");
        }
        Ok(Identity {
            router,
            certificate,
            token: digest.to_owned(),
        })
    }

    /// The router tries to connect.
    pub(crate) fn connect(&mut self, name: &str) {
        let Some(identity) = self
            .kube
            .pods
            .get(name)
            .and_then(|running| running.router.clone())
        else {
            return;
        };
        if !self.reachable || self.ziti.is_online(&identity.certificate) {
            return;
        }
        if self.ziti.connect(&identity.router, &identity.certificate) {
            self.note(format!("  router of {name} connects"));
            self.ledger.voluntary.remove(name);
        }
    }

    /// The router's connection breaks; the router goes on.
    pub(crate) fn drop_connection(&mut self, name: &str) {
        if let Some(identity) = self
            .kube
            .pods
            .get(name)
            .and_then(|running| running.router.clone())
        {
            self.ziti.disconnect(&identity.certificate);
        }
    }

    /// A pod that is being deleted ends.
    pub(crate) fn finish_pod(&mut self, name: &str) {
        let terminating = self
            .kube
            .pods
            .get(name)
            .is_some_and(|running| running.pod.metadata.deletion_timestamp.is_some());
        if terminating {
            self.drop_connection(name);
            self.kube.pods.remove(name);
            self.kube.next();
            self.note(format!("  pod {name} is gone"));
        }
    }

    /// A pod is deleted by somebody else than the operator.
    pub(crate) fn evict(&mut self, name: &str) {
        if self.kube.pods.contains_key(name) {
            self.kube
                .delete_pod(name, None, self.now)
                .expect("it is there");
            self.ledger.voluntary.remove(name);
        }
    }

    /// The volume of a member is lost, and its pod with it.
    pub(crate) fn lose_volume(&mut self, name: &str) {
        self.ledger.wiped.insert(name.to_owned());
        if self.kube.pods.contains_key(name) {
            if let Some(volume) = self.kube.claims.get_mut(&claim_name(name)) {
                volume.identity = None;
            }
            self.evict(name);
        } else if self.kube.claims.remove(&claim_name(name)).is_some() {
            self.kube.next();
        }
    }

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
        if before != (self.kube.services.len(), self.kube.config_maps.len()) {
            self.kube.next();
        }
        if self
            .kube
            .stateful_set
            .as_ref()
            .is_some_and(|set| lost(&set.metadata))
        {
            self.kube.stateful_set = None;
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
        if self
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
        let set_uid = self
            .kube
            .stateful_set
            .as_ref()
            .and_then(|set| set.metadata.uid.clone());
        for name in self.kube.pods.keys().cloned().collect::<Vec<_>>() {
            let meta = &self.kube.pods[&name].pod.metadata;
            let owners = meta.owner_references.as_deref().unwrap_or_default();
            let lost = !owners.is_empty()
                && owners
                    .iter()
                    .all(|owner| Some(&owner.uid) != set_uid.as_ref());
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
            self.kube.tokens = self
                .kube
                .tokens
                .take()
                .filter(|secret| secret.owner.as_ref() != Some(&uid));
            self.kube.provided_copy = self
                .kube
                .provided_copy
                .take()
                .filter(|secret| secret.owner.as_ref() != Some(&uid));
            if let Some(workload) = self
                .kube
                .stateful_set
                .as_mut()
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
        if let Some(workload) = self
            .kube
            .stateful_set
            .clone()
            .filter(|set| set.metadata.deletion_timestamp.is_some())
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
                self.kube.stateful_set = None;
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
        if let Some(set) = &mut self.kube.stateful_set {
            strip(&mut set.metadata);
        }
        for owner in self
            .kube
            .tokens
            .iter_mut()
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
        if !self.kube.pods.is_empty() {
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
        self.kube.stateful_set = None;
        self.kube.services.clear();
        self.kube.config_maps.clear();
        self.kube.claims.clear();
        self.kube.enrollment.clear();
        self.kube.tokens = None;
        self.kube.provided_copy = None;
    }
}

/// The set of an object's labels.
pub(crate) fn in_set(meta: &ObjectMeta, set: &str) -> bool {
    meta.labels
        .as_ref()
        .and_then(|labels| labels.get(names::LABEL_SET))
        .map(String::as_str)
        == Some(set)
}
