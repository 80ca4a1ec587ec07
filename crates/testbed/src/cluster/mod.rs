//! A real Kubernetes of one node or more on this machine: the programs of the control plane, a container
//! runtime, CoreDNS and persistent volumes, in a network namespace of its own. The host reaches
//! the API server, Services and pods directly. A second one can be started beside it ([`Second`]).
//!
//! `up` may be called again at any time: it starts what is missing or died and leaves the rest
//! alone. `down` ends all of it and removes its directory; it needs nothing but the directory.

mod addons;
mod cgroups;
mod further;
mod join;
mod layout;
mod link;
mod network;
mod node;
mod passthrough;
mod second;
mod site;
mod teardown;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};

pub use self::further::{FurtherNode, NodeOptions};
use self::layout::Layout;
pub use self::link::Passage;
pub use self::second::Second;
pub use self::site::MAX_NODES;
use self::site::Site;
use crate::control_plane::ControlPlane;
use crate::image::Archive;
use crate::kubernetes;
use crate::paths;
use crate::process::tail;
use crate::progress::Step;

/// The name of the cluster that the demo uses.
pub const DEFAULT_NAME: &str = "demo";

/// A running cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    layout: Layout,
    plane: ControlPlane,
}

impl Cluster {
    /// Starts the cluster of that name, or what of it does not run. `dir` replaces the directory
    /// `run/<name>` in the cache.
    ///
    /// # Errors
    /// When not root, when a program is missing, or when something does not become ready in time;
    /// the end of the guilty log is in the error.
    pub async fn up(name: &str, dir: Option<PathBuf>, step: &Step) -> Result<Self> {
        Layout::check_name(name)?;
        let dir = match dir {
            Some(dir) => dir,
            None => paths::run(name)?,
        };
        Self::start(name, &dir, None, step).await
    }

    /// Starts what does not run of the cluster whose state is in that directory, see [`Cluster::up`].
    /// `beside` is for a second one.
    async fn start(name: &str, dir: &Path, beside: Option<u8>, step: &Step) -> Result<Self> {
        ensure!(
            nix::unistd::geteuid().is_root(),
            "a cluster needs root: network namespaces, mounts and cgroups"
        );
        paths::make_dir(dir)?;
        let dir = dir
            .canonicalize()
            .with_context(|| format!("resolving {}", dir.display()))?;
        let recorded = Layout::load(&dir)?;
        let settled = recorded.is_some();
        let mut layout = recorded.unwrap_or(Layout {
            name: name.to_owned(),
            index: 0,
            dir,
            beside,
        });

        step.say("network namespace");
        network::create(&mut layout, settled)?;
        layout.save()?;
        let cluster = Self::of(layout)?;
        let Self { layout, plane } = &cluster;
        let records = layout.records();
        let site = layout.first_node();
        let options = NodeOptions::default();
        cgroups::create(&site.cgroup())?;
        plane.prepare()?;
        node::prepare(&site, plane, &options)?;

        step.say("etcd, API server and containerd");
        let (etcd, _) = records.ensure(&plane.etcd())?;
        let (apiserver, _) = records.ensure(&plane.apiserver()?)?;
        records.ensure(&node::containerd(&site, plane))?;
        // While the API server starts.
        node::wait_containerd(&site).await?;
        cluster.import(&crate::image::pause()?)?;
        plane
            .wait_ready(&[etcd, apiserver], Duration::from_mins(2))
            .await?;

        step.say("controller manager, scheduler, kubelet and kube-proxy");
        records.ensure(&plane.controller_manager("*", 10257)?)?;
        records.ensure(&plane.scheduler())?;
        records.ensure(&node::kubelet(&site, plane, &options))?;
        records.ensure(&node::proxy(&site, plane))?;
        step.say("node to be ready");
        cluster.wait_node(&site).await?;

        step.say("CoreDNS and persistent volumes");
        addons::install(&cluster, step).await?;
        Ok(cluster)
    }

    /// The cluster of that name, which was started earlier.
    ///
    /// # Errors
    /// When there is none.
    pub fn attach(name: &str) -> Result<Self> {
        Self::attach_dir(&paths::run(name)?)
    }

    /// The cluster whose state is in that directory.
    pub fn attach_dir(dir: &Path) -> Result<Self> {
        let layout = Layout::load(dir)?
            .with_context(|| format!("no cluster was started in {}", dir.display()))?;
        Self::of(layout)
    }

