//! When a token is given, taken away or asked for anew.

use super::draft::Draft;
use super::{
    CHURN_LIMIT, Entity, Facts, LATE_COMMIT, NetworkFacts, Problem, RE_ENROLL_INTERVAL,
    SecretFacts, Step, TokenSource, View,
};
use api::edge_router::{AgentReport, Enrollment, Intent, IntentAct, Reissue};
use api::reasons;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// What the router's pod reported last.
pub(super) fn report<'a>(facts: &'a Facts) -> Option<&'a AgentReport> {
    facts.object.status.as_ref()?.agent.as_ref()
}

/// Whether the pod says that the controller refused its token.
pub(super) fn is_refusal(agent: &AgentReport) -> bool {
    matches!(
        agent.reason.as_str(),
        reasons::TOKEN_SPENT | reasons::TOKEN_REFUSED | reasons::TOKEN_EXPIRED
    )
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

/// For reports of a pod that did not get as far as its identity: the reason,
/// what happened, and what to do.
fn unseen(agent: &AgentReport) -> Option<(&'static str, &'static str, &'static str)> {
    let known = [
        (
            reasons::VOLUME_NOT_WRITABLE,
            "could not use its volume, on which its identity may be",
            "Mend the volume; if it is lost, delete the volume claim and the pod",
        ),
        (
            reasons::NAMES_UNREADABLE,
            "could not read the names that its certificate must hold, and did not look at its identity",
            "The next start tries again",
        ),
    ];
    known
        .into_iter()
        .find(|(reason, ..)| *reason == agent.reason)
}

/// The token was redeemed: by the pod, or by somebody else, or in vain.
fn plan_verified(facts: &Facts, entity: &Entity, agent: Option<&AgentReport>, draft: &mut Draft) {
    // One that its router cannot start with is as good as lost.
    let serves = |agent: &AgentReport| {
        let of_no_use = [reasons::NAMES_MISSING, reasons::IDENTITY_EXPIRED];
        !of_no_use.contains(&agent.reason.as_str())
    };
    let held = entity.fingerprint.is_some()
        && agent.is_some_and(|agent| agent.fingerprint == entity.fingerprint && serves(agent));
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
        // What could not be read may lie there unharmed, and a new token would
        // void it.
        Some(agent)
            if agent.fingerprint.is_none()
                && let Some((reason, what, remedy)) = unseen(agent) =>
        {
            let why = agent.message.as_deref().unwrap_or("it did not say why");
            let message = format!("its pod {what}: {why}. {remedy}");
            draft.not_enrolled(Problem::new(reason, message));
        }
        Some(agent) => {
            let what = if agent.is_enrolled() {
                format!(
                    "its pod holds certificate {}, and the network expects another",
                    shorten(agent.fingerprint.as_deref())
                )
            } else {
                format!("its pod says {}", agent.reason)
            };
            if facts.secret.digest().is_some() {
                // Spent: a pod that is started now would only be refused.
                draft.step(Step::EmptyToken);
            }
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
        if let Some(controller) = &entity.online_elsewhere {
            wait_until_offline_at(controller, reasons::TOKEN_EXPIRED, what, draft);
        } else if wants_new && !entity.online {
            // Nobody holds a certificate for it, so there is nothing to wait for.
            replace_token(facts, entity, reasons::TOKEN_EXPIRED, what, draft);
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
        is_refusal(agent) && agent.token_digest.as_deref() == Some(token.digest.as_str())
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
    } else if let Some(controller) = &entity.online_elsewhere {
        wait_until_offline_at(controller, reasons::IDENTITY_LOST, what, draft);
    } else if offline_for < CHURN_LIMIT {
        let left = CHURN_LIMIT.saturating_sub(offline_for);
        draft.identity_lost(
            reasons::IDENTITY_LOST,
            what,
            "a new token follows when the network has seen it offline for a minute",
        );
        draft.look_again(left.saturating_add(SignedDuration::from_millis(200)));
    } else {
        replace_token(facts, entity, reasons::IDENTITY_LOST, what, draft);
    }
}

/// The controllers do not agree, so the router may be in use.
fn wait_until_offline_at(controller: &str, reason: &str, what: &str, draft: &mut Draft) {
    let next = format!(
        "a new token follows when every controller of the network has seen it offline for a minute; it is online at {controller}"
    );
    draft.identity_lost(reason, what, &next);
    draft.look_again(CHURN_LIMIT);
}

/// Ask for a new token, unless one was asked for just now.
fn replace_token(facts: &Facts, entity: &Entity, reason: &str, what: &str, draft: &mut Draft) {
    let since = |then: &Time| facts.now.duration_since(then.0);
    if let Some(pending) = draft.pending_re_enrollment() {
        // Its reply was lost. It may still be carried out, and a second one
        // would void the token of the first.
        let left = LATE_COMMIT.saturating_sub(since(&pending.recorded_at));
        if left.is_positive() {
            draft.identity_lost(
                reason,
                what,
                "a new token was asked for, and has not come yet",
            );
            return draft.look_again(left);
        }
    } else if let Some(last) = facts
        .object
        .status
        .as_ref()
        .and_then(|status| status.last_re_enrollment.as_ref())
    {
        let left = RE_ENROLL_INTERVAL.saturating_sub(since(last));
        if left.is_positive() {
            draft.identity_lost(
                reason,
                what,
                "a new token follows; the last one was given less than two minutes ago",
            );
            return draft.look_again(left);
        }
    }
    if let Some(leader) = leader_elsewhere(facts) {
        // To record an intent again and again would change nothing.
        let next = format!(
            "no new token can be had, since in a cluster only the leader's is good, and the controller that leads, {leader}, is \
             at none of spec.managementApi of the ZitiNetwork: add it there"
        );
        draft.identity_lost(reason, what, &next);
        return draft.look_again(CHURN_LIMIT);
    }
    let intent = Intent {
        act: IntentAct::ReEnroll,
        previous_token: entity.token.as_ref().map(|token| token.digest.clone()),
        recorded_at: Time(facts.now),
    };
    // Each time anew: the write fails where the object is not the one observed.
    draft.step(Step::RecordIntent {
        intent,
        re_enrollment: true,
    });
    draft.step(Step::ReEnroll {
        id: entity.id.clone(),
        why: what.to_owned(),
    });
    draft.identity_lost(reason, what, "a new token is being asked for");
}

fn leader_elsewhere<'a>(facts: &'a Facts) -> Option<&'a str> {
    match &facts.network {
        NetworkFacts::Known(view) => view.basics.leader_elsewhere.as_deref(),
        _ => None,
    }
}

pub(super) fn foreign_secret(facts: &Facts) -> Problem {
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
