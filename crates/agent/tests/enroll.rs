//! What the agent does about an identity, against a real controller: once, idempotently, and with
//! a reason for whatever does not work.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::path::Path;
use std::time::{Duration, Instant};

use agent::disk::RealDisk;
use agent::enroll::{OnMismatch, Request, enroll};
use agent::report::{Outcome, Reason, Report};
use agent::volume::Volume;
use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use tempfile::TempDir;
use testbed::ziti::{LocalController, LocalRouter, RouterOptions};
use tokio::sync::watch;
use ziti::SecretString;
use ziti::enroll::RouterIdentity;
use ziti::management::{Credential, ManagementClient, NewEdgeRouter, Options};
use ziti::pki::Sans;
use ziti::trust::CaBundle;

/// A router's volume and what it is given, as the pod has them.
struct Pod {
    dir: TempDir,
    request: Request,
}

impl Pod {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let request = Request {
            identity_dir: dir.path().join("config"),
            token_file: dir.path().join("token"),
            sans: Sans {
                dns: vec!["localhost".to_owned()],
                ips: vec![LocalRouter::ADDRESS.parse().unwrap()],
                uris: Vec::new(),
            },
            endpoints: Vec::new(),
            on_mismatch: OnMismatch::Refuse,
            ca_file: None,
            retry_for: Duration::ZERO,
        };
        Self { dir, request }
    }

    fn give(&self, token: &str) {
        std::fs::write(&self.request.token_file, token).unwrap();
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    async fn run(&self) -> Report {
        let (_sender, stop) = watch::channel(false);
        enroll(&self.request, RealDisk, stop).await
    }

    async fn fails(&self, reason: Reason) -> Report {
        let report = self.run().await;
        assert_eq!(report.outcome, Outcome::Failed, "{report:?}");
        assert_eq!(report.reason, Some(reason), "{report:?}");
        report
    }

    async fn succeeds(&self, outcome: Outcome) -> Report {
        let report = self.run().await;
        assert_eq!(
            (report.outcome, report.reason),
            (outcome, None),
            "{report:?}"
        );
        report
    }
}

fn admin(controller: &LocalController) -> ManagementClient {
    let credential = Credential::Password {
        username: LocalController::USERNAME.to_owned(),
        password: SecretString::from(LocalController::PASSWORD),
    };
    let ca = CaBundle::from_pem(controller.ca_pem()).unwrap();
    let endpoints = [controller.url().parse().unwrap()];
    ManagementClient::new(&endpoints, &ca, Some(credential), &Options::default()).unwrap()
}

/// Registers a router: its id and its token.
async fn registered(client: &ManagementClient, name: &str) -> (String, String) {
    let router = NewEdgeRouter {
        name: name.to_owned(),
        ..NewEdgeRouter::default()
    };
    let id = client.create_edge_router(&router).await.unwrap();
    let token = token_of(client, &id).await;
    (id, token)
}

async fn token_of(client: &ManagementClient, id: &str) -> String {
    let entity = client.edge_router(id).await.unwrap().unwrap();
    let token = entity.enrollment_token().unwrap().unwrap();
    token.expose().to_owned()
}

/// Puts an identity of router `id` on the volume that ran out years ago.
fn expired_identity(directory: &Path, id: &str) {
    let volume = Volume::new(directory, RealDisk);
    let key = volume.prepare_key().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, id);
    params.not_before = rcgen::date_time_ymd(2019, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let pair = KeyPair::from_pem(key.expose_pem()).unwrap();
    let pem = params.self_signed(&pair).unwrap().pem();
    let identity = RouterIdentity {
        id: id.to_owned(),
        cert_pem: pem.clone(),
        server_cert_pem: pem.clone(),
        ca_pem: pem,
        controllers: Vec::new(),
        fingerprint: String::new(),
        not_after: Timestamp::UNIX_EPOCH,
    };
    let endpoints = ["tls:localhost:1".to_owned()];
    volume.install(&identity, &endpoints).unwrap();
}

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
    assert_eq!(last.token_digest, None);

    let router = LocalRouter::start(&pod.request.identity_dir, RouterOptions::default()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(90);
    while !client
        .edge_router(&id)
        .await
        .unwrap()
        .unwrap()
        .is_in_service()
    {
        router.ensure_alive().unwrap();
        assert!(
            Instant::now() < deadline,
            "not in service:\n{}",
            router.log()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

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
