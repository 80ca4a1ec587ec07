//! Where a test takes place: a namespace in the API server that all tests share, the operator's
//! account in it with the chart's rights, and waiting for what objects say.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::{EdgeRouter, ZitiController, ZitiNetwork, ZitiRouter, names};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{conditions, wait};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::apiserver::{ApiServer, Controllers};
use testbed::audit::AuditLog;
use testbed::command::Cmd;
use testbed::{kubernetes, operator_install, paths};

/// The longest that anything may take. On a quiet machine nothing takes a tenth of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Stands for the namespace in the rendered rights.
const SOME_NAMESPACE: &str = "some-namespace";

/// What all tests share. It ends with the last test that holds it, so that nothing is left behind.
struct Shared {
    server: ApiServer,
    /// The chart's rights, for the namespace [`SOME_NAMESPACE`].
    rights: String,
}

static SHARED: tokio::sync::Mutex<Weak<Shared>> = tokio::sync::Mutex::const_new(Weak::new());

async fn shared() -> Arc<Shared> {
    let mut known = SHARED.lock().await;
    if let Some(shared) = known.upgrade() {
        return shared;
    }
    let shared = Arc::new(Shared::start().await);
    *known = Arc::downgrade(&shared);
    shared
}

impl Shared {
    async fn start() -> Self {
        let rights = Cmd::new(paths::program("helm").unwrap())
            .args(["template", operator_install::RELEASE])
            .arg(paths::repository().join("charts/ziti-operator"))
            .args(["--namespace", SOME_NAMESPACE])
            .args(["--set", "installId=test"])
            .args(["--set", &format!("watchNamespaces={{{SOME_NAMESPACE}}}")])
            .args(["--set", "rbac.aggregate=false"])
            .args(["--show-only", "templates/rbac.yaml"])
            .output()
            .unwrap();
        let server = ApiServer::start_with(Controllers::StatefulSets)
            .await
            .unwrap();
        let crds: Api<CustomResourceDefinition> = Api::all(server.client());
        for crd in api::crds() {
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
        for crd in api::crds() {
            let name = crd.metadata.name.unwrap();
            let established = conditions::is_crd_established();
            kubernetes::wait_for(crds.clone(), &name, "established", established, PATIENCE)
                .await
                .unwrap();
        }
        Self { server, rights }
    }
}

/// One test's part of the cluster.
pub(crate) struct World {
    shared: Arc<Shared>,
    /// With all rights.
    pub(crate) client: Client,
    /// The namespace, also the install id of its operator.
    pub(crate) namespace: String,
}

impl World {
    /// A namespace of this name, in which the operator has the rights that the chart gives it, and
    /// pods must keep the restricted Pod Security Standard.
    pub(crate) async fn new(namespace: &str) -> Self {
        Self::on(shared().await, namespace).await
    }

    /// The same in another cluster, which no other test has.
    pub(crate) async fn in_a_cluster_of_its_own(namespace: &str) -> Self {
        Self::on(Arc::new(Shared::start().await), namespace).await
    }

    /// A cluster of its own in which nothing is yet, neither the kinds nor the namespace.
    pub(crate) async fn empty(namespace: &str) -> Self {
        let server = ApiServer::start_with(Controllers::StatefulSets)
            .await
            .unwrap();
        let client = kubernetes::client(&server.kubeconfig()).await.unwrap();
        Self {
            shared: Arc::new(Shared {
                server,
                rights: String::new(),
            }),
            client,
            namespace: namespace.to_owned(),
        }
    }