    /// Ends the cluster of that name: its processes, pods, mounts, cgroups, network and files.
    /// Returns whether there was one. What is gone already is skipped, so that it can be called
    /// after an `up` that failed anywhere.
    pub async fn down(name: &str, step: &Step) -> Result<bool> {
        Layout::check_name(name)?;
        Self::down_dir(&paths::run(name)?, step).await
    }

    /// As [`Cluster::down`], for a directory.
    pub async fn down_dir(dir: &Path, step: &Step) -> Result<bool> {
        let Some(layout) = Layout::load(dir)? else {
            return Ok(false);
        };
        teardown::run(&layout, step).await?;
        Ok(true)
    }

    /// The names of the clusters whose directory is in the cache.
    pub fn names() -> Result<Vec<String>> {
        let Ok(entries) = std::fs::read_dir(paths::cache()?.join("run")) else {
            return Ok(Vec::new());
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter(|entry| matches!(Layout::load(&entry.path()), Ok(Some(_))))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        Ok(names)
    }

    fn of(layout: Layout) -> Result<Self> {
        let plane = layout.control_plane(paths::bin()?);
        Ok(Self { layout, plane })
    }

    /// A kubeconfig with all rights. It can be copied: everything is in it.
    pub fn kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig("admin")
    }

    /// A client with all rights.
    pub async fn client(&self) -> Result<Client> {
        kubernetes::client(&self.kubeconfig()).await
    }

    /// The URL of its API server.
    pub fn url(&self) -> String {
        self.plane.url()
    }

    /// The host's address, as pods reach it.
    pub fn host_address(&self) -> std::net::Ipv4Addr {
        self.layout.host_link_address()
    }

    /// The directory of its state and logs.
    pub fn dir(&self) -> &Path {
        &self.layout.dir
    }

    /// The log of writes to the API server, see [`crate::audit`].
    pub fn audit_log(&self) -> PathBuf {
        self.plane.audit_log()
    }

    /// Imports an image for the pods of all nodes that run, unless the very same is there. Returns
    /// whether it was imported anywhere now.
    pub fn import(&self, archive: &Archive) -> Result<bool> {
        let mut imported = node::import(&self.layout.first_node(), archive)?;
        for site in self.layout.further_nodes() {
            if node::has_runtime(&site) {
                imported |= node::import(&site, archive)?;
            }
        }
        Ok(imported)
    }

    /// The resident memory of a program that runs in a pod here, in bytes; of the biggest, where
    /// there are several. None when there is none.
    pub fn resident_memory(&self, program: &str) -> Result<Option<u64>> {
        let resident = |pid: &i32| -> Option<u64> {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let field = |name: &str| {
                let line = status.lines().find(|line| line.starts_with(name))?;
                line.split_whitespace().nth(1)
            };
            // The kernel cuts names after 15 bytes.
            let name = field("Name:")?;
            (name == &program[..program.len().min(15)])
                .then(|| field("VmRSS:")?.parse::<u64>().ok())?
                .map(|kibibytes| kibibytes * 1024)
        };
        let mut biggest = None;
        for site in [self.layout.first_node()]
            .into_iter()
            .chain(self.layout.further_nodes())
        {
            let pods = cgroups::processes(&site.cgroup())?;
            biggest = biggest.max(pods.iter().filter_map(resident).max());
        }
        Ok(biggest)
    }

    async fn wait_node(&self, site: &Site) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        node::wait_kubelet(site).await?;
        let name = site.name();
        kubernetes::wait_for(
            nodes,
            &name,
            "Ready",
            node::is_ready,
            Duration::from_mins(2),
        )
        .await
        .with_context(|| {
            format!(
                "the end of the kubelet's log:\n{}",
                tail(&site.log("kubelet"), 30)
            )
        })?;
        Ok(())
    }

    pub(crate) fn layout_values(&self) -> Vec<(&'static str, String)> {
        let beside = self.layout.beside.map(Layout::dns_of);
        vec![
            ("${DNS_ADDRESS}", self.layout.dns().to_string()),
            ("${BESIDE}", beside.map_or_else(String::new, addons::ask)),
            ("${VOLUMES}", self.layout.volumes().display().to_string()),
        ]
    }
}
