//! The objects of a set, whole, as they are applied. The names differ from the
//! product's on purpose: one in the wrong place shows.
//!
//! `INSTA_UPDATE=always cargo test -p ziti-operator-plan --test render` writes
//! them anew; read the difference before you commit it.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use api::router::{ClaimTemplate, IdentityStorage, TunnelMode};
use api::{ZitiRouter, ZitiRouterSpec};
use plan::Settings;
use plan::set::member::members;
use plan::set::roster::{Node, seats};
use plan::set::{Facts, Network};
use plan::set::{render, service, workload};
use serde_json::json;

fn settings() -> Settings {
    Settings {
        install_id: "pier".into(),
        install_uid: None,
        agent_image: "registry.example/agent:7".into(),
        router_image: "registry.example/router:7".into(),
        controller_image: "registry.example/controller:7".into(),
        cluster_dns: None,
    }
}

/// A set with nothing but what it must have.
fn plain() -> ZitiRouter {
    object(json!({"networkRef": {"name": "sea"}}))
}

/// A set with everything set otherwise than by default.
fn full() -> ZitiRouter {
    let mut object = object(json!({
        "networkRef": {"name": "sea"},
        "tokensSecretRef": {"name": "given"},
        "replicas": 3,
        "image": "registry.example/own-router:1",
        "edge": {"port": 4022},
        "link": {"port": 4080},
        "csr": {"sans": {"dns": ["lamp.example"], "ip": ["192.0.2.7"]}},
        "roleAttributes": ["public", "coast"],
        "cost": 5,
        "noTraversal": true,
        "resources": {"limits": {"memory": "256Mi"}},
        "drain": {"timeoutSeconds": 0},
        "deletionPolicy": "Retain",
        "adoptionPolicy": "ByName",
    }));
    object.spec.tunnel.mode = TunnelMode::Host;
    object.spec.identity_storage = IdentityStorage::PersistentVolumeClaim(ClaimTemplate {
        storage_class_name: Some("fast".into()),
        size: "1Gi".into(),
    });
    object
}

fn object(spec: serde_json::Value) -> ZitiRouter {
    let spec: ZitiRouterSpec = serde_json::from_value(spec).unwrap();
    let mut object = ZitiRouter::new("lamp", spec);
    object.metadata.namespace = Some("coast".into());
    object.metadata.uid = Some("11111111-2222-3333-4444-555555555555".into());
    object.metadata.generation = Some(4);
    // What a GitOps tool puts on a parent must not reach the children.
    let tracking = [("argocd.argoproj.io/instance".to_owned(), "app".to_owned())];
    object.metadata.labels = Some(tracking.into());
    object
}

fn facts<'a>(object: &'a ZitiRouter, settings: &'a Settings, endpoints: &[&str]) -> Facts<'a> {
    Facts {
        network: Network::Found {
            fault: None,
            name_pattern: Some("{install}.{namespace}.{member}".into()),
            control_endpoints: endpoints
                .iter()
                .map(|&endpoint| endpoint.to_owned())
                .collect(),
            has_credential: true,
            version: None,
            asked_since: None,
        },
        ..Facts::of_nothing(object, settings)
    }
}

#[test]
fn service() {
    insta::assert_yaml_snapshot!(service::service(&plain(), "lamp-0"));
}

#[test]
fn config_map() {
    let map = render::config_map(&plain());
    insta::assert_yaml_snapshot!(map.metadata);
    insta::assert_snapshot!(map.data.unwrap().into_values().next().unwrap());
}

#[test]
fn config_map_of_a_full_set() {
    let map = render::config_map(&full());
    insta::assert_snapshot!(map.data.unwrap().into_values().next().unwrap());
}

#[test]
fn edge_router() {
    let (object, settings) = (plain(), settings());
    insta::assert_yaml_snapshot!(render::edge_router(
        &facts(&object, &settings, &[]),
        "lamp-0",
        None
    ));
}

#[test]
fn edge_router_of_a_full_set() {
    let (object, settings) = (full(), settings());
    insta::assert_yaml_snapshot!(render::edge_router(
        &facts(&object, &settings, &[]),
        "lamp-2",
        None
    ));
}

#[test]
fn stateful_set() {
    let (object, settings) = (plain(), settings());
    let facts = facts(&object, &settings, &[]);
    insta::assert_yaml_snapshot!(workload::stateful_set(&facts, "lamp-config-0", 2));
}

#[test]
fn stateful_set_of_a_full_set() {
    let (object, settings) = (full(), settings());
    let facts = facts(&object, &settings, &["tls:control.example:6262"]);
    insta::assert_yaml_snapshot!(workload::stateful_set(&facts, "lamp-config-0", 1));
}

#[test]
fn the_same_object_is_rendered_the_same_and_another_default_image_changes_nothing_that_runs() {
    let (object, old) = (plain(), settings());
    let first = workload::stateful_set(&facts(&object, &old, &[]), "lamp-config-0", 2);
    let new = Settings {
        agent_image: "registry.example/agent:8".into(),
        router_image: "registry.example/router:8".into(),
        controller_image: "registry.example/controller:7".into(),
        ..settings()
    };
    let mut running = facts(&object, &new, &[]);
    running.stateful_sets = vec![first.clone()];
    assert_eq!(workload::stateful_set(&running, "lamp-config-0", 2), first);
    // With another change the new images come along.
    let changed = workload::stateful_set(&running, "lamp-config-1", 2);
    let text = serde_json::to_string(&changed).unwrap();
    assert!(text.contains("agent:8") && text.contains("router:8"));
}

/// What only one member's workload says: its name, its labels, and its node.
#[test]
fn stateful_set_of_a_node() {
    let object = object(json!({"networkRef": {"name": "sea"}, "topology": "PerNode"}));
    let settings = settings();
    let mut facts = facts(&object, &settings, &[]);
    facts.nodes = Some(vec![Node {
        name: "pier.example".into(),
        ..Node::default()
    }]);
    let seats = seats(&facts);
    let members = members(&facts, &seats);
    let set = workload::of_member(&facts, "lamp-config-0", &members[0], 1);
    let spec = set.spec.unwrap();
    let pod = spec.template.spec.unwrap();
    insta::assert_yaml_snapshot!(json!({
        "metadata": set.metadata,
        "selector": spec.selector,
        "labels": spec.template.metadata.unwrap().labels,
        "affinity": pod.affinity,
        "tolerations": pod.tolerations,
        "environment": pod.containers[0].env,
        "claim": spec.volume_claim_templates.unwrap()[0].metadata,
        "service": service::service(&object, &members[0].name).spec.unwrap().selector,
    }));
}
