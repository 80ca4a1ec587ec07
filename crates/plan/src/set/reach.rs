//! Where each listener of a member is reached: which listeners a set has, and
//! under which host and port each is advertised.
//!
//! Most sets advertise what the router expands from its environment, and one
//! configuration serves all members. Where an address is known to Kubernetes
//! alone (of a load balancer, of a port that the cluster chose) or counts
//! (`{index}`), members differ, and each has a file of its own in the ConfigMap
//! of the set; `per_member` renders those. Whoever renders asks here, so that
//! what is advertised, what is exposed and what stands in the certificate agree.

use super::Facts;
use super::render::{namespace, set_name};
use super::roster::seats;
use super::service;
use api::ZitiRouter;
use api::router::{
    Advertise, EdgeProtocol, Expose, ExposeType, ExtraEdgeListener, ExtraLinkListener,
    ZitiRouterSpec,
};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Map, Value};
use std::net::IpAddr;

/// Environment variable with the member's name, in every container.
pub(super) const MEMBER_ENV: &str = "ZITI_MEMBER";
/// What the router puts in place of the member's name, from its environment.
pub(super) const MEMBER_IN_CONFIG: &str = "${ZITI_MEMBER}";
/// What the kubelet puts in place of the member's name, in arguments.
pub(super) const MEMBER_IN_ARGS: &str = "$(ZITI_MEMBER)";

/// One listener, as the spec has it.
pub(super) struct Listener<'a> {
    /// Name of its port; with the member's name, of what exposes it.
    pub(super) name: &'a str,
    pub(super) kind: Kind<'a>,
    pub(super) port: u16,
    pub(super) expose: Expose,
    pub(super) advertise: Advertise,
    /// It has the edge listener's port, and with it its exposure.
    pub(super) shares: bool,
}

/// Who dials it.
pub(super) enum Kind<'a> {
    /// SDKs and tunnelers.
    Edge {
        protocol: EdgeProtocol,
        options: Option<&'a Map<String, Value>>,
    },
    /// Other routers.
    Link {
        groups: &'a [String],
        bind_interface: Option<&'a str>,
        options: Option<&'a Map<String, Value>>,
    },
}

/// Where a listener is advertised.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Host name or IPv4 address.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// How a member's names are written: themselves, or what stands for them in a
/// text that serves all members.
pub(super) struct Spelling<'a> {
    pub(super) member: &'a str,
    pub(super) namespace: &'a str,
    pub(super) set: &'a str,
    /// `None` where one text serves all members: nothing expands it there.
    pub(super) index: Option<i32>,
    pub(super) node: &'a str,
    pub(super) host_ip: &'a str,
}

impl<'a> Spelling<'a> {
    /// As the router expands it.
    pub(super) fn in_config(object: &'a ZitiRouter) -> Self {
        Self {
            member: MEMBER_IN_CONFIG,
            namespace: namespace(object),
            set: set_name(object),
            index: None,
            node: "${NODE_NAME}",
            host_ip: "${HOST_IP}",
        }
    }

    /// As the kubelet expands it.
    pub(super) fn in_args(object: &'a ZitiRouter) -> Self {
        Self {
            member: MEMBER_IN_ARGS,
            node: "$(NODE_NAME)",
            host_ip: "$(HOST_IP)",
            ..Self::in_config(object)
        }
    }

    /// One member, written out but for what only its pod knows.
    pub(super) fn of(object: &'a ZitiRouter, member: &'a str, index: i32) -> Self {
        Self {
            member,
            index: Some(index),
            ..Self::in_config(object)
        }
    }

    fn fill(&self, template: &str) -> String {
        let index = self.index.map(|index| index.to_string());
        template
            .replace("{member}", self.member)
            .replace("{namespace}", self.namespace)
            .replace("{set}", self.set)
            .replace("{index}", index.as_deref().unwrap_or_default())
            .replace("{node}", self.node)
            .replace("{hostIP}", self.host_ip)
    }

    /// The name of the member's own Service, by which it is reached within the
    /// cluster.
    pub(super) fn service_host(&self) -> String {
        service::host(self.member, self.namespace)
    }
}

