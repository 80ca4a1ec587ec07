//! What of the chart's values goes into the router's configuration by itself:
//! timings and sizes, and what only `extraConfig` reaches.

use super::Release;
use crate::convert::input::Input;
use serde_json::{Map, Value, json};

/// Keys of `forwarder` that have fields.
const FORWARDER: [&str; 8] = [
    "xgressDialQueueLength",
    "xgressDialWorkerCount",
    "linkDialQueueLength",
    "linkDialWorkerCount",
    "rateLimitedQueueLength",
    "rateLimitedWorkerCount",
    "idleCircuitTimeout",
    "unresponsiveLinkTimeout",
];

/// `forwarder`, `fabric.metrics`, `proxy`, `websocket`, the subject in `csr`.
pub(super) fn config(release: &mut Release, input: &mut Input) {
    let mut extra = Map::new();
    if let Some(Value::Object(given)) = input.take("forwarder") {
        let known = |(key, _): &(String, Value)| FORWARDER.contains(&key.as_str());
        let (known, others): (Map<_, _>, Map<_, _>) = given.into_iter().partition(known);
        release.insert("forwarder", known);
        if !others.is_empty() {
            extra.insert("forwarder".to_owned(), others.into());
        }
    }
    if input.switch("fabric.metrics.enabled") == Some(true) {
        // What the chart makes of it.
        let metrics = json!({"reportInterval": "5s", "intervalAgeThreshold": "5s"});
        release.set("metrics", metrics);
    }
    let (address, port) = (input.text("proxy.address"), input.text("proxy.port"));
    let type_ = input
        .text("proxy.type")
        .unwrap_or_else(|| "http".to_owned());
    if let (Some(address), Some(port)) = (address, port) {
        let proxy = json!({"type": type_, "address": format!("{address}:{port}")});
        extra.insert("proxy".to_owned(), proxy);
        release.note(
            "proxy",
            "is for the router alone: it enrolls, and gets other names into its certificate, \
                without the proxy",
        );
    }
    if let Some(Value::Object(mut websocket)) = input.take("websocket")
        && websocket.remove("enabled") == Some(true.into())
        && !websocket.is_empty()
    {
        extra.insert("transport".to_owned(), json!({"ws": websocket}));
    }
    let mut subject = Map::new();
    for key in [
        "country",
        "province",
        "locality",
        "organization",
        "organizationalUnit",
    ] {
        if let Some(value) = input.take(&format!("csr.{key}")) {
            subject.insert(key.to_owned(), value);
        }
    }
    if !subject.is_empty() {
        extra.insert("edge".to_owned(), json!({"csr": subject}));
        release.note(
            "csr",
            "the subject is in the certificates that the router renews by itself, not in its first",
        );
    }
    release.insert("extraConfig", extra);
}
