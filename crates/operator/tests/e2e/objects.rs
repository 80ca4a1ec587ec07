//! What a test does with the objects of its namespace: the verbs of kubectl, and waiting.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result};
use api::ZitiRouter;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::conditions;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::kubernetes;

use crate::stage::{PATIENCE, Stage};

impl Stage {
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Applies an object, in the routers' namespace where it names none.
    pub(crate) async fn apply(&self, object: Value) -> Result<()> {
        kubernetes::apply(&self.client, object, &self.namespace).await?;
        Ok(())
    }

    pub(crate) async fn create<K: Object>(&self, object: &K) -> Result<K> {
        let created = self.api().create(&PostParams::default(), object).await;
        created.with_context(|| format!("creating {} {}", K::kind(&()), object.name_any()))
    }

    /// Changes an object by a merge patch.
    pub(crate) async fn patch<K: Object>(&self, name: &str, patch: Value) -> Result<K> {
        let patched = self
            .api()
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        patched.with_context(|| format!("patching {} {name} with {patch}", K::kind(&())))
    }

    /// Scales a set as `kubectl scale` does.
    pub(crate) async fn scale(&self, set: &str, replicas: i32) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let scaled = self
            .api::<ZitiRouter>()
            .patch_scale(set, &PatchParams::default(), &patch)
            .await;
        scaled.with_context(|| format!("scaling {set} to {replicas}"))?;
        Ok(())
    }

    pub(crate) async fn delete<K: Object>(&self, name: &str, params: &DeleteParams) -> Result<()> {
        let deleted = self.api::<K>().delete(name, params).await;
        deleted.with_context(|| format!("deleting {} {name}", K::kind(&())))?;
        Ok(())
    }

    pub(crate) async fn get<K: Object>(&self, name: &str) -> Result<K> {
        let got = self.api().get(name).await;
        got.with_context(|| format!("reading {} {name}", K::kind(&())))
    }

    pub(crate) async fn find<K: Object>(&self, name: &str) -> Result<Option<K>> {
        let found = self.api().get_opt(name).await;
        found.with_context(|| format!("looking for {} {name}", K::kind(&())))
    }

    pub(crate) async fn list<K: Object>(&self) -> Result<Vec<K>> {
        let listed = self.api().list(&ListParams::default()).await;
        let listed = listed.with_context(|| format!("listing {}", K::plural(&())))?;
        Ok(listed.items)
    }

    /// Waits, by a watch, until the object is there and is as wished.
    pub(crate) async fn until<K: Object>(
        &self,
        name: &str,
        what: &str,
        wished: impl Fn(&K) -> bool,
    ) -> Result<K> {
        self.until_within(name, what, PATIENCE, wished).await
    }

    /// The same with another deadline.
    pub(crate) async fn until_within<K: Object>(
        &self,
        name: &str,
        what: &str,
        within: Duration,
        wished: impl Fn(&K) -> bool,
    ) -> Result<K> {
        let condition = |object: Option<&K>| object.is_some_and(&wished);
        let found = kubernetes::wait_for(self.api(), name, what, condition, within).await?;
        found.with_context(|| format!("{} {name} went away", K::kind(&())))
    }

    /// Waits until the object is gone, if it is there.
    pub(crate) async fn until_gone<K: Object>(&self, name: &str) -> Result<()> {
        let Some(uid) = self.find::<K>(name).await?.and_then(|object| object.uid()) else {
            return Ok(());
        };
        let gone = conditions::is_deleted(&uid);
        kubernetes::wait_for(self.api::<K>(), name, "gone", gone, PATIENCE).await?;
        Ok(())
    }

    /// Waits until the set says that all of its members, so many, are online.
    pub(crate) async fn until_online(&self, set: &str, members: i32) -> Result<ZitiRouter> {
        self.until_online_within(set, members, PATIENCE).await
    }

    /// The same with another deadline.
    pub(crate) async fn until_online_within(
        &self,
        set: &str,
        members: i32,
        within: Duration,
    ) -> Result<ZitiRouter> {
        let what = format!("online with {members} members");
        self.until_within(set, &what, within, |set: &ZitiRouter| {
            set.status.as_ref().is_some_and(|status| {
                status.observed_generation == set.metadata.generation
                    && status.replicas == members
                    && status.online_replicas == members
                    && truth(&status.conditions, "Ready") == Some("True")
                    && truth(&status.conditions, "Progressing") == Some("False")
            })
        })
        .await
    }

    /// kubectl in the routers' namespace; returns its output.
    pub(crate) fn kubectl(&self, args: &[&str]) -> Result<String> {
        kubernetes::kubectl(&self.environment.kubeconfig, None)?
            .args(["--namespace", &self.namespace])
            .args(args)
            .output()
    }
}

/// The status of a condition, if there is one.
pub(crate) fn truth<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a str> {
    let condition = conditions.iter().find(|have| have.type_ == type_)?;
    Some(condition.status.as_str())
}

/// The reason of a condition, if there is one.
pub(crate) fn reason<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a str> {
    let condition = conditions.iter().find(|have| have.type_ == type_)?;
    Some(condition.reason.as_str())
}

/// What tests work with: any namespaced kind.
pub(crate) trait Object:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Object for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}
