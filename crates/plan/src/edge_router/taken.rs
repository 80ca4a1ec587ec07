//! What is said of a router that is in the way: whose it is, and how to go on. Called
//! by the decision when it may not have the router that it found.

use super::owner::{Claim, Owner, owner};
use super::{Entity, Facts, Problem};
use api::{names, reasons};

/// Why `entity` is left as it is, and what to do.
pub(super) fn told(facts: &Facts, entity: &Entity) -> Problem {
    let object = facts.object;
    let status = object.status.as_ref();
    let had = status.is_some_and(|status| status.id.as_ref() == Some(&entity.id));
    let router = format!("router {:?} (id {})", entity.name, entity.id);
    let message = match owner(&entity.tags, object, facts.settings) {
        Owner::Nobody if had => format!(
            "{router}, which this object registered, carries its ownership tags no longer: somebody took them away, so it is left \
             as it is. Set adoptionPolicy: ByName to take it back"
        ),
        Owner::Elsewhere(claim) => format!(
            "the network has a {router} already, and {}. It is left as it is. {}",
            whose(facts, &claim),
            apart(facts, &claim)
        ),
        Owner::Sibling(claim) => in_the_way(
            &router,
            &format!(
                "it belongs to EdgeRouter {}/{}",
                claim.namespace, claim.name
            ),
        ),
        // Its own is never in the way.
        Owner::This | Owner::Earlier | Owner::Nobody => {
            in_the_way(&router, "it was not made by this operator")
        }
    };
    Problem::new(reasons::NAME_TAKEN, message)
}

fn in_the_way(router: &str, whose: &str) -> String {
    format!(
        "the network has a {router} already, and {whose}. It is left as it is. Rename this object, set spec.namePattern of the \
         ZitiNetwork, or set adoptionPolicy: ByName to take it over"
    )
}

/// Which installation has it.
fn whose(facts: &Facts, claim: &Claim) -> String {
    let Claim {
        install,
        install_uid,
        namespace,
        name,
        ..
    } = claim;
    let uid = install_uid.map_or_else(|| "with no uid".to_owned(), |uid| format!("uid {uid}"));
    if *install == facts.settings.install_id {
        format!(
            "it belongs to EdgeRouter {namespace}/{name} of another installation that was also given the id {install} ({uid})"
        )
    } else {
        format!("it belongs to EdgeRouter {namespace}/{name} of installation {install} ({uid})")
    }
}

/// How the two are kept apart, and how this one takes over.
fn apart(facts: &Facts, claim: &Claim) -> String {
    let metadata = &facts.object.metadata;
    let network = facts.object.spec.network_ref.as_ref();
    let network = network
        .map(|network| network.name.as_str())
        .unwrap_or_default();
    let member = metadata
        .labels
        .as_ref()
        .is_some_and(|labels| labels.contains_key(names::LABEL_SET));
    let id = if claim.install == facts.settings.install_id {
        "give one of the two installations an installId of its own, and "
    } else {
        ""
    };
    let renamed = if member {
        format!(
            "set spec.namePattern of ZitiNetwork {network} to {{install}}-{{member}}, and delete this EdgeRouter, which is made anew \
             by that name"
        )
    } else {
        "make this EdgeRouter anew with another spec.name".to_owned()
    };
    let word = claim.install_uid.unwrap_or(claim.install);
    let by_name = if claim.is_place_of(facts.object) && claim.install_uid.is_some() {
        ""
    } else {
        " and set adoptionPolicy: ByName"
    };
    format!(
        "To keep both, {id}{renamed}. To take it over from an installation that is gone for good, annotate ZitiNetwork {network} with \
         {}={word}{by_name}",
        names::ANNOTATION_CONFIRM_INSTALL
    )
}
