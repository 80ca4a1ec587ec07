//! Where a test takes place: a namespace for its routers, and another with a Ziti controller of its
//! own, so that the one can go while the other stays. When a test fails, all that is in them is
//! printed; whatever becomes of it, they are cleared away.

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::{EdgeRouter, ZitiCluster, ZitiController, ZitiNetwork, ZitiRouter, reasons};
use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use testbed::environment::Environment;
use testbed::ziti_in_cluster::{ADMIN_SECRET, CA_CONFIG_MAP};
use testbed::{dump, kubernetes, operator_install};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::objects::Object;
use crate::ziti_network::Ziti;

/// The longest that anything may take. On a quiet machine nothing takes a quarter of it; on a busy
/// one, or while another test has just killed the operator, it takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// How long enrollment tokens live where the test does not care.
pub(crate) const LONG_LIFE: Duration = Duration::from_hours(3);

/// The name of the ZitiNetwork in each stage's namespace.
pub(crate) const NETWORK: &str = "ziti";

/// How many tests work at a time: routers and controllers of more would only wait for each other.
static TURNS: Semaphore = Semaphore::const_new(3);

/// One test's part of the cluster.
pub(crate) struct Stage {
    pub(crate) environment: Environment,
    /// With all rights.
    pub(crate) client: Client,
    /// Where its routers are.
    pub(crate) namespace: String,
    /// Its Ziti network, where it has one that the operator does not run.
    pub(crate) ziti: Beside,
    /// When the test began.
    begun: Timestamp,
    turn: Mutex<Option<SemaphorePermit<'static>>>,
}

/// A Ziti network beside the routers. To use it on a stage without one is a fault of the test.
pub(crate) struct Beside(Option<Ziti>);

impl std::ops::Deref for Beside {
    type Target = Ziti;

    fn deref(&self) -> &Ziti {
        self.0
            .as_ref()
            .expect("this stage has no network beside it")
    }
}

/// Sets a stage, plays a test on it when it is its turn, and clears it away.
pub(crate) fn play(name: &str, act: impl AsyncFnOnce(&Stage) -> Result<()>) {
    run(async {
        let turn = TURNS.acquire().await.context("waiting for the turn")?;
        set_and_play(name, Some(LONG_LIFE), Some(turn), act).await
    });
}

/// The same without a network: the operator runs it.
pub(crate) fn play_alone(name: &str, act: impl AsyncFnOnce(&Stage) -> Result<()>) {
    run(async {
        let turn = TURNS.acquire().await.context("waiting for the turn")?;
        set_and_play(name, None, Some(turn), act).await
    });
}

/// The same at once and beside all others, on a network whose enrollment tokens live that long: for
/// a test that mostly waits, and longer than all others together.
pub(crate) fn play_beside(
    name: &str,
    token_life: Duration,
    act: impl AsyncFnOnce(&Stage) -> Result<()>,
) {
    run(set_and_play(name, Some(token_life), None, act));
}

async fn set_and_play(
    name: &str,
    token_life: Option<Duration>,
    turn: Option<SemaphorePermit<'static>>,
    act: impl AsyncFnOnce(&Stage) -> Result<()>,
) -> Result<()> {
    let environment = Environment::get()?;
    let client = environment.client().await?;
    let namespace = format!("e2e-{name}");
    let ziti_namespace = format!("{namespace}-ziti");
    let namespaces = [namespace.as_str(), ziti_namespace.as_str()];
    // What an interrupted run left.
    clear(&client, &namespaces).await?;
    let outcome = guarded(async {
        let ziti = match token_life {
            Some(life) => Some(Ziti::deploy(&client, &environment, &ziti_namespace, life).await?),
            None => None,
        };
        let stage = Stage {
            ziti: Beside(ziti),
            environment: environment.clone(),
            client: client.clone(),
            namespace: namespace.clone(),
            begun: Timestamp::now(),
            turn: Mutex::new(turn),
        };
        stage.make_namespace().await?;
        guarded(Box::pin(act(&stage))).await?;
        stage.no_false_alarm().await
    })
    .await;
    tell(&environment, &namespaces, &outcome);
    let cleared = clear(&client, &namespaces).await;
    outcome?;
    cleared
}

