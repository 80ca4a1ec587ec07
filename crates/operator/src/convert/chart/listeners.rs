//! The chart's listeners and dialers: `edge`, `linkListeners`, `linkDialers`.

use super::reach::{Advertised, Reach, Source, advertised, is_host, is_of_cluster, reach};
use super::{EDGE_PORT, LINK_PORT, Release};
use crate::convert::input::Input;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The port that the chart advertises where none is said.
const ADVERTISED_PORT: u64 = 443;
/// What a listener of ours may be called at most.
const LONGEST_NAME: usize = 10;

/// The edge listener, as far as links share it.
struct Edge {
    port: u64,
    /// Whether links may share its port.
    can_be_shared: bool,
    advertised: Advertised,
}

/// `edge`, `advertisedHost`, `linkListeners` and `linkDialers`.
pub(super) fn listeners(release: &mut Release, input: &mut Input) {
    let mut names = BTreeSet::new();
    let edge = edge(release, input, &mut names);
    links(release, input, &edge, &mut names);
}

fn edge(release: &mut Release, input: &mut Input, names: &mut BTreeSet<String>) -> Edge {
    let mut spec = Map::new();
    // Some have it here, though the chart does not read it.
    let outer = input.text("advertisedHost");
    let default = Advertised {
        host: outer
            .clone()
            .filter(|host| is_host(host) && !is_of_cluster(host)),
        port: ADVERTISED_PORT,
    };
    let enabled = input.switch("edge.enabled") != Some(false);
    let mut from = Source::new(input, "edge.", "edge.".to_owned());
    let port = from.port("containerPort").unwrap_or(EDGE_PORT);
    if port != EDGE_PORT {
        spec.insert("port".to_owned(), port.into());
    }
    let protocol = protocol(&mut from, &mut spec);
    let advertised = advertised(&mut from, &default, release);
    if let Some(options) = from.take("options") {
        spec.insert("options".to_owned(), options);
    }
    match from.number("heartbeatIntervalSeconds") {
        None | Some(60) => {}
        Some(seconds @ 10..60) => {
            spec.insert("heartbeatIntervalSeconds".to_owned(), seconds.into());
        }
        Some(other) => from.note(
            "heartbeatIntervalSeconds",
            format!("{other} is not carried over: routers take 10 to 60"),
        ),
    }
    if enabled {
        reach(&mut from, &advertised, port, release).put(&mut spec);
    } else {
        spec.insert("expose".to_owned(), json!({"type": "None"}));
        from.note(
            "enabled",
            "becomes expose.type None: a router needs an edge listener to come in sync, and \
                has it on loopback",
        );
        for key in ["service", "ingress", "traefikTcpRoute", "gatewayTlsRoute"] {
            from.take(key);
        }
    }
    let notes = from.notes;
    release.told(notes);
    if let Some(outer) = outer.filter(|outer| advertised.host.as_ref() != Some(outer)) {
        let why = format!(
            "{outer} is not carried over: the router advertises what edge.advertisedHost says"
        );
        release.note("advertisedHost", why);
    }
    let mut more = Vec::new();
    for listener in more_listeners(input, "edge.additionalListeners") {
        more.extend(extra_edge(release, listener, names));
    }
    if !more.is_empty() {
        spec.insert("listeners".to_owned(), more.into());
    }
    release.insert("edge", spec);
    Edge {
        port,
        can_be_shared: enabled && protocol != "wss",
        advertised,
    }
}

fn protocol(from: &mut Source, spec: &mut Map<String, Value>) -> String {
    let protocol = from.text("protocol").unwrap_or_else(|| "tls".to_owned());
    match protocol.as_str() {
        "tls" => {}
        "wss" => {
            spec.insert("protocol".to_owned(), "wss".into());
        }
        other => from.note(
            "protocol",
            format!("{other} is not carried over: edge listeners speak tls or wss"),
        ),
    }
    protocol
}

