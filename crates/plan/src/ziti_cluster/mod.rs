//! Decides for a `ZitiCluster`: whether the other cluster may be worked in, and
//! what to say of it. [`rights`] is what is needed there, [`grant`] how it is given.
//!
//! Whoever deploys there asks [`Plan::verdict`]; where that is a problem, what runs
//! there is left alone.

pub mod grant;
pub mod rights;

use crate::conditions::{Conditions, Truth};
use crate::edge_router::Problem;
use api::reasons::{self, types};
use api::{ZitiCluster, ZitiClusterStatus, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How often a cluster that answers is asked who it is and what may be done there.
const REFRESH: SignedDuration = SignedDuration::from_mins(1);
/// How soon one is tried again that has just gone away, or refuses us.
const SOONEST: SignedDuration = SignedDuration::from_secs(5);
/// A cluster that is away for long is tried again after a quarter of that time, and
/// at least so often.
const LATEST: SignedDuration = SignedDuration::from_mins(1);
/// How many missing permissions a message names; the status has them all.
const NAMED: usize = 5;
/// What differs less in latency is no news.
const NOISE: i64 = 20;

/// Everything that was observed.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The object, with its last status.
    pub object: &'a ZitiCluster,
    /// What the cluster answered.
    pub answer: Result<Answer, Problem>,
    /// How many ZitiRouters are placed there.
    pub users: usize,
    /// The operator's clock.
    pub now: Timestamp,
}

/// What a cluster answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its version.
    pub version: String,
    /// How long it took to say so.
    pub latency: SignedDuration,
    /// What the credential may not do, of [`rights::RIGHTS`], as
    /// [`rights::Right::named`] says it.
    pub missing: Vec<String>,
    /// The uid of the namespace; `None` where it may not be read.
    pub identity: Option<String>,
}

/// What is to be done, and what to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What to do, in this order.
    pub steps: Vec<Step>,
    /// The status to write.
    pub status: ZitiClusterStatus,
    /// Whether anything may be done there.
    pub verdict: Result<(), Problem>,
    /// When to look again.
    pub requeue: SignedDuration,
}

/// One act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Hold the object, since what is deployed there has to be taken away by it.
    AddFinalizer,
    /// Let the object go.
    ReleaseFinalizer,
}

/// Decide for a ZitiCluster.
pub fn plan(facts: &Facts) -> Plan {
    let object = facts.object;
    let mut status = object.status.clone().unwrap_or_default();
    let mut conditions = Conditions::new(&status.conditions, object.metadata.generation, facts.now);
    status.observed_generation = object.metadata.generation;
    match &facts.answer {
        Ok(answer) => {
            status.away_since = None;
            status.version = Some(answer.version.clone());
            status.latency_milliseconds = Some(latency(&status, answer));
            status.missing_permissions.clone_from(&answer.missing);
            let message = format!("its API answers ({})", answer.version);
            conditions.set(types::REACHABLE, Truth::True, reasons::CONNECTED, message);
        }
        Err(problem) => {
            if problem.reason == reasons::CLUSTER_UNREACHABLE {
                status.away_since.get_or_insert(Time(facts.now));
            } else {
                // It answers, but not to us; or was not asked.
                status.away_since = None;
            }
            let message = problem.message.clone();
            conditions.set(types::REACHABLE, Truth::False, problem.reason, message);
        }
    }
    let verdict = not_abandoned(object)
        .and_then(|()| facts.answer.clone())
        .and_then(|answer| judge(facts, &mut status, &answer));
    match &verdict {
        Ok(()) => conditions.set(
            types::READY,
            Truth::True,
            reasons::READY,
            format!(
                "routers can be deployed to its namespace {}",
                object.remote_namespace()
            ),
        ),
        Err(problem) => conditions.set(
            types::READY,
            Truth::False,
            problem.reason,
            problem.message.clone(),
        ),
    }
    let steps = hold(facts, &mut conditions);
    let verdict = verdict.map_err(|problem| with_since(problem, &status));
    status.conditions = conditions.into_vec();
    let requeue = pause(&verdict, &status, facts.now);
    Plan {
        steps,
        status,
        verdict,
        requeue,
    }
}

fn hold(facts: &Facts, conditions: &mut Conditions) -> Vec<Step> {
    let metadata = &facts.object.metadata;
    let mut finalizers = metadata.finalizers.iter().flatten();
    let held = finalizers.any(|held| held == names::FINALIZER_CLUSTER);
    match (metadata.deletion_timestamp.is_some(), held) {
        (false, false) => vec![Step::AddFinalizer],
        (true, true) if facts.users == 0 => vec![Step::ReleaseFinalizer],
        (true, true) => {
            let message = format!(
                "{} ZitiRouters are still deployed there: delete them first. If the cluster will never come back, annotate this object \
                 with {}={} before",
                facts.users,
                names::ANNOTATION_CONFIRM_ABANDON,
                object_name(facts)
            );
            conditions.set(types::READY, Truth::False, reasons::IN_USE, message);
            Vec::new()
        }
        _ => Vec::new(),
    }
}

