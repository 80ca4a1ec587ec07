//! The operator itself, as tests disturb it. One test at a time does, and the others live with it.

use std::fs;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt};
use testbed::command::Cmd;
use testbed::environment::Environment;
use testbed::operator_install::Installation;
use testbed::{kubernetes, operator_install};
use tokio::sync::{Mutex, MutexGuard};

use crate::stage::PATIENCE;

/// The operator's user, as it stands in the audit log.
pub(crate) const USER: &str = "system:serviceaccount:ziti-operator:ziti-operator";

static ALONE: Mutex<()> = Mutex::const_new(());

/// The operator in the hands of one test.
pub(crate) struct Operator {
    client: Client,
    _alone: MutexGuard<'static, ()>,
}

impl Operator {
    /// Waits until no other test has it.
    pub(crate) async fn take(client: &Client) -> Self {
        Self {
            client: client.clone(),
            _alone: ALONE.lock().await,
        }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), operator_install::RELEASE)
    }

    /// As it is installed now.
    pub(crate) async fn installation(&self, environment: &Environment) -> Result<Installation> {
        let deployments: Api<Deployment> =
            Api::namespaced(self.client.clone(), operator_install::RELEASE);
        let deployment = deployments.get(operator_install::RELEASE).await;
        let deployment = deployment.context("reading the operator's Deployment")?;
        let template = deployment.spec.and_then(|spec| spec.template.spec);
        let container = template.and_then(|spec| spec.containers.into_iter().next());
        let container = container.context("the operator's Deployment has no container")?;
        let argument = |name: &str| {
            let mut arguments = container.args.iter().flatten();
            let value = arguments.find_map(|argument| argument.strip_prefix(name));
            value.map(str::to_owned)
        };
        let level = container
            .env
            .iter()
            .flatten()
            .find(|env| env.name == "RUST_LOG");
        Ok(Installation {
            kubeconfig: environment.kubeconfig.clone(),
            context: None,
            install_id: argument("--install-id=").context("it has no install id")?,
            image: container.image.clone().context("it has no image")?,
            router_image: argument("--router-image=").context("it has no image of routers")?,
            watch_namespaces: Vec::new(),
            log_level: level
                .and_then(|env| env.value.clone())
                .context("it has no log level")?,
        })
    }

    /// Waits for its pod, with the process running in it.
    async fn process(&self) -> Result<(Pod, u32)> {
        kubernetes::poll("the operator to run", PATIENCE, async || {
            let pods = self.pods().list(&ListParams::default()).await;
            let pods = pods.context("listing the operator's pods")?;
            let live = pods
                .into_iter()
                .filter(|pod| pod.metadata.deletion_timestamp.is_none());
            for pod in live {
                if let Some(process) = process_of(&pod)? {
                    return Ok(Some((pod, process)));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Ends its process with SIGKILL: it says good-bye to nobody, and starts again in the same pod.
    pub(crate) async fn kill(&self) -> Result<()> {
        let (_, process) = self.process().await?;
        Cmd::new("kill").args(["-KILL", &process.to_string()]).run()
    }

    /// Deletes its pod without grace: another one follows, and waits until the Lease has run out.
    pub(crate) async fn delete_pod(&self) -> Result<()> {
        let (pod, _) = self.process().await?;
        let deleted = self
            .pods()
            .delete(&pod.name_any(), &DeleteParams::default().grace_period(0))
            .await;
        deleted.context("deleting the operator's pod")?;
        Ok(())
    }
}

/// The operator's process in a pod, by its control group: the pod's uid is part of the name. The
/// testbed's node is this machine.
fn process_of(pod: &Pod) -> Result<Option<u32>> {
    let Some(uid) = &pod.metadata.uid else {
        bail!("pod {} has no uid", pod.name_any());
    };
    for entry in fs::read_dir("/proc").context("listing processes")? {
        let entry = entry.context("listing processes")?;
        let Ok(process) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        // Processes end while they are looked at.
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        if read("comm").trim() == "ziti-operator" && read("cgroup").contains(uid.as_str()) {
            return Ok(Some(process));
        }
    }
    Ok(None)
}
