//! `cargo xtask bench`: how long two routers take from apply to online, by the operator and, beside
//! it in the same run, by hand (a pod each, with `ziti router enroll` and `ziti router run`, their
//! tokens ready). The two take turns, so that what else the machine does falls on both. Then what
//! happens later in the life of a set ([`lives`]).

mod lives;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::ZitiRouter;
use api::router::ZitiRouterSpec;
use clap::Args;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use plan::set::config::{CONFIG_DIR, CONFIG_FILE, IDENTITY_DIR, shared_config};
use serde_json::{Value, json};
use testbed::image;
use testbed::kubernetes;
use testbed::operator_install::Installation;
use testbed::progress::{Progress, seconds};
use testbed::ziti_in_cluster::{
    ADMIN_SECRET, CA_CONFIG_MAP, ControllerSpec, NAME, PORT, ZitiController,
};
use ziti::ExposeSecret;
use ziti::management::{Credential, Filter, ManagementClient, NewEdgeRouter, Options};
use ziti::trust::CaBundle;

use crate::{Place, build, cluster_commands, output};

const NAMESPACE: &str = "bench";
const MEMBERS: usize = 2;
const WITHIN: Duration = Duration::from_mins(3);

/// Measures the operator beside the same routers started by hand.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    place: Place,
    /// How many times each of the two is measured.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

impl Bench {
    /// Runs it and prints the table.
    pub(crate) async fn run(&self) -> Result<()> {
        let progress = Progress::new(8);
        cluster_commands::prepare(&progress).await?;
        let operator = progress
            .step("operator and agent", async |step| {
                Ok((build::operator_image(step)?, String::new()))
            })
            .await?;
        let cluster = cluster_commands::start(&progress, &self.place).await?;
        let ziti_images = progress
            .step("images into the cluster", async |_| {
                let ziti = image::ziti()?;
                for archive in [&operator, &ziti.router, &ziti.controller] {
                    cluster.import(archive)?;
                }
                Ok((ziti, String::new()))
            })
            .await?;
        let client = cluster.client().await?;
        let controller = progress
            .step("Ziti controller and operator", async |_| {
                let spec = ControllerSpec {
                    namespace: NAMESPACE.to_owned(),
                    image: ziti_images.controller.reference.clone(),
                    token_life: Duration::from_hours(3),
                };
                let controller = ZitiController::deploy(&client, &spec).await?;
                Installation {
                    kubeconfig: cluster.kubeconfig(),
                    context: None,
                    install_id: "bench".to_owned(),
                    image: operator.reference.clone(),
                    router_image: ziti_images.router.reference.clone(),
                    watch_namespaces: Vec::new(),
                    log_level: "info".to_owned(),
                }
                .install()?;
                Ok((controller, String::new()))
            })
            .await?;
        let field = Field {
            client,
            network: management(&controller).await?,
            router_image: ziti_images.router.reference.clone(),
        };
        let mut rounds = Vec::new();
        progress
            .step("rounds", async |step| {
                for round in 0..self.rounds {
                    step.say(&format!("round {} of {}", round + 1, self.rounds));
                    let by_hand = field.by_hand(round).await?;
                    let by_operator = field.by_operator(round).await?;
                    rounds.push((by_hand, by_operator));
                }
                Ok(((), String::new()))
            })
            .await?;
        let memory = cluster.resident_memory("ziti-operator")?;
        let mut lives = Vec::new();
        progress
            .step("lives", async |step| {
                for round in 0..self.rounds {
                    step.say(&format!("round {} of {}", round + 1, self.rounds));
                    lives.push(field.lives(&cluster, round).await?);
                }
                Ok(((), String::new()))
            })
            .await?;
        show(&rounds, memory, operator.size);
        lives::show(&lives);
        Ok(())
    }
}

async fn management(controller: &ZitiController) -> Result<ManagementClient> {
    let (username, password) = controller.admin().await?;
    let bundle =
        CaBundle::from_pem(&controller.ca_pem).context("reading the network's authority")?;
    let url = controller
        .url
        .parse()
        .context("reading the controller's address")?;
    let credential = Credential::Password {
        username,
        password: password.into(),
    };
    ManagementClient::new(&[url], &bundle, Some(credential), &Options::default())
        .context("making a client for the network")
}

