//! A token that a person gave: handed to its pod, taken away once used. Nothing
//! is ever changed on the network.

use super::decide::network_fault;
use super::draft::Draft;
use super::token::{foreign_secret, is_refusal, report};
use super::{
    Entity, Facts, NetworkBasics, NetworkFacts, Plan, Problem, SecretFacts, Step, TokenSource,
};
use crate::token::TokenFacts;
use api::edge_router::AgentReport;
use api::reasons;

/// A token that a person gave.
pub(super) fn plan(facts: &Facts) -> Plan {
    let mut draft = Draft::new(facts);
    let token = match facts
        .provided
        .clone()
        .unwrap_or_else(|| Err(Problem::new(reasons::TOKEN_MISSING, "no token was read")))
    {
        Ok(token) => token,
        Err(problem) => return draft.provided_problem(facts, problem).finish(),
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
    draft.provided(&token);
    draft.provided_online(facts, entity.ok().flatten());
    if is_used(&token, entity.ok().flatten(), agent) {
        if facts.secret.digest().is_some() {
            draft.step(Step::EmptyToken);
        }
        draft.provided_enrolled();
        return draft.finish();
    }
    let Ok(entity) = entity else {
        let message = format!(
            "the token is for router {}, which this network does not know: give the token of a router of this network",
            token.subject
        );
        let problem = Problem::new(reasons::TOKEN_OF_ANOTHER_NETWORK, message);
        return draft.withhold(facts, problem).finish();
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
    draft.finish()
}

/// Whether the pod holds an identity that this token can add nothing to.
///
/// Another token than the one that its identity was made with is a wish to
/// enroll the router anew, unless the network shows that the identity holds: a
/// router that has a new token waiting is not verified.
fn is_used(token: &TokenFacts, entity: Option<&Entity>, agent: Option<&AgentReport>) -> bool {
    let Some(agent) = agent.filter(|agent| {
        agent.is_enrolled() && agent.router_id.as_deref() == Some(token.subject.as_str())
    }) else {
        return false;
    };
    match entity {
        Some(entity) if entity.verified => entity.online || entity.fingerprint == agent.fingerprint,
        Some(_) => false,
        // Seen is not redeemed: it waits still where the old identity was kept.
        None => {
            let seen = agent.token_digest.as_deref();
            agent.token_reason.is_none() && seen.is_none_or(|digest| digest == token.digest)
        }
    }
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
    if !token.names_controllers && !basics.names_controllers {
        return Some(Problem::new(
            reasons::INVALID_SPEC,
            "the token names no controllers for the router to dial: set spec.controlPlane.endpoints of a ZitiNetwork and refer to it",
        ));
    }
    // A mistake must not cost a sound identity: its agent would refuse to start
    // the router.
    let other = agent.filter(|agent| agent.is_enrolled());
    let other = other.and_then(|agent| agent.router_id.as_deref());
    if let Some(other) = other.filter(|id| *id != token.subject) {
        return Some(Problem::new(
            reasons::IDENTITY_MISMATCH,
            format!(
                "the pod holds the identity of router {other}, and the token is for router {}: give a token of router {other}, or \
                 delete the volume and the pod to make it the other router",
                token.subject
            ),
        ));
    }
    let mine = |agent: &&AgentReport| agent.token_digest.as_deref() == Some(token.digest.as_str());
    if let Some(agent) = agent.filter(mine).filter(|agent| is_refusal(agent)) {
        return Some(Problem::new(
            known_reason(&agent.reason),
            "the controller refused the token: have a new one made for this router (re-enroll) and put it in place of the old one",
        ));
    }
    if let Some(entity) = entity
        && is_spent(facts, token, entity, agent)
    {
        return Some(Problem::new(
            reasons::TOKEN_SPENT,
            format!(
                "the token was used already, and router {:?} (id {}) got another identity or another token since: have a new \
                 token made for it (re-enroll) and put it in place of the old one",
                entity.name, entity.id
            ),
        ));
    }
    if token.is_expired(server_time) {
        return Some(Problem::new(
            reasons::TOKEN_EXPIRED,
            "the token ran out unused: have a new one made for this router (re-enroll) and put it in place of the old one",
        ));
    }
    None
}

/// Whether the network shows that the token was redeemed, or that another one
/// stands in its place.
fn is_spent(
    facts: &Facts,
    token: &TokenFacts,
    entity: &Entity,
    agent: Option<&AgentReport>,
) -> bool {
    let digest = Some(token.digest.as_str());
    // One that was handed out is redeemed a moment before its pod says so.
    let handed_out = facts.secret.digest() == digest;
    let waits = entity.token.as_ref().map(|waits| waits.digest.as_str()) == digest;
    let holds =
        agent.is_some_and(|agent| agent.is_enrolled() && agent.token_digest.as_deref() == digest);
    (holds && !waits) || (entity.verified && !handed_out)
}

fn known_reason(reason: &str) -> &'static str {
    match reason {
        reasons::TOKEN_SPENT => reasons::TOKEN_SPENT,
        reasons::TOKEN_EXPIRED => reasons::TOKEN_EXPIRED,
        _ => reasons::TOKEN_REFUSED,
    }
}
