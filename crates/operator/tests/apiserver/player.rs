//! Plays the kubelet of a node that does not exist. The StatefulSet's controller is real and makes
//! real pods and claims; scheduling a pod, running its containers, reporting what they did and
//! letting a stopped pod go are done here, by the API calls that a kubelet makes. What the agent's
//! init container does is played with the same enrollment code, against the real controller, and
//! its report is written as the kubelet would pass it on. No container ever runs; where a test needs
//! a router that connects, it is a real `ziti router run` on loopback.

use api::names;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::ziti::{LocalRouter, RouterOptions};
use ziti::enroll::{RouterEnrollment, RouterIdentity, enroll_router};
use ziti::pki::{Key, Sans};
use ziti::token::EnrollmentToken;

use crate::world::{PATIENCE, World};

/// The node.
const NODE: &str = "played";

/// The kubelet of one set's pods.
pub(crate) struct Player<'a> {
    world: &'a World,
    set: String,
}

/// An identity on a member's volume.
pub(crate) struct Enrolled {
    pub(crate) token: String,
    pub(crate) key: Key,
    pub(crate) identity: RouterIdentity,
}

/// Redeems a router's token with a new key, for the names of a router on loopback.
pub(crate) async fn redeem(token: &EnrollmentToken) -> (Key, RouterIdentity) {
    let key = Key::generate().unwrap();
    let sans = Sans {
        dns: vec!["localhost".to_owned()],
        ips: vec![LocalRouter::ADDRESS.parse().unwrap()],
        uris: Vec::new(),
    };
    let enrollment = RouterEnrollment {
        key: &key,
        sans: &sans,
        ca: None,
        timeout: PATIENCE,
    };
    let identity = enroll_router(token, &enrollment).await.unwrap();
    (key, identity)
}

impl Enrolled {
    /// What `ziti-agent enroll` leaves behind.
    pub(crate) fn report(&self) -> Value {
        let token = EnrollmentToken::parse(&self.token).unwrap();
        json!({"outcome": "Enrolled", "message": "enrolled", "routerId": self.identity.id,
            "fingerprint": self.identity.fingerprint,
            "notAfter": self.identity.not_after.to_string(), "tokenDigest": token.digest()})
    }

    /// Runs a real router on this identity.
    pub(crate) fn run(&self) -> (LocalRouter, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let endpoints = self.identity.controllers.join("\n- ");
        for (name, content) in [
            ("ziti-router.key", self.key.expose_pem()),
            ("ziti-router.cert", &self.identity.cert_pem),
            (
                "ziti-router.server.chain.cert",
                &self.identity.server_cert_pem,
            ),
            ("ziti-router.cas", &self.identity.ca_pem),
            ("endpoints", &format!("Endpoints:\n- {endpoints}\n")),
        ] {
            std::fs::write(dir.path().join(name), content).unwrap();
        }
        let router = LocalRouter::start(dir.path(), RouterOptions::default()).unwrap();
        (router, dir)
    }
}

impl<'a> Player<'a> {
    pub(crate) fn new(world: &'a World, set: &str) -> Self {
        Self {
            world,
            set: set.to_owned(),
        }
    }

    fn pods(&self) -> Api<Pod> {
        self.world.api()
    }

    fn name(&self, ordinal: i32) -> String {
        format!("{}-{ordinal}", self.set)
    }

    /// Waits until the member's pod is there, and puts it on the node: from then on its deletion
    /// waits for a kubelet.
    pub(crate) async fn schedule(&self, ordinal: i32) -> Pod {
        let name = self.name(ordinal);
        let live = |pod: &Pod| pod.metadata.deletion_timestamp.is_none();
        let pod = self.world.until::<Pod>(&name, "made", live).await;
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE}});
        let params = PostParams::default();
        self.pods()
            .create_subresource::<Value, Value>("binding", &name, &params, &binding)
            .await
            .unwrap();
        pod
    }

    /// Waits until the member's token is in the Secret that its pod mounts, and redeems it.
    pub(crate) async fn enroll(&self, ordinal: i32) -> Enrolled {
        let (name, secret) = (self.name(ordinal), names::tokens_secret(&self.set));
        let filled = |secret: &Secret| {
            let data = secret.data.as_ref();
            data.and_then(|data| data.get(&name))
                .is_some_and(|token| !token.0.is_empty())
        };
        self.world.until::<Secret>(&secret, "filled", filled).await;
        let token = self.world.secret_value(&secret, &name).await.unwrap();
        let (key, identity) = redeem(&EnrollmentToken::parse(&token).unwrap()).await;
        Enrolled {
            token,
            key,
            identity,
        }
    }

    /// The init container ended with this message.
    pub(crate) async fn report(&self, ordinal: i32, message: &Value) {
        let exit = i32::from(message["outcome"] == "Failed");
        let status = json!({"status": {"initContainerStatuses": [{
            "name": "enroll", "image": "played", "imageID": "played", "ready": exit == 0,
            "restartCount": 0, "state": {"terminated": {
                "exitCode": exit, "message": message.to_string()}}}]}});
        self.patch_status(ordinal, status).await;
    }

    /// The kubelet says that the pod is ready.
    pub(crate) async fn ready(&self, ordinal: i32) {
        let status = json!({"status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}]}});
        self.patch_status(ordinal, status).await;
    }

    async fn patch_status(&self, ordinal: i32, status: Value) {
        let params = PatchParams::default();
        self.pods()
            .patch_status(&self.name(ordinal), &params, &Patch::Merge(status))
            .await
            .unwrap();
    }

    /// Waits until the member's pod is told to stop. It is still there then.
    pub(crate) async fn until_stopping(&self, ordinal: i32) -> Pod {
        let stopping = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
        let name = self.name(ordinal);
        self.world.until::<Pod>(&name, "stopping", stopping).await
    }

    /// The pod's containers have ended.
    pub(crate) async fn stopped(&self, pod: &Pod) {
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: pod.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let name = pod.metadata.name.as_ref().unwrap();
        self.pods().delete(name, &params).await.unwrap();
    }
}
