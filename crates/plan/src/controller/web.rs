//! The `web` section of the controllers' configuration, and the certificates of a
//! user's that it names (`spec.web`).

use super::Facts;
use super::config::{Address, PKI_DIR, files, internal};
use crate::edge_router::Problem;
use crate::set::applied::hash;
use api::controller::{TlsVersion, WebOptions};
use api::{ZitiController, reasons};
use k8s_openapi::api::core::v1::{
    ContainerPort, KeyToPath, SecretVolumeSource, Volume, VolumeMount,
};
use serde_json::{Map, Value, json};

/// Below it is a directory for each of `spec.web.altServerCerts`, by its index.
pub const CERTIFICATES_DIR: &str = "/etc/ziti/web";
/// Key of the certificate in its Secret, and name of its file.
pub const CERTIFICATE: &str = "tls.crt";
/// Key of the private key.
pub const KEY: &str = "tls.key";

/// What a Secret of `spec.web.altServerCerts` holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebCertificate {
    /// There is no Secret.
    Absent,
    /// A certificate and its key.
    Ready {
        /// A digest of both.
        digest: String,
    },
    /// It is there and cannot be used: why.
    Unusable(String),
}

/// The section: the APIs at `bind`, and the figures where they are wanted.
pub(super) fn section(
    object: &ZitiController,
    ordinal: i32,
    bind: &str,
    api: &Address,
    apis: &[Value],
) -> Value {
    let web = &object.spec.web;
    let options = options(&web.options);
    let mut all = json!({
        "name": "all",
        "bindPoints": [{"interface": bind, "address": api.to_string()}],
        "apis": apis,
    });
    if !web.alt_server_certs.is_empty() {
        all["identity"] = identity(web.alt_server_certs.len());
    }
    let mut servers = vec![all];
    if let Some(metrics) = &web.metrics {
        let host = internal(object, ordinal).host;
        servers.push(json!({
            "name": "metrics",
            "bindPoints": [{
                "interface": format!("0.0.0.0:{}", metrics.port),
                "address": format!("{host}:{}", metrics.port),
            }],
            "apis": [{"binding": "metrics"}],
        }));
    }
    if !options.is_empty() {
        for server in &mut servers {
            server["options"] = Value::Object(options.clone());
        }
    }
    Value::Array(servers)
}

fn options(given: &WebOptions) -> Map<String, Value> {
    let version = |version: TlsVersion| match version {
        TlsVersion::Tls12 => "TLS1.2".to_owned(),
        TlsVersion::Tls13 => "TLS1.3".to_owned(),
    };
    [
        ("idleTimeout", given.idle_timeout.clone()),
        ("readTimeout", given.read_timeout.clone()),
        ("writeTimeout", given.write_timeout.clone()),
        ("minTLSVersion", given.min_tls_version.map(version)),
        ("maxTLSVersion", given.max_tls_version.map(version)),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key.to_owned(), Value::String(value?))))
    .collect()
}

/// That of the member, and so many certificates more. Ziti shows the first of them
/// that has the name which is asked for, else that of the member.
fn identity(more: usize) -> Value {
    let file = |name: &str| format!("{PKI_DIR}/{name}");
    let more = (0..more).map(|index| {
        json!({
            "server_cert": format!("{CERTIFICATES_DIR}/{index}/{CERTIFICATE}"),
            "server_key": format!("{CERTIFICATES_DIR}/{index}/{KEY}"),
        })
    });
    json!({
        "cert": file(files::CERT),
        "server_cert": file(files::CERT),
        "key": file(files::KEY),
        "ca": file(files::CA),
        "alt_server_certs": more.collect::<Vec<_>>(),
    })
}

/// The volumes with the certificates.
pub(super) fn volumes(object: &ZitiController) -> impl Iterator<Item = Volume> {
    let key = |key: &str| KeyToPath {
        key: key.to_owned(),
        path: key.to_owned(),
        mode: None,
    };
    let certificates = object.spec.web.alt_server_certs.iter().enumerate();
    certificates.map(move |(index, certificate)| Volume {
        name: volume(index),
        secret: Some(SecretVolumeSource {
            secret_name: Some(certificate.secret_ref.name.clone()),
            default_mode: Some(0o440),
            items: Some(vec![key(CERTIFICATE), key(KEY)]),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    })
}

/// Where the container has them.
pub(super) fn mounts(object: &ZitiController) -> impl Iterator<Item = VolumeMount> {
    (0..object.spec.web.alt_server_certs.len()).map(|index| VolumeMount {
        name: volume(index),
        mount_path: format!("{CERTIFICATES_DIR}/{index}"),
        read_only: Some(true),
        ..VolumeMount::default()
    })
}

fn volume(index: usize) -> String {
    format!("web-{index}")
}

/// The port of the figures.
pub(super) fn port(object: &ZitiController) -> Option<ContainerPort> {
    let metrics = object.spec.web.metrics.as_ref()?;
    Some(ContainerPort {
        name: Some("metrics".to_owned()),
        container_port: i32::from(metrics.port),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    })
}

/// A digest of all certificates: Ziti reads them when it starts.
pub(super) fn digest(facts: &Facts) -> Option<String> {
    let certificates = &facts.object.spec.web.alt_server_certs;
    let digests = certificates.iter().map(|certificate| {
        match facts.web_certificates.get(&certificate.secret_ref.name) {
            Some(WebCertificate::Ready { digest }) => digest.as_str(),
            _ => "",
        }
    });
    (!certificates.is_empty()).then(|| hash(&digests.collect::<Vec<_>>()))
}

/// The first certificate that cannot be shown.
pub(super) fn fault(facts: &Facts) -> Option<Problem> {
    let certificates = facts.object.spec.web.alt_server_certs.iter();
    certificates.enumerate().find_map(|(index, certificate)| {
        let name = &certificate.secret_ref.name;
        let field = format!("spec.web.altServerCerts[{index}]");
        let (reason, message) = match facts.web_certificates.get(name) {
            Some(WebCertificate::Ready { .. }) => return None,
            Some(WebCertificate::Unusable(why)) => (
                reasons::SOURCE_INVALID,
                format!(
                    "Secret {name}, named in {field}, cannot be shown: {why}. Put a certificate into {CERTIFICATE} and its key into {KEY}"
                ),
            ),
            Some(WebCertificate::Absent) | None => (
                reasons::SOURCE_MISSING,
                format!(
                    "Secret {name}, named in {field}, does not exist in this namespace: create it with {CERTIFICATE} and {KEY}. A member that is restarted meanwhile does not start"
                ),
            ),
        };
        Some(Problem::new(reason, message))
    })
}
