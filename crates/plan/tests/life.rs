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

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 250, ..ProptestConfig::default() })]

    #[test]
    fn a_set_lives_through_faults_and_comes_to_rest(script in world::script()) {
        world::play(&script).map_err(TestCaseError::fail)?;
    }
}
