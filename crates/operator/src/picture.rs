//! The picture of a network's routers: the last list of them, kept up by what was asked since.
//!
//! A look for one router shows more than the list before it, and more than a
//! list that was under way at that time: a token that was seen used must not
//! come back because an older list still shows it.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use ziti::management::EdgeRouterEntity;

/// What is known of the routers of one network. Used by [`crate::networks`],
/// under its lock.
#[derive(Default)]
pub(crate) struct Picture {
    rows: Option<Rows>,
    /// When the list was asked for.
    listed: Option<Instant>,
    /// Routers that were asked for by themselves, and when.
    looked: HashMap<String, Instant>,
    offline_since: HashMap<String, Offline>,
}

/// Since when a router has been seen offline, and with which certificate: with
/// another one it begins anew, or the one made a moment ago would be voided
/// before it was used.
struct Offline {
    since: Timestamp,
    certificate: (bool, Option<String>),
}

/// The routers as they were seen last.
#[derive(Clone)]
pub(crate) struct Rows {
    pub(crate) entities: Arc<HashMap<String, EdgeRouterEntity>>,
    server_time: Option<Timestamp>,
    listed_at: Timestamp,
}

impl Rows {
    /// The controller's clock now, going by when the list was made.
    pub(crate) fn server_now(&self, now: Timestamp) -> Option<Timestamp> {
        let then = self.server_time?;
        then.checked_add(now.duration_since(self.listed_at)).ok()
    }
}

impl Picture {
    /// The routers, once they were listed.
    pub(crate) fn rows(&self) -> Option<Rows> {
        self.rows.clone()
    }

    /// Forget the routers: they are looked at in another way from now on. How
    /// long one was offline stays, since its id is of one network alone.
    pub(crate) fn clear(&mut self) {
        self.rows = None;
        self.listed = None;
        self.looked.clear();
    }

    /// Keep a list that was asked for at `asked`. Returns the ids of which
    /// something differs.
    pub(crate) fn list(
        &mut self,
        listed: Vec<EdgeRouterEntity>,
        server_time: Option<Timestamp>,
        asked: Instant,
        now: Timestamp,
    ) -> Vec<String> {
        let mut entities: HashMap<String, EdgeRouterEntity> = listed
            .into_iter()
            .map(|entity| (entity.id.clone(), entity))
            .collect();
        let before = self
            .rows
            .take()
            .map_or_else(Arc::default, |rows| rows.entities);
        self.listed = Some(asked);
        self.looked.retain(|_, looked| *looked > asked);
        for id in self.looked.keys() {
            match before.get(id) {
                Some(entity) => entities.insert(id.clone(), entity.clone()),
                None => entities.remove(id),
            };
        }
        for entity in entities.values() {
            note_offline(&mut self.offline_since, entity, now);
        }
        let mut changed: Vec<String> = entities
            .values()
            .filter(|entity| {
                before
                    .get(&entity.id)
                    .is_none_or(|have| fingerprint(have) != fingerprint(entity))
            })
            .map(|entity| entity.id.clone())
            .collect();
        changed.extend(
            before
                .keys()
                .filter(|id| !entities.contains_key(*id))
                .cloned(),
        );
        self.rows = Some(Rows {
            entities: Arc::new(entities),
            server_time,
            listed_at: now,
        });
        changed
    }

    /// Keep what a look for one router, asked for at `asked`, showed: the
    /// router, or that it is not there.
    pub(crate) fn look(&mut self, id: &str, found: Option<&EdgeRouterEntity>, asked: Instant) {
        if self.listed.is_some_and(|listed| listed > asked) {
            return;
        }
        self.looked.insert(id.to_owned(), asked);
        let Some(rows) = &mut self.rows else { return };
        let entities = Arc::make_mut(&mut rows.entities);
        match found {
            Some(entity) => entities.insert(id.to_owned(), entity.clone()),
            None => entities.remove(id),
        };
    }

