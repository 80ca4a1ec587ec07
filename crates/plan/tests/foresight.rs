//! What is foreseen of a life of a set, without anybody doing it.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use api::{ZitiRouter, ZitiRouterSpec};
use k8s_openapi::api::core::v1::Pod;
use plan::Settings;
use plan::foresight::{self, Foreseen, When};
use plan::set::{Facts, Step, TokensSecret};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn router(replicas: i32, additions: &Value) -> ZitiRouter {
    let mut spec = json!({"networkRef": {"name": "sea"}, "replicas": replicas});
    for (key, value) in additions.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let spec: ZitiRouterSpec = serde_json::from_value(spec).unwrap();
    let mut object = ZitiRouter::new("lamp", spec);
    object.metadata.namespace = Some("coast".into());
    object.metadata.uid = Some("11111111-2222-3333-4444-555555555555".into());
    object.metadata.generation = Some(1);
    object
}

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

fn nothing<'a>(object: &'a ZitiRouter, settings: &'a Settings) -> Facts<'a> {
    Facts::of_nothing(object, settings)
}

fn tokens() -> BTreeMap<String, String> {
    ["lamp-0", "lamp-1"]
        .map(|member| (member.to_owned(), format!("token of {member}")))
        .into()
}

fn brief(foreseen: &[Foreseen<Step>]) -> Vec<String> {
    let told = foreseen.iter().map(|Foreseen { when, step }| {
        let step = format!("{step:?}");
        let name = step.split(['(', ' ']).next().unwrap().to_owned();
        match when {
            When::Now => format!("now {name}"),
            When::Next => format!("next {name}"),
            When::Once(what) => format!("once {what}: {name}"),
        }
    });
    told.collect()
}

#[test]
fn a_new_set_is_foreseen_up_to_its_workload_and_no_further_without_tokens() {
    let (object, settings) = (router(1, &json!({})), settings());
    let facts = nothing(&object, &settings);
    let (_, without) = foresight::set(&facts, &BTreeMap::new());
    let begin = [
        "now AddFinalizer",
        "now ApplyService",
        "now ApplyConfigMap",
        "now WriteTokens",
        "next ApplyEdgeRouter",
    ];
    assert_eq!(brief(&without), begin);
    let (_, with) = foresight::set(&facts, &tokens());
    let end = [
        "once the tokens are there: WriteTokens",
        "once the tokens are there: ApplyStatefulSet",
    ];
    assert_eq!(brief(&with), [&begin[..], &end[..]].concat());
}

/// The set as it is once all that is foreseen was done, with a pod for each member.
fn built<'a>(object: &'a ZitiRouter, settings: &'a Settings, members: &[&str]) -> Facts<'a> {
    let mut facts = nothing(object, settings);
    let (_, steps) = foresight::set(&facts, &tokens());
    for foreseen in steps {
        match foreseen.step {
            Step::ApplyService(service) => facts.services.push(*service),
            Step::ApplyConfigMap(map) => facts.config_maps.push(*map),
            Step::ApplyEdgeRouter(er) => facts.edge_routers.push(*er),
            Step::ApplyExtra(_, extra) => facts.extras.push(*extra),
            Step::ApplyStatefulSet(set) => {
                let mut set = *set;
                set.metadata.generation = Some(1);
                set.status.get_or_insert_default().observed_generation = Some(1);
                facts.stateful_sets = vec![set];
            }
            _ => {}
        }
    }
    facts.waiting_tokens = tokens();
    facts
        .waiting_tokens
        .retain(|member, _| members.contains(&member.as_str()));
    let keys = facts.waiting_tokens.clone().into_iter();
    facts.tokens = TokensSecret::Ours(keys.map(|(key, digest)| (key, Some(digest))).collect());
    for member in members {
        let pod = json!({"metadata": {"name": member, "uid": member}});
        facts.pods.push(serde_json::from_value::<Pod>(pod).unwrap());
    }
    facts
}

#[test]
fn a_member_that_is_scaled_away_is_foreseen_to_its_last_object() {
    let settings = settings();
    let mut two = router(2, &json!({}));
    two.metadata.finalizers = Some(vec![api::names::FINALIZER_ROUTER.into()]);
    let facts = built(&two, &settings, &["lamp-0", "lamp-1"]);
    assert!(brief(&foresight::set(&facts, &BTreeMap::new()).1).is_empty());
    let mut one = two.clone();
    one.spec.replicas = 1;
    one.metadata.generation = Some(2);
    let facts = Facts {
        object: &one,
        ..facts
    };
    let (_, steps) = foresight::set(&facts, &BTreeMap::new());
    assert_eq!(
        brief(&steps),
        [
            "now ApplyStatefulSet",
            "now DeleteExtra",
            "once the pods have ended: WriteTokens",
            "once the pods have ended: DeleteEdgeRouter",
            "once the pods have ended: ReleaseInUse",
            "once the routers are gone from the network: DeleteService",
        ]
    );
}

#[test]
fn nothing_is_foreseen_of_a_set_that_is_paused() {
    let (object, settings) = (router(1, &json!({"paused": true})), settings());
    let (plan, steps) = foresight::set(&nothing(&object, &settings), &tokens());
    assert!(plan.steps.is_empty() && steps.is_empty());
}
