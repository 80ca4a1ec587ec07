//! Whose a router on the network is: what its tags say, seen from one `EdgeRouter`.
//! The decisions beside this, and the tests of their invariants, ask it.
//!
//! An install id is what a person wrote, and nothing keeps two clusters from being given the
//! same one. So each router also carries the uid of the namespace in which the operator that
//! registered it is installed: no two clusters have that in common, and what is made anew
//! within a cluster keeps it.

use super::Entity;
use crate::Settings;
use api::{EdgeRouter, names};
use std::collections::BTreeMap;

/// Whose a router is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner<'a> {
    /// This very object's, uid included.
    This,
    /// That of an object which was in its place: same installation, namespace
    /// and name. It is what a re-creation or a restore leaves behind, since no
    /// other object can live there.
    Earlier,
    /// Another object's of this installation.
    Sibling(Claim<'a>),
    /// Another installation's.
    Elsewhere(Claim<'a>),
    /// Nobody's: it carries no ownership tags.
    Nobody,
}

/// What the ownership tags of a router say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// Id of the installation.
    pub install: &'a str,
    /// Its uid; absent on what was registered before there was this tag, or by
    /// an operator outside of a cluster.
    pub install_uid: Option<&'a str>,
    /// Namespace of the `EdgeRouter`.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
}

impl<'a> Claim<'a> {
    /// The claim in these tags, if they hold one.
    pub fn of(tags: &'a BTreeMap<String, String>) -> Option<Self> {
        let tag = |key: &str| tags.get(key).map(String::as_str);
        Some(Self {
            install: tag(names::TAG_INSTALL)?,
            install_uid: tag(names::TAG_INSTALL_UID),
            namespace: tag(names::TAG_NAMESPACE).unwrap_or_default(),
            name: tag(names::TAG_NAME).unwrap_or_default(),
            uid: tag(names::TAG_UID).unwrap_or_default(),
        })
    }

    /// Whether it names the place of this object: its namespace and name.
    pub fn is_place_of(&self, object: &EdgeRouter) -> bool {
        let metadata = &object.metadata;
        Some(self.namespace) == metadata.namespace.as_deref()
            && Some(self.name) == metadata.name.as_deref()
    }

    /// Whether it names the uid of this object.
    pub fn is_uid_of(&self, object: &EdgeRouter) -> bool {
        Some(self.uid) == object.metadata.uid.as_deref()
    }
}

/// Whose the router with these tags is, seen from `object`.
pub fn owner<'a>(
    tags: &'a BTreeMap<String, String>,
    object: &EdgeRouter,
    settings: &Settings,
) -> Owner<'a> {
    let Some(claim) = Claim::of(tags) else {
        return Owner::Nobody;
    };
    let here = claim.is_place_of(object);
    if claim.install != settings.install_id {
        Owner::Elsewhere(claim)
    } else if here && claim.is_uid_of(object) {
        // Whatever the installation's uid: the operator may have moved.
        Owner::This
    } else if claim.install_uid != settings.install_uid.as_deref() {
        Owner::Elsewhere(claim)
    } else if here {
        Owner::Earlier
    } else {
        Owner::Sibling(claim)
    }
}

/// Whether tags name this object or one that was in its place.
pub fn tags_are_of_object(
    tags: &BTreeMap<String, String>,
    object: &EdgeRouter,
    settings: &Settings,
) -> bool {
    matches!(owner(tags, object, settings), Owner::This | Owner::Earlier)
}

/// Whether a router carries the tags of this very object, uid included.
pub fn is_ours(entity: &Entity, object: &EdgeRouter, settings: &Settings) -> bool {
    owner(&entity.tags, object, settings) == Owner::This
}

/// Whether a person said that this installation takes over from the one of the
/// claim, by the value of [`names::ANNOTATION_CONFIRM_INSTALL`]. Its uid says so
/// of all that it has. Its id says so of this very object's router alone, as it
/// was registered before the id changed: other installations may have that id.
pub(super) fn is_confirmed(claim: &Claim, object: &EdgeRouter, word: Option<&str>) -> bool {
    let Some(word) = word else {
        return false;
    };
    claim.install_uid == Some(word) || (claim.install == word && claim.is_uid_of(object))
}

/// Whether a person said so with nothing but the id, of a router that carries
/// no more: enough together with `adoptionPolicy: ByName`.
pub(super) fn is_confirmed_by_id(claim: &Claim, word: Option<&str>) -> bool {
    claim.install_uid.is_none() && Some(claim.install) == word
}

/// The tags of this very object. An operator that has no uid of its own leaves
/// the one that is there.
pub(super) fn ownership_tags(
    object: &EdgeRouter,
    settings: &Settings,
    have: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let metadata = &object.metadata;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let mut tags = BTreeMap::from([
        (names::TAG_INSTALL.to_owned(), settings.install_id.clone()),
        (names::TAG_NAMESPACE.to_owned(), text(&metadata.namespace)),
        (names::TAG_NAME.to_owned(), text(&metadata.name)),
        (names::TAG_UID.to_owned(), text(&metadata.uid)),
    ]);
    let known = have.get(names::TAG_INSTALL_UID);
    if let Some(uid) = settings.install_uid.as_ref().or(known) {
        tags.insert(names::TAG_INSTALL_UID.to_owned(), uid.clone());
    }
    tags
}
