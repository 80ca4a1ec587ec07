//! Where members are reached, and how they reach each other.

use super::expose::{Advertise, Expose};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where SDKs and tunnelers reach a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.expose) || !(self.expose.type in ['NodePort', 'Ingress', 'TLSRoute']) || (has(self.advertise) && has(self.advertise.host))", "types NodePort, Ingress and TLSRoute need advertise.host"))]
pub struct EdgeListener {
    /// Port of the listener and of the member's Service.
    #[serde(default = "default_edge_port")]
    #[schemars(range(min = 1024, max = 65535))]
    pub port: u16,
    /// What is spoken there.
    #[serde(default)]
    pub protocol: EdgeProtocol,
    /// How it is exposed. Default: by the member's ClusterIP Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expose: Option<Expose>,
    /// Under which name and port it is advertised. Default:
    /// `<member>.<namespace>.svc` and the listener's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<Advertise>,
    /// Options of the listener, as the router's `listeners[].options`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::free_object")]
    pub options: Option<Map<String, Value>>,
    /// How often, in seconds, the router tells its controllers which sessions
    /// it serves. The router's own default is 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 60))]
    pub heartbeat_interval_seconds: Option<i32>,
    /// Edge listeners besides this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::named::<ExtraEdgeListener>")]
    pub listeners: Vec<ExtraEdgeListener>,
}

/// One more edge listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.expose) || !(self.expose.type in ['NodePort', 'Ingress', 'TLSRoute']) || (has(self.advertise) && has(self.advertise.host))", "types NodePort, Ingress and TLSRoute need advertise.host"))]
pub struct ExtraEdgeListener {
    /// Its name: of the port in the member's Service, and in the names of what
    /// exposes it.
    #[schemars(schema_with = "listener_name")]
    pub name: String,
    /// Port of the listener and of the member's Service.
    #[schemars(range(min = 1024, max = 65535))]
    pub port: u16,
    /// What is spoken there.
    #[serde(default)]
    pub protocol: EdgeProtocol,
    /// How it is exposed. Default: by the member's ClusterIP Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expose: Option<Expose>,
    /// Under which name and port it is advertised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<Advertise>,
    /// Options of the listener, as the router's `listeners[].options`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::free_object")]
    pub options: Option<Map<String, Value>>,
}

/// What an edge listener speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum EdgeProtocol {
    /// TLS, for SDKs and tunnelers.
    #[default]
    Tls,
    /// WebSocket over TLS, for browsers.
    Wss,
}

fn listener_name(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    // A port name has at most 15 characters; a name without a digit alone is no
    // ordinal of a member.
    schemars::json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 10,
        "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$",
        "x-kubernetes-validations": [{
            "rule": "!(self in ['edge', 'link'])",
            "message": "edge and link are the names of the first listeners",
        }],
    })
}

fn default_edge_port() -> u16 {
    3022
}

impl Default for EdgeListener {
    fn default() -> Self {
        Self {
            port: default_edge_port(),
            protocol: EdgeProtocol::default(),
            expose: None,
            advertise: None,
            options: None,
            heartbeat_interval_seconds: None,
            listeners: Vec::new(),
        }
    }
}

/// Where other routers reach a member, and how it dials them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.expose) || !(self.expose.type in ['NodePort', 'Ingress', 'TLSRoute']) || (has(self.advertise) && has(self.advertise.host))", "types NodePort, Ingress and TLSRoute need advertise.host"))]
pub struct LinkListener {
    /// Port of the listener and of the member's Service. The edge listener's
    /// port may serve both: they are told apart within TLS.
    #[serde(default = "default_link_port")]
    #[schemars(range(min = 1024, max = 65535))]
    pub port: u16,
    /// How it is exposed. Default: by the member's ClusterIP Service. `None`:
    /// there is no listener, and the members only dial others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expose: Option<Expose>,
    /// Under which name and port it is advertised. Default:
    /// `<member>.<namespace>.svc` and the listener's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<Advertise>,
    /// Link groups of the listener: only dialers of one of them dial it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::string_set")]
    pub groups: Vec<String>,
    /// The network interface that links through this listener count to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub bind_interface: Option<String>,
    /// Options of the listener, as the router's `link.listeners[].options`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::free_object")]
    pub options: Option<Map<String, Value>>,
    /// Link listeners besides this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::named::<ExtraLinkListener>")]
    pub listeners: Vec<ExtraLinkListener>,
    /// How members dial other routers. Default: one dialer of the default
    /// group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub dialers: Vec<LinkDialer>,
}

/// One more link listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.expose) || !(self.expose.type in ['NodePort', 'Ingress', 'TLSRoute']) || (has(self.advertise) && has(self.advertise.host))", "types NodePort, Ingress and TLSRoute need advertise.host"))]
pub struct ExtraLinkListener {
    /// Its name: of the port in the member's Service, and in the names of what
    /// exposes it.
    #[schemars(schema_with = "listener_name")]
    pub name: String,
    /// Port of the listener and of the member's Service.
    #[schemars(range(min = 1024, max = 65535))]
    pub port: u16,
    /// How it is exposed. Default: by the member's ClusterIP Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expose: Option<Expose>,
    /// Under which name and port it is advertised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<Advertise>,
    /// Link groups of the listener.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::string_set")]
    pub groups: Vec<String>,
    /// The network interface that links through this listener count to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub bind_interface: Option<String>,
    /// Options of the listener, as the router's `link.listeners[].options`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::free_object")]
    pub options: Option<Map<String, Value>>,
}

/// How members dial other routers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkDialer {
    /// Link groups: only listeners of one of them are dialled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::string_set")]
    pub groups: Vec<String>,
    /// The network interface or address from which is dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub bind: Option<String>,
    /// Whether payload and acknowledgements have a connection each. The
    /// router's own default is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<bool>,
    /// Options of the links, as the router's `link.dialers[].options`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::free_object")]
    pub options: Option<Map<String, Value>>,
}

fn default_link_port() -> u16 {
    10080
}

impl Default for LinkListener {
    fn default() -> Self {
        Self {
            port: default_link_port(),
            expose: None,
            advertise: None,
            groups: Vec::new(),
            bind_interface: None,
            options: None,
            listeners: Vec::new(),
            dialers: Vec::new(),
        }
    }
}
