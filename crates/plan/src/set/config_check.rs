//! Looks at a rendered configuration before it is rolled out: what would end a
//! router at its start, or make it deaf, is refused while it costs nothing.
//!
//! The rules are those of the router's own loader (1.6 and 2.x): what it panics
//! on or calls fatal, and what it drops in silence.

use super::reach::Names;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Bindings that a router knows, of `listeners` and of `dialers`.
const BINDINGS: [&str; 7] = [
    "edge",
    "edge_transport",
    "tunnel",
    "proxy",
    "proxy_udp",
    "transport",
    "transport_udp",
];

/// Top-level keys that must be objects.
const OBJECTS: [&str; 9] = [
    "ctrl",
    "link",
    "edge",
    "forwarder",
    "metrics",
    "healthChecks",
    "transport",
    "tls",
    "connectEvents",
];

/// Keys whose value the router reads as a duration; anything else ends it.
const DURATIONS: [&str; 10] = [
    "ctrl.startupTimeout",
    "ctrl.defaultRequestTimeout",
    "metrics.reportInterval",
    "metrics.intervalAgeThreshold",
    "healthChecks.ctrlPingCheck.interval",
    "healthChecks.ctrlPingCheck.timeout",
    "healthChecks.ctrlPingCheck.initialDelay",
    "healthChecks.linkCheck.interval",
    "healthChecks.linkCheck.initialDelay",
    "tls.handshakeTimeout",
];

/// Keys whose value must be a whole number.
const NUMBERS: [&str; 5] = [
    "metrics.messageQueueSize",
    "metrics.eventQueueSize",
    "healthChecks.linkCheck.minLinks",
    "edge.heartbeatIntervalSeconds",
    "edge.dbSaveIntervalSeconds",
];

/// What a router would not take, if anything. `names` are those of its
/// certificate, `tunneler` whether it is to have one, `edge_port` the port by
/// which its readiness is probed.
pub(super) fn fault(
    config: &Value,
    names: &Names,
    tunneler: bool,
    edge_port: u16,
) -> Option<String> {
    check(config, names, tunneler, edge_port).err()
}

fn check(config: &Value, names: &Names, tunneler: bool, edge_port: u16) -> Result<(), String> {
    for key in OBJECTS {
        if config.get(key).is_some_and(|value| !value.is_object()) {
            return Err(format!("{key} must be an object"));
        }
    }
    for path in DURATIONS {
        if let Some(value) = at(config, path)
            && !value.as_str().is_some_and(is_duration)
        {
            return Err(format!(
                "{path} is {value}, and must be a duration such as \"30s\""
            ));
        }
    }
    for path in NUMBERS {
        if let Some(value) = at(config, path)
            && !value.is_i64()
        {
            return Err(format!("{path} is {value}, and must be a whole number"));
        }
    }
    let mut ports = Ports::default();
    links(config, names, &mut ports)?;
    let listeners = list(config, "listeners")?;
    for (index, listener) in listeners.iter().enumerate() {
        let path = format!("listeners[{index}]");
        let binding = binding(listener, &path)?;
        if !BINDINGS.contains(&binding) {
            let known = BINDINGS.join(", ");
            return Err(format!(
                "{path} has binding {binding:?}; a router knows {known}"
            ));
        }
        if binding == "edge" {
            edge(listener, &path, names, &mut ports)?;
        }
    }
    for (index, dialer) in list(config, "dialers")?.iter().enumerate() {
        let path = format!("dialers[{index}]");
        let binding = binding(dialer, &path)?;
        if !BINDINGS.contains(&binding) {
            return Err(format!(
                "{path} has binding {binding:?}, which a router does not know"
            ));
        }
    }
    if !ports.edge.contains(&edge_port) {
        return Err(format!(
            "no edge listener has port {edge_port}, which is spec.edge.port and by which readiness is probed"
        ));
    }
    let mut bindings = listeners.iter().map(|listener| listener.get("binding"));
    if bindings.any(|binding| binding.and_then(Value::as_str) == Some("tunnel")) != tunneler {
        return Err(
            "a tunnel listener must be there exactly where spec.tunnel.mode is not none: the network is told the same"
                .to_owned(),
        );
    }
    Ok(())
}

/// The ports on which the router listens, and what for.
#[derive(Default)]
struct Ports {
    by_port: BTreeMap<u16, (String, bool)>,
    edge: Vec<u16>,
}

