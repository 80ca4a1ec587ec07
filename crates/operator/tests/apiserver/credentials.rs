//! The three ways in which the operator logs in.

use api::ZitiNetwork;
use api::names;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use testbed::kubernetes;
use testbed::ziti::LocalController;
use ziti::enroll::enroll_identity;
use ziti::management::ManagementClient;
use ziti::pki::{CertificateFacts, Key};
use ziti::token::EnrollmentToken;

use crate::edge_router::registered;
use crate::operator::Operator;
use crate::world::{PATIENCE, World};
use crate::ziti_network::{self as network, NETWORK};

/// Has a one-time token made for an administrator.
pub(crate) async fn admin_token(ziti: &ManagementClient, name: &str) -> String {
    let identity = json!({"name": name, "type": "Default", "isAdmin": true,
        "enrollment": {"ott": true}});
    let created = ziti.post("/identities", &identity).await.unwrap();
    let path = format!("/identities/{}", created["id"].as_str().unwrap());
    let entity = ziti.get(&path, &[]).await.unwrap();
    let token = entity["enrollment"]["ott"]["jwt"].as_str().unwrap();
    token.to_owned()
}

/// The usual spec with another credential.
async fn with_credential(world: &World, controller: &LocalController, credential: Value) -> Value {
    let mut spec = network::prepare(world, controller).await;
    spec["credential"] = credential;
    spec
}

/// Has an administrator of this name made, puts its certificate into a Secret, and returns the
/// credential that names it.
pub(crate) async fn client_certificate(
    world: &World,
    controller: &LocalController,
    name: &str,
) -> Value {
    let token = admin_token(&network::admin(controller), name).await;
    let token = EnrollmentToken::parse(&token).unwrap();
    let key = Key::generate().unwrap();
    let identity = enroll_identity(&token, &key, None, PATIENCE).await.unwrap();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "operator-tls"},
        "stringData": {"tls.crt": identity.cert_pem, "tls.key": key.expose_pem()}});
    kubernetes::apply(&world.client, secret, &world.namespace)
        .await
        .unwrap();
    json!({"clientCertificate": {"name": "operator-tls"}})
}

#[tokio::test]
async fn with_a_client_certificate() {
    let controller = network::shared_controller().await;
    let world = World::new("certificate").await;
    let credential = client_certificate(&world, &controller, "certificate-operator").await;
    let secret: Secret = world.get("operator-tls").await;
    let pem = String::from_utf8(secret.data.unwrap()["tls.crt"].0.clone()).unwrap();
    let not_after = CertificateFacts::from_pem(&pem).unwrap().not_after;
    network::create(
        &world,
        with_credential(&world, &controller, credential).await,
    )
    .await;
    let _operator = Operator::start(&world);
    registered(&world, "certificate-a", json!({})).await;
    let status = network::until_ready(&world).await.status.unwrap();
    let expiry = status.credential_expiry.unwrap().0;
    assert_eq!(expiry.as_second(), not_after.as_second());
}

#[tokio::test]
async fn with_a_one_time_token_whose_certificate_is_kept_and_used_again() {
    let controller = network::shared_controller().await;
    let world = World::new("one-time").await;
    let ziti = network::admin(&controller);
    let token = admin_token(&ziti, "one-time-operator").await;
    world.secret("admin-token", json!({"jwt": token})).await;
    let credential = json!({"enrollmentToken": {"name": "admin-token", "key": "jwt"}});
    let created: ZitiNetwork = network::create(
        &world,
        with_credential(&world, &controller, credential).await,
    )
    .await;
    let first = Operator::start(&world);
    registered(&world, "one-time-a", json!({})).await;

    let kept: Secret = world.get(&names::admin_identity_secret(NETWORK)).await;
    let owner = &kept.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(Some(&owner.uid), created.metadata.uid.as_ref());
    for key in ["tls.key", "tls.crt"] {
        assert!(!kept.data.as_ref().unwrap()[key].0.is_empty(), "{key}");
    }

    // The token is spent: another life of the operator has the certificate alone.
    first.kill();
    let _second = Operator::start(&world);
    registered(&world, "one-time-b", json!({})).await;
    let again: Secret = world.get(&names::admin_identity_secret(NETWORK)).await;
    assert_eq!(
        again.metadata.resource_version,
        kept.metadata.resource_version
    );
    let identities = ziti
        .get("/identities", &[("filter", r#"name contains "one-time""#)])
        .await
        .unwrap();
    assert_eq!(identities.as_array().unwrap().len(), 1, "{identities}");
}
