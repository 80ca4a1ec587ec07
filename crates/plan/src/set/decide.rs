//! The decision for a set, step by step in the order of building: Service,
//! address, configuration, token, workload.

use super::applied::is_applied;
use super::member::{Member, is_observed, members, replicas, shared_workload, wished};
use super::ownership::{Owners, object_is_old, owners};
use super::roster::{next_farewell, seats};
use super::validate::duplicated;
use super::{
    Facts, Plan, Step, TokenValue, TokenWrite, TokensSecret, extra, paused, per_member, placement,
    pod, reach, render, rollout, service, status, teardown, tunnel, validate, workload,
};
use crate::edge_router::Problem;
use api::{EdgeRouter, names, reasons};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use std::cell::OnceCell;
use std::collections::BTreeSet;

/// How many members are registered ahead of their enrollment: the tokens of all
/// of them stand in one Secret, which Kubernetes limits to a mebibyte.
const MOST_ENROLLING: usize = 300;

/// Decide what to do for a `ZitiRouter`, and what to say of it.
pub fn plan(facts: &Facts) -> Plan {
    let seats = seats(facts);
    let members = members(facts, &seats);
    if object_is_old(facts) {
        return status::unchanged(facts);
    }
    let owners = owners(facts);
    if owners == Owners::Another {
        if let Some(problem) = placement::taken(facts) {
            if facts.object.metadata.deletion_timestamp.is_some() {
                return plan(&placement::without_others(facts));
            }
            return status::refused(facts, &members, problem);
        }
        return teardown::wait_for_predecessor(facts, &members);
    }
    if facts.object.spec.paused {
        return paused::plan(facts, &members);
    }
    if facts.object.metadata.deletion_timestamp.is_some() {
        return teardown::plan(facts, &members, owners);
    }
    if let Some(problem) = validate::fault(facts) {
        return status::refused(facts, &members, problem);
    }
    if facts.tokens == TokensSecret::Foreign {
        let name = names::tokens_secret(facts.object.metadata.name.as_deref().unwrap_or_default());
        let message = format!(
            "Secret {name} exists and is not the operator's, so no token is written to it: delete or rename that Secret"
        );
        return status::refused(
            facts,
            &members,
            Problem::new(reasons::SOURCE_INVALID, message),
        );
    }
    let mut steps = Vec::new();
    let finalizers = facts
        .object
        .metadata
        .finalizers
        .as_deref()
        .unwrap_or_default();
    if !finalizers.iter().any(|f| f == names::FINALIZER_ROUTER) {
        steps.push(Step::AddFinalizer);
    }
    let withheld = withheld(facts);
    services(facts, &members, &mut steps);
    tunnel::plan_services(facts, &mut steps);
    let config_map = configuration(facts, &members, &mut steps);
    provided_copy(facts, &mut steps);
    paused::end(facts, &members, &mut steps);
    edge_routers(facts, &members, &withheld, &mut steps);
    reports(&members, &mut steps);
    tokens(facts, &members, &withheld, &mut steps);
    workloads(facts, &members, &withheld, &config_map, &mut steps);
    extra::plan(facts, &members, &mut steps);
    removals(facts, &members, &config_map, &mut steps);
    let mut plan = status::running(facts, &members, &withheld, steps);
    if !facts.waiting_tokens.is_empty() {
        // Nothing tells when a pod has had its time to redeem one.
        plan.requeue.get_or_insert(rollout::RETRY);
    }
    if let Some(after) = next_farewell(facts, &seats) {
        plan.requeue = Some(plan.requeue.map_or(after, |have| have.min(after)));
    }
    plan
}

/// Members whose token another one has as well, by what is given or by what
/// waits: the two are not read at the same moment.
fn withheld(facts: &Facts) -> BTreeSet<String> {
    let given = facts
        .provided
        .as_ref()
        .and_then(|provided| provided.as_ref().ok());
    let mut withheld = given.map(duplicated).unwrap_or_default();
    withheld.extend(duplicated(&facts.waiting_tokens));
    withheld
}

fn wanted<'a>(members: &'a [Member<'a>]) -> impl Iterator<Item = &'a Member<'a>> {
    members.iter().filter(|member| member.wanted)
}

