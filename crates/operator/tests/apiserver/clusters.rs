//! Another cluster, a real API server of its own: the credential that the program prints opens it,
//! with the rights that are needed and no others; each fault has its reason, says what to do, and
//! heals when it is mended, without a restart.

use std::process::Command;

use api::reasons::{self, types};
use api::{ZitiCluster, names};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::Role;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use testbed::apiserver::ApiServer;
use testbed::kubernetes;

use crate::operator::Operator;
use crate::world::{Told, World};

/// The namespace there.
pub(crate) const THERE: &str = "edge";
/// The account that the program prints.
const ACCOUNT: &str = "ziti-operator-hub";

/// The other cluster.
pub(crate) struct Far {
    pub(crate) server: ApiServer,
    pub(crate) url: String,
    pub(crate) ca: String,
}

impl Far {
    /// One in which was applied what the program prints.
    pub(crate) async fn start() -> Self {
        Self::of(ApiServer::start().await.unwrap()).await
    }

    /// The same on this API server.
    pub(crate) async fn of(server: ApiServer) -> Self {
        let config = Kubeconfig::read_from(server.kubeconfig()).unwrap();
        let cluster = config.clusters[0].cluster.clone().unwrap();
        let ca = match cluster.certificate_authority_data {
            Some(data) => String::from_utf8(STANDARD.decode(data).unwrap()).unwrap(),
            None => std::fs::read_to_string(cluster.certificate_authority.unwrap()).unwrap(),
        };
        let far = Self {
            server,
            url: cluster.server.unwrap(),
            ca,
        };
        far.namespace().await;
        far.grant().await;
        far
    }

    async fn namespace(&self) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": THERE}});
        kubernetes::apply(&self.server.client(), object, THERE)
            .await
            .unwrap();
    }

    pub(crate) async fn grant(&self) {
        kubernetes::apply_yaml(&self.server.client(), &printed(&[]), THERE)
            .await
            .unwrap();
    }

    /// A token of the account. No controller of this cluster fills the Secret.
    pub(crate) async fn token(&self) -> String {
        let api: Api<ServiceAccount> = Api::namespaced(self.server.client(), THERE);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(3600),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let params = PostParams::default();
        let answer = api.create_token_request(ACCOUNT, &params, &request).await;
        answer.unwrap().status.unwrap().token
    }

    pub(crate) fn spec(&self, credential: &Value) -> Value {
        json!({"server": self.url, "namespace": THERE, "credential": credential})
    }
}

/// What `ziti-operator cluster-credential` prints.
fn printed(more: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ziti-operator"))
        .args(["cluster-credential", "--namespace", THERE])
        .args(more)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) async fn create(world: &World, name: &str, spec: Value) {
    let object = json!({"metadata": {"name": name}, "spec": spec});
    world.create::<ZitiCluster>(object).await;
}

impl Told for ZitiCluster {
    fn conditions(&self) -> &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition] {
        self.status
            .as_ref()
            .map_or(&[], |status| &status.conditions)
    }
}

pub(crate) async fn ready(world: &World, name: &str) {
    world
        .told::<ZitiCluster>(name, types::READY, "True", reasons::READY)
        .await;
}

#[tokio::test]
async fn the_printed_rights_are_enough_and_each_of_them_is_asked_for() {
    let world = World::new("clusters").await;
    let far = Far::start().await;
    let _operator = Operator::start(&world);
    let values = json!({"token": far.token().await, "ca.crt": far.ca});
    world.secret("far", values).await;
    create(&world, "far", far.spec(&json!({"token": {"name": "far"}}))).await;
    ready(&world, "far").await;
    let status = world.get::<ZitiCluster>("far").await.status.unwrap();
    assert!(status.version.unwrap().starts_with("v1."));
    assert_eq!(status.missing_permissions, Vec::<String>::new());
    let namespaces: Api<Namespace> = Api::all(far.server.client());
    let namespace = namespaces.get(THERE).await.unwrap();
    assert_eq!(status.identity, namespace.metadata.uid);

    // One verb less, and it is named; given back, it is seen by itself.
    let roles: Api<Role> = Api::namespaced(far.server.client(), THERE);
    let mut role = roles.get(ACCOUNT).await.unwrap();
    let of_pods = role
        .rules
        .iter_mut()
        .flatten()
        .find(|rule| rule.resources == Some(vec!["pods".to_owned()]));
    of_pods.unwrap().verbs.retain(|verb| verb != "delete");
    let params = PostParams::default();
    roles.replace(ACCOUNT, &params, &role).await.unwrap();
    // A changed credential is judged anew.
    let values = json!({"token": far.token().await, "ca.crt": far.ca});
    world.secret("far", values).await;
    let message = world
        .told::<ZitiCluster>("far", types::READY, "False", reasons::PERMISSIONS_MISSING)
        .await;
    assert!(message.contains("may not delete pods in"), "{message}");
    far.grant().await;
    ready(&world, "far").await;

    // It goes, and needs nobody for that.
    world.delete::<ZitiCluster>("far").await;
    world.until_gone::<ZitiCluster>("far").await;
}

