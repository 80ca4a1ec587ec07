//! A real etcd and a real kube-apiserver on loopback, without any node: what the operator's tests
//! of validation rules, ownership and write counts run against. Ready in a few seconds, gone when
//! dropped or when the process ends, however it ends.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use tempfile::TempDir;

use crate::control_plane::ControlPlane;
use crate::kubernetes;
use crate::paths;
use crate::process::{Fate, Running};

/// How long the API server has to become ready; a loaded machine is slow.
const READY_WITHIN: Duration = Duration::from_mins(2);

/// What runs beside the API server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Controllers {
    /// Nothing: owner references are not followed, namespaces never end, workloads make no pods.
    #[default]
    None,
    /// The garbage collector and the namespace controller: deletion works as in a cluster, and
    /// nothing else happens by itself.
    Deletion,
    /// As [`Controllers::Deletion`], and a `StatefulSet` makes its pods and volume claims. Nobody
    /// judges nodes, so a test may bind a pod to a node that does not exist and play its kubelet.
    StatefulSets,
    /// All of kube-controller-manager: a `StatefulSet` makes pods, which no kubelet ever runs.
    All,
}

/// A running API server. Dropping it stops it and removes its files.
pub struct ApiServer {
    plane: ControlPlane,
    running: Vec<Running>,
    client: Client,
    // Last: the files go after the programs.
    dir: TempDir,
}

impl ApiServer {
    /// Starts etcd and the API server, and waits until it is ready.
    ///
    /// # Errors
    /// When the programs are not built, or do not become ready within two minutes; the end of the
    /// guilty log is in the error.
    pub async fn start() -> Result<Self> {
        Self::start_with(Controllers::None).await
    }

    /// As [`ApiServer::start`], with controllers beside it.
    pub async fn start_with(controllers: Controllers) -> Result<Self> {
        let etcd = paths::program("etcd")?;
        paths::program("kube-apiserver")?;
        let bin = etcd
            .parent()
            .context("etcd lies in no directory")?
            .to_path_buf();
        let dir = tempfile::Builder::new()
            .prefix("ziti-operator-apiserver-")
            .tempdir()
            .context("making a directory for the API server")?;
        let [port, clients, peers, manager] = free_ports()?;
        let plane = ControlPlane {
            bin,
            dir: dir.path().to_path_buf(),
            address: Ipv4Addr::LOCALHOST,
            port,
            etcd_ports: (clients, peers),
            services: "10.250.0.0/24".to_owned(),
            first_service: Ipv4Addr::new(10, 250, 0, 1),
            pods: "10.251.0.0/16".to_owned(),
            netns: None,
            fate: Fate::DiesWithUs,
            audit_reads: false,
        };
        plane.prepare()?;
        let client = kubernetes::client(&plane.kubeconfig("admin")).await?;
        let mut server = Self {
            plane,
            running: Vec::new(),
            client,
            dir,
        };
        server.running.push(server.plane.etcd().start()?);
        server.running.push(server.plane.apiserver()?.start()?);
        server
            .plane
            .wait_ready(&server.running, READY_WITHIN)
            .await?;
        let wanted = match controllers {
            Controllers::None => None,
            Controllers::Deletion => {
                paths::program("kube-controller-manager")?;
                Some("garbage-collector-controller,namespace-controller")
            }
            Controllers::StatefulSets => {
                paths::program("kube-controller-manager")?;
                Some(
                    "garbage-collector-controller,namespace-controller,serviceaccount-controller,\
                     statefulset-controller,persistentvolumeclaim-protection-controller",
                )
            }
            Controllers::All => {
                paths::program("kube-controller-manager")?;
                Some("*")
            }
        };
        if let Some(wanted) = wanted {
            let manager = server.plane.controller_manager(wanted, manager)?;
            server.running.push(manager.start()?);
        }
        Ok(server)
    }

    /// A client with all rights. It belongs to the tokio runtime that called
    /// [`ApiServer::start`]; tests that share a server over several runtimes make their own with
    /// [`kubernetes::client`] from [`ApiServer::kubeconfig`].
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A kubeconfig with all rights.
    pub fn kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig("admin")
    }

    /// A kubeconfig for another user, who has the rights that RBAC objects give.
    pub fn kubeconfig_for(&self, user: &str) -> Result<PathBuf> {
        ensure!(
            user.chars()
                .all(|c| c.is_ascii_alphanumeric() || ":-.".contains(c)),
            "{user} is no user name for a test"
        );
        let name = format!("user-{}", user.replace(':', "-"));
        self.plane.user(&name, user, None)?;
        Ok(self.plane.kubeconfig(&name))
    }

    /// The log of writes, see [`crate::audit`].
    pub fn audit_log(&self) -> PathBuf {
        self.plane.audit_log()
    }

    /// Where its state and logs are while it runs.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer")
            .field("url", &self.plane.url())
            .field("dir", &self.dir.path())
            .finish_non_exhaustive()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        // Nothing here is worth a polite end, which takes the API server seconds.
        for program in self.running.iter().rev() {
            program.kill();
        }
    }
}

/// Ports that are free now. All are held until all are found, so that no two are equal; another
/// program may still take one before ours does, which then shows in its log.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
        *port = listener.local_addr().context("reading a free port")?.port();
        held.push(listener);
    }
    Ok(ports)
}
