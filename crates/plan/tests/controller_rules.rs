//! Single rules of the planner of `ZitiController` of which the property world
//! (`controllers.rs`) would tell that one is broken, and not which.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use api::reasons::{self, types};
use api::{ZitiController, ZitiControllerStatus};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plan::Settings;
use plan::conditions::find;
use plan::controller::backup::Copies;
use plan::controller::cluster::{is_made, quorum};
use plan::controller::config::{client_api, control_plane};
use plan::controller::network;
use plan::controller::pki::{Leaf, Life, MemberPki, due, spiffe};
use plan::controller::web::WebCertificate;
use plan::controller::{
    Admin, Cluster, Facts, OperatorToken, Peer, Plan, Root, RootFacts, Step, Users, plan,
};
use plan::edge_router::Problem;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const DAY: SignedDuration = SignedDuration::from_hours(24);

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
    object.metadata.finalizers = Some(vec![api::names::FINALIZER_CONTROLLER.into()]);
    object
}

fn root(object: &ZitiController) -> RootFacts {
    RootFacts {
        bundle: "the root".into(),
        key: "key".into(),
        made: true,
        restoring: None,
        restored_from: None,
        trust_domain: Some(object.trust_domain()),
        life: Life::of_days(7300, now()),
    }
}

fn facts<'a>(object: &'a ZitiController, settings: &'a Settings) -> Facts<'a> {
    Facts {
        object,
        settings,
        stateful_set: None,
        pods: Vec::new(),
        services: Vec::new(),
        config_maps: Vec::new(),
        claims: Vec::new(),
        extras: Vec::new(),
        root: Root::Sound(root(object)),
        pki: None,
        issuer: None,
        admin: Admin::Ready { digest: "d".into() },
        bootstrap: None,
        web_certificates: BTreeMap::new(),
        cluster: Ok(cluster(1)),
        joins: BTreeMap::new(),
        operator: Some(OperatorToken {
            identity: "id".into(),
            serial: 1,
            made_at: now(),
            enrolled: true,
        }),
        network: None,
        copies: Copies::default(),
        users: Users::default(),
        now: now(),
    }
}

fn peer(ordinal: i32) -> Peer {
    Peer {
        id: format!("lamp-controller-{ordinal}"),
        address: format!("tls:lamp-controller-{ordinal}.coast.svc:1280"),
        voter: true,
        leader: ordinal == 0,
        version: "v1.6.0".into(),
        connected: true,
    }
}

fn cluster(members: i32) -> Cluster {
    Cluster {
        asked: "lamp-controller-0".into(),
        members: (0..members).map(peer).collect(),
        ..Cluster::default()
    }
}

/// Whether nothing is done but that certificates do not run out.
fn only_renews(plan: &Plan) -> bool {
    let renews = |step: &Step| matches!(step, Step::Issue(_) | Step::RenewRoot { .. });
    plan.steps.iter().all(renews)
}

/// The reason and the message of a condition, and that nothing else is done.
fn refused(plan: &Plan, type_: &str) -> (String, String) {
    assert!(only_renews(plan), "{:?}", plan.steps);
    let condition = find(&plan.status.conditions, type_).unwrap();
    (condition.reason.clone(), condition.message.clone())
}

#[test]
fn a_majority_is_more_than_half() {
    let majorities: Vec<usize> = (1..=5).map(quorum).collect();
    assert_eq!(majorities, [1, 2, 2, 3, 3]);
}

#[test]
fn whoever_is_connected_without_a_vote_is_in_no_cluster() {
    let gone = Peer {
        voter: false,
        ..peer(1)
    };
    let away = Peer {
        connected: false,
        ..gone.clone()
    };
    assert!(peer(1).is_member());
    assert!(!gone.is_member());
    // One that a person added without a vote.
    assert!(away.is_member());
}

#[test]
fn one_that_is_away_has_no_other_version() {
    let mut cluster = cluster(3);
    cluster.members[2].connected = false;
    cluster.members[2].version = "<not connected>".into();
    assert!(!cluster.is_mixed());
    cluster.members[1].version = "v1.6.1".into();
    assert!(cluster.is_mixed());
}

