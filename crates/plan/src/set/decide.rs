//! The decision for a set, step by step in the order of building: Service,
//! address, configuration, token, workload.

use super::applied::is_applied;
use super::member::{Member, current_replicas, members, stateful_set_is_observed, wished};
use super::ownership::{Owners, object_is_old, owners};
use super::validate::duplicated;
use super::{
    Facts, Plan, Step, TokenValue, TokenWrite, TokensSecret, extra, render, rollout, service,
    status, teardown, tunnel, validate, workload,
};
use crate::edge_router::Problem;
use api::{EdgeRouter, names, reasons};
use std::collections::BTreeSet;

/// Decide what to do for a `ZitiRouter`, and what to say of it.
pub fn plan(facts: &Facts) -> Plan {
    let members = members(facts);
    if object_is_old(facts) {
        return status::unchanged(facts);
    }
    let owners = owners(facts);
    if owners == Owners::Another {
        return teardown::wait_for_predecessor(facts, &members);
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
    let config_map = configuration(facts, &mut steps);
    provided_copy(facts, &mut steps);
    edge_routers(facts, &members, &withheld, &mut steps);
    reports(facts, &members, &mut steps);
    tokens(facts, &members, &withheld, &mut steps);
    workload(facts, &members, &withheld, &config_map, &mut steps);
    removals(facts, &members, &mut steps);
    extra::plan(facts, &mut steps);
    let mut plan = status::running(facts, &members, &withheld, steps);
    if !facts.waiting_tokens.is_empty() {
        // Nothing tells when a pod has had its time to redeem one.
        plan.requeue.get_or_insert(rollout::RETRY);
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

fn wanted<'a>(facts: &'a Facts, members: &'a [Member<'a>]) -> impl Iterator<Item = &'a Member<'a>> {
    members
        .iter()
        .filter(|member| member.ordinal < wished(facts))
}

fn services(facts: &Facts, members: &[Member], steps: &mut Vec<Step>) {
    for member in wanted(facts, members) {
        let service = service::service(facts.object, &member.name);
        if !member
            .service
            .is_some_and(|actual| is_applied(&service, actual))
        {
            steps.push(Step::ApplyService(Box::new(service)));
        }
    }
}

/// The configuration, and the old ones that no pod uses any more. Returns its
/// name.
fn configuration(facts: &Facts, steps: &mut Vec<Step>) -> String {
    let config_map = render::config_map(facts.object);
    let name = config_map.metadata.name.clone().unwrap_or_default();
    if !facts
        .config_maps
        .iter()
        .any(|actual| is_applied(&config_map, actual))
    {
        steps.push(Step::ApplyConfigMap(Box::new(config_map)));
    }
    name
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
    for member in wanted(facts, members) {
        let token_given = match &facts.provided {
            None => true,
            Some(provided) => provided
                .as_ref()
                .is_ok_and(|tokens| tokens.contains_key(&member.name)),
        };
        let wanted = render::edge_router(facts, &member.name);
        match member.edge_router {
            // Creating it mints its token, so it waits for the address that
            // goes into the certificate.
            None if member.service.is_some() && token_given && !withheld.contains(&member.name) => {
                // Born with both: a hold cannot be put on an object that is
                // already being deleted.
                let mut wanted = wanted;
                wanted.metadata.finalizers = Some(holds());
                steps.push(Step::ApplyEdgeRouter(Box::new(wanted)));
            }
            None => {}
            Some(actual) if member.is_leaving() => {
                let ends = member.pod.is_none() || member.is_terminating();
                let current = member.ordinal < current_replicas(facts);
                // Deleted by a person while it is wanted: its pod was taken
                // down for that (see `rollout`), and the next one is made at
                // once. The network deletes no router that is online.
                if member.is_stopped(facts) || (current && ends) {
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

fn reports(facts: &Facts, members: &[Member], steps: &mut Vec<Step>) {
    for member in members {
        let (Some(er), Some(report)) = (member.edge_router, member.news(facts)) else {
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
    let live = |member: &&Member| {
        member.ordinal < wished(facts).max(current_replicas(facts)) || member.pod.is_some()
    };
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

fn workload(
    facts: &Facts,
    members: &[Member],
    withheld: &BTreeSet<String>,
    config_map: &str,
    steps: &mut Vec<Step>,
) {
    let replicas = next_replicas(facts, members, withheld);
    let set = workload::stateful_set(facts, config_map, replicas);
    match &facts.stateful_set {
        // Nobody to run yet: no StatefulSet yet.
        None if replicas == 0 && wished(facts) > 0 => {}
        Some(actual) if actual.metadata.deletion_timestamp.is_some() => {}
        Some(actual) if is_applied(&set, actual) => {
            let pods = rollout::stuck(facts, members, withheld);
            if pods.is_empty() && stateful_set_is_observed(facts) {
                steps.extend(rollout::next(facts, members));
            }
            steps.extend(pods);
        }
        actual => steps.push(Step::ApplyStatefulSet(Box::new(workload::bound(
            set,
            facts.object,
            actual.as_ref(),
        )))),
    }
}

/// How many pods the StatefulSet may run. It grows by members that may start,
/// and shrinks only because the wish shrank: a member that lost its identity
/// must not take the later ones down with it.
fn next_replicas(facts: &Facts, members: &[Member], withheld: &BTreeSet<String>) -> i32 {
    let (wished, current) = (wished(facts), current_replicas(facts));
    if wished <= current {
        return wished;
    }
    let startable = members
        .iter()
        .filter(|member| member.ordinal >= current && member.ordinal < wished)
        .take_while(|member| member.may_start() && !withheld.contains(&member.name))
        .count();
    let startable = current + i32::try_from(startable).unwrap_or(0);
    if facts.stateful_set.is_some() {
        return startable;
    }
    // Pods whose StatefulSet was taken away from above them: the new one adopts
    // them, and must not begin by deleting some.
    let running = members
        .iter()
        .filter(|member| {
            member.pod.is_some() && !member.is_terminating() && member.ordinal < wished
        })
        .map(|member| member.ordinal + 1)
        .max();
    startable.max(running.unwrap_or(0))
}

fn removals(facts: &Facts, members: &[Member], steps: &mut Vec<Step>) {
    let wished = wished(facts);
    for member in members.iter().filter(|member| member.ordinal >= wished) {
        teardown::scaled_away(facts, member, steps);
    }
    let current = render::config_map(facts.object).metadata.name;
    let used = |name: &Option<String>| {
        facts.pods.iter().any(|pod| {
            let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
            volumes
                .into_iter()
                .flatten()
                .any(|volume| volume.config_map.as_ref().map(|map| &map.name) == name.as_ref())
        })
    };
    let rolled =
        facts.stateful_set.is_some() && stateful_set_is_observed(facts) && steps.is_empty();
    for map in facts
        .config_maps
        .iter()
        .filter(|map| rolled && map.metadata.name != current && !used(&map.metadata.name))
    {
        steps.push(Step::DeleteConfigMap {
            name: map.metadata.name.clone().unwrap_or_default(),
        });
    }
}
