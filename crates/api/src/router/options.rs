//! What of a router's configuration is commonly set: timings and sizes. The rest
//! is reached by `extraConfig`.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// How the router forwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Forwarder {
    /// How many dials out of the network may wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub xgress_dial_queue_length: Option<i32>,
    /// How many dials out of the network are made at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub xgress_dial_worker_count: Option<i32>,
    /// How many dials of links may wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub link_dial_queue_length: Option<i32>,
    /// How many links are dialled at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub link_dial_worker_count: Option<i32>,
    /// How many rate-limited operations may wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub rate_limited_queue_length: Option<i32>,
    /// How many rate-limited operations run at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub rate_limited_worker_count: Option<i32>,
    /// After how many milliseconds without traffic a circuit is looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub idle_circuit_timeout: Option<i32>,
    /// After how long without an answer a link counts as unresponsive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::duration")]
    pub unresponsive_link_timeout: Option<String>,
}

/// What the router tells its controllers of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// How often. The router's own default is a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::duration")]
    pub report_interval: Option<String>,
    /// Up to which age an interval of usage is reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::duration")]
    pub interval_age_threshold: Option<String>,
    /// How many reports may wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub message_queue_size: Option<i32>,
}

/// What the router's own health rests on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthChecks {
    /// Whether a controller answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctrl_ping_check: Option<CtrlPingCheck>,
    /// Whether there are links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_check: Option<LinkCheck>,
}

/// Whether a controller answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CtrlPingCheck {
    /// How often. The router's own default is 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::duration")]
    pub interval: Option<String>,
    /// How long an answer may take. The router's own default is 15s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::duration")]
    pub timeout: Option<String>,
    /// How long after its start. The router's own default is 15s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::duration")]
    pub initial_delay: Option<String>,
}

/// Whether there are links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinkCheck {
    /// How many there must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000))]
    pub min_links: Option<i32>,
    /// How often. The router's own default is 5s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::duration")]
    pub interval: Option<String>,
    /// How long after its start. The router's own default is 1s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::duration")]
    pub initial_delay: Option<String>,
}

/// The router's connections to its controllers. Where they are stands in the
/// ZitiNetwork.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ctrl {
    /// How long after its start a router ends that has reached no controller.
    /// The router's own default is 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::duration")]
    pub startup_timeout: Option<String>,
    /// How long a request may take. The router's own default is 5s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::duration")]
    pub default_request_timeout: Option<String>,
    /// The network interface or address from which controllers are dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub bind: Option<String>,
    /// Options of the channel, as the router's `ctrl.options`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::free_object")]
    pub options: Option<serde_json::Map<String, serde_json::Value>>,
}
