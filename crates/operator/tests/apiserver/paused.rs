//! `spec.paused`: nothing is written, here or on the network, until it is taken away.

use api::reasons::{self, types};
use api::{EdgeRouter, ZitiRouter};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use ziti::management::EdgeRouterPatch;

use crate::edge_router::registered;
use crate::operator::Operator;
use crate::set::{replicas, until_replicas, zitirouter};
use crate::world::World;
use crate::ziti_network as network;

#[tokio::test]
async fn a_paused_set_is_left_alone_with_its_members_and_goes_on_where_it_was() {
    let controller = network::shared_controller().await;
    let world = World::new("halted").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    let set = zitirouter("halted", 1, json!({"cost": 3}));
    world.create::<ZitiRouter>(set).await;
    until_replicas(&world, "halted", 1).await;

    let pause = json!({"spec": {"paused": true}});
    world.patch::<ZitiRouter>("halted", pause).await;
    let told = world
        .told::<EdgeRouter>("halted-0", types::READY, "False", reasons::PAUSED)
        .await;
    assert!(told.contains("spec.paused"), "{told}");
    let audit = world.audit();
    let wish = json!({"spec": {"replicas": 2, "cost": 5}});
    world.patch::<ZitiRouter>("halted", wish).await;
    let ziti = network::admin(&controller);
    let id = network::router_named(&ziti, "halted-0").await.unwrap().id;
    let drift = EdgeRouterPatch {
        cost: Some(9),
        ..EdgeRouterPatch::default()
    };
    ziti.patch_edge_router(&id, &drift).await.unwrap();
    // Its status speaks of the new wish: it was looked at, and left alone.
    world
        .told::<ZitiRouter>("halted", types::PROGRESSING, "False", reasons::PAUSED)
        .await;
    let writes = audit.writes_by(&world.operator_user()).unwrap();
    let beyond = |write: &&testbed::audit::Write| {
        write.subresource != "status" && write.resource != "events"
    };
    let beyond: Vec<_> = writes.iter().filter(beyond).collect();
    assert!(beyond.is_empty(), "{beyond:#?}");
    assert!(world.find::<Service>("halted-1").await.is_none());
    assert_eq!(replicas(&world.get::<StatefulSet>("halted").await), 1);

    let on = json!({"spec": {"paused": false}});
    world.patch::<ZitiRouter>("halted", on).await;
    until_replicas(&world, "halted", 2).await;
    network::until_router(&ziti, "halted-0", "brought in line", |r| r.cost == 5).await;
}

#[tokio::test]
async fn the_deletion_of_a_paused_router_waits() {
    let controller = network::shared_controller().await;
    let world = World::new("spared").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    registered(&world, "spared-a", json!({})).await;
    let pause = json!({"spec": {"paused": true}});
    world.patch::<EdgeRouter>("spared-a", pause).await;
    world
        .told::<EdgeRouter>("spared-a", types::READY, "False", reasons::PAUSED)
        .await;
    world.delete::<EdgeRouter>("spared-a").await;
    let waits = |er: &EdgeRouter| {
        let status = er.status.as_ref().unwrap();
        let mut ready = status.conditions.iter().filter(|c| c.type_ == types::READY);
        ready.any(|ready| ready.message.contains("its deletion waits"))
    };
    world.until("spared-a", "told to wait", waits).await;
    let ziti = network::admin(&controller);
    assert!(network::router_named(&ziti, "spared-a").await.is_some());
    let on = json!({"spec": {"paused": false}});
    world.patch::<EdgeRouter>("spared-a", on).await;
    world.until_gone::<EdgeRouter>("spared-a").await;
    assert!(network::router_named(&ziti, "spared-a").await.is_none());
}
