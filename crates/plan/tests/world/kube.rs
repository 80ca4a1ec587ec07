//! The Kubernetes API in memory: only what the operator reads and writes, with
//! the rules that it leans on (resource versions, finalizers, uids,
//! preconditions, owner references, immutable fields).

use api::{EdgeRouter, ZitiRouter, names};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::core::DynamicObject;
use plan::set::extra::Kind;
use plan::set::member::replicas;
use std::collections::{BTreeMap, BTreeSet};

/// Why a write was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Conflict,
    NotFound,
    Forbidden(String),
}

/// The objects of one namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kube {
    counter: u64,
    pub(crate) set: Option<ZitiRouter>,
    pub(crate) edge_routers: BTreeMap<String, EdgeRouter>,
    pub(crate) stateful_sets: BTreeMap<String, StatefulSet>,
    /// The cluster's nodes.
    pub(crate) nodes: BTreeSet<String>,
    pub(crate) services: BTreeMap<String, Service>,
    pub(crate) config_maps: BTreeMap<String, ConfigMap>,
    /// By kind and name.
    pub(crate) extras: BTreeMap<(&'static str, String), DynamicObject>,
    /// By member, whatever the topology calls its pod.
    pub(crate) pods: BTreeMap<String, RunningPod>,
    /// By member, with `identity-` before it.
    pub(crate) claims: BTreeMap<String, Volume>,
    /// `<set>-tokens`: digest by key, `None` where empty.
    pub(crate) tokens: Option<SecretData<Option<String>>>,
    /// `<set>-provided-tokens`.
    pub(crate) provided_copy: Option<SecretData<String>>,
    /// `<er>-enrollment`, by EdgeRouter.
    pub(crate) enrollment: BTreeMap<String, SecretData<Option<String>>>,
    /// The workloads, and what they need, are in another cluster.
    pub(crate) afar: bool,
    /// The namespace is being deleted.
    pub(crate) terminating: bool,
}

/// A Secret: uid of its owner, and its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SecretData<V> {
    pub(crate) owner: Option<String>,
    pub(crate) version: u64,
    pub(crate) keys: BTreeMap<String, V>,
}

/// What a pod found in the place of its token: a digest, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) Option<String>);

/// A pod and what goes on in it.
#[derive(Clone, Debug)]
pub(crate) struct RunningPod {
    pub(crate) pod: Pod,
    /// What the kubelet mounted as its token: `None` before it started.
    pub(crate) mounted: Option<Token>,
    /// The identity with which its router runs.
    pub(crate) router: Option<Identity>,
}

/// A volume claim and what is on the volume.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub(crate) claim: PersistentVolumeClaim,
    pub(crate) identity: Option<Identity>,
}

/// An identity as it lies on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) router: String,
    pub(crate) certificate: String,
    pub(crate) token: String,
}

/// Whether an object is owned by the one with this uid.
pub(crate) fn is_owned(meta: &ObjectMeta, uid: &str) -> bool {
    meta.owner_references
        .iter()
        .flatten()
        .any(|owner| owner.uid == uid)
}

impl Kube {
    /// Nothing yet. `afar`, the workloads are in another cluster.
    pub(crate) fn of_set(afar: bool) -> Self {
        Self {
            afar,
            ..Self::default()
        }
    }

