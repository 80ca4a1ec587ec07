//! The network of a further node: a namespace of its own, and a veth pair that joins it with the
//! first node's, over which it reaches the cluster and the host. Whoever takes the pair away cuts
//! the node off.

use anyhow::Result;

use super::network::{forwarding, ip};
use super::site::Site;

/// Makes what is missing of the namespace, the pair and the routes of both sides.
pub(super) fn create(site: &Site) -> Result<()> {
    if !site.netns().exists() {
        ip(&["netns", "add", &site.netns_name()])?;
    }
    let (there, here) = site.link();
    let first = site.cluster.netns_name();
    let own = site.netns_name();
    if in_netns(&first, &["link", "show", &there]).is_err() {
        ip(&[
            "link", "add", &there, "netns", &first, "type", "veth", "peer", "name", here, "netns",
            &own,
        ])?;
    }
    let (outer, inner) = site.link_addresses();
    let own_address = format!("{}/32", site.address());

    let inside = |args: &[&str]| in_netns(&own, args);
    let bridge = site.name();
    inside(&["link", "set", "lo", "up"])?;
    if inside(&["link", "show", &bridge]).is_err() {
        inside(&["link", "add", &bridge, "type", "bridge"])?;
    }
    inside(&["addr", "replace", &own_address, "dev", &bridge])?;
    inside(&["link", "set", &bridge, "up"])?;
    let inner_prefix = format!("{inner}/30");
    inside(&["addr", "replace", &inner_prefix, "dev", here])?;
    inside(&["link", "set", here, "up"])?;
    // Without any route to the Services, a packet to one that starts on the node itself is refused
    // before kube-proxy's rules see it.
    let services = site.cluster.services();
    inside(&["route", "replace", &services, "dev", &bridge])?;
    // All nodes and the host, and all pods but its own.
    let via = outer.to_string();
    for range in ["10.88.0.0/16", &site.cluster.pods()] {
        inside(&["route", "replace", range, "via", &via, "dev", here])?;
    }

    let outside = |args: &[&str]| in_netns(&first, args);
    let outer_prefix = format!("{outer}/30");
    outside(&["addr", "replace", &outer_prefix, "dev", &there])?;
    outside(&["link", "set", &there, "up"])?;
    let via = inner.to_string();
    for range in [own_address, site.pods()] {
        outside(&["route", "replace", &range, "via", &via, "dev", &there])?;
    }
    forwarding(&site.netns())
}

/// Takes the pair away, and with it the routes: from now on nothing comes or goes.
pub(super) fn cut(site: &Site) -> Result<()> {
    let (_, here) = site.link();
    let own = site.netns_name();
    if site.netns().exists() && in_netns(&own, &["link", "show", here]).is_ok() {
        in_netns(&own, &["link", "del", here])?;
    }
    Ok(())
}

/// Removes the namespace and, with it, the pair.
pub(super) fn remove(site: &Site) -> Result<()> {
    cut(site)?;
    if site.netns().exists() {
        ip(&["netns", "del", &site.netns_name()])?;
    }
    Ok(())
}

fn in_netns(netns: &str, args: &[&str]) -> Result<()> {
    let mut all = vec!["-n", netns];
    all.extend(args);
    ip(&all)
}
