//! How one listener of the chart is reached: its Service, Ingress or route, and
//! what it advertises. [`super::listeners`] asks for each of them.

use super::Release;
use crate::convert::input::Input;
use serde_json::{Map, Value};

/// The least port that our listeners may have.
const LEAST_PORT: u64 = 1024;

/// One listener of the input.
pub(super) struct Source<'a> {
    pub(super) input: &'a mut Input,
    /// What stands before its keys there.
    at: &'a str,
    /// What stands before them in what is told.
    told: String,
    pub(super) notes: Vec<(String, String)>,
}

impl<'a> Source<'a> {
    pub(super) fn new(input: &'a mut Input, at: &'a str, told: String) -> Self {
        Self {
            input,
            at,
            told,
            notes: Vec::new(),
        }
    }

    fn path(&self, key: &str) -> String {
        format!("{}{key}", self.at)
    }

    pub(super) fn note(&mut self, key: &str, why: impl Into<String>) {
        self.notes.push((format!("{}{key}", self.told), why.into()));
    }

    /// A text, unless it is one of the chart's templates, by which links have
    /// what the edge has.
    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        let text = self.input.text(&self.path(key))?;
        if !text.contains("{{") {
            return Some(text);
        }
        if !text.contains(".Values.edge.") {
            self.note(
                key,
                format!("not carried over: {text} is a template, write what comes out of it"),
            );
        }
        None
    }

    pub(super) fn number(&mut self, key: &str) -> Option<u64> {
        self.text(key)?.parse().ok()
    }

    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.input.take(&self.path(key))
    }

    fn is_on(&mut self, key: &str) -> bool {
        self.input.switch(&self.path(key)) == Some(true)
    }

    /// A port that a listener of ours may have.
    pub(super) fn port(&mut self, key: &str) -> Option<u64> {
        let port = self.number(key)?;
        if port >= LEAST_PORT {
            return Some(port);
        }
        self.note(
            key,
            format!("{port} is not carried over: listeners have ports of {LEAST_PORT} and above"),
        );
        None
    }
}

/// How a listener is reached, as the spec has it.
#[derive(Default)]
pub(super) struct Reach {
    pub(super) expose: Map<String, Value>,
    pub(super) advertise: Map<String, Value>,
}

impl Reach {
    pub(super) fn put(self, listener: &mut Map<String, Value>) {
        for (key, map) in [("expose", self.expose), ("advertise", self.advertise)] {
            if !map.is_empty() {
                listener.insert(key.to_owned(), map.into());
            }
        }
    }
}

/// A host and port, as the chart advertises them.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Advertised {
    /// `None` where it is a name of the chart's own.
    pub(super) host: Option<String>,
    pub(super) port: u64,
}

/// Whether a host is the name of a Service.
pub(super) fn is_of_cluster(host: &str) -> bool {
    let labels: Vec<&str> = host.split('.').collect();
    labels.len() == 1 || labels.get(2) == Some(&"svc")
}

/// Whether a router can be told of it, and a ZitiRouter hold it.
pub(super) fn is_host(host: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    !host.is_empty() && host.chars().all(fits)
}

/// `advertisedHost` and `advertisedPort`.
pub(super) fn advertised(
    from: &mut Source,
    default: &Advertised,
    release: &mut Release,
) -> Advertised {
    let port = from.number("advertisedPort").unwrap_or(default.port);
    let Some(host) = from.text("advertisedHost") else {
        return Advertised {
            host: default.host.clone(),
            port,
        };
    };
    if !is_host(&host) {
        from.note(
            "advertisedHost",
            format!("{host} is not carried over: routers are told names and IPv4 addresses"),
        );
        return Advertised { host: None, port };
    }
    if !is_of_cluster(&host) {
        let host = Some(host);
        return Advertised { host, port };
    }
    let own = release.member_host();
    if host != own {
        from.note(
            "advertisedHost",
            format!("{host} is the name of a Service that the chart makes and we do not: the router advertises {own}. The old \
                name stays in the certificate"),
        );
        release.sans.host(host);
    }
    Advertised { host: None, port }
}

/// Which of the chart's ways to a listener is taken.
fn way(from: &mut Source, advertised: &Advertised) -> Option<&'static str> {
    let routed = if from.is_on("ingress.enabled") {
        Some(("ingress", "Ingress"))
    } else if from.is_on("gatewayTlsRoute.enabled") {
        Some(("gatewayTlsRoute", "TLSRoute"))
    } else {
        None
    };
    if from.is_on("traefikTcpRoute.enabled") {
        from.note(
            "traefikTcpRoute",
            "not carried over: no IngressRouteTCP is made. Traefik also serves TLSRoutes: set \
                expose.type to TLSRoute",
        );
    }
    from.take("traefikTcpRoute");
    let service = from.text("service.type").unwrap_or_default();
    let served = match (
        from.input.switch(&from.path("service.enabled")),
        service.as_str(),
    ) {
        (Some(false), _) => None,
        (_, "LoadBalancer") => Some(("service.type", "LoadBalancer")),
        (_, "NodePort") => Some(("service.type", "NodePort")),
        _ => None,
    };
    if let (Some((_, routed)), Some((key, served))) = (routed, served) {
        from.note(
            key,
            format!(
                "{served} is not carried over: a listener has one exposure, and that is {routed}"
            ),
        );
    }
    let (key, way) = routed.or(served)?;
    if way != "LoadBalancer" && advertised.host.is_none() {
        from.note(
            key,
            format!(
                "not carried over: with {way} nothing but advertisedHost says where the router is \
                reached, and there is none"
            ),
        );
        return None;
    }
    Some(way)
}

