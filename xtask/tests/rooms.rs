//! A room stays what its name says: who may use whom, held against `cargo metadata`. The picture is
//! in docs/ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// Each room, the rooms that it may use, and what it must never use.
const ROOMS: [(&str, &[&str], &[&str]); 5] = [
    (
        "ziti-operator-api",
        &[],
        &["tokio", "reqwest", "kube-client", "kube-runtime"],
    ),
    (
        "ziti-operator-plan",
        &["ziti-operator-api"],
        &["tokio", "reqwest", "kube-client", "kube-runtime", "rand"],
    ),
    (
        "ziti-operator-ziti",
        &[],
        &["kube", "k8s-openapi", "kube-client"],
    ),
    (
        "ziti-agent",
        &["ziti-operator-ziti"],
        &["kube", "k8s-openapi", "kube-client"],
    ),
    (
        "ziti-operator",
        &[
            "ziti-operator-api",
            "ziti-operator-plan",
            "ziti-operator-ziti",
        ],
        &["ziti-operator-testbed"],
    ),
];

/// What a room itself names, tests and build scripts apart.
fn named(package: &Package) -> BTreeSet<String> {
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind == DependencyKind::Normal)
        .map(|dependency| dependency.name.clone())
        .collect()
}

#[test]
fn a_room_uses_only_the_rooms_that_it_may_use() {
    let metadata: Metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .exec()
        .unwrap();
    let rooms: BTreeMap<String, &Package> = metadata
        .workspace_packages()
        .into_iter()
        .map(|package| (package.name.to_string(), package))
        .collect();
    for (room, may, never) in ROOMS {
        let package = rooms.get(room).unwrap_or_else(|| panic!("{room} is gone"));
        let uses = named(package);
        let others: BTreeSet<&str> = uses
            .iter()
            .map(String::as_str)
            .filter(|name| rooms.contains_key(*name))
            .collect();
        assert_eq!(others, may.iter().copied().collect(), "{room} uses");
        for name in never {
            assert!(!uses.contains(*name), "{room} must never use {name}");
        }
    }
}
