//! How a set that runs gets its addresses and its changes.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

mod common;

use api::reasons::{self, types};
use api::{EdgeRouter, names};
use common::{facts, object, settings, settle};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use plan::conditions::find;
use plan::set::{Facts, Network, Plan, Step, plan, render};
use serde_json::json;

/// Its address goes into the certificate for which its token is redeemed.
#[test]
fn a_member_is_registered_when_its_address_is_known() {
    let spec = json!({"replicas": 2, "edge": {"expose": {"type": "LoadBalancer"}}});
    let (object, settings) = (object(spec), settings());
    let mut facts = facts(&object, &settings);
    settle(&mut facts);
    // The second has no address yet.
    let name = Some("lamp-1-edge".to_owned());
    let second = facts
        .services
        .iter_mut()
        .find(|one| one.metadata.name == name);
    second.unwrap().status = None;
    let plan = plan(&facts);
    let registered: Vec<_> = plan
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::ApplyEdgeRouter(er) => er.metadata.name.clone(),
            _ => None,
        })
        .collect();
    assert_eq!(registered, ["lamp-0"]);

    // The first is on its way; what is said is what the second waits for.
    let mut er: EdgeRouter = render::edge_router(&facts, "lamp-0", None);
    er.metadata.finalizers = Some(vec![
        names::FINALIZER_EDGE_ROUTER.into(),
        names::FINALIZER_IN_USE.into(),
    ]);
    facts.edge_routers.push(er);
    let plan = plan_of(&facts);
    let ready = find(&plan.status.conditions, types::READY).unwrap();
    assert_eq!(ready.reason, reasons::ADDRESS_PENDING);
    assert!(
        ready
            .message
            .contains("lamp-1: Service lamp-1-edge has no address yet"),
        "{}",
        ready.message
    );
    let degraded = find(&plan.status.conditions, types::DEGRADED).unwrap();
    assert_eq!(degraded.status, "False");
}

fn plan_of(facts: &Facts) -> Plan {
    plan(facts)
}

/// The ConfigMap that a plan leaves behind for a set of load balancers.
fn map(facts: &Facts) -> Option<ConfigMap> {
    plan(facts).steps.into_iter().find_map(|step| match step {
        Step::ApplyConfigMap(map) => Some(*map),
        _ => None,
    })
}

#[test]
fn growing_adds_a_file_and_another_address_makes_another_configuration() {
    let spec = |replicas: i32| {
        object(json!({"replicas": replicas, "edge": {"expose": {"type": "LoadBalancer"}}}))
    };
    let (two, three, settings) = (spec(2), spec(3), settings());
    let mut running = facts(&two, &settings);
    settle(&mut running);
    let first = running.config_maps.last().unwrap().clone();
    let name = first.metadata.name.clone().unwrap();
    assert_eq!(first.data.as_ref().unwrap().len(), 4, "two files for each");
    let mut set = plan::set::workload::stateful_set(&running, &name, 2);
    set.metadata.uid = Some("2222".into());
    running.stateful_sets = vec![set];
    assert_eq!(map(&running), None, "nothing is left to do");

    // A third member: what the others read stays as it is.
    let mut grown = Facts {
        object: &three,
        ..running.clone()
    };
    settle(&mut grown);
    let current = grown
        .config_maps
        .iter()
        .find(|map| map.metadata.name.as_ref() == Some(&name));
    let current = current.unwrap().data.clone().unwrap();
    assert_eq!(current.len(), 6);
    for (key, text) in first.data.as_ref().unwrap() {
        assert_eq!(&current[key], text);
    }

    // Another address of a member that runs: another ConfigMap, to be rolled out.
    let mut moved = running.clone();
    let edge = Some("lamp-0-edge".to_owned());
    let service = moved
        .services
        .iter_mut()
        .find(|one| one.metadata.name == edge)
        .unwrap();
    let status = json!({"loadBalancer": {"ingress": [{"hostname": "moved.example"}]}});
    service.status = serde_json::from_value(status).unwrap();
    let other = map(&moved).unwrap();
    assert_ne!(other.metadata.name, first.metadata.name);
    assert!(other.data.unwrap()["lamp-0.names"].contains("moved.example"));

    // An address that went away is no news.
    let mut lost = running.clone();
    for service in &mut lost.services {
        service.status = None;
    }
    assert_eq!(map(&lost), None);
}