/// The Services of all wanted members.
fn wanted_services(facts: &Facts, members: &[Member]) -> Vec<Service> {
    let of_members = wanted(members).flat_map(|member| {
        let own = service::service(facts.object, &member.name);
        let exposing = service::exposing(facts.object, &member.name, member.ordinal);
        std::iter::once(own).chain(exposing)
    });
    of_members.collect()
}

fn services(facts: &Facts, members: &[Member], steps: &mut Vec<Step>) {
    let of_members = wanted_services(facts, members);
    let actual = |name: &Option<String>| {
        let mut services = facts.services.iter();
        services.find(|service| service.metadata.name == *name)
    };
    for service in &of_members {
        if !actual(&service.metadata.name).is_some_and(|actual| is_applied(service, actual)) {
            steps.push(Step::ApplyService(Box::new(service.clone())));
        }
    }
}

/// The configuration, and the old ones that no pod uses any more.
fn configuration(facts: &Facts, members: &[Member], steps: &mut Vec<Step>) -> ConfigMap {
    let config_map = per_member::config_map(facts, members);
    // It has no file yet where no member's address is known.
    let has_files = config_map
        .data
        .as_ref()
        .is_some_and(|data| !data.is_empty());
    if has_files
        && !facts
            .config_maps
            .iter()
            .any(|actual| is_applied(&config_map, actual))
    {
        steps.push(Step::ApplyConfigMap(Box::new(config_map.clone())));
    }
    config_map
}

fn provided_copy(facts: &Facts, steps: &mut Vec<Step>) {
    if facts.object.spec.tokens.is_none() {
        return;
    }
    if let Some(Ok(provided)) = &facts.provided
        && facts.provided_copy.as_ref() != Some(provided)
    {
        steps.push(Step::CopyProvidedTokens);
    }
}

fn edge_routers(
    facts: &Facts,
    members: &[Member],
    withheld: &BTreeSet<String>,
    steps: &mut Vec<Step>,
) {
    let enrolling = members
        .iter()
        .filter(|member| member.is_enrolling())
        .count();
    let mut room = MOST_ENROLLING.saturating_sub(enrolling);
    for member in wanted(members) {
        let token_given = match &facts.provided {
            None => true,
            Some(provided) => provided
                .as_ref()
                .is_ok_and(|tokens| tokens.contains_key(&member.name)),
        };
        let wanted = render::edge_router(facts, &member.name, member.node.as_deref());
        match member.edge_router {
            // Creating it mints its token, so it waits for the address that
            // goes into the certificate.
            None if member.service.is_some()
                && reach::pending(facts, &member.name, member.ordinal).is_none()
                && token_given
                && !withheld.contains(&member.name) =>
            {
                if room == 0 {
                    continue;
                }
                room -= 1;
                // Born with both: a hold cannot be put on an object that is
                // already being deleted.
                let mut wanted = wanted;
                wanted.metadata.finalizers = Some(holds());
                steps.push(Step::ApplyEdgeRouter(Box::new(wanted)));
            }
            None => {}
            Some(actual) if member.is_leaving() => {
                let ends = member.pod.is_none() || member.is_terminating();
                // Deleted by a person while it is wanted: its pod was taken
                // down for that (see `rollout`), and the next one is made at
                // once. The network deletes no router that is online.
                if member.is_stopped() || (member.told && ends) {
                    teardown::release(actual, steps);
                }
            }
            Some(actual) if in_line(&wanted, actual) => {}
            Some(actual) => {
                let mut wanted = teardown::changed(wanted, actual);
                wanted.metadata.finalizers = Some(holds());
                steps.push(Step::ApplyEdgeRouter(Box::new(wanted)));
            }
        }
    }
}

/// The finalizers of an EdgeRouter that is there to stay.
fn holds() -> Vec<String> {
    [names::FINALIZER_EDGE_ROUTER, names::FINALIZER_IN_USE]
        .map(str::to_owned)
        .to_vec()
}

/// Whether an EdgeRouter says what it should. Its name on the network cannot
/// change, so a pattern that changed later is no difference.
fn in_line(wanted: &EdgeRouter, actual: &EdgeRouter) -> bool {
    let mut wanted_spec = wanted.spec.clone();
    wanted_spec.name.clone_from(&actual.spec.name);
    let owned = actual
        .metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| {
            wanted
                .metadata
                .owner_references
                .iter()
                .flatten()
                .any(|wanted| wanted.uid == owner.uid)
        });
    let finalizers = actual.metadata.finalizers.as_deref().unwrap_or_default();
    let held = holds().iter().all(|hold| finalizers.contains(hold));
    wanted_spec == actual.spec && owned && held
}

