//! What the network should hold for an `EdgeRouter`, and whose a router is.

use super::{Change, Changes, Entity, RouterSpec};
use api::{EdgeRouter, names};
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

/// Tags of this very object.
pub(super) fn ownership_tags(object: &EdgeRouter, install_id: &str) -> BTreeMap<String, String> {
    let metadata = &object.metadata;
    BTreeMap::from([
        (names::TAG_INSTALL.to_owned(), install_id.to_owned()),
        (
            names::TAG_NAMESPACE.to_owned(),
            metadata.namespace.clone().unwrap_or_default(),
        ),
        (
            names::TAG_NAME.to_owned(),
            metadata.name.clone().unwrap_or_default(),
        ),
        (
            names::TAG_UID.to_owned(),
            metadata.uid.clone().unwrap_or_default(),
        ),
    ])
}

/// Whether tags name this object, whatever its uid: same install, namespace
/// and name. No other object can live under that name, so a router with these
/// tags was this object's before a restore or a re-creation.
pub fn tags_are_of_object(
    tags: &BTreeMap<String, String>,
    object: &EdgeRouter,
    install_id: &str,
) -> bool {
    ownership_tags(object, install_id)
        .iter()
        .filter(|(key, _)| key.as_str() != names::TAG_UID)
        .all(|(key, value)| tags.get(key) == Some(value))
}

/// Whether a router carries the tags of this very object, uid included.
pub fn is_ours(entity: &Entity, object: &EdgeRouter, install_id: &str) -> bool {
    ownership_tags(object, install_id)
        .iter()
        .all(|(key, value)| entity.tags.get(key) == Some(value))
}

/// Whether a router carries ownership tags at all.
pub(super) fn is_owned(entity: &Entity) -> bool {
    entity.tags.contains_key(names::TAG_INSTALL)
}

/// All tags that the router should carry.
pub(super) fn wanted_tags(object: &EdgeRouter, install_id: &str) -> BTreeMap<String, String> {
    let mut tags = object.spec.tags.clone();
    tags.extend(ownership_tags(object, install_id));
    tags
}

/// The router to register.
pub(super) fn wanted(object: &EdgeRouter, install_id: &str) -> RouterSpec {
    let spec = &object.spec;
    let mut role_attributes = spec.role_attributes.clone();
    role_attributes.sort();
    RouterSpec {
        name: wanted_name(object),
        role_attributes,
        tunneler_enabled: spec.tunneler_enabled,
        cost: spec.cost,
        no_traversal: spec.no_traversal,
        tags: wanted_tags(object, install_id),
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
