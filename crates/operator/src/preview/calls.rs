//! The calls by which the planners' steps are carried out: method, path, body,
//! and a sentence. What `apply` of each controller does, told. Texts of tokens
//! are not known here; where one would stand, its digest does.

use crate::edge_router::{new_edge_router, patch};
use crate::io;
use api::{EdgeRouter, ZitiNetwork, ZitiRouter, names};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};
use plan::edge_router as router_plan;
use plan::set as set_plan;
use plan::set::applied::{Difference, differences};
use plan::set::extra;
use plan::set::{TokenValue, TokenWrite, TokensSecret};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Where routers are on the management API.
const EDGE_ROUTERS: &str = "/edge/management/v1/edge-routers";

/// To whom a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Target {
    Kubernetes,
    Ziti,
}

/// One call.
#[derive(Debug, Serialize)]
pub(super) struct Call {
    pub(super) to: Target,
    pub(super) method: &'static str,
    pub(super) path: String,
    /// A sentence about it.
    pub(super) what: String,
    /// What it changes of an object that is there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) changes: Vec<Difference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) body: Option<Value>,
}

impl Call {
    pub(super) fn kubernetes(method: &'static str, path: String, what: String) -> Self {
        Self {
            to: Target::Kubernetes,
            method,
            path,
            what,
            changes: Vec::new(),
            body: None,
        }
    }

    fn ziti(method: &'static str, path: &str, what: String) -> Self {
        Self {
            to: Target::Ziti,
            ..Self::kubernetes(method, format!("{EDGE_ROUTERS}{path}"), what)
        }
    }

    pub(super) fn with_body(self, body: Value) -> Self {
        Self {
            body: Some(body),
            ..self
        }
    }
}

pub(super) fn path<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> String {
    format!("{}/{name}", K::url_path(&(), Some(namespace)))
}

/// A server-side apply.
pub(super) fn applied(path: &str, manager: &str) -> String {
    format!("{path}?fieldManager={manager}&force=true")
}

pub(super) fn take_on<K: Resource<DynamicType = ()>>(object: &K, finalizer: &str) -> Call {
    let what = format!(
        "put finalizer {finalizer} on {} {}",
        K::kind(&()),
        object.name_any()
    );
    finalizers(object, what, &io::with_finalizer(object, finalizer))
}

pub(super) fn let_go<K: Resource<DynamicType = ()>>(object: &K, finalizer: &str) -> Call {
    let (kind, name) = (K::kind(&()), object.name_any());
    let what = format!("take finalizer {finalizer} off {kind} {name}: it is let go");
    finalizers(object, what, &io::without_finalizer(object, finalizer))
}

fn finalizers<K: Resource<DynamicType = ()>>(object: &K, what: String, all: &[String]) -> Call {
    let path = path::<K>(&object.namespace().unwrap_or_default(), &object.name_any());
    Call::kubernetes("PATCH", path, what).with_body(json!({"metadata": {"finalizers": all}}))
}

/// The call for a step of a ZitiNetwork.
pub(super) fn of_network(object: &ZitiNetwork, step: plan::network::Step) -> Call {
    match step {
        plan::network::Step::AddFinalizer => take_on(object, names::FINALIZER_NETWORK),
        plan::network::Step::ReleaseFinalizer => let_go(object, names::FINALIZER_NETWORK),
    }
}

/// The call for a step of an EdgeRouter.
pub(super) fn of_edge_router(object: &EdgeRouter, step: &router_plan::Step) -> Call {
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    let manager = names::FIELD_MANAGER_EDGE_ROUTER;
    let secret = |what: String, token: Value| {
        let secret = names::enrollment_secret(&name);
        let path = applied(&path::<Secret>(&namespace, &secret), manager);
        Call::kubernetes("PATCH", path, what)
            .with_body(json!({"metadata": {"name": secret}, "data": {names::TOKEN_KEY: token}}))
    };
    match step {
        router_plan::Step::AddFinalizer => take_on(object, names::FINALIZER_EDGE_ROUTER),
        router_plan::Step::ReleaseFinalizer => let_go(object, names::FINALIZER_EDGE_ROUTER),
        router_plan::Step::RecordIntent { intent, .. } => {
            let path = format!("{}/status", path::<EdgeRouter>(&namespace, &name));
            let what = "record in its status what is about to be done on the network".to_owned();
            Call::kubernetes("PATCH", applied(&path, manager), what)
                .with_body(json!({"status": {"intent": intent}}))
        }
        router_plan::Step::Create(spec) => {
            let what = format!("register router {:?}", spec.name);
            Call::ziti("POST", "", what).with_body(json!(new_edge_router(spec)))
        }
        router_plan::Step::Claim { id, tags } => {
            let what = format!("take over router {id}: put this object's tags on it");
            Call::ziti("PATCH", &format!("/{id}"), what).with_body(json!({"tags": tags}))
        }
        router_plan::Step::Update { id, changes } => {
            let what = format!("bring router {id} in line: {}", changes.told());
            Call::ziti("PATCH", &format!("/{id}"), what).with_body(json!(patch(changes)))
        }
        router_plan::Step::ReEnroll { id, why } => {
            let what = format!("give router {id} a new token, which voids its certificate: {why}");
            Call::ziti("POST", &format!("/{id}/re-enroll"), what)
        }
        router_plan::Step::Delete { id } => {
            let what = format!("delete router {id} from the network");
            Call::ziti("DELETE", &format!("/{id}"), what)
        }
        router_plan::Step::PublishToken { digest, .. } => secret(
            "put the router's token into its Secret".to_owned(),
            json!(shown(digest)),
        ),
        router_plan::Step::EmptyToken => {
            secret("empty the token, which was used".to_owned(), json!(""))
        }
    }
}

