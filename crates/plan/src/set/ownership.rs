//! Whose the objects are that carry a set's label. A ZitiRouter of the same
//! name may have lived before, and its objects may still be going away, or may
//! have been left to be taken back.

use super::Facts;
use super::applied::ANNOTATION_GENERATION;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Whose the objects are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owners {
    /// This ZitiRouter's, or nobody's beside some of ours: all are ours.
    Us,
    /// Nobody's: left by `--cascade=orphan`.
    Nobody,
    /// Some are another ZitiRouter's. One of the two is gone, and either the
    /// garbage collector is still at work or this object is an old copy.
    Another,
}

/// Whose the objects are that were observed.
pub(super) fn owners(facts: &Facts) -> Owners {
    if is_orphaned_from_afar(facts) {
        return Owners::Nobody;
    }
    let uid = facts.object.metadata.uid.as_deref();
    let metadata = facts
        .edge_routers
        .iter()
        .map(|er| &er.metadata)
        .chain(facts.stateful_sets.iter().map(|set| &set.metadata))
        .chain(facts.services.iter().map(|service| &service.metadata))
        .chain(facts.config_maps.iter().map(|map| &map.metadata));
    let controllers: Vec<Option<&str>> = metadata.map(controller).collect();
    if controllers
        .iter()
        .any(|controller| controller.is_some() && *controller != uid)
    {
        Owners::Another
    } else if !controllers.is_empty() && controllers.iter().all(Option::is_none) {
        Owners::Nobody
    } else {
        Owners::Us
    }
}

/// Whether `--cascade=orphan` took the owner off the EdgeRouters of a set in another
/// cluster, where it reaches nothing.
fn is_orphaned_from_afar(facts: &Facts) -> bool {
    let deleted = facts.object.metadata.deletion_timestamp.is_some();
    let mut owners = facts.edge_routers.iter().map(|er| controller(&er.metadata));
    facts.object.spec.cluster().is_some()
        && deleted
        && !facts.edge_routers.is_empty()
        && owners.all(|owner| owner.is_none())
}

pub(super) fn controller(metadata: &ObjectMeta) -> Option<&str> {
    let owners = metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.next().map(|owner| owner.uid.as_str())
}

/// Whether the workload was written for a later version of the object than the
/// one at hand: a cache that lags, or an operator that lost its Lease, must not
/// bring an old wish back.
pub(super) fn object_is_old(facts: &Facts) -> bool {
    let uid = facts.object.metadata.uid.as_deref();
    let owned = facts.stateful_sets.iter().map(|set| &set.metadata);
    owned
        .filter(|metadata| controller(metadata) == uid)
        .filter_map(|metadata| metadata.annotations.as_ref()?.get(ANNOTATION_GENERATION))
        .filter_map(|generation| generation.parse::<i64>().ok())
        .any(|written| Some(written) > facts.object.metadata.generation)
}