fn network_object(name: &str) -> Value {
    json!({
        "apiVersion": "openziti.io/v1alpha1", "kind": "ZitiNetwork", "metadata": {"name": name},
        "spec": {
            "managementApi": [format!("https://{NAME}.{NAMESPACE}.svc:{PORT}")],
            "trust": {"configMap": {"name": CA_CONFIG_MAP, "key": "ca.crt"}},
            "credential": {"password": {"name": ADMIN_SECRET}},
        },
    })
}

/// Where it takes place.
struct Field {
    client: Client,
    network: ManagementClient,
    router_image: String,
}

impl Field {
    /// Two pods with their tokens ready, from apply to online.
    async fn by_hand(&self, round: usize) -> Result<Duration> {
        let names: Vec<String> = (0..MEMBERS).map(|n| format!("hand-{round}-{n}")).collect();
        let mut ids = Vec::new();
        let mut objects = vec![config_map()?];
        for name in &names {
            let router = NewEdgeRouter {
                name: name.clone(),
                ..NewEdgeRouter::default()
            };
            let id = self.network.create_edge_router(&router).await?;
            let row = self
                .network
                .edge_router(&id)
                .await?
                .context("the router just made is gone")?;
            let token = row
                .enrollment_jwt
                .context("the router just made has no token")?;
            objects.push(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
                "stringData": {"token": token.expose_secret()},
            }));
            objects.push(json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "50Mi"}}},
            }));
            objects.push(self.pod(name));
            ids.push(id);
        }
        let started = Instant::now();
        for object in objects {
            kubernetes::apply(&self.client, object, NAMESPACE).await?;
        }
        self.online(&names).await?;
        let took = started.elapsed();
        for name in &names {
            for kind in ["Pod", "PersistentVolumeClaim", "Secret"] {
                self.delete("", "v1", kind, name).await?;
            }
        }
        self.gone("", "v1", "Pod", "hand-").await?;
        for id in ids {
            self.network.delete_edge_router(&id).await?;
        }
        Ok(took)
    }

    /// A ZitiNetwork and a ZitiRouter of two, from apply to online.
    async fn by_operator(&self, round: usize) -> Result<Duration> {
        let set = format!("set-{round}");
        let network = format!("network-{round}");
        let started = Instant::now();
        let objects = [
            network_object(&network),
            json!({
                "apiVersion": "openziti.io/v1alpha1", "kind": "ZitiRouter", "metadata": {"name": set},
                "spec": {"networkRef": {"name": network}, "replicas": MEMBERS},
            }),
        ];
        for object in objects {
            kubernetes::apply(&self.client, object, NAMESPACE).await?;
        }
        let names: Vec<String> = (0..MEMBERS).map(|n| format!("{set}-{n}")).collect();
        self.online(&names).await?;
        let took = started.elapsed();
        self.delete("openziti.io", "v1alpha1", "ZitiRouter", &set)
            .await?;
        self.gone("openziti.io", "v1alpha1", "ZitiRouter", &set)
            .await?;
        self.delete("openziti.io", "v1alpha1", "ZitiNetwork", &network)
            .await?;
        Ok(took)
    }

    /// Waits until the network sees all of them connected and in sync.
    async fn online(&self, names: &[String]) -> Result<()> {
        kubernetes::poll(&format!("{names:?} to be online"), WITHIN, async || {
            let listed = self.network.edge_routers(&Filter::all()).await?;
            let online = |name: &String| {
                listed
                    .items
                    .iter()
                    .any(|row| row.name == *name && row.is_in_service())
            };
            Ok(names.iter().all(online).then_some(()))
        })
        .await
    }

    fn objects(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
    }

    async fn delete(&self, group: &str, version: &str, kind: &str, name: &str) -> Result<()> {
        let objects = self.objects(group, version, kind);
        objects
            .delete(name, &DeleteParams::default())
            .await
            .with_context(|| format!("deleting {kind} {name}"))?;
        Ok(())
    }

    async fn gone(&self, group: &str, version: &str, kind: &str, prefix: &str) -> Result<()> {
        let objects = self.objects(group, version, kind);
        kubernetes::poll(&format!("{kind} {prefix} to go"), WITHIN, async || {
            let left = objects
                .list_metadata(&ListParams::default())
                .await
                .with_context(|| format!("listing {kind}"))?;
            let named = |name: Option<&String>| name.is_some_and(|name| name.starts_with(prefix));
            Ok((!left
                .items
                .iter()
                .any(|object| named(object.metadata.name.as_ref())))
            .then_some(()))
        })
        .await
    }

    /// What a person would write: an init container that enrolls, and the router.
    fn pod(&self, name: &str) -> Value {
        let config = format!("{CONFIG_DIR}/{CONFIG_FILE}");
        let mounts = json!([
            {"name": "identity", "mountPath": IDENTITY_DIR},
            {"name": "config", "mountPath": CONFIG_DIR},
            {"name": "token", "mountPath": "/etc/ziti/enroll"},
            {"name": "tmp", "mountPath": "/tmp"},
        ]);
        let env = json!([{"name": "POD_NAME", "value": name}, {"name": "HOME", "value": "/tmp"}]);
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "securityContext": {"runAsUser": 2171, "runAsGroup": 2171, "fsGroup": 2171},
                "terminationGracePeriodSeconds": 5,
                "initContainers": [{
                    "name": "enroll", "image": self.router_image, "env": env, "volumeMounts": mounts,
                    "command": ["ziti", "router", "enroll", config, "--jwt", "/etc/ziti/enroll/token"],
                }],
                "containers": [{
                    "name": "router", "image": self.router_image, "env": env, "volumeMounts": mounts,
                    "command": ["ziti", "router", "run", config],
                }],
                "volumes": [
                    {"name": "identity", "persistentVolumeClaim": {"claimName": name}},
                    {"name": "config", "configMap": {"name": "hand"}},
                    {"name": "token", "secret": {"secretName": name}},
                    {"name": "tmp", "emptyDir": {}},
                ],
            },
        })
    }
}

