//! What `ziti-operator convert` prints works: routers of the proof of concept's manifest and a router
//! of the chart's values carry a request. Their tokens are all that the operator is given of the
//! network; it has no credential.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use api::ZitiRouter;
use testbed::kubernetes;
use testbed::ziti_in_cluster::{NAME, PORT};

use crate::data_path::{ANSWER, get, host_service, serve};
use crate::objects::truth;
use crate::stage::{self, Stage};

/// The Kubernetes Service at which `convert` says that the chart's router offers the service.
const FRONT: &str = "router-a-proxy-10432";

/// The manifest's two routers are transparent proxies, as they were, and one hosts a service. The
/// chart's router offers it in the cluster.
#[test]
fn converted_routers_come_online_and_carry_a_request() {
    stage::play("convert", async |stage| {
        let (branch, of_branch) = stage.ziti.register("branch", true).await?;
        let (_, of_center) = stage.ziti.register("center", true).await?;
        let controller = format!("{NAME}.{}.svc:{PORT}", stage.ziti.namespace);
        let manifest = edited(
            &input("seed")?,
            &[
                (
                    "namespace: ziti\n",
                    &format!("namespace: {}\n", stage.namespace),
                ),
                ("ctrl.ziti.example:443", &controller),
                ("TOKEN-OF-0", &of_branch),
                ("TOKEN-OF-1", &of_center),
            ],
        )?;
        let (objects, told) = convert(&manifest, &[])?;
        ensure!(told.contains("Pod Security level privileged"), "{told}");
        stage.allow_privileged().await?;
        apply(stage, &objects, "1.1.15").await?;
        stage.ziti.until_online(&["branch", "center"]).await?;
        stage.until("ziti-router", "ready", is_ready).await?;

        // Before a router offers it: a connection to a port whose service is not there ends the
        // controller.
        let server = serve(stage).await?;
        let service = host_service(stage, &server, &branch).await?;
        let (entry, of_entry) = stage.ziti.register("entry", true).await?;
        let values = edited(
            &input("chart-proxy")?,
            &[
                ("orders.database", "web"),
                ("TOKEN-OF-THE-ROUTER", &of_entry),
            ],
        )?;
        let place = ["--name", "router-a", "-n", &stage.namespace];
        let (objects, told) = convert(&values, &place)?;
        let offered = format!("web is offered by Kubernetes Service {FRONT}");
        ensure!(told.contains(&offered), "{told}");
        apply(stage, &objects, "1.6.0").await?;
        stage
            .ziti
            .until_online(&["branch", "center", "entry"])
            .await?;
        stage.until("router-a", "ready", is_ready).await?;

        let (identity, role) = (format!("@{entry}"), format!("@{service}"));
        stage.ziti.service_policy("Dial", &identity, &role).await?;
        let front = stage.service_address(FRONT).await?;
        let answer = get(stage, &front, 5432).await?;
        ensure!(answer == ANSWER, "the answer is {answer:?}");
        Ok(())
    });
}

/// What a person brings along; the tests of `convert` hold what is printed of it, word by word.
fn input(name: &str) -> Result<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/convert/{name}.yaml"));
    std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))
}

/// Replaces texts that must be there.
fn edited(text: &str, changes: &[(&str, &str)]) -> Result<String> {
    let mut text = text.to_owned();
    for (old, new) in changes {
        ensure!(text.contains(old), "there is no {old:?} in\n{text}");
        text = text.replace(old, new);
    }
    Ok(text)
}

/// The objects, and what is told beside them.
fn convert(text: &str, args: &[&str]) -> Result<(String, String)> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_ziti-operator"))
        .args(["convert", "-f", "-"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting ziti-operator convert")?;
    let mut stdin = program.stdin.take().context("it has no input")?;
    stdin
        .write_all(text.as_bytes())
        .context("handing over the file")?;
    drop(stdin);
    let output = program.wait_with_output().context("converting")?;
    let told = String::from_utf8(output.stderr)?;
    ensure!(output.status.success(), "nothing was converted: {told}");
    Ok((String::from_utf8(output.stdout)?, told))
}

/// Applies the objects with the image of this cluster in place of that version.
async fn apply(stage: &Stage, objects: &str, version: &str) -> Result<()> {
    let image = format!("docker.io/openziti/ziti-router:{version}\n");
    let own = format!("{}\n", stage.environment.router_image);
    let objects = edited(objects, &[(&image, &own)])?;
    kubernetes::apply_yaml(&stage.client, &objects, &stage.namespace).await
}

fn is_ready(set: &ZitiRouter) -> bool {
    let status = set.status.as_ref();
    status.is_some_and(|status| truth(&status.conditions, "Ready") == Some("True"))
}