fn reports(members: &[Member], steps: &mut Vec<Step>) {
    for member in members {
        let (Some(er), Some(report)) = (member.edge_router, member.news()) else {
            continue;
        };
        if er.status.as_ref().and_then(|status| status.agent.as_ref()) != Some(&report) {
            steps.push(Step::ReportAgent {
                edge_router: member.name.clone(),
                report,
            });
        }
    }
}

fn tokens(facts: &Facts, members: &[Member], withheld: &BTreeSet<String>, steps: &mut Vec<Step>) {
    let empty = std::collections::BTreeMap::new();
    let have = match &facts.tokens {
        TokensSecret::Ours(keys) | TokensSecret::Unowned(keys) => Some(keys),
        TokensSecret::Absent | TokensSecret::Foreign => None,
    };
    let mut write = TokenWrite::default();
    let live = |member: &&Member| member.wanted || member.told || member.pod.is_some();
    for member in members.iter().filter(live) {
        let digest = member
            .waiting_token
            .filter(|_| !withheld.contains(&member.name))
            .map(str::to_owned);
        if have.and_then(|keys| keys.get(&member.name)) != Some(&digest) {
            let value = digest.map_or(TokenValue::Empty, |digest| TokenValue::Waiting { digest });
            write.set.insert(member.name.clone(), value);
        }
    }
    let named: BTreeSet<&str> = members
        .iter()
        .filter(live)
        .map(|member| member.name.as_str())
        .collect();
    write.remove = have
        .unwrap_or(&empty)
        .keys()
        .filter(|key| !named.contains(key.as_str()))
        .cloned()
        .collect();
    let take_back = matches!(facts.tokens, TokensSecret::Unowned(_));
    if have.is_none() || take_back || !write.set.is_empty() || !write.remove.is_empty() {
        steps.push(Step::WriteTokens(write));
    }
}

/// The workloads, and the pods that are to be replaced once all of them are as
/// they should be.
fn workloads(
    facts: &Facts,
    members: &[Member],
    withheld: &BTreeSet<String>,
    config_map: &ConfigMap,
    steps: &mut Vec<Step>,
) {
    let before = steps.len();
    if facts.object.spec.effective_topology().is_per_member() {
        own_workloads(facts, members, withheld, config_map, steps);
    } else {
        the_workload(facts, members, withheld, config_map, steps);
    }
    if steps.len() > before {
        return;
    }
    let pods = rollout::stuck(facts, members, withheld);
    if pods.is_empty() && facts.stateful_sets.iter().all(is_observed) {
        steps.extend(rollout::next(facts, members).or_else(|| rollout::hung(facts, members)));
    }
    steps.extend(pods);
}

fn the_workload(
    facts: &Facts,
    members: &[Member],
    withheld: &BTreeSet<String>,
    config_map: &ConfigMap,
    steps: &mut Vec<Step>,
) {
    let actual = shared_workload(facts);
    let count = next_replicas(facts, members, withheld, config_map);
    let set = match actual {
        Some(actual) if per_member::waits(facts, members, config_map).is_some() => {
            workload::resized(actual, count)
        }
        _ => workload::stateful_set(facts, name_of(config_map), count),
    };
    // Nobody to run yet: no StatefulSet yet.
    let nobody = actual.is_none() && count == 0 && wished(members) > 0;
    if !nobody {
        write_workload(facts, set, actual, steps);
    }
}

/// A workload for each member, which may run it as soon as it may start, and
/// until it is wanted no more.
fn own_workloads(
    facts: &Facts,
    members: &[Member],
    withheld: &BTreeSet<String>,
    config_map: &ConfigMap,
    steps: &mut Vec<Step>,
) {
    let waits = per_member::waits(facts, members, config_map).is_some();
    for member in members {
        let may_start = member.may_start()
            && !withheld.contains(&member.name)
            && per_member::has_entry(config_map, facts, &member.name);
        let runs = member.wanted && (member.told || member.pod.is_some() || may_start);
        let leaves = !member.wanted && member.workload.is_some();
        // One that is wanted again and may not start yet is left as it is.
        if runs || (leaves && member.told) {
            let set = match member.workload {
                Some(actual) if waits => workload::resized(actual, i32::from(runs)),
                _ => workload::of_member(facts, name_of(config_map), member, i32::from(runs)),
            };
            write_workload(facts, set, member.workload, steps);
        }
    }
}

