//! The names, addresses and directories of one cluster, all derived from its name and a small
//! index, so that several clusters live side by side.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::control_plane::ControlPlane;
use crate::paths;
use crate::process::{Fate, Records};

/// How many clusters fit on one machine.
pub(super) const MAX_INDEX: u8 = 16;

/// The layout of one cluster. It is written into the cluster's directory, where `down` finds it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Layout {
    pub(super) name: String,
    pub(super) index: u8,
    pub(super) dir: PathBuf,
    /// The index of the cluster beside which it is the second one.
    #[serde(default)]
    pub(super) beside: Option<u8>,
}

impl Layout {
    /// The layout recorded in that directory, if there is one.
    pub(super) fn load(dir: &Path) -> Result<Option<Self>> {
        let path = Self::file(dir);
        if !path.exists() {
            return Ok(None);
        }
        let layout = serde_json::from_str(&paths::read(&path)?)
            .with_context(|| format!("reading {}", path.display()))?;
        Ok(Some(layout))
    }

    /// Records it.
    pub(super) fn save(&self) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).context("recording a cluster")?;
        paths::write(&Self::file(&self.dir), text)
    }

    fn file(dir: &Path) -> PathBuf {
        dir.join("cluster.json")
    }

    /// Names become parts of paths and of a network namespace's name.
    pub(super) fn check_name(name: &str) -> Result<()> {
        ensure!(
            !name.is_empty()
                && name.len() <= 20
                && name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
            "{name:?} is no name for a cluster: at most 20 of a-z, 0-9 and -"
        );
        Ok(())
    }

    // Names.

    pub(super) fn netns_name(&self) -> String {
        self.first_node().netns_name()
    }

    pub(super) fn netns(&self) -> PathBuf {
        self.first_node().netns()
    }

    /// The two ends of the veth pair, on the host and in the namespace.
    pub(super) fn link(&self) -> (String, String) {
        (
            format!("zitibed{}-host", self.index),
            format!("zitibed{}-node", self.index),
        )
    }

    // Addresses of the cluster; those of a node are in `site`. 10.88/16 is for nodes and links,
    // 10.144-159 for pods, 10.160-175 for Services.

    pub(super) fn node_address(&self) -> Ipv4Addr {
        self.first_node().address()
    }

    pub(super) fn node_range(&self) -> String {
        format!("10.88.{}.0/24", self.index)
    }

    pub(super) fn host_link_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 88, 100 + self.index, 1)
    }

    pub(super) fn node_link_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 88, 100 + self.index, 2)
    }

    pub(super) fn pods(&self) -> String {
        format!("10.{}.0.0/16", 144 + self.index)
    }

    pub(super) fn services(&self) -> String {
        format!("10.{}.0.0/16", 160 + self.index)
    }

    pub(super) fn first_service(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 160 + self.index, 0, 1)
    }

    pub(super) fn dns(&self) -> Ipv4Addr {
        Self::dns_of(self.index)
    }

    pub(super) fn dns_of(index: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 160 + index, 0, 10)
    }

    // Directories.

    pub(super) fn records(&self) -> Records {
        Records::new(self.dir.join("processes"))
    }

    /// Where the second cluster beside this one lies.
    pub(super) fn second_dir(&self) -> PathBuf {
        self.dir.join("second")
    }

    /// Where persistent volumes lie, those of all nodes: each has a name of its own, and belongs to
    /// the node on which it was made.
    pub(super) fn volumes(&self) -> PathBuf {
        self.dir.join("volumes")
    }

    pub(super) fn control_plane(&self, bin: PathBuf) -> ControlPlane {
        ControlPlane {
            bin,
            dir: self.dir.clone(),
            address: self.node_address(),
            port: 6443,
            etcd_ports: (2379, 2380),
            services: self.services(),
            first_service: self.first_service(),
            pods: self.pods(),
            netns: Some(self.netns()),
            fate: Fate::Detached,
            audit_reads: self.beside.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_names_fit_the_kernel() {
        let layout = Layout {
            name: "x".repeat(20),
            index: MAX_INDEX - 1,
            dir: PathBuf::new(),
            beside: None,
        };
        let (host, node) = layout.link();
        assert!(host.len() <= 15 && node.len() <= 15, "{host} {node}");
    }

    #[test]
    fn a_name_cannot_lead_out_of_the_directory() {
        assert!(Layout::check_name("../other").is_err());
        assert!(Layout::check_name("").is_err());
        assert!(Layout::check_name("demo-2").is_ok());
    }
}
