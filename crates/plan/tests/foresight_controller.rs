//! What is told of a `ZitiController` before it is done.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use api::{ZitiController, names};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plan::Settings;
use plan::controller::backup::Copies;
use plan::controller::network::{Policies, Policy};
use plan::controller::pki::{Leaf, Life, MemberPki, spiffe};
use plan::controller::{
    Admin, Bootstrap, Cluster, Facts, OperatorToken, Peer, Root, RootFacts, Step, Users, network,
    plan,
};
use plan::edge_router::Problem;
use plan::foresight::{When, controller};
use serde_json::{Value, json};
use std::collections::BTreeMap;

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
    object.metadata.generation = Some(1);
    object
}

/// Nothing is there yet.
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
        root: Root::Absent,
        pki: None,
        admin: Admin::Absent,
        bootstrap: None,
        web_certificates: BTreeMap::new(),
        issuer: None,
        joins: BTreeMap::new(),
        copies: Copies::default(),
        cluster: Err(Problem::new(api::reasons::PENDING, "no member runs")),
        operator: None,
        network: None,
        users: Users::default(),
        now: Timestamp::from_second(1_800_000_000).unwrap(),
    }
}

/// A word for each step, and what it waits for.
fn told(facts: &Facts<'_>) -> Vec<String> {
    let (_, steps) = controller(facts);
    let mut lines: Vec<String> = Vec::new();
    for foreseen in steps {
        let what = match &foreseen.step {
            Step::ApplyService(_) => "Services".to_owned(),
            Step::ApplyConfigMap(_) => "ConfigMaps".to_owned(),
            Step::ApplyExtra(kind, _) => kind.kind.to_owned(),
            Step::ApplyStatefulSet(set) => {
                let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
                format!("StatefulSet of {}", replicas.unwrap_or_default())
            }
            Step::ApplyNetwork(_) => "ZitiNetwork".to_owned(),
            Step::AddMember { member, .. } => format!("add {member}"),
            Step::RemoveMember { member } => format!("remove {member}"),
            Step::TransferLeadership { to } => format!("hand over to {to}"),
            Step::DeletePod { name, .. } => format!("replace {name}"),
            Step::Issue(issues) => format!("certificates of {}", issues.len()),
            Step::WriteBootstrap { initialize, .. } => format!("may make: {initialize:?}"),
            other => {
                let text = format!("{other:?}");
                let name = text.split([' ', '(']).next().unwrap_or_default();
                name.to_owned()
            }
        };
        let line = match foreseen.when {
            When::Once(once) => format!("once {once}: {what}"),
            When::Now | When::Next => what,
        };
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    lines
}

#[test]
fn a_new_network_is_told_to_its_end() {
    let (object, settings) = (
        object(json!({"replicas": 3, "bootstrapPolicies": "AllRouters"})),
        settings(),
    );
    insta::assert_yaml_snapshot!(told(&facts(&object, &settings)));
}

/// Three members that have settled.
fn settled<'a>(object: &'a ZitiController, settings: &'a Settings) -> Facts<'a> {
    let mut facts = facts(object, settings);
    let life = Life::of_days(365, facts.now);
    facts.root = Root::Sound(RootFacts {
        bundle: "the root".into(),
        key: "key".into(),
        made: true,
        trust_domain: Some(object.trust_domain()),
        life: Life::of_days(7300, facts.now),
        restoring: None,
        restored_from: None,
    });
    facts.admin = Admin::Ready { digest: "d".into() };
    facts.bootstrap = Some(Bootstrap::default());
    let members: Vec<String> = (0..object.spec.replicas)
        .map(|ordinal| names::controller_member("lamp", ordinal))
        .collect();
    let issues = plan::controller::pki::due(&facts, Life::of_days(7300, facts.now));
    let pki = issues.into_iter().map(|issue| {
        let certificate = Leaf {
            life,
            names: issue.names.iter().cloned().collect(),
            uri: Some(spiffe(&issue.trust_domain, &issue.member)),
        };
        let pki = MemberPki {
            certificate: Some(certificate),
            signer: issue.signer,
            bundle_is_current: true,
            ..MemberPki::default()
        };
        (issue.member, pki)
    });
    facts.pki = Some(pki.collect());
    for _ in 0..3 {
        for step in plan(&facts).steps {
            match step {
                Step::ApplyService(service) => facts.services.push(*service),
                Step::ApplyConfigMap(map) => facts.config_maps.push(*map),
                Step::ApplyExtra(_, extra) => facts.extras.push(*extra),
                Step::ApplyStatefulSet(set) => facts.stateful_set = Some(*set),
                _ => {}
            }
        }
    }
    let set = facts.stateful_set.as_mut().unwrap();
    set.metadata.generation = Some(1);
    let status = set.status.get_or_insert_default();
    status.observed_generation = Some(1);
    status.update_revision = Some("old".into());
    let made = facts.now + SignedDuration::from_mins(1);
    facts.now = made;
    facts.pods = members
        .iter()
        .map(|name| {
            serde_json::from_value::<Pod>(json!({
                "metadata": {
                    "name": name, "uid": format!("uid-{name}"),
                    "labels": {"controller-revision-hash": "old"},
                    "creationTimestamp": made.to_string(),
                },
                "status": {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "containerStatuses": [{
                        "name": "controller", "image": "i", "imageID": "i", "ready": true,
                        "restartCount": 0, "state": {"running": {}},
                    }],
                },
            }))
            .unwrap()
        })
        .collect();
    let peer = |(ordinal, id): (usize, &String)| Peer {
        id: id.clone(),
        address: format!("tls:{id}.coast.svc:1280"),
        voter: true,
        leader: ordinal == 1,
        version: "v1.6.0".into(),
        connected: true,
    };
    facts.cluster = Ok(Cluster {
        asked: "lamp-controller-1".into(),
        members: members.iter().enumerate().map(peer).collect(),
        policies: Some(Policies {
            edge_router: Policy::Absent,
            service_edge_router: Policy::Absent,
        }),
        identities: vec![("id".into(), "ziti-operator-1".into())],
    });
    facts.operator = Some(OperatorToken {
        identity: "id".into(),
        serial: 1,
        made_at: made,
        enrolled: true,
    });
    facts.network = Some(network::network(&facts));
    facts
}

fn finalized(spec: Value) -> ZitiController {
    let mut object = object(spec);
    object.metadata.finalizers = Some(vec![names::FINALIZER_CONTROLLER.into()]);
    object
}

#[test]
fn nothing_is_told_of_a_network_that_has_settled() {
    let (object, settings) = (finalized(json!({"replicas": 3})), settings());
    assert_eq!(told(&settled(&object, &settings)), Vec::<String>::new());
}

#[test]
fn the_leader_is_told_to_restart_last() {
    let before = finalized(json!({"replicas": 3}));
    let settings = settings();
    let after = finalized(json!({"replicas": 3, "restartAt": "2026-01-01T00:00:00Z"}));
    let facts = Facts {
        object: &after,
        ..settled(&before, &settings)
    };
    let taken = "once Kubernetes has taken up the StatefulSet";
    let up = "once that member is up again";
    let expected = [
        "StatefulSet of 3".to_owned(),
        format!("{taken}: replace lamp-controller-2"),
        format!("{up}: replace lamp-controller-0"),
        format!("{up}: replace lamp-controller-1"),
    ];
    assert_eq!(told(&facts), expected);
}

#[test]
fn the_last_are_told_to_leave_first() {
    let (before, after) = (
        finalized(json!({"replicas": 3})),
        finalized(json!({"replicas": 1})),
    );
    let settings = settings();
    let facts = Facts {
        object: &after,
        ..settled(&before, &settings)
    };
    insta::assert_yaml_snapshot!(told(&facts));
}