impl Ports {
    /// TLS listeners of links and of the edge may share a port: they are told
    /// apart by their protocol. Two of a kind may not, nor may others.
    fn take(&mut self, port: u16, path: &str, is_link: bool, is_tls: bool) -> Result<(), String> {
        let other = self.by_port.get(&port).cloned();
        if let Some((other, other_is_link)) = other
            && (is_link == other_is_link || !is_tls)
        {
            return Err(format!(
                "{other} and {path} both have port {port}: give each its own"
            ));
        }
        self.by_port.insert(port, (path.to_owned(), is_link));
        if !is_link {
            self.edge.push(port);
        }
        Ok(())
    }
}

fn links(config: &Value, names: &Names, ports: &mut Ports) -> Result<(), String> {
    let link = &config["link"];
    for key in ["dialers", "listeners"] {
        for (index, value) in list(link, key)?.iter().enumerate() {
            let path = format!("link.{key}[{index}]");
            let binding = binding(value, &path)?;
            if binding != "transport" {
                return Err(format!(
                    "{path} has binding {binding:?}; links know transport alone"
                ));
            }
            if key == "listeners" {
                let bind = text(value, "bind", &path)?;
                let (scheme, _, port) =
                    address(bind).ok_or_else(|| not_an_address(&path, "bind", bind))?;
                ports.take(port, &path, true, scheme == "tls")?;
                let advertise = text(value, "advertise", &path)?;
                let (_, host, _) = address(advertise)
                    .ok_or_else(|| not_an_address(&path, "advertise", advertise))?;
                held(names, host, &path)?;
            }
        }
    }
    Ok(())
}

fn edge(listener: &Value, path: &str, names: &Names, ports: &mut Ports) -> Result<(), String> {
    let bound = text(listener, "address", path)?;
    let (scheme, _, port) = address(bound).ok_or_else(|| not_an_address(path, "address", bound))?;
    if !["tls", "ws", "wss"].contains(&scheme) {
        return Err(format!(
            "{path}.address is {bound:?}; an edge listener speaks tls, ws or wss"
        ));
    }
    ports.take(port, path, false, scheme == "tls")?;
    let options = listener.get("options").unwrap_or(&Value::Null);
    let advertise = text(options, "advertise", &format!("{path}.options"))?;
    let host = host_port(advertise.strip_prefix("tls:").unwrap_or(advertise));
    let (host, _) = host.ok_or_else(|| not_an_address(path, "options.advertise", advertise))?;
    held(names, host, path)
}

/// The router ends at its start where it advertises what its certificate does
/// not hold.
fn held(names: &Names, host: &str, path: &str) -> Result<(), String> {
    if names.hold(host) {
        return Ok(());
    }
    Err(format!(
        "{path} advertises {host}, which the certificate does not hold: add it to spec.csr.sans"
    ))
}

fn not_an_address(path: &str, key: &str, value: &str) -> String {
    format!(
        "{path}.{key} is {value:?}, and must be an address with a port; IPv6 addresses are not understood by routers"
    )
}

fn list<'a>(object: &'a Value, key: &str) -> Result<&'a [Value], String> {
    match object.get(key) {
        None => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(format!("{key} must be a list")),
    }
}

fn binding<'a>(value: &'a Value, path: &str) -> Result<&'a str, String> {
    text(value, "binding", path)
}

fn text<'a>(value: &'a Value, key: &str, path: &str) -> Result<&'a str, String> {
    let object: Option<&Map<String, Value>> = value.as_object();
    let text = object.and_then(|object| object.get(key)?.as_str());
    text.filter(|text| !text.is_empty())
        .ok_or_else(|| format!("{path}.{key} must be a string"))
}

fn at<'a>(config: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(config, |value, key| value.get(key))
}

/// `scheme:host:port`.
fn address(text: &str) -> Option<(&str, &str, u16)> {
    let (scheme, rest) = text.split_once(':')?;
    let (host, port) = host_port(rest)?;
    (!scheme.is_empty()).then_some((scheme, host, port))
}

/// `host:port`. The router splits at colons, so an IPv6 address is none.
fn host_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.split_once(':')?;
    let port: u16 = port.parse().ok()?;
    (!host.is_empty() && port > 0).then_some((host, port))
}

