//! Whose a router on the network is: nothing that is not ours is touched, what was ours is taken
//! back, and a person may say otherwise.

use api::reasons::{self, types};
use api::{EdgeRouter, ZitiNetwork, names};
use serde_json::json;

use crate::edge_router::{edge_router, registered};
use crate::operator::{Operator, Options};
use crate::world::World;
use crate::ziti_network::{self as network, NETWORK};

#[tokio::test]
async fn a_router_of_that_name_that_is_not_ours_is_left_alone_until_a_person_says_by_name() {
    let controller = network::shared_controller().await;
    let world = World::new("taken").await;
    network::connect(&world, &controller).await;
    let ziti = network::admin(&controller);
    let theirs = network::register(&ziti, "taken-a", json!({"made-by": "hand"})).await;
    let _operator = Operator::start(&world);
    world
        .create::<EdgeRouter>(edge_router("taken-a", json!({"cost": 3})))
        .await;
    let told = world
        .told::<EdgeRouter>("taken-a", types::REGISTERED, "False", reasons::NAME_TAKEN)
        .await;
    for word in ["taken-a", &theirs.id, "adoptionPolicy: ByName"] {
        assert!(told.contains(word), "{told:?} should say {word}");
    }
    let untouched = ziti.edge_router(&theirs.id).await.unwrap().unwrap();
    assert_eq!((untouched.cost, &untouched.tags), (0, &theirs.tags));

    let by_name = json!({"spec": {"adoptionPolicy": "ByName"}});
    world.patch::<EdgeRouter>("taken-a", by_name).await;
    world
        .told::<EdgeRouter>("taken-a", types::REGISTERED, "True", reasons::REGISTERED)
        .await;
    let adopted = network::until_router(&ziti, "taken-a", "adopted", |r| r.cost == 3).await;
    assert_eq!(adopted.id, theirs.id, "the same router");
    assert_eq!(adopted.tags[names::TAG_INSTALL], "taken");
    assert_eq!(world.token("taken-a").await, network::token_of(&theirs));
}

#[tokio::test]
async fn a_foreign_router_that_goes_away_makes_room_by_itself() {
    let controller = network::shared_controller().await;
    let world = World::new("room").await;
    network::connect(&world, &controller).await;
    let ziti = network::admin(&controller);
    let theirs = network::register(&ziti, "room-a", json!({})).await;
    let _operator = Operator::start(&world);
    world
        .create::<EdgeRouter>(edge_router("room-a", json!({})))
        .await;
    world
        .told::<EdgeRouter>("room-a", types::REGISTERED, "False", reasons::NAME_TAKEN)
        .await;
    ziti.delete_edge_router(&theirs.id).await.unwrap();
    world
        .told::<EdgeRouter>("room-a", types::REGISTERED, "True", reasons::REGISTERED)
        .await;
}

#[tokio::test]
async fn an_object_made_anew_takes_back_the_router_it_had() {
    let controller = network::shared_controller().await;
    let world = World::new("again").await;
    network::connect(&world, &controller).await;
    let ziti = network::admin(&controller);
    // What a restore or a re-creation leaves: same install, namespace and name, and a uid that
    // nobody has any more.
    let tags = json!({names::TAG_INSTALL: "again", names::TAG_NAMESPACE: "again",
        names::TAG_NAME: "again-a", names::TAG_UID: "00000000-0000-0000-0000-000000000000"});
    let ours = network::register(&ziti, "again-a", tags).await;
    let _operator = Operator::start(&world);
    let object = registered(&world, "again-a", json!({})).await;
    assert_eq!(object.status.unwrap().id, Some(ours.id));
    let entity = network::router_named(&ziti, "again-a").await.unwrap();
    assert_eq!(
        entity.tags[names::TAG_UID].as_str(),
        object.metadata.uid.as_deref()
    );
}

#[tokio::test]
async fn a_router_of_another_installation_is_refused() {
    let controller = network::shared_controller().await;
    let world = World::new("another").await;
    network::connect(&world, &controller).await;
    let ziti = network::admin(&controller);
    let tags = json!({names::TAG_INSTALL: "elsewhere", names::TAG_NAMESPACE: "another",
        names::TAG_NAME: "another-a", names::TAG_UID: "1"});
    let theirs = network::register(&ziti, "another-a", tags).await;
    let _operator = Operator::start(&world);
    world
        .create::<EdgeRouter>(edge_router("another-a", json!({})))
        .await;
    let told = world
        .told::<EdgeRouter>("another-a", types::REGISTERED, "False", reasons::NAME_TAKEN)
        .await;
    assert!(told.contains("installation elsewhere"), "{told}");
    world.delete::<EdgeRouter>("another-a").await;
    world.until_gone::<EdgeRouter>("another-a").await;
    let untouched = ziti.edge_router(&theirs.id).await.unwrap().unwrap();
    assert_eq!(untouched.tags, theirs.tags);
}

#[tokio::test]
async fn a_copy_of_the_cluster_under_another_install_id_only_looks_until_confirmed() {
    let controller = network::shared_controller().await;
    let world = World::new("copied").await;
    network::connect(&world, &controller).await;
    let first = Operator::start(&world);
    registered(&world, "copied-a", json!({})).await;
    first.stop();

    let options = Options {
        install_id: Some("the-copy"),
        ..Options::default()
    };
    let _copy = Operator::start_with(&world, &options);
    let told = world
        .told::<ZitiNetwork>(NETWORK, types::READY, "False", reasons::FOREIGN_INSTALL)
        .await;
    assert!(
        told.contains("openziti.io/confirm-install=copied"),
        "{told}"
    );
    world.delete::<EdgeRouter>("copied-a").await;
    world
        .told::<EdgeRouter>("copied-a", types::READY, "False", reasons::FOREIGN_INSTALL)
        .await;
    world
        .create::<EdgeRouter>(edge_router("copied-b", json!({})))
        .await;
    world
        .told::<EdgeRouter>(
            "copied-b",
            types::REGISTERED,
            "False",
            reasons::FOREIGN_INSTALL,
        )
        .await;
    let ziti = network::admin(&controller);
    assert!(network::router_named(&ziti, "copied-a").await.is_some());
    assert!(network::router_named(&ziti, "copied-b").await.is_none());

    let confirm =
        json!({"metadata": {"annotations": {names::ANNOTATION_CONFIRM_INSTALL: "copied"}}});
    world.patch::<ZitiNetwork>(NETWORK, confirm).await;
    world
        .told::<EdgeRouter>("copied-b", types::REGISTERED, "True", reasons::REGISTERED)
        .await;
}
