//! What the chart renders, by the real Helm: the rights that it gives, each with its reason, and
//! what two releases may not share. That the rights are enough is shown by the tests of `apiserver`
//! and `e2e`, which run the operator with no others.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use testbed::command::Cmd;
use testbed::{operator_install, paths};

/// The objects of a release in namespace `ops`.
fn rendered(release: &str, set: &[&str]) -> Vec<Value> {
    let mut helm = Cmd::new(paths::program("helm").unwrap())
        .args(["template", release])
        .arg(operator_install::chart())
        .args(["--namespace", "ops", "--set", "installId=pier"])
        .args(["--set", "crds.install=false"]);
    for value in set {
        helm = helm.args(["--set", value]);
    }
    let text = helm.output().unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect()
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    let found = objects.iter().find(is);
    found.unwrap_or_else(|| panic!("no {kind} {name} is rendered"))
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// The rights of a role: `resource verb`.
fn rights(role: &Value) -> BTreeSet<String> {
    let mut rights = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for resource in texts(&rule["resources"]) {
            for verb in texts(&rule["verbs"]) {
                let right = format!("{resource} {verb}");
                assert!(rights.insert(right.clone()), "{right} is given twice");
            }
        }
    }
    rights
}

/// Resources, verbs, and what the operator does with them.
type Reasons = &'static [(&'static str, &'static str, &'static str)];

fn reasoned(reasons: Reasons) -> BTreeSet<String> {
    let mut rights = BTreeSet::new();
    for (resources, verbs, _) in reasons {
        for resource in resources.split(' ') {
            rights.extend(verbs.split(' ').map(|verb| format!("{resource} {verb}")));
        }
    }
    rights
}

/// In the namespaces that it serves.
const OPERATOR: Reasons = &[
    (
        "zitinetworks zitirouters edgerouters ziticontrollers ziticlusters",
        "list watch",
        "they are its work",
    ),
    (
        "zitinetworks",
        "get",
        "a reconcile of a set reads the network live",
    ),
    (
        "zitirouters ziticontrollers",
        "get",
        "a decision is carried out only for the wish that is there now",
    ),
    (
        "edgerouters",
        "get",
        "what has the name of a member is looked at before it is claimed",
    ),
    (
        "zitinetworks zitirouters edgerouters ziticontrollers ziticlusters",
        "patch",
        "finalizers",
    ),
    (
        "zitinetworks",
        "create delete",
        "the one that a ZitiController publishes",
    ),
    ("edgerouters", "create delete", "one for each member"),
    (
        "zitinetworks/status zitirouters/status edgerouters/status ziticontrollers/status ziticlusters/status",
        "patch",
        "status",
    ),
    (
        "zitinetworks/finalizers zitirouters/finalizers edgerouters/finalizers ziticontrollers/finalizers",
        "update",
        "owner references that hold up a deletion, where the cluster asks for this right",
    ),
    (
        "statefulsets poddisruptionbudgets ingresses networkpolicies tlsroutes services configmaps",
        "get list create patch delete",
        "made, looked at before they are claimed, put back, taken away",
    ),
    (
        "statefulsets poddisruptionbudgets ingresses networkpolicies services configmaps",
        "watch",
        "put back at once; a kind that a cluster may lack is read with the rest",
    ),
    (
        "certificates",
        "get list create patch delete",
        "those of a ZitiController whose certificates come from cert-manager",
    ),
    (
        "certificates/status",
        "patch",
        "a new one is asked for where the issuer's own certificate ends before it",
    ),
    (
        "secrets",
        "get list watch",
        "those that objects of ours name, and the tokens of members",
    ),
    (
        "secrets",
        "create patch",
        "the tokens of members, the operator's own identity, the certificates of controllers",
    ),
    (
        "secrets",
        "delete",
        "certificates and administrator of a ZitiController that keeps nothing",
    ),
    (
        "pods persistentvolumeclaims",
        "list watch",
        "what members run and hold",
    ),
    (
        "cronjobs",
        "get list watch create patch delete",
        "the backups of a ZitiController: made, looked at before they are claimed, put back, taken away",
    ),
    ("jobs", "list watch", "what became of backups"),
    (
        "jobs",
        "create delete",
        "what fetches a backup for a restore",
    ),
    (
        "persistentvolumeclaims",
        "create",
        "the volume on which a restore puts the database, before a member has it",
    ),
    ("pods", "delete", "a rollout"),
    (
        "persistentvolumeclaims",
        "delete",
        "the volume of a member that left",
    ),
    ("events", "create patch", "what was done, and how often"),
    (
        "events",
        "list",
        "why Kubernetes refuses pods stands nowhere else",
    ),
];

