//! The same client against a controller in cluster mode, the only mode of Ziti 2.x: another
//! database, and other answers in some corners.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod common;

use common::{
    admin, admin_client, ca, cluster_of, redeemed, redeemed_at_restarted, registered, router,
    router_until, until, url, write_identity,
};
use testbed::ziti::config::Storage;
use testbed::ziti::{ControllerOptions, LocalController, LocalRouter, RouterOptions};
use ziti::management::{
    EdgeRouterEntity, EdgeRouterPatch, ErrorKind, ManagementClient, Member, Options,
};

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

/// The leader, once there is one and `size` members vote.
async fn leader(client: &ManagementClient, size: usize) -> Member {
    until("the cluster has a leader", async || {
        let members = client.cluster_members().await.ok()?;
        let known = members.iter().filter(|member| member.voter).count() == size;
        members.into_iter().find(|member| member.leader && known)
    })
    .await
}

#[tokio::test]
async fn members_join_lead_and_leave() {
    let controllers = cluster_of(3).await;
    let endpoints: Vec<_> = controllers.iter().map(url).collect();
    let options = Options::default();
    let client =
        ManagementClient::new(&endpoints, &ca(&controllers[0]), Some(admin()), &options).unwrap();
    let first = leader(&client, 3).await;
    assert_eq!((first.id.as_str(), first.voter), ("c-0", true));
    assert_eq!(first.address, controllers[0].control_plane());
    assert!(first.version.starts_with('v') && first.connected && !first.read_only);
    // Taking in one that is in is no error, nor is taking out one that is not.
    let address = controllers[1].control_plane();
    client.add_member(&address, true).await.unwrap();
    client.remove_member("nobody").await.unwrap();
    let nobody = client.add_member("tls:127.0.0.1:1", true).await;
    assert_eq!(nobody.unwrap_err().kind(), ErrorKind::Invalid);

    for (index, controller) in controllers.iter().enumerate() {
        let url = controller.url();
        // The API of one that was taken in comes a moment later.
        let at = until("its API answers", async || client.member_at(&url).await).await;
        assert_eq!(at, format!("c-{index}"));
    }
    assert_eq!(client.member_at("https://127.0.0.1:1").await, None);

    client.transfer_leadership(Some("c-1")).await.unwrap();
    let second = until("the other leads", async || {
        Some(leader(&client, 3).await).filter(|leader| leader.id == "c-1")
    })
    .await;
    assert_eq!(second.address, address);
    // Where the calls go is the caller's to say; what one is asked for by itself is its own.
    let endpoint = controllers[1].url();
    client.turn_to(&endpoint).await;
    assert_eq!(client.endpoint().await, endpoint);
    let third = client.only(&controllers[2].url()).unwrap();
    let seen = until("its administrator is there", async || {
        third.cluster_members().await.ok()
    })
    .await;
    let own = seen.iter().find(|member| member.id == "c-2").unwrap();
    assert!(own.connected);
    assert!(client.only("https://127.0.0.1:1").is_err());
    let refused = client.transfer_leadership(Some("nobody")).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);

    client.remove_member("c-2").await.unwrap();
    leader(&client, 2).await;
    let (id, _) = registered(&client, "in-two").await;
    assert!(client.edge_router(&id).await.unwrap().is_some());
}

/// So goes one that leads, where nobody could take over.
#[tokio::test]
async fn a_leader_that_is_removed_leaves_the_other_to_lead() {
    let controllers = cluster_of(2).await;
    let client = admin_client(&controllers[0]);
    assert_eq!(leader(&client, 2).await.id, "c-0");
    client.remove_member("c-0").await.unwrap();
    let other = ManagementClient::new(
        &[url(&controllers[1])],
        &ca(&controllers[0]),
        Some(admin()),
        &Options::default(),
    )
    .unwrap();
    until("the other leads", async || {
        Some(leader(&other, 1).await).filter(|leader| leader.id == "c-1")
    })
    .await;
    let (id, _) = registered(&other, "after").await;
    assert!(other.edge_router(&id).await.unwrap().is_some());
}

#[tokio::test]
async fn a_snapshot_is_written_beside_the_controller_and_not_too_often() {
    let controllers = cluster_of(1).await;
    let client = admin_client(&controllers[0]);
    let dir = tempfile::tempdir().unwrap();
    let wanted = dir
        .path()
        .join("backup-__RAFT_INDEX__.db")
        .display()
        .to_string();
    let path = client.snapshot(Some(&wanted)).await.unwrap();
    assert!(!path.contains("__") && std::fs::metadata(&path).unwrap().len() > 0);
    let again = client.snapshot(None).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::TooManyRequests);
}

/// Of 1.6 alone: a later one has no other mode than the cluster.
#[tokio::test]
async fn one_that_stands_alone_says_so() {
    let controller = LocalController::start().await.unwrap();
    let members = admin_client(&controller).cluster_members().await;
    if controller.is_cluster() {
        assert_eq!(members.unwrap().len(), 1);
    } else {
        assert_eq!(members.unwrap_err().kind(), ErrorKind::NotACluster);
    }
}