/// What stands for a token in a body.
fn shown(digest: &str) -> String {
    format!("(token, digest {digest})")
}

/// The children of a set as they are, and then as each call leaves them.
pub(super) struct Known {
    objects: BTreeMap<(String, String), Value>,
    secrets: BTreeSet<String>,
    /// Who applies them.
    manager: &'static str,
}

impl Known {
    /// The children that were seen.
    pub(super) fn of(facts: &set_plan::Facts<'_>) -> Self {
        let mut known = Self::empty(names::FIELD_MANAGER_ROUTER);
        for service in &facts.services {
            known.put(service);
        }
        for map in &facts.config_maps {
            known.put(map);
        }
        for er in &facts.edge_routers {
            known.put(er);
        }
        for set in &facts.stateful_sets {
            known.put(set);
        }
        for extra in &facts.extras {
            known.put_extra(extra);
        }
        if facts.tokens != TokensSecret::Absent {
            known
                .secrets
                .insert(names::tokens_secret(&facts.object.name_any()));
        }
        known
    }

    /// No children, for those that this manager applies.
    pub(super) fn empty(manager: &'static str) -> Self {
        Self {
            objects: BTreeMap::new(),
            secrets: BTreeSet::new(),
            manager,
        }
    }

    /// Keep that there is a Secret. Says whether that is news.
    pub(super) fn see_secret(&mut self, name: String) -> bool {
        self.secrets.insert(name)
    }

    /// Whether there is such a Secret.
    pub(super) fn has_secret(&self, name: &str) -> bool {
        self.secrets.contains(name)
    }

    pub(super) fn put<K: Resource<DynamicType = ()> + ResourceExt + Serialize>(
        &mut self,
        object: &K,
    ) {
        let key = (K::kind(&()).into_owned(), object.name_any());
        self.objects
            .insert(key, serde_json::to_value(object).unwrap_or_default());
    }

    pub(super) fn put_extra(&mut self, object: &DynamicObject) {
        let kind = object.types.as_ref().map(|types| types.kind.clone());
        let key = (kind.unwrap_or_default(), object.name_any());
        self.objects
            .insert(key, serde_json::to_value(object).unwrap_or_default());
    }

    pub(super) fn apply<K: Resource<DynamicType = ()> + ResourceExt + Serialize>(
        &mut self,
        namespace: &str,
        object: &K,
    ) -> Call {
        let wanted = serde_json::to_value(object).unwrap_or_default();
        let name = object.name_any();
        let path = path::<K>(namespace, &name);
        self.applied(K::kind(&()).into_owned(), name, &path, wanted)
    }

    pub(super) fn apply_extra(
        &mut self,
        kind: extra::Kind,
        namespace: &str,
        object: &DynamicObject,
    ) -> Call {
        let name = object.name_any();
        let path = extra_path(kind, namespace, &name);
        let wanted = serde_json::to_value(object).unwrap_or_default();
        self.applied(kind.kind.to_owned(), name, &path, wanted)
    }

    fn applied(&mut self, kind: String, name: String, path: &str, wanted: Value) -> Call {
        let known = self.objects.get(&(kind.clone(), name.clone()));
        let changes = known.map(|known| differences(&wanted, known));
        let what = match &changes {
            None => format!("make {kind} {name}"),
            Some(_) => format!("change {kind} {name}"),
        };
        self.objects.insert((kind, name), wanted.clone());
        let path = applied(path, self.manager);
        Call {
            changes: changes.unwrap_or_default(),
            ..Call::kubernetes("PATCH", path, what).with_body(wanted)
        }
    }

