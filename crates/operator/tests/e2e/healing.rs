//! What heals without a person: a lost volume, a token that ran out.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{EdgeRouter, ZitiRouter, names};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use testbed::kubernetes;

use crate::objects::truth;
use crate::scaling::pods;
use crate::stage::{self, PATIENCE};

/// The shortest life of a token that Ziti takes.
const SHORT_LIFE: Duration = Duration::from_mins(5);

/// For how long a router must be seen offline before it is given another identity. An operator
/// that starts anew has seen nothing yet, and other tests kill it up to three times meanwhile.
const OFFLINE: Duration = Duration::from_mins(1);

/// A router whose volume is gone comes back as the same router, so that its place in policies
/// stays, as soon as the network has seen it offline for long enough.
#[test]
fn a_lost_volume_comes_back_as_the_same_router() {
    stage::play("volume", async |stage| {
        let members = ["edge-0", "edge-1"];
        stage.set_online("edge", 2).await?;
        let ids = stage.ziti.ids(&members).await?;
        let other = pods(stage, &["edge-1"]).await?;
        let lost: EdgeRouter = stage.get("edge-0").await?;
        let lost = lost.status.and_then(|status| status.fingerprint);
        ensure!(lost.is_some(), "edge-0 has no certificate");

        let at_once = DeleteParams::default();
        stage
            .delete::<PersistentVolumeClaim>("identity-edge-0", &at_once)
            .await?;
        stage.delete::<Pod>("edge-0", &at_once).await?;
        let another = |router: Option<&EdgeRouter>| {
            let status = router.and_then(|router| router.status.as_ref());
            status.is_some_and(|status| {
                status.fingerprint.is_some()
                    && status.fingerprint != lost
                    && truth(&status.conditions, "Ready") == Some("True")
            })
        };
        let routers: Api<EdgeRouter> = stage.api();
        let within = 3 * OFFLINE + PATIENCE;
        let what = "online with another identity";
        kubernetes::wait_for(routers, "edge-0", what, another, within).await?;
        stage.until_online("edge", 2).await?;
        stage.ziti.expect_online(&members).await?;
        ensure!(
            stage.ziti.ids(&members).await? == ids,
            "a router has another id"
        );
        ensure!(
            pods(stage, &["edge-1"]).await? == other,
            "the other member was disturbed"
        );
        Ok(())
    });
}

/// A pod that could not start before its token ran out is given another token, for the same
/// router, and comes online when it can.
#[test]
fn a_token_that_ran_out_is_replaced() {
    stage::play_beside("expiry", SHORT_LIFE, async |stage| {
        stage.join_network().await?;
        let too_much = json!({"requests": {"cpu": "1000"}});
        stage
            .create_set("edge", json!({"replicas": 1, "resources": too_much}))
            .await?;
        let secret = names::tokens_secret("edge");
        stage
            .until(&secret, "filled", |secret: &Secret| token(secret).is_some())
            .await?;
        let first = token(&stage.get(&secret).await?);
        let ids = stage.ziti.ids(&["edge-0"]).await?;
        let expiry = expiry(&stage.get("edge-0").await?)?;

        let another = |secret: Option<&Secret>| {
            let token = secret.and_then(token);
            token.is_some() && token != first
        };
        let secrets: Api<Secret> = stage.api();
        let within = SHORT_LIFE + PATIENCE;
        kubernetes::wait_for(secrets, &secret, "given another token", another, within).await?;
        let now = k8s_openapi::jiff::Timestamp::now();
        // The operator goes by the network's clock, which counts in whole seconds.
        ensure!(
            now + Duration::from_secs(2) >= expiry,
            "the token was replaced at {now}, before it ran out at {expiry}"
        );
        ensure!(
            stage.ziti.ids(&["edge-0"]).await? == ids,
            "the router has another id"
        );

        stage
            .patch::<ZitiRouter>("edge", json!({"spec": {"resources": null}}))
            .await?;
        stage.until_online("edge", 1).await?;
        stage.ziti.expect_online(&["edge-0"]).await
    });
}

/// The token of the first member, if there is one.
fn token(secret: &Secret) -> Option<Vec<u8>> {
    let value = secret.data.as_ref()?.get("edge-0")?;
    Some(value.0.clone()).filter(|token| !token.is_empty())
}

fn expiry(router: &EdgeRouter) -> Result<k8s_openapi::jiff::Timestamp> {
    let status = router.status.as_ref();
    let expiry = status.and_then(|status| status.token_expiry.as_ref());
    Ok(expiry.context("the token's expiry is not told")?.0)
}