/// The configuration that the operator would render, so that the routers are the same.
fn config_map() -> Result<Value> {
    let spec: ZitiRouterSpec =
        serde_json::from_value(json!({})).context("defaults of a ZitiRouter")?;
    let mut object = ZitiRouter::new("hand", spec);
    object.metadata.namespace = Some(NAMESPACE.to_owned());
    let text =
        serde_saphyr::to_string(&shared_config(&object)).context("writing the configuration")?;
    Ok(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hand"},
        "data": {CONFIG_FILE: text},
    }))
}

fn show(rounds: &[(Duration, Duration)], memory: Option<u64>, image: u64) {
    output::heading("From apply to both routers online");
    let row = |title: String, by_hand: Duration, by_operator: Duration| {
        let times = by_operator.as_secs_f64() / by_hand.as_secs_f64();
        vec![
            title,
            seconds(by_hand),
            seconds(by_operator),
            format!("{times:.2}"),
        ]
    };
    let each = rounds
        .iter()
        .enumerate()
        .map(|(n, (hand, operator))| row(format!("{}", n + 1), *hand, *operator));
    let median = |pick: fn(&(Duration, Duration)) -> Duration| {
        let mut all: Vec<Duration> = rounds.iter().map(pick).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or_default()
    };
    let last = row(
        "median".to_owned(),
        median(|round| round.0),
        median(|round| round.1),
    );
    output::table(
        &["ROUND", "BY HAND", "BY OPERATOR", "TIMES"],
        each.chain([last]),
    );
    output::heading("The operator itself");
    let memory = memory.map_or("unknown".to_owned(), output::megabytes);
    output::table(
        &["WHAT", "VALUE"],
        [
            vec!["resident memory".to_owned(), memory],
            vec!["image".to_owned(), output::megabytes(image)],
        ],
    );
}