/// More in the namespaces that it serves, where the chart is told so.
const SERVICE_ACCOUNTS: Reasons = &[
    (
        "serviceaccounts",
        "get",
        "whether its tokens may be sent to another cluster",
    ),
    (
        "serviceaccounts/token",
        "create",
        "the credential of a ZitiCluster",
    ),
];

const LEADER: Reasons = &[
    ("leases", "create", "the first to come"),
    ("leases", "get update", "take, renew, release"),
    ("namespaces", "get", "its own, whose uid goes into tags"),
];

const NODES: Reasons = &[("nodes", "list watch", "topology PerNode")];

/// For a person, see docs/cli.md.
const PLAN: Reasons = &[
    (
        "zitinetworks edgerouters zitirouters ziticontrollers statefulsets cronjobs jobs certificates \
         poddisruptionbudgets ingresses networkpolicies tlsroutes services configmaps secrets pods \
         persistentvolumeclaims nodes",
        "get list",
        "what the controllers read",
    ),
    ("events", "list", "why Kubernetes refuses pods"),
    (
        "zitinetworks edgerouters zitirouters ziticontrollers",
        "create update",
        "the dry run of a file",
    ),
];

#[test]
fn the_chart_gives_each_right_that_has_a_reason_and_no_other() {
    let objects = rendered("zop", &[]);
    let roles = [
        ("ClusterRole", "ops-zop-ziti-operator", OPERATOR),
        ("ClusterRole", "ops-zop-ziti-operator-nodes", NODES),
        ("ClusterRole", "ops-zop-ziti-operator-plan", PLAN),
        ("Role", "zop-ziti-operator-leader", LEADER),
    ];
    for (kind, name, reasons) in roles {
        assert_eq!(
            rights(named(&objects, kind, name)),
            reasoned(reasons),
            "{name}"
        );
    }
    // Nobody has the person's role by the chart.
    let mut bindings = objects
        .iter()
        .filter(|object| object["roleRef"].is_object());
    assert!(bindings.all(|binding| binding["roleRef"]["name"] != "ops-zop-ziti-operator-plan"));

    // The same within the namespaces that are served, and nothing for the whole cluster.
    let narrow = [
        "watchNamespaces={a,b}",
        "rbac.nodes=false",
        "rbac.aggregate=false",
    ];
    let objects = rendered("zop", &narrow);
    let of_cluster = |object: &&Value| object["kind"].as_str().unwrap().starts_with("Cluster");
    assert_eq!(objects.iter().find(of_cluster), None);
    let role = named(&objects, "Role", "ops-zop-ziti-operator");
    assert_eq!(rights(role), reasoned(OPERATOR));

    let objects = rendered("zop", &["rbac.serviceAccountTokens=true"]);
    let role = named(&objects, "ClusterRole", "ops-zop-ziti-operator");
    let more = &reasoned(OPERATOR) | &reasoned(SERVICE_ACCOUNTS);
    assert_eq!(rights(role), more);
}

/// A Lease of one name would let one of two releases wait for ever.
#[test]
fn two_releases_in_one_namespace_share_no_object_and_no_lease() {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for (release, lease) in [
        ("east", "east-ziti-operator"),
        ("ziti-operator", "ziti-operator"),
    ] {
        let objects = rendered(release, &[]);
        for object in &objects {
            let name = object["metadata"]["name"].as_str().unwrap();
            let key = format!("{} {name}", object["kind"]);
            assert_eq!(
                seen.insert(key, release),
                None,
                "{name} is of both releases"
            );
        }
        let deployment = named(&objects, "Deployment", lease);
        let args = texts(&deployment["spec"]["template"]["spec"]["containers"][0]["args"]);
        assert!(args.contains(&format!("--lease-name={lease}")), "{args:?}");
        let role = named(&objects, "Role", &format!("{lease}-leader"));
        assert_eq!(
            role["rules"][0]["resourceNames"][0], *lease,
            "the right is for this one"
        );
    }
}

/// `ziti-operator plan` in the pod would otherwise read nodes that it may not, and tell a failure.
#[test]
fn who_plans_in_the_operators_pod_knows_whether_nodes_may_be_read() {
    for (value, told) in [("rbac.nodes=true", "true"), ("rbac.nodes=false", "false")] {
        let objects = rendered("zop", &[value]);
        let deployment = named(&objects, "Deployment", "zop-ziti-operator");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let mut env = container["env"].as_array().unwrap().iter();
        let nodes = env.find(|variable| variable["name"] == "ZITI_OPERATOR_NODES");
        assert_eq!(nodes.unwrap()["value"], *told);
    }
}

/// What Helm makes by chance changes at each sync of a tool that renders charts: passwords and
/// certificates would be replaced under those who use them.
#[test]
fn the_chart_renders_the_same_each_time_and_no_secret() {
    let objects = rendered("zop", &[]);
    assert_eq!(objects, rendered("zop", &[]));
    assert!(objects.iter().all(|object| object["kind"] != "Secret"));
}
