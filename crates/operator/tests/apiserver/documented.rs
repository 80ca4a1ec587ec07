//! The steps of docs/clusters.md, "One operator in each cluster", as they stand there: run by a
//! shell, with the real kubectl, helm and ziti, in an empty cluster.

use std::path::Path;
use std::process::Command;

use api::reasons::{self, types};
use api::{ZitiNetwork, names};
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::paths;
use testbed::ziti::{LocalController, ziti_bin};

use crate::edge_router::registered;
use crate::operator::{Operator, Options};
use crate::world::World;
use crate::ziti_network as network;

/// The blocks of code in the section, with their language.
fn blocks() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(paths::repository().join("docs/clusters.md")).unwrap();
    let (_, section) = text.split_once("## One operator in each cluster").unwrap();
    let (section, _) = section.split_once("### ").unwrap();
    let fenced = section.split("```").skip(1).step_by(2);
    fenced
        .map(|block| block.split_once('\n').unwrap())
        .map(|(language, code)| (language.to_owned(), code.to_owned()))
        .collect()
}

/// Where a person works: a directory with a kubeconfig and a login to the network.
struct Desk {
    dir: TempDir,
    kubeconfig: std::path::PathBuf,
}

impl Desk {
    fn run(&self, script: &str) {
        let programs = [paths::program("kubectl").unwrap(), ziti_bin().unwrap()];
        let programs = programs.iter().map(|program| program.parent().unwrap());
        let system = std::env::var_os("PATH").unwrap();
        let path = std::env::join_paths(
            programs
                .map(Path::to_path_buf)
                .chain(std::env::split_paths(&system)),
        );
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(self.dir.path())
            .env("PATH", path.unwrap())
            .env("HOME", self.dir.path())
            .env("KUBECONFIG", &self.kubeconfig)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}\n{told}");
    }

    /// Types what a console shows after its prompts.
    fn type_in(&self, (language, console): &(String, String)) {
        assert_eq!(language, "console");
        let script = console
            .lines()
            .map(|line| line.strip_prefix("$ ").unwrap_or(line))
            .collect::<Vec<_>>();
        self.run(&script.join("\n"));
    }
}

#[tokio::test]
async fn an_operator_gets_its_certificate_by_the_steps_that_are_written() {
    let controller = network::shared_controller().await;
    let world = World::empty("ziti").await;
    let desk = Desk {
        dir: tempfile::tempdir().unwrap(),
        kubeconfig: world.admin_kubeconfig(),
    };
    let (user, password) = (LocalController::USERNAME, LocalController::PASSWORD);
    let url = controller.url();
    desk.run(&format!("ziti edge login {url} -u {user} -p {password} -y"));
    let charts = paths::repository().join("charts");
    std::os::unix::fs::symlink(charts, desk.dir.path().join("charts")).unwrap();
    let blocks = blocks();
    let [identity, cluster, object, outside, other] = blocks.as_slice() else {
        panic!("the section has other steps: {blocks:#?}")
    };
    let manifest = object.1.replace("https://ctrl.example:1280", &url);
    std::fs::write(desk.dir.path().join("network.yaml"), manifest).unwrap();

    desk.type_in(identity);
    desk.type_in(cluster);
    let options = Options {
        install_id: Some("east"),
        // As in its pod: with the Lease that the chart lets it have, and no right to nodes.
        lease: Some(&["--nodes=false"]),
        ..Options::default()
    };
    let _operator = Operator::start_with(&world, &options);
    world
        .told::<ZitiNetwork>("ziti", types::READY, "True", reasons::READY)
        .await;
    let secret = names::admin_identity_secret("ziti");
    assert!(world.find::<Secret>(&secret).await.is_some());

    // The other way to the certificate, for another identity of the name.
    desk.run("ziti edge delete identity operator-east");
    desk.type_in(identity);
    desk.type_in(outside);
    let spec: Value = serde_saphyr::from_str(&other.1).unwrap();
    world
        .patch::<ZitiNetwork>("ziti", json!({"spec": replacing(spec)}))
        .await;
    world
        .told::<ZitiNetwork>("ziti", types::READY, "True", reasons::READY)
        .await;
    let router = json!({"networkRef": {"name": "ziti"}});
    registered(&world, "documented-a", router).await;
}

/// A merge that takes away what stood in the place of what is given.
fn replacing(mut spec: Value) -> Value {
    spec["trust"]["token"] = Value::Null;
    spec["credential"]["enrollmentToken"] = Value::Null;
    spec
}
