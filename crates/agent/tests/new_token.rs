//! A sound identity on the volume and a token beside it, against a real controller: the router is
//! enrolled anew where the token says so, and no refusal costs it the identity that it has.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod common;

use std::time::Duration;

use agent::disk::RealDisk;
use agent::enroll::{OnMismatch, enroll};
use agent::report::{Outcome, Reason, Report};
use common::{Pod, admin, in_service, registered, token_of};
use testbed::ziti::LocalController;
use tokio::sync::watch;
use ziti::management::ManagementClient;
use ziti::token::EnrollmentToken;

/// A network, and a pod with the identity of one of its routers.
struct Enrolled {
    controller: LocalController,
    client: ManagementClient,
    id: String,
    /// The spent token that the identity was made with.
    token: String,
    pod: Pod,
    /// What the agent said then.
    first: Report,
}

async fn enrolled() -> Enrolled {
    let controller = LocalController::start().await.unwrap();
    let client = admin(&controller);
    let (id, token) = registered(&client, "router").await;
    let pod = Pod::new();
    pod.give(&token);
    let first = pod.succeeds(Outcome::Enrolled).await;
    Enrolled {
        controller,
        client,
        id,
        token,
        pod,
        first,
    }
}

impl Enrolled {
    /// A new token for the router: its identity is void from now on.
    async fn re_enrolled(&self) -> String {
        self.client.re_enroll(&self.id).await.unwrap();
        token_of(&self.client, &self.id).await
    }

    fn certificate(&self) -> Vec<u8> {
        std::fs::read(self.pod.request.identity_dir.join("ziti-router.cert")).unwrap()
    }

    /// Runs the agent, which keeps the identity that the pod began with, byte for byte, and names
    /// this token, and the reason why it was not redeemed.
    async fn keeps(&self, digest: Option<&str>, reason: Option<Reason>) -> Report {
        let before = self.certificate();
        let report = self.pod.run().await;
        assert_eq!(report.outcome, Outcome::AlreadyEnrolled, "{report:?}");
        assert_eq!(report.reason, reason, "{report:?}");
        assert_eq!(report.fingerprint, self.first.fingerprint);
        assert_eq!(report.not_after, self.first.not_after);
        assert_eq!(report.token_digest.as_deref(), digest);
        assert_eq!(self.certificate(), before);
        // A copy is kept of what is replaced, not of what stays.
        assert_eq!(self.aside(), 0);
        report
    }

    /// Forgets which token the identity was made with, as if somebody else had made it.
    fn as_of_the_chart(&self) {
        std::fs::remove_file(self.pod.request.identity_dir.join(".token-digest")).unwrap();
    }

    /// How many identities are kept aside.
    fn aside(&self) -> usize {
        let entries = std::fs::read_dir(&self.pod.request.identity_dir).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with("replaced-"))
            .count()
    }
}

fn digest(token: &str) -> String {
    EnrollmentToken::parse(token).unwrap().digest().to_owned()
}

#[tokio::test]
async fn a_re_enrolled_router_comes_back_with_a_new_certificate() {
    let world = enrolled().await;
    let router = in_service(&world.client, &world.id, &world.pod).await;
    let key_file = world.pod.request.identity_dir.join("ziti-router.key");
    let old_key = std::fs::read(&key_file).unwrap();

    let token = world.re_enrolled().await;
    router.stop().unwrap();
    world.pod.give(&token);
    let second = world.pod.succeeds(Outcome::Enrolled).await;
    assert_eq!(second.router_id.as_ref(), Some(&world.id));
    assert_eq!(second.token_digest, Some(digest(&token)));
    assert_ne!(second.fingerprint, world.first.fingerprint);
    assert_ne!(std::fs::read(&key_file).unwrap(), old_key);
    let aside = format!("replaced-{}", world.first.fingerprint.as_ref().unwrap());
    let aside = world.pod.request.identity_dir.join(aside);
    assert_eq!(
        std::fs::read(aside.join("ziti-router.key")).unwrap(),
        old_key
    );

    let _router = in_service(&world.client, &world.id, &world.pod).await;
    let entity = world.client.edge_router(&world.id).await.unwrap().unwrap();
    assert_eq!(entity.fingerprint, second.fingerprint);

    // The token is spent now, and it is the one that the identity was made with.
    let third = world.pod.succeeds(Outcome::AlreadyEnrolled).await;
    assert_eq!(third.fingerprint, second.fingerprint);
    assert_eq!(third.token_digest, second.token_digest);
}