/// How a listener is exposed and advertised. `port` is its own.
pub(super) fn reach(
    from: &mut Source,
    advertised: &Advertised,
    port: u64,
    release: &Release,
) -> Reach {
    let way = way(from, advertised);
    let mut expose = Map::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            expose.insert(key.to_owned(), value);
        }
    };
    set("type", way.map(Value::from));
    let annotations = |from: &mut Source, key: &str| from.take(&format!("{key}.annotations"));
    let mut reached = advertised.port;
    match way {
        Some("Ingress") => {
            set("ingressClassName", from.take("ingress.ingressClassName"));
            set("annotations", annotations(from, "ingress"));
            reached = 443;
        }
        Some("TLSRoute") => {
            set("parentRefs", parents(from));
            reached = 443;
        }
        Some(service) => {
            set("annotations", annotations(from, "service"));
            set(
                "externalTrafficPolicy",
                from.take("service.externalTrafficPolicy"),
            );
            if service == "NodePort" {
                set("nodePort", Some(advertised.port.into()));
            } else {
                set(
                    "sourceRanges",
                    from.take("service.loadBalancerSourceRanges"),
                );
                set(
                    "port",
                    (advertised.port != port).then(|| advertised.port.into()),
                );
            }
        }
        None => reached = port,
    }
    if way == Some("TLSRoute") && !expose.contains_key("parentRefs") {
        let why = "there are none, so no TLSRoute is made";
        from.note("gatewayTlsRoute.parentRefs", why);
        expose.clear();
        reached = port;
    }
    leftovers(from, way);
    let mut advertise = Map::new();
    if let Some(host) = &advertised.host {
        advertise.insert("host".to_owned(), host.clone().into());
        if advertised.port != reached {
            advertise.insert("port".to_owned(), advertised.port.into());
        }
        if expose.is_empty() {
            let own = release.member_host();
            from.note(
                "advertisedHost",
                format!(
                    "{host}:{} is advertised as before; lead it to Service {own}, port {port}",
                    advertised.port
                ),
            );
        }
    }
    Reach { expose, advertise }
}

/// The Gateways of a TLSRoute, as far as we have keys for what is said of them.
fn parents(from: &mut Source) -> Option<Value> {
    let listed = from.take("gatewayTlsRoute.parentRefs")?;
    let mut parents = listed.as_array()?.clone();
    for parent in parents.iter_mut().filter_map(Value::as_object_mut) {
        parent
            .retain(|key, _| ["name", "namespace", "sectionName", "port"].contains(&key.as_str()));
    }
    Some(parents.into())
}

/// Tell what is said of a Service, an Ingress or a route besides.
fn leftovers(from: &mut Source, way: Option<&str>) {
    if from.input.switch(&from.path("service.enabled")) == Some(false) {
        from.note(
            "service",
            "each member has a ClusterIP Service all the same",
        );
    }
    let service = matches!(way, Some("LoadBalancer" | "NodePort"));
    if !service && from.take("service.annotations").is_some() {
        from.note(
            "service.annotations",
            "not carried over: the member's own Service takes none",
        );
    }
    for key in [
        "service.externalTrafficPolicy",
        "service.loadBalancerSourceRanges",
    ] {
        from.take(key);
    }
    // Ours publishes them always.
    from.take("service.publishNotReadyAddresses");
    if from.take("service.loadBalancerIP").is_some() {
        from.note(
            "service.loadBalancerIP",
            "not carried over: Kubernetes has deprecated it. Most load balancers take an \
                annotation: set it in expose.annotations",
        );
    }
    for key in [
        "clusterIP",
        "externalIPs",
        "sessionAffinity",
        "sessionAffinityConfig",
        "protocol",
    ] {
        let key = format!("service.{key}");
        if from.take(&key).is_some() {
            from.note(
                &key,
                "not carried over: there is no such setting of a member's Service",
            );
        }
    }
    for object in ["service", "ingress", "gatewayTlsRoute"] {
        let key = format!("{object}.labels");
        if from.take(&key).is_some() {
            from.note(
                &key,
                "not carried over: the labels of what exposes a listener are the operator's",
            );
        }
    }
    // What is off, and says how it would be, is left behind without a word.
    for object in ["ingress", "gatewayTlsRoute"] {
        from.take(object);
    }
}
