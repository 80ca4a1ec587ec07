//! Mode `tproxy`: what its listener is told, how its pods differ, and what
//! cannot be. Only `tunnel`, `workload` and `pod` ask for it.
//!
//! What the router does: it adds `dnsSvcIpRange` to the interface `lo`, makes a
//! chain [`CHAIN`] with a rule for each intercepted address, and answers DNS
//! queries for intercepted names. At SIGTERM it takes all of it back; killed, it
//! leaves it behind (seen with 1.6.0).

use super::member::ROUTER_CONTAINER;
use super::render::namespace;
use crate::edge_router::Problem;
use api::router::{ClusterDns, Tproxy, Tunnel, TunnelMode, ZitiRouterSpec};
use api::{ZitiRouter, reasons};
use k8s_openapi::api::core::v1::{
    Container, PodDNSConfig, PodDNSConfigOption, PodSpec, Sysctl, VolumeMount,
};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

/// The chain in which the router puts its rules.
const CHAIN: &str = "NF-INTERCEPT";

/// The settings of the mode, or the default ones.
fn settings(tunnel: &Tunnel) -> Cow<'_, Tproxy> {
    match &tunnel.tproxy {
        Some(tproxy) => Cow::Borrowed(tproxy),
        None => Cow::Owned(Tproxy::default()),
    }
}

/// The options of the listener.
pub(super) fn listener_options(tunnel: &Tunnel) -> Value {
    let tproxy = settings(tunnel);
    let mut options = json!({
        "mode": "tproxy",
        "resolver": tproxy.resolver,
        "dnsSvcIpRange": tproxy.dns_svc_ip_range,
    });
    if let Some(interface) = &tproxy.lan_if {
        options["lanIf"] = json!(interface);
    }
    if let Some(upstream) = &tproxy.dns_upstream {
        options["dnsUpstream"] = json!(upstream);
    }
    options
}

/// Why the mode cannot be as it is written, if it cannot. `known` is the DNS of
/// the operator's cluster.
pub(super) fn fault(spec: &ZitiRouterSpec, known: Option<&ClusterDns>) -> Option<Problem> {
    if spec.tunnel.mode != TunnelMode::Tproxy {
        return None;
    }
    let tproxy = settings(&spec.tunnel);
    let invalid = |message: String| Some(Problem::new(reasons::INVALID_SPEC, message));
    if resolver(&tproxy).is_none() {
        return invalid(format!(
            "spec.tunnel.tproxy.resolver is {:?}: write udp://, an IPv4 address and a port, such as udp://127.0.0.1:53",
            tproxy.resolver
        ));
    }
    if let Some(upstream) = &tproxy.dns_upstream
        && address(upstream).is_none()
    {
        return invalid(format!(
            "spec.tunnel.tproxy.dnsUpstream is {upstream:?}: write udp:// or tcp://, an IPv4 address and a port, such as udp://10.96.0.10:53"
        ));
    }
    if !is_range(&tproxy.dns_svc_ip_range) {
        return invalid(format!(
            "spec.tunnel.tproxy.dnsSvcIpRange is {:?}: write an IPv4 address and a prefix length, such as 100.64.0.1/10",
            tproxy.dns_svc_ip_range
        ));
    }
    let own = tproxy.cluster_dns.as_ref();
    if let Some(nameserver) = own
        .iter()
        .flat_map(|dns| &dns.nameservers)
        .find(|nameserver| nameserver.parse::<IpAddr>().is_err())
    {
        return invalid(format!(
            "spec.tunnel.tproxy.clusterDns.nameservers holds {nameserver:?}, which is no IP address"
        ));
    }
    if resolves_first(&tproxy) && own.or(known).is_none() {
        return invalid(
            "the pod asks the router for names first and the cluster's DNS after it, whose address is not known to the operator: set spec.tunnel.tproxy.clusterDns.nameservers to the address of the Service of your cluster's DNS"
                .to_owned(),
        );
    }
    None
}

/// Where the router answers queries.
fn resolver(tproxy: &Tproxy) -> Option<SocketAddrV4> {
    tproxy
        .resolver
        .starts_with("udp://")
        .then(|| address(&tproxy.resolver))?
}

fn address(url: &str) -> Option<SocketAddrV4> {
    url.split_once("://")?.1.parse().ok()
}

fn is_range(range: &str) -> bool {
    range.split_once('/').is_some_and(|(address, length)| {
        let length = length.parse::<u8>();
        address.parse::<Ipv4Addr>().is_ok() && length.is_ok_and(|length| length <= 32)
    })
}

/// Whether the router is the first nameserver of its pod. In `resolv.conf` a
/// nameserver has no port, so it is always 53.
fn resolves_first(tproxy: &Tproxy) -> bool {
    !tproxy.host_network && resolver(tproxy).is_some_and(|address| address.port() == 53)
}

