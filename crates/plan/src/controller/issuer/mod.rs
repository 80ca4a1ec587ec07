//! Members' certificates from cert-manager, where `spec.pki.issuerRef` names an
//! issuer.
//!
//! [`object`] writes the Certificates; cert-manager issues and renews them into
//! Secrets of their names. What stands there is looked at as what we sign
//! ourselves is, and copied into the one Secret that pods mount: so pods are the
//! same in both ways, restart in the same order, and never see a certificate
//! that Ziti would not start with. [`trouble`] puts into words what is amiss.
//!
//! What hangs on our own root elsewhere has its place here too: the Secret of the
//! root holds the authorities that the network is trusted by (and no key), that a
//! network was made, and its trust domain.
//!
//! **Trust is never cut.** An authority goes into the bundle before anything that
//! it signed is used, and stays there until it ends. One of another key than
//! before is news to whoever enrolled earlier: routers keep the authorities that
//! they were given. So what it signed is used only once every member trusts it, and
//! what there was is about to end.

mod object;
mod trouble;

pub(super) use object::wanted;
pub(super) use trouble::trouble;

use super::config::names_of;
use super::member::{Member, members};
use super::pki::{Leaf, Life, MemberPki, holders, spiffe};
use super::{Facts, Root, RootFacts, Step};
use crate::set::extra::{self, CERTIFICATE, Kind};
use crate::set::member::replicas;
use api::names;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;
use kube::core::DynamicObject;
use std::collections::{BTreeMap, BTreeSet};

/// How long after it was issued, or asked for in vain, a certificate is not asked for
/// anew, although the authority that signed it ends before it does.
const PATIENCE: SignedDuration = SignedDuration::from_hours(24);

/// What there is of cert-manager's work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Issuer {
    /// Whether the cluster has its kinds.
    pub installed: bool,
    /// What stands in the Secrets of our Certificates, by name.
    pub offers: BTreeMap<String, Offer>,
    /// The authorities in the Secret of the root, in their order.
    pub trusted: Vec<Authority>,
}

/// What one Secret of cert-manager's holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Key, certificate and authority belong together.
    Sound(Box<Offered>),
    /// They do not: why, as the end of a sentence about the Certificate.
    Unusable(String),
}

/// A certificate that was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// What it is, and who signed it.
    pub print: Print,
    /// Its own life.
    pub own: Life,
    /// The life of the whole chain up to the authority.
    pub life: Life,
    /// Host names and addresses in it.
    pub names: BTreeSet<String>,
    /// The URI in it.
    pub uri: Option<String>,
    /// Whether it may sign others.
    pub signs: bool,
    /// The authority to which it leads.
    pub authority: Authority,
}

/// One certificate among others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Print {
    /// A digest of certificate and key.
    pub digest: String,
    /// Identifier of the key of the authority to which it leads.
    pub authority: String,
}

/// An authority that can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Its certificate, PEM.
    pub pem: String,
    /// Identifier of its key.
    pub key: String,
    /// Its life.
    pub life: Life,
}

/// What a member was given of an issuer's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Its certificate.
    pub certificate: Option<Print>,
    /// Its signer.
    pub signer: Option<Print>,
}

/// What a member is to be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adoption {
    /// The member.
    pub member: String,
    /// Whether its certificate is taken.
    pub certificate: bool,
    /// Whether its signer is taken.
    pub signer: bool,
}

/// Both kinds of certificates that a member has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Certificate,
    Signer,
}

const ROLES: [Role; 2] = [Role::Certificate, Role::Signer];

impl Role {
    /// The name of its Certificate, and of its Secret.
    fn name(self, member: &str) -> String {
        match self {
            Self::Certificate => names::member_certificate(member),
            Self::Signer => names::member_signer(member),
        }
    }
}

/// One certificate of one member, and all that is known of it.
struct Place<'a> {
    facts: &'a Facts<'a>,
    ordinal: i32,
    member: String,
    role: Role,
    pki: Option<&'a MemberPki>,
    offer: Option<&'a Offer>,
}

impl<'a> Place<'a> {
    fn name(&self) -> String {
        self.role.name(&self.member)
    }

