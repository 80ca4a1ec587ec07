//! Certificates from cert-manager: what is asked for, taken over, held back and said.
//!
//! `INSTA_UPDATE=always cargo test -p ziti-operator-plan --test controller_issuer`
//! writes the snapshot anew; read the difference before you commit it.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use api::reasons::{self, types};
use api::{ZitiController, names};
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use plan::Settings;
use plan::conditions::find;
use plan::controller::backup::Copies;
use plan::controller::config::names_of;
use plan::controller::issuer::{Adoption, Authority, Held, Issuer, Offer, Offered, Print};
use plan::controller::pki::{Leaf, Life, MemberPki, spiffe};
use plan::controller::{
    Admin, Bootstrap, Cluster, Facts, OperatorToken, Peer, Plan, Root, RootFacts, Step, Users, plan,
};
use serde_json::json;
use std::collections::BTreeMap;

const DAY: SignedDuration = SignedDuration::from_hours(24);
const MEMBER: &str = "lamp-controller-0";

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

fn object() -> ZitiController {
    let spec = json!({"pki": {"issuerRef": {"name": "network", "kind": "ClusterIssuer"}}});
    let mut object = ZitiController::new("lamp", serde_json::from_value(spec).unwrap());
    object.metadata.namespace = Some("coast".into());
    object.metadata.finalizers = Some(vec![names::FINALIZER_CONTROLLER.into()]);
    object
}

fn authority(key: &str, left: i64) -> Authority {
    let days = i32::try_from(left).unwrap();
    Authority {
        pem: format!("{key} for {left}\n"),
        key: key.into(),
        life: Life::of_days(days, now()),
    }
}

/// With so many days left of 365.
fn life(left: i32) -> Life {
    Life {
        from: now() - DAY * (365 - left),
        until: now() + DAY * left,
    }
}

/// The world of a network of one member, which has its certificates of `old`.
#[derive(Clone)]
struct World {
    object: ZitiController,
    settings: Settings,
    issuer: Issuer,
    root: Root,
    pki: BTreeMap<String, MemberPki>,
    pods: Vec<Pod>,
    extras: Vec<DynamicObject>,
    workload: Option<StatefulSet>,
}

impl World {
    /// Nothing is there but cert-manager.
    fn new() -> Self {
        Self {
            object: object(),
            settings: settings(),
            issuer: Issuer {
                installed: true,
                ..Issuer::default()
            },
            root: Root::Absent,
            pki: BTreeMap::new(),
            pods: Vec::new(),
            extras: Vec::new(),
            workload: None,
        }
    }

    /// The member runs on certificates of `old`, that have so many days left.
    fn running(left: i32) -> Self {
        let mut world = Self::new();
        world.trust(&[authority("old", 3000)]);
        let mut issued = world.offered("first", authority("old", 3000), life(left));
        world.offer(&issued);
        let print = Some(issued.print.clone());
        issued.names.insert("more".into());
        let pki = MemberPki {
            certificate: Some(Leaf {
                life: issued.life,
                names: issued.names,
                uri: issued.uri,
            }),
            signer: Some(issued.life),
            bundle_is_current: true,
            written_at: Some(now() - DAY),
            held: Held {
                certificate: print.clone(),
                signer: print,
            },
        };
        world.pki.insert(MEMBER.into(), pki);
        world.pods.push(pod(now()));
        world.extras = certificates(&world, true);
        world
    }

    fn trust(&mut self, authorities: &[Authority]) {
        self.issuer.trusted = authorities.to_vec();
        self.root = Root::Sound(RootFacts {
            bundle: authorities.iter().map(|one| one.pem.as_str()).collect(),
            key: authorities[0].key.clone(),
            made: true,
            trust_domain: Some(self.object.trust_domain()),
            life: authorities[0].life,
            restoring: None,
            restored_from: None,
        });
    }

    /// All that is asked for, for certificate and signer alike.
    fn offered(&self, digest: &str, authority: Authority, life: Life) -> Offered {
        Offered {
            print: Print {
                digest: digest.into(),
                authority: authority.key.clone(),
            },
            own: life,
            life,
            names: names_of(&self.object, 0).into_iter().collect(),
            uri: Some(spiffe(&self.object.trust_domain(), MEMBER)),
            signs: true,
            authority,
        }
    }

    fn offer(&mut self, offered: &Offered) {
        for name in [
            names::member_certificate(MEMBER),
            names::member_signer(MEMBER),
        ] {
            let offer = Offer::Sound(Box::new(offered.clone()));
            self.issuer.offers.insert(name, offer);
        }
    }

