//! What goes when a member or a set goes, and in which order: the pod, the router on the network,
//! the volume.

use api::reasons::{self, types};
use api::{EdgeRouter, ZitiNetwork, ZitiRouter, names};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};

use crate::operator::Operator;
use crate::player::Player;
use crate::set::{replicas, until_replicas, zitirouter};
use crate::world::{Told, World};
use crate::ziti_network::{self as network, NETWORK};

/// A set whose pods are on their node.
async fn scheduled<'a>(world: &'a World, set: &str, count: i32, additions: Value) -> Player<'a> {
    world
        .create::<ZitiRouter>(zitirouter(set, count, additions))
        .await;
    let player = Player::new(world, set);
    for ordinal in 0..count {
        player.schedule(ordinal).await;
    }
    player
}

async fn scale(world: &World, set: &str, count: i32) {
    let patch = Patch::Merge(json!({"spec": {"replicas": count}}));
    let api = world.api::<ZitiRouter>();
    let scaled = api.patch_scale(set, &PatchParams::default(), &patch).await;
    scaled.unwrap();
    until_replicas(world, set, count).await;
}

fn in_use(er: &EdgeRouter) -> bool {
    let finalizers = er.metadata.finalizers.as_deref().unwrap_or_default();
    finalizers.iter().any(|f| f == names::FINALIZER_IN_USE)
}

fn claim(member: &str) -> String {
    format!("identity-{member}")
}

#[tokio::test]
async fn scaling_down_ends_the_pod_then_the_router_then_its_volume_by_policy() {
    let controller = network::shared_controller().await;
    let world = World::new("shrinks").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    let player = scheduled(&world, "shrinks", 3, json!({})).await;
    let ziti = network::admin(&controller);
    let audit = world.audit();

    scale(&world, "shrinks", 2).await;
    let pod = player.until_stopping(2).await;
    world
        .told::<ZitiRouter>("shrinks", types::PROGRESSING, "True", reasons::SCALING_DOWN)
        .await;
    let er: EdgeRouter = world.get("shrinks-2").await;
    assert!(
        er.metadata.deletion_timestamp.is_none() && in_use(&er),
        "{er:?}"
    );
    assert!(network::router_named(&ziti, "shrinks-2").await.is_some());
    world
        .get::<PersistentVolumeClaim>(&claim("shrinks-2"))
        .await;

    player.stopped(&pod).await;
    world.until_gone::<EdgeRouter>("shrinks-2").await;
    assert!(network::router_named(&ziti, "shrinks-2").await.is_none());
    world
        .until_gone::<PersistentVolumeClaim>(&claim("shrinks-2"))
        .await;
    world.until_gone::<Service>("shrinks-2").await;
    world
        .until::<Secret>("shrinks-tokens", "of two", |secret| {
            secret.data.as_ref().unwrap().len() == 2
        })
        .await;
    let writes = audit.writes_by(&world.operator_user()).unwrap();
    let deletions: Vec<_> = writes
        .iter()
        .filter(|write| write.verb == "delete" && write.code < 300)
        .map(|write| write.resource.as_str())
        .filter(|resource| *resource != "services")
        .collect();
    assert_eq!(deletions, ["edgerouters", "persistentvolumeclaims"]);

    let keep = json!({"spec": {"retention": {"whenScaled": "Retain"}}});
    world.patch::<ZitiRouter>("shrinks", keep).await;
    scale(&world, "shrinks", 1).await;
    player.stopped(&player.until_stopping(1).await).await;
    world.until_gone::<EdgeRouter>("shrinks-1").await;
    world.until_gone::<Service>("shrinks-1").await;
    let kept: PersistentVolumeClaim = world.get(&claim("shrinks-1")).await;
    assert!(kept.metadata.deletion_timestamp.is_none());
    let left = network::routers_of(&ziti, "shrinks").await;
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test]
async fn foreground_deletion_waits_for_the_pods_and_then_leaves_nothing() {
    let controller = network::shared_controller().await;
    let world = World::new("foreground").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    let player = scheduled(&world, "foreground", 2, json!({})).await;
    let api = world.api::<ZitiRouter>();
    api.delete("foreground", &DeleteParams::foreground())
        .await
        .unwrap();
    let ziti = network::admin(&controller);
    let mut pods = Vec::new();
    for ordinal in 0..2 {
        pods.push(player.until_stopping(ordinal).await);
        let member = format!("foreground-{ordinal}");
        world
            .until::<EdgeRouter>(&member, "waiting for its pod", |er| {
                let ready = er.condition(types::READY).unwrap();
                er.metadata.deletion_timestamp.is_some() && ready.message.contains("pod to end")
            })
            .await;
        assert!(network::router_named(&ziti, &member).await.is_some());
    }
    for pod in &pods {
        player.stopped(pod).await;
    }
    world.until_gone::<ZitiRouter>("foreground").await;
    let left = network::routers_of(&ziti, "foreground").await;
    assert!(left.is_empty(), "{left:?}");
    nothing_left(&world, "foreground").await;
}

