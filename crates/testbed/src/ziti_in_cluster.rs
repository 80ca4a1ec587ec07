//! A real Ziti controller as a pod, from a plain manifest: what the demo and the end-to-end tests
//! register routers on. Each namespace can have one, and each is a network of its own.
//!
//! In the namespace it leaves what a user of the operator has by other means:
//!
//! | object | holds |
//! | --- | --- |
//! | Service `ziti-controller`, port 1280 | management API, client API, control plane |
//! | Secret `ziti-admin` | `username` and `password` of the default administrator |
//! | ConfigMap `ziti-ca` | `ca.crt`, what the network is trusted by |

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::kubernetes;
use crate::ziti::config::{ControllerConfig, Storage};
use crate::ziti::pki::Authority;

/// The name of its StatefulSet and Service.
pub const NAME: &str = "ziti-controller";
/// Its port.
pub const PORT: u16 = 1280;
/// The Secret with the administrator's name and password.
pub const ADMIN_SECRET: &str = "ziti-admin";
/// The ConfigMap with the network's authority.
pub const CA_CONFIG_MAP: &str = "ziti-ca";

const PKI_SECRET: &str = "ziti-controller-pki";
const CONFIG: &str = "ziti-controller-config";
const CLAIM: &str = "data-ziti-controller-0";
const READY_WITHIN: Duration = Duration::from_mins(3);

/// What is deployed.
#[derive(Debug, Clone)]
pub struct ControllerSpec {
    /// Where; the namespace is made when it is missing.
    pub namespace: String,
    /// An image with `ziti` and a shell. Its tag says how the database is set up.
    pub image: String,
    /// How long enrollment tokens live; Ziti takes less than five minutes for 180 minutes.
    pub token_life: Duration,
}

/// A controller in a cluster.
#[derive(Clone)]
pub struct ZitiController {
    client: Client,
    namespace: String,
    /// `https://<cluster IP>:1280`: how the host reaches its management API.
    pub url: String,
    /// The network's authority, PEM.
    pub ca_pem: String,
}

impl ZitiController {
    /// Deploys it and waits until it answers. Certificates and password that are there stay, so
    /// that it can be called again.
    pub async fn deploy(client: &Client, spec: &ControllerSpec) -> Result<Self> {
        let namespace = spec.namespace.as_str();
        let apply = async |object: Value| kubernetes::apply(client, object, namespace).await;
        apply(json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
        }))
        .await?;
        apply(service()).await?;
        let address = cluster_ip(client, namespace).await?;
        let ca_pem = ensure_secrets(client, namespace, address).await?;
        let storage = Storage::of_version(tag(&spec.image));
        let config = ControllerConfig {
            storage,
            pki_dir: "/etc/ziti/pki".into(),
            data_dir: "/var/lib/ziti/data".into(),
            bind: format!("0.0.0.0:{PORT}"),
            advertise: format!("{NAME}.{namespace}.svc:{PORT}"),
            token_life: spec.token_life,
        };
        apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG},
            "data": {"ctrl.yaml": config.render()?},
        }))
        .await?;
        apply(stateful_set(&spec.image, storage)).await?;
        let controller = Self {
            client: client.clone(),
            namespace: namespace.to_owned(),
            url: format!("https://{address}:{PORT}"),
            ca_pem,
        };
        controller.wait_ready().await?;
        Ok(controller)
    }

    /// Waits until its pod is ready: its API answers.
    pub async fn wait_ready(&self) -> Result<()> {
        kubernetes::wait_for(
            self.pods(),
            &format!("{NAME}-0"),
            "ready",
            pod_is_ready,
            READY_WITHIN,
        )
        .await
        .with_context(|| format!("starting the Ziti controller in {}", self.namespace))?;
        Ok(())
    }

    /// Takes it away, database kept, and waits until its pod is gone.
    pub async fn stop(&self) -> Result<()> {
        self.scale(0).await?;
        let name = format!("{NAME}-0");
        kubernetes::poll(
            "the Ziti controller's pod to end",
            READY_WITHIN,
            async || {
                let pod = self.pods().get_opt(&name).await;
                Ok(pod
                    .context("looking for the Ziti controller's pod")?
                    .is_none()
                    .then_some(()))
            },
        )
        .await
    }

    /// Brings it back and waits until it answers.
    pub async fn start(&self) -> Result<()> {
        self.scale(1).await?;
        self.wait_ready().await
    }

    /// Another network at the same address under the same authority: the database is new.
    pub async fn rebuild(&self) -> Result<()> {
        self.stop().await?;
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), &self.namespace);
        claims
            .delete(CLAIM, &DeleteParams::default())
            .await
            .context("deleting the Ziti controller's database")?;
        kubernetes::poll(
            "the Ziti controller's volume to go",
            READY_WITHIN,
            async || {
                let claim = claims.get_opt(CLAIM).await;
                Ok(claim
                    .context("looking for the Ziti controller's volume")?
                    .is_none()
                    .then_some(()))
            },
        )
        .await?;
        self.start().await
    }

    /// The administrator's name and password, from the Secret.
    pub async fn admin(&self) -> Result<(String, String)> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = secrets
            .get(ADMIN_SECRET)
            .await
            .with_context(|| format!("reading Secret {ADMIN_SECRET}"))?;
        let field = |key: &str| {
            secret
                .data
                .as_ref()
                .and_then(|data| data.get(key))
                .and_then(|value| String::from_utf8(value.0.clone()).ok())
                .with_context(|| format!("Secret {ADMIN_SECRET} has no {key}"))
        };
        Ok((field("username")?, field("password")?))
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn scale(&self, replicas: u8) -> Result<()> {
        let sets: Api<StatefulSet> = Api::namespaced(self.client.clone(), &self.namespace);
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        sets.patch(NAME, &PatchParams::default(), &patch)
            .await
            .with_context(|| format!("scaling the Ziti controller to {replicas}"))?;
        Ok(())
    }
}

