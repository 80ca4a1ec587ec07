//! `ziti-operator plan`: what it tells is what the operator then does, and telling it writes nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use api::{EdgeRouter, ZitiRouter};
use serde_json::{Value, json};
use ziti::management::EdgeRouterPatch;

use crate::edge_router::registered;
use crate::operator::{AGENT_IMAGE, Operator, ROUTER_IMAGE};
use crate::set::{until_replicas, zitirouter};
use crate::world::World;
use crate::ziti_network::{self as network, NETWORK};

/// Runs the program, as the account of this kubeconfig.
pub(crate) fn plan(world: &World, kubeconfig: &Path, args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_ziti-operator"))
        .args([
            "plan",
            "--install-id",
            &world.namespace,
            "-n",
            &world.namespace,
        ])
        .args(["--agent-image", AGENT_IMAGE, "--router-image", ROUTER_IMAGE])
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .output()
        .unwrap();
    let text = text(&output);
    // The first characters of any JWT.
    assert!(!text.contains("eyJ"), "a token is printed: {text}");
    output
}

pub(crate) fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err)
}

/// A manifest in a file of the test.
pub(crate) fn file(world: &World, documents: &[Value]) -> std::path::PathBuf {
    let path = world.dir().join(format!("{}.yaml", world.namespace));
    let documents = documents
        .iter()
        .map(|document| format!("---\n{document}\n"));
    std::fs::write(&path, documents.collect::<String>()).unwrap();
    path
}

pub(crate) fn manifest(kind: &str, object: &Value) -> Value {
    let mut manifest = json!({"apiVersion": "openziti.io/v1alpha1", "kind": kind});
    manifest["metadata"] = object["metadata"].clone();
    manifest["spec"] = object["spec"].clone();
    manifest
}

/// The calls to Kubernetes that are told: verb, resource, and name where the path has one.
pub(crate) fn told(report: &Value) -> BTreeSet<(String, String, String)> {
    let objects = report["objects"].as_array().unwrap();
    let calls = objects.iter().flat_map(|o| o["calls"].as_array().unwrap());
    calls
        .filter(|call| call["to"] == "Kubernetes")
        .filter_map(|call| {
            let path = call["path"].as_str().unwrap();
            let path = path.split('?').next().unwrap();
            let below = path.split("/namespaces/").nth(1).unwrap();
            let mut parts = below.split('/').skip(1);
            let of_body = call["body"]["metadata"]["name"]
                .as_str()
                .unwrap_or_default();
            let (resource, name) = (parts.next().unwrap(), parts.next().unwrap_or(of_body));
            let verb = match call["method"].as_str().unwrap() {
                "POST" => "create",
                "PATCH" => "patch",
                "DELETE" => "delete",
                other => panic!("{other}"),
            };
            let whole = parts.next().is_none();
            whole.then(|| (verb.to_owned(), resource.to_owned(), name.to_owned()))
        })
        .collect()
}

