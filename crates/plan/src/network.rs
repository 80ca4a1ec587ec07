//! Decides for a `ZitiNetwork`: whether it may be used, and what to say of it.

use crate::Settings;
use crate::conditions::{Conditions, Truth};
use crate::controllers::{self, Member};
use crate::edge_router::Problem;
use api::reasons::{self, types};
use api::{ZitiNetwork, ZitiNetworkStatus, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How often a network that cannot be reached is tried again.
const RETRY: SignedDuration = SignedDuration::from_secs(5);
/// How often a network that answers is asked for its version and identity.
const REFRESH: SignedDuration = SignedDuration::from_secs(60);

/// Everything that was observed.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The object, with its last status.
    pub object: &'a ZitiNetwork,
    /// This installation.
    pub settings: &'a Settings,
    /// What the controller answered.
    pub answer: Result<Answer, Problem>,
    /// When the operator's client certificate runs out, if it has one.
    pub credential_expiry: Option<Timestamp>,
    /// How many EdgeRouters refer to this network.
    pub users: usize,
    /// The operator's clock.
    pub now: Timestamp,
}

/// What the controller answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its version.
    pub version: String,
    /// The network's identity; `None` where there is no credential to ask with.
    pub identity: Option<String>,
    /// The controllers, where they are a cluster that may be asked about.
    pub members: Vec<Member>,
    /// The leader, where it is at none of `spec.managementApi`.
    pub leads_elsewhere: Option<Member>,
}

/// What is to be done, and what to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What to do, in this order.
    pub steps: Vec<Step>,
    /// The status to write.
    pub status: ZitiNetworkStatus,
    /// Whether EdgeRouters may use the network, and under which identity.
    pub verdict: Result<Verdict, Problem>,
    /// When to look again.
    pub requeue: SignedDuration,
}

/// A network that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Its identity; `None` where there is no credential.
    pub identity: Option<String>,
    /// Whether a person confirmed that this identity is the right one now.
    pub identity_confirmed: bool,
    /// The installation that this one takes over from, on a person's word.
    pub confirmed_install: Option<String>,
}

/// One act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Hold the object, since EdgeRouters need it to be deleted from the network.
    AddFinalizer,
    /// Let the object go.
    ReleaseFinalizer,
}

/// Decide for a `ZitiNetwork`.
pub fn plan(facts: &Facts) -> Plan {
    let object = facts.object;
    let mut status = object.status.clone().unwrap_or_default();
    let mut conditions = Conditions::new(&status.conditions, object.metadata.generation, facts.now);
    status.observed_generation = object.metadata.generation;
    status.credential_expiry = facts.credential_expiry.map(Time);

    match &facts.answer {
        Ok(answer) => {
            status.version = Some(answer.version.clone());
            status.controllers = controllers::status(&answer.members);
            let message = format!("the controller ({}) answers", answer.version);
            conditions.set(types::REACHABLE, Truth::True, reasons::CONNECTED, message);
        }
        Err(problem) => conditions.set(
            types::REACHABLE,
            Truth::False,
            problem.reason,
            problem.message.clone(),
        ),
    }
    let verdict = facts
        .answer
        .clone()
        .and_then(|answer| judge(facts, &mut status, &answer));
    match &verdict {
        Err(problem) => conditions.set(
            types::READY,
            Truth::False,
            problem.reason,
            problem.message.clone(),
        ),
        Ok(Verdict { identity: None, .. }) => {
            let message = "reachable; without spec.credential only provided tokens can be used";
            conditions.set(types::READY, Truth::True, reasons::NO_CREDENTIAL, message);
        }
        Ok(_) if upgrades(facts).is_some() => {
            let message = upgrades(facts).map(|problem| problem.message);
            let (reason, message) = (reasons::VERSIONS_DIFFER, message.unwrap_or_default());
            conditions.set(types::READY, Truth::True, reason, message);
        }
        Ok(_) => {
            let elsewhere = facts.answer.as_ref().ok();
            let elsewhere = elsewhere.and_then(|answer| answer.leads_elsewhere.as_ref());
            let message = elsewhere.map_or_else(
                || "routers can be registered".to_owned(),
                |leader| {
                    format!(
                        "routers can be registered; but the controller that leads, {} ({}), is at none of spec.managementApi, and no \
                         lost router gets a new token before its management API is added there",
                        leader.id, leader.address
                    )
                },
            );
            conditions.set(types::READY, Truth::True, reasons::READY, message);
        }
    }
    let mut steps = Vec::new();
    let held = object
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|f| f == names::FINALIZER_NETWORK);
    match (object.metadata.deletion_timestamp.is_some(), held) {
        (false, false) => steps.push(Step::AddFinalizer),
        (true, true) if facts.users == 0 => steps.push(Step::ReleaseFinalizer),
        (true, true) => {
            let message = format!(
                "{} EdgeRouters still need this network to be deleted from it: delete them first",
                facts.users
            );
            conditions.set(types::READY, Truth::False, reasons::IN_USE, message);
        }
        _ => {}
    }
    status.conditions = conditions.into_vec();
    let requeue = if verdict.is_ok() { REFRESH } else { RETRY };
    Plan {
        steps,
        status,
        verdict,
        requeue,
    }
}

/// Why nothing is written to its controllers now, although they can be asked.
fn upgrades(facts: &Facts) -> Option<Problem> {
    controllers::mixed(&facts.answer.as_ref().ok()?.members)
}

