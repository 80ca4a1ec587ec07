//! The whole life of a network's controllers, played with crashes, lost replies
//! and accidents against a Kubernetes and a cluster in memory. After every step
//! each invariant is looked at, and at the end everything must come to rest as
//! wished.
//!
//! `PROPTEST_CASES=5000 cargo test -p ziti-operator-plan --test controllers` plays
//! more of them. A failure prints the shortest script that shows it, and the
//! log of what happened.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what it expects"
)]

#[path = "controllers/mod.rs"]
mod world;

#[path = "controllers/rare.rs"]
mod rare;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

/// Plays in one run: about half a minute, unless the environment says how many.
fn config() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").is_ok();
    let usual = ProptestConfig::default();
    ProptestConfig {
        cases: if asked { usual.cases } else { 50 },
        max_shrink_iters: 400,
        failure_persistence: None,
        ..usual
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn controllers_live_through_faults_and_come_to_rest(script in world::script()) {
        world::play(&script).map_err(TestCaseError::fail)?;
    }
}

/// The shortest scripts that showed faults which are mended, and lives that every
/// change must go through well.
mod mended {
    use super::world::{self, Action, Script};

    pub(super) fn script(replicas: i32, actions: Vec<Action>) -> Script {
        Script {
            replicas,
            turn: 0,
            skew: 0,
            old_names_live: true,
            lingering: false,
            actions,
        }
    }

    pub(super) fn play(script: &Script) {
        if let Err(what) = world::play(script) {
            panic!("{what}");
        }
    }

    #[test]
    fn an_identity_that_is_no_longer_used_goes_later_and_changes_nothing() {
        let actions = vec![
            Action::Flow(10),
            Action::Hours(9600),
            Action::Flow(19),
            Action::Flow(37),
        ];
        play(&Script {
            old_names_live: false,
            ..script(1, actions)
        });
    }

    #[test]
    fn a_member_that_was_removed_and_is_still_connected_is_no_member() {
        let actions = vec![Action::Flow(20), Action::Replicas(1)];
        play(&Script {
            lingering: true,
            ..script(3, actions)
        });
    }

    #[test]
    fn a_certificate_that_ended_while_a_cluster_was_to_grow_is_read() {
        let years = Action::Hours(24 * 365 * 7);
        let actions = vec![Action::Flow(10), years, Action::Replicas(3)];
        play(&script(1, actions));
    }

    #[test]
    fn the_only_member_does_not_move() {
        let actions = vec![Action::Flow(20), Action::Advertise(2), Action::Flow(10)];
        play(&script(1, actions));
    }

    #[test]
    fn two_that_have_moved_at_once_join_again() {
        let actions = vec![
            Action::Flow(24),
            Action::Advertise(1),
            Action::Flow(2),
            Action::Kill(1),
            Action::Kill(4),
        ];
        play(&Script {
            old_names_live: false,
            ..script(5, actions)
        });
    }

    #[test]
    fn different_versions_hold_up_what_is_written_and_not_the_rollout() {
        let actions = vec![
            Action::Flow(20),
            Action::Image(1),
            Action::Flow(8),
            Action::Policies(true),
        ];
        play(&script(3, actions));
    }

    #[test]
    fn a_leader_that_goes_hands_over_to_nobody_who_has_moved() {
        let actions = vec![
            Action::Flow(8),
            Action::Advertise(1),
            Action::Replicas(1),
            Action::Evict(0),
        ];
        play(&script(3, actions));
    }

    #[test]
    fn one_that_has_yet_to_leave_starts_with_a_certificate_of_its_new_name() {
        let actions = vec![
            Action::Flow(24),
            Action::Image(2),
            Action::Replicas(1),
            Action::Evict(1),
            Action::Flow(30),
            Action::Advertise(1),
            Action::Flow(10),
        ];
        play(&script(3, actions));
    }

    #[test]
    fn all_that_moved_at_once_are_set_back() {
        let actions = vec![
            Action::Flow(30),
            Action::Advertise(2),
            Action::DeleteWorkload,
            Action::Flow(20),
        ];
        for turn in 0..3 {
            play(&Script {
                turn,
                ..script(3, actions.clone())
            });
        }
    }

    #[test]
    fn a_workload_that_was_lost_is_not_made_anew_for_a_minority() {
        let actions = vec![
            Action::Flow(20),
            Action::Replicas(1),
            Action::DeleteWorkload,
        ];
        play(&script(3, actions));
    }

    #[test]
    fn one_member_whose_volume_is_lost_makes_no_second_network() {
        let actions = vec![Action::Flow(20), Action::LoseVolume(0)];
        play(&script(1, actions));
    }

    #[test]
    fn a_first_member_whose_volume_is_lost_is_sent_the_database() {
        let actions = vec![Action::Flow(20), Action::LoseVolume(0), Action::LoseStatus];
        play(&script(3, actions));
    }

    #[test]
    fn volumes_that_were_kept_are_taken_up_again_and_lost_ones_not_replaced() {
        let kept = vec![
            Action::Flow(30),
            Action::Delete,
            Action::Flow(20),
            Action::Recreate(3),
        ];
        play(&script(3, kept.clone()));
        let fewer = [kept[..3].to_vec(), vec![Action::Recreate(1)]].concat();
        play(&script(3, fewer));
        let lost = (0..3).map(Action::LoseVolume);
        let lost = kept[..3].iter().cloned().chain(lost);
        play(&script(3, lost.chain([Action::Recreate(3)]).collect()));
    }

