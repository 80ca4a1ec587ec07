//! Conditions by the Kubernetes conventions: a transition time moves only when
//! the status flips, and an unchanged condition is left as it is.

use crate::edge_router::Problem;
use api::reasons::types;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// The three values of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    Unknown,
}

impl Truth {
    /// The word that stands in the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl Truth {
    /// The value of a condition; a word that is none of the three is unknown.
    pub fn of(condition: &Condition) -> Self {
        match condition.status.as_str() {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// The longest message that is stored, in bytes.
const MAX_MESSAGE: usize = 1024;

/// The conditions of one object, being brought up to date.
#[derive(Clone, Debug)]
pub struct Conditions {
    stored: Vec<Condition>,
    list: Vec<Condition>,
    generation: Option<i64>,
    now: Timestamp,
    set: Vec<&'static str>,
}

impl Conditions {
    /// Start from the conditions that the object has.
    pub fn new(current: &[Condition], generation: Option<i64>, now: Timestamp) -> Self {
        Self {
            stored: current.to_vec(),
            list: current.to_vec(),
            generation,
            now,
            set: Vec::new(),
        }
    }

    /// Say what holds now.
    pub fn set(
        &mut self,
        type_: &'static str,
        truth: Truth,
        reason: &str,
        message: impl Into<String>,
    ) {
        let mut message = message.into();
        self.set.push(type_);
        if message.len() > MAX_MESSAGE {
            let end = message.floor_char_boundary(MAX_MESSAGE - 4);
            message.truncate(end);
            message.push_str(" …");
        }
        let mut next = Condition {
            type_: type_.to_owned(),
            status: truth.as_str().to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: self.generation,
            last_transition_time: Time(self.now),
        };
        // Said twice in one plan, the last word counts, and the time is that of
        // the stored condition all the same.
        if let Some(stored) = find(&self.stored, type_)
            && stored.status == next.status
        {
            next.last_transition_time = stored.last_transition_time.clone();
        }
        match self.list.iter_mut().find(|have| have.type_ == type_) {
            Some(have) => *have = next,
            None => self.list.push(next),
        }
    }

    /// Say nothing of it any more.
    pub fn forget(&mut self, type_: &str) {
        self.list.retain(|have| have.type_ != type_);
    }

    /// Whether the condition was set since this was made, rather than being
    /// left as it was found.
    pub fn was_set(&self, type_: &str) -> bool {
        self.set.contains(&type_)
    }

    /// The time at which the facts were gathered.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The condition of this type, if there is one.
    pub fn get(&self, type_: &str) -> Option<&Condition> {
        find(&self.list, type_)
    }

    /// Whether the condition of this type is there and true.
    pub fn is_true(&self, type_: &str) -> bool {
        is_true(&self.list, type_)
    }

    /// The list to store, in a stable order.
    pub fn into_vec(mut self) -> Vec<Condition> {
        self.list.sort_by(|a, b| a.type_.cmp(&b.type_));
        self.list
    }
}

/// The same conditions, and that a step failed: Degraded, with what is amiss.
pub fn after_failure(
    current: &[Condition],
    problem: &Problem,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = Conditions::new(current, generation, now);
    let message = problem.message.clone();
    conditions.set(types::DEGRADED, Truth::True, problem.reason, message);
    conditions.into_vec()
}

/// The condition of this type, if there is one.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of this type is there and true.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_transition_time_moves_only_on_a_flip() {
        let mut first = Conditions::new(&[], Some(1), at(10));
        first.set("Ready", Truth::False, "Waiting", "waits");
        let first = first.into_vec();
        let mut same = Conditions::new(&first, Some(1), at(20));
        same.set("Ready", Truth::False, "Waiting", "waits");
        assert_eq!(same.into_vec(), first);
        let mut flipped = Conditions::new(&first, Some(1), at(20));
        flipped.set("Ready", Truth::True, "Ready", "is ready");
        assert_eq!(flipped.into_vec()[0].last_transition_time, Time(at(20)));
    }

    #[test]
    fn a_condition_that_is_set_twice_in_one_plan_has_not_flipped() {
        let mut first = Conditions::new(&[], Some(1), at(10));
        first.set("Online", Truth::True, "Online", "is online");
        let first = first.into_vec();
        let mut twice = Conditions::new(&first, Some(1), at(20));
        twice.set("Online", Truth::Unknown, "Unknown", "cannot be told");
        twice.set("Online", Truth::True, "Online", "is online");
        assert_eq!(twice.into_vec(), first);
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let mut conditions = Conditions::new(&[], None, at(0));
        conditions.set("Ready", Truth::False, "Long", "é".repeat(2000));
        assert!(conditions.into_vec()[0].message.len() <= MAX_MESSAGE);
    }
}
