//! A set being built: in which order, of what, and that it grows by members that may start.

use api::{EdgeRouter, ZitiRouter, names};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret, Service};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use testbed::audit::Write;
use ziti::token::EnrollmentToken;

use crate::operator::{AGENT_IMAGE, Operator, ROUTER_IMAGE};
use crate::world::{PATIENCE, World};
use crate::ziti_network::{self as network, NETWORK};

/// A ZitiRouter of the usual network with these additions to its spec.
pub(crate) fn zitirouter(name: &str, replicas: i32, additions: Value) -> Value {
    let mut spec = json!({"networkRef": {"name": NETWORK}, "replicas": replicas});
    let Value::Object(additions) = additions else {
        panic!("additions are an object")
    };
    for (key, value) in additions {
        spec[key] = value;
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

pub(crate) fn replicas(set: &StatefulSet) -> i32 {
    set.spec.as_ref().unwrap().replicas.unwrap()
}

/// Waits until the StatefulSet is told to run this many.
pub(crate) async fn until_replicas(world: &World, name: &str, wished: i32) -> StatefulSet {
    world
        .until::<StatefulSet>(name, &format!("of {wished}"), |set| replicas(set) == wished)
        .await
}

/// Where the first write of this kind and name by the operator is.
fn first(writes: &[Write], resource: &str, name: &str) -> usize {
    let found = writes.iter().position(|write| {
        write.resource == resource && write.name == name && write.subresource.is_empty()
    });
    found.unwrap_or_else(|| panic!("no write of {resource} {name} in {writes:#?}"))
}

#[tokio::test]
async fn a_set_is_built_service_first_then_token_then_workload() {
    let controller = network::shared_controller().await;
    let world = World::new("built").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    network::until_ready(&world).await;
    let audit = world.audit();
    let born = tokio::spawn(first_seen(&world));
    let set = world
        .create::<ZitiRouter>(zitirouter("built", 2, json!({"roleAttributes": ["red"]})))
        .await;
    let stateful_set = until_replicas(&world, "built", 2).await;
    for pod in ["built-0", "built-1"] {
        // Admitted by the restricted Pod Security Standard, which the namespace enforces.
        world.until::<Pod>(pod, "made", |_| true).await;
    }

    let writes = audit.writes_by(&world.operator_user()).unwrap();
    let workload = first(&writes, "statefulsets", "built");
    for member in ["built-0", "built-1"] {
        let service = first(&writes, "services", member);
        let er = first(&writes, "edgerouters", member);
        let token = first(&writes, "secrets", &names::enrollment_secret(member));
        let mounted = first(&writes, "secrets", "built-tokens");
        assert!(
            service < er && er < token && token < workload,
            "{writes:#?}"
        );
        assert!(mounted < workload, "{writes:#?}");
    }
    for er in born.await.unwrap() {
        let finalizers = er.metadata.finalizers.unwrap();
        for finalizer in [names::FINALIZER_EDGE_ROUTER, names::FINALIZER_IN_USE] {
            assert!(finalizers.iter().any(|f| f == finalizer), "{finalizers:?}");
        }
        let owner = &er.metadata.owner_references.unwrap()[0];
        assert_eq!(Some(&owner.uid), set.metadata.uid.as_ref());
        assert_eq!(er.spec.role_attributes, ["red"]);
    }
    for member in ["built-0", "built-1"] {
        let token = world.secret_value("built-tokens", member).await.unwrap();
        let token = EnrollmentToken::parse(&token).unwrap();
        let er: EdgeRouter = world.get(member).await;
        assert_eq!(Some(token.subject()), er.status.unwrap().id.as_deref());
        let service: Service = world.get(member).await;
        assert_eq!(
            service.spec.unwrap().publish_not_ready_addresses,
            Some(true)
        );
    }
    workload_is_as_designed(&stateful_set);
}

/// Every EdgeRouter as it was when it was first seen; ends with the second.
fn first_seen(world: &World) -> impl Future<Output = Vec<EdgeRouter>> + Send + use<> {
    let events = watcher(world.api::<EdgeRouter>(), watcher::Config::default());
    let mut applied = Box::pin(events.applied_objects());
    async move {
        let mut seen: Vec<EdgeRouter> = Vec::new();
        let collect = async {
            while seen.len() < 2 {
                let er = applied.next().await.unwrap().unwrap();
                if seen
                    .iter()
                    .all(|known| known.metadata.name != er.metadata.name)
                {
                    seen.push(er);
                }
            }
        };
        tokio::time::timeout(PATIENCE, collect).await.unwrap();
        seen
    }
}

fn workload_is_as_designed(set: &StatefulSet) {
    let spec = set.spec.as_ref().unwrap();
    assert_eq!(spec.pod_management_policy.as_deref(), Some("Parallel"));
    let strategy = spec.update_strategy.as_ref().unwrap();
    assert_eq!(strategy.type_.as_deref(), Some("OnDelete"));
    let retention = spec
        .persistent_volume_claim_retention_policy
        .as_ref()
        .unwrap();
    assert_eq!(retention.when_deleted.as_deref(), Some("Retain"));
    assert_eq!(retention.when_scaled.as_deref(), Some("Retain"));
    let pod = spec.template.spec.as_ref().unwrap();
    assert_eq!(pod.automount_service_account_token, Some(false));
    assert_eq!(pod.enable_service_links, Some(false));
    let (init, router) = (
        &pod.init_containers.as_ref().unwrap()[0],
        &pod.containers[0],
    );
    assert_eq!(init.image.as_deref(), Some(AGENT_IMAGE));
    assert_eq!(router.image.as_deref(), Some(ROUTER_IMAGE));
    for container in [init, router] {
        let context = container.security_context.as_ref().unwrap();
        assert_eq!(context.allow_privilege_escalation, Some(false));
        assert_eq!(context.read_only_root_filesystem, Some(true));
    }
    // A pod is given its own key alone.
    let token = init
        .volume_mounts
        .iter()
        .flatten()
        .find(|mount| mount.name == "tokens");
    assert_eq!(
        token.unwrap().sub_path_expr.as_deref(),
        Some("$(ZITI_MEMBER)")
    );
    let of_router = router.volume_mounts.iter().flatten();
    assert!(of_router.clone().all(|mount| mount.name != "tokens"));
}

#[tokio::test]
async fn a_key_is_there_for_every_member_at_all_times_and_growth_waits_for_tokens() {
    let controller = network::shared_controller().await;
    let world = World::new("grows").await;
    network::connect(&world, &controller).await;
    let ziti = network::admin(&controller);
    // The second member cannot be registered, and so holds back the third, never the first.
    let theirs = network::register(&ziti, "grows-1", json!({})).await;
    let _operator = Operator::start(&world);
    let watched = tokio::spawn(versions_until_three_tokens(&world));
    world
        .create::<ZitiRouter>(zitirouter("grows", 3, json!({})))
        .await;
    until_replicas(&world, "grows", 1).await;
    world
        .told::<ZitiRouter>("grows", "Ready", "False", api::reasons::NAME_TAKEN)
        .await;
    world.token("grows-2").await;
    assert_eq!(replicas(&world.get("grows").await), 1);
    let claims = world.list::<PersistentVolumeClaim>().await;
    assert!(claims.len() <= 1, "{claims:?}");

    ziti.delete_edge_router(&theirs.id).await.unwrap();
    until_replicas(&world, "grows", 3).await;
    for secret in watched.await.unwrap() {
        let data = secret.data.unwrap_or_default();
        let keys: Vec<&str> = data.keys().map(String::as_str).collect();
        assert_eq!(keys, ["grows-0", "grows-1", "grows-2"]);
    }
}

/// Every version of `grows-tokens` up to the first that holds three tokens.
fn versions_until_three_tokens(world: &World) -> impl Future<Output = Vec<Secret>> + Send + use<> {
    let config = watcher::Config::default().fields("metadata.name=grows-tokens");
    let events = watcher(world.api::<Secret>(), config);
    let mut applied = Box::pin(events.applied_objects());
    async move {
        let mut versions = Vec::new();
        let collect = async {
            loop {
                let secret: Secret = applied.next().await.unwrap().unwrap();
                let tokens = secret
                    .data
                    .iter()
                    .flatten()
                    .filter(|(_, token)| !token.0.is_empty());
                let full = tokens.count() == 3;
                versions.push(secret);
                if full {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, collect).await.unwrap();
        versions
    }
}
