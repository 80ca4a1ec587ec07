//! What somebody applies in the other cluster, so that the operator may work
//! there: an account, its token, and a Role with [`RIGHTS`] and nothing else.

use super::rights::{NODES, RIGHTS, Right};
use api::names;
use serde_json::{Value, json};

/// The objects, for that namespace. `name` is that of all of them; the token is
/// put into the Secret by the cluster, and is good until it is deleted.
pub fn objects(name: &str, namespace: &str) -> Vec<Value> {
    let metadata = || {
        json!({"name": name, "namespace": namespace, "labels": {
            names::LABEL_NAME: "ziti-operator-hub",
        }})
    };
    let mut token = metadata();
    token["annotations"] = json!({"kubernetes.io/service-account.name": name});
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata(),
            "automountServiceAccountToken": false,
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": token,
            "type": "kubernetes.io/service-account-token",
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": metadata(),
            "rules": RIGHTS.iter().map(rule).collect::<Vec<_>>(),
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata(),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }),
    ]
}

/// What has to be applied beside, where one router for each node is wanted there:
/// nodes belong to no namespace.
pub fn of_nodes(name: &str, namespace: &str) -> Vec<Value> {
    let metadata = || {
        json!({"name": format!("{name}-{namespace}-nodes"), "labels": {
            names::LABEL_NAME: "ziti-operator-hub",
        }})
    };
    vec![
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": metadata(),
            "rules": [rule(&NODES)],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata(),
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": format!("{name}-{namespace}-nodes"),
            },
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }),
    ]
}

fn rule(right: &Right) -> Value {
    json!({
        "apiGroups": [right.group],
        "resources": [right.resource],
        "verbs": right.verbs,
    })
}
