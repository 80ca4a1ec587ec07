//! What the tests against a real controller share.

#![allow(dead_code, reason = "each test file uses its part of it")]
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::path::Path;
use std::time::{Duration, Instant};

use testbed::ziti::{LocalController, LocalRouter};
use ziti::enroll::{RouterEnrollment, RouterIdentity, enroll_router};
use ziti::management::{Credential, EdgeRouterEntity, ManagementClient, NewEdgeRouter, Options};
use ziti::pki::{Key, Sans};
use ziti::token::EnrollmentToken;
use ziti::trust::CaBundle;
use ziti::{SecretString, Url};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// For conditions that take a second on a quiet machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) fn ca(controller: &LocalController) -> CaBundle {
    CaBundle::from_pem(controller.ca_pem()).unwrap()
}

pub(crate) fn url(controller: &LocalController) -> Url {
    controller.url().parse().unwrap()
}

pub(crate) fn password(username: &str, password: &str) -> Credential {
    Credential::Password {
        username: username.to_owned(),
        password: SecretString::from(password),
    }
}

pub(crate) fn admin() -> Credential {
    password(LocalController::USERNAME, LocalController::PASSWORD)
}

pub(crate) fn client(
    controller: &LocalController,
    credential: Option<Credential>,
) -> ManagementClient {
    let endpoints = [url(controller)];
    ManagementClient::new(&endpoints, &ca(controller), credential, &Options::default()).unwrap()
}

pub(crate) fn admin_client(controller: &LocalController) -> ManagementClient {
    client(controller, Some(admin()))
}

pub(crate) fn router(name: &str) -> NewEdgeRouter {
    NewEdgeRouter {
        name: name.to_owned(),
        ..NewEdgeRouter::default()
    }
}

/// Registers a router and returns its id and its token.
pub(crate) async fn registered(client: &ManagementClient, name: &str) -> (String, EnrollmentToken) {
    let id = client.create_edge_router(&router(name)).await.unwrap();
    let token = token_of(client, &id).await;
    (id, token)
}

pub(crate) async fn token_of(client: &ManagementClient, id: &str) -> EnrollmentToken {
    let entity = client.edge_router(id).await.unwrap().unwrap();
    entity.enrollment_token().unwrap().unwrap()
}

/// The names under which [`LocalRouter`] listens.
pub(crate) fn sans() -> Sans {
    Sans {
        dns: vec!["localhost".to_owned()],
        ips: vec![LocalRouter::ADDRESS.parse().unwrap()],
        uris: Vec::new(),
    }
}

pub(crate) fn enrollment<'a>(
    key: &'a Key,
    sans: &'a Sans,
    ca: Option<&'a CaBundle>,
) -> RouterEnrollment<'a> {
    RouterEnrollment {
        key,
        sans,
        ca,
        timeout: TIMEOUT,
    }
}

/// Redeems `token` with a new key.
pub(crate) async fn redeemed(token: &EnrollmentToken) -> (Key, RouterIdentity) {
    let key = Key::generate().unwrap();
    let identity = enroll_router(token, &enrollment(&key, &sans(), None))
        .await
        .unwrap();
    (key, identity)
}

/// Redeems `token` at a controller that has just come back: at once, or, where that is a cluster, as
/// soon as it has a leader. Until then each refusal must say that the token is still good.
pub(crate) async fn redeemed_at_restarted(
    controller: &LocalController,
    token: &EnrollmentToken,
) -> (Key, RouterIdentity) {
    let (key, sans) = (Key::generate().unwrap(), sans());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let error = match enroll_router(token, &enrollment(&key, &sans, None)).await {
            Ok(identity) => return (key, identity),
            Err(error) => error,
        };
        let leaderless = error.is_retryable() && error.to_string().contains("no leader");
        assert!(controller.is_cluster() && leaderless, "{error:?}");
        assert!(Instant::now() < deadline, "{error:?} after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Writes an identity as the router reads it.
pub(crate) fn write_identity(dir: &Path, key: &Key, identity: &RouterIdentity) {
    let endpoints = identity.controllers.join("\n- ");
    for (name, content) in [
        ("ziti-router.key", key.expose_pem()),
        ("ziti-router.cert", &identity.cert_pem),
        ("ziti-router.server.chain.cert", &identity.server_cert_pem),
        ("ziti-router.cas", &identity.ca_pem),
        ("endpoints", &format!("Endpoints:\n- {endpoints}\n")),
    ] {
        std::fs::write(dir.join(name), content).unwrap();
    }
}

/// Asks for the router until `condition` holds.
pub(crate) async fn router_until(
    client: &ManagementClient,
    id: &str,
    what: &str,
    condition: impl Fn(&EdgeRouterEntity) -> bool,
) -> EdgeRouterEntity {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let entity = client.edge_router(id).await.unwrap().unwrap();
        if condition(&entity) {
            return entity;
        }
        assert!(
            Instant::now() < deadline,
            "router {id} is not {what} after {PATIENCE:?}: {entity:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
