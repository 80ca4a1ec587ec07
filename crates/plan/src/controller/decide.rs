//! The table of contents: what is done for a ZitiController, in which order.

use super::cluster::{self, is_made};
use super::member::{Member, members};
use super::render::{self, name_of};
use super::workload;
use super::{
    Admin, Bootstrap, Facts, Plan, Root, RootFacts, Step, backup, issuer, network, pki, restore,
    status, teardown, validate,
};
use crate::set::applied::is_applied;
use crate::set::extra;
use crate::set::member::is_observed;
use api::router::RetentionPolicy;
use api::{names, reasons};
use kube::ResourceExt;

/// Decide for a ZitiController.
pub fn plan(facts: &Facts) -> Plan {
    let object = facts.object;
    let members = members(facts);
    if object.spec.paused {
        return status::paused(facts, &members, withdraw(facts));
    }
    if object.metadata.deletion_timestamp.is_some() {
        return teardown::plan(facts);
    }
    if !object
        .finalizers()
        .iter()
        .any(|held| held == names::FINALIZER_CONTROLLER)
    {
        return status::running(facts, &members, vec![Step::AddFinalizer]);
    }
    if let Some(problem) = validate::fault(facts) {
        // What runs must not run out meanwhile.
        let mut steps: Vec<Step> = withdraw(facts).into_iter().collect();
        if matches!(facts.root, Root::Sound(_)) && problem.reason != reasons::ROOT_UNUSABLE {
            certificates(facts, &mut steps);
        }
        return status::refused(facts, &members, &problem, steps);
    }
    let steps = steps(facts, &members);
    status::running(facts, &members, steps)
}

fn steps(facts: &Facts, members: &[Member]) -> Vec<Step> {
    if let Some(fetch) = restore::steps(facts) {
        return fetch;
    }
    let mut steps = of_the_network(facts, members);
    // Last, and in nobody's way: what Kubernetes refuses of them must not stop the
    // network.
    if let Root::Sound(root) = &facts.root {
        backup::steps(facts, root, &mut steps);
    }
    steps
}

fn of_the_network(facts: &Facts, members: &[Member]) -> Vec<Step> {
    let mut steps: Vec<Step> = withdraw(facts).into_iter().collect();
    // Before all else, so that no other fault stops their renewal.
    let Some(root) = certificates(facts, &mut steps) else {
        return steps;
    };
    services(facts, &mut steps);
    trust(facts, root, &mut steps);
    if let Admin::Absent = facts.admin
        && facts.object.spec.admin_secret_ref.is_none()
        && !is_made(facts)
    {
        steps.push(Step::MakeAdmin);
        return steps;
    }
    bootstrap(facts, &mut steps);
    let map = render::config_map(facts.object);
    if !facts
        .config_maps
        .iter()
        .any(|actual| is_applied(&map, actual))
    {
        steps.push(Step::ApplyConfigMap(Box::new(map.clone())));
    }
    extras(facts, &mut steps);
    the_workload(facts, members, &map.name_any(), &mut steps);
    if !steps.is_empty() {
        return steps;
    }
    steps.extend(cluster::membership(facts, members));
    if !steps.is_empty() {
        return steps;
    }
    steps.extend(network::steps(facts));
    if !steps.is_empty() {
        return steps;
    }
    steps.extend(cluster::restart(facts, members));
    // A configuration that waits is not the one that pods mount.
    if steps.is_empty() && issuer::bears_change(facts) {
        remove(facts, members, &map.name_any(), &mut steps);
    }
    steps
}

fn services(facts: &Facts, steps: &mut Vec<Step>) {
    for wanted in render::services(facts.object) {
        if !facts
            .services
            .iter()
            .any(|actual| is_applied(&wanted, actual))
        {
            steps.push(Step::ApplyService(Box::new(wanted)));
        }
    }
}

/// The root and what it has signed; `None` while there is none.
fn certificates<'a>(facts: &'a Facts, steps: &mut Vec<Step>) -> Option<&'a RootFacts> {
    if let Some(issuer) = &facts.issuer {
        return issuer::certificates(facts, issuer, steps);
    }
    let days = facts.object.spec.pki.root_days;
    let root = match &facts.root {
        Root::Sound(root) => root,
        Root::Absent => {
            steps.push(Step::MakeRoot {
                trust_domain: facts.object.trust_domain(),
                life: pki::Life::of_days(days, facts.now),
            });
            return None;
        }
        Root::Unusable(_) => return None,
    };
    if root.life.is_due(facts.now) {
        steps.push(Step::RenewRoot {
            life: pki::Life::of_days(days, facts.now),
        });
        return None;
    }
    let due = pki::due(facts, root.life);
    if !due.is_empty() {
        steps.push(Step::Issue(due));
    }
    Some(root)
}

fn trust(facts: &Facts, root: &RootFacts, steps: &mut Vec<Step>) {
    let wanted = render::trust(facts, root);
    if !facts
        .config_maps
        .iter()
        .any(|actual| is_applied(&wanted, actual))
    {
        steps.push(Step::ApplyConfigMap(Box::new(wanted)));
    }
}

