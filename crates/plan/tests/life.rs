//! The whole life of a set of routers, played with crashes, lost replies, stale
//! reads and accidents, against a Kubernetes and a Ziti network in memory.
//! After every step each invariant is looked at, and at the end everything must
//! come to rest as wished.
//!
//! `PROPTEST_CASES=2000 cargo test -p ziti-operator-plan --test life` plays
//! more of them. A failure prints the shortest script that shows it, and the
//! log of what happened.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what it expects"
)]

mod world;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

/// Plays in one run: about half a minute, unless the environment says how many.
fn config() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").is_ok();
    let usual = ProptestConfig::default();
    ProptestConfig {
        cases: if asked { usual.cases } else { 120 },
        max_shrink_iters: 250,
        ..usual
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_set_lives_through_faults_and_comes_to_rest(script in world::script()) {
        world::play(&script).map_err(TestCaseError::fail)?;
    }
}