    /// The number of the last write.
    pub(crate) fn version(&self) -> u64 {
        self.counter
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// Metadata of a new object.
    pub(crate) fn born(&mut self, meta: &mut ObjectMeta, now: Timestamp) -> Result<(), Refusal> {
        if self.terminating {
            return Err(Refusal::Forbidden(
                "the namespace is being terminated".to_owned(),
            ));
        }
        let number = self.next();
        meta.uid = Some(format!("uid-{number}"));
        meta.resource_version = Some(number.to_string());
        meta.generation = Some(1);
        meta.creation_timestamp = Some(Time(now));
        Ok(())
    }

    /// The same where the workloads are.
    pub(crate) fn born_there(
        &mut self,
        meta: &mut ObjectMeta,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let terminating = self.terminating;
        self.terminating &= !self.afar;
        let born = self.born(meta, now);
        self.terminating = terminating;
        born
    }

    /// The metadata that an apply leaves: ours from `wanted`, the rest stays.
    fn merged(
        &mut self,
        wanted: &ObjectMeta,
        actual: &ObjectMeta,
        spec_changed: bool,
    ) -> Result<ObjectMeta, Refusal> {
        if wanted.uid.is_some() && wanted.uid != actual.uid {
            return Err(Refusal::Conflict);
        }
        if wanted.resource_version.is_some() && wanted.resource_version != actual.resource_version {
            return Err(Refusal::Conflict);
        }
        let mut meta = actual.clone();
        meta.labels.clone_from(&wanted.labels);
        meta.annotations.clone_from(&wanted.annotations);
        meta.owner_references.clone_from(&wanted.owner_references);
        if let Some(listed) = &wanted.finalizers {
            let ours = [names::FINALIZER_EDGE_ROUTER, names::FINALIZER_IN_USE];
            let had = actual.finalizers.clone().unwrap_or_default();
            if actual.deletion_timestamp.is_some()
                && listed.iter().any(|finalizer| !had.contains(finalizer))
            {
                return Err(Refusal::Forbidden(
                    "no new finalizers can be added if the object is being deleted".to_owned(),
                ));
            }
            let mut kept: Vec<String> = had
                .into_iter()
                .filter(|f| !ours.contains(&f.as_str()))
                .collect();
            kept.extend(listed.iter().cloned());
            meta.finalizers = Some(kept);
        }
        if spec_changed {
            meta.generation = actual.generation.map(|generation| generation + 1);
        }
        if spec_changed || meta != *actual {
            meta.resource_version = Some(self.next().to_string());
        }
        Ok(meta)
    }

    /// The ZitiRouter as `change` leaves it, by a user or the operator.
    pub(crate) fn change_set(&mut self, change: impl FnOnce(&mut ZitiRouter)) {
        let Some(mut set) = self.set.clone() else {
            return;
        };
        change(&mut set);
        let before = self.set.as_ref().expect("looked at above");
        if set.spec != before.spec {
            set.metadata.generation = set.metadata.generation.map(|generation| generation + 1);
        }
        if set != *before {
            set.metadata.resource_version = Some(self.next().to_string());
        }
        let done = set.metadata.deletion_timestamp.is_some()
            && set.metadata.finalizers.iter().flatten().next().is_none();
        self.set = (!done).then_some(set);
    }

    /// The EdgeRouter as `change` leaves it; gone, if nothing holds it.
    pub(crate) fn change_edge_router(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut EdgeRouter),
    ) -> Result<(), Refusal> {
        let before = self
            .edge_routers
            .get(name)
            .cloned()
            .ok_or(Refusal::NotFound)?;
        let mut er = before.clone();
        change(&mut er);
        if er != before {
            er.metadata.resource_version = Some(self.next().to_string());
        }
        let done = er.metadata.deletion_timestamp.is_some()
            && er.metadata.finalizers.iter().flatten().next().is_none();
        if done {
            self.edge_routers.remove(name);
        } else {
            self.edge_routers.insert(name.to_owned(), er);
        }
        Ok(())
    }

    pub(crate) fn delete_edge_router(
        &mut self,
        name: &str,
        uid: Option<&str>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let er = self.edge_routers.get(name).ok_or(Refusal::NotFound)?;
        if uid.is_some() && er.metadata.uid.as_deref() != uid {
            return Err(Refusal::Conflict);
        }
        self.change_edge_router(name, |er| {
            er.metadata.deletion_timestamp.get_or_insert(Time(now));
        })
    }

    pub(crate) fn apply_edge_router(
        &mut self,
        wanted: &EdgeRouter,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let Some(actual) = self.edge_routers.get(&name).cloned() else {
            if wanted.metadata.uid.is_some() {
                return Err(Refusal::Conflict);
            }
            let mut er = wanted.clone();
            self.born(&mut er.metadata, now)?;
            self.edge_routers.insert(name, er);
            return Ok(());
        };
        if wanted.spec.name != actual.spec.name {
            return Err(Refusal::Forbidden("name is immutable".to_owned()));
        }
        let metadata = self.merged(
            &wanted.metadata,
            &actual.metadata,
            wanted.spec != actual.spec,
        )?;
        let er = EdgeRouter {
            metadata,
            spec: wanted.spec.clone(),
            status: actual.status,
        };
        self.edge_routers.insert(name, er);
        Ok(())
    }

    pub(crate) fn apply_stateful_set(
        &mut self,
        wanted: &StatefulSet,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let Some(actual) = self.stateful_sets.get(&name).cloned() else {
            if wanted.metadata.uid.is_some() || wanted.metadata.resource_version.is_some() {
                return Err(Refusal::Conflict);
            }
            let mut set = wanted.clone();
            self.born_there(&mut set.metadata, now)?;
            self.stateful_sets.insert(name, set);
            return Ok(());
        };
        let metadata = self.merged(
            &wanted.metadata,
            &actual.metadata,
            wanted.spec != actual.spec,
        )?;
        let set = StatefulSet {
            metadata,
            spec: wanted.spec.clone(),
            status: actual.status,
        };
        self.stateful_sets.insert(name, set);
        Ok(())
    }

