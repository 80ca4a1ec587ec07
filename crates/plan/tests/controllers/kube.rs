//! The Kubernetes of this world: the members' workload, pods, volumes and the
//! objects beside them, with the rules that the operator leans on.

use super::raft::Database;
use super::{NAME, NAMESPACE, World};
use api::names;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::{
    ConfigMap, ContainerState, ContainerStateRunning, ContainerStatus, PersistentVolumeClaim,
    PodCondition, PodStatus, Service,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::core::DynamicObject;
use plan::controller::pki::{Leaf, Life};
use plan::set::applied::hash;
use plan::set::extra::Kind;
use plan::set::member::replicas;
use std::collections::BTreeMap;

/// The objects of one namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kube {
    counter: u64,
    pub(crate) set: Option<StatefulSet>,
    pub(crate) pods: BTreeMap<i32, Pod>,
    pub(crate) claims: BTreeMap<i32, Claim>,
    pub(crate) services: BTreeMap<String, Service>,
    pub(crate) maps: BTreeMap<String, ConfigMap>,
    /// By kind and name.
    pub(crate) extras: BTreeMap<(&'static str, String), DynamicObject>,
}

/// A pod and what runs in it.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) uid: String,
    pub(crate) created: Timestamp,
    pub(crate) revision: String,
    image: String,
    map: String,
    /// Its node does not answer: it never ends by itself.
    pub(crate) node_lost: bool,
    /// Steps until it is gone, once it ends.
    pub(crate) ending: Option<u8>,
    /// Its controller, where that listens.
    pub(crate) process: Option<Process>,
    /// Its container is up for a moment between two crashes.
    crashing: bool,
    pub(crate) ready: bool,
    /// When that turned.
    turned: Timestamp,
}

/// A controller that listens, with what it read when it started.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) address: String,
    pub(crate) version: String,
    pub(crate) leaf: Leaf,
    pub(crate) signer: Life,
    pub(crate) bundle: String,
}

/// A member's volume.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    uid: String,
    created: Timestamp,
    marks: BTreeMap<String, String>,
    /// It ends when no pod mounts it.
    pub(crate) ending: bool,
    pub(crate) database: Option<Database>,
}

impl Kube {
    /// A uid that no object had before.
    pub(crate) fn uid(&mut self) -> String {
        self.counter += 1;
        format!("uid-{}", self.counter)
    }

    /// Carries out a server-side apply of the workload.
    pub(crate) fn apply_set(&mut self, mut wanted: StatefulSet) {
        let old = self.set.take();
        let (uid, generation, status) = match &old {
            Some(old) => (
                old.metadata.uid.clone(),
                old.metadata.generation.unwrap_or_default()
                    + i64::from(hash(&old.spec) != hash(&wanted.spec)),
                old.status.clone(),
            ),
            None => (Some(self.uid()), 1, None),
        };
        wanted.metadata.uid = uid;
        wanted.metadata.generation = Some(generation);
        wanted.status = status;
        self.set = Some(wanted);
    }

    pub(crate) fn apply_extra(&mut self, object: &DynamicObject) {
        let kind = Kind::of(object).expect("the planner makes what it knows");
        let name = object.metadata.name.clone().unwrap_or_default();
        self.extras.insert((kind.kind, name), object.clone());
    }

    /// Everything but volumes and Secrets goes with its owner.
    pub(crate) fn collect(&mut self) {
        self.set = None;
        self.services.clear();
        self.maps.clear();
        self.extras.clear();
        for pod in self.pods.values_mut() {
            pod.ending.get_or_insert(1);
        }
    }

    /// The file of a member in the ConfigMap that its pod mounts.
    fn address_in(&self, map: &str, member: &str) -> Option<String> {
        let data = self.maps.get(map)?.data.as_ref()?;
        let text = data.get(&format!("{member}.yaml"))?;
        let (_, rest) = text.split_once("advertiseAddress:")?;
        let line = rest.lines().next()?.trim();
        Some(line.trim_matches(['"', '\'']).to_owned())
    }

