//! When a network counts as lost, what a Job's end is taken for, and that nothing is
//! restored over. The property world (`controllers.rs`) plays whole restores.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use api::reasons::{self, types};
use api::{ZitiController, names};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plan::Settings;
use plan::conditions::find;
use plan::controller::backup::Copies;
use plan::controller::jobs::{Outcome, Report, outcome};
use plan::controller::pki::Life;
use plan::controller::restore::{Act, Key, is_lost, to_ask};
use plan::controller::{
    Admin, Cluster, Facts, Peer, Root, RootFacts, Step, Users, plan, without_backups,
};
use plan::edge_router::Problem;
use serde_json::{Value, json};

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn settings() -> Settings {
    Settings {
        install_id: "pier".into(),
        install_uid: None,
        agent_image: "registry.example/agent:7".into(),
        router_image: "registry.example/router:7".into(),
        controller_image: "registry.example/controller:1.6.0".into(),
        cluster_dns: None,
    }
}

fn object(spec: Value) -> ZitiController {
    let mut object = ZitiController::new("lamp", serde_json::from_value(spec).unwrap());
    object.metadata.namespace = Some("coast".into());
    object.metadata.uid = Some("uid".into());
    object.metadata.finalizers = Some(vec![names::FINALIZER_CONTROLLER.into()]);
    object
}

fn restored() -> ZitiController {
    object(json!({"restoreFrom": {
        "from": {"volume": {"claimName": "backups"}}, "identitySecretRef": {"name": "age"},
    }}))
}

/// A network that was made, with one member that runs on its volume and is in no cluster.
fn facts<'a>(object: &'a ZitiController, settings: &'a Settings) -> Facts<'a> {
    Facts {
        object,
        settings,
        stateful_set: None,
        pods: vec![pod(120)],
        services: Vec::new(),
        config_maps: Vec::new(),
        claims: vec![claim(0, "volume")],
        extras: Vec::new(),
        root: Root::Sound(RootFacts {
            bundle: "the root".into(),
            key: "key".into(),
            made: true,
            restoring: None,
            restored_from: None,
            trust_domain: Some(object.trust_domain()),
            life: Life::of_days(7300, now()),
        }),
        pki: None,
        admin: Admin::Ready { digest: "d".into() },
        bootstrap: None,
        cluster: Err(Problem::new(reasons::BAD_CREDENTIALS, "it knows nobody")),
        operator: None,
        network: None,
        issuer: None,
        joins: std::collections::BTreeMap::new(),
        web_certificates: std::collections::BTreeMap::new(),
        copies: Copies {
            outside: [member()].into(),
            ..Copies::default()
        },
        users: Users::default(),
        now: now(),
    }
}

fn member() -> String {
    "lamp-controller-0".to_owned()
}

fn claim(ordinal: i32, uid: &str) -> PersistentVolumeClaim {
    let metadata = json!({"name": format!("data-lamp-controller-{ordinal}"), "uid": uid});
    serde_json::from_value(json!({"metadata": metadata})).unwrap()
}

/// What makes it doubtful that a network is lost.
type Change = fn(&mut Facts);

/// A pod that runs and has not been ready for so many seconds.
fn pod(seconds: i64) -> Pod {
    let since = (now() - SignedDuration::from_secs(seconds)).to_string();
    serde_json::from_value(json!({
        "metadata": {"name": member(), "creationTimestamp": since},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}],
            "containerStatuses": [{"name": "controller", "image": "", "imageID": "", "ready": false,
                "restartCount": 0, "state": {"running": {}}}],
        },
    }))
    .unwrap()
}

fn peer() -> Peer {
    Peer {
        id: member(),
        voter: true,
        leader: true,
        connected: true,
        ..Peer::default()
    }
}

#[test]
fn only_what_each_member_says_itself_makes_a_network_count_as_lost() {
    let (object, settings) = (object(json!({})), settings());
    let lost = facts(&object, &settings);
    assert!(is_lost(&lost));
    let ready = plan(&lost).status.conditions;
    let ready = find(&ready, types::READY).unwrap();
    assert_eq!(ready.reason, reasons::DATABASE_LOST);
    assert!(
        ready.message.contains("spec.restoreFrom"),
        "{}",
        ready.message
    );

    let doubts: [(&str, Change); 7] = [
        ("its sidecar does not answer", |facts| {
            facts.copies.outside.clear();
        }),
        ("it has just started", |facts| facts.pods = vec![pod(30)]),
        ("its pod is not there", |facts| facts.pods.clear()),
        ("another volume is there", |facts| {
            facts.claims.push(claim(1, "other"));
        }),
        ("a pod runs on a volume that is not seen", |facts| {
            facts.claims.clear();
        }),
        ("the network was not made yet", |facts| {
            let Root::Sound(root) = &mut facts.root else {
                return;
            };
            root.made = false;
        }),
        ("a member is seen", |facts| {
            facts.cluster = Ok(Cluster {
                asked: member(),
                members: vec![peer()],
                ..Cluster::default()
            });
        }),
    ];
    for (doubt, change) in doubts {
        let mut facts = facts(&object, &settings);
        change(&mut facts);
        assert!(!is_lost(&facts), "{doubt}");
    }
}

