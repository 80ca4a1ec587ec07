//! Which certificates are issued, renewed and left alone.
//!
//! A root, whose key stays in a Secret that no pod mounts; for each member a
//! signer, with which it signs the certificates of those who enroll; for each
//! member a certificate of its own. Root and signers are renewed with their keys:
//! whoever trusts or carries the old certificate is not cut off. A member reads
//! its files at its start, so one whose certificate is newer than its pod is
//! restarted (`cluster`).

use super::Facts;
use super::config::names_of;
use super::issuer::Held;
use super::member::wished;
use crate::set::member::replicas;
use api::names;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;

/// How far before its making a certificate begins to be valid: clocks differ.
pub const BACKDATED: SignedDuration = SignedDuration::from_mins(5);

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// From.
    pub from: Timestamp,
    /// Until.
    pub until: Timestamp,
}

impl Life {
    /// A life that begins now.
    pub fn of_days(days: i32, now: Timestamp) -> Self {
        let length = SignedDuration::from_hours(24 * i64::from(days));
        Self {
            from: now.checked_sub(BACKDATED).unwrap_or(now),
            until: now.checked_add(length).unwrap_or(Timestamp::MAX),
        }
    }

    /// Whether a third of it, or less, is left.
    pub fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due_at()
    }

    /// When a third of it is left.
    pub fn due_at(&self) -> Timestamp {
        let length = self.until.duration_since(self.from);
        self.until.checked_sub(length / 3).unwrap_or(self.until)
    }

    /// Whether only half of the time is left in which it should have been renewed.
    pub fn ends_soon(&self, now: Timestamp) -> bool {
        now >= self.soon_at()
    }

    /// When that is so: a sixth of its life is left.
    pub fn soon_at(&self) -> Timestamp {
        let length = self.until.duration_since(self.from);
        self.until.checked_sub(length / 6).unwrap_or(self.until)
    }

    /// As much of it as another one allows.
    fn within(self, other: Self) -> Self {
        Self {
            until: self.until.min(other.until),
            ..self
        }
    }
}

/// The certificates of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberPki {
    /// Its own.
    pub certificate: Option<Leaf>,
    /// The life of its signer, where key and certificate belong together and the
    /// root has signed it.
    pub signer: Option<Life>,
    /// When they, or the trust bundle, were put into their Secret, by the API server's clock: it is also
    /// the one that says how old a pod is. Never by the operator's, which would
    /// restart members again and again where it is ahead, and never where it is behind.
    pub written_at: Option<Timestamp>,
    /// Whether the trust bundle beside them is that of the root.
    pub bundle_is_current: bool,
    /// Where they come from an issuer that is not our own: what they were.
    pub held: Held,
}

impl MemberPki {
    /// Whether all is there that a pod mounts.
    pub fn is_whole(&self) -> bool {
        self.certificate.is_some() && self.signer.is_some()
    }
}

/// A member's own certificate, where its key belongs to it and the root has
/// signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its life.
    pub life: Life,
    /// Host names and addresses in it.
    pub names: BTreeSet<String>,
    /// The URI in it.
    pub uri: Option<String>,
}

/// What a member is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The member.
    pub member: String,
    /// Host names and addresses of its certificate.
    pub names: Vec<String>,
    /// Trust domain in its certificate.
    pub trust_domain: String,
    /// Life of the certificate, where it gets another one.
    pub certificate: Option<Life>,
    /// Life of the signer, where that is issued or renewed.
    pub signer: Option<Life>,
}

/// What is to be issued to the members that are wanted, and to those that have yet
/// to leave: their pods get new configurations as well, and Ziti ends at its start
/// where a certificate lacks the name that it advertises.
pub fn due(facts: &Facts, root: Life) -> Vec<Issue> {
    holders(facts)
        .filter_map(|(ordinal, member)| issue(facts, root, ordinal, member))
        .collect()
}

/// The members that have certificates: ordinals and names.
pub(super) fn holders(facts: &Facts) -> impl Iterator<Item = (i32, String)> {
    let name = facts.object.metadata.name.as_deref().unwrap_or_default();
    let told = facts.stateful_set.as_ref().map_or(0, replicas);
    let ordinals = 0..wished(facts).max(told);
    ordinals.map(|ordinal| (ordinal, names::controller_member(name, ordinal)))
}

fn issue(facts: &Facts, root: Life, ordinal: i32, member: String) -> Option<Issue> {
    let (object, now) = (facts.object, facts.now);
    let lives = &object.spec.pki;
    let have = facts.pki.as_ref().and_then(|pki| pki.get(&member));
    let names = names_of(object, ordinal);
    let trust_domain = object.trust_domain();
    let uri = spiffe(&trust_domain, &member);
    let leaf = have.and_then(|have| have.certificate.as_ref());
    let keeps = leaf.is_some_and(|leaf| {
        // One that is as long as the root allows cannot be had longer.
        let longest = leaf.life.until >= root.until;
        (!leaf.life.is_due(now) || (longest && leaf.life.until > now))
            && names.iter().all(|name| leaf.names.contains(name))
            && leaf.uri.as_ref() == Some(&uri)
    });
    let signer = have.and_then(|have| have.signer);
    let keeps_signer = signer
        .is_some_and(|life| !life.is_due(now) || (life.until >= root.until && life.until > now));
    let bundle = have.is_some_and(|have| have.bundle_is_current);
    let certificate = (!keeps).then(|| Life::of_days(lives.certificate_days, now).within(root));
    let signer = (!keeps_signer).then(|| Life::of_days(lives.signer_days, now).within(root));
    let due = certificate.is_some() || signer.is_some() || !bundle;
    due.then_some(Issue {
        member,
        names,
        trust_domain,
        certificate,
        signer,
    })
}

/// The URI by which Ziti tells who a controller is.
pub fn spiffe(trust_domain: &str, member: &str) -> String {
    format!("spiffe://{trust_domain}/controller/{member}")
}
