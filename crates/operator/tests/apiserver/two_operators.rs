//! An operator in each of two clusters, both with an administrator's certificate of one real Ziti
//! network, and with the same namespaces and names in both: neither touches what the other has.

use api::reasons::{self, types};
use api::{EdgeRouter, ZitiNetwork, ZitiRouter, names};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use testbed::kubernetes;
use testbed::ziti::LocalController;
use ziti::management::{EdgeRouterEntity, ManagementClient};

use crate::credentials::client_certificate;
use crate::edge_router::{edge_router, registered};
use crate::operator::{Operator, Options};
use crate::player::Player;
use crate::set::{until_replicas, zitirouter};
use crate::set_life::bring_up;
use crate::world::World;
use crate::ziti_network::{self as network, NETWORK};

/// Two clusters that have a namespace in common, with a ZitiNetwork of one network in each.
async fn two(namespace: &str, controller: &LocalController, pattern: Option<&str>) -> [World; 2] {
    let worlds = [
        World::new(namespace).await,
        World::in_a_cluster_of_its_own(namespace).await,
    ];
    for (world, cluster) in worlds.iter().zip(["east", "west"]) {
        let mut spec = network::prepare(world, controller).await;
        let admin = format!("{namespace}-{cluster}");
        spec["credential"] = client_certificate(world, controller, &admin).await;
        if let Some(pattern) = pattern {
            spec["namePattern"] = json!(pattern);
        }
        network::create(world, spec).await;
    }
    worlds
}

/// The operator of a cluster. As in a pod, it knows the namespace in which it is installed.
fn operator(world: &World, install_id: &str) -> Operator {
    let options = Options {
        install_id: Some(install_id),
        lease: Some(&[]),
        ..Options::default()
    };
    Operator::start_with(world, &options)
}

async fn has(ziti: &ManagementClient, id: &str) -> EdgeRouterEntity {
    let found = ziti.edge_router(id).await.unwrap();
    found.unwrap_or_else(|| panic!("router {id} is gone"))
}

/// Tells a member's way through its deletion by the kubelet.
async fn delete_set(world: &World, set: &str) {
    world.delete::<ZitiRouter>(set).await;
    let player = Player::new(world, set);
    let pod: Pod = player.until_stopping(0).await;
    player.stopped(&pod).await;
    world.until_gone::<ZitiRouter>(set).await;
}

fn id(object: &EdgeRouter) -> String {
    object.status.as_ref().unwrap().id.clone().unwrap()
}

#[tokio::test]
async fn with_a_pattern_both_come_online_and_the_end_of_one_leaves_the_other() {
    let controller = network::shared_controller().await;
    let [east, west] = two("both", &controller, Some("{install}-{member}")).await;
    let _east = operator(&east, "both-east");
    let _west = operator(&west, "both-west");
    let ziti = network::admin(&controller);
    let mut routers = Vec::new();
    for world in [&east, &west] {
        world
            .create::<ZitiRouter>(zitirouter("edge", 1, json!({})))
            .await;
        let player = Player::new(world, "edge");
        routers.push(bring_up(&player, 0).await);
    }
    for world in [&east, &west] {
        world
            .told::<ZitiRouter>("edge", types::READY, "True", reasons::READY)
            .await;
    }
    let of_west = network::router_named(&ziti, "both-west-edge-0")
        .await
        .unwrap();
    assert!(of_west.is_online);

    // The router of the west stays online, and its set stays as it is.
    drop(routers.remove(0));
    Box::pin(delete_set(&east, "edge")).await;
    assert!(
        network::router_named(&ziti, "both-east-edge-0")
            .await
            .is_none()
    );
    let left = has(&ziti, &of_west.id).await;
    assert!(left.is_online);
    assert_eq!(left.tags, of_west.tags);
    west.told::<ZitiRouter>("edge", types::READY, "True", reasons::READY)
        .await;
}

#[tokio::test]
async fn without_one_the_second_is_told_whose_the_name_is_and_goes_on_as_it_is_told() {
    let controller = network::shared_controller().await;
    let [east, west] = two("names", &controller, None).await;
    let _east = operator(&east, "names-east");
    let _west = operator(&west, "names-west");
    let ziti = network::admin(&controller);
    let set = |name: &str| zitirouter(name, 1, json!({"adoptionPolicy": "ByName"}));
    east.create::<ZitiRouter>(set("nedge")).await;
    until_replicas(&east, "nedge", 1).await;
    let first = network::router_named(&ziti, "nedge-0").await.unwrap();

    // Not by adoptionPolicy either, which says nothing of what another installation has.
    west.create::<ZitiRouter>(set("nedge")).await;
    let told = west
        .told::<EdgeRouter>("nedge-0", types::REGISTERED, "False", reasons::NAME_TAKEN)
        .await;
    for word in [
        "EdgeRouter names/nedge-0 of installation names-east",
        "spec.namePattern of ZitiNetwork network to {install}-{member}",
    ] {
        assert!(told.contains(word), "{told:?} should say {word}");
    }
    assert_eq!(has(&ziti, &first.id).await.tags, first.tags);

    let pattern = json!({"spec": {"namePattern": "{install}-{member}"}});
    west.patch::<ZitiNetwork>(NETWORK, pattern).await;
    west.delete::<EdgeRouter>("nedge-0").await;
    until_replicas(&west, "nedge", 1).await;
    let second = network::router_named(&ziti, "names-west-nedge-0")
        .await
        .unwrap();
    assert_eq!(second.tags[names::TAG_INSTALL], "names-west");
    delete_set_without_pod(&west, "nedge").await;
    assert!(ziti.edge_router(&second.id).await.unwrap().is_none());
    assert_eq!(has(&ziti, &first.id).await.tags, first.tags);
}