#[test]
fn a_member_that_is_not_ready_says_nothing_of_credentials() {
    let (object, settings) = (object(json!({})), settings());
    let mut facts = facts(&object, &settings);
    let told = |facts: &Facts| {
        let conditions = plan(facts).status.conditions;
        let ready = find(&conditions, types::READY).unwrap();
        ready.reason.clone()
    };
    facts.pods = vec![pod(30)];
    assert_eq!(told(&facts), reasons::MEMBERS_NOT_READY);
    let status = facts.pods[0].status.as_mut().unwrap();
    status.conditions.as_mut().unwrap()[0].status = "True".into();
    assert_eq!(told(&facts), reasons::BAD_CREDENTIALS);
}

#[test]
fn nobody_is_asked_who_works_or_has_just_started() {
    let (object, settings) = (object(json!({})), settings());
    let mut asked = facts(&object, &settings);
    assert_eq!(to_ask(&asked).len(), 1);
    asked.pods = vec![pod(30)];
    assert!(to_ask(&asked).is_empty());
}

/// Whether anything of a restore is done.
fn restores(facts: &Facts) -> bool {
    let steps = plan(facts).steps;
    steps.iter().any(|step| matches!(step, Step::Restore(_)))
}

#[test]
fn nothing_is_restored_on_a_volume_that_may_hold_a_database() {
    let (object, settings) = (restored(), settings());
    let lost = facts(&object, &settings);
    assert!(restores(&lost));

    let mut silent = facts(&object, &settings);
    silent.copies.outside.clear();
    assert!(!restores(&silent), "nobody says that it is lost");

    // All Secrets are lost, and a volume is there.
    let mut rootless = facts(&object, &settings);
    rootless.root = Root::Absent;
    rootless.pods.clear();
    assert!(!restores(&rootless), "a database is there");
    rootless.claims.clear();
    assert!(restores(&rootless), "nothing is there");

    // A restore was begun, and another volume was put in the place of the empty one.
    let mut swapped = facts(&object, &settings);
    swapped.pods.clear();
    swapped.copies.key = Some(Key {
        uid: "key".into(),
        recipient: "age1…".into(),
        empty: ["volume".to_owned()].into(),
    });
    let begun = plan(&swapped).steps;
    assert!(matches!(
        begun.as_slice(),
        [Step::Restore(Act::CreateJob(_))]
    ));
    swapped.claims = vec![claim(0, "put back")];
    let steps = plan(&swapped).steps;
    let goes_on = |step: &Step| {
        matches!(
            step,
            Step::Restore(Act::CreateJob(_) | Act::CreateClaim(_) | Act::Take { .. })
        )
    };
    assert!(!steps.iter().any(goes_on), "{steps:?}");
}

#[test]
fn no_job_is_started_while_one_of_before_may_still_write() {
    let (object, settings) = (restored(), settings());
    let mut begun = facts(&object, &settings);
    begun.pods.clear();
    begun.copies.key = Some(Key {
        uid: "key".into(),
        recipient: "age1…".into(),
        empty: ["volume".to_owned()].into(),
    });
    let starts = |facts: &Facts| {
        let steps = plan(facts).steps;
        matches!(steps.as_slice(), [Step::Restore(Act::CreateJob(_))])
    };
    assert!(starts(&begun));

    // `restoreFrom` was changed: the Job of before goes, and is there until its pod has gone.
    let labels = json!({names::LABEL_COMPONENT: "restore"});
    let old = json!({"metadata": {"name": "old", "uid": "old", "labels": labels,
        "deletionTimestamp": now().to_string()}});
    begun.copies.jobs = vec![serde_json::from_value(old).unwrap()];
    assert_eq!(plan(&begun).steps, []);
    // Somebody deleted it without its pod.
    begun.copies.jobs.clear();
    let pod = |phase: &str| {
        let pod =
            json!({"metadata": {"name": "old", "labels": labels}, "status": {"phase": phase}});
        serde_json::from_value(pod).unwrap()
    };
    begun.copies.pods = vec![pod("Running")];
    assert_eq!(plan(&begun).steps, []);
    begun.copies.pods = vec![pod("Failed")];
    assert!(starts(&begun));
}

