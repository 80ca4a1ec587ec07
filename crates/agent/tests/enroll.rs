//! What the agent does about an identity, against a real controller: once, idempotently, and with
//! a reason for whatever does not work. What it does about an identity *and* a new token is in
//! `new_token.rs`.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod common;

use std::time::Duration;

use agent::disk::RealDisk;
use agent::enroll::{OnMismatch, enroll};
use agent::report::{Outcome, Reason};
use common::{Pod, admin, expired_identity, in_service, registered, token_of};
use jiff::Timestamp;
use testbed::ziti::LocalController;
use tokio::sync::watch;

#[tokio::test]
async fn an_enrolled_router_goes_online_and_later_runs_change_nothing() {
    let controller = LocalController::start().await.unwrap();
    let client = admin(&controller);
    let (id, token) = registered(&client, "agent").await;
    let mut pod = Pod::new();
    let ca_file = pod.file("ca.pem");
    std::fs::write(&ca_file, controller.ca_pem()).unwrap();
    pod.request.ca_file = Some(ca_file);
    pod.give(&format!("{token}\n"));

    let report = pod.succeeds(Outcome::Enrolled).await;
    assert_eq!(report.router_id.as_ref(), Some(&id));
    let entity = client.edge_router(&id).await.unwrap().unwrap();
    assert_eq!(report.fingerprint, entity.fingerprint);
    assert_eq!(report.not_after, entity.certificate_expiry);
    let endpoints = std::fs::read_to_string(pod.request.identity_dir.join("endpoints")).unwrap();
    assert_eq!(
        endpoints,
        format!("Endpoints:\n- {}\n", controller.control_plane())
    );

    // The spent token is still there, then emptied, then gone.
    let again = pod.succeeds(Outcome::AlreadyEnrolled).await;
    assert_eq!(again.fingerprint, report.fingerprint);
    assert_eq!(again.token_digest, report.token_digest);
    pod.give("");
    pod.succeeds(Outcome::AlreadyEnrolled).await;
    std::fs::remove_file(&pod.request.token_file).unwrap();
    let last = pod.succeeds(Outcome::AlreadyEnrolled).await;
    assert_eq!(last.token_digest, report.token_digest);

    let _router = in_service(&client, &id, &pod).await;

    // With a controller that is away the identity is as good.
    drop(controller);
    pod.succeeds(Outcome::AlreadyEnrolled).await;
}

#[tokio::test]
async fn a_token_that_is_none_costs_nothing_and_says_why() {
    let pod = Pod::new();
    pod.fails(Reason::TokenMissing).await;
    pod.give(" \n");
    let report = pod.fails(Reason::TokenMissing).await;
    assert!(
        report.message.contains("provide an enrollment token"),
        "{report:?}"
    );
    pod.give("not.a.token");
    pod.fails(Reason::TokenMalformed).await;
    // A key that a Secret lacks is a directory in the pod.
    std::fs::remove_file(&pod.request.token_file).unwrap();
    std::fs::create_dir(&pod.request.token_file).unwrap();
    pod.fails(Reason::TokenMissing).await;
    assert!(!pod.request.identity_dir.exists());
}

#[tokio::test]
async fn a_spent_token_and_one_for_an_identity_are_told_apart() {
    let controller = LocalController::start().await.unwrap();
    let client = admin(&controller);
    let (id, token) = registered(&client, "spent").await;
    let pod = Pod::new();
    pod.give(&token);
    pod.succeeds(Outcome::Enrolled).await;
    let other = Pod::new();
    other.give(&token);
    let report = other.fails(Reason::TokenSpent).await;
    assert_eq!(report.router_id.as_ref(), Some(&id));
    assert!(!report.to_line().contains(&token));

    // A lost volume, healed by a new token for the same router.
    client.re_enroll(&id).await.unwrap();
    other.give(&token_of(&client, &id).await);
    other.succeeds(Outcome::Enrolled).await;

    let text = r#"{"name":"i","type":"Default","isAdmin":false,"enrollment":{"ott":true}}"#;
    let identity = serde_json::from_str(text).unwrap();
    let identity = client.post("/identities", &identity).await.unwrap();
    let path = format!("/identities/{}", identity["id"].as_str().unwrap());
    let identity = client.get(&path, &[]).await.unwrap();
    let pod = Pod::new();
    pod.give(identity["enrollment"]["ott"]["jwt"].as_str().unwrap());
    pod.fails(Reason::TokenWrongKind).await;
}