    pub(crate) fn apply_service(
        &mut self,
        wanted: &Service,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let Some(actual) = self.services.get(&name).cloned() else {
            let mut service = wanted.clone();
            self.born_there(&mut service.metadata, now)?;
            self.services.insert(name, service);
            return Ok(());
        };
        let metadata = self.merged(
            &wanted.metadata,
            &actual.metadata,
            wanted.spec != actual.spec,
        )?;
        self.services.insert(
            name,
            Service {
                metadata,
                ..wanted.clone()
            },
        );
        Ok(())
    }

    pub(crate) fn apply_extra(
        &mut self,
        kind: Kind,
        wanted: &DynamicObject,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let key = (kind.kind, wanted.metadata.name.clone().unwrap_or_default());
        let mut object = wanted.clone();
        match self.extras.get(&key).cloned() {
            None => self.born_there(&mut object.metadata, now)?,
            Some(actual) => {
                let changed = wanted.data != actual.data;
                object.metadata = self.merged(&wanted.metadata, &actual.metadata, changed)?;
            }
        }
        self.extras.insert(key, object);
        Ok(())
    }

    pub(crate) fn apply_config_map(
        &mut self,
        wanted: &ConfigMap,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let Some(actual) = self.config_maps.get(&name).cloned() else {
            let mut map = wanted.clone();
            self.born_there(&mut map.metadata, now)?;
            self.config_maps.insert(name, map);
            return Ok(());
        };
        if actual.data != wanted.data {
            return Err(Refusal::Forbidden("the ConfigMap is immutable".to_owned()));
        }
        let metadata = self.merged(&wanted.metadata, &actual.metadata, false)?;
        self.config_maps.insert(
            name,
            ConfigMap {
                metadata,
                ..wanted.clone()
            },
        );
        Ok(())
    }

    /// Begin to delete a pod, by uid.
    pub(crate) fn delete_pod(
        &mut self,
        name: &str,
        uid: Option<&str>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let number = self.next();
        let running = self.pods.get_mut(name).ok_or(Refusal::NotFound)?;
        if uid.is_some() && running.pod.metadata.uid.as_deref() != uid {
            return Err(Refusal::Conflict);
        }
        running
            .pod
            .metadata
            .deletion_timestamp
            .get_or_insert(Time(now));
        running.pod.metadata.resource_version = Some(number.to_string());
        Ok(())
    }

    /// Begin to delete a claim. It stays while a pod uses it.
    pub(crate) fn delete_claim(
        &mut self,
        name: &str,
        uid: Option<&str>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let number = self.next();
        let volume = self.claims.get_mut(name).ok_or(Refusal::NotFound)?;
        if uid.is_some() && volume.claim.metadata.uid.as_deref() != uid {
            return Err(Refusal::Conflict);
        }
        volume
            .claim
            .metadata
            .deletion_timestamp
            .get_or_insert(Time(now));
        volume.claim.metadata.resource_version = Some(number.to_string());
        Ok(())
    }

    /// Whether objects are there that `--cascade=orphan` left behind.
    pub(crate) fn has_orphans(&self) -> bool {
        let services = self.services.values().map(|service| &service.metadata);
        let maps = self.config_maps.values().map(|map| &map.metadata);
        let edge_routers = self.edge_routers.values().map(|er| &er.metadata);
        let workloads = self.stateful_sets.values().map(|set| &set.metadata);
        let extras = self.extras.values().map(|extra| &extra.metadata);
        let mut all = services
            .chain(maps)
            .chain(edge_routers)
            .chain(workloads)
            .chain(extras);
        let secrets = [
            &self.tokens.as_ref().map(|secret| &secret.owner),
            &self.provided_copy.as_ref().map(|secret| &secret.owner),
        ];
        all.any(|meta| meta.owner_references.iter().flatten().next().is_none())
            || secrets.into_iter().flatten().any(|owner| owner.is_none())
    }

    /// How many pods a StatefulSet wants; none where it is not there.
    pub(crate) fn replicas(&self, workload: &str) -> i32 {
        self.stateful_sets.get(workload).map_or(0, replicas)
    }
}
