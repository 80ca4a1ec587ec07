//! Binds the pod of a member to its node, as a DaemonSet does. With `nodeName`
//! instead nobody would ask whether the node can take it. There is no other node
//! for it, so it stays where a node is not ready or cannot be reached.

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Toleration,
};

/// Add the node to whatever else is required of it.
pub(super) fn bind(spec: &mut PodSpec, node: &str) {
    let affinity = spec.affinity.get_or_insert_default();
    let of_nodes = affinity.node_affinity.get_or_insert_default();
    let required = of_nodes
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_with(NodeSelector::default);
    // One of the terms must hold, so each gets it.
    if required.node_selector_terms.is_empty() {
        required
            .node_selector_terms
            .push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        let by_name = NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.to_owned()]),
        };
        term.match_fields.get_or_insert_default().push(by_name);
    }
    let stays = ["not-ready", "unreachable"].map(|state| Toleration {
        key: Some(format!("node.kubernetes.io/{state}")),
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    });
    spec.tolerations.get_or_insert_default().extend(stays);
}
