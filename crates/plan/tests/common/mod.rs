//! What tests of sets begin with: an installation, a set of it, and what is known of a set of which
//! nothing was made.
#![allow(dead_code, reason = "each test program uses some of it")]

use api::{ZitiRouter, names};
use k8s_openapi::api::core::v1::Service;
use plan::Settings;
use plan::set::{Facts, Plan, Step, TokensSecret, plan};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) fn settings() -> Settings {
    Settings {
        install_id: "pier".into(),
        install_uid: None,
        agent_image: "registry.example/agent:7".into(),
        router_image: "registry.example/router:7".into(),
        controller_image: "registry.example/controller:7".into(),
        cluster_dns: None,
    }
}

/// The set `coast/lamp` in network `sea`.
pub(crate) fn object(mut spec: Value) -> ZitiRouter {
    spec["networkRef"] = json!({"name": "sea"});
    let mut object = ZitiRouter::new("lamp", serde_json::from_value(spec).unwrap());
    object.metadata.namespace = Some("coast".into());
    object.metadata.uid = Some("11111111-2222-3333-4444-555555555555".into());
    object.metadata.generation = Some(4);
    object.metadata.finalizers = Some(vec![names::FINALIZER_ROUTER.into()]);
    object
}

pub(crate) fn facts<'a>(object: &'a ZitiRouter, settings: &'a Settings) -> Facts<'a> {
    Facts {
        tokens: TokensSecret::Ours(BTreeMap::new()),
        ..Facts::of_nothing(object, settings)
    }
}

/// Plan, and let Services and ConfigMaps come to be, until nothing new does.
/// The cluster chooses node ports and addresses.
pub(crate) fn settle(facts: &mut Facts) -> Plan {
    for _ in 0..4 {
        let plan = plan(facts);
        for step in &plan.steps {
            match step {
                Step::ApplyService(service) => {
                    let service = provided(service, facts.services.len());
                    facts
                        .services
                        .retain(|one| one.metadata.name != service.metadata.name);
                    facts.services.push(service);
                }
                Step::ApplyConfigMap(map) => {
                    facts
                        .config_maps
                        .retain(|one| one.metadata.name != map.metadata.name);
                    facts.config_maps.push(map.as_ref().clone());
                }
                _ => {}
            }
        }
    }
    plan(facts)
}

fn provided(service: &Service, count: usize) -> Service {
    let mut json = serde_json::to_value(service).unwrap();
    let spec = &mut json["spec"];
    if spec["type"] != "ClusterIP" && spec["ports"][0]["nodePort"].is_null() {
        spec["ports"][0]["nodePort"] = json!(31000 + count);
    }
    if spec["type"] == "LoadBalancer" {
        json["status"] =
            json!({"loadBalancer": {"ingress": [{"ip": format!("198.51.100.{count}")}]}});
    }
    serde_json::from_value(json).unwrap()
}
