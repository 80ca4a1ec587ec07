//! `ziti-operator convert` over what people bring along: what comes out, word by word, that it is
//! what the kinds hold, and that no key is dropped in silence.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::Path;
use std::process::Command;

use api::{EdgeRouter, ZitiNetwork, ZitiRouter};
use serde_json::Value;

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

fn check(name: &str, args: &[&str]) {
    let (out, err) = convert(name, args);
    let documents: Vec<Value> = serde_saphyr::from_multiple(&out).unwrap();
    documents.iter().for_each(is_known);
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
