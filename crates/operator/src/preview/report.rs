//! What would be done, as it is printed: for a person and for a machine.

use super::calls::{Call, Target, of_edge_router, of_network};
use super::foresee::{ControllerPlan, EdgeRouterPlan, NetworkPlan, SetPlan};
use api::reasons::types;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, ResourceExt};
use plan::conditions::find;
use plan::foresight::When;
use serde::Serialize;
use std::fmt;

/// The whole answer.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    objects: Vec<Section>,
}

/// What concerns one object.
#[derive(Debug, Serialize)]
struct Section {
    kind: String,
    namespace: String,
    name: String,
    /// What all of it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    /// Why it could not be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
    calls: Vec<Timed>,
    /// What the object will say of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<Ready>,
}

/// A call, and when it is made.
#[derive(Debug, Serialize)]
struct Timed {
    /// `now`, `next` (once the calls before it are done) or `later`.
    when: &'static str,
    /// For `later`: what must have happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    once: Option<&'static str>,
    #[serde(flatten)]
    call: Call,
}

/// The condition Ready.
#[derive(Debug, Serialize)]
struct Ready {
    status: String,
    reason: String,
    message: String,
}

impl Ready {
    fn of(conditions: &[Condition]) -> Option<Self> {
        find(conditions, types::READY).map(|ready| Self {
            status: ready.status.clone(),
            reason: ready.reason.clone(),
            message: ready.message.clone(),
        })
    }
}

fn timed(when: When, call: Call) -> Timed {
    let (when, once) = match when {
        When::Now => ("now", None),
        When::Next => ("next", None),
        When::Once(what) => ("later", Some(what)),
    };
    Timed { when, once, call }
}

impl Section {
    fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self {
            kind: K::kind(&()).into_owned(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            after: None,
            unknown: None,
            calls: Vec::new(),
            ready: None,
        }
    }
}

impl Report {
    pub(super) fn new(notes: Vec<String>) -> Self {
        Self {
            notes,
            objects: Vec::new(),
        }
    }

    /// Whether everything could be told.
    pub(super) fn is_known(&self) -> bool {
        self.objects.iter().all(|section| section.unknown.is_none())
    }

    /// Whether nothing would be done.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.iter().all(|section| section.calls.is_empty())
    }

    pub(super) fn network(&mut self, seen: &NetworkPlan) {
        let steps = seen.plan.steps.iter();
        self.objects.push(Section {
            unknown: seen
                .plan
                .verdict
                .as_ref()
                .err()
                .map(|problem| format!("{}: {}", problem.reason, problem.message)),
            calls: steps
                .map(|step| timed(When::Now, of_network(&seen.object, *step)))
                .collect(),
            ready: Ready::of(&seen.plan.status.conditions),
            ..Section::of(&seen.object)
        });
    }

    pub(super) fn edge_router(&mut self, seen: &EdgeRouterPlan) {
        let steps = seen.steps.iter();
        let unknown = seen.unknown.as_ref();
        self.objects.push(Section {
            after: seen.after.clone(),
            unknown: unknown.map(|problem| format!("{}: {}", problem.reason, problem.message)),
            calls: steps
                .map(|foreseen| {
                    let call = of_edge_router(&seen.object, &foreseen.step);
                    timed(foreseen.when, call)
                })
                .collect(),
            ready: Ready::of(&seen.plan.status.conditions),
            ..Section::of(&seen.object)
        });
    }

    pub(super) fn controller(&mut self, seen: ControllerPlan) {
        let ControllerPlan {
            object,
            unknown,
            mut known,
            plan,
            steps,
        } = seen;
        let mut calls = Vec::new();
        for foreseen in &steps {
            let of_step = known.of_controller(&object, &foreseen.step);
            calls.extend(of_step.into_iter().map(|call| timed(foreseen.when, call)));
        }
        self.objects.push(Section {
            unknown: unknown.map(|problem| format!("{}: {}", problem.reason, problem.message)),
            calls,
            ready: Ready::of(&plan.status.conditions),
            ..Section::of(&object)
        });
    }

    pub(super) fn router(&mut self, seen: SetPlan) {
        let SetPlan {
            object,
            mut known,
            namespace,
            plan,
            steps,
        } = seen;
        self.objects.push(Section {
            calls: steps
                .iter()
                .map(|foreseen| {
                    timed(
                        foreseen.when,
                        known.of_set(&object, &namespace, &foreseen.step),
                    )
                })
                .collect(),
            ready: Ready::of(&plan.status.conditions),
            ..Section::of(&object)
        });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(out, "note: {note}")?;
        }
        for section in &self.objects {
            write!(out, "{section}")?;
        }
        let count = |to: Target| {
            let calls = self.objects.iter().flat_map(|section| &section.calls);
            calls.filter(|timed| timed.call.to == to).count()
        };
        let (kubernetes, ziti) = (count(Target::Kubernetes), count(Target::Ziti));
        if self.is_empty() {
            writeln!(out, "nothing would be done")
        } else {
            writeln!(
                out,
                "{kubernetes} calls to Kubernetes, {ziti} to Ziti; none was made"
            )
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            namespace,
            name,
            ..
        } = self;
        writeln!(out, "{kind} {namespace}/{name}")?;
        if let Some(after) = &self.after {
            writeln!(out, "  once {after}, by its own controller:")?;
        }
        if let Some(unknown) = &self.unknown {
            writeln!(out, "  cannot be told: {unknown}")?;
        }
        let mut before = None;
        for timed in &self.calls {
            let now = (timed.when, timed.once);
            if before != Some(now) {
                match now {
                    ("now", _) if self.after.is_some() => {}
                    ("now", _) => writeln!(out, "  now:")?,
                    (_, Some(once)) => writeln!(out, "  once {once}:")?,
                    _ => writeln!(out, "  then:")?,
                }
                before = Some(now);
            }
            write!(out, "{}", timed.call)?;
        }
        if self.calls.is_empty() && self.unknown.is_none() {
            writeln!(out, "  nothing to do")?;
        }
        if let Some(ready) = &self.ready {
            let Ready {
                status,
                reason,
                message,
            } = ready;
            writeln!(out, "  it says: Ready={status} {reason}: {message}")?;
        }
        writeln!(out)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = match self.to {
            Target::Kubernetes => "kubernetes",
            Target::Ziti => "ziti",
        };
        writeln!(out, "    {to:<10}  {}", self.what)?;
        writeln!(out, "                {} {}", self.method, self.path)?;
        for change in &self.changes {
            writeln!(out, "                {change}")?;
        }
        // Of Kubernetes objects the changes say enough; `-o json` has the rest.
        if let (Target::Ziti, Some(body)) = (self.to, &self.body) {
            writeln!(out, "                {body}")?;
        }
        Ok(())
    }
}
