//! A router that was deployed as the ziti-router Helm chart does it is taken over by the steps that
//! `ziti-operator adopt` prints, which are run as they are; and handed back by them.

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use api::{EdgeRouter, ZitiNetwork};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use serde_json::json;
use testbed::paths;
use ziti::management::{EdgeRouterEntity, NewEdgeRouter};

use crate::stage::{self, NETWORK, Stage};

/// The release, and so its Deployment and its claim.
const RELEASE: &str = "legacy";
/// The router's name on the network.
const ROUTER: &str = "branch office 1";

#[test]
fn a_router_of_the_helm_chart_is_taken_over_with_its_id_its_address_and_its_volume() {
    stage::play("adopt", async |stage| {
        stage.join_network().await?;
        // By an address that is also good from here, where `adopt` runs.
        let here = json!({"spec": {"managementApi": [stage.ziti.controller.url]}});
        stage.patch::<ZitiNetwork>(NETWORK, here).await?;
        let old_name = format!("{RELEASE}-edge.{}.svc", stage.namespace);
        deploy(stage, &old_name).await?;
        stage.ziti.until_online(&[ROUTER]).await?;

        let before = router(stage).await?;

        let steps = adopt(stage)?;
        let told = String::from_utf8_lossy(&steps.stderr).into_owned();
        ensure!(steps.status.success(), "no steps: {told}");
        let script = String::from_utf8(steps.stdout)?;
        follow(stage, &script, &[])?;

        stage.until_online("edge", 1).await?;
        let after = router(stage).await?;
        ensure!(after.id == before.id, "another router");
        // Its certificate lacked the new member's name, and is replaced; it was not enrolled anew.
        ensure!(
            after.fingerprint != before.fingerprint,
            "the certificate lacks the new name: {after:?}"
        );
        ensure!(after.role_attributes == ["public"] && after.cost == 5);
        ensure!(
            after.is_tunneler_enabled,
            "its identity for services is gone"
        );
        stage.ziti.expect_online(&[ROUTER]).await?;
        let er: EdgeRouter = stage.get("edge-0").await?;
        let status = er.status.context("EdgeRouter edge-0 has no status")?;
        ensure!(status.last_re_enrollment.is_none(), "it was re-enrolled");
        let agent = status.agent.context("its pod has not reported")?;
        ensure!(agent.fingerprint == after.fingerprint, "{agent:?}");
        let path = format!("/edge-routers/{}", after.id);
        let row = stage.ziti.management.get(&path, &[]).await;
        let row = row.context("reading the router")?;
        let told = row["supportedProtocols"].to_string();
        ensure!(
            told.contains(&format!("{old_name}:3022")),
            "it advertises {told}"
        );
        let service: Service = stage.get(&format!("{RELEASE}-edge")).await?;
        let selector = service
            .spec
            .and_then(|spec| spec.selector)
            .unwrap_or_default();
        ensure!(
            selector.values().eq(["edge-0"]),
            "the old Service leads to {selector:?}"
        );
        ensure!(
            stage
                .find::<PersistentVolumeClaim>(RELEASE)
                .await?
                .is_none()
        );

        // And the way back, with the same identity.
        follow(stage, &script, &["back"])?;
        ensure!(stage.find::<EdgeRouter>("edge-0").await?.is_none());
        stage.ziti.until_online(&[ROUTER]).await?;
        let back = router(stage).await?;
        ensure!(back.id == before.id, "another router");
        let claim: PersistentVolumeClaim = stage.get(RELEASE).await?;
        let labels = claim.metadata.labels.unwrap_or_default();
        ensure!(labels.contains_key("app"), "Helm knows it by {labels:?}");
        let service: Service = stage.get(&format!("{RELEASE}-edge")).await?;
        let selector = service
            .spec
            .and_then(|spec| spec.selector)
            .unwrap_or_default();
        ensure!(
            selector.values().eq([RELEASE]),
            "the old Service leads to {selector:?}"
        );
        Ok(())
    });
}

async fn router(stage: &Stage) -> Result<EdgeRouterEntity> {
    let mut routers = stage.ziti.routers().await?;
    routers.remove(ROUTER).context("the router is gone")
}

fn adopt(stage: &Stage) -> Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_ziti-operator"))
        .args(["adopt", RELEASE, "-n", &stage.namespace])
        .args(["--network", NETWORK, "--router", ROUTER, "--name", "edge"])
        .env("KUBECONFIG", &stage.environment.kubeconfig)
        .output()
        .context("running ziti-operator adopt")
}