/// Plays a test in the namespace and on the network of the demo, which are left as they are but for
/// the routers.
pub(crate) fn play_in_place(namespace: &str, act: impl AsyncFnOnce(&Stage) -> Result<()>) {
    run(async {
        let turn = TURNS.acquire().await.context("waiting for the turn")?;
        let environment = Environment::get()?;
        let client = environment.client().await?;
        let outcome = guarded(async {
            let stage = Stage {
                ziti: Beside(Some(
                    Ziti::deploy(&client, &environment, namespace, LONG_LIFE).await?,
                )),
                environment: environment.clone(),
                client: client.clone(),
                namespace: namespace.to_owned(),
                begun: Timestamp::now(),
                turn: Mutex::new(Some(turn)),
            };
            Box::pin(stage.remove_routers()).await?;
            guarded(Box::pin(act(&stage))).await?;
            stage.no_false_alarm().await?;
            Box::pin(stage.remove_routers()).await
        })
        .await;
        tell(&environment, &[namespace], &outcome);
        outcome
    });
}

fn run(test: impl Future<Output = Result<()>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    if let Err(error) = runtime.block_on(test) {
        panic!("{error:#}");
    }
}

/// Makes an error of a panic, so that what follows a failure happens for both. Tests are boxed before they come
/// here: what moves a future keeps copies of it on the stack of its thread, which is small.
async fn guarded(test: impl Future<Output = Result<()>>) -> Result<()> {
    match AssertUnwindSafe(test).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(panic) => match panic.downcast::<String>() {
            Ok(message) => bail!("{message}"),
            Err(panic) => match panic.downcast::<&str>() {
                Ok(message) => bail!("{message}"),
                Err(panic) => resume_unwind(panic),
            },
        },
    }
}

/// Prints all there is to know of a failure; the harness shows it with the failed test.
fn tell(environment: &Environment, namespaces: &[&str], outcome: &Result<()>) {
    let Err(error) = outcome else { return };
    say(&format!("{error:#}"));
    for namespace in namespaces.iter().chain(&[operator_install::RELEASE]) {
        say(&dump::namespace(&environment.kubeconfig, namespace));
    }
}

/// Says something to whoever reads the output of a test.
#[expect(
    clippy::print_stdout,
    reason = "the output of a test is read by people"
)]
pub(crate) fn say(text: &str) {
    println!("{text}");
}

/// Deletes namespaces in this order and waits until they are gone. Where objects hold one for too
/// long they are let go by force: the failure was told, and the next run shall not meet them.
async fn clear(client: &Client, namespaces: &[&str]) -> Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    for name in namespaces {
        if api
            .get_opt(name)
            .await
            .with_context(|| format!("looking for namespace {name}"))?
            .is_none()
        {
            continue;
        }
        let deleted = api.delete(name, &DeleteParams::default()).await;
        deleted.with_context(|| format!("deleting namespace {name}"))?;
        let gone = |object: Option<&Namespace>| object.is_none();
        let within = Duration::from_mins(1);
        if let Err(error) = kubernetes::wait_for(api.clone(), name, "gone", gone, within).await {
            say(&format!("{error:#}; its objects are let go by force"));
            let_go::<ZitiController>(client, name).await?;
            let_go::<ZitiRouter>(client, name).await?;
            let_go::<EdgeRouter>(client, name).await?;
            let_go::<ZitiNetwork>(client, name).await?;
            let_go::<ZitiCluster>(client, name).await?;
            kubernetes::wait_for(api.clone(), name, "gone", gone, within).await?;
        }
    }
    Ok(())
}

/// Takes all finalizers off.
async fn let_go<K: Object>(client: &Client, namespace: &str) -> Result<()> {
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let kind = K::kind(&());
    let listed = api.list(&ListParams::default()).await;
    for object in listed.with_context(|| format!("listing {kind}s of {namespace}"))? {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let name = object.name_any();
        match api.patch(&name, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            patched => {
                patched.with_context(|| format!("letting {kind} {name} go"))?;
            }
        }
    }
    Ok(())
}