#[tokio::test]
async fn each_fault_has_a_reason_says_what_to_do_and_heals() {
    let world = World::new("bad-clusters").await;
    let far = Far::start().await;
    let _operator = Operator::start(&world);
    let token = far.token().await;
    let good = json!({"token": token, "ca.crt": far.ca});
    let other_ca = rcgen::generate_simple_self_signed(vec!["other".to_owned()]).unwrap();
    let by_token = |name: &str| far.spec(&json!({"token": {"name": name}}));
    let with = |name: &str, key: &str, value: &str| {
        let mut spec = by_token(name);
        spec[key] = json!(value);
        spec
    };
    let kubeconfig = |user: &Value| {
        let authority = STANDARD.encode(&far.ca);
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {
                "server": far.url, "certificate-authority-data": authority
            }}],
            "users": [{"name": "u", "user": user}],
        })
        .to_string()
    };
    let exec = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "id"}});
    let mut of_file = far.spec(&json!({"kubeconfig": {"name": "exec"}}));
    of_file.as_object_mut().unwrap().remove("server");
    // Name, spec, what its Secret holds first, reason, words of the message, and what mends it: the
    // Secret's values or a change of the spec.
    let absent = json!(null);
    let rows = [
        (
            "missing",
            by_token("missing"),
            absent.clone(),
            reasons::SOURCE_MISSING,
            "Secret missing does not exist",
            good.clone(),
        ),
        (
            "no-key",
            by_token("no-key"),
            json!({"tokem": "x", "ca.crt": far.ca}),
            reasons::KEY_MISSING,
            "has no key token",
            good.clone(),
        ),
        (
            "wrong-token",
            by_token("wrong-token"),
            json!({"token": "x.y.z", "ca.crt": far.ca}),
            reasons::BAD_CREDENTIALS,
            "Replace it",
            good.clone(),
        ),
        (
            "wrong-ca",
            by_token("wrong-ca"),
            json!({"token": token, "ca.crt": other_ca.cert.pem()}),
            reasons::CLUSTER_NOT_TRUSTED,
            "check the CA certificates",
            good.clone(),
        ),
        (
            "no-ca",
            by_token("no-ca"),
            json!({"token": token}),
            reasons::CLUSTER_NOT_TRUSTED,
            "spec.certificateAuthority",
            good.clone(),
        ),
        (
            "exec",
            of_file,
            json!({"kubeconfig": kubeconfig(&exec)}),
            reasons::CREDENTIAL_REFUSED,
            "runs a program to log in (exec)",
            json!({"kubeconfig": kubeconfig(&json!({"token": token}))}),
        ),
        (
            "wrong-name",
            with("wrong-name", "tlsServerName", "elsewhere"),
            good.clone(),
            reasons::CLUSTER_NOT_TRUSTED,
            "give spec.tlsServerName",
            json!({"spec": {"tlsServerName": "kubernetes"}}),
        ),
        (
            "away",
            with("away", "server", "https://127.0.0.1:1"),
            good.clone(),
            reasons::CLUSTER_UNREACHABLE,
            "what runs there is left alone",
            json!({"spec": {"server": far.url}}),
        ),
        (
            "accounts",
            far.spec(&json!({"serviceAccount": {"name": "default", "audience": "far"}})),
            absent.clone(),
            reasons::CLUSTER_NOT_TRUSTED,
            "the credential brings no CA certificates",
            absent,
        ),
    ];
    for (name, spec, values, ..) in &rows {
        if !values.is_null() {
            world.secret(name, values.clone()).await;
        }
        create(&world, name, spec.clone()).await;
    }
    for (name, _, _, reason, words, mended) in rows {
        let message = world
            .told::<ZitiCluster>(name, types::READY, "False", reason)
            .await;
        assert!(message.contains(words), "{name}: {message}");
        assert!(!message.contains(&token), "{name}: {message}");
        let away = world.get::<ZitiCluster>(name).await.status.unwrap();
        assert_eq!(
            away.away_since.is_some(),
            reason == reasons::CLUSTER_UNREACHABLE,
            "{name}"
        );
        if mended.is_null() {
            continue;
        }
        if mended["spec"].is_object() {
            world.patch::<ZitiCluster>(name, mended).await;
        } else {
            world.secret(name, mended).await;
        }
        ready(&world, name).await;
    }

    // Another namespace of that name is not the one known.
    let known = world.get::<ZitiCluster>("away").await;
    let known = known.status.unwrap().identity.unwrap();
    let namespaces: Api<Namespace> = Api::all(far.server.client());
    let finalize = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": THERE}, "spec": {"finalizers": []}});
    namespaces
        .delete(THERE, &DeleteParams::default())
        .await
        .unwrap();
    let params = PostParams::default();
    let _: Namespace = namespaces
        .replace_subresource("finalize", THERE, &params, &finalize)
        .await
        .unwrap();
    let annotate = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    world
        .patch::<ZitiCluster>("away", annotate("look", "1"))
        .await;
    let message = world
        .told::<ZitiCluster>("away", types::READY, "False", reasons::NAMESPACE_MISSING)
        .await;
    assert!(message.contains("no namespace edge"), "{message}");
    far.namespace().await;
    let message = world
        .told::<ZitiCluster>("away", types::READY, "False", reasons::CLUSTER_CHANGED)
        .await;
    assert!(message.contains(&known), "{message}");
    let found = namespaces.get(THERE).await.unwrap().metadata.uid.unwrap();
    let confirm = annotate(names::ANNOTATION_CONFIRM_CLUSTER, &found);
    world.patch::<ZitiCluster>("away", confirm).await;
    ready(&world, "away").await;
}
