//! A set whose workloads are in another cluster, a real API server of its own: what is made there
//! and what is not, that it is left alone while the cluster is away, that it is taken away without a
//! garbage collector, and what becomes of one that is given up. That routers there come online, and
//! that the rights which are printed are all that is used, is tried end to end.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::process::Command;

use api::reasons::{self, types};
use api::{EdgeRouter, ZitiCluster, ZitiRouter, names};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::apiserver::{ApiServer, Controllers};
use testbed::kubernetes;
use testbed::ziti::LocalController;

use crate::clusters::{self, Far, THERE};
use crate::operator::{AGENT_IMAGE, Operator, ROUTER_IMAGE};
use crate::set::{replicas, zitirouter};
use crate::world::{PATIENCE, World};
use crate::ziti_network as network;

/// A world with a network, and another cluster that may be worked in.
async fn two_clusters(name: &str, controller: &LocalController) -> (World, Far, Operator) {
    let world = World::new(name).await;
    network::connect(&world, controller).await;
    let far = Far::of(
        ApiServer::start_with(Controllers::StatefulSets)
            .await
            .unwrap(),
    )
    .await;
    let operator = Operator::start(&world);
    let values = json!({"token": far.token().await, "ca.crt": far.ca});
    clusters::credential(&world, "far", values).await;
    let spec = far.spec(&json!({"token": {"name": "far"}}));
    clusters::create(&world, "far", spec).await;
    clusters::ready(&world, "far").await;
    network::until_ready(&world).await;
    (world, far, operator)
}

fn placed(name: &str, count: i32) -> Value {
    zitirouter(name, count, json!({"clusterRef": {"name": "far"}}))
}

impl Far {
    fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.server.client(), THERE)
    }

    /// Waits until the object there is as wished.
    async fn until<K>(&self, name: &str, wished: impl Condition<K>) -> Option<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let waited = tokio::time::timeout(PATIENCE, await_condition(self.api::<K>(), name, wished));
        waited
            .await
            .unwrap_or_else(|_| panic!("{} {name} is not as wished", K::kind(&())))
            .unwrap()
    }

    /// Names of what carries the set's label there.
    async fn names<K>(&self, set: &str) -> BTreeSet<String>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let params = ListParams::default().labels(&format!("{}={set}", names::LABEL_SET));
        let all = self.api::<K>().list(&params).await.unwrap();
        all.items.iter().map(ResourceExt::name_any).collect()
    }
}

fn runs(count: i32) -> impl Condition<StatefulSet> {
    move |set: Option<&StatefulSet>| set.is_some_and(|set| replicas(set) == count)
}

fn exists<K>(object: Option<&K>) -> bool {
    object.is_some()
}

fn is_gone<K>(object: Option<&K>) -> bool {
    object.is_none()
}

#[tokio::test]
async fn a_set_in_another_cluster_is_built_there_and_taken_away_again() {
    let controller = network::shared_controller().await;
    let (world, far, _operator) = two_clusters("placed", &controller).await;
    world.create::<ZitiRouter>(placed("placed", 2)).await;
    let set = far.until::<StatefulSet>("placed", runs(2)).await.unwrap();
    for pod in ["placed-0", "placed-1"] {
        far.until::<Pod>(pod, exists).await;
    }

    // There: what a router needs, and nobody as an owner who is not there.
    let home = &set.annotations()[names::ANNOTATION_HOME];
    let object: ZitiRouter = world.get("placed").await;
    let own = format!("placed/placed/placed/{}", object.uid().unwrap());
    assert_eq!(home, &own);
    assert_eq!(set.owner_references().len(), 0);
    let members = BTreeSet::from(["placed-0".to_owned(), "placed-1".to_owned()]);
    assert_eq!(far.names::<Service>("placed").await, members);
    assert_eq!(far.names::<ConfigMap>("placed").await.len(), 1);
    assert_eq!(far.names::<PodDisruptionBudget>("placed").await.len(), 1);
    let secrets = far.names::<Secret>("placed").await;
    assert_eq!(secrets, BTreeSet::from(["placed-tokens".to_owned()]));
    let crds: Api<CustomResourceDefinition> = Api::all(far.server.client());
    assert_eq!(
        crds.list(&ListParams::default()).await.unwrap().items.len(),
        0
    );
    // Here: what belongs to the network.
    for member in &members {
        let er: EdgeRouter = world.get(member).await;
        assert_eq!(er.labels()[names::LABEL_CLUSTER], "far");
        assert_eq!(er.owner_references()[0].uid, object.uid().unwrap());
    }
    assert_eq!(world.list::<StatefulSet>().await.len(), 0);
    assert_eq!(world.list::<Pod>().await.len(), 0);

    // Somebody takes a Service away there: it is seen, and put back.
    let services = far.api::<Service>();
    let service = services.get("placed-1").await.unwrap();
    services
        .delete("placed-1", &DeleteParams::default())
        .await
        .unwrap();
    let other =
        move |found: Option<&Service>| found.is_some_and(|found| found.uid() != service.uid());
    far.until::<Service>("placed-1", other).await;

    // It shrinks and grows.
    world
        .patch::<ZitiRouter>("placed", json!({"spec": {"replicas": 1}}))
        .await;
    world.until_gone::<EdgeRouter>("placed-1").await;
    far.until::<Service>("placed-1", is_gone).await;

    // Nothing of it is left, with nobody there who would collect it.
    world.delete::<ZitiRouter>("placed").await;
    world.until_gone::<ZitiRouter>("placed").await;
    assert_eq!(far.names::<StatefulSet>("placed").await.len(), 0);
    assert_eq!(far.names::<Service>("placed").await.len(), 0);
    assert_eq!(far.names::<ConfigMap>("placed").await.len(), 0);
    assert_eq!(far.names::<Secret>("placed").await.len(), 0);
    assert_eq!(far.names::<PodDisruptionBudget>("placed").await.len(), 0);
    assert_eq!(far.names::<PersistentVolumeClaim>("placed").await.len(), 0);
    assert_eq!(world.list::<EdgeRouter>().await.len(), 0);
    world.delete::<ZitiCluster>("far").await;
    world.until_gone::<ZitiCluster>("far").await;
}

