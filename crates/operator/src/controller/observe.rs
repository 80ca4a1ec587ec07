//! What is known of one ZitiController: its objects, read live by label, its
//! Secrets, and what its cluster says.

use super::secrets::{self, Secrets};
use super::{cluster, copies, issuer, secrets as held, web};
use crate::context::Context;
use crate::io;
use crate::problem::Error;
use api::{EdgeRouter, ZitiController, ZitiNetwork, names};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use kube::core::DynamicObject;
use plan::Settings;
use plan::controller::config::control_plane;
use plan::controller::web::WebCertificate;
use plan::controller::{Cluster, Facts, FailedJoin, MOST_MEMBERS, Users};
use plan::edge_router::Problem;
use plan::set::extra::CERTIFICATE;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that was observed. The Secrets stay here: the planner sees what
/// their certificates say, and digests.
pub(super) struct Observed {
    pub(super) stateful_set: Option<StatefulSet>,
    pub(super) pods: Vec<Pod>,
    pub(super) services: Vec<Service>,
    pub(super) config_maps: Vec<ConfigMap>,
    pub(super) claims: Vec<PersistentVolumeClaim>,
    pub(super) extras: Vec<DynamicObject>,
    /// Whether the cluster has cert-manager's kinds; `false` where nobody asked.
    pub(super) issuer_is_installed: bool,
    pub(super) secrets: Secrets,
    pub(super) web_certificates: BTreeMap<String, WebCertificate>,
    pub(super) cron_job: Option<CronJob>,
    pub(super) jobs: Vec<Job>,
    pub(super) job_pods: Vec<Pod>,
    pub(super) missing: Option<String>,
    pub(super) outside: BTreeSet<String>,
    pub(super) network: Option<ZitiNetwork>,
    pub(super) users: Users,
    pub(super) cluster: Result<Cluster, Problem>,
    pub(super) joins: BTreeMap<String, FailedJoin>,
}

pub(super) async fn observe(context: &Context, object: &ZitiController) -> Result<Observed, Error> {
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    let label = format!("{}={name}", names::LABEL_CONTROLLER);
    let by_label = ListParams::default().labels(&label);

    // The StatefulSet before the pods, as for sets.
    let sets = io::list::<StatefulSet>(&context.client, &namespace, &by_label).await?;
    let workload = names::controller_workload(&name);
    let stateful_set = sets.into_iter().find(|set| set.name_any() == workload);
    let pods = io::list::<Pod>(&context.client, &namespace, &by_label).await?;
    let (services, config_maps, claims, extras, secrets, web_certificates, network, users, work) =
        tokio::try_join!(
            io::list::<Service>(&context.client, &namespace, &by_label),
            io::list::<ConfigMap>(&context.client, &namespace, &by_label),
            io::list::<PersistentVolumeClaim>(&context.client, &namespace, &by_label),
            io::list_extras(&context.client, &namespace, &by_label),
            held::read(context, object),
            web::read(context, object),
            network(context, &namespace, &name),
            users(context, &namespace, &name),
            copies::read(context, &namespace, object, &by_label),
        )?;
    let certificates = match &object.spec.pki.issuer_ref {
        Some(_) => io::list_kind(&context.client, &namespace, &CERTIFICATE, &by_label).await?,
        None => None,
    };
    let issuer_is_installed = certificates.is_some();
    let (cron_job, jobs, job_pods) = work;
    let missing = copies::missing(
        context,
        object,
        &secrets::root(&secrets),
        secrets.restore.is_some(),
    )
    .await?;
    let mut observed = Observed {
        stateful_set,
        pods,
        services,
        config_maps,
        claims,
        extras: [extras, certificates.unwrap_or_default()].concat(),
        issuer_is_installed,
        secrets,
        web_certificates,
        cron_job,
        jobs,
        job_pods,
        missing,
        outside: BTreeSet::new(),
        network,
        users,
        cluster: Ok(Cluster::default()),
        joins: BTreeMap::new(),
    };
    observed.cluster = cluster::ask(context, object, &observed).await;
    observed.joins = joins(context, object, &observed.cluster);
    observed.outside = copies::ask(context, object, &observed).await;
    Ok(observed)
}

/// Members that could not be taken in, and are not in the cluster at their address.
fn joins(
    context: &Context,
    object: &ZitiController,
    cluster: &Result<Cluster, Problem>,
) -> BTreeMap<String, FailedJoin> {
    let path = io::path(object);
    let cluster = cluster.as_ref().ok();
    let led = cluster.filter(|cluster| cluster.leader().is_some());
    if let Some(cluster) = led {
        let places: BTreeMap<String, String> = (0..MOST_MEMBERS)
            .map(|ordinal| {
                let member = names::controller_member(&object.name_any(), ordinal);
                (member, format!("tls:{}", control_plane(object, ordinal)))
            })
            .collect();
        context.controllers.have_joined(&path, |member| {
            let peer = cluster.peer(member);
            peer.is_some_and(|peer| places.get(member) == Some(&peer.address))
        });
    }
    context.controllers.joins(&path)
}

async fn network(
    context: &Context,
    namespace: &str,
    name: &str,
) -> Result<Option<ZitiNetwork>, Error> {
    let api: Api<ZitiNetwork> = Api::namespaced(context.client.clone(), namespace);
    let found = api.get_opt(name).await;
    found.map_err(Error::kubernetes("reading", format!("ZitiNetwork {name}")))
}

async fn users(context: &Context, namespace: &str, name: &str) -> Result<Users, Error> {
    let all = io::list::<EdgeRouter>(&context.client, namespace, &ListParams::default()).await?;
    let of_network = all.iter().filter(|er| {
        let reference = er.spec.network_ref.as_ref();
        reference.is_some_and(|reference| reference.name == name)
    });
    let mut users = Users::default();
    for er in of_network {
        if er.metadata.deletion_timestamp.is_some() {
            users.leaving += 1;
        } else {
            users.staying += 1;
        }
    }
    Ok(users)
}

impl Observed {
    /// The same without what must not be told.
    pub(super) fn facts<'a>(
        &self,
        object: &'a ZitiController,
        settings: &'a Settings,
        now: Timestamp,
    ) -> Facts<'a> {
        let root = secrets::root(&self.secrets);
        Facts {
            object,
            settings,
            stateful_set: self.stateful_set.clone(),
            pods: self.pods.clone(),
            services: self.services.clone(),
            config_maps: self.config_maps.clone(),
            claims: self.claims.clone(),
            extras: self.extras.clone(),
            pki: secrets::pki(&self.secrets, &root),
            issuer: issuer::offered(&self.secrets, self.issuer_is_installed),
            copies: copies::known(self, &root),
            root,
            admin: secrets::admin(&self.secrets),
            bootstrap: secrets::bootstrap(&self.secrets),
            web_certificates: self.web_certificates.clone(),
            cluster: self.cluster.clone(),
            joins: self.joins.clone(),
            operator: secrets::operator(&self.secrets),
            network: self.network.clone(),
            users: self.users,
            now,
        }
    }
}
