//! The cluster's network namespace and the veth pair that joins it with the host. The host gets
//! routes to the node, the pods and the Services, so that tests reach all three; the namespace
//! gets no default route, so that nothing in the cluster reaches anything beyond the host.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::layout::{Layout, MAX_INDEX};
use crate::command::Cmd;

/// Makes the namespace and the pair where they are missing. For a new cluster (`layout.index`
/// not yet settled) it takes the first index whose veth name is free: creating the pair is what
/// claims it, so two clusters that start at once get different ones.
pub(super) fn create(layout: &mut Layout, settled: bool) -> Result<()> {
    if !layout.netns().exists() {
        ip(&["netns", "add", &layout.netns_name()])?;
    }
    if !settled {
        claim_index(layout)?;
    } else if !host_has(&layout.link().0) {
        add_pair(layout)?;
    }
    configure(layout)
}

/// Removes the namespace and, with it, the pair.
pub(super) fn remove(layout: &Layout) -> Result<()> {
    if host_has(&layout.link().0) {
        ip(&["link", "del", &layout.link().0])?;
    }
    if layout.netns().exists() {
        ip(&["netns", "del", &layout.netns_name()])?;
    }
    Ok(())
}

fn claim_index(layout: &mut Layout) -> Result<()> {
    for index in 0..MAX_INDEX {
        layout.index = index;
        if host_has(&layout.link().0) {
            continue;
        }
        if add_pair(layout).is_ok() {
            return Ok(());
        }
        // Another cluster was faster, or it cannot be done at all: then say why.
        if !host_has(&layout.link().0) {
            return add_pair(layout);
        }
    }
    bail!("{MAX_INDEX} clusters run here already")
}

fn add_pair(layout: &Layout) -> Result<()> {
    let (host, node) = layout.link();
    let netns = layout.netns_name();
    ip(&[
        "link", "add", &host, "type", "veth", "peer", "name", &node, "netns", &netns,
    ])
}

/// Addresses and routes; all of it may be there already.
fn configure(layout: &Layout) -> Result<()> {
    let (host, node) = layout.link();
    let netns = layout.netns_name();
    let inside = |args: &[&str]| {
        let mut all = vec!["-n", &netns];
        all.extend(args);
        ip(&all)
    };
    inside(&["link", "set", "lo", "up"])?;
    // A bridge carries the node's address: it stays up without a cable, and the link type `dummy`
    // is missing in some kernels.
    if inside(&["link", "show", "node0"]).is_err() {
        inside(&["link", "add", "node0", "type", "bridge"])?;
    }
    let node_address = format!("{}/24", layout.node_address());
    inside(&["addr", "replace", &node_address, "dev", "node0"])?;
    inside(&["link", "set", "node0", "up"])?;
    let inner = format!("{}/30", layout.node_link_address());
    inside(&["addr", "replace", &inner, "dev", &node])?;
    inside(&["link", "set", &node, "up"])?;
    // Without any route to the Services, a packet to one that starts on the node itself is refused
    // before kube-proxy's rules see it.
    inside(&["route", "replace", &layout.services(), "dev", "node0"])?;

    let outer = format!("{}/30", layout.host_link_address());
    ip(&["addr", "replace", &outer, "dev", &host])?;
    ip(&["link", "set", &host, "up"])?;
    let via = layout.node_link_address().to_string();
    for range in [layout.node_range(), layout.pods(), layout.services()] {
        ip(&["route", "replace", &range, "via", &via, "dev", &host])?;
    }
    forwarding(&layout.netns())
}

/// Makes a router of a network namespace, as a node is one for its pods.
pub(super) fn forwarding(netns: &Path) -> Result<()> {
    let sysctl = |setting: &str| {
        Cmd::new("nsenter")
            .arg(format!("--net={}", netns.display()))
            .args(["sysctl", "-qw", setting])
            .run()
            .with_context(|| format!("setting {setting} in the cluster's network namespace"))
    };
    sysctl("net.ipv4.ip_forward=1")?;
    // Else a pod's answer through a Service to a pod on the same bridge would not come back
    // through kube-proxy's rules. Where it is built into the kernel there is nothing to load.
    let _ = Cmd::new("modprobe").arg("br_netfilter").run();
    if Path::new("/proc/sys/net/bridge").exists() {
        sysctl("net.bridge.bridge-nf-call-iptables=1")?;
    }
    Ok(())
}

fn host_has(link: &str) -> bool {
    Path::new("/sys/class/net").join(link).exists()
}

pub(super) fn ip(args: &[&str]) -> Result<()> {
    Cmd::new("ip")
        .args(args)
        .run()
        .context("setting up the cluster's network (this needs root)")
}
