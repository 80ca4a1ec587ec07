//! What a router does by itself for clients and services beside it: its tunneler.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the routers themselves do for clients and services beside them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("has(self.proxy) == (self.mode == 'proxy')", "mode proxy needs tunnel.proxy, and no other mode takes it"),
    validation = ("!has(self.tproxy) || self.mode == 'tproxy'", "tunnel.tproxy is for mode tproxy"),
    validation = ("(self.mode == 'tproxy') == (oldSelf.mode == 'tproxy')", "the mode cannot be changed to or from tproxy: create another ZitiRouter"),
)]
pub struct Tunnel {
    /// The mode.
    #[serde(default)]
    pub mode: TunnelMode,
    /// What mode `proxy` offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// How mode `tproxy` intercepts. May be left out: all of it has defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tproxy: Option<Tproxy>,
}

/// The mode of a router's own tunneler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TunnelMode {
    /// No tunneler: the router forwards only.
    #[default]
    None,
    /// The router hosts the services that Bind policies give it.
    Host,
    /// The router hosts, and offers listed services at ports of its own, with a
    /// Kubernetes Service for each.
    Proxy,
    /// The router hosts, and intercepts traffic to the addresses of the
    /// services that Dial policies give it. It needs NET_ADMIN, and so a
    /// namespace of Pod Security level `privileged`. Cannot be changed to or
    /// from.
    Tproxy,
}

/// The Ziti services that a router in mode `proxy` offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Proxy {
    /// The services, a port of the routers for each. Take a service off this
    /// list before it is deleted or renamed on the network: a connection to a
    /// port whose service is gone ends the Ziti controller (seen with 1.6.0 and
    /// 2.1).
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["port".into()]))]
    pub services: Vec<ProxyService>,
}

/// One Ziti service at one port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyService {
    /// Name of the service on the Ziti network. May come once: a router knows
    /// one port for each service.
    #[schemars(length(min = 1, max = 253))]
    pub service: String,
    /// Port at which every member listens, on all of its addresses (Ziti knows
    /// no other way; see `networkPolicy`).
    #[schemars(range(min = 1024, max = 65535))]
    pub port: u16,
    /// What is carried.
    #[serde(default)]
    pub protocol: ProxyProtocol,
    /// The Kubernetes Service at which clients find it.
    #[serde(default)]
    pub kubernetes_service: KubernetesService,
}

/// What a proxied service carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ProxyProtocol {
    /// Connections.
    #[default]
    Tcp,
    /// Datagrams.
    Udp,
}

/// A Kubernetes Service in front of all members of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("!has(self.nodePort) || (has(self.type) && self.type != 'ClusterIP')", "nodePort is for the types NodePort and LoadBalancer"),
)]
pub struct KubernetesService {
    /// Its name. Default: `<set>-proxy-<port>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub name: Option<String>,
    /// Its type.
    #[serde(default, rename = "type")]
    pub type_: ServiceType,
    /// Its port. Default: that of the routers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// The port at every node. Default: Kubernetes chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub node_port: Option<u16>,
    /// Its annotations, for what a load balancer wants to know.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The type of a Kubernetes Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// Within the cluster.
    #[default]
    ClusterIP,
    /// At a port of every node as well.
    NodePort,
    /// At a load balancer as well.
    LoadBalancer,
}

/// How a router in mode `tproxy` intercepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("!self.hostNetwork || !has(self.clusterDns)", "clusterDns is for the pod's own network: on the host network the kubelet knows the cluster's DNS"),
)]
pub struct Tproxy {
    /// Intercept in the network of the node, for everything that passes there,
    /// rather than in the pod's own. At most one such router may run on a node.
    #[serde(default)]
    pub host_network: bool,
    /// Where the router answers DNS queries for intercepted names. In the pod's
    /// own network, with port 53, it is the pod's first nameserver.
    #[serde(default = "default_resolver")]
    #[schemars(regex(pattern = "^udp://[0-9]{1,3}(\\.[0-9]{1,3}){3}:[0-9]{1,5}$"))]
    pub resolver: String,
    /// The interface at which traffic from others arrives: accepts intercepted
    /// traffic in the firewall's INPUT chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[A-Za-z0-9_.@-]{1,15}$"))]
    pub lan_if: Option<String>,
    /// Addresses that are given to intercepted names. Must not overlap with
    /// networks in use.
    #[serde(default = "default_dns_range")]
    #[schemars(regex(pattern = "^[0-9]{1,3}(\\.[0-9]{1,3}){3}/[0-9]{1,2}$"))]
    pub dns_svc_ip_range: String,
    /// Where the router passes on queries for other names, such as
    /// `udp://10.96.0.10:53`. Default: it refuses them, and the asker goes on to
    /// its next nameserver. Ziti 1.6.0 does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^(udp|tcp)://[0-9]{1,3}(\\.[0-9]{1,3}){3}:[0-9]{1,5}$"))]
    pub dns_upstream: Option<String>,
    /// The cluster's DNS, which the pod asks after the router itself. Default:
    /// the operator's own, where it runs in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_dns: Option<ClusterDns>,
}

fn default_resolver() -> String {
    "udp://127.0.0.1:53".to_owned()
}

fn default_dns_range() -> String {
    "100.64.0.1/10".to_owned()
}

impl Default for Tproxy {
    fn default() -> Self {
        Self {
            host_network: false,
            resolver: default_resolver(),
            lan_if: None,
            dns_svc_ip_range: default_dns_range(),
            dns_upstream: None,
            cluster_dns: None,
        }
    }
}

/// How pods of a cluster resolve names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDns {
    /// Addresses of its nameservers.
    #[schemars(schema_with = "crate::schema::nameservers")]
    pub nameservers: Vec<String>,
    /// The domain of the cluster.
    #[serde(default = "default_cluster_domain")]
    #[schemars(length(min = 1, max = 253))]
    pub domain: String,
}

fn default_cluster_domain() -> String {
    "cluster.local".to_owned()
}
