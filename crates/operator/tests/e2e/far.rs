//! The second cluster, as tests use it: what a person does to let the hub in, what may pass between
//! the two, and what is there. One test at a time has it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{ZitiCluster, names};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::DeleteParams;
use kube::{Api, Client, Resource};
use serde_json::{Value, json};
use testbed::audit::AuditLog;
use testbed::cluster::{Passage, Second};
use testbed::command::Cmd;
use testbed::{dump, kubernetes};
use tokio::sync::{Mutex, MutexGuard};

use crate::objects::truth;
use crate::stage::{self, LONG_LIFE, PATIENCE, Stage, say};

/// The namespace of the routers there. It is another one than at the hub: what is advertised has to
/// be named after it.
const THERE: &str = "e2e-far";
/// The account that `ziti-operator cluster-credential` prints.
pub(crate) const ACCOUNT: &str = "ziti-operator-hub";
/// The kinds that a set may have there, for kubectl.
const KINDS: &str = "statefulsets,pods,services,configmaps,secrets,persistentvolumeclaims,\
    poddisruptionbudgets,ingresses,networkpolicies,serviceaccounts,roles,rolebindings";
/// What is in every namespace, and what the person put there.
const OTHERS: [&str; 6] = [
    "configmap/kube-root-ca.crt",
    "serviceaccount/default",
    "serviceaccount/ziti-operator-hub",
    "secret/ziti-operator-hub",
    "role.rbac.authorization.k8s.io/ziti-operator-hub",
    "rolebinding.rbac.authorization.k8s.io/ziti-operator-hub",
];

static ALONE: Mutex<()> = Mutex::const_new(());

/// The second cluster in the hands of one test.
pub(crate) struct Far {
    second: Second,
    /// With all rights, from outside of both clusters.
    pub(crate) client: Client,
    /// Where the routers are there.
    pub(crate) namespace: &'static str,
    asked: AuditLog,
    _alone: MutexGuard<'static, ()>,
}

/// Plays a test with both clusters, beside all others.
pub(crate) fn play(name: &str, act: impl AsyncFnOnce(&Stage, &Far) -> Result<()>) {
    stage::play_beside(name, LONG_LIFE, async |stage| {
        let far = Far::take(stage).await?;
        let outcome = Box::pin(act(stage, &far)).await;
        if outcome.is_err() {
            say(&dump::namespace(&far.second.cluster().kubeconfig(), THERE));
        }
        // So that what is cleared away at the hub can be cleared away there.
        far.set(Passage::Open)?;
        outcome
    });
}

impl Far {
    /// Waits until no other test has it; makes the namespace anew.
    async fn take(stage: &Stage) -> Result<Self> {
        let alone = ALONE.lock().await;
        let second = stage.environment.cluster()?.second()?;
        second.set(Passage::Open)?;
        let client = second.cluster().client().await?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        // What an earlier test left.
        match namespaces.delete(THERE, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            deleted => {
                deleted.context("deleting the namespace there")?;
            }
        }
        let gone = |namespace: Option<&Namespace>| namespace.is_none();
        kubernetes::wait_for(namespaces, THERE, "gone", gone, PATIENCE).await?;
        let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": THERE, "labels": labels}});
        kubernetes::apply(&client, namespace, THERE).await?;
        let asked = AuditLog::from_now(&second.cluster().audit_log());
        Ok(Self {
            second,
            client,
            namespace: THERE,
            asked,
            _alone: alone,
        })
    }

