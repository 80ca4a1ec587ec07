//! A token becomes an identity that the network accepts, once, and each way in which it does
//! not become one has its own name.

mod common;

use common::{
    TIMEOUT, admin_client, ca, enrollment, password, redeemed, redeemed_at_restarted, registered,
    router_until, sans, token_of, url, write_identity,
};
use serde_json::json;
use testbed::ziti::{LocalController, LocalRouter, RouterOptions};
use ziti::enroll::{EnrollError, enroll_identity, enroll_router};
use ziti::management::{Credential, EdgeRouterEntity, ManagementClient, Options};
use ziti::pki::{CertificateFacts, Key, Sans};
use ziti::token::{EnrollmentMethod, EnrollmentToken};
use ziti::trust::{CaBundle, TrustAnchor, TrustError};

#[tokio::test]
async fn a_redeemed_token_makes_a_router_that_gets_online_and_in_sync() {
    let controller = LocalController::start().await.unwrap();
    let client = admin_client(&controller);
    let (id, token) = registered(&client, "online").await;
    assert_eq!(*token.method(), EnrollmentMethod::Erott);
    assert_eq!(token.subject(), id);
    assert_eq!(token.controllers(), [controller.control_plane()]);

    let (key, identity) = redeemed(&token).await;
    assert_eq!(identity.id, id);
    let server = CertificateFacts::from_pem(&identity.server_cert_pem).unwrap();
    assert_eq!(server.dns, sans().dns);
    assert_eq!(server.ips, sans().ips);

    let dir = tempfile::tempdir().unwrap();
    write_identity(dir.path(), &key, &identity);
    let router = LocalRouter::start(dir.path(), RouterOptions::default()).unwrap();
    let entity = router_until(&client, &id, "in service", EdgeRouterEntity::is_in_service).await;
    assert!(entity.is_verified);
    assert_eq!(entity.fingerprint.as_ref(), Some(&identity.fingerprint));
    assert!(entity.version.is_some());
    assert!(
        entity.enrollment_jwt.is_none(),
        "a spent token is not shown"
    );
    router.stop().unwrap();
    router_until(&client, &id, "offline", |r| !r.is_online).await;
}

#[tokio::test]
async fn a_lost_volume_is_healed_under_the_same_id() {
    let controller = LocalController::start().await.unwrap();
    let client = admin_client(&controller);
    let (id, token) = registered(&client, "lost").await;
    let (_, first) = redeemed(&token).await;

    client.re_enroll(&id).await.unwrap();
    let entity = client.edge_router(&id).await.unwrap().unwrap();
    assert!(!entity.is_verified && entity.fingerprint.is_none());
    let second_token = token_of(&client, &id).await;
    assert_ne!(second_token.digest(), token.digest());
    let (key, second) = redeemed(&second_token).await;
    assert_eq!(second.id, id);
    assert_ne!(second.fingerprint, first.fingerprint);

    let dir = tempfile::tempdir().unwrap();
    write_identity(dir.path(), &key, &second);
    let _router = LocalRouter::start(dir.path(), RouterOptions::default()).unwrap();
    let entity = router_until(&client, &id, "in service", EdgeRouterEntity::is_in_service).await;
    assert_eq!(entity.fingerprint, Some(second.fingerprint));
}

#[tokio::test]
async fn each_refusal_has_its_own_name() {
    let controller = LocalController::start().await.unwrap();
    let client = admin_client(&controller);
    let (id, token) = registered(&client, "refused").await;
    let (key, sans, ca) = (Key::generate().unwrap(), sans(), ca(&controller));
    let enrollment = enrollment(&key, &sans, Some(&ca));

    // What fails before the token is sent does not spend it.
    let error = enroll_identity(&token, &key, Some(&ca), TIMEOUT).await;
    assert!(
        matches!(error, Err(EnrollError::WrongMethod { .. })),
        "{error:?}"
    );
    let bad = Sans {
        dns: vec!["münchen".to_owned()],
        ..Sans::default()
    };
    let error = enroll_router(&token, &common::enrollment(&key, &bad, None)).await;
    assert!(
        matches!(error, Err(EnrollError::Prepare { .. })),
        "{error:?}"
    );

    // A signature that somebody changed.
    let (message, signature) = token.expose().rsplit_once('.').unwrap();
    let first = if signature.starts_with('A') { 'B' } else { 'A' };
    let forged = format!("{message}.{first}{}", &signature[1..]);
    let forged = EnrollmentToken::parse(&forged).unwrap();
    let error = enroll_router(&forged, &enrollment).await;
    assert!(
        matches!(error, Err(EnrollError::SignatureInvalid { .. })),
        "{error:?}"
    );

    // A newer token takes the place of the first.
    client.re_enroll(&id).await.unwrap();
    let error = enroll_router(&token, &enrollment).await;
    assert!(matches!(error, Err(EnrollError::TokenSpent)), "{error:?}");

    // The same token twice.
    let token = token_of(&client, &id).await;
    enroll_router(&token, &enrollment).await.unwrap();
    let error = enroll_router(&token, &enrollment).await.unwrap_err();
    assert!(matches!(error, EnrollError::TokenSpent), "{error:?}");
    let shown = format!("{error:?} {error}");
    assert!(!shown.contains(token.expose()));
}

