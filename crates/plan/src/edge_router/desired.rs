//! What the network should hold for an `EdgeRouter`.

use super::owner::ownership_tags;
use super::{Change, Changes, Entity, RouterSpec};
use crate::Settings;
use api::EdgeRouter;
use std::collections::BTreeMap;

/// The router's name on the network.
pub fn wanted_name(object: &EdgeRouter) -> String {
    object
        .spec
        .name
        .clone()
        .or_else(|| object.metadata.name.clone())
        .unwrap_or_default()
}

/// Whether Ziti can hold this name, and filters can find it again.
pub(super) fn name_fault(name: &str) -> Option<&'static str> {
    if name.trim() != name || name.is_empty() {
        Some("it is empty, or begins or ends with a space")
    } else if name.contains('\\') || name.chars().any(char::is_control) {
        Some("it holds a backslash or a control character, which Ziti's filters cannot find again")
    } else {
        None
    }
}

/// All tags that the router should carry, where it carries these now.
pub(super) fn wanted_tags(
    object: &EdgeRouter,
    settings: &Settings,
    have: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut tags = object.spec.tags.clone();
    tags.extend(ownership_tags(object, settings, have));
    tags
}

/// The router as it should be, where it carries these tags now.
pub(super) fn wanted(
    object: &EdgeRouter,
    settings: &Settings,
    have: &BTreeMap<String, String>,
) -> RouterSpec {
    let spec = &object.spec;
    let mut role_attributes = spec.role_attributes.clone();
    role_attributes.sort();
    RouterSpec {
        name: wanted_name(object),
        role_attributes,
        tunneler_enabled: spec.tunneler_enabled,
        cost: spec.cost,
        no_traversal: spec.no_traversal,
        tags: wanted_tags(object, settings, have),
    }
}

/// What differs between the router and what it should be. Its name is never
/// among it: Ziti answers a rename onto a taken name with 200 and drops every
/// change that came with it.
pub(super) fn changes(entity: &Entity, wanted: &RouterSpec) -> Changes {
    fn differs<T: PartialEq + Clone>(have: &T, want: &T) -> Option<Change<T>> {
        (have != want).then(|| Change {
            from: have.clone(),
            to: want.clone(),
        })
    }
    let mut have_roles = entity.role_attributes.clone();
    have_roles.sort();
    Changes {
        role_attributes: differs(&have_roles, &wanted.role_attributes),
        tunneler_enabled: differs(&entity.tunneler_enabled, &wanted.tunneler_enabled),
        cost: differs(&entity.cost, &wanted.cost),
        no_traversal: differs(&entity.no_traversal, &wanted.no_traversal),
        tags: differs(&entity.tags, &wanted.tags),
    }
}
