//! The names, addresses and directories of one node, derived from its cluster and its number. The
//! first node lies in the cluster's own directory and network namespace, beside the control plane;
//! each further one has its own.

use std::fs;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::layout::Layout;
use crate::paths;
use crate::process::Records;

/// How many nodes a cluster may have: a pod range of each is cut from the cluster's.
pub const MAX_NODES: u8 = 8;

/// Where one node is.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) cluster: Layout,
    /// 0 is the node of the control plane.
    pub(super) number: u8,
}

impl Layout {
    /// The node beside the control plane.
    pub(super) fn first_node(&self) -> Site {
        self.node(0)
    }

    /// The node of that number, whether or not it was ever started.
    pub(super) fn node(&self, number: u8) -> Site {
        Site {
            cluster: self.clone(),
            number,
        }
    }

    /// The further nodes that were started and not removed, dead or alive: those with a directory.
    pub(super) fn further_nodes(&self) -> Vec<Site> {
        (1..MAX_NODES)
            .map(|number| self.node(number))
            .filter(|site| site.dir().is_dir())
            .collect()
    }

    /// A site for one more node. Making its directory is what claims it, so that two that are
    /// added at once get different ones.
    pub(super) fn claim_node(&self) -> Result<Site> {
        paths::make_dir(&self.dir.join("nodes"))?;
        for number in 1..MAX_NODES {
            let site = self.node(number);
            match fs::create_dir(site.dir()) {
                Ok(()) => return Ok(site),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("creating {}", site.dir().display()));
                }
            }
        }
        bail!(
            "cluster {} has {MAX_NODES} nodes already, and no more fit",
            self.name
        )
    }
}

impl Site {
    fn is_first(&self) -> bool {
        self.number == 0
    }

    // Names.

    /// The node's name in the cluster.
    pub(super) fn name(&self) -> String {
        format!("node{}", self.number)
    }

    /// What its namespace, its cgroup and its CNI network are called. No cluster's name has a dot.
    fn handle(&self) -> String {
        let cluster = format!("ziti-testbed-{}", self.cluster.name);
        if self.is_first() {
            cluster
        } else {
            format!("{cluster}.{}", self.name())
        }
    }

    pub(super) fn netns_name(&self) -> String {
        self.handle()
    }

    pub(super) fn netns(&self) -> PathBuf {
        Path::new("/run/netns").join(self.netns_name())
    }

    /// Below this cgroup lie all of its pods.
    pub(super) fn cgroup(&self) -> String {
        self.handle()
    }

    /// The name of the CNI network, with which the CNI library names what it caches.
    pub(super) fn cni_network(&self) -> String {
        self.handle()
    }

    /// The name of its certificate and its kubeconfig.
    pub(super) fn credential(&self) -> String {
        if self.is_first() {
            "kubelet".to_owned()
        } else {
            format!("kubelet-{}", self.name())
        }
    }

    /// The pair that joins a further node with the first: its ends there and here.
    pub(super) fn link(&self) -> (String, &'static str) {
        (format!("to-{}", self.name()), "to-node0")
    }

    // Addresses, within the cluster's ranges.

    pub(super) fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 88, self.cluster.index, 1 + self.number)
    }

    pub(super) fn pods(&self) -> String {
        format!("10.{}.{}.0/20", 144 + self.cluster.index, 16 * self.number)
    }

    /// The addresses of the pair's ends, there and here.
    pub(super) fn link_addresses(&self) -> (Ipv4Addr, Ipv4Addr) {
        let end = |n| Ipv4Addr::new(10, 88, 120 + self.cluster.index, 4 * self.number + n);
        (end(1), end(2))
    }

    // Directories.

    pub(super) fn dir(&self) -> PathBuf {
        if self.is_first() {
            self.cluster.dir.clone()
        } else {
            self.cluster.dir.join("nodes").join(self.name())
        }
    }

    pub(super) fn records(&self) -> Records {
        Records::new(self.dir().join("processes"))
    }

    pub(super) fn log(&self, program: &str) -> PathBuf {
        self.dir().join(format!("log/{program}.log"))
    }

    pub(super) fn containerd_socket(&self) -> PathBuf {
        self.dir().join("containerd/containerd.sock")
    }

    pub(super) fn containerd_state(&self) -> PathBuf {
        self.dir().join("containerd/state")
    }

    pub(super) fn kubelet_dir(&self) -> PathBuf {
        self.dir().join("kubelet")
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::MAX_INDEX;
    use super::*;

    fn layout(dir: &Path) -> Layout {
        Layout {
            name: "x".repeat(20),
            index: MAX_INDEX - 1,
            dir: dir.to_owned(),
            beside: None,
        }
    }

    #[test]
    fn nodes_share_nothing() {
        let layout = layout(Path::new("/run"));
        let nodes: Vec<Site> = (0..MAX_NODES).map(|number| layout.node(number)).collect();
        for (n, one) in nodes.iter().enumerate() {
            assert!(one.link().0.len() <= 15, "the kernel's limit");
            for other in &nodes[..n] {
                assert_ne!(one.handle(), other.handle());
                assert_ne!(one.credential(), other.credential());
                assert_ne!(one.address(), other.address());
                assert_ne!(one.pods(), other.pods());
                assert_ne!(one.link_addresses(), other.link_addresses());
                assert_ne!(one.containerd_socket(), other.containerd_socket());
            }
        }
    }

    #[test]
    fn a_place_is_given_once() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(dir.path());
        assert!(layout.further_nodes().is_empty());
        assert_eq!(layout.claim_node().unwrap().number, 1);
        assert_eq!(layout.claim_node().unwrap().number, 2);
        fs::remove_dir(layout.node(1).dir()).unwrap();
        assert_eq!(layout.claim_node().unwrap().number, 1);
        assert_eq!(layout.further_nodes().len(), 2);
    }
}