    fn plan(&self) -> Plan {
        plan(&Facts {
            object: &self.object,
            settings: &self.settings,
            stateful_set: self.workload.clone(),
            pods: self.pods.clone(),
            services: Vec::new(),
            config_maps: Vec::new(),
            claims: Vec::new(),
            extras: self.extras.clone(),
            root: self.root.clone(),
            pki: (!self.pki.is_empty()).then(|| self.pki.clone()),
            joins: BTreeMap::new(),
            web_certificates: BTreeMap::new(),
            copies: Copies::default(),
            issuer: Some(self.issuer.clone()),
            admin: Admin::Ready { digest: "d".into() },
            bootstrap: Some(Bootstrap::default()),
            cluster: Ok(Cluster {
                asked: MEMBER.into(),
                members: self.pki.keys().map(|_| leader()).collect(),
                ..Cluster::default()
            }),
            operator: Some(OperatorToken {
                identity: "id".into(),
                serial: 1,
                enrolled: true,
                made_at: now(),
            }),
            network: None,
            users: Users::default(),
            now: now(),
        })
    }

    /// What is taken over, if anything is.
    fn adopted(&self) -> Option<Vec<Adoption>> {
        let mut steps = self.plan().steps.into_iter();
        steps.find_map(|step| match step {
            Step::Adopt(given) => Some(given),
            _ => None,
        })
    }

    fn told(&self) -> (String, String) {
        let plan = self.plan();
        let condition = find(&plan.status.conditions, types::DEGRADED).unwrap();
        (condition.reason.clone(), condition.message.clone())
    }
}

fn leader() -> Peer {
    Peer {
        id: MEMBER.into(),
        address: format!("tls:{MEMBER}.coast.svc:1280"),
        voter: true,
        leader: true,
        version: "v1.6.0".into(),
        connected: true,
    }
}

fn pod(created: Timestamp) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some(MEMBER.into());
    pod.metadata.creation_timestamp = Some(Time(created));
    pod
}

/// The Certificates as cert-manager has them.
fn certificates(world: &World, ready: bool) -> Vec<DynamicObject> {
    let mut bare = world.clone();
    bare.extras.clear();
    let steps = bare.plan().steps.into_iter();
    let applied = steps.filter_map(|step| match step {
        Step::ApplyExtra(kind, object) if kind.kind == "Certificate" => Some(*object),
        _ => None,
    });
    applied
        .map(|mut object| {
            object.metadata.generation = Some(1);
            let status = if ready { "True" } else { "False" };
            object.data["status"] = json!({"conditions": [{
                "type": "Ready", "status": status, "reason": "Told",
                "message": "as it says", "observedGeneration": 1,
            }]});
            object
        })
        .collect()
}

fn both() -> Vec<Adoption> {
    vec![Adoption {
        member: MEMBER.into(),
        certificate: true,
        signer: true,
    }]
}

#[test]
fn a_certificate_and_a_signer_are_asked_for() {
    let mut shown = certificates(&World::new(), true);
    for object in &mut shown {
        object.data["status"].take();
    }
    insta::assert_yaml_snapshot!(shown);
}

#[test]
fn trust_comes_first_then_files_then_all_else() {
    let mut world = World::new();
    world.extras = certificates(&world, false);
    assert_eq!(world.plan().steps, []);
    assert_eq!(world.told().0, reasons::CERTIFICATES_PENDING);

    let issued = world.offered("first", authority("old", 3000), life(365));
    world.offer(&issued);
    let trusted = Step::KeepTrust {
        trust_domain: world.object.trust_domain(),
        bundle: issued.authority.pem.clone(),
    };
    assert_eq!(world.plan().steps, [trusted]);

    world.trust(&[issued.authority]);
    assert_eq!(world.adopted(), Some(both()));
    let running = World::running(365);
    assert_eq!(running.adopted(), None);
    assert_eq!(running.told().0, reasons::SETTLED);
    assert!(
        running.plan().steps.len() > 3,
        "Services, bundle, configuration"
    );
}

#[test]
fn one_that_was_renewed_is_taken_at_once_and_the_renewed_authority_is_trusted_before() {
    let mut world = World::running(120);
    world.offer(&world.offered("second", authority("old", 3000), life(365)));
    assert_eq!(world.adopted(), Some(both()));

    let renewed = authority("old", 6000);
    world.offer(&world.offered("third", renewed.clone(), life(365)));
    assert_eq!(world.adopted(), None);
    let bundle = format!("{}{}", renewed.pem, authority("old", 3000).pem);
    let keeps =
        |step: &Step| matches!(step, Step::KeepTrust { bundle: have, .. } if *have == bundle);
    assert!(world.plan().steps.iter().any(keeps));
    // The pod has read the old one alone, which is of the same key.
    world.trust(&[renewed, authority("old", 3000)]);
    world.pki.get_mut(MEMBER).unwrap().bundle_is_current = false;
    assert_eq!(world.adopted(), Some(both()));
}

