//! Which test target belongs to which stage. The rule is the target's name and its crate, so that
//! a new test needs no entry anywhere:
//!
//! - unit tests, and all tests of crates without IO (`api`, `plan`): fast;
//! - `tests/e2e*.rs`: end to end, they need the cluster with the operator in it;
//! - every other file in a `tests/` directory: local, it starts what it needs by itself.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use cargo_metadata::{MetadataCommand, TargetKind};
use testbed::paths;

/// Crates without IO: all their tests are fast.
const PURE: [&str; 2] = ["ziti-operator-api", "ziti-operator-plan"];

/// When tests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing is started.
    Fast,
    /// Each starts what it needs.
    Local,
    /// In the cluster.
    EndToEnd,
}

/// The integration tests of the workspace, by stage.
#[derive(Debug, Default)]
pub(super) struct Targets {
    fast: BTreeSet<String>,
    local: BTreeSet<String>,
    end_to_end: BTreeSet<String>,
}

impl Targets {
    /// Asks cargo.
    pub(super) fn read() -> Result<Self> {
        let metadata = MetadataCommand::new()
            .current_dir(paths::repository())
            .no_deps()
            .exec()
            .context("asking cargo for the workspace")?;
        let mut targets = Self::default();
        for package in metadata.packages {
            for target in package.targets {
                if target.kind.contains(&TargetKind::Test) {
                    targets.add(&package.name, target.name);
                }
            }
        }
        Ok(targets)
    }

    fn add(&mut self, package: &str, target: String) {
        let stage = if PURE.contains(&package) {
            &mut self.fast
        } else if target.starts_with("e2e") {
            &mut self.end_to_end
        } else {
            &mut self.local
        };
        stage.insert(target);
    }

    /// The arguments of `cargo test` that select a stage's targets; none when it has no test.
    /// Always with the whole workspace: else cargo would choose other features of the
    /// dependencies and compile them again.
    pub(super) fn arguments(&self, stage: Stage) -> Option<Vec<String>> {
        let (mut arguments, named) = match stage {
            Stage::Fast => (vec!["--lib".to_owned(), "--bins".to_owned()], &self.fast),
            Stage::Local => (Vec::new(), &self.local),
            Stage::EndToEnd => (Vec::new(), &self.end_to_end),
        };
        for target in named {
            arguments.extend(["--test".to_owned(), target.clone()]);
        }
        (!arguments.is_empty()).then_some(arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_and_the_crate_decide() {
        let mut targets = Targets::default();
        targets.add("ziti-operator-plan", "set".to_owned());
        targets.add("ziti-operator", "e2e".to_owned());
        targets.add("ziti-operator", "rules".to_owned());
        assert_eq!(
            targets.arguments(Stage::Fast).unwrap(),
            ["--lib", "--bins", "--test", "set"]
        );
        assert_eq!(
            targets.arguments(Stage::Local).unwrap(),
            ["--test", "rules"]
        );
        assert_eq!(
            targets.arguments(Stage::EndToEnd).unwrap(),
            ["--test", "e2e"]
        );
    }

    #[test]
    fn a_stage_without_tests_has_no_arguments() {
        // `cargo test` without a selection would run everything.
        assert_eq!(Targets::default().arguments(Stage::Local), None);
    }
}
