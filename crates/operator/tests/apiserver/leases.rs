//! Which of several operators works: the Lease and its name.

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;
use testbed::kubernetes;

use crate::operator::{Operator, Options};
use crate::world::World;

/// Waits until somebody holds a Lease, and says who.
async fn holder(world: &World, lease: &str) -> String {
    let holder = |lease: &Lease| lease.spec.as_ref()?.holder_identity.clone();
    let held = |lease: &Lease| holder(lease).is_some();
    holder(&world.until::<Lease>(lease, "held", held).await).unwrap()
}

/// With one name for both, the second release would wait for ever and say no more than that.
#[tokio::test]
async fn two_releases_in_one_namespace_have_a_lease_each() {
    let world = World::new("leases").await;
    let first = ["--identity=first"];
    let options = Options {
        lease: Some(&first),
        ..Options::default()
    };
    // The rights are the chart's, for the default name alone.
    let _first = Operator::start_with(&world, &options);
    assert_eq!(holder(&world, "ziti-operator").await, "first");

    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "another-leader"},
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "resourceNames": ["another"], "verbs": ["get", "update"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "another-leader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "another-leader"},
        "subjects": [{"kind": "User", "name": world.operator_user(), "apiGroup": "rbac.authorization.k8s.io"}]});
    for object in [role, binding] {
        kubernetes::apply(&world.client, object, &world.namespace)
            .await
            .unwrap();
    }
    let second = ["--identity=second", "--lease-name=another"];
    let options = Options {
        lease: Some(&second),
        ..Options::default()
    };
    let _second = Operator::start_with(&world, &options);
    assert_eq!(holder(&world, "another").await, "second");
    assert_eq!(holder(&world, "ziti-operator").await, "first");
}
