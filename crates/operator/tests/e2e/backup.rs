//! Backups of a network, and a network that comes back from one.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use api::{EdgeRouter, ZitiController, ZitiNetwork, ZitiRouter, names};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use testbed::s3::{S3Options, S3Server};
use ziti::ExposeSecret;
use ziti::backup::Identity;

use crate::controllers::{CONTROLLER, controller, until_settled};
use crate::objects::{Object, truth};
use crate::stage::{self, Stage, say};

const BUCKET: &str = "networks";

/// Everything of a network is lost but its backups, and its routers go on: they find it again by
/// themselves when it is restored, from a bucket and then from a volume.
#[test]
fn a_network_that_is_lost_comes_back_from_a_backup_and_its_routers_with_it() {
    // A long life, which would not fit on the stack of a test.
    stage::play_alone("backup", async |stage| Box::pin(life(stage)).await);
}

async fn life(stage: &Stage) -> Result<()> {
    let server = S3Server::start_with(&S3Options {
        address: stage.environment.cluster()?.host_address().into(),
        tls: true,
    })?;
    server.create_bucket(BUCKET)?;
    let identity = Identity::generate();
    Box::pin(prepare(stage, &server, &identity)).await?;
    let volume = json!({"volume": {"claimName": "backups", "path": "of/networks"}});
    let bucket = json!({"bucket": {
        "name": BUCKET, "prefix": "e2e", "endpoint": server.endpoint(),
        "credentialsSecretRef": {"name": "s3"},
        "trust": {"configMap": {"name": "s3-ca", "key": "ca.crt"}},
    }});
    let backup = |to: &Value| {
        json!({
            "schedule": "@yearly", "recipients": [identity.recipient().to_string()], "to": to,
        })
    };

    Box::pin(controller(
        stage,
        json!({"bootstrapPolicies": "AllRouters", "backup": backup(&volume)}),
    ))
    .await?;
    stage
        .apply(json!({
            "apiVersion": "openziti.io/v1alpha1", "kind": "ZitiRouter",
            "metadata": {"name": "edge"},
            "spec": {"networkRef": {"name": CONTROLLER}, "replicas": 2},
        }))
        .await?;
    Box::pin(stage.until_online("edge", 2)).await?;
    let made = Box::pin(until_settled(stage, 1)).await?;

    let on_volume = Box::pin(back_up(stage, "on-volume", None)).await?;
    let to = json!({"spec": {"backup": {"to": {
        "volume": null, "bucket": bucket["bucket"],
    }}}});
    stage.patch::<ZitiController>(CONTROLLER, to).await?;
    stage
        .until(
            &names::controller_backup(CONTROLLER),
            "for the bucket",
            |job: &CronJob| {
                let text = json!(job).to_string();
                text.contains("--bucket")
            },
        )
        .await?;
    let in_bucket = Box::pin(back_up(stage, "in-bucket", Some(&on_volume))).await?;

    let routers = routers(stage).await?;
    let before = identities(stage).await?;
    for (snapshot, from) in [(in_bucket, &bucket), (on_volume, &volume)] {
        Box::pin(lose_everything(stage)).await?;
        let begun = Instant::now();
        let restore = json!({
            "from": from, "identitySecretRef": {"name": "age"}, "snapshot": snapshot,
        });
        Box::pin(controller(
            stage,
            json!({"bootstrapPolicies": "AllRouters", "restoreFrom": restore}),
        ))
        .await?;
        let restored = Box::pin(until_settled(stage, 1)).await?;
        let took = begun.elapsed().as_secs_f64();
        say(&format!("from apply to a restored network: {took:.1} s"));
        Box::pin(stage.until_online("edge", 2)).await?;
        let took = begun.elapsed().as_secs_f64();
        say(&format!(
            "from apply until its routers are back: {took:.1} s"
        ));
        let status = restored.status.context("it has no status")?;
        let was = made
            .status
            .as_ref()
            .and_then(|status| status.root_key.clone());
        ensure!(status.root_key == was, "it has another root");
        ensure!(
            status.restored_from.as_ref() == Some(&snapshot),
            "it is restored from {:?}",
            status.restored_from
        );
        let now = self::routers(stage).await?;
        ensure!(
            now == routers,
            "pods were replaced: {routers:?}, now {now:?}"
        );
        let now = identities(stage).await?;
        ensure!(now == before, "other routers: {before:?}, now {now:?}");
        let key = names::controller_restore(CONTROLLER);
        let left = stage.find::<Secret>(&key).await?;
        ensure!(left.is_none(), "the key of the restore is left");
    }
    Ok(())
}

/// What a user makes before: a volume for backups, and the Secret with the key that opens them.
pub(crate) async fn prepare_volume(stage: &Stage, identity: &Identity) -> Result<()> {
    stage
        .apply(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "backups"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Mi"}}},
        }))
        .await?;
    let key = identity.expose();
    stage
        .apply(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "age"},
            "stringData": {"identity": key.expose_secret()}}),
        )
        .await
}

