//! What a set says of itself.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use api::reasons::{self, types};
use api::{ZitiRouter, ZitiRouterSpec};
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::jiff::Timestamp;
use plan::conditions::find;
use plan::set::{Facts, Network, Step, TokensSecret, plan};
use plan::{Settings, set};
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
    let settings = Settings {
        install_id: "pier".into(),
        agent_image: "registry.example/agent:7".into(),
        router_image: "registry.example/router:7".into(),
        controller_image: "registry.example/controller:7".into(),
        cluster_dns: None,
    };
    plan(&Facts {
        object,
        settings: &settings,
        network: Network::Found {
            fault: None,
            name_pattern: None,
            control_endpoints: Vec::new(),
            has_credential: true,
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
