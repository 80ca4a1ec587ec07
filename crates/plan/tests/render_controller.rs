//! The objects of a ZitiController, whole, as they are applied.
//!
//! `INSTA_UPDATE=always cargo test -p ziti-operator-plan --test render_controller`
//! writes them anew; read the difference before you commit it.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use api::ZitiController;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::jiff::Timestamp;
use kube::{CustomResourceExt, ResourceExt};
use plan::Settings;
use plan::controller::backup::{self, BACKUP_PORT, Copies};
use plan::controller::pki::{Issue, Leaf, Life, MemberPki, due, spiffe};
use plan::controller::restore::{self, Key};
use plan::controller::web::WebCertificate;
use plan::controller::{
    Admin, Bootstrap, Cluster, Facts, OperatorToken, PORT, Peer, Root, RootFacts, Step, Users,
    network, plan,
};
use plan::edge_router::Problem;
use plan::set::sidecar::SIDECAR_PORT;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

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
    let spec = serde_json::from_value(spec).unwrap();
    let mut object = ZitiController::new("lamp", spec);
    object.metadata.namespace = Some("coast".into());
    object.metadata.uid = Some("11111111-2222-3333-4444-555555555555".into());
    object.metadata.generation = Some(4);
    object.metadata.finalizers = Some(vec![api::names::FINALIZER_CONTROLLER.into()]);
    object
}

/// Everything set otherwise than by default.
fn full() -> ZitiController {
    object(json!({
        "replicas": 3,
        "trustDomain": "coast.example",
        "image": "registry.example/own-controller:1.6.1",
        "advertised": {
            "clientApi": {"host": "{member}.coast.example", "port": 443},
            "controlPlane": {"host": "{index}.ctrl.coast.example", "port": 6262},
        },
        "expose": {"type": "LoadBalancer", "annotations": {"pool": "sea"}},
        "storage": {"size": "3Gi", "storageClassName": "fast"},
        "console": "Enabled",
        "web": {
            "options": {"idleTimeout": "30s", "minTLSVersion": "TLS1.3"},
            "altServerCerts": [{"secretRef": {"name": "public"}}],
            "metrics": {},
        },
        "enrollment": {"identityMinutes": 10, "routerMinutes": 20},
        "extraConfig": {"cluster": {"snapshotThreshold": 100}},
        "resources": {"limits": {"memory": "512Mi"}},
        "restartAt": "2026-01-01T00:00:00Z",
        "bootstrapPolicies": "AllRouters",
    }))
}

fn facts<'a>(object: &'a ZitiController, settings: &'a Settings) -> Facts<'a> {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let life = Life::of_days(7300, now);
    Facts {
        object,
        settings,
        stateful_set: None,
        pods: Vec::new(),
        services: Vec::new(),
        config_maps: Vec::new(),
        claims: Vec::new(),
        extras: Vec::new(),
        root: Root::Sound(RootFacts {
            bundle: "the root".into(),
            key: "key".into(),
            made: false,
            restoring: None,
            restored_from: None,
            trust_domain: Some(object.trust_domain()),
            life,
        }),
        pki: None,
        issuer: None,
        admin: Admin::Ready { digest: "d".into() },
        bootstrap: None,
        web_certificates: BTreeMap::from([(
            "public".to_owned(),
            WebCertificate::Ready { digest: "p".into() },
        )]),
        cluster: Err(Problem::new(api::reasons::PENDING, "no member runs")),
        joins: BTreeMap::new(),
        operator: None,
        network: None,
        copies: Copies::default(),
        users: Users::default(),
        now,
    }
}

