//! When a token is given, taken away or asked for anew.

use super::decide::network_fault;
use super::status::Draft;
use super::{
    CHURN_LIMIT, Entity, Facts, NetworkBasics, NetworkFacts, Plan, Problem, RE_ENROLL_INTERVAL,
    SecretFacts, Step, TokenSource, View,
};
use crate::token::TokenFacts;
use api::edge_router::{AgentReport, Enrollment, Intent, IntentAct, Reissue};
use api::reasons;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

fn report<'a>(facts: &'a Facts) -> Option<&'a AgentReport> {
    facts.object.status.as_ref()?.agent.as_ref()
}

/// A router that is registered under our tags.
pub(super) fn plan_managed(facts: &Facts, view: &View, entity: &Entity, draft: &mut Draft) {
    if facts.secret == SecretFacts::Foreign {
        draft.not_enrolled(foreign_secret(facts));
        return;
    }
    let agent = report(facts);
    let server_time = view.basics.server_time.unwrap_or(facts.now);
    if entity.verified {
        plan_verified(facts, entity, agent, draft);
    } else {
        plan_unverified(facts, entity, agent, server_time, draft);
    }
}

/// The token was redeemed: by the pod, or by somebody else, or in vain.
fn plan_verified(facts: &Facts, entity: &Entity, agent: Option<&AgentReport>, draft: &mut Draft) {
    let held = entity.fingerprint.is_some()
        && agent.is_some_and(|agent| agent.fingerprint == entity.fingerprint);
    if held || entity.online {
        // `verified` alone does not show that the pod has the certificate.
        if facts.secret.digest().is_some() {
            draft.step(Step::EmptyToken);
        }
        draft.enrolled(entity);
        return;
    }
    match agent.filter(|agent| {
        agent.reason != AgentReport::ENROLLED || agent.fingerprint != entity.fingerprint
    }) {
        Some(agent) => {
            let what = if agent.is_enrolled() {
                format!(
                    "its pod holds certificate {}, and the network expects another",
                    shorten(agent.fingerprint.as_deref())
                )
            } else {
                format!("its pod says {}", agent.reason)
            };
            heal(facts, entity, &what, draft);
        }
        None => draft.enrolled_elsewhere(entity),
    }
}

/// The token waits.
fn plan_unverified(
    facts: &Facts,
    entity: &Entity,
    agent: Option<&AgentReport>,
    server_time: Timestamp,
    draft: &mut Draft,
) {
    let asked = agent.is_some_and(|agent| !agent.is_enrolled());
    let usable = entity
        .token
        .as_ref()
        .filter(|token| !token.is_expired(server_time));
    let Some(token) = usable else {
        let wants_new = match &facts.object.spec.enrollment {
            Enrollment::Managed(managed) => managed.reissue == Reissue::Automatic || asked,
            Enrollment::Provided(_) => false,
        };
        let what = if entity.token.is_some() {
            "its token ran out unused"
        } else {
            "the network shows no token for it"
        };
        if wants_new && !entity.online {
            re_enroll(facts, entity, what, draft);
        } else {
            if facts.secret.digest().is_some() {
                draft.step(Step::EmptyToken);
            }
            draft.not_enrolled(Problem::new(
                reasons::TOKEN_EXPIRED,
                format!("{what}; a new one is asked for when a pod needs it (reissue: OnDemand)"),
            ));
        }
        return;
    };
    let refused = agent.is_some_and(|agent| {
        matches!(
            agent.reason.as_str(),
            reasons::TOKEN_SPENT | reasons::TOKEN_REFUSED | reasons::TOKEN_EXPIRED
        ) && agent.token_digest.as_deref() == Some(token.digest.as_str())
    });
    if refused && !entity.online {
        heal(facts, entity, "the controller refused its token", draft);
        return;
    }
    if facts.secret.digest() != Some(token.digest.as_str()) {
        draft.step(Step::PublishToken {
            digest: token.digest.clone(),
            source: TokenSource::Network,
        });
    }
    draft.token_waits(token, agent);
}

