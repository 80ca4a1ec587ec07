//! Sets that cannot be reached or configured as they are written.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

mod common;

use api::reasons::{self, types};
use common::{facts, object, settings};
use plan::conditions::find;
use plan::set::plan;
use plan::set::roster::Node;
use serde_json::{Value, json};

fn refusal(spec: Value) -> (String, String) {
    let (object, settings) = (object(spec), settings());
    let plan = plan(&facts(&object, &settings));
    assert!(plan.steps.is_empty(), "what is refused costs nothing");
    let ready = find(&plan.status.conditions, types::READY).unwrap();
    (ready.reason.clone(), ready.message.clone())
}

/// Each is refused by name, and nothing of what runs is touched.
#[test]
fn what_cannot_be_reached_or_configured_is_refused() {
    let cases = [
        (
            json!({"edge": {"port": 4000, "expose": {"type": "None"}}, "link": {"port": 4000}}),
            reasons::INVALID_SPEC,
            "are both 4000",
        ),
        (
            json!({"edge": {"listeners": [{"name": "a", "port": 10080}]}}),
            reasons::INVALID_SPEC,
            "are both 10080",
        ),
        (
            json!({"edge": {"listeners": [{"name": "a", "port": 1}]}, "link": {"listeners": [{"name": "a", "port": 2}]}}),
            reasons::INVALID_SPEC,
            "the name a",
        ),
        (
            json!({"edge": {"advertise": {"host": "all.example"}}}),
            reasons::INVALID_SPEC,
            "lamp-0 and edge of lamp-1 would both be advertised at all.example:3022",
        ),
        (
            json!({"edge": {"advertise": {"host": "{membr}.example"}}}),
            reasons::INVALID_SPEC,
            "{membr}",
        ),
        (
            json!({"edge": {"advertise": {"host": "{node}"}}}),
            reasons::INVALID_SPEC,
            "HostPort",
        ),
        (
            json!({"edge": {"expose": {"type": "NodePort"}}}),
            reasons::INVALID_SPEC,
            "advertise.host is missing",
        ),
        (
            json!({"edge": {"expose": {"type": "NodePort", "nodePort": 65535}, "advertise": {"host": "n"}}}),
            reasons::INVALID_SPEC,
            "no port for lamp-1",
        ),
        (
            json!({"edge": {"expose": {"type": "None"}, "advertise": {"port": 1}}}),
            reasons::INVALID_SPEC,
            "cannot be advertised",
        ),
        (
            json!({"replicas": 1, "edge": {"expose": {"type": "Ingress"}, "advertise": {"host": "192.0.2.1"}}}),
            reasons::INVALID_SPEC,
            "must be a name",
        ),
        (
            json!({"edge": {"options": {"x": "$Y"}}}),
            reasons::DOLLAR_IN_STRING,
            "spec.edge.options.x",
        ),
        (
            json!({"extraConfig": {"trace": {"path": "${HOME}"}}}),
            reasons::DOLLAR_IN_STRING,
            "spec.extraConfig.trace.path",
        ),
        (
            json!({"link": {"groups": ["$G"]}}),
            reasons::DOLLAR_IN_STRING,
            "spec.link.groups",
        ),
        (
            json!({"extraConfig": {"identity": {}}}),
            reasons::CONFIG_KEY_REFUSED,
            "identity",
        ),
        (
            json!({"extraConfig": {"ctrl": {"endpoint": "tls:a:1"}}}),
            reasons::CONFIG_KEY_REFUSED,
            "spec.controlPlane.endpoints",
        ),
        (
            json!({"extraConfig": {"listeners": []}}),
            reasons::CONFIG_INVALID,
            "no edge listener",
        ),
        (
            json!({"extraConfig": {"metrics": {"reportInterval": 5}}}),
            reasons::CONFIG_INVALID,
            "metrics.reportInterval",
        ),
        (
            json!({"extraConfig": {"listeners": [{"binding": "edge", "address": "tls:0.0.0.0:3022", "options": {"advertise": "elsewhere.example:443"}}]}}),
            reasons::CONFIG_INVALID,
            "spec.csr.sans",
        ),
    ];
    for (spec, reason, text) in cases {
        let (said, message) = refusal(spec.clone());
        assert_eq!(said, reason, "{spec}: {message}");
        assert!(message.contains(text), "{spec}: {message}");
    }
    // What stands in an annotation never comes to the router.
    let spec = json!({"edge": {"expose": {"type": "LoadBalancer", "annotations": {"a": "$b"}}}});
    let (object, settings) = (object(spec), settings());
    assert!(!plan(&facts(&object, &settings)).steps.is_empty());
}

