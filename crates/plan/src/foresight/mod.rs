//! What will be done, told before it is done: the planners are asked, their
//! steps are taken as carried out, and they are asked again.
//!
//! Nothing is decided here: every step is the planner's own. What the world
//! must add (a token, a pod that ends, a router that goes offline) is assumed
//! one thing at a time and said in [`When::Once`]. For `ziti-operator plan`; the
//! controllers go by facts alone.

mod bootstrap;
mod controller;
mod edge_router;
mod set;

pub use bootstrap::{Beginning, beginning};
pub use controller::controller;
pub use edge_router::edge_router;
pub use set::set;

/// More rounds than this tell nothing new.
const MOST_ROUNDS: usize = 40;

/// When a step will be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In the next reconcile.
    Now,
    /// As soon as the steps before it are done.
    Next,
    /// Not before something has happened that the operator waits for.
    Once(&'static str),
}

/// A step, and when it will be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Foreseen<S> {
    /// When.
    pub when: When,
    /// The step.
    pub step: S,
}

/// Gathers steps round by round.
struct Story<S> {
    when: When,
    told: Vec<Foreseen<S>>,
    last: Vec<S>,
}

impl<S: Clone + PartialEq> Story<S> {
    fn new() -> Self {
        Self {
            when: When::Now,
            told: Vec::new(),
            last: Vec::new(),
        }
    }

    /// Tell the steps of one round. False where they are those of the round
    /// before: taking them as done has changed nothing.
    fn tell(&mut self, steps: &[S]) -> bool {
        if self.last == steps {
            return false;
        }
        let when = self.when;
        self.told.extend(steps.iter().map(|step| Foreseen {
            when,
            step: step.clone(),
        }));
        self.last = steps.to_vec();
        if self.when == When::Now {
            self.when = When::Next;
        }
        true
    }

    /// From here on, only once this has happened.
    fn assume(&mut self, what: &'static str) {
        self.when = When::Once(what);
        self.last.clear();
    }
}