    pub(crate) fn claim_objects(&self) -> Vec<PersistentVolumeClaim> {
        let claims = self.claims.iter();
        let object = |(ordinal, claim): (&i32, &Claim)| PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(format!("data-{}", member(*ordinal))),
                uid: Some(claim.uid.clone()),
                annotations: Some(claim.marks.clone()),
                creation_timestamp: Some(Time(claim.created)),
                deletion_timestamp: claim.ending.then_some(Time(claim.created)),
                ..ObjectMeta::default()
            },
            ..PersistentVolumeClaim::default()
        };
        claims.map(object).collect()
    }

    pub(crate) fn pod_objects(&self) -> Vec<k8s_openapi::api::core::v1::Pod> {
        self.pods
            .iter()
            .map(|(ordinal, pod)| pod.object(*ordinal))
            .collect()
    }
}

impl Claim {
    pub(crate) fn uid(&self) -> &str {
        &self.uid
    }
}

/// The name of a member.
pub(crate) fn member(ordinal: i32) -> String {
    names::controller_member(NAME, ordinal)
}

impl Pod {
    fn object(&self, ordinal: i32) -> k8s_openapi::api::core::v1::Pod {
        let revision = ("controller-revision-hash".to_owned(), self.revision.clone());
        let runs = self.process.is_some() || self.crashing;
        k8s_openapi::api::core::v1::Pod {
            metadata: ObjectMeta {
                name: Some(member(ordinal)),
                namespace: Some(NAMESPACE.to_owned()),
                uid: Some(self.uid.clone()),
                labels: Some([revision].into()),
                creation_timestamp: Some(Time(self.created)),
                deletion_timestamp: self.ending.map(|_| Time(self.created)),
                ..ObjectMeta::default()
            },
            status: Some(PodStatus {
                phase: Some(if runs { "Running" } else { "Pending" }.to_owned()),
                conditions: Some(vec![PodCondition {
                    type_: "Ready".to_owned(),
                    last_transition_time: Some(Time(self.turned)),
                    status: if self.ready { "True" } else { "False" }.to_owned(),
                    ..PodCondition::default()
                }]),
                container_statuses: Some(vec![ContainerStatus {
                    name: "controller".to_owned(),
                    state: runs.then(|| ContainerState {
                        running: Some(ContainerStateRunning::default()),
                        ..ContainerState::default()
                    }),
                    ..ContainerStatus::default()
                }]),
                ..PodStatus::default()
            }),
            ..k8s_openapi::api::core::v1::Pod::default()
        }
    }

    pub(crate) fn set_ready(&mut self, ready: bool, now: Timestamp) {
        if self.ready != ready {
            self.turned = now;
        }
        self.ready = ready;
    }

    /// Whether it is there, and stays.
    pub(crate) fn stays(&self) -> bool {
        self.ending.is_none()
    }
}

impl World {
    /// An empty volume.
    pub(crate) fn make_claim(&mut self, ordinal: i32, marks: BTreeMap<String, String>) {
        let claim = Claim {
            uid: self.kube.uid(),
            created: self.now,
            marks,
            ending: false,
            database: None,
        };
        self.kube.claims.insert(ordinal, claim);
    }

