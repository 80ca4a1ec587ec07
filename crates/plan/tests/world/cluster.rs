//! Kubernetes' own controllers, the kubelet, and what runs in a pod: the agent
//! that enrolls and the router that connects.

use super::World;
use super::kube::{Identity, RunningPod, Token, Volume, is_owned};
use api::names;
use k8s_openapi::api::apps::v1::{StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, PersistentVolumeClaim, Pod,
    PodCondition, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use plan::set::applied::hash;
use plan::set::member::{ENROLL_CONTAINER, claim_name, pod_name};
use serde_json::json;

impl World {
    /// The StatefulSets' controller looks once.
    pub(crate) fn run_stateful_sets(&mut self) {
        for name in self.kube.stateful_sets.keys().cloned().collect::<Vec<_>>() {
            self.run_stateful_set(&name);
        }
    }

    /// The members that a StatefulSet may have: its own one, or one by ordinal.
    fn members_of(&self, workload: &str) -> Vec<String> {
        if workload == self.set_name {
            (0..self.seats)
                .map(|ordinal| self.member(ordinal))
                .collect()
        } else {
            vec![workload.to_owned()]
        }
    }

    fn run_stateful_set(&mut self, workload: &str) {
        let set = self.kube.stateful_sets[workload].clone();
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
        let members = self.members_of(workload);
        for (_, running) in self
            .kube
            .pods
            .iter_mut()
            .filter(|(member, _)| members.contains(member))
        {
            let references = running
                .pod
                .metadata
                .owner_references
                .get_or_insert_default();
            if references.is_empty() {
                references.push(owner.clone());
            }
        }
        let replicas = usize::try_from(spec.replicas.unwrap_or(1)).expect("not below 0");
        for member in members.iter().take(replicas) {
            self.make_pod(member, &spec, &revision, &owner);
        }
        for member in members.iter().skip(replicas) {
            let Some(running) = self.kube.pods.get(member) else {
                continue;
            };
            if running.pod.metadata.deletion_timestamp.is_none()
                && is_owned(&running.pod.metadata, &uid)
            {
                self.kube
                    .delete_pod(member, None, self.now)
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
            let set = self.kube.stateful_sets.get_mut(workload);
            let set = set.expect("looked at above");
            set.status = Some(status);
            set.metadata.resource_version = Some(number);
        }
    }

    /// Make the pod of a member, and its claim, where they are not there.
    fn make_pod(
        &mut self,
        member: &str,
        spec: &StatefulSetSpec,
        revision: &str,
        owner: &OwnerReference,
    ) {
        if self.kube.pods.contains_key(member) {
            return;
        }
        let pod_name = pod_name(self.spec.effective_topology(), member);
        let claim = claim_name(member);
        let template = spec
            .volume_claim_templates
            .iter()
            .flatten()
            .next()
            .expect("identity");
        match self.kube.claims.get(&claim) {
            Some(volume) if volume.claim.metadata.deletion_timestamp.is_some() => return,
            Some(_) => {}
            None => {
                let mut metadata = ObjectMeta {
                    name: Some(claim_name(&pod_name)),
                    labels: template.metadata.labels.clone(),
                    ..ObjectMeta::default()
                };
                if self.kube.born_there(&mut metadata, self.now).is_err() {
                    return;
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
        labels.insert("controller-revision-hash".into(), revision.to_owned());
        labels.insert(
            "statefulset.kubernetes.io/pod-name".into(),
            pod_name.clone(),
        );
        let mut metadata = ObjectMeta {
            name: Some(pod_name),
            labels: Some(labels),
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        };
        if self.kube.born_there(&mut metadata, self.now).is_ok() {
            let pod = Pod {
                metadata,
                spec: spec.template.spec.clone(),
                status: None,
            };
            self.note(format!("  pod {member} is made"));
            self.kube.pods.insert(
                member.to_owned(),
                RunningPod {
                    pod,
                    mounted: None,
                    router: None,
                },
            );
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
        if let Some(digest) = token.clone() {
            self.token_given(name, &digest);
        }
        self.note(format!("  pod {name} starts with {token:?}"));
        let number = self.kube.next().to_string();
        let running = self.kube.pods.get_mut(name).expect("looked at above");
        running.mounted = Some(Token(token));
        running.pod.metadata.resource_version = Some(number);
    }

    /// The init container runs once.
    pub(crate) fn run_agent(&mut self, name: &str, lose_reply: bool) {
        let Some(running) = self.kube.pods.get(name) else {
            return;
        };
        let (Some(Token(token)), None) = (running.mounted.clone(), &running.router) else {
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
        let mut kept_for = None;
        let result = match (&found, &token) {
            (Some(identity), Some(digest)) if *digest != identity.token => {
                let subject = self.all_tokens.get(digest).cloned().unwrap_or_default();
                if subject != identity.router && self.is_provided() {
                    Err(("IdentityMismatch", Some(digest.clone())))
                } else {
                    // Refused: a sound identity is kept.
                    Ok(self.redeem(digest, lose_reply).unwrap_or_else(|reason| {
                        kept_for = Some(reason);
                        identity.clone()
                    }))
                }
            }
            (Some(identity), _) => Ok(identity.clone()),
            (None, None) => Err(("TokenMissing", None)),
            (None, Some(digest)) => self
                .redeem(digest, lose_reply)
                .map_err(|reason| (reason, Some(digest.clone()))),
        };
        let told = format!("  agent of {name}: {result:?}");
        if !self.log.ends_with(std::slice::from_ref(&told)) {
            self.note(told);
        }
        let message = match &result {
            Ok(identity) => json!({
                "outcome": if kept_for.is_some() { "AlreadyEnrolled" } else { "Enrolled" },
                "reason": kept_for,
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
}

/// The set of an object's labels.
pub(crate) fn in_set(meta: &ObjectMeta, set: &str) -> bool {
    meta.labels
        .as_ref()
        .and_then(|labels| labels.get(names::LABEL_SET))
        .map(String::as_str)
        == Some(set)
}