fn object_name<'a>(facts: &Facts<'a>) -> &'a str {
    facts.object.metadata.name.as_deref().unwrap_or_default()
}

/// The latency to show: the one that is shown, while the new one is of its size.
fn latency(status: &ZitiClusterStatus, answer: &Answer) -> i64 {
    let new = i64::try_from(answer.latency.as_millis()).unwrap_or(i64::MAX);
    match status.latency_milliseconds {
        Some(shown) if (new - shown).abs() < NOISE || (shown / 2 < new && new < shown * 2) => shown,
        _ => new,
    }
}

/// Whether the cluster that answers is the one that is meant, and may be worked in.
fn judge(facts: &Facts, status: &mut ZitiClusterStatus, answer: &Answer) -> Result<(), Problem> {
    if let (Some(known), Some(found)) = (&status.identity, &answer.identity)
        && known != found
        && !is_confirmed(facts.object, found)
    {
        return Err(Problem::new(
            reasons::CLUSTER_CHANGED,
            format!(
                "the namespace {} that answers there ({found}) is not the one known ({known}): another cluster, or made anew. Nothing \
                 is done there. Set spec back to the cluster that was meant; if the new one is meant, annotate with {}={found}",
                facts.object.remote_namespace(),
                names::ANNOTATION_CONFIRM_CLUSTER
            ),
        ));
    }
    if !answer.missing.is_empty() {
        let named: Vec<&str> = answer
            .missing
            .iter()
            .take(NAMED)
            .map(String::as_str)
            .collect();
        let more = answer.missing.len() - named.len();
        let more = if more > 0 {
            format!(" and {more} more (status.missingPermissions)")
        } else {
            String::new()
        };
        return Err(Problem::new(
            reasons::PERMISSIONS_MISSING,
            format!(
                "the credential may not {}{more} in namespace {} there: apply there what `ziti-operator cluster-credential` prints",
                named.join(", "),
                facts.object.remote_namespace()
            ),
        ));
    }
    if answer.identity.is_some() {
        status.identity.clone_from(&answer.identity);
    }
    Ok(())
}

/// What is told to the sets that are placed there.
fn with_since(problem: Problem, status: &ZitiClusterStatus) -> Problem {
    match &status.away_since {
        Some(since) => {
            let message = format!("away since {}: {}", since.0, problem.message);
            Problem::new(problem.reason, message)
        }
        None => problem,
    }
}

/// Where a person has given the cluster up, nothing is done there, whether it
/// answers or not.
fn not_abandoned(object: &ZitiCluster) -> Result<(), Problem> {
    let annotations = object.metadata.annotations.as_ref();
    let given_up = annotations.and_then(|have| have.get(names::ANNOTATION_CONFIRM_ABANDON));
    if given_up != object.metadata.name.as_ref() {
        return Ok(());
    }
    let message = format!(
        "given up by the annotation {}: ZitiRouters there are let go when they are deleted, and what they have in namespace {} there          is left behind",
        names::ANNOTATION_CONFIRM_ABANDON,
        object.remote_namespace()
    );
    Err(Problem::new(reasons::CLUSTER_ABANDONED, message))
}

fn is_confirmed(object: &ZitiCluster, identity: &str) -> bool {
    let annotations = object.metadata.annotations.as_ref();
    let confirmed = annotations.and_then(|have| have.get(names::ANNOTATION_CONFIRM_CLUSTER));
    confirmed.is_some_and(|confirmed| confirmed == identity)
}

