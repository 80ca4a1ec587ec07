//! What each controller watches beside its own kind, and which of its objects a
//! change elsewhere concerns. Used by `run` alone.

use crate::context::Context;
use crate::nodes;
use crate::run::Scope;
use api::edge_router::Enrollment;
use api::router::Topology;
use api::{EdgeRouter, ZitiCluster, ZitiController, ZitiNetwork, ZitiRouter, names};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, watcher};
use kube::{Api, Resource, ResourceExt};
use plan::set::extra::KINDS;
use plan::set::roster::member_of;
use std::sync::Arc;

impl Scope {
    /// EdgeRouters of sets, and their pods.
    pub(crate) fn orphan_watches(&self) -> Controller<EdgeRouter> {
        let ours = || watcher::Config::default().labels(names::LABEL_SET);
        Controller::new(self.api::<EdgeRouter>(), ours())
            .with_config(self.config())
            .watches(self.api::<PartialObjectMeta<Pod>>(), ours(), |pod| {
                let labels = pod.labels();
                let member = member_of(labels.get(names::LABEL_SET)?, pod.meta())?;
                Some(ObjectRef::new(&member).within(&pod.namespace()?))
            })
    }

    /// What a ZitiNetwork names: Secrets and ConfigMaps, as metadata only.
    pub(crate) fn network_watches(
        &self,
        controller: Controller<ZitiNetwork>,
        context: &Arc<Context>,
    ) -> Controller<ZitiNetwork> {
        let (secrets, maps) = (context.clone(), context.clone());
        controller
            .watches(
                self.api::<PartialObjectMeta<Secret>>(),
                watcher::Config::default(),
                move |secret| named(&secrets.stores.networks, &secret, names_source),
            )
            .watches(
                self.api::<PartialObjectMeta<ConfigMap>>(),
                watcher::Config::default(),
                move |map| named(&maps.stores.networks, &map, names_source),
            )
    }

    /// What a ZitiCluster names: Secrets and ConfigMaps, as metadata only.
    pub(crate) fn cluster_watches(
        &self,
        controller: Controller<ZitiCluster>,
        context: &Arc<Context>,
    ) -> Controller<ZitiCluster> {
        let (secrets, maps) = (context.clone(), context.clone());
        controller
            .watches(
                self.api::<PartialObjectMeta<Secret>>(),
                watcher::Config::default(),
                move |secret| {
                    named(
                        &secrets.stores.clusters,
                        &secret,
                        |cluster: &ZitiCluster, name| {
                            use api::ziti_cluster::ClusterCredential;
                            match &cluster.spec.credential {
                                ClusterCredential::Kubeconfig(reference) => reference.name == name,
                                ClusterCredential::Token(reference) => reference.name == name,
                                ClusterCredential::ServiceAccount(_) => false,
                            }
                        },
                    )
                },
            )
            .watches(
                self.api::<PartialObjectMeta<ConfigMap>>(),
                watcher::Config::default(),
                move |map| {
                    named(
                        &maps.stores.clusters,
                        &map,
                        |cluster: &ZitiCluster, name| {
                            let authority = cluster.spec.certificate_authority.as_ref();
                            authority.is_some_and(|reference| reference.name == name)
                        },
                    )
                },
            )
    }

    /// Its own Secret, and the one in which a person gave the token.
    pub(crate) fn edge_router_watches(
        &self,
        controller: Controller<EdgeRouter>,
        context: &Arc<Context>,
    ) -> Controller<EdgeRouter> {
        let context = context.clone();
        controller.watches(
            self.api::<PartialObjectMeta<Secret>>(),
            watcher::Config::default(),
            move |secret| {
                let mut wanted = named(
                    &context.stores.edge_routers,
                    &secret,
                    |er: &EdgeRouter, name| match &er.spec.enrollment {
                        Enrollment::Provided(provided) => provided.secret_key_ref.name == name,
                        Enrollment::Managed(_) => false,
                    },
                );
                wanted.extend(owner::<EdgeRouter>(secret.meta()));
                wanted.extend(stands_at(
                    &context.stores.edge_routers,
                    &secret,
                    names::enrollment_secret,
                ));
                wanted
            },
        )
    }