#[test]
fn backups_are_in_nobodys_way() {
    let object = object(json!({"backup": {
        "schedule": "@foo", "recipients": ["age1…"], "to": {"volume": {"claimName": "backups"}},
    }}));
    let settings = settings();
    let facts = facts(&object, &settings);
    let made = plan(&facts);
    let is_backup = |step: &Step| matches!(step, Step::Backup(_));
    let first = made.steps.iter().position(is_backup).unwrap();
    assert!(first > 0, "{:?}", made.steps);
    assert!(made.steps[first..].iter().all(is_backup));

    // Kubernetes refuses them: that is all that is amiss.
    let problem = Problem::new(reasons::REFUSED, "Kubernetes: it knows no @foo");
    let told = without_backups(made.status.clone(), &problem, now()).conditions;
    let backed_up = find(&told, types::BACKED_UP).unwrap();
    assert_eq!(
        (backed_up.status.as_str(), backed_up.reason.as_str()),
        ("False", reasons::REFUSED)
    );
    let but = |type_: &str| find(&told, type_) == find(&made.status.conditions, type_);
    assert!(
        [types::READY, types::DEGRADED, types::PROGRESSING]
            .into_iter()
            .all(but)
    );
}

fn job(condition: &Value) -> Job {
    serde_json::from_value(json!({
        "metadata": {"name": "job", "uid": "uid-of-job", "creationTimestamp": now().to_string()},
        "status": {"conditions": condition},
    }))
    .unwrap()
}

fn ended(message: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "pod", "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "uid-of-job"},
        ]},
        "status": {"containerStatuses": [{"name": "a-mesh", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"terminated": {"exitCode": 0, "message": "drained"}}},
            {"name": "backup", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"terminated": {
                "exitCode": 1, "message": message, "finishedAt": now().to_string(),
            }}}]},
    }))
    .unwrap()
}

#[test]
fn the_last_word_of_a_job_says_how_it_ended() {
    let at = now().to_string();
    let condition = |type_: &str| json!([{"type": type_, "status": "True", "lastTransitionTime": at, "message": "too often"}]);
    let saved =
        r#"{"outcome":"Saved","snapshot":"a","bytes":7,"takenAt":"2026-01-01T00:00:00Z","kept":1}"#;
    let denied = r#"{"outcome":"Failed","reason":"AccessDenied","message":"the bucket refuses"}"#;
    let Outcome::Succeeded(_, Some(Report::Saved { bytes, .. })) =
        outcome(&job(&condition("Complete")), &[ended(saved)])
    else {
        panic!("it was saved");
    };
    assert_eq!(bytes, 7);
    let failed = |words: &[Pod]| match outcome(&job(&condition("Failed")), words) {
        Outcome::Failed {
            reason, message, ..
        } => (reason, message),
        other => panic!("{other:?}"),
    };
    let told = (
        Some(reasons::ACCESS_DENIED),
        "the bucket refuses".to_owned(),
    );
    assert_eq!(failed(&[ended(denied)]), told);
    assert_eq!(failed(&[]), (None, "too often".to_owned()));
    let log = "unexpected argument";
    let told = (None, format!("too often: {log}"));
    assert_eq!(failed(&[ended(log)]), told);
    // A pod that failed is followed by another.
    let runs = outcome(&job(&json!([])), &[ended(denied)]);
    assert_eq!(runs, Outcome::Runs(None));
}

#[test]
fn the_last_job_says_whether_the_network_is_backed_up() {
    let object = object(json!({"backup": {
        "schedule": "17 3 * * *", "recipients": ["age1…"], "to": {"volume": {"claimName": "backups"}},
    }}));
    let settings = settings();
    let mut facts = facts(&object, &settings);
    let told = |facts: &Facts| {
        let status = plan(facts).status;
        let condition = find(&status.conditions, types::BACKED_UP).unwrap();
        (condition.status.clone(), condition.reason.clone())
    };
    let is = |truth: &str, reason: &str| (truth.to_owned(), reason.to_owned());
    assert_eq!(told(&facts), is("False", reasons::PENDING));
    let at = now().to_string();
    let mut failed = job(&json!([{"type": "Failed", "status": "True", "lastTransitionTime": at}]));
    failed.metadata.labels =
        Some([(names::LABEL_COMPONENT.to_owned(), "backup".to_owned())].into());
    facts.copies.jobs = vec![failed];
    facts.copies.pods = vec![ended(
        r#"{"outcome":"Failed","reason":"NoSpace","message":"full"}"#,
    )];
    assert_eq!(told(&facts), is("False", reasons::NO_SPACE));
}
