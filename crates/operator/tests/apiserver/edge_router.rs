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
pub(crate) fn edge_router(name: &str, additions: &Value) -> Value {
    let mut spec = json!({"networkRef": {"name": NETWORK}});
    for (key, value) in additions.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Creates one and waits until its token waits.
pub(crate) async fn registered(world: &World, name: &str, additions: &Value) -> EdgeRouter {
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
    let object = registered(&world, "registered-a", &additions).await;

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