    async fn on(shared: Arc<Shared>, namespace: &str) -> Self {
        let client = kubernetes::client(&shared.server.kubeconfig())
            .await
            .unwrap();
        let world = Self {
            shared,
            client,
            namespace: namespace.to_owned(),
        };
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {
                "pod-security.kubernetes.io/enforce": "restricted",
                "pod-security.kubernetes.io/enforce-version": "latest",
            }}
        });
        kubernetes::apply(&world.client, object, namespace)
            .await
            .unwrap();
        let rights = world.shared.rights.replace(SOME_NAMESPACE, namespace);
        kubernetes::apply_yaml(&world.client, &rights, namespace)
            .await
            .unwrap();
        world
    }

    /// The operator's user, as it stands in the audit log.
    pub(crate) fn operator_user(&self) -> String {
        format!(
            "system:serviceaccount:{}:{}",
            self.namespace,
            operator_install::RELEASE
        )
    }

    /// The operator's kubeconfig.
    pub(crate) fn operator_kubeconfig(&self) -> PathBuf {
        self.shared
            .server
            .kubeconfig_for(&self.operator_user())
            .unwrap()
    }

    /// The kubeconfig of an administrator.
    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.shared.server.kubeconfig()
    }

    /// A directory that ends with the API server.
    pub(crate) fn dir(&self) -> &Path {
        self.shared.server.dir()
    }

    /// The writes from now on.
    pub(crate) fn audit(&self) -> AuditLog {
        AuditLog::from_now(&self.shared.server.audit_log())
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates an object from its JSON, without what its kind says by itself.
    pub(crate) async fn create<K: Object>(&self, object: Value) -> K {
        let shown = object.to_string();
        let object: K = serde_json::from_value(object).unwrap();
        let created = self.api().create(&PostParams::default(), &object).await;
        created.unwrap_or_else(|error| panic!("creating {shown}: {error}"))
    }

    /// A Secret of text values.
    pub(crate) async fn secret(&self, name: &str, values: Value) {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": values});
        kubernetes::apply(&self.client, object, &self.namespace)
            .await
            .unwrap();
    }

    /// A ConfigMap.
    pub(crate) async fn config_map(&self, name: &str, values: Value) {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": values});
        kubernetes::apply(&self.client, object, &self.namespace)
            .await
            .unwrap();
    }

    /// Changes an object by a merge patch.
    pub(crate) async fn patch<K: Object>(&self, name: &str, patch: Value) -> K {
        let shown = patch.to_string();
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = self.api().patch(name, &params, &patch).await;
        patched.unwrap_or_else(|error| panic!("patching {name} with {shown}: {error}"))
    }

    /// Deletes an object, in the background, as kubectl does.
    pub(crate) async fn delete<K: Object>(&self, name: &str) {
        let deleted = self
            .api::<K>()
            .delete(name, &DeleteParams::background())
            .await;
        deleted.unwrap_or_else(|error| panic!("deleting {name}: {error}"));
    }

    pub(crate) async fn get<K: Object>(&self, name: &str) -> K {
        let got = self.api().get(name).await;
        got.unwrap_or_else(|error| panic!("reading {} {name}: {error}", K::kind(&())))
    }

    pub(crate) async fn find<K: Object>(&self, name: &str) -> Option<K> {
        self.api().get_opt(name).await.unwrap()
    }

    pub(crate) async fn list<K: Object>(&self) -> Vec<K> {
        self.api().list(&ListParams::default()).await.unwrap().items
    }

    /// Waits, by a watch, until the object is there and is as wished; shows it where it never is.
    pub(crate) async fn until<K: Object>(
        &self,
        name: &str,
        what: &str,
        wished: impl Fn(&K) -> bool,
    ) -> K {
        let mut last = None;
        let condition = |object: Option<&K>| {
            last = object.cloned();
            object.is_some_and(&wished)
        };
        let waited = tokio::time::timeout(
            PATIENCE,
            wait::await_condition(self.api(), name, Seen(std::sync::Mutex::new(condition))),
        )
        .await;
        if let Ok(found) = waited {
            return found.unwrap().unwrap();
        }
        panic!(
            "{} {name} is not {what} after {PATIENCE:?}: {}",
            K::kind(&()),
            serde_json::to_string_pretty(&last).unwrap()
        );
    }

    /// Waits until the object is gone.
    pub(crate) async fn until_gone<K: Object>(&self, name: &str) {
        let object = self.find::<K>(name).await;
        let Some(uid) = object.and_then(|object| object.meta().uid.clone()) else {
            return;
        };
        let gone = kubernetes::wait_for(
            self.api::<K>(),
            name,
            "gone",
            conditions::is_deleted(&uid),
            PATIENCE,
        );
        if let Err(error) = gone.await {
            let left = self.find::<K>(name).await;
            panic!(
                "{error:#}: {}",
                serde_json::to_string_pretty(&left).unwrap()
            );
        }
    }

    /// Waits until a condition has this status and reason, and returns its sentence.
    pub(crate) async fn told<K: Told>(
        &self,
        name: &str,
        type_: &str,
        status: &str,
        reason: &str,
    ) -> String {
        let what = format!("{type_}={status} for {reason}");
        let holds = |object: &K| {
            object.condition(type_).is_some_and(|condition| {
                condition.status == status
                    && condition.reason == reason
                    && condition.observed_generation == object.meta().generation
            })
        };
        let object = self.until(name, &what, holds).await;
        object.condition(type_).unwrap().message.clone()
    }

    /// The text of a Secret's key; `None` where Secret or key is absent.
    pub(crate) async fn secret_value(&self, name: &str, key: &str) -> Option<String> {
        use k8s_openapi::api::core::v1::Secret;
        let secret = self.find::<Secret>(name).await?;
        let value = secret.data?.remove(key)?;
        Some(String::from_utf8(value.0).unwrap())
    }

    /// Waits until there is a token for the router that an EdgeRouter registered.
    pub(crate) async fn token(&self, edge_router: &str) -> String {
        use k8s_openapi::api::core::v1::Secret;
        let name = names::enrollment_secret(edge_router);
        let has_token = |secret: &Secret| {
            let data = secret.data.as_ref();
            data.and_then(|data| data.get(names::TOKEN_KEY))
                .is_some_and(|token| !token.0.is_empty())
        };
        self.until::<Secret>(&name, "filled", has_token).await;
        self.secret_value(&name, names::TOKEN_KEY).await.unwrap()
    }
}

/// A condition that may keep what it saw.
struct Seen<F>(std::sync::Mutex<F>);

impl<K, F: FnMut(Option<&K>) -> bool> wait::Condition<K> for Seen<F> {
    fn matches_object(&self, object: Option<&K>) -> bool {
        (self.0.lock().unwrap())(object)
    }
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

/// A kind of ours.
pub(crate) trait Told: Object {
    fn conditions(&self) -> &[Condition];

    fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions().iter().find(|have| have.type_ == type_)
    }
}

impl Told for ZitiNetwork {
    fn conditions(&self) -> &[Condition] {
        self.status
            .as_ref()
            .map_or(&[], |status| &status.conditions)
    }
}

impl Told for EdgeRouter {
    fn conditions(&self) -> &[Condition] {
        self.status
            .as_ref()
            .map_or(&[], |status| &status.conditions)
    }
}

impl Told for ZitiController {
    fn conditions(&self) -> &[Condition] {
        self.status
            .as_ref()
            .map_or(&[], |status| &status.conditions)
    }
}

impl Told for ZitiRouter {
    fn conditions(&self) -> &[Condition] {
        self.status
            .as_ref()
            .map_or(&[], |status| &status.conditions)
    }
}
