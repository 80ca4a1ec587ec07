//! A values file of the ziti-router Helm chart (3.x). One function for an area of
//! its keys; an area that has no counterpart yet is told by [`waiting`].

use super::input::Input;
use super::{Conversion, Target, given_tokens, metadata};
use api::router::TunnelMode;
use serde_json::{Map, Value, json};

/// The chart's repository of images.
const IMAGE: &str = "docker.io/openziti/ziti-router";
/// The ports of a container of the chart.
const EDGE_PORT: u64 = 3022;

/// Subject alternative names, gathered from wherever the chart has hosts.
#[derive(Default)]
struct Sans {
    dns: Vec<String>,
    ip: Vec<String>,
}

impl Sans {
    fn host(&mut self, host: String) {
        let list = if host.parse::<std::net::IpAddr>().is_ok() {
            &mut self.ip
        } else {
            &mut self.dns
        };
        if !list.contains(&host) {
            list.push(host);
        }
    }
}

/// A release of the chart.
pub(super) fn router(values: Value, target: &Target, out: &mut Conversion) {
    let mut input = Input::new(values);
    let mut spec = Map::new();
    // A release is one router.
    spec.insert("replicas".to_owned(), 1.into());
    let mut sans = Sans::default();
    tokens(&mut input, target, &mut spec, out);
    controllers(&mut input, target, out);
    image(&mut input, &mut spec, out);
    edge(&mut input, &mut spec, &mut sans, out);
    links(&mut input, &mut spec, &mut sans, out);
    tunnel(&mut input, &mut spec, out);
    certificate(&mut input, &mut spec, sans, out);
    storage(&mut input, &mut spec, out);
    pod(&mut input, &mut spec);
    waiting(&mut input, out);
    for key in input.rest() {
        out.note(&key, "not carried over: not known here");
    }
    let metadata = metadata(&target.name, target.namespace.as_deref());
    out.ours("ZitiRouter", &metadata, &Value::Object(spec));
}

/// `enrollmentJwt*`: one token for the one member.
fn tokens(input: &mut Input, target: &Target, spec: &mut Map<String, Value>, out: &mut Conversion) {
    let member = format!("{}-0", target.name);
    let secret = given_tokens(&target.name);
    let written = input.text("enrollmentJwt");
    let from_secret = input.switch("enrollmentJwtFromSecret") == Some(true);
    let named = input.text("enrollmentJwtSecretName");
    let source = named.unwrap_or_else(|| format!("{}-enrollment-jwt", target.name));
    if let Some(network) = &target.network {
        spec.insert("networkRef".to_owned(), json!({"name": network}));
    }
    if let Some(token) = written {
        let metadata = metadata(&secret, target.namespace.as_deref());
        out.secret(&metadata, &json!({member: token}));
        spec.insert("tokensSecretRef".to_owned(), json!({"name": secret}));
    } else if from_secret {
        spec.insert("tokensSecretRef".to_owned(), json!({"name": secret}));
        let namespace = target.namespace.as_ref();
        let place = namespace.map(|namespace| format!(" -n {namespace}"));
        let place = place.unwrap_or_default();
        out.note(
            "enrollmentJwtSecretName",
            format!(
                "Secret {source} holds the token under enrollmentJwt, and ours are named after members. Make the other one by: \
                 kubectl create secret generic {secret}{place} --from-literal={member}=\"$(kubectl get secret {source}{place} \
                 -o jsonpath='{{.data.enrollmentJwt}}' | base64 -d)\""
            ),
        );
    } else if target.network.is_none() {
        out.note(
            "enrollmentJwt",
            "there is no token: give --network, and the operator registers the router by itself",
        );
    }
}

/// `ctrl`: the token or the ZitiNetwork names the controllers.
fn controllers(input: &mut Input, target: &Target, out: &mut Conversion) {
    if let Some(endpoint) = input.text("ctrl.endpoint") {
        let network = target
            .network
            .as_deref()
            .unwrap_or("that the ZitiRouter names");
        out.note(
            "ctrl.endpoint",
            format!(
                "not carried over: the token names the controllers. Where it does not, set spec.controlPlane.endpoints: \
                 [tls:{endpoint}] of the ZitiNetwork {network}"
            ),
        );
    }
    if input.text("ctrl.endpointsFile").is_some() {
        out.note(
            "ctrl.endpointsFile",
            "not carried over: the file is beside the identity, and kept up by the router",
        );
    }
}

/// `image`.
fn image(input: &mut Input, spec: &mut Map<String, Value>, out: &mut Conversion) {
    let (repository, tag) = (input.text("image.repository"), input.text("image.tag"));
    match (repository, tag) {
        (None, None) => {}
        (repository, Some(tag)) => {
            let repository = repository.unwrap_or_else(|| IMAGE.to_owned());
            spec.insert("image".to_owned(), format!("{repository}:{tag}").into());
        }
        (Some(repository), None) => out.note(
            "image.repository",
            format!("not carried over without a tag: set spec.image to {repository}:<version>"),
        ),
    }
}

