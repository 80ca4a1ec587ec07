//! `ziti-operator plan` for a ZitiController: what it tells is what the operator then does, as far as
//! that goes where no pod runs.

use std::collections::BTreeSet;

use api::ZitiController;
use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::{Value, json};

use crate::operator::Operator;
use crate::plan_mode::{file, manifest, plan, text, told};
use crate::world::World;

const IMAGE: &str = "registry.example/ziti-controller:1.6.0";

fn lamp(more: &Value) -> Value {
    let mut spec = json!({"replicas": 3, "image": IMAGE});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": "lamp"}, "spec": spec})
}

/// The same without what waits for pods.
fn before_pods(report: &Value) -> Value {
    let mut report = report.clone();
    let calls = report["objects"][0]["calls"].as_array_mut().unwrap();
    calls.retain(|call| call["when"] != "later");
    report
}

#[tokio::test]
async fn a_network_is_told_as_the_operator_makes_it_and_a_change_of_it_with_its_order() {
    let world = World::new("lamp").await;
    let operator = Operator::start(&world);
    let manifest_file = |spec: &Value| {
        let path = file(&world, &[manifest("ZitiController", spec)]);
        path.to_str().unwrap().to_owned()
    };
    let account = world.admin_kubeconfig();
    let new = manifest_file(&lamp(&json!({})));

    let audit = world.audit();
    let output = plan(&world, &account, &["-f", &new, "-o", "json"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let writes = audit.writes().unwrap();
    let ours = writes
        .iter()
        .filter(|write| write.namespace == world.namespace);
    let dry: BTreeSet<&str> = ours.map(|write| write.resource.as_str()).collect();
    assert_eq!(dry, ["ziticontrollers"].into(), "only the dry run");
    assert!(world.find::<ZitiController>("lamp").await.is_none());
    let shown = text(&plan(&world, &account, &["-f", &new]));
    println!("{shown}");
    for line in [
        "make Secret lamp-controller-root: the root of the certificates of lamp.",
        "make Secret lamp-controller-pki: lamp-controller-0: certificate until",
        "make Secret lamp-admin: the first administrator",
        "make Secret lamp-controller-bootstrap: that lamp-controller-0 makes the network",
        "make StatefulSet lamp-controller",
        "once the first member has made the network:",
        "make identity number 1 for the operator itself",
        "make ZitiNetwork lamp",
        "take lamp-controller-2 into the cluster",
        "none was made",
    ] {
        assert!(shown.contains(line), "no {line:?} in {shown}");
    }
    assert!(!shown.contains("PRIVATE KEY") && !shown.contains("BEGIN "));

    let audit = world.audit();
    world.create::<ZitiController>(lamp(&json!({}))).await;
    world
        .until::<StatefulSet>("lamp-controller", "made", |_| true)
        .await;
    operator.stop();
    let done = audit.writes_by(&world.operator_user()).unwrap();
    let done = done
        .into_iter()
        .filter(|write| write.subresource.is_empty() && write.resource != "events")
        .map(|write| (write.verb, write.resource, write.name))
        .collect::<BTreeSet<_>>();
    assert_eq!(told(&before_pods(&report)), done);

    // Of one that is there: the change, and by whom it is named.
    let other = manifest_file(&lamp(&json!({"console": "Enabled"})));
    let shown = text(&plan(&world, &account, &["-f", &other]));
    for line in ["change StatefulSet lamp-controller", "make ConfigMap lamp"] {
        assert!(shown.contains(line), "no {line:?} in {shown}");
    }
    let shown = text(&plan(&world, &account, &["zctl/lamp"]));
    // All that is left waits for a pod.
    let first = shown.lines().nth(1);
    let waits = "  once the first member has made the network:";
    assert_eq!(first, Some(waits), "{shown}");
}
