//! A values file of the ziti-router Helm chart (3.x). One function for an area of
//! its keys, the larger areas in modules of their own: [`listeners`] with
//! [`reach`], [`tunnel`], [`config`], [`pod`].

mod config;
mod listeners;
mod pod;
mod reach;
mod tunnel;

use super::input::Input;
use super::{Conversion, Target, given_tokens, metadata};
use serde_json::{Map, Value, json};

/// The chart's repository of images.
const IMAGE: &str = "docker.io/openziti/ziti-router";
/// Our edge port where none is said, which is the chart's as well.
const EDGE_PORT: u64 = 3022;
/// Our port for links where none is said.
const LINK_PORT: u64 = 10080;

/// Subject alternative names that nothing else puts into the certificate.
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

/// What a release of the chart becomes.
struct Release<'a> {
    target: &'a Target,
    spec: Map<String, Value>,
    /// `spec.pod`.
    pod: Map<String, Value>,
    sans: Sans,
    out: &'a mut Conversion,
}

impl Release<'_> {
    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.spec.insert(key.to_owned(), value.into());
    }

    /// Set a part of the spec that says something.
    fn insert(&mut self, key: &str, part: Map<String, Value>) {
        if !part.is_empty() {
            self.set(key, part);
        }
    }

    /// Set an option of the pods.
    fn pod(&mut self, key: &str, value: impl Into<Value>) {
        self.pod.insert(key.to_owned(), value.into());
    }

    fn note(&mut self, key: &str, why: impl AsRef<str>) {
        self.out.note(key, why);
    }

    fn told(&mut self, notes: Vec<(String, String)>) {
        for (key, why) in notes {
            self.note(&key, why);
        }
    }

    /// The name by which the one member is reached within the cluster.
    fn member_host(&self) -> String {
        let namespace = self.target.namespace.as_deref().unwrap_or("<namespace>");
        plan::set::service::host(&format!("{}-0", self.target.name), namespace)
    }
}

/// A release of the chart.
pub(super) fn router(values: Value, target: &Target, out: &mut Conversion) {
    let mut input = Input::new(values);
    let mut release = Release {
        target,
        spec: Map::new(),
        pod: Map::new(),
        sans: Sans::default(),
        out,
    };
    // A release is one router.
    release.set("replicas", 1);
    tokens(&mut release, &mut input);
    controllers(&mut release, &mut input);
    image(&mut release, &mut input);
    listeners::listeners(&mut release, &mut input);
    let mode = tunnel::tunnel(&mut release, &mut input);
    certificate(&mut release, &mut input);
    config::config(&mut release, &mut input);
    pod::storage(&mut release, &mut input);
    pod::pod(&mut release, &mut input, &mode);
    for key in input.rest() {
        release.note(&key, "not carried over: not known here");
    }
    let options = std::mem::take(&mut release.pod);
    release.insert("pod", options);
    let metadata = metadata(&target.name, target.namespace.as_deref());
    let spec = Value::Object(release.spec);
    release.out.ours("ZitiRouter", &metadata, &spec);
}

/// `enrollmentJwt*`: one token for the one member.
fn tokens(release: &mut Release, input: &mut Input) {
    let target = release.target;
    let member = format!("{}-0", target.name);
    let secret = given_tokens(&target.name);
    let written = input.text("enrollmentJwt");
    let written = input.text("bootstrapEnv.ZITI_ENROLL_TOKEN").or(written);
    let from_secret = input.switch("enrollmentJwtFromSecret") == Some(true);
    let named = input.text("enrollmentJwtSecretName");
    let source = named.unwrap_or_else(|| format!("{}-enrollment-jwt", target.name));
    if let Some(network) = &target.network {
        release.set("networkRef", json!({"name": network}));
    }
    if let Some(token) = written {
        let metadata = metadata(&secret, target.namespace.as_deref());
        release.out.secret(&metadata, &json!({member: token}));
        release.set("tokensSecretRef", json!({"name": secret}));
    } else if from_secret {
        release.set("tokensSecretRef", json!({"name": secret}));
        let namespace = target.namespace.as_ref();
        let place = namespace.map(|namespace| format!(" -n {namespace}"));
        let place = place.unwrap_or_default();
        release.note(
            "enrollmentJwtSecretName",
            format!(
                "Secret {source} holds the token under enrollmentJwt, and ours are named after members. Make the other one by: \
                 kubectl create secret generic {secret}{place} --from-literal={member}=\"$(kubectl get secret {source}{place} \
                 -o jsonpath='{{.data.enrollmentJwt}}' | base64 -d)\""
            ),
        );
    } else if target.network.is_none() {
        release.note(
            "enrollmentJwt",
            "there is no token: give --network, and the operator registers the router by itself",
        );
    }
}

/// `ctrl`: the token or the ZitiNetwork names the controllers.
fn controllers(release: &mut Release, input: &mut Input) {
    let target = release.target;
    if let Some(endpoint) = input.text("ctrl.endpoint") {
        let network = target
            .network
            .as_deref()
            .unwrap_or("that the ZitiRouter names");
        release.note(
            "ctrl.endpoint",
            format!(
                "not carried over: the token names the controllers. Where it does not, set spec.controlPlane.endpoints: \
                 [tls:{endpoint}] of the ZitiNetwork {network}"
            ),
        );
    }
    if input.text("ctrl.endpointsFile").is_some() {
        release.note(
            "ctrl.endpointsFile",
            "not carried over: the file is beside the identity, and kept up by the router",
        );
    }
}

/// `image`.
fn image(release: &mut Release, input: &mut Input) {
    let (repository, tag) = (input.text("image.repository"), input.text("image.tag"));
    match (repository, tag) {
        (None, None) => {}
        (repository, Some(tag)) => {
            let repository = repository.unwrap_or_else(|| IMAGE.to_owned());
            release.set("image", format!("{repository}:{tag}"));
        }
        (Some(repository), None) => release.note(
            "image.repository",
            format!("not carried over without a tag: set spec.image to {repository}:<version>"),
        ),
    }
}

/// `csr.sans`, `identity`.
fn certificate(release: &mut Release, input: &mut Input) {
    for name in input
        .texts("csr.sans.dns")
        .into_iter()
        .chain(input.texts("csr.sans.ip"))
    {
        release.sans.host(name);
    }
    if input.switch("csr.sans.noDefaults") == Some(true) {
        release.note(
            "csr.sans.noDefaults",
            "not carried over: what a router advertises must be in its certificate, or it \
                    does not start",
        );
    }
    for key in ["csr.sans.email", "csr.sans.uri"] {
        if input.take(key).is_some() {
            release.note(key, "not carried over: nothing in Ziti goes by it");
        }
    }
    if input.take("identity.altServerCerts").is_some() {
        release.note(
            "identity.altServerCerts",
            "not carried over: the operator keeps the identity by itself, and mounts no \
                    Secret of others",
        );
    }
    let sans = std::mem::take(&mut release.sans);
    let mut names = Map::new();
    if !sans.dns.is_empty() {
        names.insert("dns".to_owned(), sans.dns.into());
    }
    if !sans.ip.is_empty() {
        names.insert("ip".to_owned(), sans.ip.into());
    }
    if !names.is_empty() {
        release.set("csr", json!({"sans": names}));
    }
}
