//! The chart's `tunnel`, with `hostNetwork` and the DNS of the pod, which belong
//! to mode tproxy here.

use super::Release;
use crate::convert::input::Input;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The least port at which a router of ours offers a service.
const LEAST_PORT: u64 = 1024;
/// Added to a lower one: the Kubernetes Service has the port that clients dial.
/// (With 10000, port 80 would come upon that of links.)
const ABOVE: u64 = 20_000;

/// `tunnel`, `hostNetwork`, `dnsPolicy` and `dnsConfig`; the mode that comes of
/// it.
pub(super) fn tunnel(release: &mut Release, input: &mut Input) -> String {
    let mode = input.text("tunnel.mode");
    let mode = mode.unwrap_or_else(|| "host".to_owned());
    let mut spec = Map::new();
    let offered = services(release, input, mode == "proxy");
    let mode = match mode.as_str() {
        "proxy" if offered.is_empty() => {
            release.note(
                "tunnel.mode",
                "proxy without tunnel.proxyServices becomes host: ports that follow configurations of type proxy.v1 are not \
                 offered. List the services in spec.tunnel.proxy.services for mode proxy",
            );
            "host".to_owned()
        }
        "proxy" => {
            spec.insert("proxy".to_owned(), json!({"services": offered}));
            mode
        }
        "tproxy" | "host" | "none" => mode,
        other => {
            release.note(
                "tunnel.mode",
                format!("{other} is not carried over: there is no such mode"),
            );
            "none".to_owned()
        }
    };
    spec.insert("mode".to_owned(), mode.clone().into());
    let tproxy = intercepting(release, input, mode == "tproxy");
    if !tproxy.is_empty() {
        spec.insert("tproxy".to_owned(), tproxy.into());
    }
    if mode == "tproxy" {
        // One release is one router, and its token is for a member with a number.
        release.set("topology", "StatefulSet");
        release.note(
            "tunnel.mode",
            "tproxy needs a namespace of Pod Security level privileged. A new ZitiRouter with topology PerNode would have a \
             router on each node",
        );
    }
    release.insert("tunnel", spec);
    mode
}

/// What mode tproxy takes. In other modes the keys were without effect, but for
/// those of the pod.
fn intercepting(release: &mut Release, input: &mut Input, is_mode: bool) -> Map<String, Value> {
    let mut spec = Map::new();
    for key in ["resolver", "dnsSvcIpRange", "lanIf"] {
        if let Some(value) = input.text(&format!("tunnel.{key}"))
            && is_mode
        {
            spec.insert(key.to_owned(), value.into());
        }
    }
    if input
        .text("tunnel.diverterPath")
        .is_some_and(|path| path != "none")
    {
        release.note(
            "tunnel.diverterPath",
            "not carried over: traffic is intercepted by iptables",
        );
    }
    let on_host = input.switch("hostNetwork") == Some(true);
    if on_host && is_mode {
        spec.insert("hostNetwork".to_owned(), true.into());
    } else if on_host {
        release.note(
            "hostNetwork",
            "not carried over: only mode tproxy runs on the host network. For a port of \
                    the node set expose.type HostPort",
        );
    }
    dns(release, input, is_mode && !on_host, &mut spec);
    spec
}

/// `dnsPolicy` and `dnsConfig`. `answers`: the router is the pod's first
/// nameserver by itself, and the given ones come after it.
fn dns(release: &mut Release, input: &mut Input, answers: bool, tproxy: &mut Map<String, Value>) {
    let policy = input.text("dnsPolicy").unwrap_or_default();
    let alone = policy == "None";
    let usual = ["", "ClusterFirst", "ClusterFirstWithHostNet"].contains(&policy.as_str());
    if !(usual || alone && answers) {
        release.note(
            "dnsPolicy",
            format!("{policy} is not carried over: the pods ask the cluster's DNS"),
        );
    }
    let Some(Value::Object(mut config)) = input.take("dnsConfig") else {
        return;
    };
    if answers && alone {
        let nameservers = config.remove("nameservers");
        let nameservers = nameservers.as_ref().and_then(Value::as_array);
        let others = nameservers.into_iter().flatten();
        let others: Vec<&Value> = others.filter(|server| *server != "127.0.0.1").collect();
        if !others.is_empty() {
            tproxy.insert("clusterDns".to_owned(), json!({"nameservers": others}));
        }
    }
    if !config.is_empty() {
        release.pod("dnsConfig", config);
    }
}

