//! `ziti-operator spread`: one ZitiRouter in many clusters is a ZitiRouter for each. This
//! prints them, made of one manifest, for `kubectl apply`. `main` calls [`run`].
//!
//! It works on what is written, not on our types: a field that this version does not know
//! goes through as it is.

use crate::{documents, preview};
use anyhow::{Context, Result, bail, ensure};
use api::{ZitiCluster, names};
use clap::{ArgGroup, Args};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The longest name of a ZitiRouter, and of one of topology PerMember. The API server
/// holds both (`api::router`).
const LONGEST: usize = 52;
const LONGEST_PER_MEMBER: usize = 49;

/// What the API server writes into metadata, and takes from nobody.
const SERVERS: [&str; 7] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "uid",
];
/// What kubectl keeps for itself.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("where").required(true),
    after_help = "Apply what is printed where the operator is:\n\n  \
ziti-operator spread -f edge.yaml --clusters region=eu | kubectl apply -n ziti -f -\n\n\
Each is named <name>-<cluster> and has the label openziti.io/spread=<name>, by which they are found together:\n\n  \
kubectl get zr -n ziti -l openziti.io/spread=edge\n\n\
To take away those of clusters that are no longer among them, add to `kubectl apply`:\n\n  \
--prune -l openziti.io/spread=edge --prune-allowlist=openziti.io/v1alpha1/ZitiRouter"
)]
pub(crate) struct SpreadArgs {
    /// The file with the ZitiRouter; `-` for standard input.
    #[arg(short, long)]
    file: PathBuf,

    /// Label selector of ZitiClusters, which are read by KUBECONFIG from the
    /// ZitiRouter's namespace.
    #[arg(long, value_name = "SELECTOR", group = "where")]
    clusters: Option<String>,

    /// Name of a ZitiCluster; may be given more than once. Nothing is read then.
    #[arg(long, value_name = "NAME", group = "where")]
    cluster: Vec<String>,

    /// Namespace of the ZitiClusters, where the file names none. Default: that
    /// of KUBECONFIG.
    #[arg(short, long, requires = "clusters")]
    namespace: Option<String>,
}

/// Print a ZitiRouter for each cluster.
pub(crate) fn run(args: &SpreadArgs) -> Result<()> {
    let documents = documents::parse(&documents::read(&args.file)?)?;
    let [document] = documents.as_slice() else {
        bail!(
            "{} documents in {}: give one ZitiRouter",
            documents.len(),
            args.file.display()
        );
    };
    let clusters: BTreeSet<String> = match &args.clusters {
        None => args.cluster.iter().cloned().collect(),
        Some(selector) => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("starting the runtime")?;
            let written = document["metadata"]["namespace"].as_str();
            let namespace = written.or(args.namespace.as_deref());
            runtime.block_on(select(selector, namespace))?
        }
    };
    documents::print(&spread(document, &clusters)?)
}

/// The ZitiClusters with these labels. One that is being deleted waits for its
/// ZitiRouters to go, and gets none.
async fn select(selector: &str, namespace: Option<&str>) -> Result<BTreeSet<String>> {
    let client = preview::connect().await?;
    let namespace = namespace.unwrap_or(client.default_namespace()).to_owned();
    let api: Api<ZitiCluster> = Api::namespaced(client, &namespace);
    let listed = api.list(&ListParams::default().labels(selector)).await;
    let listed = listed.with_context(|| {
        format!("listing the ZitiClusters of namespace {namespace} with the labels {selector}")
    })?;
    let stays = |cluster: &&ZitiCluster| cluster.meta().deletion_timestamp.is_none();
    let found: BTreeSet<String> = listed
        .iter()
        .filter(stays)
        .map(ResourceExt::name_any)
        .collect();
    // With --prune, nothing would mean that all of them go.
    ensure!(
        !found.is_empty(),
        "namespace {namespace} has no ZitiCluster with the labels {selector}: see `kubectl get zcl -n {namespace} --show-labels`"
    );
    Ok(found)
}

/// The ZitiRouter for each of these clusters.
fn spread(document: &Value, clusters: &BTreeSet<String>) -> Result<Vec<Value>> {
    let of_group = |version: &str| version.starts_with(&format!("{}/", api::GROUP));
    let kind = document["kind"].as_str().unwrap_or("nothing");
    ensure!(
        kind == "ZitiRouter" && document["apiVersion"].as_str().is_some_and(of_group),
        "this is a {kind} ({}): give a ZitiRouter of {}",
        document["apiVersion"].as_str().unwrap_or("of no version"),
        api::GROUP
    );
    let Some(name) = document["metadata"]["name"].as_str() else {
        bail!("the ZitiRouter has no metadata.name");
    };
    let spec = &document["spec"];
    if let Some(cluster) = spec["clusterRef"]["name"].as_str() {
        bail!(
            "ZitiRouter {name} is in cluster {cluster} already: take spec.clusterRef out of the file"
        );
    }
    ensure!(
        spec["tokens"].is_null(),
        "the tokens in spec.tokens of ZitiRouter {name} are by the names of its members, and those will be {name}-<cluster>-0, …: \
         put them into a Secret by these names, and name that in spec.tokensSecretRef"
    );
    let per_member = spec["topology"] == "PerMember";
    let longest = if per_member {
        LONGEST_PER_MEMBER
    } else {
        LONGEST
    };
    clusters
        .iter()
        .map(|cluster| placed(document, name, cluster, longest))
        .collect()
}