    /// The StatefulSets' controller comes round once.
    pub(crate) fn run_workload(&mut self) {
        let now = self.now;
        let Some(set) = &mut self.kube.set else {
            for pod in self.kube.pods.values_mut() {
                pod.ending.get_or_insert(2);
            }
            return;
        };
        let spec = set.spec.clone().unwrap_or_default();
        let revision = hash(&spec.template);
        set.status = Some(StatefulSetStatus {
            observed_generation: set.metadata.generation,
            update_revision: Some(revision.clone()),
            ..StatefulSetStatus::default()
        });
        let count = replicas(set);
        for (_, pod) in self.kube.pods.range_mut(count..) {
            pod.ending.get_or_insert(2);
        }
        let template = spec.template.spec.unwrap_or_default();
        let image = template.containers[0].image.clone().unwrap_or_default();
        let volumes = template.volumes.unwrap_or_default();
        let map = volumes.iter().find_map(|volume| volume.config_map.as_ref());
        let map = map.map(|map| map.name.clone()).unwrap_or_default();
        for ordinal in 0..count {
            let claim = self.kube.claims.get(&ordinal);
            if self.kube.pods.contains_key(&ordinal) || claim.is_some_and(|claim| claim.ending) {
                continue;
            }
            if claim.is_none() {
                self.make_claim(ordinal, BTreeMap::new());
            }
            let pod = Pod {
                uid: self.kube.uid(),
                created: now,
                revision: revision.clone(),
                image: image.clone(),
                map: map.clone(),
                node_lost: false,
                ending: None,
                process: None,
                crashing: false,
                ready: false,
                turned: now,
            };
            self.kube.pods.insert(ordinal, pod);
        }
    }

    /// The kubelets come round once: pods end, and pods start.
    pub(crate) fn run_kubelets(&mut self) {
        let ordinals: Vec<i32> = self.kube.pods.keys().copied().collect();
        for ordinal in ordinals {
            let started = self.start(ordinal);
            let Some(pod) = self.kube.pods.get_mut(&ordinal) else {
                continue;
            };
            match &mut pod.ending {
                _ if pod.node_lost => {}
                Some(0) => {
                    self.kube.pods.remove(&ordinal);
                }
                Some(left) => *left -= 1,
                None if pod.process.is_none() => {
                    pod.crashing = started.is_err() && !pod.crashing;
                    pod.process = started.ok().flatten();
                }
                None => {}
            }
        }
        let pods = &self.kube.pods;
        self.kube
            .claims
            .retain(|ordinal, claim| !claim.ending || pods.contains_key(ordinal));
    }

    /// What starts in a member's pod: nothing yet, or what fails.
    fn start(&self, ordinal: i32) -> Result<Option<Process>, ()> {
        let (name, pod) = (member(ordinal), &self.kube.pods[&ordinal]);
        // Nothing starts within the second in which its pod is made.
        if pod.created == self.now || pod.image.contains("missing") {
            return Ok(None);
        }
        let pki = self.secrets.members.get(&name);
        let pair = pki.and_then(|pki| pki.certificate.clone().zip(pki.signer));
        let address = self.kube.address_in(&pod.map, &name);
        let (Some((leaf, signer)), Some(address)) = (pair, address) else {
            return Ok(None);
        };
        let host = address
            .trim_start_matches("tls:")
            .split(':')
            .next()
            .unwrap_or_default();
        if pod.image.contains("crash") || !leaf.names.contains(host) {
            return Err(());
        }
        let version = pod.image.rsplit_once(':').map_or("", |(_, tag)| tag);
        Ok(Some(Process {
            address,
            version: version.to_owned(),
            leaf,
            signer,
            bundle: self.secrets.bundle.clone(),
        }))
    }

    /// A member's pod, and its process, are gone at once.
    pub(crate) fn kill(&mut self, ordinal: i32) {
        self.kube.pods.remove(&ordinal);
    }

    /// Somebody deletes a pod: whoever leads hands over before it ends.
    pub(crate) fn end_pod(&mut self, ordinal: i32) {
        if self.leader == Some(ordinal)
            && self
                .kube
                .pods
                .get(&ordinal)
                .is_some_and(|pod| !pod.node_lost)
        {
            self.hand_over(ordinal);
        }
        let now = self.now;
        if let Some(pod) = self.kube.pods.get_mut(&ordinal) {
            pod.ending.get_or_insert(1);
            pod.set_ready(false, now);
        }
    }
}
