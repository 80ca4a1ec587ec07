//! The configuration of a set whose members differ: one ConfigMap with two files
//! for each member, the router's configuration and the names of its certificate.
//!
//! The pods mount it whole and read their own by `$(ZITI_MEMBER)`. An entry that a
//! pod may have read is never changed, since a container that restarts by itself
//! must not pick up what was not rolled out to it: then the ConfigMap gets
//! another name, and the members are replaced one by one. Entries of members
//! that come are added, so that growing disturbs nobody.

use super::config::router_config;
use super::member::Member;
use super::reach::{self, Spelling};
use super::render;
use super::workload::mounted_config_maps;
use super::{Facts, applied};
use k8s_openapi::api::core::v1::ConfigMap;
use std::collections::BTreeMap;

/// The key of a member's configuration.
pub(super) fn config_key(member: &str) -> String {
    format!("{member}.yaml")
}

/// The key of the names in a member's certificate.
pub(super) fn names_key(member: &str) -> String {
    format!("{member}.names")
}

/// The ConfigMap of a set, whichever form it has.
pub(super) fn config_map(facts: &Facts, members: &[Member]) -> ConfigMap {
    if !reach::differs_by_member(&facts.object.spec) {
        return render::config_map(facts.object);
    }
    let object = facts.object;
    let current = running_map(facts, members);
    let kept = current.and_then(|map| map.data.as_ref());
    let mut data = BTreeMap::new();
    for (index, member) in reach::wanted_members(facts) {
        match files(facts, &member, index) {
            Some(files) => data.extend(files),
            // An address that went away again is no news.
            None => data.extend(entries(kept, &member)),
        }
    }
    let may_have_read = |member: &&Member| member.pod.is_some() || member.told;
    let is_same = |member: &Member| {
        let (wanted, has) = (
            entries(Some(&data), &member.name),
            entries(kept, &member.name),
        );
        // One that is not wanted any more reads what it read.
        !has.is_empty() && (wanted.is_empty() || wanted == has)
    };
    let fits = members.iter().filter(may_have_read).all(is_same);
    let name = current
        .filter(|_| fits)
        .and_then(|map| map.metadata.name.clone());
    let hashed = || {
        format!(
            "{}{}",
            render::config_prefix(object),
            &applied::hash(&data)[..8]
        )
    };
    let name = name.unwrap_or_else(hashed);
    if fits {
        for member in members.iter().filter(may_have_read) {
            for (key, text) in entries(kept, &member.name) {
                data.entry(key).or_insert(text);
            }
        }
    }
    ConfigMap {
        metadata: render::metadata(object, &name, None),
        data: Some(data),
        ..ConfigMap::default()
    }
}

/// Whether a member's entry is there, so that its pod may start.
pub(super) fn has_entry(config_map: &ConfigMap, facts: &Facts, member: &str) -> bool {
    !reach::differs_by_member(&facts.object.spec)
        || !entries(config_map.data.as_ref(), member).is_empty()
}

/// What a change waits for that members which run are to be brought: the
/// address of one of them. Until then they keep what they run.
pub(super) fn waits(facts: &Facts, members: &[Member], config_map: &ConfigMap) -> Option<String> {
    let runs = |member: &&Member| member.wanted && (member.pod.is_some() || member.told);
    members
        .iter()
        .filter(runs)
        .filter(|member| !has_entry(config_map, facts, &member.name))
        .find_map(|member| {
            let what = reach::pending(facts, &member.name, member.ordinal)?;
            Some(format!("{}: {what}", member.name))
        })
}

/// The ConfigMap that the workload names; the first, where each member has one.
fn running_map<'a>(facts: &'a Facts, members: &[Member]) -> Option<&'a ConfigMap> {
    // One that only leaves is not rewritten any more.
    let runs = |member: &&Member| member.told || member.pod.is_some();
    let workload = members.iter().find(runs)?.workload?;
    let name = mounted_config_maps(workload).next()?;
    facts
        .config_maps
        .iter()
        .find(|map| map.metadata.name.as_deref() == Some(name))
        // The one of a set whose members did not differ takes no entry.
        .filter(|map| map.immutable != Some(true))
}

fn entries(data: Option<&BTreeMap<String, String>>, member: &str) -> BTreeMap<String, String> {
    let keys = [config_key(member), names_key(member)];
    let found = keys.into_iter().filter_map(|key| {
        let text = data?.get(&key)?.clone();
        Some((key, text))
    });
    found.collect()
}

/// A member's two files, once its addresses are known.
fn files(facts: &Facts, member: &str, index: i32) -> Option<BTreeMap<String, String>> {
    let spec = &facts.object.spec;
    let at = Spelling::of(facts.object, member, index);
    let addresses = reach::addresses(facts, member, index).ok()?;
    let config = router_config(facts.object, &at, &addresses);
    // What only the pod knows of itself is told to the agent as an argument.
    let own = addresses
        .iter()
        .filter(|address| !address.host.contains('$'));
    let names = reach::names(spec, &at, own.cloned());
    let lines: Vec<&str> = names
        .dns
        .iter()
        .chain(&names.ip)
        .map(String::as_str)
        .collect();
    Some(BTreeMap::from([
        (
            config_key(member),
            serde_saphyr::to_string(&config).unwrap_or_default(),
        ),
        (names_key(member), format!("{}\n", lines.join("\n"))),
    ]))
}
