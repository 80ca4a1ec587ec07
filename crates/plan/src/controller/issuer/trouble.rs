//! Puts into words what is amiss with certificates of an issuer.

use super::super::Facts;
use super::{Offer, Place, Trust, places};
use crate::edge_router::Problem;
use api::reasons;
use k8s_openapi::jiff::Timestamp;
use kube::core::DynamicObject;

/// A condition of a Certificate.
pub(super) struct Condition<'a> {
    pub(super) status: &'a str,
    reason: &'a str,
    message: &'a str,
    /// The generation of which it speaks.
    generation: Option<i64>,
}

pub(super) fn condition<'a>(object: &'a DynamicObject, type_: &str) -> Option<Condition<'a>> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|one| one["type"] == type_)?;
    let text = |key: &str| found[key].as_str().unwrap_or_default();
    Some(Condition {
        status: text("status"),
        reason: text("reason"),
        message: text("message"),
        generation: found["observedGeneration"].as_i64(),
    })
}

/// When cert-manager was last asked for another one, or failed to give it.
pub(super) fn tried_at(object: &DynamicObject) -> Option<Timestamp> {
    let status = &object.data["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let issuing = conditions.filter(|one| one["type"] == "Issuing");
    let turned = issuing.map(|one| &one["lastTransitionTime"]);
    turned
        .chain([&status["lastFailureTime"]])
        .filter_map(|at| at.as_str()?.parse().ok())
        .max()
}

/// Whether cert-manager says that what was issued is what the Certificate asks for
/// now.
pub(super) fn is_up_to_date(object: &DynamicObject) -> bool {
    condition(object, "Ready").is_some_and(|ready| {
        let now = object.metadata.generation;
        ready.status == "True" && ready.generation.is_none_or(|of| Some(of) == now)
    })
}

/// What needs a look: the first that is found, and what has time after all else.
pub(in super::super) fn trouble(facts: &Facts) -> Option<Problem> {
    let issuer = facts.issuer.as_ref()?;
    if !issuer.installed {
        let message = "spec.pki.issuerRef has certificates come from cert-manager, and this cluster has no Certificate (cert-manager.io/v1): install cert-manager. It is looked for all the time, and what members have stays in use";
        return Some(Problem::new(reasons::ISSUER_UNUSABLE, message));
    }
    let places = places(facts, issuer);
    let mut found: Vec<Problem> = places.iter().filter_map(of).collect();
    found.sort_by_key(|problem| problem.reason == reasons::AUTHORITY_CHANGED);
    found.into_iter().next()
}

/// What was issued to one that has nothing, where it is not to be used yet.
fn untrusted(place: &Place) -> Option<Problem> {
    let issuer = place.facts.issuer.as_ref()?;
    let trust = Trust::of(place.facts, &places(place.facts, issuer));
    (!place.is_due(&trust)).then(|| {
        let message = format!(
            "{} has no sound certificate, and Certificate {} was signed by a CA that the other members do not trust yet: it is used when they have read the new one. They are restarted for that one at a time; with updateStrategy OnDelete, delete their pods",
            place.member,
            place.name()
        );
        Problem::new(reasons::CERTIFICATES_PENDING, message)
    })
}

fn of(place: &Place) -> Option<Problem> {
    let fault = match place.offer {
        Some(Offer::Sound(offered)) => place.fault(offered),
        Some(Offer::Unusable(why)) => Some(why.clone()),
        None => None,
    };
    if let Some(offered) = place.usable() {
        let Some((kept, life)) = place.kept() else {
            return untrusted(place);
        };
        // Where names changed it waits for the others alone.
        let other = kept.authority != offered.print.authority && !place.is_renamed();
        return other.then(|| {
            let message = format!(
                "the issuer signed Certificate {} with the key of another CA than before. All members trust both, but routers and identities that enrolled before may trust the old one alone: what the new one signed is not used before {}. Give the issuer its old key back (rotationPolicy: Never on its Certificate), or enroll them anew until then",
                place.name(),
                life.soon_at()
            );
            Problem::new(reasons::AUTHORITY_CHANGED, message)
        });
    }
    if place.goes_on() {
        return None;
    }
    let name = place.name();
    let object = place.object();
    let issued = object.is_some_and(is_up_to_date);
    if let Some(fault) = fault.filter(|_| issued) {
        let message = format!(
            "what the issuer gave for Certificate {name} cannot be used: it {fault}. Use an issuer that keeps what the Certificate asks for"
        );
        return Some(Problem::new(reasons::ISSUER_UNUSABLE, message));
    }
    let failed = object
        .and_then(|object| condition(object, "Issuing"))
        .filter(|issuing| issuing.reason == "Failed");
    let ready = object.and_then(|object| condition(object, "Ready"));
    let said = failed.or(ready).map_or_else(
        || "cert-manager has not looked at it".to_owned(),
        |condition| format!("{}: {}", condition.reason, condition.message),
    );
    let message = format!(
        "Certificate {name} is not ready ({said}): see `kubectl describe certificate {name}`, and its issuer"
    );
    Some(Problem::new(reasons::CERTIFICATES_PENDING, message))
}
