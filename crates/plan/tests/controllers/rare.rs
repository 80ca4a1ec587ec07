//! More of the shortest scripts that showed faults: those that only some thousand
//! random lives come upon.

use super::mended::{play, script};
use super::world::{Action, Fault, Script};

#[test]
fn a_network_that_is_lost_before_anybody_saw_it_is_made_again() {
    let actions = vec![
        Action::Cut(0, true),
        Action::Flow(10),
        Action::LoseVolume(0),
    ];
    play(&script(1, actions));
}

/// Paused, or given a spec that is refused, right after the network was made: a
/// volume that is lost then makes no second one.
#[test]
fn whoever_made_the_network_may_not_make_another_whatever_stops_the_operator() {
    for begun in 0..12 {
        for stop in [Action::Pause(true), Action::Advertise(1)] {
            let actions = vec![
                Action::Flow(begun),
                stop,
                Action::Flow(2),
                Action::LoseVolume(0),
                Action::SlowReconcile(1),
                Action::Flow(10),
            ];
            play(&Script {
                old_names_live: false,
                ..script(1, actions)
            });
        }
    }
}

#[test]
fn an_hour_without_a_leader_is_no_election() {
    let actions = vec![
        Action::Flow(11),
        Action::Evict(0),
        Action::LoseVolume(1),
        Action::Reconcile(Fault::None),
        Action::Hours(1),
        Action::Reconcile(Fault::None),
    ];
    play(&script(3, actions));
}

/// Whoever does not reach the majority that has moved cannot lead it.
#[test]
fn a_leader_that_has_moved_with_others_hands_over_when_they_are_taken_in_again() {
    let actions = vec![
        Action::Flow(11),
        Action::Advertise(1),
        Action::Reconcile(Fault::None),
        Action::Reconcile(Fault::None),
        Action::Kill(1),
        Action::Kill(0),
    ];
    play(&Script {
        old_names_live: false,
        ..script(3, actions)
    });
    let growing = vec![
        Action::Replicas(3),
        Action::Flow(10),
        Action::LoseNode(0),
        Action::Reconcile(Fault::None),
        Action::Advertise(1),
        Action::Reconcile(Fault::None),
        Action::Flow(1),
    ];
    play(&Script {
        old_names_live: false,
        ..script(1, growing)
    });
}

#[test]
fn a_member_that_has_moved_joins_again_while_nobody_can_leave_without_it() {
    let actions = vec![
        Action::Flow(11),
        Action::Advertise(1),
        Action::Flow(12),
        Action::Replicas(1),
        Action::LoseVolume(0),
    ];
    play(&Script {
        old_names_live: false,
        ..script(5, actions)
    });
}

/// A person is told whose vote is missed.
#[test]
fn the_last_that_left_comes_back_where_the_only_one_lost_its_volume() {
    let actions = vec![
        Action::Replicas(3),
        Action::Reconcile(Fault::None),
        Action::Flow(10),
        Action::Replicas(1),
        Action::Flow(3),
        Action::Flow(1),
        Action::LoseVolume(0),
    ];
    play(&Script {
        old_names_live: false,
        ..script(1, actions)
    });
}

/// What was recorded while the operator could not mark the root outlives the object.
#[test]
fn a_network_that_was_made_while_paused_is_known_after_its_object_has_gone() {
    for begun in 0..12 {
        let actions = vec![
            Action::Flow(begun),
            Action::Pause(true),
            Action::Flow(5),
            Action::Delete,
            Action::Pause(false),
            Action::Flow(10),
            Action::LoseVolume(0),
            Action::Recreate(1),
        ];
        play(&script(1, actions));
    }
}

#[test]
fn a_leader_whose_certificate_has_ended_is_not_seen_and_its_end_is_no_election() {
    let actions = vec![
        Action::Flow(5),
        Action::Advertise(1),
        Action::Replicas(3),
        Action::Flow(10),
        Action::Hours(9600),
        Action::Flow(4),
    ];
    play(&Script {
        old_names_live: false,
        ..script(1, actions)
    });
}

#[test]
fn one_that_is_alone_at_an_address_that_is_not_known_is_restarted() {
    let actions = vec![
        Action::Replicas(3),
        Action::Flow(11),
        Action::Replicas(1),
        Action::Advertise(1),
        Action::Hours(9600),
    ];
    play(&Script {
        old_names_live: false,
        ..script(1, actions)
    });
}

#[test]
fn a_join_that_failed_is_over_when_the_address_is_set_back() {
    let actions = vec![
        Action::Flow(11),
        Action::Image(3),
        Action::Advertise(1),
        Action::Reconcile(Fault::None),
        Action::Flow(1),
        Action::Kill(1),
        Action::SlowReconcile(1),
        Action::Tick(3),
        Action::Flow(28),
        Action::LoseVolume(0),
    ];
    play(&Script {
        old_names_live: false,
        ..script(5, actions)
    });
}

/// Those who stay do without it.
#[test]
fn a_leader_that_leaves_and_has_moved_is_removed() {
    let killed = vec![
        Action::Flow(11),
        Action::Image(2),
        Action::Flow(1),
        Action::Kill(1),
        Action::Replicas(1),
        Action::Advertise(1),
        Action::Kill(0),
    ];
    play(&script(3, killed));
    let evicted = vec![
        Action::Flow(11),
        Action::Advertise(1),
        Action::Image(2),
        Action::Flow(4),
        Action::Evict(0),
        Action::SlowReconcile(1),
        Action::Replicas(1),
        Action::SlowReconcile(1),
    ];
    play(&script(3, evicted));
}

/// A person is told whose volume may have what is missed.
#[test]
fn the_database_of_one_that_has_left_comes_back_where_no_other_is_left() {
    let actions = vec![
        Action::Replicas(3),
        Action::Flow(10),
        Action::Image(2),
        Action::Replicas(1),
        Action::Flow(3),
        Action::LoseVolume(0),
    ];
    play(&Script {
        old_names_live: false,
        ..script(1, actions)
    });
}

/// The Job's pod waits until there is another volume.
#[test]
fn a_volume_that_is_lost_before_the_backup_is_on_it_is_made_again() {
    let actions = vec![
        Action::Flow(10),
        Action::BackUp,
        Action::LoseAll(true),
        Action::Image(2),
        Action::Flow(4),
        Action::LoseVolume(0),
    ];
    play(&Script {
        old_names_live: false,
        ..script(1, actions)
    });
}
