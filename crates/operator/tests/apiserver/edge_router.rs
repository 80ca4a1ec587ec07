//! An EdgeRouter by itself, managed: what it makes on the network and in its Secret, and what it
//! leaves when it goes.

use api::reasons::{self, types};
use api::{EdgeRouter, names};
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use ziti::token::EnrollmentToken;

use crate::operator::Operator;
use crate::world::World;
use crate::ziti_network::{self as network, NETWORK};

/// An EdgeRouter of the usual network with these additions to its spec.
pub(crate) fn edge_router(name: &str, additions: Value) -> Value {
    let mut spec = json!({"networkRef": {"name": NETWORK}});
    let Value::Object(additions) = additions else {
        panic!("additions are an object")
    };
    for (key, value) in additions {
        spec[key] = value;
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Creates one and waits until its token waits.
pub(crate) async fn registered(world: &World, name: &str, additions: Value) -> EdgeRouter {
    world
        .create::<EdgeRouter>(edge_router(name, additions))
        .await;
    world
        .told::<EdgeRouter>(name, types::ENROLLED, "False", reasons::TOKEN_READY)
        .await;
    world.get(name).await
}

fn tag<'a>(entity: &'a ziti::management::EdgeRouterEntity, key: &str) -> &'a str {
    entity.tags[key].as_str().unwrap()
}

#[tokio::test]
async fn a_router_is_registered_with_our_tags_and_its_token_is_in_our_secret() {
    let controller = network::shared_controller().await;
    let world = World::new("registered").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    let additions = json!({"roleAttributes": ["blue"], "cost": 7, "noTraversal": true,
        "tunnelerEnabled": true, "tags": {"team": "one"}});
    let object = registered(&world, "registered-a", additions).await;

    let ziti = network::admin(&controller);
    let entity = network::router_named(&ziti, "registered-a").await.unwrap();
    assert_eq!(entity.role_attributes, ["blue"]);
    assert_eq!(entity.cost, 7);
    assert!(entity.no_traversal && entity.is_tunneler_enabled);
    assert_eq!(tag(&entity, "team"), "one");
    assert_eq!(tag(&entity, names::TAG_INSTALL), "registered");
    assert_eq!(tag(&entity, names::TAG_NAMESPACE), "registered");
    assert_eq!(tag(&entity, names::TAG_NAME), "registered-a");
    let uid = object.metadata.uid.as_deref().unwrap();
    assert_eq!(tag(&entity, names::TAG_UID), uid);

    let status = object.status.unwrap();
    assert_eq!(status.id.as_deref(), Some(entity.id.as_str()));
    assert!(status.network_identity.is_some());
    assert!(status.token_expiry.is_some());
    assert!(status.intent.is_none(), "{:?}", status.intent);
    let token = world.token("registered-a").await;
    let token = EnrollmentToken::parse(&token).unwrap();
    assert_eq!(token.subject(), entity.id);
    let secret: Secret = world.get("registered-a-enrollment").await;
    let owner = &secret.metadata.owner_references.unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.uid.as_str()),
        ("EdgeRouter", uid)
    );
    let labels = secret.metadata.labels.unwrap();
    assert_eq!(labels[names::LABEL_MANAGED_BY], names::MANAGER);

    let told = world
        .told::<EdgeRouter>(
            "registered-a",
            types::REGISTERED,
            "True",
            reasons::REGISTERED,
        )
        .await;
    assert!(told.contains("registered-a") && told.contains(&entity.id));
    world
        .told::<EdgeRouter>("registered-a", types::ONLINE, "False", reasons::OFFLINE)
        .await;
    let told = world
        .told::<EdgeRouter>("registered-a", types::READY, "False", reasons::TOKEN_READY)
        .await;
    assert!(told.contains("registered-a-enrollment"), "{told}");
}

#[tokio::test]
async fn a_changed_spec_reaches_the_network_and_nothing_else_of_the_router_changes() {
    let controller = network::shared_controller().await;
    let world = World::new("changed").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    let additions = json!({"roleAttributes": ["blue"], "cost": 7, "tags": {"team": "one"}});
    let before = registered(&world, "changed-a", additions).await;
    let token = world.token("changed-a").await;

    let changed = json!({"spec": {"roleAttributes": ["green", "red"], "cost": 9,
        "noTraversal": true, "tags": {"team": "two"}}});
    world.patch::<EdgeRouter>("changed-a", changed).await;
    let ziti = network::admin(&controller);
    let entity = network::until_router(&ziti, "changed-a", "changed", |entity| {
        entity.cost == 9 && entity.role_attributes == ["green", "red"]
    })
    .await;
    assert!(entity.no_traversal);
    assert_eq!(tag(&entity, "team"), "two");
    assert_eq!(tag(&entity, names::TAG_NAME), "changed-a");
    assert_eq!(
        Some(entity.id),
        before.status.unwrap().id,
        "the same router"
    );
    world
        .until::<EdgeRouter>("changed-a", "up to date", |er| {
            er.status.as_ref().unwrap().observed_generation == er.metadata.generation
        })
        .await;
    assert_eq!(world.token("changed-a").await, token, "the same token");
}

#[tokio::test]
async fn a_deleted_router_leaves_the_network_and_a_retained_one_stays() {
    let controller = network::shared_controller().await;
    let world = World::new("deleted").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    let retain = json!({"deletionPolicy": "Retain"});
    tokio::join!(
        registered(&world, "deleted-a", json!({})),
        registered(&world, "deleted-kept", retain),
    );
    world.delete::<EdgeRouter>("deleted-a").await;
    world.delete::<EdgeRouter>("deleted-kept").await;
    world.until_gone::<EdgeRouter>("deleted-a").await;
    world.until_gone::<EdgeRouter>("deleted-kept").await;
    let ziti = network::admin(&controller);
    assert!(network::router_named(&ziti, "deleted-a").await.is_none());
    assert!(network::router_named(&ziti, "deleted-kept").await.is_some());
    world.until_gone::<Secret>("deleted-a-enrollment").await;
}
