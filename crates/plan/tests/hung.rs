//! A router that does not find back to its network, in a pod that is ready.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

mod common;

use api::{names, reasons};
use common::{object, settings};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use plan::edge_router::Problem;
use plan::set;
use plan::set::{Facts, Network, Step, TokensSecret, plan, render, workload};
use serde_json::json;
use std::collections::BTreeMap;

/// Ten minutes.
const LONG: i64 = 600;

fn pod(name: &str, ready: bool) -> Pod {
    let ready = if ready { "True" } else { "False" };
    let pod = json!({
        "metadata": {"name": name, "uid": name, "creationTimestamp": "1970-01-01T00:00:00Z",
            "labels": {"controller-revision-hash": "new"}},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    });
    serde_json::from_value(pod).unwrap()
}

/// What is done, after so many seconds, for a set of two whose routers have been
/// offline since the beginning of time, with these pods.
fn done(pods: [Pod; 2], network: Option<Problem>, now: i64) -> set::Plan {
    asked_since(pods, network, 0, now)
}

/// The same where the network can be asked since `asked`.
fn asked_since(pods: [Pod; 2], network: Option<Problem>, asked: i64, now: i64) -> set::Plan {
    let (object, settings) = (object(json!({"replicas": 2})), settings());
    let mut facts = Facts {
        tokens: TokensSecret::Ours(BTreeMap::from([
            ("lamp-0".to_owned(), None),
            ("lamp-1".to_owned(), None),
        ])),
        now: Timestamp::from_second(now).unwrap(),
        ..Facts::of_nothing(&object, &settings)
    };
    let map = render::config_map(&object);
    let name = map.metadata.name.clone().unwrap();
    facts.config_maps = vec![map];
    let mut stateful_set = workload::stateful_set(&facts, &name, 2);
    stateful_set.metadata.uid = Some("2222".into());
    stateful_set.status =
        serde_json::from_value(json!({"replicas": 2, "updateRevision": "new"})).unwrap();
    facts.stateful_sets = vec![stateful_set];
    for name in ["lamp-0", "lamp-1"] {
        let mut router = render::edge_router(&facts, name, None);
        let holds = [names::FINALIZER_EDGE_ROUTER, names::FINALIZER_IN_USE];
        router.metadata.finalizers = Some(holds.map(str::to_owned).to_vec());
        let condition = |type_: &str, status: &str, reason: &str| {
            json!({"type": type_, "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "1970-01-01T00:00:00Z"})
        };
        // As the EdgeRouter's controller leaves it: it forgets the pod with which the
        // router was online.
        router.status = serde_json::from_value(json!({"conditions": [
            condition("Online", "False", reasons::OFFLINE),
            condition("Enrolled", "True", reasons::ENROLLED),
        ]}))
        .unwrap();
        facts.services.push(set::service::service(&object, name));
        facts.edge_routers.push(router);
    }
    facts.pods = pods.into();
    if let Network::Found {
        fault, asked_since, ..
    } = &mut facts.network
    {
        *fault = network;
        *asked_since = Some(Timestamp::from_second(asked).unwrap());
    }
    plan(&facts)
}

fn replaced(plan: &set::Plan) -> Vec<&str> {
    let steps = plan.steps.iter();
    let pods = steps.filter_map(|step| match step {
        Step::DeletePod { name, why, .. } => {
            assert!(why.contains("not seen it online"), "{why}");
            Some(name.as_str())
        }
        _ => None,
    });
    pods.collect()
}

#[test]
fn a_router_that_stays_offline_in_a_ready_pod_is_restarted_once_and_one_at_a_time() {
    let both = || [pod("lamp-0", true), pod("lamp-1", true)];
    let soon = done(both(), None, LONG - 1);
    assert!(replaced(&soon).is_empty());
    assert_eq!(soon.requeue.map(|left| left.as_secs()), Some(1));
    assert_eq!(replaced(&done(both(), None, LONG)), ["lamp-0"]);

    // Its next pod is not ready before it is online; the other one waits for it.
    let one_new = [pod("lamp-0", false), pod("lamp-1", true)];
    assert!(replaced(&done(one_new, None, 2 * LONG)).is_empty());

    // An operator, or a network, that has just come back has seen nothing yet.
    let back = asked_since(both(), None, LONG, LONG + 60);
    assert!(replaced(&back).is_empty());
    assert_eq!(back.requeue.map(|left| left.as_secs()), Some(LONG - 60));

    // While the network cannot be asked, nobody knows who is offline.
    let away = Problem::new(reasons::NETWORK_NOT_READY, "away");
    assert!(replaced(&done(both(), Some(away), LONG)).is_empty());
}