/// The listeners of each member, the edge listener first. A link listener that
/// is not exposed is none.
pub(super) fn listeners(spec: &ZitiRouterSpec) -> Vec<Listener<'_>> {
    let (edge, link) = (&spec.edge, &spec.link);
    let mut listeners = vec![Listener {
        name: "edge",
        kind: Kind::Edge {
            protocol: edge.protocol,
            options: edge.options.as_ref(),
        },
        port: edge.port,
        expose: edge.expose.clone().unwrap_or_default(),
        advertise: edge.advertise.clone().unwrap_or_default(),
        shares: false,
    }];
    let shares = link.port == edge.port && link.expose.is_none() && listeners[0].is_exposed();
    let of_edge = |shared: &Option<Advertise>| shared.clone().filter(|_| shares);
    listeners.push(Listener {
        name: "link",
        kind: Kind::Link {
            groups: &link.groups,
            bind_interface: link.bind_interface.as_deref(),
            options: link.options.as_ref(),
        },
        port: link.port,
        expose: match &link.expose {
            None if shares => edge.expose.clone().unwrap_or_default(),
            expose => expose.clone().unwrap_or_default(),
        },
        advertise: link
            .advertise
            .clone()
            .or_else(|| of_edge(&edge.advertise))
            .unwrap_or_default(),
        shares,
    });
    listeners.extend(edge.listeners.iter().map(extra_edge));
    listeners.extend(link.listeners.iter().map(extra_link));
    listeners.retain(|listener| listener.is_edge() || listener.is_exposed());
    listeners
}

fn extra_edge(extra: &ExtraEdgeListener) -> Listener<'_> {
    Listener {
        name: &extra.name,
        kind: Kind::Edge {
            protocol: extra.protocol,
            options: extra.options.as_ref(),
        },
        port: extra.port,
        expose: extra.expose.clone().unwrap_or_default(),
        advertise: extra.advertise.clone().unwrap_or_default(),
        shares: false,
    }
}

fn extra_link(extra: &ExtraLinkListener) -> Listener<'_> {
    Listener {
        name: &extra.name,
        kind: Kind::Link {
            groups: &extra.groups,
            bind_interface: extra.bind_interface.as_deref(),
            options: extra.options.as_ref(),
        },
        port: extra.port,
        expose: extra.expose.clone().unwrap_or_default(),
        advertise: extra.advertise.clone().unwrap_or_default(),
        shares: false,
    }
}

impl Listener<'_> {
    pub(super) fn is_edge(&self) -> bool {
        matches!(self.kind, Kind::Edge { .. })
    }

    pub(super) fn is_exposed(&self) -> bool {
        self.expose.type_ != ExposeType::None
    }

    pub(super) fn is_wss(&self) -> bool {
        let wss = EdgeProtocol::Wss;
        matches!(self.kind, Kind::Edge { protocol, .. } if protocol == wss)
    }

    /// The path of the field in the spec, for messages.
    pub(super) fn field(&self) -> String {
        match (&self.kind, self.name) {
            (_, "edge" | "link") => format!("spec.{}", self.name),
            (Kind::Edge { .. }, name) => format!("spec.edge.listeners[{name}]"),
            (Kind::Link { .. }, name) => format!("spec.link.listeners[{name}]"),
        }
    }

    /// The name of what exposes it, for one member: a Service, an Ingress or a
    /// TLSRoute.
    pub(super) fn object_name(&self, member: &str) -> String {
        let port = if self.shares { "edge" } else { self.name };
        format!("{member}-{port}")
    }

    /// Whether its address depends on more of a member than the router can
    /// expand from its environment.
    pub(super) fn differs_by_member(&self) -> bool {
        let host = self.advertise.host.as_deref();
        let counted = host.is_some_and(|host| host.contains("{index}"));
        counted
            || match self.expose.type_ {
                ExposeType::NodePort => self.advertise.port.is_none(),
                ExposeType::LoadBalancer => host.is_none(),
                _ => false,
            }
    }

    /// Whether its address is made from the member's ordinal.
    pub(super) fn counts(&self) -> bool {
        let host = self.advertise.host.as_deref();
        host.is_some_and(|host| host.contains("{index}")) || self.expose.node_port.is_some()
    }

    /// The port at which the exposure is reached, where the spec alone tells.
    fn exposed_port(&self, at: &Spelling) -> Option<u16> {
        let expose = &self.expose;
        match expose.type_ {
            ExposeType::ClusterIP | ExposeType::None => Some(self.port),
            ExposeType::NodePort => self.node_port(at.member, at.index?),
            ExposeType::LoadBalancer => Some(expose.port.unwrap_or(self.port)),
            ExposeType::Ingress | ExposeType::TlsRoute => Some(443),
            ExposeType::HostPort => Some(expose.host_port.unwrap_or(self.port)),
        }
    }

    /// The node port that the spec gives a member.
    pub(super) fn node_port(&self, member: &str, index: i32) -> Option<u16> {
        let given = self.expose.node_ports.get(member).copied();
        given.or_else(|| {
            let first = self.expose.node_port?;
            first.checked_add(u16::try_from(index).ok()?)
        })
    }

    /// Where it is advertised. `service` is the one that exposes it, as it was
    /// observed. The error says what is waited for.
    pub(super) fn address(
        &self,
        at: &Spelling,
        service: Option<&Service>,
    ) -> Result<Address, String> {
        let host = match (&self.advertise.host, self.expose.type_) {
            (Some(template), _) => at.fill(template),
            (None, ExposeType::None) => "127.0.0.1".to_owned(),
            (None, ExposeType::HostPort) => at.host_ip.to_owned(),
            (None, ExposeType::LoadBalancer) => {
                service.and_then(load_balancer_host).ok_or_else(|| {
                    format!(
                        "Service {} has no address yet: its load balancer is being made",
                        self.object_name(at.member)
                    )
                })?
            }
            (None, _) => at.service_host(),
        };
        let port = self.advertise.port.or_else(|| self.exposed_port(at));
        let port = port.or_else(|| service.and_then(chosen_node_port));
        let port = port.ok_or_else(|| {
            format!(
                "Service {} has no node port yet",
                self.object_name(at.member)
            )
        })?;
        Ok(Address { host, port })
    }
}

