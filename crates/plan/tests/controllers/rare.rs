//! More of the shortest scripts that showed faults: those that only some thousand
//! random lives come upon.

use super::mended::{play, script};
use super::world::Action;

#[test]
fn a_network_that_is_lost_before_anybody_saw_it_is_made_again() {
    let actions = vec![
        Action::Cut(0, true),
        Action::Flow(10),
        Action::LoseVolume(0),
    ];
    play(&script(1, actions));
}
