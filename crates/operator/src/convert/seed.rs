//! The kinds of the first proof of concept, group `ziti.dariuszski.dev/v1alpha1`.

use super::input::Input;
use super::{Conversion, Target, given_tokens, metadata, text};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// What the proof of concept named its StatefulSets by default.
const DEFAULT_PREFIX: &str = "ziti-router";
/// The repository of its image.
const IMAGE: &str = "docker.io/openziti/ziti-router";

/// Names of the ZitiControllers among these documents: a ZitiRouter used the one
/// of its own name.
pub(super) fn controllers(documents: &[Value]) -> BTreeSet<String> {
    documents
        .iter()
        .filter(|document| document["kind"] == "ZitiController")
        .map(|document| text(&document["metadata"]["name"]))
        .collect()
}

/// A ZitiRouter of the proof of concept.
pub(super) fn router(
    document: &Value,
    target: &Target,
    controllers: &BTreeSet<String>,
    out: &mut Conversion,
) {
    let object = text(&document["metadata"]["name"]);
    let mut input = Input::new(document["spec"].clone());
    let prefix = input.text("routerStatefulsetNamePrefix");
    let name = prefix.unwrap_or_else(|| DEFAULT_PREFIX.to_owned());
    if name != object {
        out.note(
            "metadata.name",
            format!(
                "{object} becomes {name}, the prefix of its routers: members are named after their ZitiRouter, and the tokens \
                 are given by these names"
            ),
        );
    }
    let mut metadata = place(document, &name, target);
    if let Some(labels) = document["metadata"].get("labels") {
        metadata["labels"] = labels.clone();
    }
    let mut spec = Map::new();
    // Its default was 1, and ours is 2.
    let replicas = input.number("routerReplicas").unwrap_or(1);
    spec.insert("replicas".to_owned(), replicas.into());
    if let Some(tag) = input.text("imageTag") {
        spec.insert("image".to_owned(), format!("{IMAGE}:{tag}").into());
    }
    // It ran every router as a transparent proxy, whatever its manifest said.
    spec.insert("tunnel".to_owned(), json!({"mode": "tproxy"}));
    // Its members had numbers, by which the tokens are given.
    spec.insert("topology".to_owned(), "StatefulSet".into());
    out.note(
        "(tunnel mode)",
        "tproxy, as every router of the proof of concept. It needs a namespace of Pod Security level privileged, and cannot be \
         changed later: for routers that only forward, take spec.tunnel out before you apply it",
    );
    network(
        &mut input,
        document,
        &name,
        target,
        controllers,
        &mut spec,
        out,
    );
    if input.text("debug").is_some() {
        out.note(
            "spec.debug",
            "not carried over: it set a variable of the stock image's start script, which is not used here",
        );
    }
    for key in input.rest() {
        out.note(&format!("spec.{key}"), "not a key of the proof of concept");
    }
    out.ours("ZitiRouter", &metadata, &Value::Object(spec));
}

/// Tokens, and the network that they are of.
fn network(
    input: &mut Input,
    document: &Value,
    name: &str,
    target: &Target,
    controllers: &BTreeSet<String>,
    spec: &mut Map<String, Value>,
    out: &mut Conversion,
) {
    let object = text(&document["metadata"]["name"]);
    let address = input.text("zitiMgmtApi");
    let tokens = input.take("zitiRouterEnrollmentToken");
    let secret = given_tokens(name);
    if let Some(tokens) = &tokens {
        out.secret(&place(document, &secret, target), tokens);
        spec.insert("tokensSecretRef".to_owned(), json!({"name": secret}));
    }
    if let Some(network) = &target.network {
        spec.insert("networkRef".to_owned(), json!({"name": network}));
        if address.is_some() {
            out.note(
                "spec.zitiMgmtApi",
                format!("not carried over: ZitiNetwork {network}, given by --network, says where the controller is"),
            );
        }
        return;
    }
    if controllers.contains(&object) {
        spec.insert("networkRef".to_owned(), json!({"name": object}));
        return;
    }
    let first = tokens.as_ref().and_then(Value::as_object);
    let first = first.and_then(|tokens| tokens.keys().next());
    match (address, first) {
        (Some(address), Some(key)) => {
            // Any of the tokens tells whom to trust: the controller signed it.
            let trust = json!({"token": {"name": secret, "key": key}});
            let network = json!({"managementApi": [url(&address)], "trust": trust});
            out.ours("ZitiNetwork", &place(document, &object, target), &network);
            spec.insert("networkRef".to_owned(), json!({"name": object}));
            out.note(
                "spec.zitiMgmtApi",
                format!(
                    "becomes ZitiNetwork {object}, without a credential: the tokens are given. With a spec.credential there, \
                     another ZitiRouter needs no tokens"
                ),
            );
        }
        (_, None) => out.note(
            "spec.zitiRouterEnrollmentToken",
            "there is none, and the file has no ZitiController of this name: give --network, and the operator registers the routers",
        ),
        (None, Some(_)) => {}
    }
}

/// A ZitiController of the proof of concept: it deployed no controller, it
/// obtained an admin identity.
pub(super) fn controller(document: &Value, target: &Target, out: &mut Conversion) {
    let name = text(&document["metadata"]["name"]);
    let mut input = Input::new(document["spec"].clone());
    let secret = format!("{name}-admin-token");
    let source = json!({"name": secret, "key": "token"});
    if let Some(token) = input.text("zitiAdminEnrollmentToken") {
        out.secret(&place(document, &secret, target), &json!({"token": token}));
        out.note(
            "spec.zitiAdminEnrollmentToken",
            "a one-time token: where the proof of concept has redeemed it, have a new one made for an admin identity",
        );
    } else {
        out.note(
            "spec.zitiAdminEnrollmentToken",
            format!("there is none: put a one-time token of an admin identity under the key token of Secret {secret}"),
        );
    }
    let address = input.text("zitiMgmtApi").unwrap_or_else(|| {
        out.note(
            "spec.zitiMgmtApi",
            "there is none: set spec.managementApi of the ZitiNetwork",
        );
        "controller.invalid:443".to_owned()
    });
    if input.text("controllerStatefulsetNamePrefix").is_some() {
        out.note(
            "spec.controllerStatefulsetNamePrefix",
            "not carried over: it named the Secret of the admin identity, which is <network>-admin-identity here",
        );
    }
    for key in input.rest() {
        out.note(&format!("spec.{key}"), "not a key of the proof of concept");
    }
    let spec = json!({
        "managementApi": [url(&address)],
        "trust": {"token": source},
        "credential": {"enrollmentToken": source},
    });
    out.ours("ZitiNetwork", &place(document, &name, target), &spec);
}

/// The controller's address as a URL: it was written with and without a scheme.
fn url(address: &str) -> String {
    let rest = address.trim_start_matches("https://");
    let host = rest.split('/').next().unwrap_or_default();
    format!("https://{host}")
}

fn place(document: &Value, name: &str, target: &Target) -> Value {
    let namespace = document["metadata"]["namespace"].as_str();
    metadata(name, namespace.or(target.namespace.as_deref()))
}
