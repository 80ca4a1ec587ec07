//! The custom resource definitions that the chart installs are those of this crate.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

/// `charts/ziti-operator/files/crds`, a file for each kind, written by `cargo xtask crds`.
fn chart() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/ziti-operator/files/crds")
}

#[test]
fn the_charts_kinds_are_those_of_the_code() {
    let mut wanted = BTreeSet::new();
    for crd in api::crds() {
        let name = format!("{}.yaml", crd.metadata.name.clone().unwrap());
        let text = std::fs::read_to_string(chart().join(&name)).unwrap();
        let checked_in: Value = serde_saphyr::from_str(&text).unwrap();
        let generated = serde_json::to_value(&crd).unwrap();
        assert_eq!(
            checked_in, generated,
            "{name} is out of date: run `cargo xtask crds` and commit"
        );
        wanted.insert(name);
    }
    let present: BTreeSet<String> = std::fs::read_dir(chart())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(present, wanted, "no kind too many");
}

#[test]
fn every_field_says_what_it_means() {
    for crd in api::crds() {
        let crd = serde_json::to_value(&crd).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        for part in ["spec", "status"] {
            let name = format!("{}.{part}", crd["spec"]["names"]["kind"].as_str().unwrap());
            described(&name, &schema["properties"][part]);
        }
    }
}

/// Fails where a property of ours has no description for `kubectl explain`.
fn described(path: &str, schema: &Value) {
    let properties = schema["properties"].as_object().into_iter().flatten();
    for (name, property) in properties {
        let path = format!("{path}.{name}");
        assert!(
            property["description"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{path} has no description"
        );
        described(&path, property);
    }
    if schema["items"].is_object() {
        described(&format!("{path}[]"), &schema["items"]);
    }
}