fn pod_is_ready(pod: Option<&Pod>) -> bool {
    pod.filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .and_then(|pod| pod.status.as_ref()?.conditions.as_ref())
        .is_some_and(|conditions| {
            conditions
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True")
        })
}

async fn cluster_ip(client: &Client, namespace: &str) -> Result<IpAddr> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = services
        .get(NAME)
        .await
        .with_context(|| format!("reading Service {namespace}/{NAME}"))?;
    service
        .spec
        .and_then(|spec| spec.cluster_ip)
        .with_context(|| format!("Service {namespace}/{NAME} has no address"))?
        .parse()
        .with_context(|| format!("reading the address of Service {namespace}/{NAME}"))
}

/// Makes certificates and password unless they are there; returns the authority.
async fn ensure_secrets(client: &Client, namespace: &str, address: IpAddr) -> Result<String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let present = maps
        .get_opt(CA_CONFIG_MAP)
        .await
        .with_context(|| format!("looking for ConfigMap {namespace}/{CA_CONFIG_MAP}"))?;
    if let Some(ca) = present.and_then(|map| map.data?.remove("ca.crt")) {
        return Ok(ca);
    }
    let authority = Authority::new(&format!("{namespace}.ziti"))?;
    let service = format!("{NAME}.{namespace}.svc");
    let names = [
        service.clone(),
        format!("{service}.cluster.local"),
        format!("{NAME}.{namespace}"),
        NAME.to_owned(),
        "localhost".to_owned(),
    ];
    let pki = authority.controller(NAME, &names, &[address, IpAddr::from([127, 0, 0, 1])])?;
    let files: serde_json::Map<String, Value> = pki
        .files()
        .into_iter()
        .map(|(name, text)| (name.to_owned(), Value::String(text)))
        .collect();
    for object in [
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": PKI_SECRET},
            "stringData": files,
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": ADMIN_SECRET},
            "stringData": {"username": "admin", "password": password()?},
        }),
        // Last: its presence says that all are there.
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CA_CONFIG_MAP},
            "data": {"ca.crt": authority.cert_pem},
        }),
    ] {
        kubernetes::apply(client, object, namespace).await?;
    }
    Ok(authority.cert_pem)
}

