//! `ziti-operator convert` over what people bring along: what comes out, word by word, that it is
//! what the kinds hold and the operator runs, and that no key is dropped in silence.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::Path;
use std::process::Command;

use api::router::ClusterDns;
use api::{EdgeRouter, ZitiNetwork, ZitiRouter};
use plan::Settings;
use plan::set::{Facts, plan};
use serde_json::Value;
use std::collections::BTreeMap;

/// The output of a conversion: the objects, and what was left behind.
fn convert(name: &str, args: &[&str]) -> (String, String) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/convert/{name}.yaml"));
    let output = Command::new(env!("CARGO_BIN_EXE_ziti-operator"))
        .args(["convert", "-f"])
        .arg(file)
        .args(args)
        .output()
        .unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{err}");
    (out, err)
}

/// Whether everything that one says is said by the other.
fn holds(wanted: &Value, actual: &Value) -> bool {
    match (wanted, actual) {
        (Value::Object(wanted), Value::Object(actual)) => wanted
            .iter()
            .all(|(key, value)| actual.get(key).is_some_and(|actual| holds(value, actual))),
        (Value::Array(wanted), Value::Array(actual)) => {
            let mut pairs = wanted.iter().zip(actual);
            wanted.len() == actual.len() && pairs.all(|(wanted, actual)| holds(wanted, actual))
        }
        _ => wanted == actual,
    }
}

/// Every key of an object of ours is one that its kind knows.
fn is_known(document: &Value) {
    let kind = document["kind"].as_str().unwrap();
    let read = |document: &Value| match kind {
        "ZitiRouter" => {
            serde_json::to_value(serde_json::from_value::<ZitiRouter>(document.clone()).unwrap())
        }
        "ZitiNetwork" => {
            serde_json::to_value(serde_json::from_value::<ZitiNetwork>(document.clone()).unwrap())
        }
        "EdgeRouter" => {
            serde_json::to_value(serde_json::from_value::<EdgeRouter>(document.clone()).unwrap())
        }
        _ => Ok(document.clone()),
    };
    let kept = read(document).unwrap();
    assert!(
        holds(&document["spec"], &kept["spec"]) || kind == "Secret",
        "{document} is {kept}"
    );
}

/// The operator would run it: nothing of it is refused.
fn is_accepted(document: &Value) {
    let mut object: ZitiRouter = serde_json::from_value(document.clone()).unwrap();
    object.metadata.namespace.get_or_insert("coast".to_owned());
    object.metadata.uid = Some("11111111-2222-3333-4444-555555555555".to_owned());
    object.metadata.generation = Some(1);
    let settings = Settings {
        install_id: "pier".to_owned(),
        install_uid: None,
        agent_image: "registry.example/agent:7".to_owned(),
        router_image: "registry.example/router:7".to_owned(),
        controller_image: "registry.example/controller:7".into(),
        cluster_dns: Some(ClusterDns {
            nameservers: vec!["192.0.2.53".to_owned()],
            domain: "cluster.local".to_owned(),
        }),
    };
    let provided = object.spec.tokens_secret_ref.as_ref();
    let plan = plan(&Facts {
        provided: provided.map(|_| Ok(BTreeMap::new())),
        ..Facts::of_nothing(&object, &settings)
    });
    assert!(!plan.steps.is_empty(), "refused: {:?}", plan.status);
}

fn check(name: &str, args: &[&str]) {
    let (out, err) = convert(name, args);
    let documents: Vec<Value> = serde_saphyr::from_multiple(&out).unwrap();
    documents.iter().for_each(is_known);
    let sets = documents.iter().filter(|one| one["kind"] == "ZitiRouter");
    sets.for_each(is_accepted);
    insta::assert_snapshot!(name, format!("{out}\n# left behind:\n{err}"));
}

#[test]
fn the_manifest_of_the_proof_of_concept() {
    check("seed", &[]);
}

#[test]
fn the_manifest_of_the_proof_of_concept_with_its_controller() {
    check("seed-with-controller", &[]);
}

#[test]
fn a_release_of_the_chart_in_proxy_mode() {
    check("chart-proxy", &["--name", "router-a", "-n", "ziti"]);
}

#[test]
fn a_release_of_the_chart_in_public() {
    check("chart-public", &["--name", "edge1", "-n", "ziti"]);
}

#[test]
fn a_release_of_the_chart_as_a_transparent_proxy() {
    check("chart-tproxy", &["--name", "gw1", "--network", "ziti"]);
}

#[test]
fn a_release_of_the_chart_with_everything_that_has_a_place_of_its_own() {
    check("chart-options", &["--name", "edge2", "-n", "ziti"]);
}

#[test]
fn a_release_of_the_chart_that_nobody_dials() {
    check("chart-bare", &["--name", "gw2", "--network", "ziti"]);
}