    fn object(&self) -> Option<&'a DynamicObject> {
        let name = self.name();
        let mut extras = self.facts.extras.iter();
        extras.find(|extra| Kind::of(extra) == Some(CERTIFICATE) && extra.name_any() == name)
    }

    /// What Ziti would miss in a certificate of these names, as the end of a
    /// sentence.
    fn lacks(&self, names: &BTreeSet<String>, uri: Option<&String>) -> Option<String> {
        let object = self.facts.object;
        let name = names_of(object, self.ordinal)
            .into_iter()
            .find(|name| !names.contains(name));
        let wanted = spiffe(&object.trust_domain(), &self.member);
        match name {
            Some(name) => Some(format!("lacks the name {name}")),
            None if uri != Some(&wanted) => Some(format!("lacks the URI {wanted}")),
            None => None,
        }
    }

    /// Why what was issued cannot be used, if it cannot.
    fn fault(&self, offered: &Offered) -> Option<String> {
        let life = offered.life;
        if life.until <= self.facts.now {
            return Some(format!("ended at {}, or its authority did", life.until));
        }
        match self.role {
            Role::Certificate => self.lacks(&offered.names, offered.uri.as_ref()),
            Role::Signer if !offered.signs => {
                Some("may not sign others: the issuer gives no CA certificates".to_owned())
            }
            Role::Signer => None,
        }
    }

    /// What was issued, where it can be used.
    fn usable(&self) -> Option<&'a Offered> {
        match self.offer? {
            Offer::Sound(offered) => Some(offered.as_ref()).filter(|one| self.fault(one).is_none()),
            Offer::Unusable(_) => None,
        }
    }

    /// What the member has, where it is sound, and how long.
    fn kept(&self) -> Option<(&'a Print, Life)> {
        let pki = self.pki?;
        match self.role {
            Role::Certificate => {
                let leaf = pki.certificate.as_ref()?;
                Some((pki.held.certificate.as_ref()?, leaf.life))
            }
            Role::Signer => Some((pki.held.signer.as_ref()?, pki.signer?)),
        }
    }

    /// Whether the member can go on with what it has.
    fn goes_on(&self) -> bool {
        let kept = self.kept();
        !self.is_renamed() && kept.is_some_and(|(_, life)| !life.ends_soon(self.facts.now))
    }

    /// Whether what the member has is sound, and lacks what it is to be reached by now.
    fn is_renamed(&self) -> bool {
        let leaf = self.pki.and_then(|pki| pki.certificate.as_ref());
        let lacks = |leaf: &Leaf| self.lacks(&leaf.names, leaf.uri.as_ref()).is_some();
        self.role == Role::Certificate && self.kept().is_some() && leaf.is_some_and(lacks)
    }

    /// Whether what was issued is to be taken now.
    fn is_due(&self, trust: &Trust) -> bool {
        let Some(offered) = self.usable() else {
            return false;
        };
        let is_used = trust.used.contains(&offered.print.authority);
        let everybody_trusts = trust.everybody || is_used;
        match self.kept() {
            None => trust.others || is_used,
            Some((print, _)) if *print == offered.print => false,
            Some((print, _)) if print.authority == offered.print.authority => true,
            Some((_, life)) => {
                (everybody_trusts && !self.goes_on()) || life.until <= self.facts.now
            }
        }
    }

    /// Whether it must be asked for anew: cert-manager goes by the life of a
    /// certificate, and not by that of the authority that has signed it.
    fn is_outlived(&self) -> bool {
        let now = self.facts.now;
        let Some(Offer::Sound(offered)) = self.offer else {
            return false;
        };
        let idle = self.object().is_some_and(|object| {
            let issuing = trouble::condition(object, "Issuing");
            trouble::is_up_to_date(object)
                && issuing.is_none_or(|condition| condition.status != "True")
        });
        let tried = self.object().and_then(trouble::tried_at);
        let since = offered.own.from.max(tried.unwrap_or(offered.own.from));
        let asked = now.duration_since(since) < PATIENCE;
        idle && !asked && offered.life.is_due(now) && !offered.own.is_due(now)
    }
}

/// Every certificate of every member.
fn places<'a>(facts: &'a Facts, issuer: &'a Issuer) -> Vec<Place<'a>> {
    let of = |(ordinal, member): (i32, String)| {
        ROLES.map(|role| Place {
            facts,
            ordinal,
            role,
            pki: facts.pki.as_ref().and_then(|pki| pki.get(&member)),
            offer: issuer.offers.get(&role.name(&member)),
            member: member.clone(),
        })
    };
    holders(facts).flat_map(of).collect()
}