/// What is issued to the only member, whose certificate has so many days left of
/// so many, under a root of that life.
fn renewed(left: i32, of: i32, root: Life) -> Option<(Option<Life>, Option<Life>)> {
    let (object, settings) = (object(json!({})), settings());
    let mut facts = facts(&object, &settings);
    let until = now() + DAY * left;
    let member = "lamp-controller-0".to_owned();
    let fresh = due(&facts, root);
    let names = fresh[0].names.iter().cloned().collect();
    let certificate = Leaf {
        life: Life {
            from: until - DAY * of,
            until,
        },
        names,
        uri: Some(spiffe("lamp.coast.ziti", &member)),
    };
    let pki = MemberPki {
        certificate: Some(certificate),
        signer: Some(Life::of_days(3650, now())),
        written_at: None,
        bundle_is_current: true,
        held: plan::controller::issuer::Held::default(),
    };
    facts.pki = Some([(member, pki)].into());
    let issue = due(&facts, root).into_iter().next()?;
    Some((issue.certificate, issue.signer))
}

#[test]
fn a_certificate_is_renewed_when_a_third_is_left_and_not_beyond_its_root() {
    let root = Life::of_days(7300, now());
    assert_eq!(renewed(122, 365, root), None);
    let (certificate, signer) = renewed(121, 365, root).unwrap();
    assert_eq!(certificate.unwrap().until, now() + DAY * 365);
    assert_eq!(signer, None);

    // A root that ends soon shortens it, and what is as long as it is not renewed.
    let short = Life {
        until: now() + DAY * 100,
        ..root
    };
    let (certificate, _) = renewed(90, 365, short).unwrap();
    assert_eq!(certificate.unwrap().until, short.until);
    assert_eq!(renewed(100, 365, short), None);
}

#[test]
fn a_root_that_is_gone_or_another_is_not_replaced() {
    let mut object = object(json!({}));
    object.status = Some(ZitiControllerStatus {
        root_key: Some("key".into()),
        ..ZitiControllerStatus::default()
    });
    let settings = settings();
    let mut facts = facts(&object, &settings);
    let other = RootFacts {
        key: "another".into(),
        ..root(&object)
    };
    let foreign = RootFacts {
        trust_domain: Some("sea.example".into()),
        ..root(&object)
    };
    let bad = Root::Unusable("it has no ca.key".into());
    for unusable in [Root::Absent, bad, Root::Sound(other), Root::Sound(foreign)] {
        facts.root = unusable;
        let (reason, message) = refused(&plan(&facts), types::DEGRADED);
        assert_eq!(reason, reasons::ROOT_UNUSABLE);
        assert!(message.contains("lamp-controller-root"), "{message}");
    }
}

#[test]
fn no_way_leads_back_over_a_major_version_or_past_one() {
    let settings = settings();
    let rows = [
        ("v2.0.1", "ziti:1.6.0", true),
        ("v1.6.0", "ziti:3.0.0", true),
        ("v1.6.0", "ziti:2.1.0", false),
        ("v1.6.3", "ziti:1.6.0", false),
        ("v1.6.0", "ziti:latest", false),
        ("v1.6.0", "ziti@sha256:00", false),
    ];
    for (running, image, is_refused) in rows {
        let mut object = object(json!({"image": image}));
        object.status = Some(ZitiControllerStatus {
            version: Some(running.into()),
            ..ZitiControllerStatus::default()
        });
        let plan = plan(&facts(&object, &settings));
        let degraded = find(&plan.status.conditions, types::DEGRADED).unwrap();
        let reason = degraded.reason == reasons::VERSION_REFUSED;
        assert_eq!(reason, is_refused, "{running} to {image}");
        assert_eq!(only_renews(&plan), is_refused);
    }
}

#[test]
fn members_at_one_address_are_refused() {
    let host = json!({"replicas": 3, "advertised": {"controlPlane": {"host": "one.example"}}});
    let (object, settings) = (object(host), settings());
    let (reason, message) = refused(&plan(&facts(&object, &settings)), types::DEGRADED);
    assert_eq!(reason, reasons::INVALID_SPEC);
    assert!(message.contains("{member}"), "{message}");
}

