//! What joins a second cluster with the first: a veth pair between the two namespaces, with routes
//! to nodes, pods and Services on both sides, and rules in the second's namespace that say what may
//! pass.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};

use super::layout::Layout;
use super::network::ip;
use crate::command::Cmd;

/// The chains of the rules for packets that come and that go, in table `mangle`: kube-proxy has
/// nothing there, and its rules come later.
const CHAINS: [(&str, &str, &str); 2] = [
    ("LINK-IN", "PREROUTING", "--in-interface"),
    ("LINK-OUT", "POSTROUTING", "--out-interface"),
];

/// What passes between the first cluster and the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// Everything, both ways.
    Open,
    /// What the second begins: it is dark. Neither its API server nor anything else in it is reached
    /// from the first, not even by a connection that was there before.
    Outward,
    /// Nothing. Packets are dropped in silence, as when a cable is cut far away: nobody learns of it
    /// but by waiting.
    Closed,
}

/// Makes what is missing of the pair and its routes; what may pass stays as it is.
pub(super) fn create(first: &Layout, second: &Layout) -> Result<()> {
    let [here, there] = ends(first, second);
    if in_netns(first, &["link", "show", &here.name]).is_err() {
        ip(&[
            "link",
            "add",
            &here.name,
            "netns",
            &first.netns_name(),
            "type",
            "veth",
            "peer",
            "name",
            &there.name,
            "netns",
            &second.netns_name(),
        ])?;
    }
    for (layout, end) in [(first, &here), (second, &there)] {
        let address = format!("{}/30", end.address);
        in_netns(layout, &["addr", "replace", &address, "dev", &end.name])?;
        in_netns(layout, &["link", "set", &end.name, "up"])?;
    }
    for (layout, end, other, via) in [
        (first, &here, second, there.address),
        (second, &there, first, here.address),
    ] {
        let via = via.to_string();
        for range in [other.node_range(), other.pods(), other.services()] {
            in_netns(
                layout,
                &["route", "replace", &range, "via", &via, "dev", &end.name],
            )?;
        }
    }
    hook_rules(second, &there.name)
}

/// Says what may pass from now on, also of connections that are there.
pub(super) fn set(second: &Layout, passage: Passage) -> Result<()> {
    inside(second, "iptables-restore")
        .args(["--noflush", "--wait", "10"])
        .stdin(rules(passage))
        .run()
        .context("setting what may pass between the clusters")
}

fn rules(passage: Passage) -> String {
    let drop = match passage {
        Passage::Open => "",
        // Of a connection that the first began, all that comes from there.
        Passage::Outward => "-A LINK-IN -m conntrack --ctdir ORIGINAL -j DROP\n",
        Passage::Closed => "-A LINK-IN -j DROP\n-A LINK-OUT -j DROP\n",
    };
    // To declare a chain empties it, and all of it is done at once.
    format!("*mangle\n:LINK-IN - [0:0]\n:LINK-OUT - [0:0]\n{drop}COMMIT\n")
}

/// Makes the chains and leads what passes the link through them.
fn hook_rules(second: &Layout, link: &str) -> Result<()> {
    for (chain, hook, direction) in CHAINS {
        let iptables = |args: &[&str]| {
            inside(second, "iptables")
                .args(["--wait", "10", "--table", "mangle"])
                .args(args)
                .run()
        };
        let jump = [hook, direction, link, "--jump", chain];
        if iptables(&[&["--check"], &jump[..]].concat()).is_ok() {
            continue;
        }
        // It may be there, from a start that was interrupted.
        let _ = iptables(&["--new-chain", chain]);
        iptables(&[&["--append"], &jump[..]].concat())
            .context("making rules for what passes between the clusters")?;
    }
    Ok(())
}

/// One end of the pair.
struct End {
    name: String,
    address: Ipv4Addr,
}

/// The ends in the first cluster and in the second.
fn ends(first: &Layout, second: &Layout) -> [End; 2] {
    let address = |n| Ipv4Addr::new(10, 88, 144 + first.index, 4 * second.index + n);
    [
        End {
            name: format!("to-cluster{}", second.index),
            address: address(1),
        },
        End {
            name: format!("to-cluster{}", first.index),
            address: address(2),
        },
    ]
}

fn inside(layout: &Layout, program: &str) -> Cmd {
    Cmd::new("nsenter")
        .arg(format!("--net={}", layout.netns().display()))
        .arg(program)
        .timeout(Duration::from_secs(30))
}

fn in_netns(layout: &Layout, args: &[&str]) -> Result<()> {
    let netns = layout.netns_name();
    ip(&[&["-n", netns.as_str()], args].concat())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::layout::MAX_INDEX;
    use super::*;

    fn layout(index: u8) -> Layout {
        Layout {
            name: String::new(),
            index,
            dir: PathBuf::new(),
            beside: None,
        }
    }

    #[test]
    fn each_pair_of_clusters_has_addresses_of_its_own() {
        let mut seen = Vec::new();
        for first in 0..MAX_INDEX {
            for second in 0..MAX_INDEX {
                for end in ends(&layout(first), &layout(second)) {
                    assert!(end.name.len() <= 15, "the kernel's limit");
                    assert!(!seen.contains(&end.address), "{}", end.address);
                    seen.push(end.address);
                }
            }
        }
    }
}
