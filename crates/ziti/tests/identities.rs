//! Identities and policies on a real controller: what is made is found again, changed by its parts
//! and gone when it was deleted; and a certificate is replaced without a gap.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod common;

use common::{TIMEOUT, admin_client, ca, url};
use serde_json::{Map, Value, json};
use testbed::ziti::LocalController;
use ziti::enroll::enroll_identity;
use ziti::management::{
    Credential, Deletion, ErrorKind, Filter, Identity, ManagementClient, NewIdentity, NewPolicy,
    Options, PolicyKind, PolicyPatch, Semantic,
};
use ziti::pki::{CertificateFacts, Key};
use ziti::token::{EnrollmentMethod, EnrollmentToken};
use ziti::{ExposeSecret, SecretString, Timestamp};

fn tags(owner: &str) -> Map<String, Value> {
    Map::from_iter([("owner".to_owned(), json!(owner))])
}

/// Redeems the identity's token, and logs in with what it brought.
async fn enrolled(controller: &LocalController, identity: &Identity) -> (ManagementClient, String) {
    let jwt = identity.one_time_token.as_ref().unwrap().jwt.as_ref();
    let token = EnrollmentToken::parse(jwt.unwrap().expose_secret()).unwrap();
    assert_eq!(*token.method(), EnrollmentMethod::Ott);
    let key = Key::generate().unwrap();
    let ca = ca(controller);
    let certificate = enroll_identity(&token, &key, Some(&ca), TIMEOUT).await;
    let cert_pem = certificate.unwrap().cert_pem;
    let fingerprint = CertificateFacts::from_pem(&cert_pem).unwrap().fingerprint;
    let credential = Credential::ClientCertificate {
        cert_pem,
        key_pem: SecretString::from(key.expose_pem()),
    };
    let options = Options::default();
    let client =
        ManagementClient::new(&[url(controller)], &ca, Some(credential), &options).unwrap();
    (client, fingerprint)
}

#[tokio::test]
async fn an_identity_of_the_operators_own_is_made_used_and_given_another_certificate() {
    let controller = LocalController::start().await.unwrap();
    let admin = admin_client(&controller);
    let wanted = NewIdentity {
        name: "operator".to_owned(),
        is_admin: true,
        tags: tags("op"),
        ..NewIdentity::default()
    };
    let id = admin.create_identity(&wanted).await.unwrap();
    let taken = admin.create_identity(&wanted).await.unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::NameTaken);
    let identity = admin.identity_named("operator").await.unwrap().unwrap();
    assert_eq!(
        (identity.id.as_str(), identity.is_admin),
        (id.as_str(), true)
    );
    let mine = Filter::tag("owner", "op").unwrap();
    let found = admin.identities(&mine).await.unwrap().items;
    assert_eq!((found.len(), &found[0].tags), (1, &wanted.tags));
    assert!(admin.identity_named("nobody").await.unwrap().is_none());
    // While a token waits there is no second one.
    let later = Timestamp::from_second(Timestamp::now().as_second() + 3600).unwrap();
    let pending = admin.new_enrollment(&id, later).await.unwrap_err();
    assert_eq!(pending.kind(), ErrorKind::Conflict);

    let (first, first_print) = enrolled(&controller, &identity).await;
    assert!(first.default_admin_id().await.unwrap().is_some());
    let identity = admin.identity(&id).await.unwrap().unwrap();
    assert!(identity.one_time_token.is_none(), "a spent token is gone");

    // Another certificate, while the first one is in use.
    admin.new_enrollment(&id, later).await.unwrap();
    let identity = admin.identity(&id).await.unwrap().unwrap();
    let expires_at = identity.one_time_token.as_ref().unwrap().expires_at;
    assert_eq!(expires_at.unwrap().as_second(), later.as_second());
    let (second, second_print) = enrolled(&controller, &identity).await;
    assert!(second.default_admin_id().await.unwrap().is_some());
    assert!(first.default_admin_id().await.unwrap().is_some());
    let ways = admin.authenticators(&id).await.unwrap();
    let mut prints: Vec<_> = ways
        .iter()
        .filter_map(|way| way.fingerprint.clone())
        .collect();
    prints.sort();
    let mut expected = vec![first_print.clone(), second_print];
    expected.sort();
    assert_eq!(prints, expected);
    assert!(
        ways.iter()
            .all(|way| way.method == "cert" && way.certificate_expiry.is_some())
    );

    let old = ways
        .iter()
        .find(|way| way.fingerprint.as_ref() == Some(&first_print));
    let old = &old.unwrap().id;
    assert_eq!(
        admin.delete_authenticator(old).await.unwrap(),
        Deletion::Deleted
    );
    let refused = first.default_admin_id().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::BadCredentials);
    assert!(second.default_admin_id().await.unwrap().is_some());
    assert_eq!(admin.delete_identity(&id).await.unwrap(), Deletion::Deleted);
    assert_eq!(
        admin.delete_identity(&id).await.unwrap(),
        Deletion::AlreadyGone
    );
    assert!(admin.identity(&id).await.unwrap().is_none());
}

#[tokio::test]
async fn policies_of_both_kinds_are_made_found_changed_and_deleted() {
    let controller = LocalController::start().await.unwrap();
    let client = admin_client(&controller);
    for kind in [PolicyKind::EdgeRouter, PolicyKind::ServiceEdgeRouter] {
        let all = vec!["#all".to_owned()];
        let wanted = NewPolicy {
            name: "all routers".to_owned(),
            semantic: Semantic::AnyOf,
            subject_roles: all.clone(),
            edge_router_roles: all.clone(),
            tags: tags("op"),
        };
        let id = client.create_policy(kind, &wanted).await.unwrap();
        let taken = client.create_policy(kind, &wanted).await.unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::NameTaken);
        let found = client
            .policy_named(kind, &wanted.name)
            .await
            .unwrap()
            .unwrap();
        assert_eq!((&found.id, found.semantic), (&id, Semantic::AnyOf));
        assert_eq!(
            (&found.subject_roles, &found.edge_router_roles),
            (&all, &all)
        );
        assert_eq!(found.tags, wanted.tags);

        let change = PolicyPatch {
            edge_router_roles: Some(vec!["#hub".to_owned()]),
            ..PolicyPatch::default()
        };
        client.patch_policy(kind, &id, &change).await.unwrap();
        client
            .patch_policy(kind, &id, &PolicyPatch::default())
            .await
            .unwrap();
        let mine = Filter::tag("owner", "op").unwrap();
        let changed = client.policies(kind, &mine).await.unwrap().items;
        assert_eq!(changed.len(), 1);
        assert_eq!(changed[0].edge_router_roles, ["#hub"]);
        assert_eq!(
            (&changed[0].subject_roles, &changed[0].tags),
            (&all, &wanted.tags)
        );

        let bad = PolicyPatch {
            subject_roles: Some(vec!["no-mark".to_owned()]),
            ..PolicyPatch::default()
        };
        let refused = client.patch_policy(kind, &id, &bad).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert_eq!(
            client.delete_policy(kind, &id).await.unwrap(),
            Deletion::Deleted
        );
        assert_eq!(
            client.delete_policy(kind, &id).await.unwrap(),
            Deletion::AlreadyGone
        );
    }
}