/// Tell that a host is in the certificate, and not advertised.
fn host(key: &str, host: String, sans: &mut Sans, out: &mut Conversion) {
    out.note(
        key,
        format!(
            "{host} is kept as a name in the certificate; the router advertises <member>.<namespace>.svc, since the API has no \
             other way yet"
        ),
    );
    sans.host(host);
}

/// Tell what makes a listener reachable from elsewhere.
fn exposure(input: &mut Input, key: &str, port: u64, out: &mut Conversion) {
    let advertised = input.number(&format!("{key}.advertisedPort"));
    if advertised.is_some_and(|advertised| advertised != port) {
        out.note(
            &format!("{key}.advertisedPort"),
            format!(
                "not carried over: the Service of a member listens on the router's own port, {port}"
            ),
        );
    }
    for way in ["service", "ingress", "traefikTcpRoute", "gatewayTlsRoute"] {
        let path = format!("{key}.{way}");
        let enabled = input.switch(&format!("{path}.enabled"));
        let kind = input.text(&format!("{path}.type"));
        let given = input.take(&path).is_some();
        let plain = way == "service" && kind.as_deref().is_none_or(|kind| kind == "ClusterIP");
        if !given || (way != "service" && enabled != Some(true)) {
            continue;
        }
        if way == "service" && enabled == Some(false) {
            out.note(&path, "each member has a ClusterIP Service all the same");
        } else if !plain || way != "service" {
            let what = kind.unwrap_or_else(|| way.to_owned());
            out.note(
                &path,
                format!("not carried over: the API has no exposure by {what} yet; the Service is of type ClusterIP"),
            );
        }
    }
}

/// `edge` and `advertisedHost`.
fn edge(input: &mut Input, spec: &mut Map<String, Value>, sans: &mut Sans, out: &mut Conversion) {
    let port = input.number("edge.containerPort").unwrap_or(EDGE_PORT);
    if port != EDGE_PORT {
        spec.insert("edge".to_owned(), json!({"port": port}));
    }
    if input.switch("edge.enabled") == Some(false) {
        out.note(
            "edge.enabled",
            "not carried over: every router has an edge listener, without which Ziti never counts it as in sync",
        );
    }
    let (first, second) = (
        input.text("edge.advertisedHost"),
        input.text("advertisedHost"),
    );
    if let Some(name) = first {
        host("edge.advertisedHost", name, sans, out);
    }
    if let Some(name) = second {
        host("advertisedHost", name, sans, out);
    }
    exposure(input, "edge", port, out);
    listeners(input, "edge.additionalListeners", sans, out);
}

/// `linkListeners`.
fn links(input: &mut Input, spec: &mut Map<String, Value>, sans: &mut Sans, out: &mut Conversion) {
    let given = input.number("linkListeners.transport.containerPort");
    // Ours has a port of its own for links; the chart shares the edge's.
    let port = given.unwrap_or(10080);
    if port != 10080 {
        spec.insert("link".to_owned(), json!({"port": port}));
    }
    if let Some(name) = input.text("linkListeners.transport.advertisedHost") {
        host("linkListeners.transport.advertisedHost", name, sans, out);
    }
    exposure(input, "linkListeners.transport", port, out);
    listeners(input, "linkListeners.additionalListeners", sans, out);
}

/// Listeners beside the first: only their names are kept.
fn listeners(input: &mut Input, key: &str, sans: &mut Sans, out: &mut Conversion) {
    let listed = input.take(key);
    for listener in listed
        .as_ref()
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let text = |key: &str| listener[key].as_str().unwrap_or("?").to_owned();
        out.note(
            key,
            format!(
                "{} ({}) is not carried over: the API has one listener of each kind yet",
                text("name"),
                text("protocol")
            ),
        );
        if let Some(name) = listener["advertisedHost"].as_str() {
            sans.host(name.to_owned());
        }
    }
}

/// `tunnel`. Which modes there are is for the API to say.
fn tunnel(input: &mut Input, spec: &mut Map<String, Value>, out: &mut Conversion) {
    let mode = input
        .text("tunnel.mode")
        .unwrap_or_else(|| "host".to_owned());
    if serde_json::from_value::<TunnelMode>(mode.clone().into()).is_ok() {
        spec.insert("tunnel".to_owned(), json!({"mode": mode}));
    } else {
        out.note(
            "tunnel.mode",
            format!("{mode} is not carried over: the API has no such mode yet, so the router hosts no service and dials none"),
        );
    }
    let services = input.take("tunnel.proxyServices");
    for service in services
        .as_ref()
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        out.note(
            "tunnel.proxyServices",
            format!(
                "{} is not carried over",
                service["zitiService"].as_str().unwrap_or("?")
            ),
        );
    }
    for key in [
        "resolver",
        "dnsSvcIpRange",
        "lanIf",
        "diverterPath",
        "proxyDefaultK8sService",
        "proxyAdditionalK8sServices",
    ] {
        let path = format!("tunnel.{key}");
        if input.take(&path).is_some() {
            out.note(
                &path,
                "not carried over: the API has no such setting of a tunnel yet",
            );
        }
    }
}