/// What Go's `time.ParseDuration` takes, without a sign.
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let Some((number, unit)) = digits.map(|end| rest.split_at(end)) else {
            return rest == "0";
        };
        let units = ["ns", "us", "ms", "s", "m", "h"];
        let Some(unit) = units.into_iter().find(|known| {
            let after = unit.strip_prefix(known);
            after.is_some_and(|after| {
                after.starts_with(|c: char| c.is_ascii_digit()) || after.is_empty()
            })
        }) else {
            return false;
        };
        if number.parse::<f64>().is_err() {
            return false;
        }
        rest = &rest[number.len() + unit.len()..];
    }
    !text.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names() -> Names {
        Names {
            dns: vec!["localhost".to_owned(), "a.example".to_owned()],
            ip: vec!["127.0.0.1".to_owned()],
        }
    }

    fn config() -> Value {
        json!({
            "link": {
                "dialers": [{"binding": "transport"}],
                "listeners": [{"binding": "transport", "bind": "tls:0.0.0.0:10080", "advertise": "tls:a.example:443"}],
            },
            "listeners": [{"binding": "edge", "address": "tls:0.0.0.0:3022", "options": {"advertise": "a.example:443"}}],
            "edge": {},
        })
    }

    fn faults(change: impl FnOnce(&mut Value)) -> String {
        let mut config = config();
        change(&mut config);
        fault(&config, &names(), false, 3022).unwrap_or_default()
    }

    #[test]
    fn what_a_router_takes_is_no_fault() {
        assert_eq!(faults(|_| {}), "");
        // The chart's way: both listeners on one port.
        assert_eq!(
            faults(|c| c["link"]["listeners"][0]["bind"] = json!("tls:0.0.0.0:3022")),
            ""
        );
        assert_eq!(
            faults(|c| c["metrics"] = json!({"reportInterval": "1m30s"})),
            ""
        );
        assert_eq!(faults(|c| c["web"] = json!([{"name": "any"}])), "");
    }

    #[test]
    fn what_would_end_a_router_is_a_fault() {
        type Change = fn(&mut Value);
        let cases: [(&str, Change); 15] = [
            ("must be an object", |c| c["metrics"] = json!([])),
            ("must be a duration", |c| {
                c["metrics"] = json!({"reportInterval": 5});
            }),
            ("must be a duration", |c| {
                c["tls"] = json!({"handshakeTimeout": "5 s"});
            }),
            ("must be a whole number", |c| {
                c["edge"]["dbSaveIntervalSeconds"] = json!("30");
            }),
            ("no edge listener has port 3022", |c| {
                c["listeners"] = json!([]);
            }),
            ("must be a list", |c| c["listeners"] = json!({})),
            ("knows edge", |c| {
                c["listeners"][0]["binding"] = json!("edgy");
            }),
            ("binding must be a string", |c| c["dialers"] = json!([{}])),
            ("know transport alone", |c| {
                c["link"]["dialers"][0]["binding"] = json!("udp");
            }),
            ("both have port 10080", |c| {
                let one = c["link"]["listeners"][0].clone();
                c["link"]["listeners"] = json!([one.clone(), one]);
            }),
            ("does not hold", |c| {
                c["link"]["listeners"][0]["advertise"] = json!("tls:b.example:1");
            }),
            ("does not hold", |c| {
                c["listeners"][0]["options"]["advertise"] = json!("b.example:1");
            }),
            ("IPv6", |c| {
                c["listeners"][0]["options"]["advertise"] = json!("[::1]:443");
            }),
            ("options.advertise must be a string", |c| {
                c["listeners"][0]["options"] = json!({});
            }),
            ("tunnel listener", |c| {
                let edge = c["listeners"][0].clone();
                c["listeners"] = json!([edge, {"binding": "tunnel"}]);
            }),
        ];
        for (expected, change) in cases {
            let mut config = config();
            change(&mut config);
            let said = fault(&config, &names(), false, 3022).unwrap_or_default();
            assert!(said.contains(expected), "{expected}: {said:?}");
        }
    }

    #[test]
    fn durations_are_those_of_go() {
        for good in ["30s", "1h2m3.5s", "100ms", "5us", "0"] {
            assert!(is_duration(good), "{good}");
        }
        for bad in ["", "30", "s", "1d", "1 s", "1s2", "1..2s"] {
            assert!(!is_duration(bad), "{bad}");
        }
    }
}
