//! What a set says of itself.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

mod common;

use api::reasons::{self, types};
use api::{ZitiRouter, ZitiRouterSpec};
use common::settings;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::jiff::Timestamp;
use plan::conditions::find;
use plan::set;
use plan::set::roster::Node;
use plan::set::{Facts, Network, Step, TokensSecret, plan};
use serde_json::json;
use std::collections::BTreeMap;

/// A set of none has no member that is still to come: nothing but the
/// StatefulSet tells that a change is on its way.
fn empty_set() -> ZitiRouter {
    let spec = json!({"networkRef": {"name": "sea"}, "replicas": 0});
    let spec: ZitiRouterSpec = serde_json::from_value(spec).unwrap();
    let mut object = ZitiRouter::new("lamp", spec);
    object.metadata.namespace = Some("coast".into());
    object.metadata.uid = Some("11111111-2222-3333-4444-555555555555".into());
    object.metadata.generation = Some(4);
    object.metadata.finalizers = Some(vec![api::names::FINALIZER_ROUTER.into()]);
    object
}

fn planned(object: &ZitiRouter, stateful_set: Option<StatefulSet>) -> set::Plan {
    let settings = settings();
    plan(&Facts {
        object,
        settings: &settings,
        home: None,
        network: Network::Found {
            fault: None,
            name_pattern: None,
            control_endpoints: Vec::new(),
            has_credential: true,
            version: None,
            asked_since: None,
        },
        edge_routers: Vec::new(),
        stateful_sets: stateful_set.into_iter().collect(),
        nodes: None,
        services: Vec::new(),
        extras: Vec::new(),
        config_maps: Vec::new(),
        pods: Vec::new(),
        refusal: None,
        claims: Vec::new(),
        tokens: TokensSecret::Ours(BTreeMap::new()),
        waiting_tokens: BTreeMap::new(),
        provided: None,
        provided_copy: None,
        now: Timestamp::UNIX_EPOCH,
    })
}

fn progressing(plan: &set::Plan) -> (&str, &str) {
    let condition = find(&plan.status.conditions, types::PROGRESSING).unwrap();
    (&condition.status, &condition.reason)
}

#[test]
fn a_change_that_no_member_shows_yet_is_not_the_end() {
    let object = empty_set();
    let first = planned(&object, None);
    let applied = first.steps.iter().find_map(|step| match step {
        Step::ApplyStatefulSet(set) => Some(set.as_ref().clone()),
        _ => None,
    });
    assert_eq!(progressing(&first), ("True", reasons::ROLLING_OUT));

    let mut stored = applied.unwrap();
    stored.metadata.uid = Some("22222222-2222-3333-4444-555555555555".into());
    stored.metadata.generation = Some(2);
    let seen = |generation| {
        let mut set = stored.clone();
        set.status = Some(StatefulSetStatus {
            observed_generation: Some(generation),
            ..StatefulSetStatus::default()
        });
        set
    };
    let behind = planned(&object, Some(seen(1)));
    assert_eq!(progressing(&behind), ("True", reasons::ROLLING_OUT));
    let settled = planned(&object, Some(seen(2)));
    assert_eq!(progressing(&settled), ("False", reasons::SETTLED));
}

#[test]
fn the_port_of_the_sidecar_is_no_listeners_port() {
    for field in ["edge", "link"] {
        let mut object = empty_set();
        let spec =
            json!({"networkRef": {"name": "sea"}, field: {"port": set::sidecar::SIDECAR_PORT}});
        object.spec = serde_json::from_value(spec).unwrap();
        let plan = planned(&object, None);
        let ready = find(&plan.status.conditions, types::READY).unwrap();
        assert_eq!(ready.reason, reasons::INVALID_SPEC);
        let named = format!("spec.{field}.port is {}", set::sidecar::SIDECAR_PORT);
        assert!(ready.message.contains(&named), "{}", ready.message);
    }
}

/// A set with a member for each node, which knows its node since it was made.
fn on_nodes(spec: &serde_json::Value) -> ZitiRouter {
    let mut object = empty_set();
    let mut json = json!({"networkRef": {"name": "sea"}, "topology": "PerNode"});
    json.as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    object.spec = serde_json::from_value(json).unwrap();
    object
}

fn node(name: &str) -> Node {
    Node {
        name: name.to_owned(),
        ..Node::default()
    }
}