#[tokio::test]
async fn a_token_of_another_network_is_refused_and_stays_good() {
    let controller = LocalController::start().await.unwrap();
    let stranger = LocalController::start().await.unwrap();
    let client = admin(&stranger);
    let (id, token) = registered(&client, "stranger").await;
    let mut pod = Pod::new();
    let ca_file = pod.file("ca.pem");
    std::fs::write(&ca_file, "no certificate").unwrap();
    pod.request.ca_file = Some(ca_file.clone());
    pod.give(&token);
    pod.fails(Reason::CaBundleInvalid).await;
    std::fs::write(&ca_file, controller.ca_pem()).unwrap();
    pod.fails(Reason::ControllerNotTrusted).await;
    let entity = client.edge_router(&id).await.unwrap().unwrap();
    assert!(!entity.is_verified);
}

#[tokio::test]
async fn the_identity_of_another_router_is_kept_unless_it_shall_be_replaced() {
    let controller = LocalController::start().await.unwrap();
    let client = admin(&controller);
    let (first, token) = registered(&client, "first").await;
    let (second, other_token) = registered(&client, "second").await;
    let mut pod = Pod::new();
    pod.give(&token);
    let enrolled = pod.succeeds(Outcome::Enrolled).await;

    pod.give(&other_token);
    let report = pod.fails(Reason::IdentityMismatch).await;
    assert_eq!(report.router_id, Some(first));
    assert_eq!(report.fingerprint, enrolled.fingerprint);

    pod.request.on_mismatch = OnMismatch::Replace;
    let report = pod.succeeds(Outcome::Enrolled).await;
    assert_eq!(report.router_id, Some(second));
    let aside = format!("replaced-{}", enrolled.fingerprint.unwrap());
    assert!(
        pod.request
            .identity_dir
            .join(aside)
            .join("ziti-router.key")
            .is_file()
    );
}

#[tokio::test]
async fn an_identity_that_ran_out_is_renewed_with_a_token_and_named_without() {
    let controller = LocalController::start().await.unwrap();
    let client = admin(&controller);
    let (id, token) = registered(&client, "expired").await;
    let pod = Pod::new();
    expired_identity(&pod.request.identity_dir, &id);
    pod.fails(Reason::IdentityExpired).await;
    pod.give(&token);
    let report = pod.succeeds(Outcome::Enrolled).await;
    assert!(report.not_after.unwrap() > Timestamp::now());
}

#[tokio::test]
async fn missing_addresses_are_written_where_they_are_known() {
    let controller = LocalController::start().await.unwrap();
    let client = admin(&controller);
    let (_, token) = registered(&client, "addresses").await;
    let mut pod = Pod::new();
    pod.request.endpoints = vec!["tls:elsewhere:1".to_owned()];
    pod.give(&token);
    pod.succeeds(Outcome::Enrolled).await;
    let endpoints = pod.request.identity_dir.join("endpoints");
    let written = std::fs::read_to_string(&endpoints).unwrap();
    assert_eq!(written, "Endpoints:\n- tls:elsewhere:1\n");

    std::fs::remove_file(&endpoints).unwrap();
    pod.give("");
    pod.request.endpoints.clear();
    pod.fails(Reason::EndpointsMissing).await;
    pod.give(&token);
    pod.succeeds(Outcome::AlreadyEnrolled).await;
    let written = std::fs::read_to_string(&endpoints).unwrap();
    assert!(written.contains(&controller.control_plane()));
}

#[tokio::test]
async fn a_controller_that_is_away_is_waited_for() {
    let mut controller = LocalController::start().await.unwrap();
    let client = admin(&controller);
    let (_, token) = registered(&client, "waiting").await;
    controller.stop().unwrap();
    let mut pod = Pod::new();
    pod.give(&token);
    pod.fails(Reason::ControllerUnreachable).await;

    pod.request.retry_for = Duration::from_mins(2);
    let (report, restarted) = tokio::join!(pod.run(), controller.restart());
    restarted.unwrap();
    assert_eq!(report.outcome, Outcome::Enrolled, "{report:?}");
}

#[tokio::test]
async fn a_pod_that_is_being_stopped_waits_for_nobody() {
    let mut controller = LocalController::start().await.unwrap();
    let client = admin(&controller);
    let (_, token) = registered(&client, "stopped").await;
    controller.stop().unwrap();
    let mut pod = Pod::new();
    pod.give(&token);
    pod.request.retry_for = Duration::from_hours(1);
    let (sender, stop) = watch::channel(false);
    sender.send(true).unwrap();
    let report = enroll(&pod.request, RealDisk, stop).await;
    assert_eq!(report.reason, Some(Reason::Interrupted));
}

#[tokio::test]
async fn a_volume_that_cannot_be_written_does_not_cost_the_token() {
    let controller = LocalController::start().await.unwrap();
    let client = admin(&controller);
    let (id, token) = registered(&client, "read-only").await;
    let mut pod = Pod::new();
    pod.give(&token);
    pod.request.identity_dir = pod.file("file/below");
    std::fs::write(pod.file("file"), "").unwrap();
    pod.fails(Reason::VolumeNotWritable).await;
    let entity = client.edge_router(&id).await.unwrap().unwrap();
    assert!(!entity.is_verified);
}
