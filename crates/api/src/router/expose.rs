//! How one listener of each member is exposed, and under which name and port it
//! is advertised.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a listener of each member is reached from outside of its pod. What each
/// type needs is refused with the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("!(has(self.nodePort) || has(self.nodePorts)) || self.type == 'NodePort'", "nodePort and nodePorts are for type NodePort"),
    validation = ("!(has(self.nodePort) && has(self.nodePorts))", "give nodePort or nodePorts, not both"),
    validation = ("!(has(self.port) || has(self.loadBalancerClass) || has(self.sourceRanges)) || self.type == 'LoadBalancer'", "port, loadBalancerClass and sourceRanges are for type LoadBalancer"),
    validation = ("!has(self.externalTrafficPolicy) || self.type in ['NodePort', 'LoadBalancer']", "externalTrafficPolicy is for types NodePort and LoadBalancer"),
    validation = ("!has(self.ingressClassName) || self.type == 'Ingress'", "ingressClassName is for type Ingress"),
    validation = ("has(self.parentRefs) == (self.type == 'TLSRoute')", "type TLSRoute needs parentRefs, and no other has them"),
    validation = ("!has(self.hostPort) || self.type == 'HostPort'", "hostPort is for type HostPort"),
    validation = ("!has(self.annotations) || self.type in ['NodePort', 'LoadBalancer', 'Ingress', 'TLSRoute']", "annotations are for types that make an object of their own: NodePort, LoadBalancer, Ingress, TLSRoute"),
)]
pub struct Expose {
    /// How.
    #[serde(rename = "type", default)]
    pub type_: ExposeType,

    /// Annotations of the Service, Ingress or TLSRoute that exposes the
    /// listener.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub annotations: BTreeMap<String, String>,

    /// For `NodePort`: the port of the first member; each later one has the
    /// next. Default: the cluster chooses, and what it chose is advertised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub node_port: Option<u16>,

    /// For `NodePort`: the port of each member by its name. The cluster chooses
    /// for those that are not named.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 100))]
    pub node_ports: BTreeMap<String, u16>,

    /// For `LoadBalancer`: the port of the load balancer. Default: the
    /// listener's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,

    /// For `LoadBalancer`: who provides it. Default: the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub load_balancer_class: Option<String>,

    /// For `LoadBalancer`: from where it may be reached (CIDR). Default: from
    /// everywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::string_set")]
    pub source_ranges: Vec<String>,

    /// For `NodePort` and `LoadBalancer`: whether nodes without the member pass
    /// traffic on. `Local` keeps the client's address. Default: `Cluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_traffic_policy: Option<TrafficPolicy>,

    /// For `Ingress`: its class. Default: the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub ingress_class_name: Option<String>,

    /// For `TLSRoute`: the gateways that pass the traffic on. Their listener
    /// must be of mode `Passthrough`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub parent_refs: Vec<ParentRef>,

    /// For `HostPort`: the port on the member's node. Default: the listener's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub host_port: Option<u16>,
}

/// How a listener is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExposeType {
    /// Within the cluster, by the member's own Service.
    #[default]
    ClusterIP,
    /// By a port of every node. The advertised host must be given.
    NodePort,
    /// By a load balancer for each member. Its address is advertised unless a
    /// host is given.
    LoadBalancer,
    /// By an Ingress whose controller passes TLS through. The advertised host
    /// must be given.
    Ingress,
    /// By a TLSRoute of the Gateway API. The advertised host must be given.
    #[serde(rename = "TLSRoute")]
    TlsRoute,
    /// By a port of the node on which the member runs. The node's address is
    /// advertised unless a host is given. Restricted and baseline Pod Security
    /// forbid it.
    HostPort,
    /// Not at all. Nothing is advertised; an edge listener is then on loopback,
    /// since a router needs one.
    None,
}

impl Expose {
    /// The type as it is written.
    pub fn type_name(&self) -> &'static str {
        match self.type_ {
            ExposeType::ClusterIP => "ClusterIP",
            ExposeType::NodePort => "NodePort",
            ExposeType::LoadBalancer => "LoadBalancer",
            ExposeType::Ingress => "Ingress",
            ExposeType::TlsRoute => "TLSRoute",
            ExposeType::HostPort => "HostPort",
            ExposeType::None => "None",
        }
    }
}

/// Whether nodes without the member pass traffic on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TrafficPolicy {
    /// They do.
    Cluster,
    /// They do not.
    Local,
}

/// A Gateway to which a TLSRoute is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParentRef {
    /// Name of the Gateway.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace. Default: the set's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// The listener of the Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub section_name: Option<String>,
    /// Port of the listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
}

/// Under which name and port a listener of each member is advertised: where
/// others are told to dial. The name goes into the member's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Advertise {
    /// A host name or an IPv4 address, in which `{member}`, `{namespace}`,
    /// `{set}` and `{index}` (0, 1, …) are the member's; for type `HostPort`
    /// also `{node}` and `{hostIP}`. Default: what the exposure gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[A-Za-z0-9._{}-]+$"))]
    pub host: Option<String>,
    /// The port. Default: the one at which the exposure is reached; 443 for
    /// Ingress and TLSRoute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
}