fn password() -> Result<String> {
    let mut bytes = [0_u8; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| anyhow!("no random numbers for a password"))?;
    Ok(hex::encode(bytes))
}

fn tag(image: &str) -> &str {
    image.rsplit_once(':').map_or("", |(_, tag)| tag)
}

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME},
        "spec": {
            "selector": {"app": NAME},
            "ports": [{"name": "ziti", "port": PORT}],
        },
    })
}

/// Sets a standalone database up before the first start. The mark tells a finished set-up from one
/// that was interrupted.
const INIT_STANDALONE: &str = "\
mkdir -p /var/lib/ziti/data && cd /var/lib/ziti && [ -e set-up ] && exit 0
rm -rf data/*
ziti controller edge init /etc/ziti/config/ctrl.yaml -u \"$USERNAME\" -p \"$PASSWORD\" && touch set-up";

/// Sets a cluster of one up after the first start.
const INIT_CLUSTER: &str = "\
cd /var/lib/ziti && [ -e set-up ] && exit 0
until ziti agent cluster init -p 1 \"$USERNAME\" \"$PASSWORD\" 'Default Admin'; do sleep 0.3; done
touch set-up";

fn stateful_set(image: &str, storage: Storage) -> Value {
    let from_secret = |key: &str| json!({"secretKeyRef": {"name": ADMIN_SECRET, "key": key}});
    let env = json!([
        {"name": "USERNAME", "valueFrom": from_secret("username")},
        {"name": "PASSWORD", "valueFrom": from_secret("password")},
    ]);
    let mounts = json!([
        {"name": "pki", "mountPath": "/etc/ziti/pki", "readOnly": true},
        {"name": "config", "mountPath": "/etc/ziti/config", "readOnly": true},
        {"name": "data", "mountPath": "/var/lib/ziti"},
        {"name": "tmp", "mountPath": "/tmp"},
    ]);
    let locked = json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    });
    let prepare = match storage {
        Storage::Standalone => INIT_STANDALONE,
        Storage::Cluster => "mkdir -p /var/lib/ziti/data",
    };
    let mut container = json!({
        "name": "controller",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["ziti", "controller", "run", "/etc/ziti/config/ctrl.yaml"],
        "env": env,
        "ports": [{"name": "ziti", "containerPort": PORT}],
        "volumeMounts": mounts,
        "securityContext": locked,
        "readinessProbe": {
            "httpGet": {"scheme": "HTTPS", "port": PORT, "path": "/edge/client/v1/version"},
            "periodSeconds": 1,
        },
    });
    if storage == Storage::Cluster {
        container["lifecycle"] =
            json!({"postStart": {"exec": {"command": ["sh", "-c", INIT_CLUSTER]}}});
    }
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": NAME},
        "spec": {
            "serviceName": NAME,
            "replicas": 1,
            "selector": {"matchLabels": {"app": NAME}},
            "template": {
                "metadata": {"labels": {"app": NAME}},
                "spec": {
                    "automountServiceAccountToken": false,
                    "terminationGracePeriodSeconds": 5,
                    "securityContext": {
                        "runAsNonRoot": true, "runAsUser": 2171, "runAsGroup": 2171,
                        "fsGroup": 2171, "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "initContainers": [{
                        "name": "prepare",
                        "image": image,
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["sh", "-c", prepare],
                        "env": env,
                        "volumeMounts": mounts,
                        "securityContext": locked,
                    }],
                    "containers": [container],
                    "volumes": [
                        {"name": "pki", "secret": {"secretName": PKI_SECRET}},
                        {"name": "config", "configMap": {"name": CONFIG}},
                        {"name": "tmp", "emptyDir": {}},
                    ],
                },
            },
            "volumeClaimTemplates": [{
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "100Mi"}},
                },
            }],
        },
    })
}

impl std::fmt::Debug for ZitiController {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZitiController")
            .field("namespace", &self.namespace)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}
