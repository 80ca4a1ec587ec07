//! What is published and made once the cluster is there: the `ZitiNetwork` of the
//! same name, the operator's own identity on the network, and the policies
//! without which routers carry nothing.

use super::cluster::led;
use super::config::internal;
use super::render::{metadata, name_of};
use super::{Facts, OperatorToken, Step};
use crate::conditions::find;
use crate::set::applied::{is_applied, stamp};
use api::controller::BootstrapPolicies;
use api::reasons::{self, types};
use api::ziti_network::{ConfigMapKeyRef, Credential, Trust};
use api::{SecretKeyRef, ZitiNetwork, ZitiNetworkSpec, names};
use k8s_openapi::jiff::SignedDuration;

/// Name of the two policies on the network.
pub const POLICY: &str = "ziti-operator-all-routers";
/// How long before its end the operator's certificate is replaced: routers and
/// identities are given a year.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 60);
/// How long a new token is given to be used before another one is made.
const TOKEN_PATIENCE: SignedDuration = SignedDuration::from_secs(15);
/// How long after a new token those before it are kept.
const OLD_KEPT: SignedDuration = SignedDuration::from_mins(2);

/// Policies by which routers carry traffic, of our name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// The edge-router policy.
    pub edge_router: Policy,
    /// The service-edge-router policy.
    pub service_edge_router: Policy,
}

/// One policy of our name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// There is none.
    #[default]
    Absent,
    /// It is ours, and says what it should.
    Ours,
    /// It is ours, and somebody changed it.
    Changed,
    /// Somebody else made it.
    Foreign,
}

/// What is left to do on the network and with the object that stands for it.
pub fn steps(facts: &Facts) -> Vec<Step> {
    let mut steps = Vec::new();
    let Some(cluster) = led(facts) else {
        return steps;
    };
    if cluster.is_mixed() {
        // What follows would fail, and hold up the members' way to one version.
        return steps;
    }
    if let Some(serial) = identity(facts) {
        steps.push(Step::MakeOperatorIdentity { serial });
        return steps;
    }
    let wanted = network(facts);
    if !facts
        .network
        .as_ref()
        .is_some_and(|actual| is_applied(&wanted, actual))
    {
        steps.push(Step::ApplyNetwork(Box::new(wanted)));
    }
    if let Some(policies) = cluster.policies {
        let both = [policies.edge_router, policies.service_edge_router];
        match facts.object.spec.bootstrap_policies {
            BootstrapPolicies::AllRouters => {
                let todo = |policy: &Policy| matches!(policy, Policy::Absent | Policy::Changed);
                if both.iter().any(todo) {
                    steps.push(Step::MakePolicies);
                }
            }
            BootstrapPolicies::None => {
                let ours = |policy: &Policy| matches!(policy, Policy::Ours | Policy::Changed);
                if both.iter().any(ours) {
                    steps.push(Step::DeletePolicies);
                }
            }
        }
    }
    steps.extend(left_over(facts));
    steps
}

/// The serial of the identity that is to be made, if one is: one that none has had,
/// so that nobody is taken for another.
fn identity(facts: &Facts) -> Option<i64> {
    let cluster = led(facts)?;
    let serial = |(_, name): &(String, String)| name.rsplit_once('-')?.1.parse::<i64>().ok();
    let last = cluster.identities.iter().filter_map(serial).max();
    let kept = facts.operator.as_ref().map(|operator| operator.serial);
    let next = last.max(kept).unwrap_or(0) + 1;
    let Some(operator) = &facts.operator else {
        return Some(next);
    };
    // Each that did not come to work is given twice the time of the one before.
    let others = u32::try_from(cluster.identities.len()).unwrap_or(u32::MAX);
    let patience = TOKEN_PATIENCE.saturating_mul(1 << others.min(8));
    if facts.now.duration_since(operator.made_at) < patience {
        return None;
    }
    let known = cluster
        .identities
        .iter()
        .any(|(id, _)| *id == operator.identity);
    let status = facts
        .network
        .as_ref()
        .and_then(|network| network.status.as_ref());
    let ready = status.and_then(|status| find(&status.conditions, types::READY));
    let refused = ready.is_some_and(|ready| {
        [
            reasons::TOKEN_SPENT,
            reasons::TOKEN_EXPIRED,
            reasons::TOKEN_REFUSED,
            reasons::BAD_CREDENTIALS,
        ]
        .contains(&ready.reason.as_str())
    });
    // The ZitiNetwork works on with what it holds in memory, and no longer than that.
    let gone = !operator.enrolled && ready.is_some_and(|ready| ready.status == "True");
    let expiry = status.and_then(|status| status.credential_expiry.as_ref());
    let ends = expiry.is_some_and(|at| at.0.duration_since(facts.now) < RENEW_BEFORE);
    (!known || refused || gone || ends).then_some(next)
}

/// Identities that the operator had before, once the ZitiNetwork works with the
/// one that it has.
fn left_over(facts: &Facts) -> Option<Step> {
    let OperatorToken {
        identity, made_at, ..
    } = facts.operator.as_ref()?;
    let status = facts.network.as_ref()?.status.as_ref()?;
    let ready = find(&status.conditions, types::READY)?;
    // The old one is in use until the network controller has seen the new token.
    let settled = facts.now.duration_since(*made_at) >= OLD_KEPT;
    let expiry = status.credential_expiry.as_ref()?.0;
    let fresh = expiry.duration_since(facts.now) >= RENEW_BEFORE;
    if ready.status != "True" || !settled || !fresh {
        return None;
    }
    let others = led(facts)?.identities.iter();
    let others: Vec<String> = others
        .filter(|(id, _)| id != identity)
        .map(|(id, _)| id.clone())
        .collect();
    (!others.is_empty()).then_some(Step::DeleteIdentities(others))
}

/// The ZitiNetwork by which routers join.
pub fn network(facts: &Facts) -> ZitiNetwork {
    let object = facts.object;
    let name = name_of(object);
    let members = 0..object.spec.replicas;
    let spec = ZitiNetworkSpec {
        management_api: members
            .map(|ordinal| format!("https://{}", internal(object, ordinal)))
            .collect(),
        trust: Trust::ConfigMap(ConfigMapKeyRef {
            name: names::controller_trust(name),
            key: "ca.crt".to_owned(),
        }),
        credential: Some(Credential::EnrollmentToken(SecretKeyRef {
            name: names::controller_operator_secret(name),
            key: names::TOKEN_KEY.to_owned(),
        })),
        control_plane: None,
        name_pattern: None,
    };
    let mut network = ZitiNetwork::new(name, spec);
    network.metadata = metadata(object, name);
    stamp(&network)
}
