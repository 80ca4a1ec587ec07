//! What a router that is taken over becomes: its EdgeRouter, its claim, its
//! ZitiRouter. Pure. [`super::script`] puts them into steps.

use super::release::{Listener, Release};
use super::script::Target;
use anyhow::{Context, Result, ensure};
use api::names;
use api::router::TunnelMode;
use plan::set::member::labels;
use plan::set::service::host;
use serde_json::{Map, Value, json};
use ziti::management::EdgeRouterEntity;

/// The edge port of a ZitiRouter that names none.
const EDGE_PORT: u16 = 3022;
/// Its port for links.
const LINK_PORT: u16 = 10080;

/// The objects.
pub(super) struct Parts<'a> {
    release: &'a Release,
    router: &'a EdgeRouterEntity,
    target: &'a Target,
    member: &'a str,
    mode: TunnelMode,
}

impl<'a> Parts<'a> {
    /// The error says why the router cannot be taken over as it is.
    pub(super) fn new(
        release: &'a Release,
        router: &'a EdgeRouterEntity,
        target: &'a Target,
        member: &'a str,
    ) -> Result<Self> {
        let parts = Self {
            release,
            router,
            target,
            member,
            mode: mode(release, router)?,
        };
        ensure!(
            parts.mode != TunnelMode::Proxy || !parts.offered().is_empty(),
            "the router runs in tunnel mode proxy and lists no services: it offers those that have a configuration of type \
             proxy.v1, which a ZitiRouter cannot. List them in tunnel.proxyServices of the chart, and call this again"
        );
        Ok(parts)
    }

    /// The name by which the new member is reached within the cluster.
    pub(super) fn service_host(&self) -> String {
        host(self.member, &self.release.namespace)
    }

    /// Whether it goes on under a name that leads to it by what the chart made.
    pub(super) fn keeps_names(&self) -> bool {
        let config = &self.release.config;
        let mut listeners = std::iter::once(&config.edge).chain(&config.link);
        listeners.any(|listener| self.kept(listener).is_some())
    }