fn pause(
    verdict: &Result<(), Problem>,
    status: &ZitiClusterStatus,
    now: Timestamp,
) -> SignedDuration {
    if verdict.is_ok() {
        return REFRESH;
    }
    let away = status.away_since.as_ref();
    let away = away.map_or(SignedDuration::ZERO, |since| now.duration_since(since.0));
    (away / 4).clamp(SOONEST, LATEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::ZitiClusterSpec;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn cluster() -> ZitiCluster {
        let spec: ZitiClusterSpec = serde_json::from_value(json!({
            "server": "https://far:6443",
            "credential": {"token": {"name": "far"}},
        }))
        .unwrap();
        let mut object = ZitiCluster::new("far", spec);
        object.metadata.namespace = Some("edge".to_owned());
        object.metadata.finalizers = Some(vec![names::FINALIZER_CLUSTER.to_owned()]);
        object
    }

    fn answer() -> Answer {
        Answer {
            version: "v1.34.4".to_owned(),
            latency: SignedDuration::from_millis(30),
            missing: Vec::new(),
            identity: Some("a".to_owned()),
        }
    }

    fn decide(object: &ZitiCluster, answer: Result<Answer, Problem>, second: i64) -> Plan {
        plan(&Facts {
            object,
            answer,
            users: 0,
            now: at(second),
        })
    }

    fn away() -> Result<Answer, Problem> {
        Err(Problem::new(reasons::CLUSTER_UNREACHABLE, "away"))
    }

    fn ready(plan: &Plan) -> (&str, &str) {
        let conditions = &plan.status.conditions;
        let ready = crate::conditions::find(conditions, types::READY).unwrap();
        (&ready.status, &ready.reason)
    }

    #[test]
    fn at_rest_nothing_is_written() {
        let mut object = cluster();
        object.status = Some(decide(&object, Ok(answer()), 10).status);
        for milliseconds in [16, 31, 49, 59] {
            let slower = Answer {
                latency: SignedDuration::from_millis(milliseconds),
                ..answer()
            };
            let plan = decide(&object, Ok(slower), 100 + milliseconds);
            assert_eq!(Some(&plan.status), object.status.as_ref(), "{milliseconds}");
            assert_eq!(plan.steps, []);
        }
        let slow = Answer {
            latency: SignedDuration::from_millis(200),
            ..answer()
        };
        let plan = decide(&object, Ok(slow), 200);
        assert_eq!(plan.status.latency_milliseconds, Some(200));
    }

    #[test]
    fn one_that_is_away_says_since_when_and_is_tried_less_and_less_often() {
        let mut object = cluster();
        object.status = Some(decide(&object, Ok(answer()), 10).status);
        let gone = decide(&object, away(), 100);
        assert_eq!(ready(&gone), ("False", reasons::CLUSTER_UNREACHABLE));
        assert_eq!(gone.requeue, SOONEST);
        object.status = Some(gone.status.clone());
        let still = decide(&object, away(), 180);
        assert_eq!(still.status, gone.status);
        assert_eq!(still.requeue, SignedDuration::from_secs(20));
        assert_eq!(decide(&object, away(), 10_000).requeue, LATEST);
        let back = decide(&object, Ok(answer()), 10_001);
        assert_eq!(back.status.away_since, None);
        assert_eq!(ready(&back), ("True", reasons::READY));
    }

    #[test]
    fn another_cluster_behind_the_address_is_left_alone_until_it_is_confirmed() {
        let mut object = cluster();
        object.status = Some(decide(&object, Ok(answer()), 10).status);
        let other = Answer {
            identity: Some("b".to_owned()),
            ..answer()
        };
        let plan = decide(&object, Ok(other.clone()), 20);
        assert_eq!(plan.verdict.unwrap_err().reason, reasons::CLUSTER_CHANGED);
        assert_eq!(plan.status.identity.as_deref(), Some("a"));
        let confirmed = [(names::ANNOTATION_CONFIRM_CLUSTER, "b")];
        let confirmed = confirmed.map(|(key, value)| (key.to_owned(), value.to_owned()));
        object.metadata.annotations = Some(confirmed.into());
        let plan = decide(&object, Ok(other), 30);
        assert_eq!(plan.verdict, Ok(()));
        assert_eq!(plan.status.identity.as_deref(), Some("b"));
    }

    #[test]
    fn permissions_that_are_missing_are_named() {
        let missing = (0..7).map(|number| format!("get thing{number}")).collect();
        let answer = Answer {
            missing,
            ..answer()
        };
        let plan = decide(&cluster(), Ok(answer), 10);
        let problem = plan.verdict.unwrap_err();
        assert_eq!(problem.reason, reasons::PERMISSIONS_MISSING);
        assert!(
            problem
                .message
                .contains("get thing4 and 2 more (status.missingPermissions) in namespace edge"),
            "{}",
            problem.message
        );
        assert_eq!(plan.status.missing_permissions.len(), 7);
    }

    #[test]
    fn it_is_held_while_it_is_used() {
        let mut object = cluster();
        object.metadata.finalizers = None;
        assert_eq!(decide(&object, Ok(answer()), 1).steps, [Step::AddFinalizer]);
        let mut object = cluster();
        object.metadata.deletion_timestamp = Some(Time(at(5)));
        assert_eq!(decide(&object, away(), 6).steps, [Step::ReleaseFinalizer]);
        let used = plan(&Facts {
            object: &object,
            answer: Ok(answer()),
            users: 2,
            now: at(7),
        });
        assert_eq!(used.steps, []);
        assert_eq!(ready(&used), ("False", reasons::IN_USE));
    }
}