fn more_listeners(input: &mut Input, key: &str) -> Vec<Value> {
    let listed = input.take(key);
    let listed = listed.as_ref().and_then(Value::as_array);
    listed.cloned().unwrap_or_default()
}

/// A name that a listener of ours may have: the given one, or one that is made
/// of `kind` and a number.
fn name(from: &mut Source, kind: &str, names: &mut BTreeSet<String>) -> String {
    let given = from.text("name").unwrap_or_default();
    let fits =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let sound = given.starts_with(|letter: char| letter.is_ascii_lowercase())
        && given.len() <= LONGEST_NAME
        && !given.ends_with('-')
        && given.chars().all(fits)
        && !["edge", "link"].contains(&given.as_str());
    if sound && names.insert(given.clone()) {
        return given;
    }
    let mut numbered = (1..).map(|number| format!("{kind}{number}"));
    let name = numbered
        .find(|name| !names.contains(name))
        .unwrap_or_default();
    names.insert(name.clone());
    from.note(
        "name",
        format!(
            "becomes {name}: a name begins with a letter, has at most {LONGEST_NAME} of a-z, 0-9 \
            and -, and comes once"
        ),
    );
    name
}

/// The name by which a listener is told of.
fn label(listener: &Value) -> String {
    listener["name"].as_str().unwrap_or("?").to_owned()
}

fn extra_edge(
    release: &mut Release,
    listener: Value,
    names: &mut BTreeSet<String>,
) -> Option<Value> {
    let told = format!("edge.additionalListeners[{}].", label(&listener));
    let mut input = Input::new(listener);
    let mut from = Source::new(&mut input, "", told.clone());
    let mut spec = Map::new();
    if extra(release, &mut from, "edge", names, &mut spec) {
        protocol(&mut from, &mut spec);
        if from.input.switch("addHostToSan") == Some(false) {
            let why = "the advertised name is in the certificate all the same: a router does not \
                    start without";
            from.note("addHostToSan", why);
        }
    }
    finish(release, from, spec, &told)
}

/// What all additional listeners have; false where there can be none.
fn extra(
    release: &mut Release,
    from: &mut Source,
    kind: &str,
    names: &mut BTreeSet<String>,
    spec: &mut Map<String, Value>,
) -> bool {
    let Some(port) = from.port("containerPort") else {
        return false;
    };
    spec.insert("name".to_owned(), name(from, kind, names).into());
    spec.insert("port".to_owned(), port.into());
    let default = Advertised {
        host: None,
        port: ADVERTISED_PORT,
    };
    let advertised = advertised(from, &default, release);
    reach(from, &advertised, port, release).put(spec);
    if let Some(options) = from.take("options") {
        spec.insert("options".to_owned(), options);
    }
    true
}

/// The listener, if there can be one; and what is told of it, of keys that nobody
/// knows as well.
fn finish(
    release: &mut Release,
    from: Source,
    spec: Map<String, Value>,
    told: &str,
) -> Option<Value> {
    let (notes, rest) = (from.notes, from.input.rest());
    release.told(notes);
    if spec.is_empty() {
        let why = "without a port of its own the listener is not carried over";
        release.note(&format!("{told}containerPort"), why);
        return None;
    }
    for key in rest {
        release.note(&format!("{told}{key}"), "not carried over: not known here");
    }
    Some(spec.into())
}

/// `linkListeners` and `linkDialers`.
fn links(release: &mut Release, input: &mut Input, edge: &Edge, names: &mut BTreeSet<String>) {
    let mut spec = Map::new();
    if input.switch("linkListeners.transport.enabled") == Some(false) {
        input.take("linkListeners.transport");
        spec.insert("expose".to_owned(), json!({"type": "None"}));
    } else {
        let at = "linkListeners.transport.";
        let mut from = Source::new(input, at, at.to_owned());
        first_link(release, &mut from, edge, &mut spec);
        let notes = from.notes;
        release.told(notes);
    }
    let mut more = Vec::new();
    for listener in more_listeners(input, "linkListeners.additionalListeners") {
        more.extend(extra_link(release, listener, names));
    }
    if !more.is_empty() {
        spec.insert("listeners".to_owned(), more.into());
    }
    if let Some(extra) = input.take("linkDialers.transport.extraProps") {
        let mut from = Source::new(input, "", "linkDialers.transport.".to_owned());
        let mut dialer = Map::new();
        properties(
            &mut from,
            &extra,
            &["groups", "bind", "split", "options"],
            &mut dialer,
        );
        let notes = from.notes;
        release.told(notes);
        if !dialer.is_empty() {
            spec.insert("dialers".to_owned(), json!([dialer]));
        }
    }
    release.insert("link", spec);
}

