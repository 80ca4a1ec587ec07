//! Tokens that a person gives, where the operator knows no network and has no credential.

use anyhow::{Context, Result, ensure};
use api::ZitiRouter;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::objects::truth;
use crate::stage::{self, Stage};

/// Written in the ZitiRouter, and in a Secret: both are enough for routers that work.
#[test]
fn provided_tokens_need_no_network_and_no_credential() {
    stage::play("provided", async |stage| {
        let (first, written) = stage.ziti.register("branch-office", false).await?;
        create(
            stage,
            "inline",
            json!({"replicas": 1, "tokens": {"inline-0": written}}),
        )
        .await?;

        let (_, given) = stage.ziti.register("data-center", false).await?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "given"},
            "stringData": {"kept-0": given}});
        stage.apply(secret).await?;
        create(
            stage,
            "kept",
            json!({"replicas": 1, "tokensSecretRef": {"name": "given"}}),
        )
        .await?;

        let both = ["branch-office", "data-center"];
        stage.ziti.until_online(&both).await?;
        for set in ["inline", "kept"] {
            stage
                .until(set, "ready", |set: &ZitiRouter| {
                    let status = set.status.as_ref();
                    status.is_some_and(|status| truth(&status.conditions, "Ready") == Some("True"))
                })
                .await?;
        }
        // A person's Secret is read, never emptied.
        let secret: Secret = stage.get("given").await?;
        let token = secret.data.as_ref().and_then(|data| data.get("kept-0"));
        let token = token.context("the person's Secret has lost its key")?;
        ensure!(
            token.0 == given.as_bytes(),
            "the person's Secret was changed"
        );

        // Nor does a network change that the operator has no credential for.
        stage
            .delete::<ZitiRouter>("inline", &DeleteParams::background())
            .await?;
        stage.until_gone::<ZitiRouter>("inline").await?;
        ensure!(
            stage.ziti.ids(&both).await?["branch-office"] == first,
            "the router was replaced"
        );
        Ok(())
    });
}

async fn create(stage: &Stage, name: &str, spec: Value) -> Result<()> {
    let spec = serde_json::from_value(spec).context("reading a ZitiRouter")?;
    stage.create(&ZitiRouter::new(name, spec)).await?;
    Ok(())
}