/// Why nothing is asked of a network any more: its controllers are being deleted
/// with it. What is registered there need not be deleted, and is let go.
pub fn ends(object: &ZitiNetwork) -> Option<Problem> {
    let metadata = &object.metadata;
    let annotations = metadata.annotations.as_ref();
    let told = annotations.is_some_and(|have| have.contains_key(names::ANNOTATION_NETWORK_ENDS));
    let labels = metadata.labels.as_ref();
    let of_controller = labels.is_some_and(|have| have.contains_key(names::LABEL_CONTROLLER));
    (told && of_controller).then(|| {
        Problem::new(
            reasons::NETWORK_ENDS,
            "its ZitiController is being deleted, and the network ends with it",
        )
    })
}

/// Whether the network that answers is the one that is meant, and ours.
fn judge(
    facts: &Facts,
    status: &mut ZitiNetworkStatus,
    answer: &Answer,
) -> Result<Verdict, Problem> {
    let annotation = |key: &str| {
        facts
            .object
            .metadata
            .annotations
            .as_ref()
            .and_then(|a| a.get(key))
            .map(String::as_str)
    };
    let Some(identity) = &answer.identity else {
        return Ok(Verdict {
            identity: None,
            identity_confirmed: false,
            confirmed_install: None,
        });
    };
    let ours = &facts.settings.install_id;
    match status.install_id.as_deref() {
        Some(other)
            if other != ours && annotation(names::ANNOTATION_CONFIRM_INSTALL) != Some(other) =>
        {
            return Err(Problem::new(
                reasons::FOREIGN_INSTALL,
                format!(
                    "this ZitiNetwork was used by installation {other:?}, and this is installation {ours:?}: nothing is written to the \
                     network. If it moved here for good, annotate it with {}={other}",
                    names::ANNOTATION_CONFIRM_INSTALL
                ),
            ));
        }
        _ => status.install_id = Some(ours.clone()),
    }
    let confirmed = annotation(names::ANNOTATION_CONFIRM_NETWORK) == Some(identity);
    match status.network_identity.as_deref() {
        Some(known) if known != identity && !confirmed => Err(Problem::new(
            reasons::NETWORK_CHANGED,
            format!(
                "network {known} was known here, and network {identity} answers now (a controller rebuilt, or another one behind the \
                 address): nothing is created or deleted. Point spec.managementApi at the right controller; if the new network is \
                 meant, annotate with {}={identity}",
                names::ANNOTATION_CONFIRM_NETWORK
            ),
        )),
        _ => {
            status.network_identity = Some(identity.clone());
            Ok(Verdict {
                identity: Some(identity.clone()),
                identity_confirmed: confirmed,
                confirmed_install: annotation(names::ANNOTATION_CONFIRM_INSTALL).map(str::to_owned),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions;
    use api::ZitiNetworkSpec;
    use api::ziti_network::{ConfigMapKeyRef, Trust};

    fn network() -> ZitiNetwork {
        let trust = Trust::ConfigMap(ConfigMapKeyRef {
            name: "ca".into(),
            key: "ca.crt".into(),
        });
        let spec = ZitiNetworkSpec {
            management_api: vec!["https://ziti:1280".into()],
            trust,
            credential: None,
            control_plane: None,
            name_pattern: None,
        };
        let mut object = ZitiNetwork::new("ziti", spec);
        object.metadata.finalizers = Some(vec![names::FINALIZER_NETWORK.into()]);
        object
    }

    fn settings() -> Settings {
        Settings {
            install_id: "here".into(),
            install_uid: None,
            agent_image: "a".into(),
            router_image: "r".into(),
            controller_image: "registry.example/controller:7".into(),
            cluster_dns: None,
        }
    }

    fn planned(object: &ZitiNetwork, identity: &str, users: usize) -> Plan {
        let answer = Ok(Answer {
            version: "v1.6.0".into(),
            identity: Some(identity.into()),
            members: Vec::new(),
            leads_elsewhere: None,
        });
        let settings = settings();
        plan(&Facts {
            object,
            settings: &settings,
            answer,
            credential_expiry: None,
            users,
            now: Timestamp::UNIX_EPOCH,
        })
    }

    #[test]
    fn another_network_behind_the_address_stops_everything_until_confirmed() {
        let mut object = network();
        object.status = Some(planned(&object, "one", 0).status);
        let changed = planned(&object, "two", 0);
        assert_eq!(
            changed.verdict.unwrap_err().reason,
            reasons::NETWORK_CHANGED
        );
        assert_eq!(changed.status.network_identity.as_deref(), Some("one"));
        object.metadata.annotations =
            Some([(names::ANNOTATION_CONFIRM_NETWORK.into(), "two".into())].into());
        let confirmed = planned(&object, "two", 0);
        assert!(confirmed.verdict.unwrap().identity_confirmed);
        assert_eq!(confirmed.status.network_identity.as_deref(), Some("two"));
    }

    #[test]
    fn a_network_of_another_install_is_left_alone_until_confirmed() {
        let mut object = network();
        object.status = Some(ZitiNetworkStatus {
            install_id: Some("there".into()),
            ..Default::default()
        });
        assert_eq!(
            planned(&object, "one", 0).verdict.unwrap_err().reason,
            reasons::FOREIGN_INSTALL
        );
        object.metadata.annotations =
            Some([(names::ANNOTATION_CONFIRM_INSTALL.into(), "there".into())].into());
        assert!(planned(&object, "one", 0).verdict.is_ok());
    }

    #[test]
    fn a_network_is_held_while_edge_routers_need_it() {
        let mut object = network();
        object.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(planned(&object, "one", 1).steps, []);
        assert_eq!(planned(&object, "one", 0).steps, [Step::ReleaseFinalizer]);
    }

    #[test]
    fn a_steady_network_has_a_steady_status() {
        let mut object = network();
        object.status = Some(planned(&object, "one", 0).status);
        let again = planned(&object, "one", 0);
        assert_eq!(Some(&again.status), object.status.as_ref());
        assert!(conditions::is_true(&again.status.conditions, types::READY));
    }
}
