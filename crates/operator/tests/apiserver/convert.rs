//! What `ziti-operator convert` makes of the proof of concept's manifest works.

use std::io::Write;
use std::process::{Command, Stdio};

use api::EdgeRouter;
use api::reasons::{self, types};
use serde_json::json;
use testbed::kubernetes;

use crate::operator::Operator;
use crate::set::until_replicas;
use crate::world::World;
use crate::ziti_network as network;

#[tokio::test]
async fn the_manifest_of_the_proof_of_concept_becomes_a_set_whose_tokens_are_handed_out() {
    let controller = network::shared_controller().await;
    let world = World::new("converted").await;
    let ziti = network::admin(&controller);
    let first = network::register(&ziti, "converted-branch", json!({})).await;
    let second = network::register(&ziti, "converted-center", json!({})).await;
    let manifest = json!({
        "apiVersion": "ziti.dariuszski.dev/v1alpha1", "kind": "ZitiRouter",
        "metadata": {"name": "sample", "namespace": "converted"},
        "spec": {
            "zitiMgmtApi": controller.url().trim_start_matches("https://"),
            "zitiRouterEnrollmentToken": {
                "converted-0": network::token_of(&first), "converted-1": network::token_of(&second),
            },
            "routerStatefulsetNamePrefix": "converted", "routerReplicas": 2, "debug": "1",
        },
    });
    let mut program = Command::new(env!("CARGO_BIN_EXE_ziti-operator"))
        .args(["convert", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = program.stdin.take().unwrap();
    stdin.write_all(manifest.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = program.wait_with_output().unwrap();
    assert!(output.status.success());

    let _operator = Operator::start(&world);
    let objects = String::from_utf8(output.stdout).unwrap();
    // This operator runs in no cluster whose DNS it would know.
    let known = "mode: tproxy\n    tproxy: {clusterDns: {nameservers: [192.0.2.53]}}";
    let objects = objects.replace("mode: tproxy", known);
    kubernetes::apply_yaml(&world.client, &objects, "converted")
        .await
        .unwrap();
    until_replicas(&world, "converted", 2).await;
    for (member, router) in [("converted-0", &first), ("converted-1", &second)] {
        let mounted = world.secret_value("converted-tokens", member).await;
        assert_eq!(mounted, Some(network::token_of(router)));
        world
            .told::<EdgeRouter>(member, types::ENROLLED, "False", reasons::TOKEN_READY)
            .await;
    }
}