/// Runs the steps as a person does.
fn follow(stage: &Stage, script: &str, args: &[&str]) -> Result<()> {
    let dir = tempfile::tempdir().context("making a directory")?;
    let file = dir.path().join("adopt.sh");
    std::fs::write(&file, script).context("writing the script")?;
    let kubectl = paths::program("kubectl")?;
    let programs = kubectl.parent().context("kubectl has no directory")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .arg(&file)
        .args(args)
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("KUBECONFIG", &stage.environment.kubeconfig)
        .output()
        .context("running the steps")?;
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    ensure!(
        output.status.success(),
        "the steps failed: {out}{err}\nof\n{script}"
    );
    Ok(())
}

fn config(stage: &Stage, name: &str) -> serde_json::Value {
    let file = |name: &str| format!("/etc/ziti/config/{name}");
    let advertise = format!("{RELEASE}-edge.{}.svc:3022", stage.namespace);
    let config = json!({
        "v": 3,
        "identity": {
            "cert": file("ziti-router.cert"), "key": file("ziti-router.key"),
            "server_cert": file("ziti-router.server.chain.cert"), "ca": file("ziti-router.cas"),
        },
        "ctrl": {
            "endpoint": format!("tls:ziti-controller.{}.svc:1280", stage.ziti.namespace),
            "endpointsFile": file("endpoints.yml"),
        },
        "link": {"dialers": [{"binding": "transport"}]},
        "listeners": [
            {"binding": "edge", "address": "tls:0.0.0.0:3022", "options": {"advertise": advertise}},
            {"binding": "tunnel", "options": {"mode": "host"}},
        ],
        "edge": {"csr": {"sans": {"dns": [name], "ip": ["127.0.0.1"]}}},
    });
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{RELEASE}-config")},
        "data": {"ziti-router.yaml": config.to_string()}})
}

/// Registers a router by hand and deploys it: a Deployment whose pod enrolls on its own when there
/// is no certificate on its volume.
async fn deploy(stage: &Stage, name: &str) -> Result<()> {
    let wanted = NewEdgeRouter {
        name: ROUTER.to_owned(),
        role_attributes: vec!["public".to_owned()],
        cost: 5,
        is_tunneler_enabled: true,
        ..NewEdgeRouter::default()
    };
    let management = &stage.ziti.management;
    let id = management
        .create_edge_router(&wanted)
        .await
        .context("registering the router")?;
    let row = management.get(&format!("/edge-routers/{id}"), &[]).await;
    let row = row.context("reading the router")?;
    let token = row["enrollmentJwt"].as_str().context("it has no token")?;
    let secret = format!("{RELEASE}-token");
    stage
        .apply(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret},
            "stringData": {"enrollmentJwt": token}}),
        )
        .await?;
    stage.apply(config(stage, name)).await?;
    stage
        .apply(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": RELEASE, "labels": {"app": RELEASE}}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "50Mi"}}}}))
        .await?;
    let start = "set -e; cd /etc/ziti/config; \
        [ -s ziti-router.cert ] || ziti router enroll ziti-router.yaml --jwt /etc/ziti/token/enrollmentJwt; \
        exec ziti router run ziti-router.yaml --extend";
    let labels = json!({"app": RELEASE});
    stage
        .apply(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("{RELEASE}-edge")},
            "spec": {"selector": labels, "ports": [{"name": "edge", "port": 3022}]}}))
        .await?;
    stage
        .apply(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": RELEASE},
            "spec": {
                "replicas": 1, "strategy": {"type": "Recreate"}, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {
                    "terminationGracePeriodSeconds": 5,
                    "securityContext": {"runAsNonRoot": true, "runAsUser": 2171, "runAsGroup": 2171,
                        "fsGroup": 2171, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [{
                        "name": "ziti-router", "image": stage.environment.router_image,
                        "command": ["sh", "-c", start],
                        "resources": {"requests": {"cpu": "10m"}},
                        "securityContext": {"allowPrivilegeEscalation": false,
                            "capabilities": {"drop": ["ALL"]}},
                        "volumeMounts": [
                            {"name": "config-data", "mountPath": "/etc/ziti/config"},
                            {"name": "config", "mountPath": "/etc/ziti/config/ziti-router.yaml",
                                "subPath": "ziti-router.yaml"},
                            {"name": "token", "mountPath": "/etc/ziti/token"},
                        ],
                    }],
                    "volumes": [
                        {"name": "config-data", "persistentVolumeClaim": {"claimName": RELEASE}},
                        {"name": "config", "configMap": {"name": format!("{RELEASE}-config")}},
                        {"name": "token", "secret": {"secretName": secret}},
                    ],
                }},
            },
        }))
        .await
}