#[test]
fn what_another_authority_signed_waits_until_all_trust_it_and_the_old_one_ends() {
    let with = |left: i32| {
        let mut world = World::running(left);
        let other = authority("new", 6000);
        world.offer(&world.offered("second", other.clone(), life(365)));
        world.trust(&[other, authority("old", 3000)]);
        world
    };
    let early = with(100);
    assert_eq!(early.adopted(), None);
    let (reason, message) = early.told();
    assert_eq!(reason, reasons::AUTHORITY_CHANGED);
    let held = (now() + DAY * 100) - DAY * 365 / 6;
    assert!(message.contains(&held.to_string()), "{message}");

    let mut late = with(60);
    assert_eq!(late.adopted(), Some(both()));
    late.pods = vec![pod(now() - DAY * 2)];
    assert_eq!(late.adopted(), None, "a pod has not read the bundle");
    late.pki.get_mut(MEMBER).unwrap().bundle_is_current = false;
    assert_eq!(late.adopted(), Some(Vec::new()), "the bundle, alone");
    // There is nothing to lose any more.
    let mut over = with(0);
    over.pods = vec![pod(now() - DAY * 2)];
    assert_eq!(over.adopted(), Some(both()));
}

#[test]
fn an_authority_is_trusted_until_it_ends() {
    let mut world = World::running(365);
    let ended = Authority {
        life: life(0),
        ..authority("ended", 1)
    };
    world.trust(&[authority("old", 3000), authority("older", 9), ended]);
    let bundle = format!(
        "{}{}",
        authority("old", 3000).pem,
        authority("older", 9).pem
    );
    let keeps =
        |step: &Step| matches!(step, Step::KeepTrust { bundle: have, .. } if *have == bundle);
    assert!(world.plan().steps.iter().any(keeps));
}

#[test]
fn what_a_certificate_lacks_is_named_and_it_is_not_taken() {
    type Change = fn(&mut Offered);
    let faults: [(Change, &str); 4] = [
        (
            |one| {
                one.names.remove("lamp-controller-0.coast.svc");
            },
            "Certificate lamp-controller-0-certificate cannot be used: it lacks the name lamp-controller-0.coast.svc",
        ),
        (
            |one| one.uri = None,
            "lacks the URI spiffe://lamp.coast.ziti/controller/lamp-controller-0",
        ),
        (
            |one| one.signs = false,
            "Certificate lamp-controller-0-signer cannot be used: it may not sign others",
        ),
        (|one| one.life = life(0), "ended at"),
    ];
    for (change, said) in faults {
        let mut world = World::new();
        world.extras = certificates(&world, true);
        let mut issued = world.offered("first", authority("old", 3000), life(365));
        change(&mut issued);
        world.offer(&issued);
        let (reason, message) = world.told();
        assert_eq!(reason, reasons::ISSUER_UNUSABLE);
        assert!(message.contains(said), "{message}");
        let plan = world.plan();
        let ready = find(&plan.status.conditions, types::READY).unwrap();
        assert_eq!(ready.reason, reasons::ISSUER_UNUSABLE);
        assert_eq!(world.adopted(), None);

        // cert-manager knows, and has not issued another one yet.
        world.extras = certificates(&world, false);
        let (reason, message) = world.told();
        assert_eq!(reason, reasons::CERTIFICATES_PENDING);
        assert!(message.contains("(Told: as it says)"), "{message}");

        // Who runs on good ones goes on, and is not told of it while there is time.
        let mut running = World::running(100);
        running.offer(&issued);
        assert_eq!(running.adopted(), None);
        assert_eq!(running.told().0, reasons::SETTLED);
        let mut late = World::running(60);
        late.offer(&issued);
        assert_eq!(late.told().0, reasons::ISSUER_UNUSABLE);
    }
}

#[test]
fn a_broken_secret_is_said_in_the_words_of_who_read_it() {
    let mut world = World::new();
    world.extras = certificates(&world, true);
    let name = names::member_certificate(MEMBER);
    let why = Offer::Unusable("has no ca.crt".into());
    world.issuer.offers.insert(name, why);
    let (reason, message) = world.told();
    assert_eq!(reason, reasons::ISSUER_UNUSABLE);
    assert!(message.contains("it has no ca.crt"), "{message}");
}

