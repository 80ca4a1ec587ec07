//! Objects of a set beside its workload, Services and configuration: of kinds
//! that only some sets have. They are handled alike, by kind and name: applied
//! where they are missing or differ, deleted where they are wanted no more, and
//! with the ZitiRouter by the garbage collector.
//!
//! Who adds a kind puts it into [`KINDS`], renders it in a module of its own and
//! adds it to [`wanted`]; the operator's watches, reads and rights follow the
//! list (a test of the chart holds the rights to it).

use super::applied::{is_applied, is_stamped, stamp};
use super::member::Member;
use super::{Facts, Step, disruption, network_policy, route};
use api::names;
use kube::ResourceExt;
use kube::core::{ApiResource, DynamicObject};
use serde::Serialize;

/// A kind of which a set may have objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural, as in paths and in RBAC.
    pub plural: &'static str,
    /// Whether a cluster may lack it: no cluster has it by itself. Where it is
    /// lacking, no set has objects of it.
    pub optional: bool,
}

/// Every such kind.
pub const KINDS: &[Kind] = &[
    Kind {
        group: "policy",
        version: "v1",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        optional: false,
    },
    Kind {
        group: "networking.k8s.io",
        version: "v1",
        kind: "Ingress",
        plural: "ingresses",
        optional: false,
    },
    Kind {
        group: "networking.k8s.io",
        version: "v1",
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        optional: false,
    },
    Kind {
        group: "gateway.networking.k8s.io",
        version: "v1alpha2",
        kind: "TLSRoute",
        plural: "tlsroutes",
        optional: true,
    },
];

/// cert-manager's kind, of which only a `ZitiController` with an issuer has
/// objects: sets have none, and are not read for it.
pub const CERTIFICATE: Kind = Kind {
    group: "cert-manager.io",
    version: "v1",
    kind: "Certificate",
    plural: "certificates",
    optional: true,
};

impl Kind {
    /// For a client of objects of any kind.
    pub fn resource(&self) -> ApiResource {
        let gvk = kube::core::GroupVersionKind::gvk(self.group, self.version, self.kind);
        ApiResource::from_gvk_with_plural(&gvk, self.plural)
    }

    /// The kind of an object, if it is one of [`KINDS`] or a [`CERTIFICATE`].
    pub fn of(object: &DynamicObject) -> Option<Self> {
        let types = object.types.as_ref()?;
        let is = |kind: &&Self| {
            kind.kind == types.kind
                && format!("{}/{}", kind.group, kind.version) == types.api_version
        };
        KINDS.iter().chain([&CERTIFICATE]).find(is).copied()
    }
}

/// An object as it should be, made from one of a type that we know.
pub(crate) fn dynamic(object: &impl Serialize) -> Option<DynamicObject> {
    let json = serde_json::to_value(object).ok()?;
    let object: DynamicObject = serde_json::from_value(json).ok()?;
    Some(stamp(&object))
}

/// All that this set should have.
pub(super) fn wanted(facts: &Facts, members: &[Member]) -> Vec<DynamicObject> {
    let budget = disruption::budget(facts.object, members);
    let budget = budget.iter().filter_map(dynamic);
    let policy = network_policy::policy(facts.object);
    let policy = policy.iter().filter_map(dynamic);
    budget.chain(policy).chain(route::routes(facts)).collect()
}

/// Bring them in line; those of members are removed later, see [`remove_routes`].
pub(super) fn plan(facts: &Facts, members: &[Member], steps: &mut Vec<Step>) {
    let wanted = wanted(facts, members);
    let amiss = amiss(&wanted, &facts.extras);
    steps.extend(amiss.map(|(kind, object)| Step::ApplyExtra(kind, Box::new(object.clone()))));
    let of_set = facts.extras.iter().filter(|actual| !of_member(actual));
    remove(of_set, &wanted, steps);
}

/// Those that are not there as they are wanted.
pub(crate) fn amiss<'a>(
    wanted: &'a [DynamicObject],
    actual: &'a [DynamicObject],
) -> impl Iterator<Item = (Kind, &'a DynamicObject)> {
    wanted.iter().filter_map(|object| {
        let mut like = actual.iter().filter(|actual| same(object, actual));
        let applied = like.any(|actual| is_applied(object, actual));
        Kind::of(object)
            .filter(|_| !applied)
            .map(|kind| (kind, object))
    })
}

/// Those that we made and that are wanted no more.
pub(crate) fn surplus<'a>(
    actual: impl Iterator<Item = &'a DynamicObject>,
    wanted: &[DynamicObject],
) -> impl Iterator<Item = (Kind, String)> {
    actual.filter_map(|actual| {
        let going = actual.metadata.deletion_timestamp.is_some();
        let is_wanted = wanted.iter().any(|object| same(object, actual));
        let gone = !going && is_stamped(&actual.metadata) && !is_wanted;
        Kind::of(actual)
            .filter(|_| gone)
            .map(|kind| (kind, actual.name_any()))
    })
}

/// Remove what exposes members no more. Until a change of exposure has been
/// rolled out, they advertise what they had.
pub(super) fn remove_routes(facts: &Facts, members: &[Member], steps: &mut Vec<Step>) {
    let of_members = facts.extras.iter().filter(|actual| of_member(actual));
    remove(of_members, &wanted(facts, members), steps);
}

fn of_member(extra: &DynamicObject) -> bool {
    extra.labels().contains_key(names::LABEL_MEMBER)
}

fn same(one: &DynamicObject, other: &DynamicObject) -> bool {
    Kind::of(one) == Kind::of(other) && one.name_any() == other.name_any()
}

fn remove<'a>(
    extras: impl Iterator<Item = &'a DynamicObject>,
    wanted: &[DynamicObject],
    steps: &mut Vec<Step>,
) {
    let surplus = surplus(extras, wanted);
    steps.extend(surplus.map(|(kind, name)| Step::DeleteExtra { kind, name }));
}
