//! `EdgeRouter`: one router registered in a Ziti network.

use crate::{AdoptionPolicy, DeletionPolicy, NetworkRef, SecretKeyRef};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One edge router registered in a Ziti network. Its token is put in the
/// Secret `<name>-enrollment`, key `token`, for whoever runs the router.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "openziti.io",
    version = "v1alpha1",
    kind = "EdgeRouter",
    plural = "edgerouters",
    namespaced,
    status = "EdgeRouterStatus",
    derive = "PartialEq",
    shortname = "er",
    category = "ziti",
    doc = "One edge router registered in a Ziti network.",
    validation = ("self.metadata.name.size() <= 63", "the name may have at most 63 characters: its Secret and Service carry it"),
    printcolumn(name = "Registered", type_ = "string", json_path = ".status.conditions[?(@.type==\"Registered\")].status"),
    printcolumn(name = "Enrolled", type_ = "string", json_path = ".status.conditions[?(@.type==\"Enrolled\")].status"),
    printcolumn(name = "Online", type_ = "string", json_path = ".status.conditions[?(@.type==\"Online\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Id", type_ = "string", json_path = ".status.id"),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.routerVersion", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = ("has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)", "name is immutable: Ziti drops a rename onto a taken name without a word"),
    validation = ("has(self.networkRef) == has(oldSelf.networkRef)", "networkRef cannot be added or removed: create another EdgeRouter"),
    validation = ("has(self.networkRef) || has(self.enrollment.provided)", "networkRef is required unless the token is provided"),
)]
#[serde(rename_all = "camelCase")]
pub struct EdgeRouterSpec {
    /// The network in which the router is registered. May be absent only
    /// where the token is provided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = ("self == oldSelf", "networkRef is immutable: create another EdgeRouter"))]
    pub network_ref: Option<NetworkRef>,

    /// Name on the network. Default: the name of this object. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,

    /// Role attributes, by which Ziti policies select this router.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::role_attributes")]
    pub role_attributes: Vec<String>,

    /// Whether the network lets this router host and dial services by itself
    /// (tunnel modes host, proxy and tproxy). Turning it off destroys the
    /// identity of the same id and its place in policies.
    #[serde(default)]
    pub tunneler_enabled: bool,

    /// Cost added to paths through this router, 0 to 65535.
    #[serde(default)]
    #[schemars(range(min = 0, max = 65535))]
    pub cost: i32,

    /// Whether paths may only begin or end at this router.
    #[serde(default)]
    pub no_traversal: bool,

    /// Tags put on the router on the network, besides the operator's own
    /// (which begin with `ziti-operator-`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[x_kube(validation = ("self.all(k, !k.startsWith('ziti-operator-'))", "tags that begin with ziti-operator- are the operator's own"))]
    #[schemars(extend("maxProperties" = 32))]
    pub tags: BTreeMap<String, String>,

    /// Where the enrollment token comes from.
    #[serde(default)]
    #[x_kube(validation = ("has(self.managed) == has(oldSelf.managed)", "enrollment cannot change between managed and provided: create another EdgeRouter"))]
    pub enrollment: Enrollment,

    /// What becomes of the router on the network when this object is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,

    /// What to do when the network has a router of this name that is not ours.
    #[serde(default)]
    pub adoption_policy: AdoptionPolicy,

    /// Stops every write for this object, on the network and in Kubernetes, its
    /// deletion included; only its status goes on. The members of a ZitiRouter
    /// are paused by way of that.
    #[serde(default)]
    pub paused: bool,
}

/// Where the enrollment token comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Enrollment {
    /// The operator registers the router on the network and gets its token.
    Managed(ManagedEnrollment),
    /// A person gives the token; nothing is changed on the network.
    Provided(ProvidedEnrollment),
}

impl Default for Enrollment {
    fn default() -> Self {
        Self::Managed(ManagedEnrollment::default())
    }
}

/// The operator registers the router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagedEnrollment {
    /// What to do with a token that ran out unused.
    #[serde(default)]
    pub reissue: Reissue,
}

/// A person gives the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvidedEnrollment {
    /// The Secret's key that holds the token. It is read, never emptied.
    pub secret_key_ref: SecretKeyRef,
}

/// What to do with a token that ran out unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Reissue {
    /// A new token is asked for at once.
    #[default]
    Automatic,
    /// A new token is asked for when a pod asks for one.
    OnDemand,
}

/// What is known of the router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct EdgeRouterStatus {
    /// The generation that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Id of the router on the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The network in which that id holds (see `ZitiNetwork.status.networkIdentity`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_identity: Option<String>,
    /// When the token that waits runs out, by the token's own word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_expiry: Option<Time>,
    /// Fingerprint (SHA-1) of the certificate that the network expects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// When the router's client certificate runs out. Routers renew theirs
    /// by themselves seven days before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_expiry: Option<Time>,
    /// Version that the router reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router_version: Option<String>,
    /// Host name that the router reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Uid of the pod with which the router was last seen online, by a look
    /// taken after that pod had reported. Tells a new pod's connection from
    /// that of the pod before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online_pod: Option<String>,
    /// What the operator was about to do on the network: recorded before it is
    /// done, so that a lost reply or a crash is settled by looking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// When the router was last given a new token for an identity it had lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_re_enrollment: Option<Time>,
    /// What the router's pod reports. Written by the ZitiRouter controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentReport>,
    /// What holds of this router, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// What the operator was about to do on the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// The act.
    pub act: IntentAct,
    /// For a re-enrollment: digest of the token that stood before, if any. A
    /// token of another digest shows that the act was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_token: Option<String>,
    /// When it was recorded. A request whose reply was lost may still be
    /// carried out some seconds later, so absence is believed only after that.
    pub recorded_at: Time,
}

/// An act on the network that must not be done twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IntentAct {
    /// Create the router.
    Create,
    /// Give the router a new token.
    ReEnroll,
}

/// What the router's pod reports of its enrollment. A hint: whoever may exec
/// into the pod can forge it, so nothing is destroyed on its word alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentReport {
    /// Uid of the pod that reported.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod_uid: String,
    /// `Enrolled` where the pod holds an identity, otherwise why not
    /// (`TokenMissing`, `TokenSpent`, `TokenRefused`, `IdentityMismatch`,
    /// `ControllerUnreachable`, …).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A sentence for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Id of the router that the pod's identity is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router_id: Option<String>,
    /// Fingerprint (SHA-1) of the pod's client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// When the pod's client certificate runs out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Time>,
    /// Digest of the token that the pod saw, or, with no token in the pod, of the
    /// one that its identity was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_digest: Option<String>,
    /// Why the token that the pod saw was not redeemed, where it kept the
    /// identity that it had: `ControllerUnreachable`, `TokenRefused`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_reason: Option<String>,
}

impl AgentReport {
    /// The reason that an agent gives when the pod holds an identity.
    pub const ENROLLED: &str = crate::reasons::ENROLLED;

    /// Whether the pod holds an identity.
    pub fn is_enrolled(&self) -> bool {
        self.reason == Self::ENROLLED
    }
}