/// The identity is lost: a new token for the same router, so that its id and
/// its policies stay. Never while it is online, and not before the network has
/// seen it offline for the churn limit: the pod's word can be forged.
fn heal(facts: &Facts, entity: &Entity, what: &str, draft: &mut Draft) {
    let offline_for = entity.offline_for.unwrap_or_default();
    if entity.online {
        draft.enrolled(entity);
    } else if offline_for < CHURN_LIMIT {
        let left = CHURN_LIMIT.saturating_sub(offline_for);
        draft.identity_lost(
            what,
            "a new token follows when the network has seen it offline for a minute",
        );
        draft.look_again(left.saturating_add(SignedDuration::from_millis(200)));
    } else if let Some(wait) = rate_limit(facts) {
        draft.identity_lost(
            what,
            "a new token follows; the last one was given less than two minutes ago",
        );
        draft.look_again(wait);
    } else {
        re_enroll(facts, entity, what, draft);
    }
}

fn rate_limit(facts: &Facts) -> Option<SignedDuration> {
    let status = facts.object.status.as_ref()?;
    if pending_re_enrollment(facts) {
        // Recorded and not done: the time is that of this very act.
        return None;
    }
    let last = status.last_re_enrollment.as_ref()?;
    let left = RE_ENROLL_INTERVAL.saturating_sub(facts.now.duration_since(last.0));
    left.is_positive().then_some(left)
}

/// Whether a re-enrollment is recorded that was not seen to be done.
fn pending_re_enrollment(facts: &Facts) -> bool {
    let intent = facts
        .object
        .status
        .as_ref()
        .and_then(|status| status.intent.as_ref());
    intent.is_some_and(|intent| intent.act == IntentAct::ReEnroll)
}

fn re_enroll(facts: &Facts, entity: &Entity, what: &str, draft: &mut Draft) {
    let intent = Intent {
        act: IntentAct::ReEnroll,
        previous_token: entity.token.as_ref().map(|token| token.digest.clone()),
        recorded_at: Time(facts.now),
    };
    if !pending_re_enrollment(facts) {
        draft.step(Step::RecordIntent {
            intent,
            re_enrollment: true,
        });
    }
    draft.step(Step::ReEnroll {
        id: entity.id.clone(),
        why: what.to_owned(),
    });
    draft.identity_lost(what, "a new token is being asked for");
}

/// A token that a person gave.
pub(super) fn plan_provided(facts: &Facts) -> Plan {
    let mut draft = Draft::new(facts);
    let token = match facts
        .provided
        .clone()
        .unwrap_or_else(|| Err(Problem::new(reasons::TOKEN_MISSING, "no token was read")))
    {
        Ok(token) => token,
        Err(problem) => return draft.provided_problem(problem).finish(),
    };
    let basics = match &facts.network {
        NetworkFacts::NotReferenced => NetworkBasics {
            names_controllers: token.names_controllers,
            ..NetworkBasics::default()
        },
        NetworkFacts::NoCredential(basics) => basics.clone(),
        NetworkFacts::Known(view) => view.basics.clone(),
        NetworkFacts::Unusable(problem) => return draft.network_unusable(problem.clone()).finish(),
    };
    let agent = report(facts);
    let entity = match &facts.network {
        NetworkFacts::Known(_) => match network_fault(facts) {
            Ok(view) => view
                .entities
                .iter()
                .find(|entity| entity.id == token.subject)
                .map(Some)
                .ok_or(()),
            Err(problem) => return draft.network_unusable(problem).finish(),
        },
        _ => Ok(None),
    };
    // Another token for a router that holds its identity is a wish to enroll it
    // anew; it is heeded where the router is not known to be online.
    let online = entity
        .ok()
        .flatten()
        .is_some_and(|entity| entity.online && entity.verified);
    let used = agent.is_some_and(|agent| {
        agent.is_enrolled()
            && agent.router_id.as_deref() == Some(token.subject.as_str())
            && (online
                || agent
                    .token_digest
                    .as_deref()
                    .is_none_or(|digest| digest == token.digest))
    });
    draft.provided(&token);
    if used {
        if facts.secret.digest().is_some() {
            draft.step(Step::EmptyToken);
        }
        draft.provided_enrolled(entity.ok().flatten());
        return draft.finish();
    }
    let Ok(entity) = entity else {
        let message = format!(
            "the token is for router {}, which this network does not know: give the token of a router of this network",
            token.subject
        );
        return draft
            .withhold(
                facts,
                Problem::new(reasons::TOKEN_OF_ANOTHER_NETWORK, message),
            )
            .finish();
    };
    if let Some(problem) = provided_fault(facts, &token, &basics, entity, agent) {
        return draft.withhold(facts, problem).finish();
    }
    if facts.secret == SecretFacts::Foreign {
        draft.not_enrolled(foreign_secret(facts));
        return draft.finish();
    }
    if facts.secret.digest() != Some(token.digest.as_str()) {
        draft.step(Step::PublishToken {
            digest: token.digest.clone(),
            source: TokenSource::Provided,
        });
    }
    draft.token_waits(&token, agent);
    draft.provided_online(entity);
    draft.finish()
}

