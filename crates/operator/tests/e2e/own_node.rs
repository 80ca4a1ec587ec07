//! A real node that one test has for itself: the pods of no other test are on it, so that it can be
//! drained and lost.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Taint};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::cluster::{FurtherNode, NodeOptions};
use testbed::command::Cmd;
use testbed::kubernetes;

use crate::stage::{PATIENCE, Stage};

/// Label and taint of a node that belongs to one test. The value is the test's namespace.
pub(crate) const OWNER: &str = "testbed.openziti.io/owner";
/// The node that all tests share.
pub(crate) const SHARED: &str = "node0";

const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";

/// Adds a node that is the stage's own. The stage's pods may run there from then on; see
/// [`Stage::pods_only_on`].
pub(crate) async fn add(stage: &Stage) -> Result<FurtherNode> {
    let cluster = stage.environment.cluster()?;
    let owner = &stage.namespace;
    for left in cluster.further_nodes() {
        // What an interrupted run left.
        if left.options()?.labels.get(OWNER) == Some(owner) {
            left.remove().await?;
        }
    }
    let tolerated = json!([{"key": OWNER, "value": owner, "effect": "NoSchedule"}]);
    annotate(stage, &json!({TOLERATIONS: tolerated.to_string()})).await?;
    let options = NodeOptions {
        labels: [(OWNER.to_owned(), owner.clone())].into(),
        taints: vec![Taint {
            key: OWNER.to_owned(),
            value: Some(owner.clone()),
            effect: "NoSchedule".to_owned(),
            time_added: None,
        }],
    };
    cluster.add_node(&options).await
}

async fn annotate(stage: &Stage, annotations: &Value) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    let patched = namespaces
        .patch(&stage.namespace, &PatchParams::default(), &patch)
        .await;
    patched.context("annotating the stage's namespace")?;
    Ok(())
}

impl Stage {
    /// The stage's pods that are made from now on run on that node only; on any without one.
    pub(crate) async fn pods_only_on(&self, node: Option<&str>) -> Result<()> {
        let selector = node.map(|node| format!("kubernetes.io/hostname={node}"));
        annotate(self, &json!({SELECTOR: selector})).await
    }

    /// Labels a node, or takes the label away.
    pub(crate) async fn label_node(
        &self,
        node: &str,
        key: &str,
        value: Option<&str>,
    ) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patched = nodes.patch(node, &PatchParams::default(), &patch).await;
        patched.with_context(|| format!("labelling node {node}"))?;
        Ok(())
    }

    /// Fails unless these pods run on that node.
    pub(crate) async fn expect_on(&self, node: &str, pods: &[&str]) -> Result<()> {
        for name in pods {
            let pod: Pod = self.get(name).await?;
            let has = pod.spec.and_then(|spec| spec.node_name);
            ensure!(
                has.as_deref() == Some(node),
                "pod {name} runs on {has:?}, not on {node}"
            );
        }
        Ok(())
    }

    /// kubectl with arguments of the test's own life, such as `drain`, which may take its time.
    pub(crate) async fn slow_kubectl(&self, args: &[&str]) -> Result<String> {
        let command: Cmd = kubernetes::kubectl(&self.environment.kubeconfig, None)?
            .args(args)
            .timeout(PATIENCE);
        tokio::task::spawn_blocking(move || command.output())
            .await
            .context("running kubectl")?
    }
}