#[test]
fn the_only_member_is_told_not_to_move() {
    let moved = json!({"advertised": {"controlPlane": {"host": "one.example", "port": 6262}}});
    let (object, settings) = (object(moved), settings());
    let (reason, message) = refused(&plan(&facts(&object, &settings)), types::DEGRADED);
    assert_eq!(reason, reasons::INVALID_SPEC);
    assert!(message.contains("tls:one.example:6262"), "{message}");
}

#[test]
fn a_cluster_without_a_leader_says_which_address_was_changed() {
    let moved =
        json!({"replicas": 3, "advertised": {"controlPlane": {"host": "{member}.example"}}});
    let (object, settings) = (object(moved), settings());
    let mut facts = facts(&object, &settings);
    let mut leaderless = cluster(3);
    leaderless.members[0].leader = false;
    facts.cluster = Ok(leaderless);
    let plan = plan(&facts);
    let ready = find(&plan.status.conditions, types::READY).unwrap();
    assert_eq!(ready.reason, reasons::QUORUM_LOST);
    assert!(ready.message.contains("set it back"), "{}", ready.message);
}

#[test]
fn nothing_is_written_while_paused_not_even_when_it_is_deleted() {
    let mut object = object(json!({"paused": true}));
    object.metadata.deletion_timestamp = Some(Time(now()));
    let settings = settings();
    let (reason, _) = refused(&plan(&facts(&object, &settings)), types::PROGRESSING);
    assert_eq!(reason, reasons::PAUSED);
}

/// What was made by a person who put it back is found, and what is lost is not made again.
#[test]
fn nothing_is_made_again_where_something_of_the_network_is_left() {
    let (object, settings) = (object(json!({})), settings());
    let claim = |ordinal: i32| {
        let mut claim = PersistentVolumeClaim::default();
        claim.metadata.name = Some(format!("data-lamp-controller-{ordinal}"));
        claim
    };
    // A database without its root: another root would cut off all who are enrolled.
    let mut rootless = facts(&object, &settings);
    rootless.root = Root::Absent;
    rootless.cluster = Err(Problem::new(reasons::PENDING, "no member runs"));
    assert!(
        plan(&rootless)
            .steps
            .iter()
            .any(|step| matches!(step, Step::MakeRoot { .. }))
    );
    rootless.claims = vec![claim(0)];
    let (reason, _) = refused(&plan(&rootless), types::DEGRADED);
    assert_eq!(reason, reasons::ROOT_UNUSABLE);

    // A root whose mark was lost on the way: the volumes of others tell that there was a network.
    let unmarked = RootFacts {
        made: false,
        ..root(&object)
    };
    for (claims, made) in [(vec![claim(0)], false), (vec![claim(0), claim(1)], true)] {
        let mut found = facts(&object, &settings);
        found.root = Root::Sound(unmarked.clone());
        found.cluster = Err(Problem::new(reasons::PENDING, "no member runs"));
        found.claims = claims;
        assert_eq!(is_made(&found), made);
    }
}

/// The network waits for its administrator, and says so.
#[test]
fn an_administrator_who_is_missing_is_told_and_so_is_one_who_cannot_be() {
    let settings = settings();
    let named = object(json!({"adminSecretRef": {"name": "boss"}}));
    for (admin, reason) in [
        (Admin::Absent, reasons::SOURCE_MISSING),
        (Admin::Unusable("too short".into()), reasons::SOURCE_INVALID),
    ] {
        let mut found = facts(&named, &settings);
        found.root = Root::Absent;
        found.cluster = Err(Problem::new(reasons::PENDING, "no member runs"));
        found.admin = admin;
        assert_eq!(refused(&plan(&found), types::DEGRADED).0, reason);
    }
}

