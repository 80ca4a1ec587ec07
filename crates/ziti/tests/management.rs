//! The management API client against a real controller: what it reads is what is there, a write
//! happens once, and each failure is told apart.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod common;

use std::time::Duration;

use common::{admin, admin_client, ca, client, password, registered, router, url};
use serde_json::{Map, Value, json};
use testbed::ziti::LocalController;
use ziti::Url;
use ziti::management::{
    Deletion, EdgeRouterPatch, ErrorKind, Filter, ManagementClient, ManagementError, NewEdgeRouter,
    Options,
};
use ziti::trust::CaBundle;

fn kind<T: std::fmt::Debug>(result: Result<T, ManagementError>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn tags(owner: &str) -> Map<String, Value> {
    Map::from_iter([("owner".to_owned(), json!(owner))])
}

#[tokio::test]
async fn an_edge_router_is_created_found_changed_and_deleted() {
    let controller = LocalController::start().await.unwrap();
    let client = admin_client(&controller);
    let wanted = NewEdgeRouter {
        name: "quoted \" name".to_owned(),
        role_attributes: vec!["hub".to_owned()],
        is_tunneler_enabled: true,
        cost: 7,
        no_traversal: true,
        tags: tags("op"),
        app_data: tags("app"),
    };
    let id = client.create_edge_router(&wanted).await.unwrap();
    let other = client.create_edge_router(&router("other")).await.unwrap();

    let found = client.edge_router_named(&wanted.name).await.unwrap();
    let found = found.unwrap();
    assert_eq!(found.id, id);
    assert_eq!(found.role_attributes, wanted.role_attributes);
    assert_eq!(
        (found.is_tunneler_enabled, found.no_traversal),
        (true, true)
    );
    assert_eq!((found.cost, found.disabled), (7, false));
    assert_eq!((found.tags, found.app_data), (tags("op"), tags("app")));
    assert!(found.enrollment_jwt.is_some() && found.fingerprint.is_none());
    assert!(found.created_at.is_some());
    assert!(client.edge_router_named("Other").await.unwrap().is_none());

    // One list gives token, expiry and the clock to judge it by.
    let mine = Filter::tag("owner", "op").unwrap();
    let listed = client.edge_routers(&mine).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    let expires_at = listed.items[0].enrollment_expires_at.unwrap();
    let left = expires_at.duration_since(listed.server_time.unwrap());
    assert!((1700..=1801).contains(&left.as_secs()), "{left:?}");
    let hub = Filter::any_of("roleAttributes", "hub").unwrap();
    let offline = Filter::flag("online", false).unwrap();
    let both = client.edge_routers(&hub.and(&offline)).await.unwrap();
    assert_eq!(both.items.len(), 1);
    let listed = client.edge_routers(&Filter::all()).await.unwrap();
    assert_eq!(listed.items.len(), 2);

    let change = EdgeRouterPatch {
        role_attributes: Some(Vec::new()),
        cost: Some(0),
        ..EdgeRouterPatch::default()
    };
    client.patch_edge_router(&id, &change).await.unwrap();
    let none = EdgeRouterPatch::default();
    client.patch_edge_router(&id, &none).await.unwrap();
    let changed = client.edge_router(&id).await.unwrap().unwrap();
    assert!(changed.role_attributes.is_empty() && changed.cost == 0);
    assert!(changed.is_tunneler_enabled && changed.tags == tags("op"));

    assert_eq!(
        client.delete_edge_router(&id).await.unwrap(),
        Deletion::Deleted
    );
    assert_eq!(
        client.delete_edge_router(&id).await.unwrap(),
        Deletion::AlreadyGone
    );
    assert!(client.edge_router(&id).await.unwrap().is_none());
    assert!(client.edge_router(&other).await.unwrap().is_some());
    assert_eq!(kind(client.re_enroll(&id).await), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_list_is_complete_beyond_the_default_page() {
    let controller = LocalController::start().await.unwrap();
    let client = admin_client(&controller);
    for index in 0..12 {
        registered(&client, &format!("many-{index}")).await;
    }
    let listed = client.edge_routers(&Filter::all()).await.unwrap();
    assert_eq!(listed.items.len(), 12);
}

#[tokio::test]
async fn each_refusal_has_its_own_kind() {
    let controller = LocalController::start().await.unwrap();
    let client = admin_client(&controller);
    let (_, _) = registered(&client, "taken").await;

    let error = client
        .create_edge_router(&router("taken"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NameTaken);
    assert!(
        error.to_string().starts_with("POST /edge-routers:"),
        "{error}"
    );
    assert!(!error.may_have_committed());

    let error = client
        .create_edge_router(&router("a\\b"))
        .await
        .unwrap_err();
    assert!(matches!(&error, ManagementError::Invalid { field, .. } if field == "name"));

    let invalid = client.post("/edge-routers", &json!({"name": ""})).await;
    assert_eq!(kind(invalid), ErrorKind::Invalid);
    let bad = client.edge_router("../identities").await;
    assert_eq!(kind(bad), ErrorKind::Invalid);

    // A fabric router of the same name: the index is shared.
    let transit = json!({"name": "transit"});
    client.post("/transit-routers", &transit).await.unwrap();
    let shared = client.create_edge_router(&router("transit")).await;
    assert_eq!(kind(shared), ErrorKind::NameTaken);

    let in_use = client.delete("/auth-policies/default").await;
    assert_eq!(kind(in_use), ErrorKind::Conflict);
}

#[tokio::test]
async fn bad_credentials_missing_permission_and_no_credential_are_told_apart() {
    let controller = LocalController::start().await.unwrap();
    let admin = admin_client(&controller);

    let wrong = client(&controller, Some(password("admin", "not-the-password")));
    let error = wrong.default_admin_id().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadCredentials);
    assert!(
        error.to_string().starts_with("POST /authenticate:"),
        "{error}"
    );
    let shown = format!("{error:?}{error}");
    assert!(!shown.contains("not-the-password"), "{shown}");

    let none = client(&controller, None);
    assert_eq!(
        kind(none.default_admin_id().await),
        ErrorKind::BadCredentials
    );
    assert!(none.version().await.unwrap().version.starts_with('v'));

    // An identity that is nobody's administrator.
    let plain = json!({"name": "plain", "type": "Default", "isAdmin": false});
    let plain = admin.post("/identities", &plain).await.unwrap();
    let updb = json!({"method": "updb", "identityId": plain["id"],
        "username": "plain", "password": "plain-password"});
    admin.post("/authenticators", &updb).await.unwrap();
    let plain = client(&controller, Some(password("plain", "plain-password")));
    let created = plain.create_edge_router(&router("forbidden")).await;
    assert_eq!(kind(created), ErrorKind::Forbidden);
    assert_eq!(kind(plain.edge_router("x").await), ErrorKind::Forbidden);
    assert_eq!(kind(plain.cluster_members().await), ErrorKind::Forbidden);
    assert_eq!(kind(plain.snapshot(None).await), ErrorKind::Forbidden);
    let found = admin.edge_router_named("forbidden").await.unwrap();
    assert!(found.is_none());
}

#[tokio::test]
async fn a_session_that_is_over_is_renewed_within_the_call() {
    let controller = LocalController::start().await.unwrap();
    let client = admin_client(&controller);
    registered(&client, "before").await;
    let sessions = client.get("/api-sessions", &[]).await.unwrap();
    let sessions = sessions.as_array().unwrap().clone();
    assert!(!sessions.is_empty());
    let killer = admin_client(&controller);
    for session in sessions {
        let id = session["id"].as_str().unwrap();
        killer.delete(&format!("/api-sessions/{id}")).await.unwrap();
    }
    // A write, to see that it goes through, and once.
    registered(&client, "after").await;
    let listed = client.edge_routers(&Filter::all()).await.unwrap();
    assert_eq!(listed.items.len(), 2);
}

#[tokio::test]
async fn an_untrusted_server_gets_no_password() {
    let controller = LocalController::start().await.unwrap();
    let other = LocalController::start().await.unwrap();
    let options = Options::default();
    let wrong = ManagementClient::new(&[url(&controller)], &ca(&other), Some(admin()), &options);
    let wrong = wrong.unwrap();
    assert_eq!(kind(wrong.version().await), ErrorKind::NotTrusted);
    assert_eq!(kind(wrong.default_admin_id().await), ErrorKind::NotTrusted);
}

#[tokio::test]
async fn the_default_administrator_tells_a_rebuilt_network_from_a_restarted_one() {
    let mut controller = LocalController::start().await.unwrap();
    let client = admin_client(&controller);
    let first = client.default_admin_id().await.unwrap();
    assert!(first.is_some());
    let (id, _) = registered(&client, "survivor").await;

    controller.restart().await.unwrap();
    assert_eq!(client.default_admin_id().await.unwrap(), first);
    assert!(client.edge_router(&id).await.unwrap().is_some());

    controller.rebuild().await.unwrap();
    let second = client.default_admin_id().await.unwrap();
    assert!(second.is_some() && second != first);
    // This is why the identity must be looked at before a 404 is believed.
    assert!(client.edge_router(&id).await.unwrap().is_none());
}

#[tokio::test]
async fn a_dead_endpoint_is_passed_over_and_an_outage_is_named() {
    let mut controller = LocalController::start().await.unwrap();
    // Nobody listens on port 1.
    let dead: Url = "https://127.0.0.1:1".parse().unwrap();
    let endpoints = [dead, url(&controller)];
    let bundle = CaBundle::from_pem(controller.ca_pem()).unwrap();
    let options = Options {
        timeout: Duration::from_secs(5),
    };
    let client = ManagementClient::new(&endpoints, &bundle, Some(admin()), &options).unwrap();
    registered(&client, "second-endpoint").await;

    controller.stop().unwrap();
    let error = client.edge_routers(&Filter::all()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(!error.may_have_committed());

    // Keep-alive connections of the dead process do not trouble the next one.
    controller.restart().await.unwrap();
    let listed = client.edge_routers(&Filter::all()).await.unwrap();
    assert_eq!(listed.items.len(), 1);
}
