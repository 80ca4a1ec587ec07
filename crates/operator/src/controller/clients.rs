//! Clients of the controllers' own APIs, kept from one reconcile to the next: a
//! session is not asked for each time, since logins are limited.

use k8s_openapi::jiff::Timestamp;
use plan::controller::FailedJoin;
use plan::controller::network::Policies;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use ziti::management::ManagementClient;

/// How long it is believed what stands on the network, where we wrote nothing.
const BELIEVED: Duration = Duration::from_mins(1);

/// The clients of all ZitiControllers, by `namespace/name`.
#[derive(Default)]
pub(crate) struct Clients(Mutex<HashMap<String, Entry>>);

/// Those of one.
#[derive(Clone)]
struct Entry {
    /// Digest of what the clients were made of.
    inputs: String,
    /// One client for each member, by name.
    of_members: HashMap<String, ManagementClient>,
    /// The member that led when last asked.
    leader: Option<String>,
    /// Members that could not be taken into the cluster.
    joins: BTreeMap<String, FailedJoin>,
    seen: Option<(Instant, Seen)>,
}

/// What was last seen on the network.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) policies: Policies,
    pub(super) identities: Vec<(String, String)>,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forget one that is gone, and its credential with it.
    pub(super) fn forget(&self, path: &str) {
        self.lock().remove(path);
    }

    /// Whether there are clients, made of these very inputs.
    pub(super) fn are_of(&self, path: &str, inputs: &str) -> bool {
        let entries = self.lock();
        entries
            .get(path)
            .is_some_and(|entry| entry.inputs == inputs)
    }

    /// Replace the clients of all members.
    pub(super) fn put(
        &self,
        path: &str,
        inputs: &str,
        of_members: HashMap<String, ManagementClient>,
    ) {
        let (leader, joins) = (self.leader(path), self.joins(path));
        let entry = Entry {
            inputs: inputs.to_owned(),
            of_members,
            leader,
            joins,
            seen: None,
        };
        self.lock().insert(path.to_owned(), entry);
    }

    /// The client of one member.
    pub(super) fn of_member(&self, path: &str, member: &str) -> Option<ManagementClient> {
        self.lock().get(path)?.of_members.get(member).cloned()
    }

    /// The member that led when last asked.
    pub(super) fn leader(&self, path: &str) -> Option<String> {
        self.lock().get(path)?.leader.clone()
    }

    pub(super) fn set_leader(&self, path: &str, leader: &str) {
        if let Some(entry) = self.lock().get_mut(path) {
            entry.leader = Some(leader.to_owned());
        }
    }

    /// Members that could not be taken into the cluster, as far as is remembered.
    pub(super) fn joins(&self, path: &str) -> BTreeMap<String, FailedJoin> {
        let entries = self.lock();
        let joins = entries.get(path).map(|entry| entry.joins.clone());
        joins.unwrap_or_default()
    }

    /// Keep that a member could not be taken in, and why; `None` where it was.
    pub(super) fn tried_to_join(&self, path: &str, member: &str, failed: Option<String>) {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(path) else {
            return;
        };
        let before = entry.joins.remove(member).map_or(0, |before| before.times);
        if let Some(why) = failed {
            let failed = FailedJoin {
                at: Timestamp::now(),
                times: before.saturating_add(1),
                why,
            };
            entry.joins.insert(member.to_owned(), failed);
        }
    }

    /// Forget the failures of members that are in the cluster by now: Ziti may go on
    /// after we have stopped waiting for it, and a person may have mended it.
    pub(super) fn have_joined(&self, path: &str, is_in: impl Fn(&str) -> bool) {
        if let Some(entry) = self.lock().get_mut(path) {
            entry.joins.retain(|member, _| !is_in(member));
        }
    }

    /// What was seen on the network not long ago.
    pub(super) fn seen(&self, path: &str) -> Option<Seen> {
        let entries = self.lock();
        let (at, seen) = entries.get(path)?.seen.as_ref()?;
        (at.elapsed() < BELIEVED).then(|| seen.clone())
    }

    /// Keep what was seen; `None` where something was written since.
    pub(super) fn see(&self, path: &str, seen: Option<Seen>) {
        if let Some(entry) = self.lock().get_mut(path) {
            entry.seen = seen.map(|seen| (Instant::now(), seen));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_forgotten_once_its_member_is_in_the_cluster() {
        let clients = Clients::default();
        clients.put("coast/lamp", "inputs", HashMap::new());
        for member in ["one", "two"] {
            let failed = Some("timeout".to_owned());
            clients.tried_to_join("coast/lamp", member, failed);
        }
        clients.have_joined("coast/lamp", |member| member == "one");
        let left = clients.joins("coast/lamp");
        assert_eq!(left.keys().collect::<Vec<_>>(), ["two"]);
    }
}