#[tokio::test]
async fn a_token_of_another_network_is_refused_before_it_is_spent() {
    let controller = LocalController::start().await.unwrap();
    let other = LocalController::start().await.unwrap();
    let other_client = admin_client(&other);
    let (id, token) = registered(&other_client, "elsewhere").await;
    let (key, sans, ca) = (Key::generate().unwrap(), sans(), ca(&controller));
    let error = enroll_router(&token, &enrollment(&key, &sans, Some(&ca))).await;
    assert!(
        matches!(error, Err(EnrollError::IssuerNotTrusted { .. })),
        "{error:?}"
    );
    let entity = other_client.edge_router(&id).await.unwrap().unwrap();
    assert!(!entity.is_verified, "the token is still good");
}

#[tokio::test]
async fn a_controller_that_is_away_does_not_cost_the_token() {
    let mut controller = LocalController::start().await.unwrap();
    let client = admin_client(&controller);
    let (_, token) = registered(&client, "patient").await;
    controller.stop().unwrap();
    let (key, sans) = (Key::generate().unwrap(), sans());
    let error = enroll_router(&token, &enrollment(&key, &sans, None)).await;
    let error = error.unwrap_err();
    assert!(
        matches!(error, EnrollError::IssuerUnreachable { .. }),
        "{error:?}"
    );
    assert!(error.is_retryable());
    controller.restart().await.unwrap();
    redeemed_at_restarted(&controller, &token).await;
}

#[tokio::test]
async fn a_token_is_an_anchor_of_trust_that_finds_the_authorities() {
    let controller = LocalController::start().await.unwrap();
    let client = admin_client(&controller);
    let (_, token) = registered(&client, "anchor").await;
    let found = TrustAnchor::Token(token.clone()).resolve(TIMEOUT).await;
    assert_eq!(found.unwrap(), ca(&controller));

    // The network's own JWT names no subject and cannot be redeemed, but serves as well.
    let jwts = client.get("/network-jwts", &[]).await.unwrap();
    let network = EnrollmentToken::parse(jwts[0]["token"].as_str().unwrap()).unwrap();
    assert_eq!(*network.method(), EnrollmentMethod::Network);
    let found = TrustAnchor::Token(network).resolve(TIMEOUT).await;
    assert_eq!(found.unwrap(), ca(&controller));

    let stranger = LocalController::start().await.unwrap();
    let expected = CaBundle::from_pem(stranger.ca_pem()).unwrap();
    let error = ziti::trust::verified_ca_bundle(&token, Some(&expected), TIMEOUT).await;
    assert!(
        matches!(error, Err(TrustError::IssuerNotTrusted { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_one_time_token_of_an_administrator_becomes_a_client_certificate() {
    let controller = LocalController::start().await.unwrap();
    let client = admin_client(&controller);
    let identity = json!({"name": "operator", "type": "Default", "isAdmin": true,
        "enrollment": {"ott": true}});
    let id = client.post("/identities", &identity).await.unwrap();
    let id = id["id"].as_str().unwrap();
    let path = format!("/identities/{id}");
    let entity = client.get(&path, &[]).await.unwrap();
    let token = entity["enrollment"]["ott"]["jwt"].as_str().unwrap();
    let token = EnrollmentToken::parse(token).unwrap();

    let key = Key::generate().unwrap();
    let certified = enroll_identity(&token, &key, Some(&ca(&controller)), TIMEOUT)
        .await
        .unwrap();
    assert_eq!(certified.id, id);
    let again = enroll_identity(&token, &key, None, TIMEOUT).await;
    assert!(matches!(again, Err(EnrollError::TokenSpent)), "{again:?}");

    let credential = Credential::ClientCertificate {
        cert_pem: certified.cert_pem,
        key_pem: key.expose_pem().into(),
    };
    let bundle = CaBundle::from_pem(&certified.ca_pem).unwrap();
    let options = Options::default();
    let certified =
        ManagementClient::new(&[url(&controller)], &bundle, Some(credential), &options).unwrap();
    certified
        .create_edge_router(&common::router("by-certificate"))
        .await
        .unwrap();
    certified.events().await.unwrap();

    // The password of the administrator is not that of this identity.
    let wrong = common::client(&controller, Some(password("operator", "whatever")));
    assert!(wrong.default_admin_id().await.is_err());
}
