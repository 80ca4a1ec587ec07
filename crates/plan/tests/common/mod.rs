//! What tests of sets begin with: an installation, a set of it, and what is known of a set of which
//! nothing was made.
#![allow(dead_code, reason = "each test program uses some of it")]

use api::{ZitiRouter, names};
use plan::Settings;
use plan::set::{Facts, TokensSecret};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) fn settings() -> Settings {
    Settings {
        install_id: "pier".into(),
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
