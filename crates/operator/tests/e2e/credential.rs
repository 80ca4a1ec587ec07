//! The operator's own identity on a network that it runs, and the administrator's password.

use anyhow::{Context, Result, ensure};
use api::{ZitiController, names, reasons};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use serde_json::json;

use crate::controllers::{CONTROLLER, Network, controller, until_settled};
use crate::objects::reason;
use crate::stage::{self, Stage};

const MEMBER: &str = "ziti-controller-0";
const CHANGED: &str = "a-password-of-somebodys-own";

/// Changes the administrator's password in Ziti, as a person does.
async fn change_password(stage: &Stage) -> Result<()> {
    let network = Network::through(stage, MEMBER).await?;
    let ziti = &network.management;
    let admin = ziti.default_admin_id().await?;
    let admin = admin.context("the network has no administrator")?;
    let ways = ziti.authenticators(&admin).await?;
    let updb = ways.into_iter().find(|way| way.method == "updb");
    let updb = updb.context("the administrator has no password")?;
    let body = json!({"password": CHANGED});
    let changed = ziti
        .patch(&format!("/authenticators/{}", updb.id), &body)
        .await;
    changed.context("changing the password")
}

/// The administrator's password is the person's to change: the operator does not use it. Only when its
/// own certificate is lost it needs one, says so, and goes on as soon as there is one.
#[test]
fn a_lost_certificate_is_replaced_with_a_password_that_works() {
    stage::play_alone("credential", async |stage| {
        controller(stage, json!({})).await?;
        until_settled(stage, 1).await?;
        change_password(stage).await?;
        let patch = json!({"spec": {"bootstrapPolicies": "AllRouters"}});
        stage.patch::<ZitiController>(CONTROLLER, patch).await?;
        until_settled(stage, 1).await?;

        let identity = names::admin_identity_secret(CONTROLLER);
        let before: Secret = stage.get(&identity).await?;
        stage
            .delete::<Secret>(&identity, &DeleteParams::default())
            .await?;
        let admin = names::controller_admin_secret(CONTROLLER);
        let refused = stage
            .until(CONTROLLER, "refused", |object: &ZitiController| {
                let status = object.status.as_ref();
                let conditions = status.map(|status| status.conditions.as_slice());
                let conditions = conditions.unwrap_or_default();
                reason(conditions, "Ready") == Some(reasons::BAD_CREDENTIALS)
            })
            .await?;
        let conditions = refused.status.context("no status")?.conditions;
        let told = conditions.iter().find(|have| have.type_ == "Ready");
        let told = &told.context("no Ready")?.message;
        ensure!(
            told.contains("refuses the username and password in Secret ziti-admin")
                && told.contains("put username and password of an administrator"),
            "{told}"
        );

        let patch = json!({"data": {"password": STANDARD.encode(CHANGED)}});
        stage.patch::<Secret>(&admin, patch).await?;
        let enrolled = |secret: &Secret| {
            let data = secret.data.as_ref();
            data.is_some_and(|data| data.contains_key("tls.crt"))
        };
        let after: Secret = stage.until(&identity, "made again", enrolled).await?;
        ensure!(
            after.data.map(|data| data["tls.crt"].clone())
                != before.data.map(|data| data["tls.crt"].clone()),
            "the certificate is the one that was lost"
        );
        until_settled(stage, 1).await?;
        let ziti = Network::through(stage, MEMBER).await?;
        ziti.expect_policies().await
    });
}