    /// Everything that carries the label of a ZitiController, and its network.
    pub(crate) fn controller_watches(
        &self,
        controller: Controller<ZitiController>,
    ) -> Controller<ZitiController> {
        let ours = || watcher::Config::default().labels(names::LABEL_CONTROLLER);
        controller
            .watches(
                self.api::<PartialObjectMeta<StatefulSet>>(),
                ours(),
                |object| of_controller(object.meta()),
            )
            .watches(self.api::<PartialObjectMeta<Pod>>(), ours(), |object| {
                of_controller(object.meta())
            })
            .watches(
                self.api::<PartialObjectMeta<k8s_openapi::api::core::v1::Service>>(),
                ours(),
                |object| of_controller(object.meta()),
            )
            .watches(
                self.api::<PartialObjectMeta<ConfigMap>>(),
                ours(),
                |object| of_controller(object.meta()),
            )
            .watches(self.api::<PartialObjectMeta<Secret>>(), ours(), |object| {
                of_controller(object.meta())
            })
            .watches(self.api::<PartialObjectMeta<CronJob>>(), ours(), |object| {
                of_controller(object.meta())
            })
            // Its status changes with its pod's end.
            .watches(self.api::<PartialObjectMeta<Job>>(), ours(), |object| {
                of_controller(object.meta())
            })
            .watches(self.api::<ZitiNetwork>(), ours(), |object| {
                of_controller(object.meta())
            })
    }

    /// Everything that carries the set's label, and what the set names.
    pub(crate) fn set_watches(
        &self,
        controller: Controller<ZitiRouter>,
        context: &Arc<Context>,
    ) -> Controller<ZitiRouter> {
        let ours = || watcher::Config::default().labels(names::LABEL_SET);
        let (secrets, networks) = (context.clone(), context.clone());
        // A kind that a cluster may lack is not watched, but read with the rest.
        let controller = if self.reads_nodes {
            let sets = context.clone();
            let wanted = nodes::changes(self.client.clone(), watcher::Config::default())
                .flat_map(move |()| futures::stream::iter(by_node(&sets.stores.routers)));
            controller.reconcile_on(wanted)
        } else {
            controller
        };
        let always = KINDS.iter().filter(|kind| !kind.optional);
        always
            .fold(controller, |controller, kind| {
                let resource = kind.resource();
                let api: Api<DynamicObject> = match &self.namespace {
                    Some(namespace) => {
                        Api::namespaced_with(self.client.clone(), namespace, &resource)
                    }
                    None => Api::all_with(self.client.clone(), &resource),
                };
                controller.watches_with(api, resource, ours(), |object| of_set(object.meta()))
            })
            .watches(
                self.api::<PartialObjectMeta<EdgeRouter>>(),
                ours(),
                |object| of_set(object.meta()),
            )
            .watches(
                self.api::<PartialObjectMeta<StatefulSet>>(),
                ours(),
                |object| of_set(object.meta()),
            )
            .watches(self.api::<PartialObjectMeta<Pod>>(), ours(), |object| {
                of_set(object.meta())
            })
            .watches(
                self.api::<PartialObjectMeta<PersistentVolumeClaim>>(),
                ours(),
                |object| of_set(object.meta()),
            )
            .watches(
                self.api::<PartialObjectMeta<k8s_openapi::api::core::v1::Service>>(),
                ours(),
                |object| of_set(object.meta()),
            )
            .watches(
                self.api::<PartialObjectMeta<ConfigMap>>(),
                ours(),
                |object| of_set(object.meta()),
            )
            .watches(
                self.api::<PartialObjectMeta<Secret>>(),
                watcher::Config::default(),
                move |secret| {
                    let mut wanted = named(
                        &secrets.stores.routers,
                        &secret,
                        |router: &ZitiRouter, name| {
                            router
                                .spec
                                .tokens_secret_ref
                                .as_ref()
                                .is_some_and(|reference| reference.name == name)
                        },
                    );
                    wanted.extend(of_set(secret.meta()));
                    wanted.extend(stands_at(
                        &secrets.stores.routers,
                        &secret,
                        names::tokens_secret,
                    ));
                    wanted
                },
            )
            .watches(
                self.api::<ZitiNetwork>(),
                watcher::Config::default(),
                move |network| {
                    named(
                        &networks.stores.routers,
                        &network,
                        |router: &ZitiRouter, name| {
                            router
                                .spec
                                .network_ref
                                .as_ref()
                                .is_some_and(|reference| reference.name == name)
                        },
                    )
                },
            )
    }
}