    /// The advertised host and port of a listener, where they can be kept.
    fn kept<'l>(&self, listener: &'l Listener) -> Option<(&'l str, u16)> {
        let (host, port) = listener.advertise.as_ref()?;
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let sound = !host.is_empty() && host.chars().all(fits) && *host != self.service_host();
        sound.then_some((host.as_str(), *port))
    }

    fn version() -> String {
        format!("{}/{}", api::GROUP, api::VERSION)
    }

    /// What of the router's registration the new objects repeat, so that nothing
    /// of it changes: policies go by it.
    fn registration(&self) -> Map<String, Value> {
        let mut spec = Map::new();
        spec.insert(
            "networkRef".to_owned(),
            json!({"name": self.target.network}),
        );
        spec.insert("adoptionPolicy".to_owned(), "ByName".into());
        if !self.router.role_attributes.is_empty() {
            let attributes = self.router.role_attributes.clone();
            spec.insert("roleAttributes".to_owned(), attributes.into());
        }
        if self.router.cost != 0 {
            spec.insert("cost".to_owned(), self.router.cost.into());
        }
        if self.router.no_traversal {
            spec.insert("noTraversal".to_owned(), true.into());
        }
        spec
    }

    pub(super) fn edge_router(&self) -> Value {
        let mut labels = labels(&self.target.name);
        labels.insert(names::LABEL_MEMBER.to_owned(), self.member.to_owned());
        let mut spec = self.registration();
        spec.insert("name".to_owned(), self.router.name.clone().into());
        let tunneler = self.mode != TunnelMode::None;
        spec.insert("tunnelerEnabled".to_owned(), tunneler.into());
        json!({
            "apiVersion": Self::version(), "kind": "EdgeRouter",
            "metadata": {"name": self.member, "namespace": self.release.namespace, "labels": labels},
            "spec": spec,
        })
    }

    pub(super) fn claim(&self, name: &str) -> Value {
        let volume = &self.release.volume;
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name, "namespace": self.release.namespace,
                "labels": labels(&self.target.name),
            },
            "spec": {
                "accessModes": volume.access_modes,
                // None is another thing than none given.
                "storageClassName": volume.class.as_deref().unwrap_or_default(),
                "volumeName": volume.name,
                "resources": {"requests": {"storage": volume.size}},
            },
        })
    }

    pub(super) fn zitirouter(&self) -> Result<Value> {
        let release = self.release;
        let mut spec = self.registration();
        let mut set = |key: &str, value: Value| {
            let empty = value.as_object().is_some_and(Map::is_empty);
            if !value.is_null() && !empty {
                spec.insert(key.to_owned(), value);
            }
        };
        set("replicas", 1.into());
        set("tunnel", self.tunnel()?);
        if self.mode == TunnelMode::Tproxy {
            // By itself it would be a router for each node.
            set("topology", "StatefulSet".into());
        }
        set("edge", self.edge());
        set("link", self.link());
        set("image", json!(release.image));
        set("resources", json!(release.resources));
        set("pod", release.pod.clone().into());
        set("csr", self.names());
        let mut claim = json!({"size": release.volume.size});
        if let Some(class) = &release.volume.class {
            claim["storageClassName"] = class.clone().into();
        }
        set("identityStorage", json!({"persistentVolumeClaim": claim}));
        Ok(json!({
            "apiVersion": Self::version(), "kind": "ZitiRouter",
            "metadata": {"name": self.target.name, "namespace": release.namespace},
            "spec": spec,
        }))
    }

    fn edge(&self) -> Value {
        let listener = &self.release.config.edge;
        let port = listener.port.filter(|port| *port != EDGE_PORT);
        self.listener(listener, port)
    }

    /// Links at the edge's port, as the chart has them, share its address as
    /// well, unless they have another.
    fn link(&self) -> Value {
        let config = &self.release.config;
        let Some(listener) = &config.link else {
            return json!({"expose": {"type": "None"}});
        };
        let mut listener = listener.clone();
        if listener.port == config.edge.port && listener.advertise == config.edge.advertise {
            listener.advertise = None;
        }
        let port = listener.port.filter(|port| *port != LINK_PORT);
        self.listener(&listener, port)
    }

    fn listener(&self, listener: &Listener, port: Option<u16>) -> Value {
        let mut spec = Map::new();
        if let Some(port) = port {
            spec.insert("port".to_owned(), port.into());
        }
        if let Some((host, port)) = self.kept(listener) {
            spec.insert("advertise".to_owned(), json!({"host": host, "port": port}));
        }
        spec.into()
    }

    fn tunnel(&self) -> Result<Value> {
        let mut tunnel = json!({"mode": self.mode});
        let config = self.release.config.tunnel.as_ref();
        match self.mode {
            TunnelMode::None | TunnelMode::Host => {}
            TunnelMode::Proxy => tunnel["proxy"] = json!({"services": self.offered()}),
            TunnelMode::Tproxy => {
                let options = config.map(|tunnel| tunnel.options.clone());
                let mut options = options.unwrap_or_default();
                let known = ["dnsSvcIpRange", "dnsUpstream", "lanIf", "resolver"];
                options.retain(|key, _| known.contains(&key.as_str()));
                if self.release.host_network {
                    options.insert("hostNetwork".to_owned(), true.into());
                }
                // All of it has defaults.
                if !options.is_empty() {
                    tunnel["tproxy"] = options.into();
                }
            }
        }
        serde_json::from_value::<api::router::Tunnel>(tunnel.clone())
            .with_context(|| format!("no ZitiRouter can have the router's tunnel, {tunnel}"))?;
        Ok(tunnel)
    }

    /// The services of mode proxy: the router is told `name:port` or
    /// `name:port:protocol`.
    fn offered(&self) -> Vec<Value> {
        let tunnel = self.release.config.tunnel.as_ref();
        let listed = tunnel.and_then(|tunnel| tunnel.options.get("services")?.as_array());
        let texts = listed.into_iter().flatten().filter_map(Value::as_str);
        let offered = texts.filter_map(|text| {
            let mut parts = text.split(':');
            let (name, port) = (parts.next()?, parts.next()?.parse::<u16>().ok()?);
            let mut service = json!({"service": name, "port": port});
            let protocol = parts.next().map(str::to_uppercase);
            if let Some(protocol) = protocol.filter(|protocol| protocol != "TCP") {
                service["protocol"] = protocol.into();
            }
            Some(service)
        });
        offered.collect()
    }

    /// Names of the certificate that nothing else puts there.
    fn names(&self) -> Value {
        let config = &self.release.config;
        let mut own = vec![
            self.service_host(),
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
        ];
        let listeners = std::iter::once(&config.edge).chain(&config.link);
        let kept = listeners.filter_map(|listener| self.kept(listener));
        own.extend(kept.map(|(host, _)| host.to_owned()));
        let mut sans = Map::new();
        for (key, names) in [("dns", &config.dns), ("ip", &config.ip)] {
            let names = names.iter().filter(|name| !own.contains(name));
            let names: Vec<&String> = names.collect();
            if !names.is_empty() {
                sans.insert(key.to_owned(), json!(names));
            }
        }
        if sans.is_empty() {
            return Value::Null;
        }
        json!({"sans": sans})
    }

    /// What the reader should know beforehand.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let config = &self.release.config;
        let own = self.service_host();
        if !self.router.is_online {
            notes.push("the network does not see the router online now".to_owned());
        }
        if !self.router.tags.is_empty() {
            let keys: Vec<&String> = self.router.tags.keys().collect();
            // As a list of quoted strings: whoever named them may not write here.
            notes.push(format!(
                "its tags {keys:?} are replaced by the operator's own"
            ));
        }
        for (what, listener) in [
            ("clients", Some(&config.edge)),
            ("routers", config.link.as_ref()),
        ] {
            let Some(listener) = listener else { continue };
            notes.push(match self.kept(listener) {
                Some((host, port)) => format!("it goes on advertising {host}:{port} to {what}"),
                None => format!("{what} learn its new address, {own}, from the network"),
            });
        }
        if !config.dns.contains(&own) {
            notes.push(format!(
                "its certificate lacks {own}, and is replaced at the first start by one that has it, with the same key. Should \
                 no controller give one, the router is re-enrolled under its id"
            ));
        }
        if config.more > 0 {
            notes.push(format!(
                "{} further listeners of its configuration are not taken over: see spec.edge.listeners and spec.link.listeners",
                config.more
            ));
        }
        match self.mode {
            TunnelMode::Tproxy => notes.push(
                "mode tproxy needs a namespace of Pod Security level privileged".to_owned(),
            ),
            TunnelMode::Proxy => notes.push(
                "the proxied ports get Kubernetes Services of their own, and are open to this namespace alone unless \
                 spec.networkPolicy says more"
                    .to_owned(),
            ),
            TunnelMode::None | TunnelMode::Host => {}
        }
        notes
    }
}

/// The tunnel's mode. It must agree with what the network permits: taking that
/// away destroys the router's identity for services.
fn mode(release: &Release, router: &EdgeRouterEntity) -> Result<TunnelMode> {
    let mode = match &release.config.tunnel {
        Some(tunnel) => tunnel.mode.clone(),
        None if router.is_tunneler_enabled => "host".to_owned(),
        None => "none".to_owned(),
    };
    serde_json::from_value(mode.clone().into()).with_context(|| {
        format!(
            "the router runs in tunnel mode {mode}, which this version of the API does not have"
        )
    })
}
