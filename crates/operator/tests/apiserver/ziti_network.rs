//! Ziti controllers, shared or a test's own, and the ZitiNetworks by which the operator reaches
//! them.

use std::sync::{Arc, Weak};

use api::ZitiNetwork;
use api::reasons::{self, types};
use serde_json::{Value, json};
use testbed::kubernetes;
use testbed::ziti::LocalController;
use ziti::SecretString;
use ziti::management::{
    Credential, EdgeRouterEntity, Filter, ManagementClient, NewEdgeRouter, Options,
};
use ziti::trust::CaBundle;

use crate::world::{PATIENCE, World};

/// Name of the ZitiNetwork in every test that needs one alone.
pub(crate) const NETWORK: &str = "network";

static SHARED: tokio::sync::Mutex<Weak<LocalController>> =
    tokio::sync::Mutex::const_new(Weak::new());

/// A controller for tests that leave it alone. Names of routers on it are a test's own; it ends
/// with the last test that holds it.
pub(crate) async fn shared_controller() -> Arc<LocalController> {
    let mut known = SHARED.lock().await;
    if let Some(controller) = known.upgrade() {
        return controller;
    }
    let controller = Arc::new(own_controller().await);
    *known = Arc::downgrade(&controller);
    controller
}

/// A controller that a test may stop and rebuild.
pub(crate) async fn own_controller() -> LocalController {
    LocalController::start().await.unwrap()
}

/// The administrator's view of a network, beside the operator.
pub(crate) fn admin(controller: &LocalController) -> ManagementClient {
    let credential = Credential::Password {
        username: LocalController::USERNAME.to_owned(),
        password: SecretString::from(LocalController::PASSWORD),
    };
    let ca = CaBundle::from_pem(controller.ca_pem()).unwrap();
    let endpoints = [controller.url().parse().unwrap()];
    ManagementClient::new(&endpoints, &ca, Some(credential), &Options::default()).unwrap()
}

/// All routers of that install id.
pub(crate) async fn routers_of(
    client: &ManagementClient,
    install_id: &str,
) -> Vec<EdgeRouterEntity> {
    let filter = Filter::tag(api::names::TAG_INSTALL, install_id).unwrap();
    client.edge_routers(&filter).await.unwrap().items
}

/// The router of that name.
pub(crate) async fn router_named(
    client: &ManagementClient,
    name: &str,
) -> Option<EdgeRouterEntity> {
    let filter = Filter::equals("name", name).unwrap();
    client.edge_routers(&filter).await.unwrap().items.pop()
}

/// Waits until the router of that name is as wished.
pub(crate) async fn until_router(
    client: &ManagementClient,
    name: &str,
    what: &str,
    wished: impl Fn(&EdgeRouterEntity) -> bool,
) -> EdgeRouterEntity {
    let what = format!("{name} to be {what}");
    let look = async || Ok(router_named(client, name).await.filter(&wished));
    kubernetes::poll(&what, PATIENCE, look).await.unwrap()
}

/// Registers a router by hand, as somebody else would.
pub(crate) async fn register(
    client: &ManagementClient,
    name: &str,
    tags: Value,
) -> EdgeRouterEntity {
    let Value::Object(tags) = tags else {
        panic!("tags are an object")
    };
    let router = NewEdgeRouter {
        name: name.to_owned(),
        tags,
        ..NewEdgeRouter::default()
    };
    let id = client.create_edge_router(&router).await.unwrap();
    client.edge_router(&id).await.unwrap().unwrap()
}

/// The text of the token that waits for a router.
pub(crate) fn token_of(router: &EdgeRouterEntity) -> String {
    let token = router.enrollment_token().unwrap().unwrap();
    token.expose().to_owned()
}

/// The spec of a ZitiNetwork with the password of the administrator, and what it names.
pub(crate) async fn prepare(world: &World, controller: &LocalController) -> Value {
    world
        .config_map("network-ca", json!({"ca.crt": controller.ca_pem()}))
        .await;
    let login =
        json!({"username": LocalController::USERNAME, "password": LocalController::PASSWORD});
    world.secret("network-admin", login).await;
    json!({
        "managementApi": [controller.url()],
        "trust": {"configMap": {"name": "network-ca", "key": "ca.crt"}},
        "credential": {"password": {"name": "network-admin"}},
    })
}

/// Creates a ZitiNetwork with this spec.
pub(crate) async fn create(world: &World, spec: Value) -> ZitiNetwork {
    world
        .create(json!({"metadata": {"name": NETWORK}, "spec": spec}))
        .await
}

/// Creates the ZitiNetwork that most tests need.
pub(crate) async fn connect(world: &World, controller: &LocalController) {
    let spec = prepare(world, controller).await;
    create(world, spec).await;
}

/// Waits until the network is ready.
pub(crate) async fn until_ready(world: &World) -> ZitiNetwork {
    world
        .told::<ZitiNetwork>(NETWORK, types::READY, "True", reasons::READY)
        .await;
    world.get(NETWORK).await
}
