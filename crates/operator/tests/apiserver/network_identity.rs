//! A network that is away, another one behind its address, and one that is gone for ever.

use api::reasons::{self, types};
use api::{EdgeRouter, ZitiNetwork, names};
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

use crate::edge_router::registered;
use crate::operator::Operator;
use crate::world::World;
use crate::ziti_network::{self as network, NETWORK};

#[tokio::test]
async fn another_network_behind_the_address_stops_everything_until_confirmed() {
    let mut controller = network::own_controller().await;
    let world = World::new("rebuilt").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    let (kept, going) = tokio::join!(
        registered(&world, "rebuilt-kept", json!({})),
        registered(&world, "rebuilt-going", json!({})),
    );
    controller.rebuild().await.unwrap();
    let told = world
        .told::<ZitiNetwork>(NETWORK, types::READY, "False", reasons::NETWORK_CHANGED)
        .await;
    world
        .told::<EdgeRouter>(
            "rebuilt-kept",
            types::READY,
            "False",
            reasons::NETWORK_CHANGED,
        )
        .await;

    // Nothing is created there, and nothing counts as deleted.
    world.delete::<EdgeRouter>("rebuilt-going").await;
    world
        .until::<EdgeRouter>("rebuilt-going", "told how to let it go", |er| {
            let ready = crate::world::Told::condition(er, types::READY).unwrap();
            er.metadata.deletion_timestamp.is_some()
                && ready.reason == reasons::NETWORK_CHANGED
                && ready.message.contains("\"deletionPolicy\":\"Retain\"")
        })
        .await;
    let ziti = network::admin(&controller);
    assert!(network::routers_of(&ziti, "rebuilt").await.is_empty());
    for before in [&kept, &going] {
        let now: EdgeRouter = world.get(before.metadata.name.as_ref().unwrap()).await;
        assert_eq!(now.status.unwrap().id, before.status.as_ref().unwrap().id);
    }

    // A person says that the new network is meant.
    let identity = ziti.default_admin_id().await.unwrap().unwrap();
    let said = format!("openziti.io/confirm-network={identity}");
    assert!(told.contains(&said), "{told:?} should say {said}");
    let confirm =
        json!({"metadata": {"annotations": {names::ANNOTATION_CONFIRM_NETWORK: identity}}});
    world.patch::<ZitiNetwork>(NETWORK, confirm).await;
    world.until_gone::<EdgeRouter>("rebuilt-going").await;
    let anew = world
        .until::<EdgeRouter>("rebuilt-kept", "registered anew", |er| {
            let status = er.status.as_ref().unwrap();
            status.network_identity.as_ref() == Some(&identity) && status.id.is_some()
        })
        .await;
    let entity = network::router_named(&ziti, "rebuilt-kept").await.unwrap();
    let status = anew.status.unwrap();
    assert_eq!(status.id, Some(entity.id.clone()));
    assert_ne!(status.id, kept.status.unwrap().id);
    let enrollment = names::enrollment_secret("rebuilt-kept");
    let token = network::token_of(&entity);
    world
        .until::<Secret>(&enrollment, "of the new network", |secret| {
            secret.data.as_ref().unwrap()[names::TOKEN_KEY].0 == token.as_bytes()
        })
        .await;
}

#[tokio::test]
async fn a_controller_that_is_away_is_told_once_and_comes_back_by_itself() {
    let mut controller = network::own_controller().await;
    let world = World::new("away").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    for name in ["away-a", "away-b", "away-c"] {
        registered(&world, name, json!({})).await;
    }
    let audit = world.audit();
    controller.stop().unwrap();
    let told = world
        .told::<ZitiNetwork>(
            NETWORK,
            types::READY,
            "False",
            reasons::CONTROLLER_UNREACHABLE,
        )
        .await;
    assert!(told.contains(&controller.url()), "{told}");
    controller.restart().await.unwrap();
    network::until_ready(&world).await;
    let writes = audit.writes_by(&world.operator_user()).unwrap();
    let others: Vec<_> = writes
        .iter()
        .filter(|write| !matches!(write.resource.as_str(), "zitinetworks" | "events"))
        .collect();
    assert!(others.is_empty(), "only the network tells: {others:?}");
    registered(&world, "away-d", json!({})).await;
}

#[tokio::test]
async fn an_object_that_hangs_says_how_to_let_it_go_when_the_network_is_gone_for_ever() {
    let mut controller = network::own_controller().await;
    let world = World::new("lost").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    registered(&world, "lost-a", json!({})).await;
    controller.stop().unwrap();
    world
        .told::<ZitiNetwork>(
            NETWORK,
            types::READY,
            "False",
            reasons::CONTROLLER_UNREACHABLE,
        )
        .await;
    world.delete::<EdgeRouter>("lost-a").await;
    let told = world
        .told::<EdgeRouter>("lost-a", types::READY, "False", reasons::NETWORK_NOT_READY)
        .await;
    let way_out = r#"kubectl patch edgerouter lost-a -n lost --type merge -p '{"spec":{"deletionPolicy":"Retain"}}'"#;
    assert!(told.contains(way_out), "{told}");
    let retain = json!({"spec": {"deletionPolicy": "Retain"}});
    world.patch::<EdgeRouter>("lost-a", retain).await;
    world.until_gone::<EdgeRouter>("lost-a").await;
    world.delete::<ZitiNetwork>(NETWORK).await;
    world.until_gone::<ZitiNetwork>(NETWORK).await;
}

#[tokio::test]
async fn a_network_is_held_until_the_last_router_has_left_it() {
    let controller = network::shared_controller().await;
    let world = World::new("held").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    registered(&world, "held-a", json!({})).await;
    world.delete::<ZitiNetwork>(NETWORK).await;
    let told = world
        .told::<ZitiNetwork>(NETWORK, types::READY, "False", reasons::IN_USE)
        .await;
    assert!(told.contains("1 EdgeRouter"), "{told}");
    world.delete::<EdgeRouter>("held-a").await;
    world.until_gone::<EdgeRouter>("held-a").await;
    world.until_gone::<ZitiNetwork>(NETWORK).await;
    let ziti = network::admin(&controller);
    assert!(network::routers_of(&ziti, "held").await.is_empty());
}

#[tokio::test]
async fn routers_are_cleaned_up_although_the_credential_went_first() {
    let controller = network::shared_controller().await;
    let world = World::new("first").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    registered(&world, "first-a", json!({})).await;
    world.delete::<Secret>("network-admin").await;
    world
        .told::<ZitiNetwork>(NETWORK, types::READY, "False", reasons::SOURCE_MISSING)
        .await;
    world.delete::<EdgeRouter>("first-a").await;
    world.until_gone::<EdgeRouter>("first-a").await;
    let ziti = network::admin(&controller);
    assert!(network::routers_of(&ziti, "first").await.is_empty());
}
