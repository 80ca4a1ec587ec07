//! A network whose certificates come from cert-manager.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::{ZitiController, names};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testbed::{cert_manager, kubernetes};

use crate::controllers::{CONTROLLER, Network, controller, until_settled};
use crate::stage::{self, Stage, say};

async fn apply(stage: &Stage, kind: &str, name: &str, spec: Value) -> Result<()> {
    let object = json!({"apiVersion": "cert-manager.io/v1", "kind": kind,
        "metadata": {"name": name}, "spec": spec});
    stage.apply(object).await
}

/// Has a Certificate issued anew, as `cmctl renew` does, and waits until the pod of that member is
/// another one that is ready.
async fn renewed(stage: &Stage, certificate: &str, member: &str) -> Result<()> {
    let before: Pod = stage.get(member).await?;
    let kind = GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> =
        Api::namespaced_with(stage.client.clone(), &stage.namespace, &resource);
    let found = api
        .get(certificate)
        .await
        .context("reading a Certificate")?;
    let mut conditions = found.data["status"]["conditions"].clone();
    let list = conditions.as_array_mut();
    list.context("it has no conditions")?.push(json!({
        "type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by a test",
        "lastTransitionTime": Timestamp::now(),
    }));
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    api.patch_status(certificate, &PatchParams::default(), &patch)
        .await
        .context("asking for a new certificate")?;
    stage
        .until(member, "another that is ready", |pod: &Pod| {
            let status = pod.status.as_ref();
            let conditions = status.and_then(|status| status.conditions.as_ref());
            let mut conditions = conditions.into_iter().flatten();
            pod.uid() != before.uid()
                && conditions.any(|one| one.type_ == "Ready" && one.status == "True")
        })
        .await?;
    Ok(())
}

/// A root that signed itself, an issuer between that it signed, and a network of that: a router comes online, stays so
/// or comes back when certificates are renewed, and goes on while one member becomes three.
#[test]
fn a_network_runs_on_certificates_from_cert_manager_and_follows_their_renewal() {
    stage::play_alone("cert-manager", async |stage| {
        cert_manager::install(&stage.client).await?;
        let logs = tempfile::tempdir().context("making a directory")?;
        let log = logs.path().join("cert-manager.log");
        let running = cert_manager::start(&stage.environment.kubeconfig, &log)?;
        let outcome = Box::pin(lives(stage)).await;
        if outcome.is_err() {
            say(&testbed::process::tail(&log, 60));
        }
        running.kill();
        cert_manager::remove(&stage.client).await?;
        outcome
    });
}

async fn lives(stage: &Stage) -> Result<()> {
    apply(stage, "Issuer", "self-signed", json!({"selfSigned": {}})).await?;
    for (name, by) in [("root", "self-signed"), ("network", "root")] {
        let authority = json!({"isCA": true, "commonName": name, "secretName": name,
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Never"},
            "issuerRef": {"name": by}});
        apply(stage, "Certificate", name, authority).await?;
        let issuer = json!({"ca": {"secretName": name}});
        apply(stage, "Issuer", name, issuer).await?;
    }

    let begun = Instant::now();
    let pki = json!({"issuerRef": {"name": "network"}});
    controller(
        stage,
        json!({"pki": pki, "bootstrapPolicies": "AllRouters"}),
    )
    .await?;
    stage
        .apply(json!({
            "apiVersion": "openziti.io/v1alpha1", "kind": "ZitiRouter",
            "metadata": {"name": "edge"},
            "spec": {"networkRef": {"name": CONTROLLER}, "replicas": 1},
        }))
        .await?;
    stage.until_online("edge", 1).await?;
    until_settled(stage, 1).await?;
    told("from apply to a network with a router", begun);

    let first = names::controller_member(CONTROLLER, 0);
    let router: Pod = stage.get("edge-0").await?;
    for certificate in [
        names::member_certificate(&first),
        names::member_signer(&first),
    ] {
        let begun = Instant::now();
        renewed(stage, &certificate, &first).await?;
        until_settled(stage, 1).await?;
        stage.until_online("edge", 1).await?;
        told(&format!("{certificate} renewed and in use"), begun);
    }
    let still: Pod = stage.get("edge-0").await?;
    ensure!(still.uid() == router.uid(), "the router's pod was replaced");

    let begun = Instant::now();
    let three = json!({"spec": {"replicas": 3}});
    stage.patch::<ZitiController>(CONTROLLER, three).await?;
    until_settled(stage, 3).await?;
    told("three members", begun);
    let last = names::controller_member(CONTROLLER, 2);
    renewed(stage, &names::member_certificate(&last), &last).await?;
    until_settled(stage, 3).await?;
    let ziti = Network::through(stage, &last).await?;
    kubernetes::poll(
        "the router to be online",
        Duration::from_mins(1),
        async || Ok(ziti.expect_online(&["edge-0"]).await.ok()),
    )
    .await
}

fn told(what: &str, begun: Instant) {
    say(&format!("{what}: {:.1} s", begun.elapsed().as_secs_f64()));
}