    fn tokens(&mut self, object: &ZitiRouter, there: &str, write: &TokenWrite) -> Call {
        let name = names::tokens_secret(&object.name_any());
        let mut data: BTreeMap<&str, Value> = BTreeMap::new();
        for (member, value) in &write.set {
            let value = match value {
                TokenValue::Empty => String::new(),
                TokenValue::Waiting { digest } => shown(digest),
            };
            data.insert(member, value.into());
        }
        data.extend(write.remove.iter().map(|key| (key.as_str(), Value::Null)));
        let keys: Vec<&str> = data.keys().copied().collect();
        let what = format!("write the keys {} of Secret {name}", keys.join(", "));
        let body = json!({"metadata": {"name": name}, "data": data});
        let call = if self.secrets.insert(name.clone()) {
            Call::kubernetes("POST", Secret::url_path(&(), Some(there)), what)
        } else {
            Call::kubernetes("PATCH", path::<Secret>(there, &name), what)
        };
        call.with_body(body)
    }

    /// The call for a step of a ZitiRouter; `there` is the namespace of its workloads.
    pub(super) fn of_set(
        &mut self,
        object: &ZitiRouter,
        there: &str,
        step: &set_plan::Step,
    ) -> Call {
        let call = self.of_step(object, there, step);
        match object.spec.cluster() {
            Some(cluster) if step.is_of_workloads() => Call {
                what: format!("{} in ZitiCluster {cluster}", call.what),
                ..call
            },
            _ => call,
        }
    }

    fn of_step(&mut self, object: &ZitiRouter, there: &str, step: &set_plan::Step) -> Call {
        use set_plan::Step;
        let namespace = object.namespace().unwrap_or_default();
        let set = object.name_any();
        match step {
            Step::AddFinalizer => take_on(object, names::FINALIZER_ROUTER),
            Step::ReleaseFinalizer => let_go(object, names::FINALIZER_ROUTER),
            Step::ApplyService(service) => self.apply(there, service.as_ref()),
            Step::ApplyConfigMap(map) => self.apply(there, map.as_ref()),
            Step::ApplyEdgeRouter(er) => self.apply(&namespace, er.as_ref()),
            Step::ApplyStatefulSet(set) => self.apply(there, set.as_ref()),
            Step::WriteTokens(write) => self.tokens(object, there, write),
            Step::CopyProvidedTokens => {
                let secret = names::provided_tokens_secret(&set);
                let keys = object.spec.tokens.iter().flat_map(BTreeMap::keys);
                let data: BTreeMap<&str, &str> = keys
                    .map(|key| (key.as_str(), "(the token given)"))
                    .collect();
                let what =
                    format!("copy the tokens written in ZitiRouter {set} into Secret {secret}");
                let path = applied(
                    &path::<Secret>(&namespace, &secret),
                    names::FIELD_MANAGER_ROUTER,
                );
                Call::kubernetes("PATCH", path, what)
                    .with_body(json!({"metadata": {"name": secret}, "data": data}))
            }
            Step::ReportAgent {
                edge_router,
                report,
            } => {
                let path = format!("{}/status", path::<EdgeRouter>(&namespace, edge_router));
                let path = applied(&path, names::FIELD_MANAGER_ROUTER);
                let what = format!("pass on to EdgeRouter {edge_router} what its pod reports");
                Call::kubernetes("PATCH", path, what)
                    .with_body(json!({"status": {"agent": report}}))
            }
            Step::DeletePod { name, why, .. } => Call {
                what: format!("replace pod {name}: {why}"),
                ..delete::<Pod>(there, name)
            },
            Step::DeleteStatefulSet { name, .. } => delete::<StatefulSet>(there, name),
            Step::ApplyExtra(kind, extra) => self.apply_extra(*kind, there, extra),
            Step::DeleteExtra { kind, name } => {
                let what = format!("delete {} {name}", kind.kind);
                Call::kubernetes("DELETE", extra_path(*kind, there, name), what)
            }
            Step::DeleteEdgeRouter { name, .. } => delete::<EdgeRouter>(&namespace, name),
            Step::DeleteService { name } => delete::<Service>(there, name),
            Step::DeleteTokens => delete::<Secret>(there, &names::tokens_secret(&set)),
            Step::DeleteConfigMap { name } => delete::<ConfigMap>(there, name),
            Step::DeleteClaim { name, .. } => delete::<PersistentVolumeClaim>(there, name),
            Step::ReleaseInUse {
                edge_router,
                finalizers,
                ..
            } => {
                let what =
                    format!("let go of EdgeRouter {edge_router}: no pod runs with its identity");
                Call::kubernetes("PATCH", path::<EdgeRouter>(&namespace, edge_router), what)
                    .with_body(json!({"metadata": {"finalizers": finalizers}}))
            }
        }
    }
}

pub(super) fn extra_path(kind: extra::Kind, namespace: &str, name: &str) -> String {
    let extra::Kind {
        group,
        version,
        plural,
        ..
    } = kind;
    format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}")
}

pub(super) fn delete<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> Call {
    let what = format!("delete {} {name}", K::kind(&()));
    Call::kubernetes("DELETE", path::<K>(namespace, name), what)
}