    /// Says what passes between the clusters from now on.
    pub(crate) fn set(&self, passage: Passage) -> Result<()> {
        self.second.set(passage)
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), THERE)
    }

    /// The cluster itself.
    pub(crate) fn cluster(&self) -> &testbed::cluster::Cluster {
        self.second.cluster()
    }

    /// Runs the program as whoever has all rights there; returns what it prints.
    pub(crate) fn program(&self, args: &[&str]) -> Result<String> {
        Cmd::new(env!("CARGO_BIN_EXE_ziti-operator"))
            .args(args)
            .env("KUBECONFIG", self.cluster().kubeconfig())
            .timeout(Duration::from_secs(30))
            .output()
    }

    /// What the hub needs there, as the program prints it.
    fn grant(&self) -> Result<String> {
        self.program(&["cluster-credential", "--namespace", THERE])
    }

    /// Lets the hub in, as a person does by the two commands of the documentation, and waits until it
    /// is.
    pub(crate) async fn let_in(&self, stage: &Stage, cluster: &str) -> Result<()> {
        self.apply(&self.grant()?)?;
        self.hand_over(stage, cluster, &[]).await
    }

    /// The second of the two commands: the account's token is brought to the hub. Waits until the
    /// cluster is reached with it.
    pub(crate) async fn hand_over(
        &self,
        stage: &Stage,
        cluster: &str,
        more: &[&str],
    ) -> Result<()> {
        let mut args = vec!["cluster-credential", "--namespace", THERE];
        args.extend(["--cluster", cluster]);
        args.extend(more);
        let mut last = None;
        let for_the_hub = kubernetes::poll("the account's token", PATIENCE, async || {
            match self.program(&args) {
                Ok(printed) => Ok(Some(printed)),
                Err(error) => {
                    last = Some(error);
                    Ok(None)
                }
            }
        });
        let for_the_hub = for_the_hub.await.with_context(|| format!("{last:?}"))?;
        kubernetes::apply_yaml(&stage.client, &for_the_hub, &stage.namespace).await?;
        until_reached(stage, cluster).await
    }

    /// What is in the namespace besides what is in every namespace and what lets the hub in, as
    /// kubectl names it.
    pub(crate) fn things(&self) -> Result<Vec<String>> {
        let listed = self.kubectl(&["get", KINDS, "--output", "name"])?;
        let mut things: Vec<String> = listed.lines().map(str::to_owned).collect();
        things.retain(|thing| !OTHERS.contains(&thing.as_str()));
        Ok(things)
    }

    /// kubectl in the namespace there; returns its output.
    pub(crate) fn kubectl(&self, args: &[&str]) -> Result<String> {
        kubernetes::kubectl(&self.cluster().kubeconfig(), None)?
            .args(["--namespace", THERE])
            .args(args)
            .output()
    }

    /// kubectl apply, as whoever has access there does it.
    pub(crate) fn apply(&self, manifest: &str) -> Result<()> {
        kubernetes::kubectl(&self.cluster().kubeconfig(), None)?
            .args(["apply", "--filename", "-"])
            .stdin(manifest)
            .run()
    }

    /// Fails where the hub asked for something that the program does not print, and returns what is
    /// printed and was not asked for in this test.
    pub(crate) fn unused_rights(&self) -> Result<BTreeSet<String>> {
        let user = format!("system:serviceaccount:{THERE}:{ACCOUNT}");
        let mut granted = BTreeSet::new();
        let printed: Vec<Value> =
            serde_saphyr::from_multiple(&self.grant()?).context("reading what is printed")?;
        for rule in printed
            .iter()
            .filter_map(|object| object["rules"].as_array())
            .flatten()
        {
            let words = |key: &str| -> Vec<String> {
                let words = rule[key].as_array().into_iter().flatten();
                words
                    .filter_map(|word| word.as_str().map(str::to_owned))
                    .collect()
            };
            for (group, resource, verb) in
                product(&words("apiGroups"), &words("resources"), &words("verbs"))
            {
                let group = if group.is_empty() {
                    String::new()
                } else {
                    format!(".{group}")
                };
                granted.insert(format!("{verb} {resource}{group}"));
            }
        }
        let asked = self.asked.asked_by(&user)?;
        let mut exercised = BTreeSet::new();
        for (right, answers) in &asked {
            exercised.insert(right.clone());
            // Server-side apply is asked for as a patch, and needs both.
            if let (Some(kind), true) = (right.strip_prefix("patch "), answers.contains(&201)) {
                exercised.insert(format!("create {kind}"));
            }
            // Whoever is logged in may ask what it may do.
            let own = right.ends_with(".authorization.k8s.io");
            ensure!(
                own || granted.contains(right),
                "asked for and not printed: {right}"
            );
            ensure!(!answers.contains(&403), "{right} was refused");
        }
        granted.retain(|right| !exercised.contains(right));
        Ok(granted)
    }
}

fn product<'a>(
    groups: &'a [String],
    resources: &'a [String],
    verbs: &'a [String],
) -> impl Iterator<Item = (&'a String, &'a String, &'a String)> {
    groups.iter().flat_map(move |group| {
        resources
            .iter()
            .flat_map(move |resource| verbs.iter().map(move |verb| (group, resource, verb)))
    })
}

/// Waits until the hub may work in the cluster.
pub(crate) async fn until_reached(stage: &Stage, cluster: &str) -> Result<()> {
    stage
        .until(cluster, "reached", |cluster: &ZitiCluster| {
            let generation = cluster.metadata.generation;
            cluster.status.as_ref().is_some_and(|status| {
                status.observed_generation == generation
                    && truth(&status.conditions, "Ready") == Some("True")
            })
        })
        .await?;
    Ok(())
}

/// The labels of what a set has.
pub(crate) fn of_set(set: &str) -> String {
    format!("{}={set}", names::LABEL_SET)
}
