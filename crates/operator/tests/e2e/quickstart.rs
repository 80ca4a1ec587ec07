//! The README's example, as it is.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use api::names;
use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use serde_json::json;
use testbed::{kubernetes, operator_install, paths};

use crate::stage::{self, Stage};

const MEMBERS: [&str; 2] = ["edge-0", "edge-1"];

/// The whole way: apply a file, and two routers are online, each with an identity of its own.
#[test]
fn the_quickstart_brings_two_routers_online() {
    stage::play_in_place("ziti", async |stage| {
        stage
            .apply(
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
                    "name": stage.namespace,
                    "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
                }}),
            )
            .await?;
        let path = paths::repository().join("examples/quickstart.yaml");
        let example = std::fs::read_to_string(path).context("reading the quickstart")?;

        let applied = Instant::now();
        kubernetes::apply_yaml(&stage.client, &example, "default").await?;
        stage.until_online("edge", 2).await?;
        let took = applied.elapsed();

        stage.ziti.expect_online(&MEMBERS).await?;
        listed_as_the_readme_shows(stage)?;
        tokens_are_emptied(stage).await?;
        for member in MEMBERS {
            sees_its_own_token_only(&stage.get::<Pod>(member).await?)?;
        }
        no_secret_is_told(stage).await?;
        // Past the harness, which shows the output of failed tests only.
        let seconds = took.as_secs_f64();
        writeln!(
            std::io::stderr(),
            "from apply to both routers online: {seconds:.1} s"
        )
        .context("saying how long it took")
    });
}

/// `kubectl get ziti` shows what the README shows.
fn listed_as_the_readme_shows(stage: &Stage) -> Result<()> {
    let listed = stage.kubectl(&["get", "ziti"])?;
    let rows: Vec<Vec<&str>> = listed
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let has = |cells: &[&str]| rows.iter().any(|row| row.starts_with(cells));
    let version = format!("v{}", tag(&stage.environment.controller_image));
    for wanted in [
        &[
            "NAME",
            "REGISTERED",
            "ENROLLED",
            "ONLINE",
            "REASON",
            "ID",
            "AGE",
        ][..],
        &[
            "edgerouter.openziti.io/edge-0",
            "True",
            "True",
            "True",
            "Ready",
        ],
        &[
            "edgerouter.openziti.io/edge-1",
            "True",
            "True",
            "True",
            "Ready",
        ],
        &["NAME", "READY", "REASON", "VERSION", "AGE"],
        &["zitinetwork.openziti.io/ziti", "True", "Ready", &version],
        &["NAME", "DESIRED", "READY", "ONLINE", "STATUS", "AGE"],
        &["zitirouter.openziti.io/edge", "2", "2", "2", "Ready"],
    ] {
        ensure!(has(wanted), "no row begins with {wanted:?} in\n{listed}");
    }
    Ok(())
}

fn tag(image: &str) -> &str {
    image.rsplit_once(':').map_or("", |(_, tag)| tag)
}

/// A token that was used is nowhere any more; the keys stay, since an absent key would become a
/// directory in the pod.
async fn tokens_are_emptied(stage: &Stage) -> Result<()> {
    let empty = |secret: &Secret, key: &str| {
        let data = secret.data.as_ref();
        data.and_then(|data| data.get(key))
            .is_none_or(|value| value.0.is_empty())
    };
    for member in MEMBERS {
        let name = names::enrollment_secret(member);
        stage
            .until(&name, "emptied", |secret: &Secret| {
                empty(secret, names::TOKEN_KEY)
            })
            .await?;
    }
    let tokens = stage
        .until(
            &names::tokens_secret("edge"),
            "emptied",
            |secret: &Secret| MEMBERS.iter().all(|member| empty(secret, member)),
        )
        .await?;
    let keys: Vec<&String> = tokens.data.iter().flatten().map(|(key, _)| key).collect();
    ensure!(
        keys == MEMBERS,
        "the Secret of tokens has the keys {keys:?}"
    );
    Ok(())
}

/// Neither a token nor the password is in what the operator and the routers say or what objects
/// show.
async fn no_secret_is_told(stage: &Stage) -> Result<()> {
    let (_, password) = stage.ziti.controller.admin().await?;
    let mut told = stage.kubectl(&[
        "get",
        "ziti,statefulsets,pods,configmaps,events",
        "-o",
        "yaml",
    ])?;
    for member in MEMBERS {
        told += &stage.kubectl(&["logs", member, "--all-containers"])?;
    }
    let operator = format!("--namespace={}", operator_install::RELEASE);
    told += &stage.kubectl(&["logs", "deployment/ziti-operator", &operator])?;
    // JSON Web Tokens and PEM keys begin like that.
    for secret in ["eyJ", "PRIVATE KEY", password.as_str()] {
        let line = told.lines().find(|line| line.contains(secret));
        if let Some(line) = line {
            // The line is not shown: the log of a test is no place for it either.
            bail!("a secret is told in a line of {} characters", line.len());
        }
    }
    Ok(())
}

/// Only the init container has the Secret of tokens, and of it only the key with the pod's name.
fn sees_its_own_token_only(pod: &Pod) -> Result<()> {
    let spec = pod.spec.as_ref().context("a pod has no spec")?;
    let tokens: Vec<&str> = spec
        .volumes
        .iter()
        .flatten()
        .filter(|volume| volume.secret.is_some() || volume.projected.is_some())
        .map(|volume| volume.name.as_str())
        .collect();
    ensure!(tokens.len() == 1, "a pod mounts the Secrets {tokens:?}");
    let mounts = |containers: &[Container]| {
        let mounts = containers
            .iter()
            .flat_map(|container| container.volume_mounts.iter().flatten());
        mounts
            .filter(|mount| tokens.contains(&mount.name.as_str()))
            .map(|mount| mount.sub_path_expr.clone())
            .collect::<Vec<_>>()
    };
    let running = mounts(&spec.containers);
    ensure!(running.is_empty(), "the router's container has {running:?}");
    let enrolling = mounts(spec.init_containers.as_deref().unwrap_or_default());
    ensure!(
        enrolling == [Some("$(ZITI_MEMBER)".to_owned())],
        "the init container has {enrolling:?}"
    );
    Ok(())
}