/// What is to be done about certificates; the authorities, where every member has
/// what it needs.
pub(super) fn certificates<'a>(
    facts: &'a Facts,
    issuer: &'a Issuer,
    steps: &mut Vec<Step>,
) -> Option<&'a RootFacts> {
    if issuer.installed {
        let wanted = wanted(facts);
        let amiss = extra::amiss(&wanted, &facts.extras);
        steps.extend(amiss.map(|(kind, object)| Step::ApplyExtra(kind, Box::new(object.clone()))));
    }
    let places = places(facts, issuer);
    let bundle = bundle(facts, issuer, &places);
    let root = match &facts.root {
        Root::Sound(root) if root.bundle == bundle && root.trust_domain.is_some() => root,
        Root::Absent if bundle.is_empty() => return None,
        Root::Sound(_) | Root::Absent => {
            steps.push(Step::KeepTrust {
                trust_domain: facts.object.trust_domain(),
                bundle,
            });
            return None;
        }
        Root::Unusable(_) => return None,
    };
    let trust = Trust::of(facts, &places);
    let given = adoptions(facts, &trust, &places);
    let current = |pki: &BTreeMap<String, MemberPki>| {
        let mut all = pki.values();
        all.all(|member| member.bundle_is_current)
    };
    if !given.is_empty() || !facts.pki.as_ref().is_none_or(current) {
        steps.push(Step::Adopt(given));
    }
    let outlived = places.iter().filter(|place| place.is_outlived());
    let outlived: Vec<String> = outlived.map(Place::name).collect();
    if !outlived.is_empty() {
        steps.push(Step::Reissue(outlived));
    }
    // Where there is a workload it goes on, whatever is still to be issued: its pods
    // may have to read what the network is trusted by first.
    let able = |place: &Place| place.kept().is_some() || place.is_due(&trust);
    (facts.stateful_set.is_some() || places.iter().all(able)).then_some(root)
}

/// Whether a pod of that member would start: it has what an issuer gives, if one does.
pub(super) fn can_start(facts: &Facts, member: &str) -> bool {
    facts.issuer.as_ref().is_none_or(|issuer| {
        let places = places(facts, issuer);
        let mut own = places.iter().filter(|place| place.member == member);
        own.all(|place| place.kept().is_some())
    })
}

/// Whether all that are there would start with a new configuration as well: Ziti ends
/// at its start where a certificate lacks a name that it advertises.
pub(super) fn bears_change(facts: &Facts) -> bool {
    let told = facts.stateful_set.as_ref().map_or(0, replicas);
    facts.issuer.as_ref().is_none_or(|issuer| {
        let places = places(facts, issuer);
        let mut there = places.iter().filter(|place| place.ordinal < told);
        there.all(|place| place.kept().is_some() && !place.is_renamed())
    })
}

/// The authorities that are to be trusted: those of what can be used, then those
/// that were trusted before, until they end.
fn bundle(facts: &Facts, issuer: &Issuer, places: &[Place]) -> String {
    let mut all: Vec<&Authority> = Vec::new();
    let offered = places.iter().filter_map(Place::usable);
    let offered = offered.map(|offered| &offered.authority);
    let news = offered.filter(|one| !issuer.trusted.iter().any(|have| have.pem == one.pem));
    for authority in news.chain(&issuer.trusted) {
        if authority.life.until > facts.now && !all.iter().any(|have| have.pem == authority.pem) {
            all.push(authority);
        }
    }
    if all.is_empty() {
        // Better those that have ended than none.
        all.extend(&issuer.trusted);
    }
    all.iter().map(|one| one.pem.as_str()).collect()
}

/// What members trust.
struct Trust {
    /// Whether every pod has read the bundle that there is.
    everybody: bool,
    /// Whether every pod has, but for those of members that have nothing sound: those
    /// read it together with what they are given.
    others: bool,
    /// Keys of authorities that members' certificates are of, so that all trust them.
    used: BTreeSet<String>,
}

impl Trust {
    fn of(facts: &Facts, places: &[Place]) -> Self {
        let current = |pki: Option<&MemberPki>| pki.is_none_or(|pki| pki.bundle_is_current);
        let used = places.iter().filter_map(Place::kept);
        let members = members(facts);
        let has_read = |member: &Member| {
            member.pod.is_none() || current(member.pki) && member.outdated().is_none()
        };
        let lacks = |member: &Member| {
            let mut places = places.iter();
            places.any(|place| place.member == member.name && place.kept().is_none())
        };
        Self {
            everybody: members.iter().all(has_read),
            others: members.iter().all(|one| has_read(one) || lacks(one)),
            used: used.map(|(print, _)| print.authority.clone()).collect(),
        }
    }
}

fn adoptions(facts: &Facts, trust: &Trust, places: &[Place]) -> Vec<Adoption> {
    // Where names change, all are given at once, and the configuration follows: until
    // then a pod that starts must find the names that it knows.
    let told = facts.stateful_set.as_ref().map_or(0, replicas);
    let mut renamed = places.iter().filter(|place| place.is_renamed());
    let at_once = renamed.all(|place| place.is_due(trust) || place.ordinal >= told);
    let presses = |place: &Place| {
        let kept = place.kept();
        kept.is_some_and(|(_, life)| life.ends_soon(facts.now))
    };
    let due =
        |place: &Place| place.is_due(trust) && (at_once || !place.is_renamed() || presses(place));
    let both = places.chunks(ROLES.len());
    both.filter_map(|both| {
        let [certificate, signer] = both else {
            return None;
        };
        let adoption = Adoption {
            member: certificate.member.clone(),
            certificate: due(certificate),
            signer: due(signer),
        };
        (adoption.certificate || adoption.signer).then_some(adoption)
    })
    .collect()
}