/// As soon as the network is there, nobody may make one: this is done first, whatever
/// else is amiss, and also while the object is paused. Only then is it recorded that
/// the network was made, so what is recorded is never made a second time.
fn withdraw(facts: &Facts) -> Option<Step> {
    let told = facts.bootstrap.as_ref()?;
    (is_made(facts) && *told != Bootstrap::default()).then_some(Step::WriteBootstrap {
        initialize: None,
        restore: None,
    })
}

/// The network is made by the first member, and by nobody else; that it is made is
/// kept with the root.
fn bootstrap(facts: &Facts, steps: &mut Vec<Step>) {
    let restore = restore::ordered(facts);
    if is_made(facts) {
        if let Root::Sound(root) = &facts.root {
            let left = steps.len();
            restore::left_over(facts, steps);
            if (!root.made || restore.is_some()) && steps.len() == left {
                steps.push(Step::MarkMade);
            }
        }
        return;
    }
    let Admin::Ready { digest } = &facts.admin else {
        return;
    };
    let wanted = Bootstrap {
        initialize: Some(names::controller_member(name_of(facts.object), 0)),
        restore,
        admin: Some(digest.clone()),
    };
    if facts.bootstrap.as_ref() != Some(&wanted) {
        steps.push(Step::WriteBootstrap {
            initialize: wanted.initialize,
            restore: wanted.restore,
        });
    }
}

fn extras(facts: &Facts, steps: &mut Vec<Step>) {
    let wanted = render::extras(facts.object);
    let amiss = extra::amiss(&wanted, &facts.extras);
    steps.extend(amiss.map(|(kind, object)| Step::ApplyExtra(kind, Box::new(object.clone()))));
}

fn the_workload(facts: &Facts, members: &[Member], map: &str, steps: &mut Vec<Step>) {
    // Certificates and configuration first: pods mount them.
    if !steps.is_empty() || !issuer::bears_change(facts) {
        return;
    }
    let wanted = workload::stateful_set(facts, map, cluster::pods(facts, members));
    let actual = facts.stateful_set.as_ref();
    let ends = actual.is_some_and(|actual| actual.metadata.deletion_timestamp.is_some());
    if !ends && !actual.is_some_and(|actual| is_applied(&wanted, actual)) {
        steps.push(Step::ApplyStatefulSet(Box::new(wanted)));
    }
}

/// What nobody needs any more: of members that have gone, of configurations that
/// no pod mounts.
fn remove(facts: &Facts, members: &[Member], map: &str, steps: &mut Vec<Step>) {
    if !facts.stateful_set.as_ref().is_some_and(is_observed) || cluster::led(facts).is_none() {
        return;
    }
    let gone = |member: &&Member| !member.wanted && member.peer.is_none() && member.pod.is_none();
    for member in members.iter().filter(gone) {
        // Its database is that of a member that was removed: one of that name
        // that comes later must begin anew.
        if let Some(claim) = member.claim
            && claim.metadata.deletion_timestamp.is_none()
        {
            steps.push(Step::DeleteClaim {
                name: claim.name_any(),
                uid: claim.uid().unwrap_or_default(),
            });
        }
    }
    let pki = facts.pki.iter().flat_map(|pki| pki.keys());
    let wanted = |name: &str| {
        members
            .iter()
            .any(|member| member.name == name && !gone(&member))
    };
    let forgotten: Vec<String> = pki.filter(|name| !wanted(name)).cloned().collect();
    if !forgotten.is_empty() {
        steps.push(Step::ForgetMembers(forgotten));
    }
    let services = render::services(facts.object);
    for service in &facts.services {
        let is_wanted = services
            .iter()
            .any(|one| one.metadata.name == service.metadata.name);
        let of_member = members.iter().any(|member| {
            !gone(&member) && !member.wanted && service.name_any().starts_with(&member.name)
        });
        let going = service.metadata.deletion_timestamp.is_some();
        if !is_wanted && !of_member && !going && crate::set::applied::is_stamped(&service.metadata)
        {
            steps.push(Step::DeleteService {
                name: service.name_any(),
            });
        }
    }
    let extras = [render::extras(facts.object), issuer::wanted(facts)].concat();
    let surplus = extra::surplus(facts.extras.iter(), &extras);
    steps.extend(surplus.map(|(kind, name)| Step::DeleteExtra { kind, name }));
    let outdated = members.iter().any(|member| member.outdated().is_some());
    let prefix = render::config_prefix(facts.object);
    for old in facts.config_maps.iter().filter(|_| !outdated) {
        let name = old.name_any();
        if name.starts_with(&prefix) && name != map {
            steps.push(Step::DeleteConfigMap { name });
        }
    }
}

/// What a user is told is kept, so that the words are those of the spec.
pub(super) fn keeps_everything(facts: &Facts) -> bool {
    facts.object.spec.storage.when_deleted == RetentionPolicy::Retain
}