/// The address of a load balancer, once it has one.
fn load_balancer_host(service: &Service) -> Option<String> {
    let balancer = service.status.as_ref()?.load_balancer.as_ref()?;
    let ingress = balancer.ingress.iter().flatten();
    let mut hosts = ingress.filter_map(|ingress| {
        let host = ingress.hostname.as_ref().or(ingress.ip.as_ref());
        host.filter(|host| !host.is_empty() && !host.contains('$'))
    });
    hosts.next().cloned()
}

fn chosen_node_port(service: &Service) -> Option<u16> {
    let ports = service.spec.as_ref()?.ports.as_ref()?;
    u16::try_from(ports.first()?.node_port?).ok()
}

/// Whether each member has a configuration of its own.
pub(super) fn differs_by_member(spec: &ZitiRouterSpec) -> bool {
    listeners(spec).iter().any(Listener::differs_by_member)
}

/// The wanted members: ordinal, 0 where they have none, and name.
pub(super) fn wanted_members(facts: &Facts) -> Vec<(i32, String)> {
    let wanted = seats(facts).into_iter().filter(|seat| seat.wanted);
    wanted
        .map(|seat| (seat.ordinal.unwrap_or_default(), seat.name))
        .collect()
}

/// Where all listeners of one member are advertised, in their order, as far as
/// they are known. The error says what is waited for.
pub(super) fn addresses(facts: &Facts, member: &str, index: i32) -> Result<Vec<Address>, String> {
    let at = Spelling::of(facts.object, member, index);
    let listeners = listeners(&facts.object.spec);
    let address = |listener: &Listener| {
        let name = listener.object_name(member);
        let named = |service: &&Service| service.metadata.name.as_ref() == Some(&name);
        listener.address(&at, facts.services.iter().find(named))
    };
    listeners.iter().map(address).collect()
}

/// What a member waits for before it may be registered: its address goes into
/// the certificate that its token is redeemed for.
pub(super) fn pending(facts: &Facts, member: &str, index: i32) -> Option<String> {
    addresses(facts, member, index).err()
}

/// What a certificate must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// DNS names.
    pub dns: Vec<String>,
    /// IP addresses.
    pub ip: Vec<String>,
}

impl Names {
    fn add(&mut self, host: &str) {
        let is_address = host.parse::<IpAddr>().is_ok()
            || host.contains("(HOST_IP)")
            || host.contains("{HOST_IP}");
        let list = if is_address {
            &mut self.ip
        } else {
            &mut self.dns
        };
        if !list.iter().any(|known| known == host) {
            list.push(host.to_owned());
        }
    }

    /// Whether an advertised host is among them.
    pub(super) fn hold(&self, host: &str) -> bool {
        self.dns.iter().chain(&self.ip).any(|name| name == host)
    }
}

/// The names in a member's certificate: by which it reaches itself and is
/// reached within the cluster, what is advertised, and what the user adds.
pub(super) fn names(
    spec: &ZitiRouterSpec,
    at: &Spelling,
    advertised: impl IntoIterator<Item = Address>,
) -> Names {
    let mut names = Names::default();
    for host in ["localhost", "127.0.0.1", &at.service_host()] {
        names.add(host);
    }
    for address in advertised {
        names.add(&address.host);
    }
    for name in spec.csr.sans.dns.iter().chain(&spec.csr.sans.ip) {
        names.add(name);
    }
    names
}

/// The same for all members at once: what they advertise alike.
pub(super) fn shared_names(spec: &ZitiRouterSpec, at: &Spelling) -> Names {
    let listeners = listeners(spec);
    let alike = listeners.iter().filter(|one| !one.differs_by_member());
    names(
        spec,
        at,
        alike.filter_map(|listener| listener.address(at, None).ok()),
    )
}

/// Whether a listener's address holds this placeholder.
pub(super) fn uses(spec: &ZitiRouterSpec, placeholder: &str) -> bool {
    listeners(spec).iter().any(|listener| {
        let host = listener.advertise.host.as_deref();
        let by_node = listener.expose.type_ == ExposeType::HostPort && placeholder == "{hostIP}";
        host.map_or(by_node, |host| host.contains(placeholder))
    })
}