/// Make a pod's spec that of a set in mode `tproxy`, where it is in that mode.
pub(super) fn dress(object: &ZitiRouter, known: Option<&ClusterDns>, spec: &mut PodSpec) {
    if object.spec.tunnel.mode != TunnelMode::Tproxy {
        return;
    }
    let tproxy = settings(&object.spec.tunnel);
    let security = spec.security_context.get_or_insert_default();
    // Capabilities reach a process of another user only through file
    // capabilities, which the stock image has not. All containers, since one
    // without CAP_DAC_OVERRIDE cannot read what another user wrote.
    security.run_as_user = Some(0);
    security.run_as_non_root = Some(false);
    let mut add = vec!["NET_ADMIN".to_owned()];
    if tproxy.host_network {
        spec.host_network = Some(true);
        spec.dns_policy = Some("ClusterFirstWithHostNet".to_owned());
        // The node's own sysctl is not ours to set.
        if resolver(&tproxy).is_some_and(|address| address.port() < 1024) {
            add.push("NET_BIND_SERVICE".to_owned());
        }
    } else {
        // For port 53, in place of a capability.
        security.sysctls = Some(vec![Sysctl {
            name: "net.ipv4.ip_unprivileged_port_start".to_owned(),
            value: "0".to_owned(),
        }]);
        if resolves_first(&tproxy)
            && let Some(dns) = tproxy.cluster_dns.as_ref().or(known)
        {
            spec.dns_policy = Some("None".to_owned());
            spec.dns_config = Some(dns_config(object, &tproxy, dns));
        }
    }
    let routers = spec.containers.iter_mut();
    for router in routers.filter(|container| container.name == ROUTER_CONTAINER) {
        capable(router, add.clone());
        if tproxy.host_network {
            clean_first(&tproxy, router);
        }
        router
            .volume_mounts
            .get_or_insert_default()
            .push(lock_dir());
    }
}

fn capable(container: &mut Container, add: Vec<String>) {
    let security = container.security_context.get_or_insert_default();
    let capabilities = security.capabilities.get_or_insert_default();
    capabilities.add = Some(add);
}

/// Some versions of iptables keep a lock here; the rest of the root is
/// read-only.
fn lock_dir() -> VolumeMount {
    VolumeMount {
        name: "tmp".to_owned(),
        mount_path: "/run".to_owned(),
        sub_path: Some("run".to_owned()),
        ..VolumeMount::default()
    }
}

/// First the router, which refuses what is none of its names, then the
/// cluster's DNS; and the search domains that the kubelet would have written.
fn dns_config(object: &ZitiRouter, tproxy: &Tproxy, dns: &ClusterDns) -> PodDNSConfig {
    let listens = resolver(tproxy).map_or(Ipv4Addr::LOCALHOST, |address| *address.ip());
    let router = if listens.is_unspecified() {
        Ipv4Addr::LOCALHOST
    } else {
        listens
    };
    let domain = &dns.domain;
    let nameservers = std::iter::once(router.to_string()).chain(dns.nameservers.iter().cloned());
    PodDNSConfig {
        nameservers: Some(nameservers.collect()),
        searches: Some(vec![
            format!("{}.svc.{domain}", namespace(object)),
            format!("svc.{domain}"),
            domain.clone(),
        ]),
        options: Some(vec![PodDNSConfigOption {
            name: Some("ndots".to_owned()),
            value: Some("5".to_owned()),
        }]),
    }
}

/// What a router's container does first on the network of the node: it takes
/// away what a killed router left there, which the next one would leave as it
/// is. That is its chain, with rules for services that are intercepted no more,
/// and the addresses on `lo`, which the rules name. It is no init container: one
/// does not run when the kubelet restarts the router alone. (A pod's own network
/// goes with the pod.)
fn clean_first(tproxy: &Tproxy, router: &mut Container) {
    let script = format!(
        r#"iptables -w -t mangle -S {CHAIN} 2>/dev/null | while read -r _ _ option address _ destination _; do
  [ "$option" = -s ] && address=$destination
  ip address del "$address" dev lo 2>/dev/null
done
ip address del {range} dev lo 2>/dev/null
clean() {{
  while iptables -w -t "$1" -D "$2" -j {CHAIN} 2>/dev/null; do :; done
  iptables -w -t "$1" -F {CHAIN} 2>/dev/null && iptables -w -t "$1" -X {CHAIN}
}}
clean mangle PREROUTING
clean filter INPUT
exec "$@""#,
        range = tproxy.dns_svc_ip_range,
    );
    let mut command = ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
    command.extend(router.command.take().unwrap_or_default());
    router.command = Some(command);
}
