//! Why the operator's own identity is an administrator: what an identity may do by the permissions
//! of 2.x, and what is left to administrators. Run with a 2.x as `ZITI_BIN` this is the trial; 1.6
//! knows no permissions, and an identity that is made with them may do nothing.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod common;

use common::{TIMEOUT, admin_client, ca, router, url};
use testbed::ziti::LocalController;
use ziti::enroll::enroll_identity;
use ziti::events::EventsError;
use ziti::management::{
    Credential, ErrorKind, Filter, ManagementClient, ManagementError, NewIdentity, NewPolicy,
    Options, PolicyKind, Semantic,
};
use ziti::pki::Key;
use ziti::token::EnrollmentToken;
use ziti::{ExposeSecret, SecretString};

/// All that has to do with what the operator does (2.1.0).
const ALL: [&str; 7] = [
    "admin_readonly",
    "edge-router-policy",
    "enrollment",
    "identity",
    "ops",
    "router",
    "service-edge-router-policy",
];

/// What `docs/controllers.md` calls enough where a controller stands alone.
const ENOUGH_ALONE: [&str; 3] = ["router", "identity.read", "ops"];

/// An identity that has enrolled, and logs in with its certificate.
async fn identity(
    controller: &LocalController,
    name: &str,
    is_admin: bool,
    permissions: &[&str],
) -> ManagementClient {
    let admin = admin_client(controller);
    let new = NewIdentity {
        name: name.to_owned(),
        is_admin,
        permissions: permissions.iter().copied().map(str::to_owned).collect(),
        ..NewIdentity::default()
    };
    let id = admin.create_identity(&new).await.unwrap();
    let made = admin.identity(&id).await.unwrap().unwrap();
    let jwt = made.one_time_token.unwrap().jwt.unwrap();
    let token = EnrollmentToken::parse(jwt.expose_secret()).unwrap();
    let (key, ca) = (Key::generate().unwrap(), ca(controller));
    let enrolled = enroll_identity(&token, &key, Some(&ca), TIMEOUT).await;
    let credential = Credential::ClientCertificate {
        cert_pem: enrolled.unwrap().cert_pem,
        key_pem: SecretString::from(key.expose_pem()),
    };
    let endpoints = [url(controller)];
    ManagementClient::new(&endpoints, &ca, Some(credential), &Options::default()).unwrap()
}

/// What it is allowed, whatever else comes of it.
struct Allowed(Vec<&'static str>);

impl Allowed {
    fn note<T>(&mut self, act: &'static str, answer: Result<T, ManagementError>) -> Option<T> {
        let forbidden = answer
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::Forbidden);
        if !forbidden {
            self.0.push(act);
        }
        answer.ok()
    }
}

/// Tries everything that the operator does. `victim` is an administrator that it deletes.
async fn allowed(name: &str, client: &ManagementClient, victim: &str) -> Vec<&'static str> {
    let mut allowed = Allowed(Vec::new());
    allowed.note("tell networks apart", client.default_admin_id().await);
    allowed.note("list routers", client.edge_routers(&Filter::all()).await);
    let made = client.create_edge_router(&router(name)).await;
    if let Some(id) = allowed.note("make routers", made) {
        let row = client.edge_router(&id).await.unwrap().unwrap();
        assert!(row.enrollment_token().is_some(), "the token can be read");
        allowed.note("re-enroll routers", client.re_enroll(&id).await);
        allowed.note("delete routers", client.delete_edge_router(&id).await);
    }
    match client.events().await {
        Err(EventsError::Forbidden { .. }) => {}
        opened => {
            opened.unwrap();
            allowed.0.push("read events");
        }
    }
    let policy = NewPolicy {
        name: name.to_owned(),
        semantic: Semantic::AnyOf,
        subject_roles: vec!["#all".to_owned()],
        edge_router_roles: vec!["#all".to_owned()],
        tags: serde_json::Map::default(),
    };
    let kind = PolicyKind::ServiceEdgeRouter;
    let made = client.create_policy(kind, &policy).await;
    if let Some(id) = allowed.note("make policies", made) {
        allowed.note("delete policies", client.delete_policy(kind, &id).await);
    }
    let new = |suffix: &str| NewIdentity {
        name: format!("{name}-{suffix}"),
        ..NewIdentity::default()
    };
    let made = client.create_identity(&new("plain")).await;
    allowed.note("make identities", made);
    let with_permissions = NewIdentity {
        permissions: vec!["router".to_owned()],
        ..new("permitted")
    };
    let made = client.create_identity(&with_permissions).await;
    allowed.note("make identities with permissions", made);
    let administrator = NewIdentity {
        is_admin: true,
        ..new("administrator")
    };
    let made = client.create_identity(&administrator).await;
    allowed.note("make administrators", made);
    allowed.note(
        "delete administrators",
        client.delete_identity(victim).await,
    );
    allowed.note("ask who leads", client.cluster_members().await);
    let added = client.add_member("tls:127.0.0.1:1", true).await;
    allowed.note("add members", added);
    allowed.note("remove members", client.remove_member("nobody").await);
    let transferred = client.transfer_leadership(Some("nobody")).await;
    allowed.note("hand over", transferred);
    allowed.note("copy the database", client.snapshot(None).await);
    sorted(&[&allowed.0])
}

const ROUTERS: [&str; 4] = [
    "list routers",
    "make routers",
    "re-enroll routers",
    "delete routers",
];

const OTHERS: [&str; 5] = [
    "tell networks apart",
    "read events",
    "make policies",
    "delete policies",
    "make identities",
];

/// Without knowing who leads, nobody knows whose token is good; and who cannot make an identity
/// with rights makes no successor for itself.
const ADMINISTRATORS: [&str; 8] = [
    "make identities with permissions",
    "make administrators",
    "delete administrators",
    "ask who leads",
    "add members",
    "remove members",
    "hand over",
    "copy the database",
];

fn sorted(parts: &[&[&'static str]]) -> Vec<&'static str> {
    let mut all = parts.concat();
    all.sort_unstable();
    all
}

#[tokio::test]
async fn only_an_administrator_may_do_all_that_the_operator_does() {
    let controller = LocalController::start().await.unwrap();
    let victim = NewIdentity {
        name: "victim".to_owned(),
        is_admin: true,
        ..NewIdentity::default()
    };
    let victim = admin_client(&controller).create_identity(&victim).await;
    let victim = victim.unwrap();
    let mut found = Vec::new();
    for (name, permissions) in [("routers", &ENOUGH_ALONE[..]), ("all", &ALL)] {
        let client = identity(&controller, name, false, permissions).await;
        found.push(allowed(name, &client, &victim).await);
    }
    let version = admin_client(&controller).version().await.unwrap().version;
    if version.starts_with("v1.") {
        // It takes no notice of permissions.
        assert_eq!(found, [Vec::<&str>::new(), Vec::new()]);
    } else {
        let seen = ["tell networks apart", "read events"];
        assert_eq!(found[0], sorted(&[&ROUTERS, &seen]));
        assert_eq!(found[1], sorted(&[&ROUTERS, &OTHERS]));
    }

    let client = identity(&controller, "administrator", true, &[]).await;
    let everything = allowed("administrator", &client, &victim).await;
    assert_eq!(everything, sorted(&[&ROUTERS, &OTHERS, &ADMINISTRATORS]));
}