/// Else a node that came back while the set was paused would count as gone all
/// the time, and its member would go at once with the end of the pause.
#[test]
fn since_when_nodes_are_gone_is_kept_true_while_nothing_else_is_done() {
    let settings = settings();
    let paused = json!({"paused": true});
    let refused =
        json!({"identityStorage": {"hostPath": {"path": "/x"}}, "pod": {"env": {"A": "$B"}}});
    for spec in [paused, refused] {
        let mut object = on_nodes(&spec);
        let gone = |nodes: Option<Vec<Node>>, object: &ZitiRouter, now: i64| {
            let mut facts = Facts {
                nodes,
                now: Timestamp::from_second(now).unwrap(),
                ..Facts::of_nothing(object, &settings)
            };
            let member = set::render::edge_router(&facts, "lamp-b", Some("b"));
            facts.edge_routers = vec![member];
            plan(&facts).status
        };
        let first = gone(Some(vec![node("a")]), &object, 100);
        assert_eq!(first.nodes_gone["lamp-b"].0.as_second(), 100, "{spec}");
        object.status = Some(first.clone());
        let still = gone(Some(vec![node("a")]), &object, 200);
        assert_eq!(still.nodes_gone, first.nodes_gone);
        let unknown = gone(None, &object, 250);
        assert_eq!(
            unknown.nodes_gone, first.nodes_gone,
            "not known is not gone"
        );
        let back = gone(Some(vec![node("a"), node("b")]), &object, 300);
        assert!(back.nodes_gone.is_empty(), "{spec}");
    }
}

/// There is a member for each node, whatever its taints: its pod would wait in
/// silence.
#[test]
fn a_node_that_does_not_take_its_member_is_told() {
    let (settings, object) = (settings(), on_nodes(&json!({})));
    let mut facts = Facts {
        nodes: Some(vec![node("tainted")]),
        ..Facts::of_nothing(&object, &settings)
    };
    facts.edge_routers = vec![set::render::edge_router(
        &facts,
        "lamp-tainted",
        Some("tainted"),
    )];
    let pod = json!({
        "metadata": {"name": "lamp-tainted-0", "labels": {
            api::names::LABEL_SET: "lamp", api::names::LABEL_MEMBER: "lamp-tainted"}},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 node(s) had untolerated taint(s)"}]},
    });
    facts.pods = vec![serde_json::from_value(pod).unwrap()];
    let status = plan(&facts).status;
    let degraded = find(&status.conditions, types::DEGRADED).unwrap();
    assert_eq!(
        (degraded.status.as_str(), degraded.reason.as_str()),
        ("True", reasons::MEMBER_FAILING)
    );
    for words in [
        "node tainted",
        "untolerated taint",
        "spec.pod.tolerations",
        "spec.nodes.selector",
    ] {
        assert!(
            degraded.message.contains(words),
            "{words} in: {}",
            degraded.message
        );
    }
}

/// What becomes of a set whose routers have `image`, or the operator's choice, on a
/// network of that version, where `running` runs already.
fn on_network(version: &str, image: Option<&str>, running: Option<&str>) -> Result<String, String> {
    let mut object = empty_set();
    object.spec.image = image.map(str::to_owned);
    let mut settings = settings();
    settings.router_image = "registry.example/ziti-router:2.0.3".into();
    let mut facts = Facts::of_nothing(&object, &settings);
    if let Network::Found { version: known, .. } = &mut facts.network {
        *known = Some(version.to_owned());
    }
    let runs = running.map(|running| {
        let mut before = object.clone();
        before.spec.image = Some(running.to_owned());
        // The template has changed since.
        before.spec.pod.priority_class_name = Some("before".into());
        let before = Facts::of_nothing(&before, &settings);
        set::workload::stateful_set(&before, "map", 0)
    });
    facts.stateful_sets.extend(runs);
    let plan = plan(&facts);
    let applied = plan.steps.iter().find_map(|step| match step {
        Step::ApplyStatefulSet(set) => {
            let pod = set.spec.as_ref()?.template.spec.as_ref()?;
            pod.containers[0].image.clone()
        }
        _ => None,
    });
    let ready = find(&plan.status.conditions, types::READY).unwrap();
    applied.ok_or_else(|| ready.reason.clone())
}

#[test]
fn a_router_of_a_newer_major_version_than_its_controllers_is_neither_chosen_nor_rolled_out() {
    let refused = Err(reasons::VERSION_REFUSED.to_owned());
    let (old, new) = (
        "registry.example/ziti-router:1.6.0",
        "registry.example/ziti-router:2.0.3",
    );
    // New sets.
    assert_eq!(on_network("v1.6.0", None, None), refused);
    assert_eq!(on_network("v1.6.0", Some(new), None), refused);
    assert_eq!(on_network("v2.0.3", None, None), Ok(new.to_owned()));
    // A change of one that runs: the operator's choice is not forced on it.
    assert_eq!(on_network("v1.6.0", None, Some(old)), Ok(old.to_owned()));
    assert_eq!(on_network("v2.0.3", None, Some(old)), Ok(new.to_owned()));
    assert_eq!(on_network("v1.6.0", Some(new), Some(old)), refused);
    // What runs already goes on, and so does what has no version.
    assert_eq!(
        on_network("v1.6.0", Some(new), Some(new)),
        Ok(new.to_owned())
    );
    assert_eq!(on_network("v0.0.0", None, None), Ok(new.to_owned()));
}
