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

/// Plays of each kind in one run: about half a minute for all, unless the environment says how many.
fn config() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").is_ok();
    let usual = ProptestConfig::default();
    ProptestConfig {
        cases: if asked { usual.cases } else { 70 },
        max_shrink_iters: 250,
        ..usual
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_set_lives_through_faults_and_comes_to_rest(script in world::script(false)) {
        world::play(&script).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_set_in_another_cluster_lives_through_its_absence(script in world::script(true)) {
        world::play(&script).map_err(TestCaseError::fail)?;
    }
}

/// 200 clusters with 5,000 members between them.
mod scale {
    use super::world::scale::{Size, delay, play};
    use std::collections::hash_map::RandomState;
    use std::hash::{BuildHasher, Hasher};

    /// By chance, unless `SCALE_SEED` says which.
    fn seed() -> u64 {
        let asked = std::env::var("SCALE_SEED").ok();
        asked.map_or_else(
            || RandomState::new().build_hasher().finish(),
            |seed| seed.parse().expect("SCALE_SEED is a number"),
        )
    }

    #[test]
    fn two_hundred_clusters_come_and_go_and_none_delays_another() {
        let (clusters, members, trouble) = (200, 25, 40);
        let seed = seed();
        println!("SCALE_SEED={seed}");
        let size = Size {
            clusters,
            members,
            trouble,
        };
        match play(seed, size) {
            Ok(told) => println!("{told}"),
            Err(what) => panic!("SCALE_SEED={seed}: {what}"),
        }
    }

    #[test]
    fn clusters_that_shared_their_turns_would_delay_each_other() {
        let seed = seed();
        assert_eq!(delay(seed, None), 0, "SCALE_SEED={seed}");
        assert!(delay(seed, Some(8)) > 20, "SCALE_SEED={seed}");
    }
}

/// The shortest scripts that showed faults which are mended.
mod mended {
    use super::world::{self, Action, Cascade, Lose, Mode, Script};
    use api::router::Topology;

    fn script(mode: Mode, replicas: i32, actions: Vec<Action>) -> Script {
        Script {
            mode,
            topology: Topology::StatefulSet,
            replicas,
            keep_volumes: (false, false),
            retain: false,
            afar: false,
            adopt: false,
            accept_network: false,
            actions,
        }
    }

    fn play(script: &Script) {
        if let Err(what) = world::play(script) {
            panic!("{what}");
        }
    }

    #[test]
    fn a_new_token_takes_no_member_down_on_the_word_of_an_old_list() {
        let actions = vec![
            Action::SetReplicas(2),
            Action::Poll,
            Action::Flow(1),
            Action::Flow(3),
            Action::VolumeLost(0),
            Action::GiveToken(1),
            Action::ReconcileFromList(1),
            Action::ReconcileSet,
        ];
        play(&script(Mode::ProvidedSecret, 1, actions));
    }

    #[test]
    fn a_registration_that_lands_after_the_set_was_deleted_leaves_nothing() {
        let actions = vec![
            Action::Flow(2),
            Action::LoseReply(0, Lose::Later),
            Action::Flow(2),
            Action::DeleteSet(Cascade::Foreground),
            Action::Flow(3),
        ];
        play(&script(Mode::Managed, 1, actions));
    }

    #[test]
    fn the_condition_of_a_provided_router_does_not_flip_at_each_look() {
        play(&script(Mode::ProvidedSecret, 1, vec![Action::ReconcileSet]));
    }

    #[test]
    fn a_token_that_could_not_be_redeemed_is_not_lost() {
        let actions = vec![
            Action::Flow(3),
            Action::Flow(1),
            Action::NetworkAway(true),
            Action::GiveToken(0),
            Action::Flow(3),
        ];
        for mode in [Mode::ProvidedSecret, Mode::ProvidedAlone] {
            play(&script(mode, 2, actions.clone()));
        }
    }

    #[test]
    fn a_token_of_another_network_costs_no_router_that_runs() {
        let actions = vec![
            Action::Flow(3),
            Action::Flow(3),
            Action::NetworkSwapped,
            Action::GiveToken(0),
            Action::NetworkSwapped,
            Action::Flow(2),
        ];
        play(&script(Mode::ProvidedSecret, 2, actions));
    }

    #[test]
    fn a_kept_volume_brings_a_provided_router_back() {
        let actions = vec![
            Action::Flow(3),
            Action::Flow(2),
            Action::AdvanceClock(1900),
            Action::SetReplicas(0),
            Action::Flow(3),
            Action::Flow(3),
            Action::SetReplicas(1),
        ];
        for mode in [Mode::ProvidedSecret, Mode::ProvidedAlone] {
            let mut script = script(mode, 1, actions.clone());
            script.keep_volumes = (false, true);
            play(&script);
        }
    }

    #[test]
    fn a_router_that_was_left_on_the_network_gets_a_token_when_its_volume_was_not_kept() {
        let actions = vec![
            Action::Flow(3),
            Action::Flow(3),
            Action::SetReplicas(0),
            Action::Flow(3),
            Action::Flow(3),
            Action::SetReplicas(1),
        ];
        let mut script = script(Mode::Managed, 1, actions);
        script.retain = true;
        play(&script);
    }

    #[test]
    fn an_orphaned_set_loses_nothing_and_is_taken_back() {
        for collected_first in [false, true] {
            let mut actions = vec![
                Action::Flow(3),
                Action::Flow(3),
                Action::DeleteSet(Cascade::Orphan),
            ];
            if collected_first {
                // The garbage collector takes the owner and its finalizer off
                // before the operator looks.
                actions.push(Action::Collect);
            }
            actions.extend([Action::ReconcileSet, Action::RecreateSet, Action::Flow(3)]);
            play(&script(Mode::Managed, 2, actions));
        }
    }

    #[test]
    fn edge_routers_that_a_person_deletes_are_registered_anew_one_at_a_time() {
        let actions = vec![
            Action::Flow(3),
            Action::Flow(3),
            Action::DeleteEdgeRouter(0),
            Action::DeleteEdgeRouter(1),
        ];
        for mode in [Mode::Managed, Mode::ProvidedAlone] {
            play(&script(mode, 3, actions.clone()));
        }
    }

    #[test]
    fn a_new_token_and_a_deleted_edge_router_do_not_wait_for_each_other() {
        let actions = vec![
            Action::Flow(1),
            Action::Flow(3),
            Action::GiveToken(2),
            Action::AdvanceClock(1900),
            Action::RouterDrops(2),
            Action::Flow(1),
            Action::DeleteEdgeRouter(2),
            Action::GiveToken(0),
            Action::ReconcileEdgeRouter(0),
        ];
        play(&script(Mode::ProvidedSecret, 3, actions));
    }

    #[test]
    fn an_empty_set_of_members_of_their_own_keeps_no_old_configuration() {
        let actions = vec![
            Action::SetReplicas(0),
            Action::Flow(1),
            Action::EditSpec(5),
            Action::ReconcileSet,
            Action::ReconcileSet,
        ];
        let mut script = script(Mode::Managed, 1, actions);
        script.topology = Topology::PerMember;
        play(&script);
    }

    #[test]
    fn the_kept_volume_of_a_node_that_left_is_no_member() {
        let actions = vec![
            Action::Node(2, true),
            Action::Flow(1),
            Action::Node(2, false),
            Action::ReconcileSet,
            Action::ReconcileSet,
        ];
        let mut script = script(Mode::Managed, 1, actions);
        script.topology = Topology::PerNode;
        script.keep_volumes = (false, true);
        play(&script);
    }

    #[test]
    fn a_set_whose_name_another_one_has_in_its_cluster_can_be_deleted() {
        let actions = vec![
            Action::Flow(3),
            Action::Flow(3),
            Action::Stranger(true),
            Action::Flow(1),
            Action::DeleteSet(Cascade::Background),
            Action::Flow(3),
        ];
        let mut script = script(Mode::Managed, 2, actions);
        script.afar = true;
        for keeps in [true, false] {
            script.keep_volumes.0 = keeps;
            play(&script);
        }
    }

    #[test]
    fn an_operator_that_begins_anew_says_nothing_of_a_cluster_that_it_has_not_looked_at() {
        let mut script = script(Mode::Managed, 1, vec![Action::Flow(3), Action::Flow(3)]);
        script.afar = true;
        play(&script);
    }

    #[test]
    fn a_changed_name_pattern_does_not_block_other_changes() {
        let actions = vec![
            Action::Flow(3),
            Action::Flow(3),
            Action::EditSpec(4),
            Action::EditSpec(2),
            Action::Flow(2),
            Action::PatchPolicy(true),
            Action::DeleteSet(Cascade::Background),
        ];
        play(&script(Mode::Managed, 1, actions));
    }
}
