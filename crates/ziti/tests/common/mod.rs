//! What the tests against a real controller share.

#![allow(dead_code, reason = "each test file uses its part of it")]
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::path::Path;
use std::time::{Duration, Instant};

use testbed::ziti::config::Storage;
use testbed::ziti::pki::ControllerPki;
use testbed::ziti::{ControllerOptions, LocalController, LocalRouter};
use ziti::Timestamp;
use ziti::authority::{Authority, Validity};
use ziti::enroll::{RouterEnrollment, RouterIdentity, enroll_router};
use ziti::management::{Credential, EdgeRouterEntity, ManagementClient, NewEdgeRouter, Options};
use ziti::pki::{Key, Sans};
use ziti::token::EnrollmentToken;
use ziti::trust::CaBundle;
use ziti::{SecretString, Url};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// For conditions that take a second on a quiet machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The trust domain of what is made here.
pub(crate) const TRUST_DOMAIN: &str = "demo.ziti";

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

/// Valid now, for what a controller shall run on.
pub(crate) fn now() -> Validity {
    let moment = |seconds| Timestamp::from_second(Timestamp::now().as_second() + seconds).unwrap();
    Validity {
        not_before: moment(-300),
        not_after: moment(30 * 86_400),
    }
}

/// What a controller runs on, as the table in `ziti::authority` says it.
pub(crate) fn controller_pki(
    root: &Authority,
    signer: &Authority,
    member: &str,
    by_root: bool,
) -> ControllerPki {
    let issuer = if by_root { root } else { signer };
    let (cert_pem, key) = issuer
        .controller_certificate(member, &sans(), TRUST_DOMAIN, now())
        .unwrap();
    let between = if by_root { "" } else { signer.cert_pem() };
    ControllerPki {
        ca_pem: root.cert_pem().to_owned(),
        signer_pem: format!("{}{}", signer.cert_pem(), root.cert_pem()),
        signer_key_pem: signer.key().expose_pem().to_owned(),
        chain_pem: format!("{cert_pem}{between}"),
        cert_pem,
        key_pem: key.expose_pem().to_owned(),
    }
}

/// A cluster of controllers `c-0`, `c-1`, …; the first was set up, and took the others in.
pub(crate) async fn cluster_of(size: usize) -> Vec<LocalController> {
    let root = Authority::root(TRUST_DOMAIN, now()).unwrap();
    let options = |index: usize| {
        let member = format!("c-{index}");
        let signer = root.signer(&member, None, now()).unwrap();
        ControllerOptions {
            storage: Some(Storage::Cluster),
            pki: Some(controller_pki(&root, &signer, &member, true)),
            ..ControllerOptions::default()
        }
    };
    let first = LocalController::start_with(&options(0)).await.unwrap();
    let client = admin_client(&first);
    let mut controllers = vec![first];
    for index in 1..size {
        let joiner = LocalController::start_joiner(&options(index)).unwrap();
        let address = joiner.control_plane();
        // It listens a moment after its start.
        until("the joiner is taken in", async || {
            client.add_member(&address, true).await.ok()
        })
        .await;
        controllers.push(joiner);
    }
    controllers
}

/// Tries until there is something.
pub(crate) async fn until<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = attempt().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not after {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