/// Nothing of the set is left, or what is left is going.
async fn nothing_left(world: &World, set: &str) {
    for ordinal in 0..2 {
        let member = format!("{set}-{ordinal}");
        world.until_gone::<EdgeRouter>(&member).await;
        world.until_gone::<Service>(&member).await;
        world
            .until_gone::<Secret>(&names::enrollment_secret(&member))
            .await;
        world
            .until_gone::<PersistentVolumeClaim>(&claim(&member))
            .await;
    }
    world.until_gone::<StatefulSet>(set).await;
    world.until_gone::<Secret>(&names::tokens_secret(set)).await;
    for map in world.list::<ConfigMap>().await {
        let name = map.metadata.name.unwrap();
        if name.starts_with(&format!("{set}-")) {
            world.until_gone::<ConfigMap>(&name).await;
        }
    }
}

#[tokio::test]
async fn background_deletion_ends_the_pods_before_the_routers_and_leaves_nothing() {
    let controller = network::shared_controller().await;
    let world = World::new("background").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    let player = scheduled(&world, "background", 2, json!({})).await;
    world.delete::<ZitiRouter>("background").await;
    let ziti = network::admin(&controller);
    let pods = [
        player.until_stopping(0).await,
        player.until_stopping(1).await,
    ];
    assert_eq!(network::routers_of(&ziti, "background").await.len(), 2);
    for member in ["background-0", "background-1"] {
        let er: EdgeRouter = world.get(member).await;
        assert!(in_use(&er), "{er:?}");
    }
    for pod in &pods {
        player.stopped(pod).await;
    }
    world.until_gone::<ZitiRouter>("background").await;
    assert!(network::routers_of(&ziti, "background").await.is_empty());
    nothing_left(&world, "background").await;
}

#[tokio::test]
async fn an_orphaned_set_runs_on_and_is_taken_back() {
    let controller = network::shared_controller().await;
    let world = World::new("orphaned").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    let _player = scheduled(&world, "orphaned", 2, json!({})).await;
    let before: Vec<EdgeRouter> = world.list().await;
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    let api = world.api::<ZitiRouter>();
    api.delete("orphaned", &orphan).await.unwrap();
    world.until_gone::<ZitiRouter>("orphaned").await;
    let ownerless = |owners: &Option<Vec<_>>| owners.as_ref().is_none_or(Vec::is_empty);
    for er in &before {
        let name = er.metadata.name.as_ref().unwrap();
        let now: EdgeRouter = world.get(name).await;
        assert!(ownerless(&now.metadata.owner_references), "{now:?}");
        assert!(now.metadata.deletion_timestamp.is_none() && in_use(&now));
        let pod: Pod = world.get(name).await;
        assert!(pod.metadata.deletion_timestamp.is_none());
    }
    let set: StatefulSet = world.get("orphaned").await;
    assert!(ownerless(&set.metadata.owner_references) && replicas(&set) == 2);
    let ziti = network::admin(&controller);
    assert_eq!(network::routers_of(&ziti, "orphaned").await.len(), 2);

    let again: ZitiRouter = world.create(zitirouter("orphaned", 2, json!({}))).await;
    for er in &before {
        let name = er.metadata.name.as_ref().unwrap();
        let taken = world
            .until::<EdgeRouter>(name, "taken back", |er| {
                er.metadata
                    .owner_references
                    .iter()
                    .flatten()
                    .any(|owner| Some(&owner.uid) == again.metadata.uid.as_ref())
            })
            .await;
        assert_eq!(taken.metadata.uid, er.metadata.uid);
        assert_eq!(taken.status.unwrap().id, er.status.as_ref().unwrap().id);
    }
    assert_eq!(network::routers_of(&ziti, "orphaned").await.len(), 2);
}

#[tokio::test]
async fn a_set_that_hangs_is_let_go_by_a_policy_that_is_patched_onto_it() {
    let mut controller = network::own_controller().await;
    let world = World::new("hangs").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    let player = scheduled(&world, "hangs", 2, json!({})).await;
    controller.stop().unwrap();
    world
        .told::<ZitiNetwork>(
            NETWORK,
            types::READY,
            "False",
            reasons::CONTROLLER_UNREACHABLE,
        )
        .await;
    world.delete::<ZitiRouter>("hangs").await;
    for ordinal in 0..2 {
        player.stopped(&player.until_stopping(ordinal).await).await;
    }
    world
        .until::<ZitiRouter>("hangs", "told how to let it go", |set| {
            let ready = set.condition(types::READY).unwrap();
            ready.message.contains("hangs-") && ready.message.contains("patch the ZitiRouter")
        })
        .await;
    let retain = json!({"spec": {"deletionPolicy": "Retain"}});
    world.patch::<ZitiRouter>("hangs", retain).await;
    world.until_gone::<ZitiRouter>("hangs").await;
    nothing_left(&world, "hangs").await;
}