/// What is applied, in the planner's order, until nothing but a pod is missing.
fn applied(object: &ZitiController) -> BTreeMap<String, Value> {
    let settings = settings();
    let mut facts = facts(object, &settings);
    let mut applied = BTreeMap::new();
    for _ in 0..4 {
        for step in plan(&facts).steps {
            let (name, value) = match step {
                Step::ApplyService(service) => {
                    facts.services.push((*service).clone());
                    (format!("Service {}", service.name_any()), json!(service))
                }
                Step::ApplyConfigMap(map) => {
                    facts.config_maps.push((*map).clone());
                    (format!("ConfigMap {}", map.name_any()), json!(map))
                }
                Step::ApplyExtra(kind, extra) => {
                    facts.extras.push((*extra).clone());
                    (format!("{} {}", kind.kind, extra.name_any()), json!(extra))
                }
                Step::ApplyStatefulSet(set) => {
                    facts.stateful_set = Some((*set).clone());
                    (format!("StatefulSet {}", set.name_any()), json!(set))
                }
                Step::Issue(issues) => {
                    facts.pki = Some(issued(&issues));
                    continue;
                }
                Step::WriteBootstrap {
                    initialize,
                    restore,
                } => {
                    let admin = Some("d".to_owned());
                    facts.bootstrap = Some(Bootstrap {
                        initialize,
                        restore,
                        admin,
                    });
                    continue;
                }
                _ => continue,
            };
            applied.insert(name, value);
        }
    }
    applied
}

fn issued(issues: &[Issue]) -> BTreeMap<String, MemberPki> {
    let of_members = issues.iter().map(|issue| {
        let leaf = Leaf {
            life: issue.certificate.unwrap(),
            names: issue.names.iter().cloned().collect(),
            uri: Some(spiffe(&issue.trust_domain, &issue.member)),
        };
        let pki = MemberPki {
            certificate: Some(leaf),
            signer: issue.signer,
            written_at: None,
            bundle_is_current: true,
            held: plan::controller::issuer::Held::default(),
        };
        (issue.member.clone(), pki)
    });
    of_members.collect()
}

#[test]
fn one_controller() {
    insta::assert_yaml_snapshot!(applied(&object(json!({}))));
}

#[test]
fn a_cluster_with_every_option() {
    insta::assert_yaml_snapshot!(applied(&full()));
}

/// To a bucket, with all there is to say of one.
fn backed_up() -> ZitiController {
    let recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";
    object(json!({
        "replicas": 3,
        "adminSecretRef": {"name": "boss"},
        "pod": {"nodeSelector": {"pool": "sea"}, "env": {"GODEBUG": "x"}},
        "backup": {
            "schedule": "17 3 * * *", "timeZone": "Europe/Lisbon", "recipients": [recipient], "keep": 7,
            "to": {"bucket": {
                "name": "networks", "prefix": "coast", "region": "eu-west-1",
                "endpoint": "https://s3.example.com", "credentialsSecretRef": {"name": "s3"},
                "trust": {"configMap": {"name": "s3-ca", "key": "ca.crt"}},
            }},
            "serviceAccountName": "backups",
        },
        "restoreFrom": {
            "from": {"volume": {"claimName": "backups", "path": "of/coast"}},
            "snapshot": "coast.lamp.20260101T031700Z.tar.age",
            "identitySecretRef": {"name": "age"},
        },
    }))
}

#[test]
fn what_makes_backups() {
    let (object, settings) = (backed_up(), settings());
    let mut facts = facts(&object, &settings);
    if let Root::Sound(root) = &mut facts.root {
        root.made = true;
    }
    // A cluster that nobody has asked yet.
    let life = Life::of_days(7300, facts.now);
    facts.pki = Some(issued(&due(&facts, life)));
    facts.copies.outside.clear();
    facts.claims = vec![claim("data-lamp-controller-0", "uid-of-claim")];
    let steps = plan(&facts).steps;
    let made = steps.iter().filter_map(|step| match step {
        Step::Backup(backup::Act::Apply(job)) => Some(json!(job)),
        Step::Backup(backup::Act::Issue { trust_domain, .. }) => Some(json!(trust_domain)),
        _ => None,
    });
    insta::assert_yaml_snapshot!(made.collect::<Vec<_>>());
}

fn claim(name: &str, uid: &str) -> PersistentVolumeClaim {
    let mut claim = PersistentVolumeClaim::default();
    claim.metadata.name = Some(name.to_owned());
    claim.metadata.uid = Some(uid.to_owned());
    claim
}