/// A set that runs is brought to load balancers when those are there, and not
/// before: its pods would have no configuration.
#[test]
fn a_set_that_runs_waits_for_the_addresses_of_its_change() {
    let (before, settings) = (object(json!({"replicas": 2})), settings());
    let mut running = facts(&before, &settings);
    settle(&mut running);
    let name = running.config_maps[0].metadata.name.clone().unwrap();
    let mut set = plan::set::workload::stateful_set(&running, &name, 2);
    set.metadata.uid = Some("2222".into());
    running.stateful_sets = vec![set.clone()];

    let wish = |replicas: i32| {
        object(json!({"replicas": replicas, "edge": {"expose": {"type": "LoadBalancer"}}}))
    };
    let (after, fewer) = (wish(2), wish(1));
    let mut changed = Facts {
        object: &after,
        ..running.clone()
    };
    let applied = |plan: &Plan| {
        plan.steps.iter().find_map(|step| match step {
            Step::ApplyStatefulSet(set) => set.spec.clone(),
            _ => None,
        })
    };
    let waiting = plan_of(&changed);
    assert_eq!(applied(&waiting), None);
    let progressing = find(&waiting.status.conditions, types::PROGRESSING).unwrap();
    assert_eq!(
        progressing.reason,
        reasons::ADDRESS_PENDING,
        "{}",
        progressing.message
    );

    // A wish for fewer is obeyed meanwhile, by the same template.
    let spec = applied(&plan_of(&Facts {
        object: &fewer,
        ..running.clone()
    }))
    .unwrap();
    assert_eq!(spec.replicas, Some(1));
    assert_eq!(spec.template, set.spec.unwrap().template);

    let last = settle(&mut changed);
    let template = json!(applied(&last).unwrap().template).to_string();
    assert!(template.contains("$(ZITI_MEMBER).yaml"), "{template}");
}

/// What a user sees when a change breaks a member: the rollout stops by itself,
/// and says so when the member's time is over.
#[test]
fn a_rollout_that_fails_stops_and_says_so() {
    let (object, settings) = (object(json!({"replicas": 2})), settings());
    let mut facts = facts(&object, &settings);
    settle(&mut facts);
    let name = facts.config_maps[0].metadata.name.clone().unwrap();
    let mut set = plan::set::workload::stateful_set(&facts, &name, 2);
    set.metadata.uid = Some("2222".into());
    set.status = serde_json::from_value(json!({"replicas": 2, "updateRevision": "new"})).unwrap();
    facts.stateful_sets = vec![set];
    let pod = |name: &str, revision: &str, ready: &str| {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "uid": name, "creationTimestamp": "1970-01-01T00:00:00Z",
                "labels": {"controller-revision-hash": revision},
            },
            "status": {
                "conditions": [{"type": "Ready", "status": ready}],
                "containerStatuses": if ready == "True" { json!([]) } else { json!([{
                    "name": "router", "image": "i", "imageID": "i", "ready": false, "restartCount": 3,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                }]) },
            },
        }))
        .unwrap()
    };
    facts.pods = vec![pod("lamp-0", "old", "True"), pod("lamp-1", "new", "False")];
    for (name, online) in [("lamp-0", "True"), ("lamp-1", "False")] {
        let mut er: EdgeRouter = render::edge_router(&facts, name, None);
        er.metadata.finalizers = Some(vec![
            names::FINALIZER_EDGE_ROUTER.into(),
            names::FINALIZER_IN_USE.into(),
        ]);
        let condition = |type_: &str| json!({"type": type_, "status": online, "reason": "Any", "message": "as it is", "lastTransitionTime": "1970-01-01T00:00:00Z"});
        er.status = serde_json::from_value(json!({
            "onlinePod": (online == "True").then_some(name),
            "conditions": [condition("Online"), condition("Ready")],
        }))
        .unwrap();
        facts.edge_routers.push(er);
    }
    let deleted = |plan: &Plan| {
        plan.steps
            .iter()
            .any(|step| matches!(step, Step::DeletePod { .. }))
    };
    let progressing = |plan: &Plan| {
        find(&plan.status.conditions, types::PROGRESSING)
            .cloned()
            .unwrap()
    };

    facts.now = Timestamp::from_second(299).unwrap();
    let soon = plan_of(&facts);
    assert!(!deleted(&soon), "the last one that works was taken down");
    assert_eq!(progressing(&soon).reason, reasons::ROLLING_OUT);
    assert_eq!(soon.requeue.map(|left| left.as_secs()), Some(1));

    facts.now = Timestamp::from_second(300).unwrap();
    let late = plan_of(&facts);
    assert!(!deleted(&late), "the last one that works was taken down");
    let said = progressing(&late);
    assert_eq!(
        (said.status.as_str(), said.reason.as_str()),
        ("False", reasons::ROLLOUT_STALLED)
    );
    for part in [
        "pod lamp-1 is not online 5 minutes",
        "CrashLoopBackOff",
        "1 more wait",
    ] {
        assert!(said.message.contains(part), "{}", said.message);
    }
    assert_eq!(late.requeue, None);

    // Nobody's time runs while the network cannot be asked.
    if let Network::Found { fault, .. } = &mut facts.network {
        *fault = Some(plan::edge_router::Problem::new(
            reasons::NETWORK_NOT_READY,
            "away",
        ));
    }
    assert_eq!(progressing(&plan_of(&facts)).reason, reasons::ROLLING_OUT);
}
