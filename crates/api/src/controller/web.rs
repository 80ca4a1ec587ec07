//! What a user says of the members' APIs: `spec.web` of a `ZitiController`.

use crate::SecretRef;
use crate::router::is_default;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The members' APIs over HTTPS, and what is served beside them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Web {
    /// Timeouts and TLS versions.
    #[serde(default, skip_serializing_if = "is_default")]
    pub options: WebOptions,
    /// Certificates for other names than those of the network: each is shown to
    /// whoever asks for a name in it, such as a browser that opens the console by a
    /// public name. Names that stand in the members' own certificates are always
    /// answered with those.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub alt_server_certs: Vec<AltServerCert>,
    /// Figures for Prometheus, of the member and of the routers that are connected
    /// to it. Default: not served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
}

/// Timeouts and TLS versions of the members' APIs. Default: Ziti's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = (
    "!has(self.minTLSVersion) || !has(self.maxTLSVersion) || self.minTLSVersion <= self.maxTLSVersion",
    "minTLSVersion must not be above maxTLSVersion"
))]
#[serde(rename_all = "camelCase")]
pub struct WebOptions {
    /// How long a connection without a request is kept, such as `30s`. Ziti's
    /// default: 5s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = r"^[1-9][0-9]*(ms|s|m|h)$"))]
    pub idle_timeout: Option<String>,
    /// How long a request may take to arrive. Ziti's default: 5s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = r"^[1-9][0-9]*(ms|s|m|h)$"))]
    pub read_timeout: Option<String>,
    /// How long an answer may take. Ziti's default: 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = r"^[1-9][0-9]*(ms|s|m|h)$"))]
    pub write_timeout: Option<String>,
    /// The oldest version of TLS that is spoken. Ziti's default: `TLS1.2`.
    #[serde(
        default,
        rename = "minTLSVersion",
        skip_serializing_if = "Option::is_none"
    )]
    pub min_tls_version: Option<TlsVersion>,
    /// The newest version of TLS that is spoken. Ziti's default: `TLS1.3`.
    #[serde(
        default,
        rename = "maxTLSVersion",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_tls_version: Option<TlsVersion>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[serde(rename = "TLS1.2")]
    Tls12,
    /// TLS 1.3.
    #[serde(rename = "TLS1.3")]
    Tls13,
}

/// A certificate for other names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AltServerCert {
    /// The Secret with `tls.crt` (the chain, the certificate itself first) and
    /// `tls.key`, such as cert-manager makes. When it changes, the members are
    /// restarted, one after another.
    pub secret_ref: SecretRef,
}

/// Figures for Prometheus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// The port of each member at which `/metrics` is served over HTTPS, with the
    /// member's own certificate, to whoever reaches the pod: no Service leads to it.
    /// It is named `metrics` in the pod.
    #[serde(default = "metrics_port")]
    #[schemars(range(min = 1024, max = 65535))]
    #[x_kube(validation = (
        "!(self in [1280, 10090, 10091])",
        "1280 is the port of the APIs, 10090 that of the sidecar, and 10091 that of backups"
    ))]
    pub port: u16,
}

fn metrics_port() -> u16 {
    9090
}
