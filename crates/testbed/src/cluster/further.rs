//! Further nodes of a cluster: real ones, with a kubelet, a container runtime and a network
//! namespace of their own. They are added, lost, brought back and removed while the cluster runs.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Api;
use kube::api::DeleteParams;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::site::Site;
use super::{Cluster, cgroups, join, node, teardown};
use crate::command::Cmd;
use crate::kubernetes;
use crate::paths;

/// What a node says of itself when it joins.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeOptions {
    /// Labels besides its own.
    pub labels: BTreeMap<String, String>,
    /// Taints: who does not tolerate them stays away.
    pub taints: Vec<Taint>,
}

/// A further node. It outlives this value; [`FurtherNode::remove`] ends it, and so does the
/// cluster's end.
#[derive(Debug, Clone)]
pub struct FurtherNode {
    cluster: Cluster,
    site: Site,
}

impl Cluster {
    /// Adds a node and waits until it is ready. It has the images that the first node has.
    ///
    /// # Errors
    /// When there are too many, or when it does not become ready in time; what was started of it
    /// is ended then.
    pub async fn add_node(&self, options: &NodeOptions) -> Result<FurtherNode> {
        let node = FurtherNode {
            cluster: self.clone(),
            site: self.layout.claim_node()?,
        };
        let recorded = serde_json::to_vec_pretty(options).context("recording a node")?;
        let started = async {
            paths::write(&node.options_file(), recorded)?;
            node.start().await
        };
        if let Err(error) = started.await {
            let removed = node.remove().await;
            return Err(match removed {
                Ok(()) => error,
                Err(too) => error.context(format!("and removing it failed: {too:#}")),
            });
        }
        Ok(node)
    }

    /// The nodes that were added and not removed, dead or alive.
    pub fn further_nodes(&self) -> Vec<FurtherNode> {
        let sites = self.layout.further_nodes().into_iter();
        sites
            .map(|site| FurtherNode {
                cluster: self.clone(),
                site,
            })
            .collect()
    }
}

impl FurtherNode {
    /// Its name in the cluster.
    pub fn name(&self) -> String {
        self.site.name()
    }

    /// Starts what of it does not run, and waits until it is ready: also after [`Self::lose`].
    ///
    /// # Errors
    /// When something does not become ready in time; the end of its log is in the error.
    pub async fn start(&self) -> Result<()> {
        let Self { cluster, site } = self;
        let started = async {
            let options = self.options()?;
            join::create(site)?;
            cgroups::create(&site.cgroup())?;
            node::prepare(site, &cluster.plane, &options)?;
            let records = site.records();
            records.ensure(&node::containerd(site, &cluster.plane))?;
            node::wait_containerd(site).await?;
            node::copy_images(&cluster.layout.first_node(), site)?;
            records.ensure(&node::kubelet(site, &cluster.plane, &options))?;
            records.ensure(&node::proxy(site, &cluster.plane))?;
            cluster.wait_node(site).await
        };
        started
            .await
            .with_context(|| format!("starting {}", self.name()))
    }

    /// Loses it, as when its power fails: nothing comes or goes from now on, not even the end of a
    /// connection, and all of its processes are killed. Its object stays.
    pub async fn lose(&self) -> Result<()> {
        join::cut(&self.site)?;
        teardown::kill(&self.site).await
    }

    /// Kills what runs under that name in its pods, as the kernel does when memory is short. Returns
    /// how many processes that were.
    pub fn kill_in_pods(&self, program: &str) -> Result<usize> {
        let mut killed = 0;
        for pid in cgroups::processes(&self.site.cgroup())? {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if name.trim_end() == program {
                kill(Pid::from_raw(pid), Signal::SIGKILL)
                    .with_context(|| format!("killing {program} on {}", self.name()))?;
                killed += 1;
            }
        }
        Ok(killed)
    }

    /// A shell on the node itself: in its network, and with that nameserver alone.
    pub fn shell(&self, nameserver: Ipv4Addr, script: &str) -> Result<Cmd> {
        let resolver = self.site.dir().join("resolv-of-shell.conf");
        paths::write(&resolver, format!("nameserver {nameserver}\n"))?;
        Ok(Cmd::new("nsenter")
            .arg(format!("--net={}", self.site.netns().display()))
            .args(["unshare", "--mount", "bash", "-c"])
            .arg(r#"mount --bind "$0" /etc/resolv.conf && exec bash -c "$1""#)
            .arg(resolver)
            .arg(script)
            .timeout(Duration::from_secs(30)))
    }

    /// Ends it and removes its object and all that it left.
    pub async fn remove(&self) -> Result<()> {
        teardown::further_node(&self.site).await?;
        let nodes: Api<Node> = Api::all(self.cluster.client().await?);
        match nodes.delete(&self.name(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            deleted => {
                deleted.with_context(|| format!("deleting the object of {}", self.name()))?;
            }
        }
        Ok(())
    }

    /// Waits until Kubernetes notices that it is lost.
    pub async fn until_not_ready(&self, within: Duration) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.cluster.client().await?);
        let lost = |node: Option<&Node>| !node::is_ready(node);
        kubernetes::wait_for(nodes, &self.name(), "not ready", lost, within).await?;
        Ok(())
    }

    /// What it says of itself when it joins.
    pub fn options(&self) -> Result<NodeOptions> {
        let text = paths::read(&self.options_file())?;
        serde_json::from_str(&text).with_context(|| format!("reading what {} is", self.name()))
    }

    fn options_file(&self) -> PathBuf {
        self.site.dir().join("node.json")
    }
}