#[tokio::test]
async fn what_is_told_of_a_new_set_is_what_the_operator_then_does() {
    let controller = network::shared_controller().await;
    let world = World::new("told").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    network::until_ready(&world).await;
    let set = zitirouter("told", 2, json!({"roleAttributes": ["red"]}));
    let file = file(&world, &[manifest("ZitiRouter", &set)]);
    let file = file.to_str().unwrap();

    let audit = world.audit();
    let output = plan(
        &world,
        &world.admin_kubeconfig(),
        &["-f", file, "-o", "json"],
    );
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The dry run by which the API server checks the file, and nothing else.
    let of_ours = |write: &&testbed::audit::Write| write.namespace == world.namespace;
    let writes = audit.writes().unwrap();
    let writes: Vec<_> = writes.iter().filter(of_ours).collect();
    assert!(
        writes
            .iter()
            .all(|write| write.resource == "zitirouters" && write.verb == "create"),
        "{writes:#?}"
    );
    assert!(world.find::<ZitiRouter>("told").await.is_none());
    let ziti = network::admin(&controller);
    assert!(network::router_named(&ziti, "told-0").await.is_none());
    let shown = plan(&world, &world.admin_kubeconfig(), &["-f", file]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    println!("{shown}");
    for line in [
        "make Service told-0",
        "once the tokens are there:",
        "make StatefulSet told",
        "register router \"told-1\"",
        "POST /edge/management/v1/edge-routers",
        r#""roleAttributes":["red"]"#,
        "none was made",
    ] {
        assert!(shown.contains(line), "no {line:?} in {shown}");
    }

    let audit = world.audit();
    world.create::<ZitiRouter>(set).await;
    until_replicas(&world, "told", 2).await;
    let done = audit.writes_by(&world.operator_user()).unwrap();
    let done = done
        .into_iter()
        .filter(|write| write.subresource.is_empty() && write.resource != "events")
        .map(|write| (write.verb, write.resource, write.name))
        .collect::<BTreeSet<_>>();
    assert_eq!(told(&report), done);
    network::router_named(&ziti, "told-1").await.unwrap();
}

#[tokio::test]
async fn a_settled_router_is_nothing_to_do_and_a_drifted_one_is_told_from_what_to_what() {
    let controller = network::shared_controller().await;
    let world = World::new("settled").await;
    network::connect(&world, &controller).await;
    let operator = Operator::start(&world);
    registered(&world, "settled-a", json!({"cost": 3})).await;
    operator.stop();
    let account = world.operator_kubeconfig();

    let output = plan(&world, &account, &["settled-a"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("nothing to do"), "{}", text(&output));

    let ziti = network::admin(&controller);
    let id = network::router_named(&ziti, "settled-a").await.unwrap().id;
    let drift = EdgeRouterPatch {
        cost: Some(99),
        ..EdgeRouterPatch::default()
    };
    ziti.patch_edge_router(&id, &drift).await.unwrap();
    let output = plan(&world, &account, &["edgerouter/settled-a"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let shown = text(&output);
    let call = format!("PATCH /edge/management/v1/edge-routers/{id}");
    for line in ["cost 99 → 3", &call, r#"{"cost":3}"#] {
        assert!(shown.contains(line), "no {line:?} in {shown}");
    }
    let untouched = ziti.edge_router(&id).await.unwrap().unwrap();
    assert_eq!(untouched.cost, 99, "told and not done");
    let before: EdgeRouter = world.get("settled-a").await;
    assert_eq!(before.status.unwrap().id, Some(id));
}

#[tokio::test]
async fn what_cannot_be_told_has_an_exit_code_of_its_own() {
    let controller = network::shared_controller().await;
    let world = World::new("untold").await;
    let mut spec = network::prepare(&world, &controller).await;
    spec["managementApi"] = json!(["https://127.0.0.1:1"]);
    let away = json!({"metadata": {"name": NETWORK}, "spec": spec});
    let set = zitirouter("untold", 1, json!({}));
    let documents = [manifest("ZitiNetwork", &away), manifest("ZitiRouter", &set)];
    let file = file(&world, &documents);
    let args = ["-f", file.to_str().unwrap()];
    let output = plan(&world, &world.admin_kubeconfig(), &args);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let shown = text(&output);
    assert!(
        shown.contains("cannot be told: ControllerUnreachable"),
        "{shown}"
    );
    assert!(shown.contains("make Service untold-0"), "{shown}");

    let args = ["no-such-object"];
    let output = plan(&world, &world.admin_kubeconfig(), &args);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output)
            .contains("no ZitiController, ZitiRouter, EdgeRouter or ZitiNetwork no-such-object")
    );
    let output = plan(&world, &world.admin_kubeconfig(), &["--no-such-flag"]);
    assert_eq!(output.status.code(), Some(1), "usage is no 2");
}

/// An operator that may not read the nodes would refuse the set; so does the plan.
#[tokio::test]
async fn plan_knows_that_the_nodes_may_not_be_read() {
    let controller = network::shared_controller().await;
    let world = World::new("blind").await;
    network::connect(&world, &controller).await;
    let set = zitirouter("blind", 1, json!({"topology": "PerNode"}));
    let file = file(&world, &[manifest("ZitiRouter", &set)]);
    let args = ["-f", file.to_str().unwrap(), "--nodes=false"];
    let output = plan(&world, &world.admin_kubeconfig(), &args);
    let shown = text(&output);
    assert!(shown.contains("rbac.nodes=true"), "{shown}");
}

#[tokio::test]
async fn a_set_with_its_tokens_is_told_to_its_workload_and_no_token_is() {
    let controller = network::shared_controller().await;
    let world = World::new("handed").await;
    let ziti = network::admin(&controller);
    let router = network::register(&ziti, "handed-by-hand", json!({})).await;
    let tokens = json!({"handed-0": network::token_of(&router)});
    let spec = json!({"replicas": 1, "tokens": tokens});
    let set = json!({"metadata": {"name": "handed"}, "spec": spec});
    let file = file(&world, &[manifest("ZitiRouter", &set)]);
    let args = ["-f", file.to_str().unwrap(), "-o", "json"];
    // As the operator's account, which may not ask for the dry run.
    let output = plan(&world, &world.operator_kubeconfig(), &args);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let note = report["notes"][0].as_str().unwrap();
    assert!(note.contains("taken as it is written"), "{note}");
    let told = told(&report);
    for (verb, resource, name) in [
        ("patch", "secrets", "handed-provided-tokens"),
        ("patch", "secrets", "handed-0-enrollment"),
        ("patch", "statefulsets", "handed"),
    ] {
        let call = (verb.to_owned(), resource.to_owned(), name.to_owned());
        assert!(told.contains(&call), "no {call:?} in {told:?}");
    }
    assert!(
        told.iter()
            .all(|(_, resource, _)| resource != "edge-routers")
    );
}