/// Deletes a set whose pod no kubelet has taken up.
async fn delete_set_without_pod(world: &World, set: &str) {
    world.delete::<ZitiRouter>(set).await;
    world.until_gone::<ZitiRouter>(set).await;
}

#[tokio::test]
async fn two_that_were_given_the_same_id_are_told_apart() {
    let controller = network::shared_controller().await;
    let [east, west] = two("alike", &controller, None).await;
    let first = operator(&east, "alike");
    let of_west = operator(&west, "alike");
    let ziti = network::admin(&controller);
    let object = registered(&east, "alike-a", json!({})).await;
    let theirs = has(&ziti, &id(&object)).await;

    west.create::<EdgeRouter>(edge_router("alike-a", json!({"cost": 7})))
        .await;
    let told = west
        .told::<EdgeRouter>("alike-a", types::REGISTERED, "False", reasons::NAME_TAKEN)
        .await;
    assert!(told.contains("also given the id alike"), "{told}");
    assert!(told.contains("installId of its own"), "{told}");
    west.delete::<EdgeRouter>("alike-a").await;
    west.until_gone::<EdgeRouter>("alike-a").await;
    assert_eq!(has(&ziti, &theirs.id).await.tags, theirs.tags);

    // What the first had before, made anew in its own cluster, is taken back as ever.
    let retain = json!({"spec": {"deletionPolicy": "Retain"}});
    east.patch::<EdgeRouter>("alike-a", retain).await;
    east.delete::<EdgeRouter>("alike-a").await;
    east.until_gone::<EdgeRouter>("alike-a").await;
    let again = registered(&east, "alike-a", json!({})).await;
    assert_eq!(id(&again), theirs.id);

    // The west is given an id of its own. What it had stays its own, on a person's word.
    let own = registered(&west, "alike-b", json!({})).await;
    west.create::<EdgeRouter>(edge_router("alike-a", json!({})))
        .await;
    of_west.stop();
    let _west = operator(&west, "alike-west");
    let told = west
        .told::<ZitiNetwork>(NETWORK, types::READY, "False", reasons::FOREIGN_INSTALL)
        .await;
    assert!(told.contains("openziti.io/confirm-install=alike"), "{told}");
    west.patch::<ZitiNetwork>(NETWORK, confirm("alike")).await;
    let what = "tagged with the new id";
    let renamed = network::until_router(&ziti, "alike-b", what, |router| {
        router.tags[names::TAG_INSTALL] == "alike-west"
    })
    .await;
    assert_eq!(renamed.id, id(&own));
    west.told::<EdgeRouter>("alike-a", types::REGISTERED, "False", reasons::NAME_TAKEN)
        .await;
    assert_eq!(
        has(&ziti, &theirs.id).await.tags[names::TAG_UID].as_str(),
        again.metadata.uid.as_deref()
    );

    // The east is gone for good, and somebody says so by its uid.
    drop(first);
    let uid = theirs.tags[names::TAG_INSTALL_UID].as_str().unwrap();
    west.patch::<ZitiNetwork>(NETWORK, confirm(uid)).await;
    west.told::<EdgeRouter>("alike-a", types::REGISTERED, "True", reasons::REGISTERED)
        .await;
    let taken = has(&ziti, &theirs.id).await;
    assert_eq!(taken.tags[names::TAG_INSTALL], "alike-west");
}

fn confirm(word: &str) -> Value {
    json!({"metadata": {"annotations": {names::ANNOTATION_CONFIRM_INSTALL: word}}})
}

#[tokio::test]
async fn an_upgrade_marks_what_is_registered_and_says_that_nobody_changed_it() {
    let controller = network::shared_controller().await;
    let world = World::new("marked").await;
    network::connect(&world, &controller).await;
    let ziti = network::admin(&controller);
    // As an operator did before there was the tag.
    let before = Operator::start(&world);
    let object = registered(&world, "marked-a", json!({})).await;
    assert!(
        has(&ziti, &id(&object))
            .await
            .tags
            .get(names::TAG_INSTALL_UID)
            .is_none()
    );
    before.stop();

    let upgraded = operator(&world, "marked");
    let marked = network::until_router(&ziti, "marked-a", "marked", |router| {
        router.tags.contains_key(names::TAG_INSTALL_UID)
    })
    .await;
    assert_eq!(marked.id, id(&object));
    kubernetes::poll("the event", crate::world::PATIENCE, async || {
        Ok(upgraded.log().contains("updated router").then_some(()))
    })
    .await
    .unwrap();
    assert!(!upgraded.log().contains("put back router"));
}