impl Stage {
    /// Lets another test work while this one only waits, for minutes.
    pub(crate) fn give_up_turn(&self) {
        drop(self.turn.lock().unwrap().take());
    }

    /// Makes the namespace of the routers. Pods must keep the restricted Pod Security Standard in
    /// it.
    async fn make_namespace(&self) -> Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": {
                "pod-security.kubernetes.io/enforce": "restricted",
                "pod-security.kubernetes.io/enforce-version": "latest",
            }}
        });
        self.apply(object).await
    }

    /// Lets pods of the routers' namespace have more than the restricted Pod Security Standard
    /// grants, as the documentation says.
    pub(crate) async fn allow_privileged(&self) -> Result<()> {
        let labels = json!({"pod-security.kubernetes.io/enforce": "privileged"});
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let params = PatchParams::default();
        let patched = namespaces.patch(&self.namespace, &params, &patch).await;
        patched.context("allowing privileged pods")?;
        Ok(())
    }

    /// Makes the stage's Ziti network known to the operator, as a user does: authority and
    /// credential are copied here, the controller is in another namespace.
    pub(crate) async fn join_network(&self) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.ziti.namespace);
        let ca = maps
            .get(CA_CONFIG_MAP)
            .await
            .context("reading the authority")?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.ziti.namespace);
        let admin = secrets
            .get(ADMIN_SECRET)
            .await
            .context("reading the credential")?;
        self.apply(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": CA_CONFIG_MAP}, "data": ca.data}))
            .await?;
        self.apply(json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": ADMIN_SECRET}, "data": admin.data}))
            .await?;
        let spec = json!({
            "managementApi": [format!("https://ziti-controller.{}.svc:1280", self.ziti.namespace)],
            "trust": {"configMap": {"name": CA_CONFIG_MAP, "key": "ca.crt"}},
            "credential": {"password": {"name": ADMIN_SECRET}},
        });
        let spec = serde_json::from_value(spec).context("reading a ZitiNetwork")?;
        self.create(&ZitiNetwork::new(NETWORK, spec)).await?;
        Ok(())
    }

    /// Creates a ZitiRouter on the stage's network with `spec` besides.
    pub(crate) async fn create_set(&self, name: &str, mut spec: Value) -> Result<ZitiRouter> {
        spec["networkRef"] = json!({"name": NETWORK});
        let spec = serde_json::from_value(spec).context("reading a ZitiRouter")?;
        self.create(&ZitiRouter::new(name, spec)).await
    }

    /// A set of so many on the stage's network, online.
    pub(crate) async fn set_online(&self, name: &str, replicas: i32) -> Result<ZitiRouter> {
        self.join_network().await?;
        self.create_set(name, json!({"replicas": replicas})).await?;
        self.until_online(name, replicas).await
    }

    /// No test takes routers away behind the operator's back, so nobody may be told of such a thing.
    async fn no_false_alarm(&self) -> Result<()> {
        let alarms = [
            reasons::ENTITY_MISSING,
            reasons::NETWORK_CHANGED,
            reasons::NAME_TAKEN,
        ];
        for event in self.list::<Event>().await? {
            let told = event.event_time.map(|time| time.0);
            let reason = event.reason.unwrap_or_default();
            if told >= Some(self.begun) && alarms.contains(&reason.as_str()) {
                bail!(
                    "a false alarm: {reason}: {}",
                    event.note.unwrap_or_default()
                );
            }
        }
        Ok(())
    }

    /// Deletes all ZitiRouters and ZitiNetworks, and waits until they are gone.
    async fn remove_routers(&self) -> Result<()> {
        Box::pin(self.remove_all::<ZitiRouter>()).await?;
        self.remove_all::<EdgeRouter>().await?;
        self.remove_all::<ZitiNetwork>().await
    }

    async fn remove_all<K: Object>(&self) -> Result<()> {
        for object in self.list::<K>().await? {
            let name = object.name_any();
            let deleted = self
                .api::<K>()
                .delete(&name, &DeleteParams::background())
                .await;
            match deleted {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                deleted => {
                    deleted.with_context(|| format!("deleting {} {name}", K::kind(&())))?;
                }
            }
            self.until_gone::<K>(&name).await?;
        }
        Ok(())
    }
}
