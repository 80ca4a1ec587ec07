//! The same client against a controller in cluster mode, the only mode of Ziti 2.x: another
//! database, and other answers in some corners.

mod common;

use common::{
    admin_client, redeemed, redeemed_at_restarted, registered, router, router_until, write_identity,
};
use testbed::ziti::config::Storage;
use testbed::ziti::{ControllerOptions, LocalController, LocalRouter, RouterOptions};
use ziti::management::{EdgeRouterEntity, EdgeRouterPatch, ErrorKind};

#[tokio::test]
async fn a_cluster_of_one_serves_as_a_single_controller_does() {
    let options = ControllerOptions {
        storage: Some(Storage::Cluster),
        ..ControllerOptions::default()
    };
    let mut controller = LocalController::start_with(&options).await.unwrap();
    let client = admin_client(&controller);
    let version = client.version().await.unwrap();
    let capability = "HA_CONTROLLER".to_owned();
    assert!(version.capabilities.contains(&capability), "{version:?}");

    let (id, token) = registered(&client, "member").await;
    let (key, identity) = redeemed(&token).await;
    let dir = tempfile::tempdir().unwrap();
    write_identity(dir.path(), &key, &identity);
    let _router = LocalRouter::start(dir.path(), RouterOptions::default()).unwrap();
    router_until(&client, &id, "in service", EdgeRouterEntity::is_in_service).await;

    let refused = client.create_edge_router(&router("member")).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NameTaken);
    // Sent, an empty change would be a 500 here.
    let nothing = EdgeRouterPatch::default();
    client.patch_edge_router(&id, &nothing).await.unwrap();

    let first = client.default_admin_id().await.unwrap();
    assert!(first.is_some());
    let (_, token) = registered(&client, "early").await;
    controller.restart().await.unwrap();
    redeemed_at_restarted(&controller, &token).await;
    assert_eq!(client.default_admin_id().await.unwrap(), first);
    controller.rebuild().await.unwrap();
    assert_ne!(client.default_admin_id().await.unwrap(), first);
}
