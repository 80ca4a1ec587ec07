//! Names that a certificate must hold change while its router is away: the router comes back with
//! the same identity and another certificate, against a real controller.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod common;

use agent::report::{Outcome, Reason};
use common::{admin, in_service, registered};
use testbed::ziti::LocalController;
use ziti::pki::CertificateFacts;

fn names(pod: &common::Pod) -> Vec<String> {
    let file = pod
        .request
        .identity_dir
        .join("ziti-router.server.chain.cert");
    let pem = std::fs::read_to_string(file).unwrap();
    CertificateFacts::from_pem(&pem).unwrap().dns
}

#[tokio::test]
async fn a_router_whose_advertised_name_changes_comes_back_with_it() {
    let controller = LocalController::start().await.unwrap();
    let client = admin(&controller);
    let (id, token) = registered(&client, "renamed").await;
    let mut pod = common::Pod::new();
    pod.give(&token);
    let first = pod.succeeds(Outcome::Enrolled).await;
    in_service(&client, &id, &pod).await.stop().unwrap();
    pod.give("");

    // By an argument and by a file, as pods of both kinds have them.
    pod.request.sans.dns.push("new.example".to_owned());
    let file = pod.file("names");
    std::fs::write(&file, "localhost\nown.example\n").unwrap();
    pod.request.names_file = Some(file);
    let second = pod.succeeds(Outcome::AlreadyEnrolled).await;
    assert_ne!(second.fingerprint, first.fingerprint);
    assert_eq!(second.router_id.as_deref(), Some(id.as_str()));
    assert_eq!(names(&pod), ["localhost", "new.example", "own.example"]);
    let entity = client.edge_router(&id).await.unwrap().unwrap();
    assert_eq!(entity.fingerprint, second.fingerprint);
    in_service(&client, &id, &pod).await.stop().unwrap();

    // The names are there now; nobody is asked, not even one who is gone.
    drop(controller);
    let third = pod.succeeds(Outcome::AlreadyEnrolled).await;
    assert_eq!(third.fingerprint, second.fingerprint);

    // A name that is missing while nobody answers keeps the router from a start that would fail,
    // and costs it nothing.
    pod.request.sans.dns.push("newer.example".to_owned());
    let refused = pod.fails(Reason::NamesMissing).await;
    assert!(refused.message.contains("newer.example"), "{refused:?}");
    assert_eq!(refused.fingerprint, second.fingerprint);
    pod.request.sans.dns.pop();
    pod.succeeds(Outcome::AlreadyEnrolled).await;
}

#[tokio::test]
async fn an_identity_that_the_network_replaced_gets_no_certificate_and_no_token_is_blamed() {
    let controller = LocalController::start().await.unwrap();
    let client = admin(&controller);
    let (id, token) = registered(&client, "replaced").await;
    let mut pod = common::Pod::new();
    pod.give(&token);
    pod.succeeds(Outcome::Enrolled).await;
    pod.give("");
    client.re_enroll(&id).await.unwrap();
    pod.request.sans.dns.push("new.example".to_owned());
    let refused = pod.fails(Reason::NamesMissing).await;
    let told = &refused.message;
    assert!(
        told.contains("does not accept this router's identity"),
        "{told}"
    );
    assert!(!told.contains("token"), "{told}");
}

#[tokio::test]
async fn a_list_of_names_that_cannot_be_read_is_no_missing_name() {
    let mut pod = common::Pod::new();
    pod.request.names_file = Some(pod.file("nowhere"));
    let refused = pod.fails(Reason::NamesUnreadable).await;
    assert!(refused.message.contains("nowhere"), "{refused:?}");
    assert!(refused.message.contains("ConfigMap"), "{refused:?}");
}

#[tokio::test]
async fn other_addresses_of_the_controllers_are_taken_once() {
    let controller = LocalController::start().await.unwrap();
    let client = admin(&controller);
    let (_, token) = registered(&client, "moved").await;
    let mut pod = common::Pod::new();
    pod.give(&token);
    pod.succeeds(Outcome::Enrolled).await;
    pod.give("");
    let file = pod.request.identity_dir.join("endpoints");
    let read = || std::fs::read_to_string(&file).unwrap();

    pod.request.endpoints = vec!["tls:moved.example:6262".to_owned()];
    pod.succeeds(Outcome::AlreadyEnrolled).await;
    assert!(read().contains("moved.example"), "{}", read());
    // What the router learns afterwards is not undone at its next start.
    std::fs::write(&file, "Endpoints:\n- tls:learned.example:6262\n").unwrap();
    pod.succeeds(Outcome::AlreadyEnrolled).await;
    assert!(read().contains("learned.example"), "{}", read());
    pod.request.endpoints = vec!["tls:again.example:6262".to_owned()];
    pod.succeeds(Outcome::AlreadyEnrolled).await;
    assert!(read().contains("again.example"), "{}", read());
}