/// `csr`.
fn certificate(
    input: &mut Input,
    spec: &mut Map<String, Value>,
    mut sans: Sans,
    out: &mut Conversion,
) {
    for name in input
        .texts("csr.sans.dns")
        .into_iter()
        .chain(input.texts("csr.sans.ip"))
    {
        sans.host(name);
    }
    if input.switch("csr.sans.noDefaults") == Some(true) {
        out.note(
            "csr.sans.noDefaults",
            "not carried over: what a router advertises must be in its certificate, or it does not start",
        );
    }
    for key in [
        "sans.email",
        "sans.uri",
        "country",
        "province",
        "locality",
        "organization",
        "organizationalUnit",
    ] {
        let path = format!("csr.{key}");
        if input.take(&path).is_some() {
            out.note(&path, "not carried over: nothing in Ziti goes by it");
        }
    }
    let mut names = Map::new();
    if !sans.dns.is_empty() {
        names.insert("dns".to_owned(), sans.dns.into());
    }
    if !sans.ip.is_empty() {
        names.insert("ip".to_owned(), sans.ip.into());
    }
    if !names.is_empty() {
        spec.insert("csr".to_owned(), json!({"sans": names}));
    }
}

/// `persistence`.
fn storage(input: &mut Input, spec: &mut Map<String, Value>, out: &mut Conversion) {
    let mut claim = Map::new();
    if let Some(size) = input.text("persistence.size") {
        claim.insert("size".to_owned(), size.into());
    }
    if let Some(class) = input.text("persistence.storageClass") {
        claim.insert("storageClassName".to_owned(), class.into());
    }
    if !claim.is_empty() {
        let storage = json!({"persistentVolumeClaim": claim});
        spec.insert("identityStorage".to_owned(), storage);
    }
    if input.switch("persistence.enabled") == Some(false) {
        out.note(
            "persistence.enabled",
            "not carried over: the identity is on a volume of its own",
        );
    }
    let mode = input.text("persistence.accessMode");
    if mode.is_some_and(|mode| mode != "ReadWriteOnce") {
        out.note(
            "persistence.accessMode",
            "not carried over: one pod has the volume, ReadWriteOnce",
        );
    }
    for key in ["existingClaim", "volumeName"] {
        let path = format!("persistence.{key}");
        if input.text(&path).is_some() {
            out.note(&path, "not carried over: a volume with an identity is taken over by `ziti-operator adopt`");
        }
    }
}

/// The pod: what the API has of it.
fn pod(input: &mut Input, spec: &mut Map<String, Value>) {
    if let Some(resources) = input.take("resources") {
        spec.insert("resources".to_owned(), resources);
    }
}

/// Keys whose counterpart the API does not have, and what becomes of them.
fn waiting(input: &mut Input, out: &mut Conversion) {
    const NO_POD_OPTION: &str = "not carried over: the API has no such option of the pod yet";
    const NO_SETTING: &str = "not carried over: the API has no such setting of the router yet";
    const OWN_CONTEXT: &str =
        "not carried over: the pod keeps the restricted Pod Security Standard";
    const START_SCRIPT: &str =
        "not carried over: it is for the stock image's start script, which is not used here";
    let keys = [
        ("image.pullPolicy", NO_POD_OPTION),
        ("image.pullSecrets", NO_POD_OPTION),
        ("imagePullSecrets", NO_POD_OPTION),
        ("nodeSelector", NO_POD_OPTION),
        ("tolerations", NO_POD_OPTION),
        ("affinity", NO_POD_OPTION),
        ("podAnnotations", NO_POD_OPTION),
        ("podLabels", NO_POD_OPTION),
        ("hostNetwork", NO_POD_OPTION),
        ("dnsPolicy", NO_POD_OPTION),
        ("dnsConfig", NO_POD_OPTION),
        ("additionalVolumes", NO_POD_OPTION),
        ("env", NO_POD_OPTION),
        ("livenessProbe", NO_POD_OPTION),
        ("readinessProbe", NO_POD_OPTION),
        ("startupProbe", NO_POD_OPTION),
        ("securityContext", OWN_CONTEXT),
        ("podSecurityContext", OWN_CONTEXT),
        ("bootstrapEnv", START_SCRIPT),
        ("configMountDir", START_SCRIPT),
        ("configFile", START_SCRIPT),
        ("fabric.metrics", NO_SETTING),
        ("forwarder", NO_SETTING),
        ("proxy", NO_SETTING),
        ("websocket", NO_SETTING),
        ("linkDialers", NO_SETTING),
        ("edge.options", NO_SETTING),
        ("edge.protocol", NO_SETTING),
        ("edge.heartbeatIntervalSeconds", NO_SETTING),
        ("identity.altServerCerts", NO_SETTING),
    ];
    for (key, why) in keys {
        if input.take(key).is_some() {
            out.note(key, why);
        }
    }
}