#[tokio::test]
async fn without_a_token_and_with_its_own_the_identity_stays() {
    let mut world = enrolled().await;
    let own = digest(&world.token);
    // Nobody is asked: there is nobody.
    world.controller.stop().unwrap();
    world.keeps(Some(&own), None).await;
    world.pod.give("");
    world.keeps(Some(&own), None).await;
    world.pod.give("not.a.token");
    world.keeps(Some(&own), None).await;
    world.as_of_the_chart();
    world.keeps(None, None).await;
}

#[tokio::test]
async fn an_identity_that_somebody_else_made_is_renewed_as_well() {
    let world = enrolled().await;
    world.as_of_the_chart();
    // Of an unknown token, this one is tried, and found to be spent.
    let own = digest(&world.token);
    world.keeps(Some(&own), Some(Reason::TokenSpent)).await;

    let token = world.re_enrolled().await;
    world.pod.give(&token);
    let report = world.pod.succeeds(Outcome::Enrolled).await;
    assert_ne!(report.fingerprint, world.first.fingerprint);
    assert_eq!(report.token_digest, Some(digest(&token)));
    assert_eq!(world.aside(), 1);
}

#[tokio::test]
async fn a_token_that_cannot_be_redeemed_does_not_cost_the_identity() {
    let mut world = enrolled().await;
    let stale = world.re_enrolled().await;
    let fresh = world.re_enrolled().await;
    world.pod.give(&stale);
    let reason = Some(Reason::TokenSpent);
    let report = world.keeps(Some(&digest(&stale)), reason).await;
    assert!(report.message.contains("re-enroll"), "{report:?}");
    assert!(!report.to_line().contains(&stale));

    // What is wrong beside the token spends it as little.
    let ca_file = world.pod.file("ca.pem");
    std::fs::write(&ca_file, "no certificate").unwrap();
    world.pod.request.ca_file = Some(ca_file);
    world.pod.give(&fresh);
    let reason = Some(Reason::CaBundleInvalid);
    world.keeps(Some(&digest(&fresh)), reason).await;
    world.pod.request.ca_file = None;

    // Away, also while the pod is being stopped.
    world.controller.stop().unwrap();
    let reason = Some(Reason::ControllerUnreachable);
    world.keeps(Some(&digest(&fresh)), reason).await;
    world.pod.request.retry_for = Duration::from_hours(1);
    let (sender, stop) = watch::channel(false);
    sender.send(true).unwrap();
    let report = enroll(&world.pod.request, RealDisk, stop).await;
    assert_eq!(report.outcome, Outcome::AlreadyEnrolled, "{report:?}");
    assert_eq!(report.reason, Some(Reason::Interrupted));
    assert_eq!(report.token_digest, Some(digest(&fresh)));

    // It is as good as before.
    world.controller.restart().await.unwrap();
    let report = world.pod.succeeds(Outcome::Enrolled).await;
    assert_eq!(report.token_digest, Some(digest(&fresh)));
}

#[tokio::test]
async fn for_another_router_there_is_a_new_identity_or_none() {
    let mut world = enrolled().await;
    let (other, stale) = registered(&world.client, "other").await;
    world.client.re_enroll(&other).await.unwrap();
    let fresh = token_of(&world.client, &other).await;

    world.pod.give(&stale);
    let report = world.pod.fails(Reason::IdentityMismatch).await;
    assert_eq!(report.token_digest, Some(digest(&stale)));
    world.pod.request.on_mismatch = OnMismatch::Replace;
    let report = world.pod.fails(Reason::TokenSpent).await;
    assert_eq!(report.router_id.as_ref(), Some(&world.id));
    assert_eq!(report.fingerprint, world.first.fingerprint);
    assert_eq!(world.aside(), 0);

    world.pod.give(&fresh);
    let report = world.pod.succeeds(Outcome::Enrolled).await;
    assert_eq!(report.router_id, Some(other));
    assert_eq!(world.aside(), 1);
}

#[tokio::test]
async fn a_copy_that_cannot_be_made_is_said_before_the_token_is_spent() {
    let world = enrolled().await;
    let token = world.re_enrolled().await;
    world.pod.give(&token);
    // Where the copy should go there is a file, which no directory can replace.
    let aside = format!("replaced-{}", world.first.fingerprint.as_ref().unwrap());
    let aside = world.pod.request.identity_dir.join(aside);
    std::fs::write(&aside, "").unwrap();
    world.pod.fails(Reason::VolumeNotWritable).await;
    std::fs::remove_file(&aside).unwrap();
    world.pod.succeeds(Outcome::Enrolled).await;
}
