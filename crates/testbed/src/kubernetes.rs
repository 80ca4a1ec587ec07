//! What everyone needs to work with a cluster from outside: a client, applying YAML, waiting for a
//! condition with a deadline, and a dump of what is there when something failed.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::discovery;
use kube::runtime::wait::{Condition, await_condition};
use kube::{Client, Config, ResourceExt};
use serde::de::DeserializeOwned;

use crate::command::Cmd;
use crate::{interrupt, paths};

/// The field manager of what the testbed applies.
pub const FIELD_MANAGER: &str = "ziti-operator-testbed";

/// Between two looks at something that cannot be watched.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A client from a kubeconfig's current context.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    client_of_context(kubeconfig, None).await
}

/// A client from a kubeconfig and one of its contexts (none: the current one).
pub async fn client_of_context(kubeconfig: &Path, context: Option<&str>) -> Result<Client> {
    of_config(config(kubeconfig, context).await?, kubeconfig)
}

/// A client from a kubeconfig's current context, that reaches its API server at another address. The
/// certificate there must have that name.
pub async fn client_by_way(kubeconfig: &Path, server: &str, name: &str) -> Result<Client> {
    let mut config = config(kubeconfig, None).await?;
    config.cluster_url = server
        .parse()
        .with_context(|| format!("reading the address {server}"))?;
    config.tls_server_name = Some(name.to_owned());
    of_config(config, kubeconfig)
}

async fn config(kubeconfig: &Path, context: Option<&str>) -> Result<Config> {
    let parsed = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("reading the kubeconfig {}", kubeconfig.display()))?;
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    Config::from_custom_kubeconfig(parsed, &options)
        .await
        .with_context(|| format!("using the kubeconfig {}", kubeconfig.display()))
}

fn of_config(config: Config, kubeconfig: &Path) -> Result<Client> {
    // One provider is in the tree; naming it here spares every test the line. It may be set.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Client::try_from(config)
        .with_context(|| format!("making a client from {}", kubeconfig.display()))
}

/// kubectl, with that kubeconfig and context (none: the current one). A minute at most.
pub fn kubectl(kubeconfig: &Path, context: Option<&str>) -> Result<Cmd> {
    let command = Cmd::new(paths::program("kubectl")?)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        // A cache from before the operator's kinds were installed would hide them, and one of
        // another cluster at the same address would be believed.
        .arg("--cache-dir=/dev/null")
        .timeout(Duration::from_mins(1));
    Ok(match context {
        Some(context) => command.args(["--context", context]),
        None => command,
    })
}

/// Reads a path of the API server as text, for example `/readyz`. Ten seconds at most.
pub async fn get_text(client: &Client, path: &str) -> Result<String> {
    let request = http_get(path)?;
    tokio::time::timeout(Duration::from_secs(10), client.request_text(request))
        .await
        .with_context(|| format!("GET {path}: no answer"))?
        .with_context(|| format!("GET {path}"))
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>> {
    http::Request::get(path)
        .body(Vec::new())
        .with_context(|| format!("building GET {path}"))
}

/// Looks until there is a result, an error, the deadline or an interruption.
///
/// # Errors
/// The look's own error at once; or that `what` did not come within the time.
pub async fn poll<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let started = Instant::now();
    loop {
        interrupt::check()?;
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if started.elapsed() > within {
            bail!("waited {within:?} in vain for {what}");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits, by a watch, until the condition holds for the object of that name.
///
/// # Errors
/// When it does not within the time, or the watch fails for good.
pub async fn wait_for<K>(
    api: Api<K>,
    name: &str,
    what: &str,
    condition: impl Condition<K>,
    within: Duration,
) -> Result<Option<K>>
where
    K: kube::Resource + Clone + std::fmt::Debug + Send + DeserializeOwned + 'static,
{
    tokio::select! {
        waited = tokio::time::timeout(within, await_condition(api, name, condition)) => waited
            .map_err(|_| anyhow!("waited {within:?} in vain for {name} {what}"))?
            .with_context(|| format!("watching {name} until it is {what}")),
        interrupted = interrupted() => Err(interrupted),
    }
}

async fn interrupted() -> anyhow::Error {
    loop {
        if let Err(error) = interrupt::check() {
            return error;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Applies every document of a YAML text, in order, by server-side apply with force.
///
/// `namespace` is for namespaced objects that name none.
pub async fn apply_yaml(client: &Client, yaml: &str, namespace: &str) -> Result<()> {
    let documents: Vec<serde_json::Value> =
        serde_saphyr::from_multiple(yaml).context("reading YAML to apply")?;
    for document in documents {
        if !document.is_null() {
            apply(client, document, namespace).await?;
        }
    }
    Ok(())
}

/// Applies one object by server-side apply with force, see [`apply_yaml`].
pub async fn apply(
    client: &Client,
    object: serde_json::Value,
    namespace: &str,
) -> Result<DynamicObject> {
    let object: DynamicObject =
        serde_json::from_value(object).context("reading an object to apply")?;
    let types = object
        .types
        .clone()
        .context("an object to apply has no apiVersion and kind")?;
    let name = object.name_any();
    let what = format!("{} {name}", types.kind);
    let gvk = GroupVersionKind::try_from(&types)
        .with_context(|| format!("reading the apiVersion of {what}"))?;
    let (resource, capabilities) = discovery::pinned_kind(client, &gvk)
        .await
        .with_context(|| format!("looking up the kind of {what}"))?;
    let api: Api<DynamicObject> = if capabilities.scope == discovery::Scope::Namespaced {
        let namespace = object.namespace().unwrap_or_else(|| namespace.to_owned());
        Api::namespaced_with(client.clone(), &namespace, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    };
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("applying {what}"))
}