#[tokio::test]
async fn a_set_is_left_alone_while_its_cluster_is_away() {
    let controller = network::shared_controller().await;
    let (world, far, _operator) = two_clusters("far-away", &controller).await;
    world.create::<ZitiRouter>(placed("lone", 1)).await;
    far.until::<Pod>("lone-0", exists).await;
    let server = |address: &str| json!({"spec": {"server": address}});
    world
        .patch::<ZitiCluster>("far", server("https://127.0.0.1:1"))
        .await;
    let told = |reason| world.told::<ZitiRouter>("lone", types::READY, "Unknown", reason);
    let message = told(reasons::CLUSTER_UNREACHABLE).await;
    assert!(message.contains("away since 20"), "{message}");
    assert!(message.contains("0 of 1 members are online"), "{message}");
    // What is wished meanwhile is done when it is back, and nobody has to be told.
    world
        .patch::<ZitiRouter>("lone", json!({"spec": {"replicas": 2}}))
        .await;
    told(reasons::CLUSTER_UNREACHABLE).await;
    let before = far.api::<StatefulSet>().get("lone").await.unwrap();
    assert_eq!(replicas(&before), 1);
    world.patch::<ZitiCluster>("far", server(&far.url)).await;
    far.until::<StatefulSet>("lone", runs(2)).await;

    // The cluster is held while it is used.
    world.delete::<ZitiCluster>("far").await;
    let message = world
        .told::<ZitiCluster>("far", types::READY, "False", reasons::IN_USE)
        .await;
    assert!(
        message.contains("1 ZitiRouters are still deployed"),
        "{message}"
    );
    world.delete::<ZitiRouter>("lone").await;
    world.until_gone::<ZitiRouter>("lone").await;
    world.until_gone::<ZitiCluster>("far").await;
    assert_eq!(far.names::<StatefulSet>("lone").await.len(), 0);
}

#[tokio::test]
async fn a_cluster_that_never_comes_back_is_given_up_and_what_is_left_is_taken_back() {
    let controller = network::shared_controller().await;
    let (world, far, _operator) = two_clusters("given-up", &controller).await;
    world.create::<ZitiRouter>(placed("lost", 1)).await;
    let set = far.until::<StatefulSet>("lost", runs(1)).await.unwrap();
    world
        .patch::<ZitiCluster>("far", json!({"spec": {"server": "https://127.0.0.1:1"}}))
        .await;
    world
        .told::<ZitiRouter>(
            "lost",
            types::READY,
            "Unknown",
            reasons::CLUSTER_UNREACHABLE,
        )
        .await;
    world.delete::<ZitiRouter>("lost").await;
    let message = world
        .told::<ZitiRouter>("lost", types::READY, "False", reasons::CLUSTER_UNREACHABLE)
        .await;
    let confirm = format!("{}=far", names::ANNOTATION_CONFIRM_ABANDON);
    assert!(message.contains(&confirm), "{message}");
    let given_up = json!({"metadata": {"annotations": {names::ANNOTATION_CONFIRM_ABANDON: "far"}}});
    world.patch::<ZitiCluster>("far", given_up).await;
    world.until_gone::<ZitiRouter>("lost").await;
    assert_eq!(world.list::<EdgeRouter>().await.len(), 0);
    // It was left behind: nobody could reach it.
    let left = far.api::<StatefulSet>().get("lost").await.unwrap();
    assert_eq!(left.uid(), set.uid());

    // It comes back all the same, and so does the ZitiRouter: it takes up what it had.
    let back = json!({"metadata": {"annotations": {names::ANNOTATION_CONFIRM_ABANDON: null}},
        "spec": {"server": far.url}});
    world.patch::<ZitiCluster>("far", back).await;
    clusters::ready(&world, "far").await;
    let object = world.create::<ZitiRouter>(placed("lost", 1)).await;
    let uid = object.uid().unwrap();
    let is_home = move |found: Option<&StatefulSet>| {
        let home = found.and_then(|found| found.annotations().get(names::ANNOTATION_HOME));
        home.is_some_and(|home| home.ends_with(&uid))
    };
    let taken = far.until::<StatefulSet>("lost", is_home).await.unwrap();
    assert_eq!(taken.uid(), set.uid());

    // What is another installation's is not touched, and named.
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "theirs-0",
        "labels": {names::LABEL_SET: "theirs"},
        "annotations": {names::ANNOTATION_HOME: "other/given-up/theirs/1-2-3"}},
        "spec": {"ports": [{"port": 80}]}});
    kubernetes::apply(&far.server.client(), service, THERE)
        .await
        .unwrap();
    world.create::<ZitiRouter>(placed("theirs", 1)).await;
    let message = world
        .told::<ZitiRouter>("theirs", types::READY, "False", reasons::NAME_TAKEN)
        .await;
    assert!(
        message.contains("says other/given-up/theirs/1-2-3"),
        "{message}"
    );
    world.delete::<ZitiRouter>("theirs").await;
    world.until_gone::<ZitiRouter>("theirs").await;
}