/// The same, and how the bucket is reached.
async fn prepare(stage: &Stage, server: &S3Server, identity: &Identity) -> Result<()> {
    prepare_volume(stage, identity).await?;
    let ca = server.ca().context("the store has no authority")?;
    let ca = std::fs::read_to_string(ca).context("reading the store's authority")?;
    for object in [
        json!({"kind": "Secret", "metadata": {"name": "s3"}, "stringData": {
            "AWS_ACCESS_KEY_ID": S3Server::ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": S3Server::SECRET_KEY,
        }}),
        json!({"kind": "ConfigMap", "metadata": {"name": "s3-ca"}, "data": {"ca.crt": ca}}),
    ] {
        let mut object = object;
        object["apiVersion"] = json!("v1");
        stage.apply(object).await?;
    }
    Ok(())
}

/// Makes a backup now, as the documentation says, and returns its name.
pub(crate) async fn back_up(stage: &Stage, job: &str, before: Option<&String>) -> Result<String> {
    let cron_job = names::controller_backup(CONTROLLER);
    stage.until(&cron_job, "there", |_: &CronJob| true).await?;
    let begun = Instant::now();
    let from = format!("--from=cronjob/{cron_job}");
    stage.kubectl(&["create", "job", &from, job])?;
    let saved = |object: &ZitiController| {
        let status = object.status.as_ref()?;
        let last = status.backup.as_ref()?;
        let holds = truth(&status.conditions, "BackedUp") == Some("True");
        (holds && Some(&last.snapshot) != before).then(|| last.snapshot.clone())
    };
    let object = stage
        .until(CONTROLLER, "backed up", |object: &ZitiController| {
            saved(object).is_some()
        })
        .await?;
    let took = begun.elapsed().as_secs_f64();
    say(&format!("a backup {job}: {took:.1} s"));
    saved(&object).context("there is no backup")
}

/// The routers' pods: uid and restarts of each.
pub(crate) async fn routers(stage: &Stage) -> Result<BTreeMap<String, (Option<String>, i32)>> {
    let pods = stage.list::<Pod>().await?.into_iter();
    let pods = pods.filter(|pod| pod.labels().contains_key(names::LABEL_SET));
    let told = pods.map(|pod| {
        let containers = pod.status.iter();
        let containers = containers.flat_map(|status| status.container_statuses.iter().flatten());
        let restarts = containers.map(|container| container.restart_count).sum();
        (pod.name_any(), (pod.uid(), restarts))
    });
    Ok(told.collect())
}

/// The ids of the routers on the network.
pub(crate) async fn identities(stage: &Stage) -> Result<BTreeMap<String, Option<String>>> {
    let routers = stage.list::<EdgeRouter>().await?.into_iter();
    let told = routers.map(|router| {
        let id = router.status.as_ref().and_then(|status| status.id.clone());
        (router.name_any(), id)
    });
    Ok(told.collect())
}

/// As when a namespace is lost but for its routers: the objects go without the operator's doing, and
/// with them all that makes the network.
async fn lose_everything(stage: &Stage) -> Result<()> {
    take_away::<ZitiController>(stage, CONTROLLER).await?;
    take_away::<ZitiNetwork>(stage, CONTROLLER).await?;
    let workload = names::controller_workload(CONTROLLER);
    let background = DeleteParams::background();
    stage.delete::<StatefulSet>(&workload, &background).await?;
    stage.until_gone::<Pod>("ziti-controller-0").await?;
    delete_all::<PersistentVolumeClaim>(stage).await?;
    delete_all::<Secret>(stage).await?;
    delete_all::<ConfigMap>(stage).await?;
    delete_all::<Service>(stage).await?;
    delete_all::<CronJob>(stage).await?;
    let identity = names::admin_identity_secret(CONTROLLER);
    if stage.find::<Secret>(&identity).await?.is_some() {
        stage.delete::<Secret>(&identity, &background).await?;
    }
    stage
        .until_gone::<PersistentVolumeClaim>("data-ziti-controller-0")
        .await?;
    let left = stage.list::<Secret>().await?;
    let left: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
    say(&format!("Secrets that are left: {left:?}"));
    let root = names::controller_root_secret(CONTROLLER);
    ensure!(!left.contains(&root), "the root is left");
    stage.until("edge", "there", |_: &ZitiRouter| true).await?;
    Ok(())
}

/// Deletes an object and takes its finalizers off.
async fn take_away<K: Object>(stage: &Stage, name: &str) -> Result<()> {
    stage.delete::<K>(name, &DeleteParams::background()).await?;
    let none = json!({"metadata": {"finalizers": null}});
    let patched = stage.patch::<K>(name, none).await;
    if stage.find::<K>(name).await?.is_some() {
        patched?;
    }
    stage.until_gone::<K>(name).await
}

/// Deletes all objects of a kind that carry the ZitiController's label.
async fn delete_all<K: Object>(stage: &Stage) -> Result<()> {
    let ours = format!("{}={CONTROLLER}", names::LABEL_CONTROLLER);
    let ours = ListParams::default().labels(&ours);
    let background = DeleteParams::background();
    let listed = stage.api::<K>().list(&ours).await;
    for object in listed.with_context(|| format!("listing {}", K::plural(&())))? {
        let name = object.name_any();
        let deleted = stage.api::<K>().delete(&name, &background).await;
        deleted.with_context(|| format!("deleting {} {name}", K::kind(&())))?;
    }
    Ok(())
}
