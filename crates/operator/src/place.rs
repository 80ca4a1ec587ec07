//! Where the workloads of a set are: in this cluster, or in another one that is
//! reached by a [`Link`](crate::ziti_cluster::Links). The set controller reads,
//! writes and deletes them through a [`Place`], and sees the same objects in both
//! cases: what cannot be owned across clusters is translated here and nowhere else.
//! `plan` looks through it as well.

use crate::context::Context;
use crate::io;
use crate::problem::Error;
use api::{EdgeRouter, ZitiRouter, names, reasons};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ListParams};
use kube::core::{DynamicObject, ObjectMeta};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource, ResourceExt};
use plan::edge_router::Problem;
use plan::set::extra::Kind;
use plan::set::placement::Home;
use plan::set::render;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Where the workloads of one set are.
#[derive(Clone)]
pub(crate) struct Place {
    client: Client,
    namespace: String,
    afar: Option<Afar>,
    reads_nodes: bool,
    /// Whether it cannot be looked at, and nothing may be done there.
    unseen: bool,
}

/// What is different in another cluster.
#[derive(Clone)]
struct Afar {
    cluster: String,
    home: Home,
    owner: OwnerReference,
}

impl Place {
    /// A namespace of this cluster.
    pub(crate) fn here(context: &Context, namespace: String) -> Self {
        Self {
            client: context.client.clone(),
            namespace,
            afar: None,
            reads_nodes: context.reads_nodes,
            unseen: false,
        }
    }

    /// That of a ZitiRouter.
    ///
    /// # Errors
    /// Where nothing may be done in its cluster now.
    pub(crate) fn of(context: &Context, object: &ZitiRouter) -> Result<Self, Problem> {
        let namespace = object.namespace().unwrap_or_default();
        let Some(cluster) = object.spec.cluster() else {
            return Ok(Self::here(context, namespace));
        };
        let home = Home::of(object, &context.settings);
        Self::afar(context, cluster, home, render::owner(object))
    }

    /// That of a ZitiRouter whose cluster cannot be looked at, so that nothing is done
    /// there: what is done is done here.
    pub(crate) fn unseen(context: &Context, object: &ZitiRouter, namespace: String) -> Self {
        Self {
            namespace,
            afar: object.spec.cluster().map(|cluster| Afar {
                cluster: cluster.to_owned(),
                home: Home::of(object, &context.settings),
                owner: render::owner(object),
            }),
            reads_nodes: false,
            unseen: true,
            client: context.client.clone(),
        }
    }

    /// That of an EdgeRouter whose ZitiRouter, named `set`, is gone.
    ///
    /// # Errors
    /// Where nothing may be done in its cluster now.
    pub(crate) fn of_orphan(
        context: &Context,
        object: &EdgeRouter,
        set: &str,
    ) -> Result<Self, Problem> {
        let namespace = object.namespace().unwrap_or_default();
        let Some(cluster) = object.labels().get(names::LABEL_CLUSTER) else {
            return Ok(Self::here(context, namespace));
        };
        // It is nobody's home any more, and only looked at.
        let home = Home {
            install: String::new(),
            namespace,
            name: set.to_owned(),
            uid: String::new(),
            earlier_install: None,
        };
        Self::afar(context, cluster, home, OwnerReference::default())
    }

    fn afar(
        context: &Context,
        cluster: &str,
        home: Home,
        owner: OwnerReference,
    ) -> Result<Self, Problem> {
        let path = format!("{}/{cluster}", home.namespace);
        let set = ObjectRef::new(&home.name).within(&home.namespace);
        let way = context.clusters.way(&path, set);
        let way = way.ok_or_else(|| without_link(context, &home.namespace, cluster))??;
        Ok(Self {
            client: way.client,
            namespace: way.namespace,
            afar: Some(Afar {
                cluster: cluster.to_owned(),
                home,
                owner,
            }),
            reads_nodes: way.reads_nodes,
            unseen: false,
        })
    }

    /// The client for what is there.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The namespace there.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Whether the nodes there may be read.
    pub(crate) fn reads_nodes(&self) -> bool {
        self.reads_nodes
    }

    /// Whether nothing may be done there.
    pub(crate) fn is_unseen(&self) -> bool {
        self.unseen
    }

    /// Whether it is in another cluster.
    pub(crate) fn is_afar(&self) -> bool {
        self.afar.is_some()
    }

    /// A failed call there, with the cluster named where that is another one.
    pub(crate) fn fault(&self, error: Error) -> Error {
        match &self.afar {
            Some(afar) => error.in_cluster(&afar.cluster),
            None => error,
        }
    }

    /// Make an object that was planned ready to be applied there.
    pub(crate) fn leave(&self, metadata: &mut ObjectMeta) {
        if let Some(afar) = &self.afar {
            afar.home.leave(metadata, &self.namespace);
        }
    }

    /// The reverse, for an object that was read there.
    fn enter(&self, metadata: &mut ObjectMeta) {
        match &self.afar {
            Some(afar) => afar.home.enter(metadata, &afar.owner),
            None => Home::enter_here(metadata),
        }
    }

    /// Whether an object there is another home's: neither this set's, nor left by one
    /// in whose place it is.
    pub(crate) fn is_anothers(&self, metadata: &ObjectMeta) -> bool {
        let Some(afar) = &self.afar else {
            return false;
        };
        let mut metadata = metadata.clone();
        self.enter(&mut metadata);
        let mut owners = metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.controller == Some(true) && owner.uid != afar.owner.uid)
    }

    /// Objects there, read live.
    pub(crate) async fn list<K>(&self, params: &ListParams) -> Result<Vec<K>, Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let listed = io::list::<K>(&self.client, &self.namespace, params).await;
        let mut objects = listed.map_err(|error| self.fault(error))?;
        for object in &mut objects {
            self.enter(object.meta_mut());
        }
        Ok(objects)
    }

    /// Objects there of the kinds that only some sets have.
    pub(crate) async fn list_extras(
        &self,
        params: &ListParams,
    ) -> Result<Vec<DynamicObject>, Error> {
        let listed = io::list_extras(&self.client, &self.namespace, params).await;
        let mut objects = listed.map_err(|error| self.fault(error))?;
        for object in &mut objects {
            self.enter(&mut object.metadata);
        }
        Ok(objects)
    }

    /// Delete an object there, if it is still the one of that uid.
    pub(crate) async fn delete<K>(&self, name: &str, uid: Option<&String>) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let deleted = io::delete::<K>(&self.client, &self.namespace, name, uid).await;
        deleted.map_err(|error| self.fault(error))
    }

    /// Delete an object there of a kind that only some have.
    pub(crate) async fn delete_extra(&self, kind: Kind, name: &str) -> Result<(), Error> {
        let deleted = io::delete_extra(&self.client, &self.namespace, kind, name).await;
        deleted.map_err(|error| self.fault(error))
    }

    /// For objects there of a kind.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// Why there is no link to a cluster.
fn without_link(context: &Context, namespace: &str, cluster: &str) -> Problem {
    if context.stores.cluster(namespace, cluster).is_some() {
        return Problem::new(reasons::PENDING, "it has not been reached yet");
    }
    let message = "it does not exist in this namespace: create it";
    Problem::new(reasons::CLUSTER_NOT_FOUND, message)
}