/// The chart's links share the edge's port and its address unless they are told
/// otherwise.
fn first_link(
    release: &mut Release,
    from: &mut Source,
    edge: &Edge,
    spec: &mut Map<String, Value>,
) {
    let given = from.port("containerPort");
    let advertised = advertised(from, &edge.advertised, release);
    let wished = given.unwrap_or(edge.port);
    let reach = reach(from, &advertised, wished, release);
    if wished == edge.port && edge.can_be_shared && reach.expose.is_empty() {
        spec.insert("port".to_owned(), wished.into());
        if advertised == edge.advertised {
            // What was told of the address is told of the edge already.
            from.notes
                .retain(|(key, _)| !key.ends_with("advertisedHost"));
        } else {
            reach.put(spec);
        }
    } else {
        let port = if wished != edge.port {
            wished
        } else if edge.port == LINK_PORT {
            EDGE_PORT
        } else {
            LINK_PORT
        };
        if port != wished {
            from.note(
                "containerPort",
                format!(
                    "becomes {port}: links that are exposed by themselves do not share the edge's \
                    port"
                ),
            );
        }
        if port != LINK_PORT {
            spec.insert("port".to_owned(), port.into());
        }
        let alike = advertised.host.is_some() && advertised == edge.advertised;
        if alike && edge.can_be_shared {
            from.note(
                "advertisedHost",
                "not carried over: the edge is advertised there, and links are at another port",
            );
            let expose = reach.expose;
            Reach {
                expose,
                ..Reach::default()
            }
            .put(spec);
        } else {
            reach.put(spec);
        }
    }
    link_properties(from, spec);
}

fn extra_link(
    release: &mut Release,
    listener: Value,
    names: &mut BTreeSet<String>,
) -> Option<Value> {
    let told = format!("linkListeners.additionalListeners[{}].", label(&listener));
    let mut input = Input::new(listener);
    let mut from = Source::new(&mut input, "", told.clone());
    let mut spec = Map::new();
    if extra(release, &mut from, "link", names, &mut spec) {
        for (key, only) in [("binding", "transport"), ("protocol", "tls")] {
            if let Some(other) = from.text(key).filter(|text| text != only) {
                let why = format!("{other} is not carried over: links are of {key} {only}");
                from.note(key, why);
            }
        }
        link_properties(&mut from, &mut spec);
    }
    finish(release, from, spec, &told)
}

/// `options` and `extraProps` of a link listener.
fn link_properties(from: &mut Source, spec: &mut Map<String, Value>) {
    if let Some(options) = from.take("options") {
        spec.insert("options".to_owned(), options);
    }
    if let Some(extra) = from.take("extraProps") {
        properties(from, &extra, &["groups", "bindInterface", "options"], spec);
    }
}

/// Keys of the router's configuration that the chart passes on as they are.
fn properties(from: &mut Source, extra: &Value, known: &[&str], spec: &mut Map<String, Value>) {
    for (key, value) in extra.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("groups", Value::String(group)) => {
                spec.insert(key.clone(), json!([group]));
            }
            (name, _) if known.contains(&name) => {
                spec.insert(key.clone(), value.clone());
            }
            _ => from.note(
                &format!("extraProps.{key}"),
                "not carried over: there is no such setting, and extraConfig replaces lists \
                    as a whole",
            ),
        }
    }
}
