//! Decisions for one EdgeRouter that deserve a name each.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what it expects"
)]

mod case;
mod owners;
mod tokens;

use api::edge_router::{AgentReport, Intent, IntentAct};
use api::reasons::{self, types};
use api::{AdoptionPolicy, names};
use case::{Case, ago, condition, now, ours, ready_reason, report, token, verified};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use plan::edge_router::{
    Entity, LATE_COMMIT, NetworkBasics, Problem, RE_ENROLL_INTERVAL, SecretFacts, Step,
    TokenSource, many_missing,
};
use plan::token::TokenFacts;

#[test]
fn a_router_of_that_name_that_is_not_ours_is_refused_with_what_to_do() {
    let other = Entity {
        tags: [("team".to_owned(), "other".to_owned())].into(),
        ..ours()
    };
    let plan = Case::managed(vec![other]).plan();
    assert_eq!(plan.steps, []);
    insta::assert_snapshot!(condition(&plan, types::READY).message, @r#"the network has a router "lamp-0" (id r1) already, and it was not made by this operator. It is left as it is. Rename this object, set spec.namePattern of the ZitiNetwork, or set adoptionPolicy: ByName to take it over"#);
    assert_eq!(ready_reason(&plan), reasons::NAME_TAKEN);
}

#[test]
fn adoption_by_name_claims_first_and_does_nothing_else() {
    let mut case = Case::managed(vec![Entity {
        tags: [("team".to_owned(), "other".to_owned())].into(),
        ..ours()
    }]);
    case.object.spec.adoption_policy = AdoptionPolicy::ByName;
    let steps = case.plan().steps;
    assert!(matches!(
        steps.as_slice(),
        [Step::RecordIntent { .. }, Step::Claim { .. }]
    ));
}

#[test]
fn a_router_that_was_taken_from_us_is_not_taken_back() {
    let mut taken = ours();
    taken.tags.insert(names::TAG_NAME.into(), "beacon".into());
    let mut case = Case::managed(vec![taken]).recorded();
    case.object.spec.adoption_policy = AdoptionPolicy::ByName;
    let plan = case.plan();
    assert_eq!(plan.steps, []);
    assert_eq!(ready_reason(&plan), reasons::NAME_TAKEN);
}

#[test]
fn one_missing_router_among_others_is_chance_and_many_are_not() {
    assert!(!many_missing(5, 0), "none");
    assert!(!many_missing(2, 1), "somebody deleted it");
    assert!(many_missing(1, 1), "all of them");
    assert!(many_missing(2, 2), "all of them");
    assert!(!many_missing(10, 3));
    assert!(!many_missing(100, 10));
    assert!(many_missing(100, 11), "more than a tenth");
}

#[test]
fn with_many_missing_nothing_is_registered_until_a_person_confirms() {
    let mut case = Case::managed(Vec::new()).recorded();
    case.view().many_missing = true;
    let asks = case.plan();
    assert_eq!(asks.steps, []);
    assert_eq!(ready_reason(&asks), reasons::ENTITY_MISSING);
    let confirmed = [(
        names::ANNOTATION_CONFIRM_MISSING.to_owned(),
        "r1".to_owned(),
    )];
    case.object.metadata.annotations = Some(confirmed.into());
    assert!(matches!(case.plan().steps.last(), Some(Step::Create(_))));
}

#[test]
fn a_registration_whose_reply_was_lost_is_not_repeated_before_it_can_be_done() {
    let mut case = Case::managed(Vec::new());
    let intent = |recorded_at| Intent {
        act: IntentAct::Create,
        previous_token: None,
        recorded_at,
    };
    case.status().intent = Some(intent(ago(5)));
    let waits = case.plan();
    assert_eq!(waits.steps, []);
    assert_eq!(
        waits.requeue,
        Some(LATE_COMMIT - SignedDuration::from_secs(5))
    );
    case.status().intent = Some(intent(ago(LATE_COMMIT.as_secs())));
    assert!(matches!(case.plan().steps.last(), Some(Step::Create(_))));
}

#[test]
fn a_lost_identity_is_healed_and_not_twice_in_two_minutes() {
    let lost = report(reasons::TOKEN_MISSING, None, None);
    let mut case = Case::managed(vec![verified("old")])
        .recorded()
        .reported(lost);
    assert!(matches!(
        case.plan().steps.as_slice(),
        [
            Step::RecordIntent {
                re_enrollment: true,
                ..
            },
            Step::ReEnroll { .. }
        ]
    ));
    case.status().last_re_enrollment = Some(ago(20));
    let limited = case.plan();
    assert_eq!(limited.steps, []);
    assert_eq!(
        limited.requeue,
        Some(RE_ENROLL_INTERVAL - SignedDuration::from_secs(20))
    );
    assert_eq!(ready_reason(&limited), reasons::IDENTITY_LOST);
}

/// The pod holds what the network expects, and its router cannot start with it.
#[test]
fn an_identity_that_is_of_no_use_is_healed_as_a_lost_one() {
    for reason in [reasons::NAMES_MISSING, reasons::IDENTITY_EXPIRED] {
        let useless = report(reason, Some("old"), None);
        let case = Case::managed(vec![verified("old")]).recorded();
        let plan = case.reported(useless).plan();
        assert!(matches!(plan.steps.as_slice(), [.., Step::ReEnroll { .. }]));
    }
}

#[test]
fn no_word_of_a_pod_re_enrolls_a_router_that_is_online_or_was_a_moment_ago() {
    let lost = report(reasons::TOKEN_MISSING, None, None);
    for (online, offline_for) in [(true, 0), (false, 59)] {
        let entity = Entity {
            online,
            offline_for: Some(SignedDuration::from_secs(offline_for)),
            ..verified("old")
        };
        let case = Case::managed(vec![entity])
            .recorded()
            .reported(lost.clone());
        assert_eq!(case.plan().steps, [], "online: {online}");
    }
}

#[test]
fn a_router_that_another_controller_sees_online_is_not_re_enrolled() {
    let lost = report(reasons::TOKEN_MISSING, None, None);
    let case = Case::managed(vec![verified("old")]).recorded();
    assert!(case.reported(lost.clone()).plan().needs_every_controller());
    let unused = Entity {
        token: None,
        ..ours()
    };
    for entity in [verified("old"), unused] {
        let entity = Entity {
            online_elsewhere: Some("https://c-1:1280".into()),
            ..entity
        };
        let case = Case::managed(vec![entity]).recorded();
        let plan = case.reported(lost.clone()).plan();
        assert!(!plan.needs_every_controller() && plan.requeue.is_some());
        let told = format!("{:?}", plan.status.conditions);
        assert!(told.contains("online at https://c-1:1280"), "{told}");
    }
}

#[test]
fn what_is_gone_from_an_old_list_is_looked_up_before_the_object_is_let_go() {
    let mut case = Case::managed(Vec::new()).recorded();
    case.object.metadata.deletion_timestamp = Some(ago(1));
    let plan = case.plan();
    assert_eq!(plan.steps, [Step::ReleaseFinalizer]);
    assert!(plan.needs_fresh_look());
}

#[test]
fn deletion_takes_whatever_carries_our_tags() {
    let unrecorded = Entity {
        id: "r2".into(),
        ..ours()
    };
    let mut case = Case::managed(vec![unrecorded]).recorded();
    case.object.metadata.deletion_timestamp = Some(ago(1));
    assert_eq!(case.plan().steps, [Step::Delete { id: "r2".into() }]);
}

#[test]
fn attributes_that_are_refused_keep_no_router_from_its_token() {
    let waiting = Entity {
        token: Some(token("t1", "r1")),
        ..ours()
    };
    let mut case = Case::managed(vec![waiting]);
    case.object.spec.cost = 7;
    let steps = case.plan().steps;
    assert!(matches!(
        steps.as_slice(),
        [Step::PublishToken { .. }, Step::Update { .. }]
    ));
}

#[test]
fn a_provided_token_is_handed_out_and_taken_back_once_used() {
    let basics = || NetworkBasics::default();
    let publish = Step::PublishToken {
        digest: "t1".into(),
        source: TokenSource::Provided,
    };
    let case = Case::alone(Ok(token("t1", "r1")), basics());
    assert_eq!(case.plan().steps, [publish]);
    let used = case
        .reported(report(reasons::ENROLLED, Some("f1"), Some("t1")))
        .holding("t1");
    let plan = used.plan();
    assert_eq!(plan.steps, [Step::EmptyToken]);
    assert_eq!(ready_reason(&plan), reasons::READY);
}

#[test]
fn a_provided_token_that_cannot_be_used_is_withheld_with_its_reason() {
    let expired = TokenFacts {
        expires_at: Some(now()),
        ..token("t1", "r1")
    };
    let silent = TokenFacts {
        names_controllers: false,
        ..token("t1", "r1")
    };
    let foreign = NetworkBasics {
        token_is_ours: Some(false),
        ..NetworkBasics::default()
    };
    let malformed = Err(Problem::new(reasons::TOKEN_MALFORMED, "it is no token"));
    let refused = report(reasons::TOKEN_SPENT, None, Some("t1"));
    let cases = [
        (
            reasons::TOKEN_MALFORMED,
            Case::alone(malformed, NetworkBasics::default()),
        ),
        (
            reasons::TOKEN_EXPIRED,
            Case::alone(Ok(expired), NetworkBasics::default()),
        ),
        (
            reasons::INVALID_SPEC,
            Case::alone(Ok(silent), NetworkBasics::default()),
        ),
        (
            reasons::TOKEN_OF_ANOTHER_NETWORK,
            Case::alone(Ok(token("t1", "r1")), foreign),
        ),
        (
            reasons::TOKEN_OF_ANOTHER_NETWORK,
            Case::provided(Ok(token("t1", "r9")), vec![ours()]),
        ),
        (
            reasons::TOKEN_SPENT,
            Case::provided(Ok(token("t1", "r1")), vec![verified("another")]),
        ),
        (
            reasons::TOKEN_SPENT,
            Case::alone(Ok(token("t1", "r1")), NetworkBasics::default()).reported(refused),
        ),
    ];
    for (reason, case) in cases {
        let plan = case.plan();
        assert_eq!(plan.steps, [], "{reason}");
        assert_eq!(ready_reason(&plan), reason);
        assert_eq!(
            condition(&plan, types::ENROLLED).status,
            "False",
            "{reason}"
        );
    }
}

#[test]
fn a_wrong_token_costs_a_router_that_holds_its_identity_nothing() {
    let enrolled = report(reasons::ENROLLED, Some("f1"), Some("t0"));
    let expired = TokenFacts {
        expires_at: Some(now()),
        ..token("t1", "r1")
    };
    let malformed = Err(Problem::new(reasons::TOKEN_MALFORMED, "it is no token"));
    let cases = [
        (reasons::IDENTITY_MISMATCH, Ok(token("t1", "r9"))),
        (reasons::TOKEN_EXPIRED, Ok(expired)),
        (reasons::TOKEN_MALFORMED, malformed),
    ];
    for (reason, given) in cases {
        let mut case = Case::alone(Ok(token("t0", "r1")), NetworkBasics::default());
        case = case.reported(enrolled.clone());
        case.status().conditions = case.plan().status.conditions;
        case.provided = Some(given);
        let plan = case.plan();
        assert_eq!(plan.steps, [], "{reason}");
        assert_eq!(ready_reason(&plan), reason);
        assert_eq!(condition(&plan, types::ENROLLED).status, "True", "{reason}");
    }
}

#[test]
fn a_new_token_for_the_same_router_is_a_wish_to_enroll_it_anew() {
    let enrolled = report(reasons::ENROLLED, Some("f1"), Some("t0"));
    let alone = Case::alone(Ok(token("t1", "r1")), NetworkBasics::default());
    let publish = [Step::PublishToken {
        digest: "t1".into(),
        source: TokenSource::Provided,
    }];
    assert_eq!(alone.reported(enrolled.clone()).plan().steps, publish);
    // Where the network shows that the old identity holds, the new token cannot
    // be a good one.
    let held = Case::provided(Ok(token("t1", "r1")), vec![verified("f1")]);
    assert_eq!(held.reported(enrolled.clone()).plan().steps, []);
    let replaced = Case::provided(Ok(token("t1", "r1")), vec![ours()]);
    assert_eq!(replaced.reported(enrolled).plan().steps, publish);
}

#[test]
fn a_provided_token_that_is_gone_after_its_use_is_no_fault() {
    let enrolled = report(reasons::ENROLLED, Some("f1"), Some("t1"));
    let mut case = Case::alone(Ok(token("t1", "r1")), NetworkBasics::default()).reported(enrolled);
    let before = case.plan().status;
    case.status().conditions.clone_from(&before.conditions);
    case.provided = Some(Err(Problem::new(reasons::KEY_MISSING, "there is no key")));
    assert_eq!(case.plan().status.conditions, before.conditions);
}

#[test]
fn the_life_of_the_certificate_is_told_and_costs_nothing_at_rest() {
    let mut entity = Entity {
        online: true,
        synced: true,
        certificate_expiry: Some(now() + SignedDuration::from_hours(8_000)),
        ..verified("f1")
    };
    let case = |entity: &Entity| {
        Case::managed(vec![entity.clone()])
            .recorded()
            .reported(report(AgentReport::ENROLLED, Some("f0"), None))
    };
    let plan = case(&entity).plan();
    let told = condition(&plan, types::CERTIFICATE_EXPIRING);
    assert_eq!(
        (told.status.as_str(), ready_reason(&plan)),
        ("False", reasons::READY)
    );
    assert_eq!(
        plan.status.certificate_expiry,
        entity.certificate_expiry.map(Time)
    );
    let mut again = case(&entity);
    let agent = again.status().agent.take();
    *again.status() = plan.status.clone();
    again.status().agent = agent;
    assert_eq!(again.plan().status, plan.status);

    // Not renewed in time: a warning, and no reason to call a router that works broken.
    entity.certificate_expiry = Some(now() + plan::edge_router::RENEWED_BY);
    let plan = case(&entity).plan();
    let told = condition(&plan, types::CERTIFICATE_EXPIRING);
    assert_eq!(told.reason, reasons::CERTIFICATE_EXPIRING);
    assert_eq!(
        (told.status.as_str(), ready_reason(&plan)),
        ("True", reasons::READY)
    );
}

#[test]
fn a_paused_router_is_left_alone_and_is_as_ready_as_it_is() {
    let mut entity = verified("f1");
    (entity.online, entity.synced, entity.cost) = (true, true, 9);
    let mut case = Case::managed(vec![entity]).recorded();
    case.status().conditions = case.plan().status.conditions;
    assert!(!case.plan().steps.is_empty(), "its cost is to be put back");
    case.object.spec.paused = true;
    let plan = case.plan();
    assert_eq!(plan.steps, []);
    assert_eq!(ready_reason(&plan), reasons::PAUSED);
    assert_eq!(condition(&plan, types::READY).status, "True");

    case.object.metadata.deletion_timestamp = Some(Time(now()));
    let plan = case.plan();
    assert_eq!(plan.steps, [], "its deletion waits");
    assert_eq!(condition(&plan, types::READY).status, "False");
    assert!(
        condition(&plan, types::READY)
            .message
            .contains("deletion waits")
    );
}

#[test]
fn a_provided_token_that_the_pod_could_not_redeem_waits_on() {
    let mut kept = report(AgentReport::ENROLLED, Some("f0"), Some("t1"));
    kept.token_reason = Some(reasons::CONTROLLER_UNREACHABLE.into());
    let basics = NetworkBasics {
        names_controllers: true,
        ..NetworkBasics::default()
    };
    let mut case = Case::alone(Ok(token("t1", "r1")), basics).reported(kept);
    case.secret = SecretFacts::Ours(Some("t1".into()));
    let plan = case.plan();
    assert_eq!(plan.steps, [], "the token is not taken away");
    assert_eq!(ready_reason(&plan), reasons::CONTROLLER_UNREACHABLE);
}

#[test]
fn what_cannot_be_read_costs_no_identity() {
    for reason in [reasons::VOLUME_NOT_WRITABLE, reasons::NAMES_UNREADABLE] {
        let unread = report(reason, None, None);
        let mut entity = verified("f1");
        entity.offline_for = Some(SignedDuration::from_hours(1));
        let plan = Case::managed(vec![entity])
            .recorded()
            .reported(unread)
            .plan();
        assert_eq!(plan.steps, []);
        assert_eq!(ready_reason(&plan), reason);
    }
}
