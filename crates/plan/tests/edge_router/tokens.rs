//! Which token a router is given, and when another one.

use api::reasons::{self, types};
use k8s_openapi::jiff::SignedDuration;
use plan::edge_router::{Entity, Step};
use plan::token::TokenFacts;

use crate::case::{Case, condition, now, ours, report, token, verified};

/// The network keeps an expiry of its own for a token, which was wrong after a re-enrollment, and
/// several enrollments for one router. A token says itself when it ends, and the controller's
/// clock judges it, not the operator's.
#[test]
fn a_token_is_judged_by_its_own_expiry_and_the_clock_of_the_controller() {
    let expiring = |minutes: i64, clock: i64| {
        let token = TokenFacts {
            expires_at: Some(now() + SignedDuration::from_mins(minutes)),
            ..token("t1", "r1")
        };
        let entity = Entity {
            token: Some(token),
            ..ours()
        };
        let mut case = Case::managed(vec![entity]).recorded();
        case.view().basics.server_time = Some(now() + SignedDuration::from_mins(clock));
        case.plan().steps
    };
    let published = |steps: &[Step]| {
        let mut steps = steps.iter();
        steps.any(|step| matches!(step, Step::PublishToken { digest, .. } if digest == "t1"))
    };
    assert!(published(&expiring(1, 0)));
    for (minutes, clock) in [(-1, 0), (1, 2)] {
        let steps = expiring(minutes, clock);
        assert!(!published(&steps), "it ran out: {steps:?}");
        assert!(
            matches!(steps.as_slice(), [.., Step::ReEnroll { .. }]),
            "nobody holds a certificate: {steps:?}"
        );
    }
    assert!(
        published(&expiring(-1, -2)),
        "by the controller's clock it is good"
    );
}

/// A cluster of controllers may issue the certificate and answer 500 all the same: the network
/// counts the router as enrolled, and its pod has nothing.
#[test]
fn an_enrollment_that_failed_after_its_certificate_was_issued_gets_a_fresh_token() {
    for reason in [reasons::ENROLLMENT_REJECTED, reasons::REPLY_LOST] {
        let failed = report(reason, None, Some("t1"));
        let case = Case::managed(vec![verified("issued")]).recorded();
        let steps = case.reported(failed).plan().steps;
        assert!(
            matches!(steps.as_slice(), [.., Step::ReEnroll { .. }]),
            "{reason}: {steps:?}"
        );
    }
}

/// An intent that is recorded before a write which cannot be made costs a write each time.
#[test]
fn a_lost_router_whose_new_token_nobody_can_give_costs_no_write() {
    let lost = report(reasons::IDENTITY_LOST, None, None);
    let mut case = Case::managed(vec![verified("gone")])
        .recorded()
        .reported(lost);
    let [Step::RecordIntent { .. }, Step::ReEnroll { .. }] = &case.plan().steps[..] else {
        panic!("it gets a new token: {:?}", case.plan().steps);
    };
    let leader = "c-1 (tls:c-1.example:1280)".to_owned();
    case.view().basics.leader_elsewhere = Some(leader.clone());
    let first = case.plan();
    assert_eq!(first.steps, []);
    let told = &condition(&first, types::ENROLLED).message;
    assert!(
        told.contains(&leader) && told.contains("spec.managementApi"),
        "{told}"
    );
    let agent = case.status().agent.take();
    *case.status() = first.status.clone();
    case.status().agent = agent;
    assert_eq!(case.plan().status, first.status);
}
