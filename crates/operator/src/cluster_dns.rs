//! How pods of this cluster resolve names, as the operator's own pod shows it.

use api::router::ClusterDns;
use std::net::IpAddr;

/// What the kubelet wrote for this pod; nothing outside of a cluster, where the
/// file speaks of another DNS.
pub(crate) fn own() -> Option<ClusterDns> {
    of_pod(&std::fs::read_to_string("/etc/resolv.conf").ok()?)
}

/// The cluster's DNS in a `resolv.conf` of a pod that asks it. Such a one has
/// the search domain `svc.<domain of the cluster>`.
fn of_pod(text: &str) -> Option<ClusterDns> {
    let lines = text.lines().map(|line| {
        let mut words = line.split_whitespace();
        (words.next().unwrap_or_default(), words)
    });
    let (mut nameservers, mut domain) = (Vec::new(), None);
    for (key, mut values) in lines {
        match key {
            "nameserver" => nameservers.extend(
                values
                    .next()
                    .filter(|address| address.parse::<IpAddr>().is_ok())
                    .map(str::to_owned),
            ),
            "search" => {
                domain = values.find_map(|name| name.strip_prefix("svc.").map(str::to_owned));
            }
            _ => {}
        }
    }
    // The kubelet takes three at most, and a router comes first.
    nameservers.truncate(2);
    (!nameservers.is_empty()).then_some(ClusterDns {
        nameservers,
        domain: domain?,
    })
}

#[cfg(test)]
mod tests {
    use super::of_pod;

    #[test]
    fn a_pod_that_asks_the_cluster_shows_its_dns() {
        let text = "search ziti-operator.svc.wharf.local svc.wharf.local wharf.local example.com\n\
                    nameserver 10.96.0.10\noptions ndots:5\n";
        let dns = of_pod(text).unwrap();
        assert_eq!(dns.nameservers, ["10.96.0.10"]);
        assert_eq!(dns.domain, "wharf.local");
    }

    #[test]
    fn a_machine_outside_of_a_cluster_shows_none() {
        assert_eq!(of_pod("nameserver 192.0.2.1\nsearch example.com\n"), None);
        assert_eq!(of_pod("search a.svc.x svc.x x\n"), None);
        assert_eq!(of_pod(""), None);
    }
}