fn name_of(config_map: &ConfigMap) -> &str {
    config_map.metadata.name.as_deref().unwrap_or_default()
}

fn write_workload(
    facts: &Facts,
    wanted: StatefulSet,
    actual: Option<&StatefulSet>,
    steps: &mut Vec<Step>,
) {
    let ends = actual.is_some_and(|actual| actual.metadata.deletion_timestamp.is_some());
    if !ends && !actual.is_some_and(|actual| is_applied(&wanted, actual)) {
        let bound = workload::bound(wanted, facts.object, actual);
        steps.push(Step::ApplyStatefulSet(Box::new(bound)));
    }
}

/// How many pods the StatefulSet of all may run. It grows by members that may
/// start, and shrinks only because the wish shrank: a member that lost its
/// identity must not take the later ones down with it.
fn next_replicas(
    facts: &Facts,
    members: &[Member],
    withheld: &BTreeSet<String>,
    config_map: &ConfigMap,
) -> i32 {
    let actual = shared_workload(facts);
    let current = actual.map_or(0, replicas);
    let wished = i32::try_from(wished(members)).unwrap_or(i32::MAX);
    if wished <= current {
        return wished;
    }
    let startable = members
        .iter()
        .filter(|member| member.ordinal >= current && member.wanted)
        .take_while(|member| member.may_start() && !withheld.contains(&member.name))
        .take_while(|member| per_member::has_entry(config_map, facts, &member.name))
        .count();
    let startable = current + i32::try_from(startable).unwrap_or(0);
    if actual.is_some() {
        return startable;
    }
    // Pods whose StatefulSet was taken away from above them: the new one adopts
    // them, and must not begin by deleting some.
    let running = members
        .iter()
        .filter(|member| member.pod.is_some() && !member.is_terminating() && member.wanted)
        .map(|member| member.ordinal + 1)
        .max();
    startable.max(running.unwrap_or(0))
}

fn removals(facts: &Facts, members: &[Member], config_map: &ConfigMap, steps: &mut Vec<Step>) {
    for member in members.iter().filter(|member| !member.wanted) {
        teardown::scaled_away(facts, member, steps);
    }
    let observed = facts.stateful_sets.iter().all(is_observed);
    if !observed || !steps.is_empty() {
        return;
    }
    let current = &config_map.metadata.name;
    let templates = facts.stateful_sets.iter();
    let pods = facts.pods.iter().filter_map(|pod| pod.spec.as_ref());
    let used: BTreeSet<&str> = templates
        .flat_map(workload::mounted_config_maps)
        .chain(pods.flat_map(pod::mounted_config_maps))
        .collect();
    let prefix = render::config_prefix(facts.object);
    for map in &facts.config_maps {
        let name = map.metadata.name.clone().unwrap_or_default();
        let ours = name.starts_with(&prefix);
        if ours && map.metadata.name != *current && !used.contains(name.as_str()) {
            steps.push(Step::DeleteConfigMap { name });
        }
    }
    let waits = per_member::waits(facts, members, config_map).is_some();
    if !waits && !wanted(members).any(Member::is_outdated) {
        exposures(facts, members, steps);
    }
}

/// What exposed members before a change that has reached all of them.
fn exposures(facts: &Facts, members: &[Member], steps: &mut Vec<Step>) {
    let of_members = OnceCell::new();
    for service in &facts.services {
        let name = &service.metadata.name;
        let is_wanted = || {
            let mut of_members = of_members
                .get_or_init(|| wanted_services(facts, members))
                .iter();
            of_members.any(|one| one.metadata.name == *name)
        };
        let going = service.metadata.deletion_timestamp.is_some();
        if !going && service::is_surplus(service, members) && !is_wanted() {
            steps.push(Step::DeleteService {
                name: name.clone().unwrap_or_default(),
            });
        }
    }
    extra::remove_routes(facts, members, steps);
}