/// Ports of nodes are of the whole cluster, and stand in tokens.
#[test]
fn each_member_is_advertised_by_its_own_node_port() {
    let object = object(json!({
        "replicas": 3,
        "expose": {"type": "NodePort", "nodePort": 30100},
        "advertised": {"clientApi": {"host": "ziti.example.com"}},
    }));
    let at: Vec<String> = (0..3)
        .map(|member| client_api(&object, member).to_string())
        .collect();
    assert_eq!(
        at,
        [
            "ziti.example.com:30100",
            "ziti.example.com:30101",
            "ziti.example.com:30102"
        ]
    );
    // Routers go by the members' Services.
    assert_eq!(
        control_plane(&object, 2).to_string(),
        "lamp-controller-2.coast.svc:1280"
    );
}

/// Members that refuse and members that do not answer are named by turns.
#[test]
fn an_outage_is_told_once_however_each_attempt_fails() {
    let (mut object, settings) = (object(json!({"replicas": 3})), settings());
    let mut first: Option<ZitiControllerStatus> = None;
    for (words, later) in [
        ("it refuses", 0),
        ("it does not answer", 20),
        ("it refuses", 40),
    ] {
        let mut facts = facts(&object, &settings);
        let problem = Problem::new(reasons::CONTROLLER_UNREACHABLE, words);
        facts.cluster = Err(problem);
        facts.now = now() + SignedDuration::from_secs(later);
        let status = plan(&facts).status;
        let told = first.get_or_insert_with(|| status.clone());
        assert_eq!(*told, status);
        object.status = Some(status);
    }
}

/// Its ZitiNetwork would go on with what it has in memory until the operator starts
/// again, and the administrator's password would be used meanwhile.
#[test]
fn a_certificate_of_the_operators_that_is_lost_is_replaced_once_it_had_one() {
    let object = object(json!({}));
    let settings = settings();
    let mut facts = facts(&object, &settings);
    facts.now = now() + SignedDuration::from_mins(5);
    let known = ("id".to_owned(), "ziti-operator-1".to_owned());
    facts.cluster = Ok(Cluster {
        identities: vec![known],
        ..cluster(1)
    });
    let makes = |facts: &Facts| {
        let steps = network::steps(facts);
        steps.contains(&Step::MakeOperatorIdentity { serial: 2 })
    };
    assert!(!makes(&facts));
    if let Some(operator) = &mut facts.operator {
        operator.enrolled = false;
    }
    assert!(!makes(&facts), "it may not have enrolled yet");
    let mut published = network::network(&facts);
    let mut ready = plan::conditions::Conditions::new(&[], None, now());
    let truth = plan::conditions::Truth::True;
    ready.set(types::READY, truth, reasons::READY, String::new());
    published.status = Some(api::ZitiNetworkStatus {
        conditions: ready.into_vec(),
        ..api::ZitiNetworkStatus::default()
    });
    facts.network = Some(published);
    assert!(makes(&facts));
    if let Some(operator) = &mut facts.operator {
        operator.enrolled = true;
    }
    assert!(!makes(&facts));
}

/// Members would not start: their pod waits for the Secret, and Ziti ends where it
/// cannot read it.
#[test]
fn a_certificate_for_other_names_that_cannot_be_shown_is_told_and_mended() {
    let spec = json!({"web": {"altServerCerts": [{"secretRef": {"name": "public"}}]}});
    let object = object(spec);
    let settings = settings();
    let mut facts = facts(&object, &settings);
    let mut with = |certificate: Option<WebCertificate>| {
        let certificate = certificate.map(|found| ("public".to_owned(), found));
        facts.web_certificates = certificate.into_iter().collect();
        plan(&facts)
    };
    let absent = with(Some(WebCertificate::Absent));
    let (reason, message) = refused(&absent, types::DEGRADED);
    assert_eq!(reason, reasons::SOURCE_MISSING);
    assert!(message.contains("Secret public, named in spec.web.altServerCerts[0]"));
    let why = "it has no tls.key".to_owned();
    let unusable = with(Some(WebCertificate::Unusable(why)));
    let (reason, message) = refused(&unusable, types::DEGRADED);
    assert_eq!(reason, reasons::SOURCE_INVALID);
    assert!(message.contains("it has no tls.key"), "{message}");

    let digest = "one".to_owned();
    let sound = with(Some(WebCertificate::Ready { digest }));
    assert!(!only_renews(&sound), "it goes on");
}