/// `tunnel.proxyServices`, each with the Kubernetes Service that leads to it.
fn services(release: &mut Release, input: &mut Input, is_mode: bool) -> Vec<Value> {
    let listed = input.take("tunnel.proxyServices");
    let default = input
        .take("tunnel.proxyDefaultK8sService")
        .unwrap_or_default();
    let additional = input.take("tunnel.proxyAdditionalK8sServices");
    if !is_mode {
        return Vec::new();
    }
    let list = |value: &Option<Value>| {
        value
            .as_ref()
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let (listed, additional) = (list(&listed), list(&additional));
    let fronts: Vec<Front> = listed
        .iter()
        .map(|service| Front::of(service, &default, &additional))
        .collect();
    let mut offered = Vec::new();
    let (mut services, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for (service, front) in listed.iter().zip(&fronts) {
        let name = service["zitiService"].as_str().unwrap_or_default();
        let Some(dialled) = port(&service["advertisedPort"]) else {
            release.note(
                "tunnel.proxyServices",
                format!("{name} is not carried over: it has no advertisedPort"),
            );
            continue;
        };
        let own = port(&service["containerPort"]).unwrap_or(dialled);
        let own = if own < LEAST_PORT { own + ABOVE } else { own };
        if !services.insert(name) || !ports.insert(own) {
            release.note(
                "tunnel.proxyServices",
                format!("{name} at port {own} is not carried over: a service and a port come once"),
            );
            continue;
        }
        let alone = fronts
            .iter()
            .filter(|other| other.name == front.name)
            .count()
            == 1;
        offered.push(front.offer(release, service, name, (own, dialled), alone));
    }
    if default["enabled"] == false {
        release.note(
            "tunnel.proxyDefaultK8sService",
            "each service has a Kubernetes Service all the same",
        );
    }
    offered
}

fn port(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// The chart's Kubernetes Service in front of proxied ports.
struct Front<'a> {
    /// What the chart puts behind `<fullname>-proxy-`.
    name: &'a str,
    said: Option<&'a Value>,
}

impl<'a> Front<'a> {
    fn of(service: &'a Value, default: &'a Value, additional: &'a [Value]) -> Self {
        match service["k8sService"]
            .as_str()
            .filter(|name| !name.is_empty())
        {
            None | Some("default") => Self {
                name: "default",
                said: Some(default),
            },
            Some(name) => Self {
                name,
                said: additional.iter().find(|one| one["name"] == name),
            },
        }
    }

    /// One service of ours: `ports` are the router's and the one that clients
    /// dial, `alone` says that the chart's Service has no other.
    fn offer(
        &self,
        release: &mut Release,
        service: &Value,
        name: &str,
        ports: (u64, u64),
        alone: bool,
    ) -> Value {
        let (own, dialled) = ports;
        let set = &release.target.name;
        let old = format!("{set}-proxy-{}", self.name);
        let mut kubernetes = Map::new();
        if alone {
            kubernetes.insert("name".to_owned(), old.clone().into());
        }
        if dialled != own {
            kubernetes.insert("port".to_owned(), dialled.into());
        }
        let said = self.said.unwrap_or(&Value::Null);
        let type_ = said["type"].as_str().filter(|type_| *type_ != "ClusterIP");
        if let Some(type_) = type_ {
            kubernetes.insert("type".to_owned(), type_.into());
        }
        if type_ == Some("NodePort") {
            kubernetes.insert("nodePort".to_owned(), dialled.into());
        }
        if let Some(annotations) = said["annotations"]
            .as_object()
            .filter(|map| !map.is_empty())
        {
            kubernetes.insert("annotations".to_owned(), annotations.clone().into());
        }
        if !alone {
            let new = format!("{set}-proxy-{own}");
            release.note(
                "tunnel.proxyServices",
                format!(
                    "{name} is offered by Kubernetes Service {new}, since each service has \
                        its own, and no more by {old}"
                ),
            );
        }
        for key in said
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key.as_str())
        {
            if !["enabled", "name", "zitiService", "type", "annotations"].contains(&key) {
                let key = format!("tunnel.proxy…K8sService…[{}].{key}", self.name);
                release.note(
                    &key,
                    "not carried over: there is no such setting of this Service",
                );
            }
        }
        let mut offered = json!({"service": name, "port": own});
        if let Some(protocol) = service["protocol"]
            .as_str()
            .map(str::to_uppercase)
            .filter(|protocol| protocol != "TCP")
        {
            offered["protocol"] = protocol.into();
        }
        if !kubernetes.is_empty() {
            offered["kubernetesService"] = kubernetes.into();
        }
        offered
    }
}