#[test]
fn what_fetches_a_backup() {
    let (object, settings) = (backed_up(), settings());
    let mut facts = facts(&object, &settings);
    facts.root = Root::Absent;
    let made = |facts: &Facts| match plan(facts).steps.as_slice() {
        [Step::Restore(act)] => act.clone(),
        steps => panic!("{steps:?}"),
    };
    assert_eq!(
        made(&facts),
        restore::Act::MakeKey {
            empty: BTreeSet::new()
        }
    );
    facts.copies.key = Some(Key {
        uid: "uid-of-key".into(),
        recipient: "age1…".into(),
        empty: BTreeSet::new(),
    });
    let restore::Act::CreateClaim(made_claim) = made(&facts) else {
        panic!("no claim is made");
    };
    facts.claims.push((*made_claim).clone());
    let restore::Act::CreateJob(job) = made(&facts) else {
        panic!("no Job is made");
    };
    insta::assert_yaml_snapshot!((made_claim, job));
}

#[test]
fn members_behind_an_ingress() {
    let object = object(json!({
        "replicas": 3,
        "advertised": {"clientApi": {"host": "{member}.coast.example"}},
        "expose": {"type": "Ingress"},
    }));
    let mut objects = applied(&object);
    objects.retain(|name, _| name.starts_with("Ingress") || name.starts_with("Service"));
    insta::assert_yaml_snapshot!(objects);
}

#[test]
fn the_network_that_routers_use() {
    let (object, settings) = (full(), settings());
    insta::assert_yaml_snapshot!(network::network(&facts(&object, &settings)));
}

#[test]
fn what_a_certificate_names() {
    let (object, settings) = (full(), settings());
    let facts = facts(&object, &settings);
    let life = Life::of_days(7300, facts.now);
    let names: Vec<_> = due(&facts, life)
        .into_iter()
        .map(|issue| (issue.member, issue.trust_domain, issue.names))
        .collect();
    insta::assert_yaml_snapshot!(names);
}

#[test]
fn a_status_at_rest_says_who_leads_and_when_certificates_end() {
    let (object, settings) = (full(), settings());
    let mut facts = facts(&object, &settings);
    let life = Life::of_days(7300, facts.now);
    facts.pki = Some(issued(&due(&facts, life)));
    let peer = |ordinal: i32| Peer {
        id: format!("lamp-controller-{ordinal}"),
        address: format!("tls:{ordinal}.ctrl.coast.example:6262"),
        voter: true,
        leader: ordinal == 0,
        version: "v1.6.1".into(),
        connected: true,
    };
    let mut members: Vec<Peer> = (0..3).map(peer).collect();
    // One that was removed, and still runs.
    members.push(Peer {
        voter: false,
        ..peer(3)
    });
    facts.cluster = Ok(Cluster {
        asked: "lamp-controller-0".into(),
        members,
        ..Cluster::default()
    });
    facts.operator = Some(OperatorToken {
        identity: "id".into(),
        serial: 1,
        made_at: facts.now,
        enrolled: true,
    });
    let status = plan(&facts).status;
    insta::assert_yaml_snapshot!((
        status.leader,
        status.version,
        status.members,
        status.certificate_expiry,
        status.root_expiry
    ));
}

/// The rule of the API knows the ports that a member's pod has otherwise.
#[test]
fn figures_are_served_at_no_port_that_is_taken() {
    let taken = [PORT, SIDECAR_PORT, BACKUP_PORT];
    let rule = format!("!(self in [{}, {}, {}])", taken[0], taken[1], taken[2]);
    let crd = serde_json::to_string(&ZitiController::crd()).unwrap();
    assert!(crd.contains(&rule), "{rule}");
}

/// Whoever may have the issuer sign a certificate could ask for any name in it, and so
/// for the database.
#[test]
fn where_another_issues_certificates_nobody_is_given_the_database() {
    let with = object(json!({"pki": {"issuerRef": {"name": "network"}}}));
    for (object, open) in [(with, false), (object(json!({})), true)] {
        let shown: String = applied(&object).values().map(Value::to_string).collect();
        assert_eq!(shown.contains("--backup-port"), open);
        assert_eq!(shown.contains(&BACKUP_PORT.to_string()), open, "{shown}");
    }
}