/// The ZitiRouter for one cluster.
fn placed(document: &Value, name: &str, cluster: &str, longest: usize) -> Result<Value> {
    let full = format!("{name}-{cluster}");
    ensure!(
        full.len() <= longest,
        "the ZitiRouter for cluster {cluster} would be named {full}, which has {} characters, and it may have {longest}: give \
         ZitiRouter {name} a shorter name, or make the ZitiCluster anew with one",
        full.len()
    );
    ensure!(
        !full.contains('.'),
        "the ZitiRouter for cluster {cluster} would be named {full}, and pods cannot carry a name with a dot: make the ZitiCluster \
         anew with another name"
    );
    let mut object = document.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    let metadata = map(&mut object, "metadata")?;
    for field in SERVERS {
        metadata.remove(field);
    }
    metadata.insert("name".to_owned(), json!(full));
    let metadata = &mut object["metadata"];
    map(metadata, "labels")?.insert(names::LABEL_SPREAD.to_owned(), json!(name));
    // By an index, one that is not there would be made.
    let annotations = metadata.get_mut("annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    map(&mut object, "spec")?.insert("clusterRef".to_owned(), json!({"name": cluster}));
    Ok(object)
}

/// The map under a key, made where there is none.
fn map<'a>(object: &'a mut Value, key: &str) -> Result<&'a mut Map<String, Value>> {
    let fields = object.as_object_mut();
    let field = fields.map(|fields| fields.entry(key).or_insert(Value::Null));
    let field = field.with_context(|| format!("what holds {key} is no map"))?;
    if field.is_null() {
        *field = json!({});
    }
    field
        .as_object_mut()
        .with_context(|| format!("{key} of the ZitiRouter is no map"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Value {
        json!({
            "apiVersion": "openziti.io/v1alpha1", "kind": "ZitiRouter",
            "metadata": {"name": "edge", "namespace": "ziti", "labels": {"team": "one"}},
            "spec": {"networkRef": {"name": "ziti"}, "replicas": 2, "ofTomorrow": {"a": [1]}},
        })
    }

    fn clusters(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn refused(document: &Value, cluster: &str) -> String {
        spread(document, &clusters(&[cluster]))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn each_cluster_gets_what_is_written_under_a_name_of_its_own() {
        let expected = |cluster: &str| {
            let mut object = written();
            object["metadata"]["name"] = json!(format!("edge-{cluster}"));
            object["metadata"]["labels"]["openziti.io/spread"] = json!("edge");
            object["spec"]["clusterRef"] = json!({"name": cluster});
            object
        };
        let printed = spread(&written(), &clusters(&["west", "east", "west"])).unwrap();
        assert_eq!(printed, [expected("east"), expected("west")]);
    }

    #[test]
    fn what_the_server_wrote_into_an_object_that_was_read_is_left_out() {
        let mut read = written();
        for field in SERVERS {
            read["metadata"][field] = json!("of the server");
        }
        read["metadata"]["annotations"] = json!({LAST_APPLIED: "{}", "mine": "kept"});
        read["status"] = json!({"replicas": 2});
        let mut expected = spread(&written(), &clusters(&["east"])).unwrap();
        expected[0]["metadata"]["annotations"] = json!({"mine": "kept"});
        assert_eq!(spread(&read, &clusters(&["east"])).unwrap(), expected);
    }

    #[test]
    fn names_that_would_be_too_long_are_refused_by_name() {
        let fits = "e".repeat(LONGEST - "edge-".len());
        assert!(spread(&written(), &clusters(&[&fits])).is_ok());
        let told = refused(&written(), &format!("{fits}e"));
        assert!(told.contains(&format!("edge-{fits}e")), "{told}");
        assert!(told.contains("53 characters"), "{told}");
        let mut per_member = written();
        per_member["spec"]["topology"] = json!("PerMember");
        assert!(refused(&per_member, &fits).contains("may have 49"));
        assert!(refused(&written(), "east.example").contains("with a dot"));
    }

    #[test]
    fn what_cannot_be_spread_is_refused() {
        let mut placed = written();
        placed["spec"]["clusterRef"] = json!({"name": "west"});
        assert!(refused(&placed, "east").contains("in cluster west already"));
        let mut tokens = written();
        tokens["spec"]["tokens"] = json!({"edge-0": "…"});
        assert!(refused(&tokens, "east").contains("tokensSecretRef"));
        let mut other = written();
        other["kind"] = json!("ZitiNetwork");
        assert!(refused(&other, "east").contains("this is a ZitiNetwork"));
        let mut unnamed = written();
        unnamed["metadata"] = Value::Null;
        assert!(refused(&unnamed, "east").contains("no metadata.name"));
    }
}