fn provided_fault(
    facts: &Facts,
    token: &TokenFacts,
    basics: &NetworkBasics,
    entity: Option<&Entity>,
    agent: Option<&AgentReport>,
) -> Option<Problem> {
    let server_time = basics.server_time.unwrap_or(facts.now);
    if basics.token_is_ours == Some(false) {
        return Some(Problem::new(
            reasons::TOKEN_OF_ANOTHER_NETWORK,
            "the token was not signed by a controller of this network: give a token of this network, or name the other network",
        ));
    }
    if token.is_expired(server_time) {
        return Some(Problem::new(
            reasons::TOKEN_EXPIRED,
            "the token ran out unused: have a new one made for this router (re-enroll) and put it in place of the old one",
        ));
    }
    if !token.names_controllers && !basics.names_controllers {
        return Some(Problem::new(
            reasons::INVALID_SPEC,
            "the token names no controllers for the router to dial: set spec.controlPlane.endpoints of a ZitiNetwork and refer to it",
        ));
    }
    let refused = agent.filter(|agent| {
        agent.token_digest.as_deref() == Some(token.digest.as_str())
            && matches!(
                agent.reason.as_str(),
                reasons::TOKEN_SPENT | reasons::TOKEN_REFUSED | reasons::TOKEN_EXPIRED
            )
    });
    if let Some(agent) = refused {
        return Some(Problem::new(
            known_reason(&agent.reason),
            "the controller refused the token: have a new one made for this router (re-enroll) and put it in place of the old one",
        ));
    }
    if let Some(entity) =
        entity.filter(|entity| entity.verified && agent.is_none_or(|agent| !agent.is_enrolled()))
    {
        return Some(Problem::new(
            reasons::TOKEN_SPENT,
            format!(
                "router {:?} (id {}) was enrolled with this token already, by somebody else: have a new token made for it \
                 (re-enroll) and put it in place of the old one",
                entity.name, entity.id
            ),
        ));
    }
    None
}

fn known_reason(reason: &str) -> &'static str {
    match reason {
        reasons::TOKEN_SPENT => reasons::TOKEN_SPENT,
        reasons::TOKEN_EXPIRED => reasons::TOKEN_EXPIRED,
        _ => reasons::TOKEN_REFUSED,
    }
}

fn foreign_secret(facts: &Facts) -> Problem {
    let name =
        api::names::enrollment_secret(facts.object.metadata.name.as_deref().unwrap_or_default());
    Problem::new(
        reasons::SOURCE_INVALID,
        format!(
            "Secret {name} exists and is not the operator's, so no token is written to it: delete or rename that Secret"
        ),
    )
}

fn shorten(fingerprint: Option<&str>) -> String {
    fingerprint.map_or_else(
        || "unknown".to_owned(),
        |full| full.chars().take(12).collect(),
    )
}