    /// How long a router has been seen offline.
    pub(crate) fn offline_for(
        &mut self,
        entity: &EdgeRouterEntity,
        now: Timestamp,
    ) -> Option<SignedDuration> {
        note_offline(&mut self.offline_since, entity, now);
        let offline = self.offline_since.get(&entity.id)?;
        Some(now.duration_since(offline.since))
    }

    /// Count anew how long a router is offline.
    pub(crate) fn seen_online(&mut self, id: &str) {
        self.offline_since.remove(id);
    }
}

fn note_offline(offline: &mut HashMap<String, Offline>, entity: &EdgeRouterEntity, now: Timestamp) {
    if entity.is_online {
        offline.remove(&entity.id);
        return;
    }
    let certificate = (entity.is_verified, entity.fingerprint.clone());
    let known = offline.get(&entity.id);
    if known.is_none_or(|known| known.certificate != certificate) {
        let since = now;
        offline.insert(entity.id.clone(), Offline { since, certificate });
    }
}

/// What of a router matters to us: a row that differs in nothing else wakes
/// nobody.
fn fingerprint(entity: &EdgeRouterEntity) -> impl PartialEq + use<> {
    let token = entity
        .enrollment_token()
        .and_then(Result::ok)
        .map(|token| token.digest().to_owned());
    let tags = serde_json::to_string(&entity.tags).unwrap_or_default();
    (
        (
            entity.name.clone(),
            entity.role_attributes.clone(),
            tags,
            entity.cost,
        ),
        (
            entity.is_tunneler_enabled,
            entity.no_traversal,
            entity.is_verified,
            entity.is_online,
        ),
        (
            entity.sync_status.clone(),
            entity.fingerprint.clone(),
            token,
            entity.version.clone(),
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn router(id: &str, online: bool) -> EdgeRouterEntity {
        let row = json!({"id": id, "name": id, "isOnline": online});
        serde_json::from_value(row).unwrap()
    }

    fn listed(picture: &mut Picture, routers: &[EdgeRouterEntity], asked: Instant) -> Vec<String> {
        let now = Timestamp::UNIX_EPOCH;
        let mut changed = picture.list(routers.to_vec(), None, asked, now);
        changed.sort();
        changed
    }

    fn online(picture: &Picture, id: &str) -> Option<bool> {
        let rows = picture.rows().unwrap();
        rows.entities.get(id).map(|router| router.is_online)
    }

    #[test]
    fn a_list_tells_what_differs_from_the_one_before() {
        let mut picture = Picture::default();
        let first = [router("a", false), router("b", false)];
        assert_eq!(listed(&mut picture, &first, Instant::now()), ["a", "b"]);
        let second = [router("a", false), router("c", false)];
        assert_eq!(listed(&mut picture, &second, Instant::now()), ["b", "c"]);
        assert!(listed(&mut picture, &second, Instant::now()).is_empty());
    }

    #[test]
    fn a_look_counts_more_than_the_list_before_it_and_the_one_under_way() {
        let mut picture = Picture::default();
        listed(&mut picture, &[router("a", false)], Instant::now());
        let under_way = Instant::now();
        let looked = Instant::now();
        picture.look("a", Some(&router("a", true)), looked);
        picture.look("new", Some(&router("new", false)), looked);
        assert_eq!(online(&picture, "a"), Some(true));
        assert!(listed(&mut picture, &[router("a", false)], under_way).is_empty());
        assert_eq!(online(&picture, "a"), Some(true));
        assert_eq!(online(&picture, "new"), Some(false));

        picture.look("a", None, Instant::now());
        listed(&mut picture, &[router("a", true)], under_way);
        assert_eq!(online(&picture, "a"), None, "deleted meanwhile");
        listed(&mut picture, &[router("a", true)], Instant::now());
        assert_eq!(
            online(&picture, "a"),
            Some(true),
            "a later list knows better"
        );
    }
}
