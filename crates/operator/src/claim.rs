//! Objects that a set, or a controller, has for its own: applied as they were seen,
//! and never taken from somebody else.

use crate::context::Context;
use crate::io;
use crate::place::Place;
use crate::problem::Error;
use api::reasons;
use kube::api::{Api, Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};
use plan::edge_router::Problem;
use plan::set::extra::Kind;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt::Debug;

/// For whom objects are applied and where, and by which label they are known.
pub(crate) struct Claimant<'a> {
    place: Cow<'a, Place>,
    name: String,
    kind: String,
    label: &'static str,
    manager: &'static str,
}

impl<'a> Claimant<'a> {
    /// In this cluster.
    pub(crate) fn new<K: Resource<DynamicType = ()>>(
        context: &Context,
        owner: &K,
        label: &'static str,
        manager: &'static str,
    ) -> Self {
        let namespace = owner.namespace().unwrap_or_default();
        let place = Place::here(context, namespace);
        Claimant::at(Cow::Owned(place), owner, label, manager)
    }

    /// Where the workloads of a set are.
    pub(crate) fn at<K: Resource<DynamicType = ()>>(
        place: Cow<'a, Place>,
        owner: &K,
        label: &'static str,
        manager: &'static str,
    ) -> Self {
        Self {
            place,
            name: owner.name_any(),
            kind: K::kind(&()).into_owned(),
            label,
            manager,
        }
    }

    /// Apply an object as it was seen: where somebody changed it meanwhile, the
    /// write is refused. (While `--cascade=orphan` lets it go, it must not be made
    /// ours again.) Where it was not seen among ours, make sure first that it is
    /// not what somebody else made under that name.
    pub(crate) async fn apply<K>(&self, object: &K, ours: &[K]) -> Result<K, Error>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Serialize
            + DeserializeOwned
            + Debug,
    {
        let api: Api<K> = self.place.api();
        let fault = |error| self.place.fault(error);
        let name = object.name_any();
        let known = ours.iter().find(|known| known.name_any() == name);
        let mut version = known.and_then(ResourceExt::resource_version);
        if known.is_none() {
            let kind = K::kind(&());
            let found = api
                .get_metadata_opt(&name)
                .await
                .map_err(Error::kubernetes("reading", format!("{kind} {name}")))
                .map_err(fault)?;
            if let Some(found) = found {
                self.check(&kind, &found)?;
                version = found.resource_version();
            }
        }
        let mut object = object.clone();
        self.place.leave(object.meta_mut());
        object.meta_mut().resource_version = version;
        let applied = io::apply(&api, &object, self.manager).await;
        applied.map_err(fault)
    }

    /// Apply an object of a kind that only some have; see [`Self::apply`].
    pub(crate) async fn apply_extra(
        &self,
        kind: Kind,
        object: &DynamicObject,
        ours: &[DynamicObject],
    ) -> Result<(), Error> {
        let (client, namespace) = (self.place.client().clone(), self.place.namespace());
        let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &kind.resource());
        let fault = |error| self.place.fault(error);
        let name = object.name_any();
        let what = || format!("{} {namespace}/{name}", kind.kind);
        let is_same =
            |known: &&DynamicObject| Kind::of(known) == Some(kind) && known.name_any() == name;
        let known = ours.iter().find(is_same);
        let mut version = known.and_then(ResourceExt::resource_version);
        if version.is_none() {
            let found = match api.get_metadata_opt(&name).await {
                Err(error) if kind.optional && io::is_unknown_kind(&error) => {
                    return Err(unknown_kind(kind).into());
                }
                found => found
                    .map_err(Error::kubernetes("reading", what()))
                    .map_err(fault)?,
            };
            if let Some(found) = found {
                self.check(kind.kind, &found)?;
                version = found.resource_version();
            }
        }
        let mut object = object.clone();
        self.place.leave(&mut object.metadata);
        object.metadata.resource_version = version;
        let params = PatchParams::apply(self.manager).force();
        api.patch(&name, &params, &Patch::Apply(&object))
            .await
            .map_err(Error::kubernetes("applying", what()))
            .map_err(fault)?;
        Ok(())
    }

    /// Whether what was found is this one's.
    fn check(&self, kind: &str, found: &impl ResourceExt) -> Result<(), Problem> {
        let ours = found.labels().get(self.label) == Some(&self.name);
        if ours && !self.place.is_anothers(found.meta()) {
            return Ok(());
        }
        let message = format!(
            "{kind} {} exists and is not this {owner}'s: delete or rename it, or rename the {owner}",
            found.name_any(),
            owner = self.kind
        );
        Err(Problem::new(reasons::SOURCE_INVALID, message))
    }
}

fn unknown_kind(kind: Kind) -> Problem {
    let message = format!(
        "this cluster has no {} ({}/{}): install it, or choose another expose type",
        kind.kind, kind.group, kind.version
    );
    Problem::new(reasons::INVALID_SPEC, message)
}