/// The sets that follow the nodes of the cluster.
fn by_node(store: &Store<ZitiRouter>) -> Vec<ObjectRef<ZitiRouter>> {
    let all = store.state().into_iter();
    all.filter(|set| set.spec.effective_topology() == Topology::PerNode)
        .map(|set| ObjectRef::from_obj(set.as_ref()))
        .collect()
}

fn of_set(metadata: &kube::core::ObjectMeta) -> Option<ObjectRef<ZitiRouter>> {
    let set = metadata.labels.as_ref()?.get(names::LABEL_SET)?;
    Some(ObjectRef::new(set).within(metadata.namespace.as_deref()?))
}

fn of_controller(metadata: &kube::core::ObjectMeta) -> Option<ObjectRef<ZitiController>> {
    let name = metadata.labels.as_ref()?.get(names::LABEL_CONTROLLER)?;
    Some(ObjectRef::new(name).within(metadata.namespace.as_deref()?))
}

fn owner<K: Resource<DynamicType = ()>>(metadata: &kube::core::ObjectMeta) -> Option<ObjectRef<K>> {
    let owner = metadata
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.kind == K::kind(&()))?;
    Some(ObjectRef::new(&owner.name).within(metadata.namespace.as_deref()?))
}

/// The objects in the same namespace that name this one.
fn named<K, O>(
    store: &Store<K>,
    object: &O,
    names_it: impl Fn(&K, &str) -> bool,
) -> Vec<ObjectRef<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    O: ResourceExt,
{
    let (namespace, name) = (object.namespace(), object.name_any());
    let all = store.state().into_iter();
    all.filter(|candidate| candidate.namespace() == namespace && names_it(candidate, &name))
        .map(|candidate| ObjectRef::from_obj(candidate.as_ref()))
        .collect()
}

/// The object at whose Secret's place this one stands. It may be somebody
/// else's, which is in the way until it is gone.
fn stands_at<K, O>(store: &Store<K>, secret: &O, place: fn(&str) -> String) -> Vec<ObjectRef<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    O: ResourceExt,
{
    let (namespace, name) = (secret.namespace(), secret.name_any());
    let all = store.state().into_iter();
    all.filter(|candidate| {
        candidate.namespace() == namespace && place(&candidate.name_any()) == name
    })
    .map(|candidate| ObjectRef::from_obj(candidate.as_ref()))
    .collect()
}

/// Whether a ZitiNetwork names this Secret or ConfigMap. Their names may be
/// equal: a look too many costs little.
fn names_source(network: &ZitiNetwork, name: &str) -> bool {
    use api::ziti_network::{Credential, Trust};
    let trust = match &network.spec.trust {
        Trust::ConfigMap(reference) => &reference.name,
        Trust::Secret(reference) | Trust::Token(reference) => &reference.name,
    };
    let credential = network
        .spec
        .credential
        .as_ref()
        .map(|credential| match credential {
            Credential::ClientCertificate(reference) | Credential::Password(reference) => {
                &reference.name
            }
            Credential::EnrollmentToken(reference) => &reference.name,
        });
    trust == name || credential.is_some_and(|credential| credential == name)
}