/// What a set with these nodes is refused for, if it is.
fn refused_on(nodes: &[&str], spec: Value) -> Option<String> {
    let (object, settings) = (object(spec), settings());
    let mut facts = facts(&object, &settings);
    let node = |name: &&str| Node {
        name: (*name).to_owned(),
        ..Node::default()
    };
    facts.nodes = Some(nodes.iter().map(node).collect());
    let plan = plan(&facts);
    let ready = find(&plan.status.conditions, types::READY).unwrap();
    plan.steps.is_empty().then(|| ready.message.clone())
}

/// Two objects of one name would be written by turns, for ever.
#[test]
fn no_two_objects_of_a_set_want_one_name() {
    let exposed = |type_: &str| json!({"topology": "PerNode", "edge": {"expose": {"type": type_}, "advertise": {"host": "{member}.example"}}});
    for (type_, kind) in [("LoadBalancer", "Service"), ("NodePort", "Service")] {
        let message = refused_on(&["a", "a-edge"], exposed(type_)).unwrap();
        for words in [
            "spec.edge of lamp-a",
            "member lamp-a-edge",
            &format!("Kubernetes {kind} lamp-a-edge:"),
            "spec.nodes.selector",
        ] {
            assert!(message.contains(words), "{words} in: {message}");
        }
    }
    // Objects of different kinds may share a name.
    assert_eq!(refused_on(&["a", "a-edge"], exposed("Ingress")), None);
    assert_eq!(
        refused_on(&["a", "a-edge"], json!({"topology": "PerNode"})),
        None
    );
    let ports = json!([{"name": "b-edge", "port": 3443, "expose": {"type": "Ingress"}, "advertise": {"host": "{member}.other.example"}}]);
    let mut two = exposed("Ingress");
    two["edge"]["listeners"] = ports;
    let message = refused_on(&["a", "a-b"], two).unwrap();
    assert!(
        message.contains("Kubernetes Ingress lamp-a-b-edge"),
        "{message}"
    );

    // What is offered to the cluster, and what exposes a member that may come.
    let offered = json!({"mode": "proxy", "proxy": {"services": [
        {"service": "a", "port": 9000, "kubernetesService": {"name": "lamp-7-edge"}}]}});
    let spec = json!({"tunnel": offered, "edge": {"expose": {"type": "LoadBalancer"}}});
    let message = refused_on(&[], spec).unwrap();
    assert!(message.contains("member lamp-7 and port 9000"), "{message}");
    assert!(message.contains("kubernetesService.name"), "{message}");
    assert_eq!(refused_on(&[], json!({"tunnel": offered})), None);
}

/// The API server would refuse it, after the first of the set's objects is made.
#[test]
fn no_service_of_a_set_has_a_name_that_is_too_long() {
    let longest = "l".repeat(52);
    let refused = |more: Value| {
        let mut object = object(more);
        object.metadata.name = Some(longest.clone());
        let settings = settings();
        let plan = plan(&facts(&object, &settings));
        let ready = find(&plan.status.conditions, types::READY).unwrap();
        plan.steps.is_empty().then(|| ready.message.clone())
    };
    assert_eq!(
        refused(json!({"edge": {"expose": {"type": "LoadBalancer"}}})),
        None
    );
    let named = json!([{"name": "tenletters", "port": 3443, "expose": {"type": "LoadBalancer"}}]);
    let message = refused(json!({"edge": {"listeners": named}})).unwrap();
    for words in [
        "-0-tenletters of spec.edge.listeners[tenletters]",
        "65 characters",
        "shorter",
    ] {
        assert!(message.contains(words), "{words} in: {message}");
    }
    let offered = json!([{"service": "a", "port": 10000}]);
    let proxy = json!({"tunnel": {"mode": "proxy", "proxy": {"services": offered}}});
    let message = refused(proxy).unwrap();
    assert!(message.contains("kubernetesService.name"), "{message}");
}