    /// The database is lost, and a person has a backup of it: it is the same network.
    #[test]
    fn databases_that_are_all_lost_come_back_from_a_backup() {
        for replicas in [1, 3] {
            let lost = (0..replicas).map(Action::LoseVolume);
            let begin = [Action::Flow(30), Action::BackUp];
            let end = [
                Action::Flow(60),
                Action::WishRestore(true),
                Action::Flow(30),
            ];
            play(&script(
                replicas,
                begin.into_iter().chain(lost).chain(end).collect(),
            ));
        }
    }

    #[test]
    fn all_that_is_lost_comes_back_when_the_store_does() {
        let actions = vec![
            Action::Flow(20),
            Action::WishBackups(true),
            Action::BackUp,
            Action::LoseAll(true),
            Action::StoreAway(true),
            Action::Flow(30),
            Action::StoreAway(false),
            Action::Flow(40),
            // It stays in the spec, and is not read again.
            Action::LoseVolume(1),
            Action::Evict(0),
        ];
        play(&script(3, actions));
    }

    /// Whoever changes their mind while nothing is there yet gets a new network.
    #[test]
    fn a_restore_that_is_taken_back_leaves_the_way_free() {
        for rounds in 0..8 {
            let actions = vec![
                Action::LoseAll(true),
                Action::Flow(rounds),
                Action::WishRestore(false),
            ];
            play(&script(1, actions));
        }
    }

    #[test]
    fn a_restore_that_ends_with_its_object_leaves_the_way_free() {
        for rounds in 0..8 {
            let actions = vec![
                Action::LoseAll(true),
                Action::Flow(rounds),
                Action::Delete,
                Action::Flow(10),
                Action::Recreate(1),
            ];
            play(&script(1, actions));
        }
    }

    #[test]
    fn an_image_that_does_not_start_stops_at_the_first_and_is_taken_back() {
        for bad in [2, 3] {
            let actions = vec![
                Action::Flow(20),
                Action::Image(bad),
                Action::Flow(40),
                Action::Image(0),
            ];
            play(&script(3, actions));
        }
    }

    #[test]
    fn a_cluster_grows_and_shrinks_whoever_leads() {
        for turn in 0..5 {
            let sizes = [3, 5, 3, 1].map(Action::Replicas);
            let actions = sizes.into_iter().flat_map(|size| [size, Action::Flow(40)]);
            let leader = [Action::Flow(20), Action::Evict(0)];
            play(&Script {
                turn,
                ..script(1, leader.into_iter().chain(actions).collect())
            });
        }
    }

    #[test]
    fn an_election_is_no_lost_quorum() {
        for leader in 0..3 {
            let lives = [Action::Kill(leader), Action::Tick(1)];
            let actions = [
                vec![Action::Flow(30)],
                lives.to_vec(),
                vec![Action::Flow(1)],
            ];
            play(&script(3, actions.concat()));
        }
    }

    #[test]
    fn one_that_can_never_be_dialled_holds_up_no_renewal_and_no_leaver() {
        let broken = [
            Action::Flow(30),
            Action::Cut(4, true),
            Action::Replicas(5),
            Action::Flow(40),
            Action::Hours(1),
        ];
        // Certificates are renewed, and what was read at the start is old. The one that
        // cannot join reads its own first, and is waited for for five minutes.
        let renewed = [
            Action::Hours(24 * 260),
            Action::Flow(220),
            Action::AreUpToDate,
        ];
        let renewed = [&broken[..], &renewed].concat();
        play(&script(3, renewed.clone()));
        // A lone member with two beside it that never come.
        let lone = renewed.iter().cloned().map(|action| match action {
            Action::Replicas(_) => Action::Replicas(3),
            Action::Cut(..) => Action::Cut(1, true),
            action => action,
        });
        play(&script(
            1,
            [Action::Cut(2, true)].into_iter().chain(lone).collect(),
        ));
        let leave = [Action::Replicas(3), Action::Flow(60), Action::AreUpToDate];
        play(&script(3, [renewed, leave.to_vec()].concat()));
    }

    #[test]
    fn a_renewal_is_read_once_whatever_the_operators_clock_says() {
        // Just before and after, a pod is made: behind by minutes, a renewal would
        // be taken for older than it; ahead, for newer than the next one as well.
        for skew in [-600, 600] {
            let renewed = [Action::Evict(1), Action::Flow(3), Action::Hours(24 * 260)];
            let actions = [&[Action::Flow(30)], &renewed[..], &[Action::Evict(2)]].concat();
            let read = [Action::Flow(60), Action::AreUpToDate];
            let script = script(3, [actions, read.to_vec()].concat());
            play(&Script { skew, ..script });
        }
    }

    #[test]
    fn whoever_leads_from_an_address_that_the_others_do_not_know_is_seen_and_hands_over() {
        // All start again at once, at other addresses than they know of each other.
        let moved = [
            Action::Flow(30),
            Action::Advertise(2),
            Action::DeleteWorkload,
        ];
        let seen = [Action::Flow(60), Action::IsAsWished];
        for turn in 0..3 {
            play(&Script {
                turn,
                ..script(3, [&moved[..], &seen].concat())
            });
        }
    }

    /// When it last looked, nobody led. Since then it was away, and now there is an
    /// election.
    #[test]
    fn an_election_after_one_that_the_operator_saw_is_no_dead_member() {
        for (first, second) in (0..3).flat_map(|one| (0..3).map(move |two| (one, two))) {
            let sees = [Action::Kill(first), Action::Tick(1)];
            let away = [
                Action::Reconcile(world::Fault::None),
                Action::Hours(1),
                Action::Restart,
                Action::Reconcile(world::Fault::None),
                Action::Tick(1),
            ];
            let again = [
                Action::Kill(second),
                Action::Tick(1),
                Action::Reconcile(world::Fault::None),
            ];
            let begin = [Action::Flow(30)];
            play(&script(3, [&begin[..], &sees, &away, &again].concat()));
        }
    }
}