#[tokio::test]
async fn a_cluster_that_is_reached_by_its_own_set_is_begun_by_hand_and_taken_over() {
    let controller = network::shared_controller().await;
    let world = World::new("begun").await;
    network::connect(&world, &controller).await;
    let far = Far::of(
        ApiServer::start_with(Controllers::StatefulSets)
            .await
            .unwrap(),
    )
    .await;
    let _operator = Operator::start(&world);
    network::until_ready(&world).await;
    let values = json!({"token": far.token().await, "ca.crt": far.ca});
    clusters::credential(&world, "far", values).await;
    let mut spec = far.spec(&json!({"token": {"name": "far"}}));
    spec["server"] = json!("https://127.0.0.1:1");
    clusters::create(&world, "far", spec).await;
    world.create::<ZitiRouter>(placed("begun", 2)).await;
    world
        .told::<ZitiRouter>(
            "begun",
            types::READY,
            "Unknown",
            reasons::CLUSTER_UNREACHABLE,
        )
        .await;
    // Registered and with tokens, although nobody can get there.
    let tokens = [world.token("begun-0").await, world.token("begun-1").await];
    let printed = bootstrap(&world, "begun");
    for token in &tokens {
        let encoded = STANDARD.encode(token);
        assert!(printed.contains(&encoded), "the tokens are in the Secret");
    }
    kubernetes::apply_yaml(&far.server.client(), &printed, THERE)
        .await
        .unwrap();
    let begun = far.until::<StatefulSet>("begun", runs(2)).await.unwrap();
    far.until::<Pod>("begun-1", exists).await;

    // Now it is reached, and is as the operator would have made it.
    world
        .patch::<ZitiCluster>("far", json!({"spec": {"server": far.url}}))
        .await;
    clusters::ready(&world, "far").await;
    world
        .told::<ZitiRouter>("begun", types::READY, "False", reasons::MEMBERS_NOT_READY)
        .await;
    let now = far.api::<StatefulSet>().get("begun").await.unwrap();
    assert_eq!(
        (now.uid(), now.metadata.generation),
        (begun.uid(), begun.metadata.generation)
    );
    assert_eq!(
        [world.token("begun-0").await, world.token("begun-1").await],
        tokens
    );
    world.delete::<ZitiRouter>("begun").await;
    world.until_gone::<ZitiRouter>("begun").await;
    assert_eq!(far.names::<Secret>("begun").await.len(), 0);
    assert_eq!(far.names::<StatefulSet>("begun").await.len(), 0);

    // One that has never run needs nobody's word to go.
    let mut spec = far.spec(&json!({"token": {"name": "far"}}));
    spec["server"] = json!("https://127.0.0.1:1");
    clusters::create(&world, "other", spec).await;
    let elsewhere = zitirouter("never", 1, json!({"clusterRef": {"name": "other"}}));
    world.create::<ZitiRouter>(elsewhere).await;
    world.token("never-0").await;
    world.delete::<ZitiRouter>("never").await;
    world.until_gone::<ZitiRouter>("never").await;
    assert_eq!(world.list::<EdgeRouter>().await.len(), 0);
}

/// What `ziti-operator bootstrap` prints, with the operator's own rights.
fn bootstrap(world: &World, name: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ziti-operator"))
        .args(["bootstrap", name, "--namespace", &world.namespace])
        .args(["--install-id", &world.namespace])
        .args(["--agent-image", AGENT_IMAGE, "--router-image", ROUTER_IMAGE])
        .env("KUBECONFIG", world.operator_kubeconfig())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
