//! Protects what tests against the API server lean on: it starts, it counts writes exactly, it
//! enforces RBAC, and deletion works where it is asked for.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use testbed::apiserver::{ApiServer, Controllers};
use testbed::audit::AuditLog;
use testbed::kubernetes;

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn writes_are_counted_and_rights_enforced() {
    let server = ApiServer::start().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    let log = AuditLog::from_now(&server.audit_log());
    maps.create(&PostParams::default(), &config_map("counted"))
        .await
        .unwrap();
    maps.get("counted").await.unwrap();
    let writes = log.writes_by("admin").unwrap();
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert_eq!(
        (writes[0].verb.as_str(), writes[0].resource.as_str()),
        ("create", "configmaps")
    );

    let kubeconfig = server.kubeconfig_for("nobody").unwrap();
    let nobody = kubernetes::client(&kubeconfig).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(nobody, "default");
    let refusal = maps.get("counted").await.unwrap_err().to_string();
    assert!(refusal.contains("forbidden"), "{refusal}");
}

#[tokio::test]
async fn namespaces_end_when_deletion_is_asked_for() {
    let server = ApiServer::start_with(Controllers::Deletion).await.unwrap();
    let client = server.client();
    kubernetes::apply_yaml(
        &client,
        "{apiVersion: v1, kind: Namespace, metadata: {name: passing}}\n---\n\
         {apiVersion: v1, kind: ConfigMap, metadata: {name: inside}}\n",
        "passing",
    )
    .await
    .unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .delete("passing", &DeleteParams::default())
        .await
        .unwrap();
    kubernetes::poll("the namespace to end", Duration::from_mins(1), async || {
        Ok(namespaces.get_opt("passing").await?.is_none().then_some(()))
    })
    .await
    .unwrap();
}
