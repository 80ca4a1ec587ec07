//! An EdgeRouter that a person has paused: nothing is written, on the network or
//! here, and what the network shows of its router is told.

use super::decide::network_fault;
use super::draft::Draft;
use super::{Facts, Plan};

/// Decide for an object that is paused, also while it is being deleted.
pub(super) fn plan(facts: &Facts) -> Plan {
    let mut draft = Draft::new(facts);
    let id = draft.recorded_id();
    if let (Ok(view), Some(id)) = (network_fault(facts), id)
        && let Some(entity) = view.entities.iter().find(|entity| entity.id == id)
    {
        draft.seen(entity, view.fresh);
    }
    draft.paused(facts.object.metadata.deletion_timestamp.is_some())
}
