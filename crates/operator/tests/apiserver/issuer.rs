//! Members' certificates from cert-manager: its own controllers issue them here. Nobody runs the
//! members; that they run on these is shown in `e2e`.

use std::collections::BTreeMap;
use std::process::Command;

use api::{ZitiController, names, reasons};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use testbed::{cert_manager, kubernetes};

use crate::operator::Operator;
use crate::world::World;

const MEMBER: &str = "lamp-controller-1";

async fn apply(world: &World, kind: &str, name: &str, spec: Value) {
    let object = json!({"apiVersion": "cert-manager.io/v1", "kind": kind,
        "metadata": {"name": name}, "spec": spec});
    kubernetes::apply(&world.client, object, &world.namespace)
        .await
        .unwrap();
}

fn controller(name: &str, replicas: i32, issuer: &str) -> Value {
    json!({"apiVersion": "openziti.io/v1alpha1", "kind": "ZitiController",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "pki": {"issuerRef": {"name": issuer}}}})
}

/// As `cmctl renew` does it.
async fn renew(world: &World, name: &str) {
    let kind = GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> =
        Api::namespaced_with(world.client.clone(), &world.namespace, &resource);
    let found = api.get(name).await.unwrap();
    let mut conditions = found.data["status"]["conditions"].clone();
    conditions.as_array_mut().unwrap().push(json!({
        "type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by a test",
        "lastTransitionTime": Timestamp::now(),
    }));
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    api.patch_status(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// The files of all members, as pods mount them.
fn files(secret: &Secret) -> BTreeMap<String, String> {
    let data = secret.data.iter().flatten();
    let text = |(key, value): (&String, &k8s_openapi::ByteString)| {
        (key.clone(), String::from_utf8(value.0.clone()).unwrap())
    };
    data.map(text).collect()
}

async fn until_files(
    world: &World,
    what: &str,
    wished: impl Fn(&BTreeMap<String, String>) -> bool,
) -> BTreeMap<String, String> {
    let name = names::controller_pki_secret("lamp");
    files(
        &world
            .until::<Secret>(&name, what, |secret| wished(&files(secret)))
            .await,
    )
}

fn openssl(args: &[&str]) -> String {
    let output = Command::new("openssl").args(args).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "openssl {args:?}: {said}");
    said
}

/// By a second implementation: each leads to what is trusted, and the member's own says who it is.
fn check(files: &BTreeMap<String, String>) {
    let dir = tempfile::tempdir().unwrap();
    let put = |key: &str| {
        let path = dir.path().join(key);
        std::fs::write(&path, &files[key]).unwrap();
        path.display().to_string()
    };
    let ca = put("ca.crt");
    for ordinal in 0..3 {
        let member = format!("lamp-controller-{ordinal}");
        let certificate = put(&format!("{member}.controller.crt"));
        let signer = put(&format!("{member}.signer.crt"));
        for (purpose, file) in [
            ("sslserver", &certificate),
            ("sslclient", &certificate),
            ("any", &signer),
        ] {
            let args = ["verify", "-CAfile", &ca, "-purpose", purpose];
            openssl(&[&args[..], &["-untrusted", file, file]].concat());
        }
        let text = openssl(&["x509", "-in", &certificate, "-noout", "-text"]);
        let uri = format!("spiffe://lamp.issuer.ziti/controller/{member}");
        for said in [&*uri, &*format!("DNS:{member}.issuer.svc"), "127.0.0.1"] {
            assert!(text.contains(said), "no {said} in {text}");
        }
        let text = openssl(&["x509", "-in", &signer, "-noout", "-text"]);
        assert!(text.contains("CA:TRUE"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_have_their_certificates_from_cert_manager() {
    let world = World::new("issuer").await;
    let _operator = Operator::start(&world);
    world
        .create::<ZitiController>(controller("lamp", 3, "network"))
        .await;
    let told = async |reason| {
        let told = world.told::<ZitiController>("lamp", "Degraded", "True", reason);
        told.await
    };

    // Nobody has installed it yet.
    let message = told(reasons::ISSUER_UNUSABLE).await;
    assert!(message.contains("install cert-manager"), "{message}");
    cert_manager::install(&world.client).await.unwrap();
    let log = world.dir().join("log/cert-manager.log");
    let running = cert_manager::start(&world.admin_kubeconfig(), &log).unwrap();

    // Nor made the issuer.
    let message = told(reasons::CERTIFICATES_PENDING).await;
    assert!(
        message.contains("lamp-controller-0-certificate"),
        "{message}"
    );
    assert!(world.list::<StatefulSet>().await.is_empty());
    apply(&world, "Issuer", "self-signed", json!({"selfSigned": {}})).await;
    let authority = |policy: &str| {
        json!({"isCA": true, "commonName": "network", "secretName": "network",
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": policy},
            "issuerRef": {"name": "self-signed"}})
    };
    apply(&world, "Certificate", "network", authority("Never")).await;
    apply(
        &world,
        "Issuer",
        "network",
        json!({"ca": {"secretName": "network"}}),
    )
    .await;

    let has_all = |files: &BTreeMap<String, String>| files.len() == 13;
    let first = until_files(&world, "whole", has_all).await;
    check(&first);
    let workload = names::controller_workload("lamp");
    world
        .until::<StatefulSet>(&workload, "there", |_| true)
        .await;
    let root: Secret = world.get(&names::controller_root_secret("lamp")).await;
    assert_eq!(files(&root)["ca.crt"], first["ca.crt"]);
    assert!(!files(&root).contains_key("ca.key"));

    // One that is renewed is taken over: a new key for the member, the same for its signer.
    let (cert, key) = (
        format!("{MEMBER}.controller.crt"),
        format!("{MEMBER}.controller.key"),
    );
    renew(&world, &names::member_certificate(MEMBER)).await;
    let second = until_files(&world, "renewed", |files| {
        has_all(files) && files[&cert] != first[&cert]
    })
    .await;
    assert_ne!(second[&key], first[&key]);
    let (signer, signer_key) = (
        format!("{MEMBER}.signer.crt"),
        format!("{MEMBER}.signer.key"),
    );
    renew(&world, &names::member_signer(MEMBER)).await;
    let third = until_files(&world, "renewed", |files| {
        has_all(files) && files[&signer] != first[&signer]
    })
    .await;
    assert_eq!(third[&signer_key], first[&signer_key]);
    check(&third);

    // Another CA of that issuer's is trusted beside the old one, and what it signs waits.
    apply(&world, "Certificate", "network", authority("Always")).await;
    let ca = async || world.secret_value("network", "tls.crt").await.unwrap();
    let old = ca().await;
    renew(&world, "network").await;
    world
        .until::<Secret>("network", "another", |secret| {
            files(secret)["tls.crt"] != old
        })
        .await;
    renew(&world, &names::member_certificate(MEMBER)).await;
    let message = told(reasons::AUTHORITY_CHANGED).await;
    assert!(
        message.contains(&names::member_certificate(MEMBER)),
        "{message}"
    );
    let (old, new) = (old, ca().await);
    let fourth = until_files(&world, "of both", |files| {
        files["ca.crt"] == format!("{new}{old}")
    })
    .await;
    assert_eq!(fourth[&cert], third[&cert]);
    check(&fourth);

    // What names no CA is no issuer for a network.
    world
        .create::<ZitiController>(controller("self", 1, "self-signed"))
        .await;
    let message = world
        .told::<ZitiController>("self", "Degraded", "True", reasons::ISSUER_UNUSABLE)
        .await;
    assert!(message.contains("does not lead to a CA"), "{message}");

    // Trust cannot be exchanged by an edit.
    let patch = Patch::Merge(json!({"spec": {"pki": {"issuerRef": null}}}));
    let api = world.api::<ZitiController>();
    let refused = api.patch("lamp", &PatchParams::default(), &patch).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("neither given nor taken away"),
        "{refused}"
    );
    running.kill();
}
