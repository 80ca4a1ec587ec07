//! Carries out what the planner says of backups.

use super::issue;
use super::observe::Observed;
use super::sign;
use crate::claim::Claimant;
use crate::context::Context;
use crate::io;
use crate::problem::Error;
use api::{ZitiController, names};
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::DeleteParams;
use plan::controller::backup::Act;
use plan::controller::pki::Life;
use tracing::info;

pub(super) async fn apply(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
    ours: &Claimant<'_>,
    act: &Act,
) -> Result<(), Error> {
    let namespace = object.namespace().unwrap_or_default();
    let name = names::controller_backup(&object.name_any());
    match act {
        Act::Issue { trust_domain, life } => {
            certificate(context, object, observed, trust_domain, *life).await
        }
        Act::Apply(job) => {
            let known = observed.cron_job.as_ref();
            let known = known.map(std::slice::from_ref).unwrap_or_default();
            ours.apply(job.as_ref(), known).await?;
            info!(
                controller = io::path(object),
                "applied the CronJob of backups"
            );
            Ok(())
        }
        Act::Delete { uid } => {
            io::delete_with_pods::<CronJob>(
                &context.client,
                &namespace,
                &name,
                uid,
                DeleteParams::background(),
            )
            .await
        }
        Act::DeleteCertificate => {
            let known = observed.secrets.backup.as_ref();
            let uid = known.and_then(ResourceExt::uid);
            io::delete::<Secret>(&context.client, &namespace, &name, uid.as_ref()).await
        }
    }
}

async fn certificate(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
    trust_domain: &str,
    life: Life,
) -> Result<(), Error> {
    let root = observed.secrets.root.as_ref().ok_or_else(sign::gone)?;
    let data = sign::of_backups(root, trust_domain, life)?;
    let name = names::controller_backup(&object.name_any());
    let known = observed.secrets.backup.as_ref();
    issue::write(context, object, known, &name, data).await?;
    info!(
        controller = io::path(object),
        "issued the certificate of backups"
    );
    Ok(())
}