#[test]
fn without_cert_manager_nothing_is_asked_for_and_what_runs_goes_on() {
    let mut world = World::running(365);
    world.issuer.installed = false;
    world.extras.clear();
    let (reason, message) = world.told();
    assert_eq!(reason, reasons::ISSUER_UNUSABLE);
    assert!(message.contains("install cert-manager"), "{message}");
    let steps = world.plan().steps;
    let asks =
        |step: &Step| matches!(step, Step::ApplyExtra(kind, _) if kind.kind == "Certificate");
    assert!(!steps.iter().any(asks));
    let goes_on = |step: &Step| matches!(step, Step::ApplyService(_));
    assert!(steps.iter().any(goes_on));
}

#[test]
fn a_member_that_comes_waits_for_its_own_and_the_others_go_on() {
    let mut world = World::running(365);
    world.object.spec.replicas = 3;
    world.workload = Some(StatefulSet {
        spec: Some(StatefulSetSpec {
            replicas: Some(1),
            ..StatefulSetSpec::default()
        }),
        ..StatefulSet::default()
    });
    let (reason, message) = world.told();
    assert_eq!(reason, reasons::CERTIFICATES_PENDING);
    assert!(
        message.contains("lamp-controller-1-certificate"),
        "{message}"
    );
    let steps = world.plan().steps;
    let goes_on = |step: &Step| matches!(step, Step::ApplyService(_));
    assert!(steps.iter().any(goes_on), "{steps:?}");
}

#[test]
fn a_new_one_is_asked_for_once_a_day_where_the_authority_ends_first() {
    let asked = |issued: SignedDuration, chain: Life| {
        let mut world = World::running(365);
        let mut offered = world.offered("first", authority("old", 3000), chain);
        offered.own = Life {
            from: now() - issued,
            until: now() + DAY * 3650,
        };
        world.offer(&offered);
        let mut steps = world.plan().steps.into_iter();
        steps.find_map(|step| match step {
            Step::Reissue(names) => Some(names.len()),
            _ => None,
        })
    };
    assert_eq!(asked(DAY * 200, life(100)), Some(2));
    assert_eq!(asked(DAY * 200, life(200)), None, "there is time");
    assert_eq!(asked(DAY / 2, life(100)), None, "it was just issued");
}

#[test]
fn an_issuer_that_fails_is_asked_once_a_day() {
    let asked = |told: fn(&mut serde_json::Value, String), ago: SignedDuration| {
        let mut world = World::running(365);
        let mut offered = world.offered("first", authority("old", 3000), life(100));
        offered.own = Life {
            from: now() - DAY * 200,
            until: now() + DAY * 3650,
        };
        world.offer(&offered);
        for certificate in &mut world.extras {
            told(&mut certificate.data["status"], (now() - ago).to_string());
        }
        let steps = world.plan().steps;
        steps.iter().any(|step| matches!(step, Step::Reissue(_)))
    };
    let failed = |status: &mut serde_json::Value, at: String| {
        let conditions = status["conditions"].as_array_mut().unwrap();
        conditions.push(json!({
            "type": "Issuing", "status": "False", "reason": "Failed", "message": "no",
            "lastTransitionTime": at,
        }));
    };
    let forgotten = |status: &mut serde_json::Value, at: String| {
        status["lastFailureTime"] = json!(at);
    };
    for told in [failed, forgotten] {
        assert!(!asked(told, SignedDuration::from_secs(5)));
        assert!(asked(told, DAY * 2));
    }
}

#[test]
fn what_is_trusted_can_be_put_back_from_what_members_are_told() {
    let mut world = World::running(300);
    let Root::Sound(root) = &mut world.root else {
        panic!("it is there");
    };
    root.trust_domain = None;
    let plan = world.plan();
    let keep = plan.steps.iter().find_map(|step| match step {
        Step::KeepTrust { trust_domain, .. } => Some(trust_domain),
        _ => None,
    });
    assert_eq!(keep, Some(&world.object.trust_domain()), "{plan:?}");
}

#[test]
fn what_is_trusted_is_not_lost_unnoticed() {
    let mut world = World::running(365);
    world.root = Root::Absent;
    world.object.status = Some(api::ZitiControllerStatus {
        root_key: Some("old".into()),
        ..api::ZitiControllerStatus::default()
    });
    let (reason, message) = world.told();
    assert_eq!(reason, reasons::ROOT_UNUSABLE);
    assert!(
        message.contains("ConfigMap lamp-controller-ca"),
        "{message}"
    );
    assert_eq!(world.plan().steps, []);
    // Another authority than the first one is no other network.
    world.trust(&[authority("new", 6000), authority("old", 3000)]);
    assert_eq!(world.told().0, reasons::SETTLED);
}
