//! What the chart made: the Deployment, its configuration, its volume.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, PodSpec, ResourceRequirements, Service,
};
use kube::api::{Api, ListParams, ObjectMeta};
use kube::{Client, ResourceExt};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A router as it is deployed today.
#[derive(Clone, Debug)]
pub(super) struct Release {
    pub(super) namespace: String,
    pub(super) deployment: String,
    pub(super) image: Option<String>,
    pub(super) resources: Option<ResourceRequirements>,
    /// The claim of the volume with the identity.
    pub(super) claim: String,
    pub(super) volume: Volume,
    pub(super) config: Config,
    /// Whether the pod is on the network of its node.
    pub(super) host_network: bool,
    /// What of the pod a ZitiRouter has under the same names in `spec.pod`.
    pub(super) pod: Map<String, Value>,
    /// Services that lead to the pod, with their selectors.
    pub(super) services: BTreeMap<String, BTreeMap<String, String>>,
    /// Labels and annotations of the claim, which are its owner's: by them Helm
    /// knows it again.
    pub(super) claim_labels: BTreeMap<String, String>,
    /// See `claim_labels`.
    pub(super) claim_annotations: BTreeMap<String, String>,
}

/// The volume with the identity.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) class: Option<String>,
    pub(super) size: String,
    pub(super) reclaim_policy: String,
    /// As the claim asks for it; a volume binds to what it can do.
    pub(super) access_modes: Vec<String>,
}

/// What of the router's configuration matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) edge: Listener,
    /// The first listener for links, if there is one.
    pub(super) link: Option<Listener>,
    /// Further listeners, which are not taken over.
    pub(super) more: usize,
    /// `None` where it has no tunnel.
    pub(super) tunnel: Option<Tunnel>,
    pub(super) dns: Vec<String>,
    pub(super) ip: Vec<String>,
}

/// A listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listener {
    pub(super) port: Option<u16>,
    /// Host and port, as others are told.
    pub(super) advertise: Option<(String, u16)>,
}

/// The tunnel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tunnel {
    pub(super) mode: String,
    /// Its other options, as the router has them.
    pub(super) options: Map<String, Value>,
}

/// Read everything about a Deployment.
pub(super) async fn read(client: &Client, namespace: &str, name: &str) -> Result<Release> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment = deployments
        .get(name)
        .await
        .with_context(|| format!("reading Deployment {namespace}/{name}"))?;
    let template = deployment.spec.unwrap_or_default().template;
    let labels = template.metadata.and_then(|metadata| metadata.labels);
    let services = services(client, namespace, &labels.unwrap_or_default()).await?;
    let pod = template.spec.unwrap_or_default();
    let claim = claim_of(&pod).with_context(|| {
        format!("Deployment {name} has no PersistentVolumeClaim, so there is no identity to take over: use a new ZitiRouter")
    })?;
    let config = config(client, namespace, name, &pod).await?;
    let (host_network, options) = (pod.host_network == Some(true), options(&pod)?);
    let container = pod.containers.into_iter().next();
    let (volume, metadata) = volume(client, namespace, &claim).await?;
    Ok(Release {
        namespace: namespace.to_owned(),
        deployment: name.to_owned(),
        image: container
            .as_ref()
            .and_then(|container| container.image.clone()),
        resources: container.and_then(|container| container.resources),
        volume,
        claim,
        claim_labels: metadata.labels.unwrap_or_default(),
        claim_annotations: metadata
            .annotations
            .unwrap_or_default()
            .into_iter()
            .filter(|(key, _)| !key.contains("kubernetes.io/"))
            .collect(),
        config,
        host_network,
        pod: options,
        services,
    })
}

/// The options of a pod that are under `spec.pod` of a ZitiRouter as they are.
fn options(pod: &PodSpec) -> Result<Map<String, Value>> {
    const SAME: [&str; 5] = [
        "affinity",
        "imagePullSecrets",
        "nodeSelector",
        "priorityClassName",
        "tolerations",
    ];
    let said = serde_json::to_value(pod).context("reading the pod's template")?;
    let is_same = |key: &str, value: &Value| SAME.contains(&key) && !value.is_null();
    let said = said.as_object().cloned().unwrap_or_default().into_iter();
    Ok(said.filter(|(key, value)| is_same(key, value)).collect())
}

/// The Services that lead to pods with these labels.
async fn services(
    client: &Client,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let listed = services.list(&ListParams::default()).await;
    let listed =
        listed.with_context(|| format!("listing the Services of namespace {namespace}"))?;
    let leading = listed.items.into_iter().filter_map(|service| {
        let name = service.name_any();
        let selector = service.spec?.selector?;
        let mut wanted = selector.iter();
        let leads =
            !selector.is_empty() && wanted.all(|(key, value)| labels.get(key) == Some(value));
        leads.then_some((name, selector))
    });
    Ok(leading.collect())
}

fn claim_of(pod: &PodSpec) -> Option<String> {
    let volumes = pod.volumes.iter().flatten();
    let mut claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.next().map(|claim| claim.claim_name.clone())
}

async fn volume(client: &Client, namespace: &str, claim: &str) -> Result<(Volume, ObjectMeta)> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let object = claims
        .get(claim)
        .await
        .with_context(|| format!("reading PersistentVolumeClaim {namespace}/{claim}"))?;
    let (metadata, asked) = (object.metadata, object.spec.unwrap_or_default());
    let access_modes = asked.access_modes.unwrap_or_default();
    let name = asked.volume_name;
    let name = name.with_context(|| {
        format!("PersistentVolumeClaim {namespace}/{claim} is not bound to a volume: start the router once")
    })?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let object = volumes
        .get(&name)
        .await
        .with_context(|| format!("reading PersistentVolume {name}"))?;
    let spec = object.spec.unwrap_or_default();
    let size = spec.capacity.unwrap_or_default().remove("storage");
    let volume = Volume {
        name,
        class: spec.storage_class_name,
        size: size
            .with_context(|| format!("PersistentVolume of {claim} has no size"))?
            .0,
        reclaim_policy: spec
            .persistent_volume_reclaim_policy
            .unwrap_or_else(|| "Retain".to_owned()),
        access_modes,
    };
    Ok((volume, metadata))
}

/// The configuration, in whichever of the pod's ConfigMaps it is.
async fn config(client: &Client, namespace: &str, name: &str, pod: &PodSpec) -> Result<Config> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let volumes = pod.volumes.iter().flatten();
    for source in volumes.filter_map(|volume| volume.config_map.as_ref()) {
        let map = maps
            .get(&source.name)
            .await
            .with_context(|| format!("reading ConfigMap {namespace}/{}", source.name))?;
        for (key, text) in map.data.iter().flatten() {
            let parsed: Result<Value, _> = serde_saphyr::from_str(text);
            let Ok(value) = parsed else { continue };
            if value["v"] == 3 && value["identity"].is_object() {
                return parse(&value)
                    .with_context(|| format!("reading key {key} of ConfigMap {}", map.name_any()));
            }
        }
    }
    bail!("none of the ConfigMaps of Deployment {name} holds a router's configuration (v: 3)")
}

fn parse(config: &Value) -> Result<Config> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (listeners, links) = (
        list(&config["listeners"]),
        list(&config["link"]["listeners"]),
    );
    let bound = |binding: &'static str| {
        let bound = move |listener: &&Value| listener["binding"] == binding;
        listeners.iter().filter(bound)
    };
    let csr = match &config["edge"]["csr"] {
        Value::Null => &config["csr"],
        csr => csr,
    };
    let names = |key: &str| {
        let list = list(&csr["sans"][key]);
        let texts = list.iter().filter_map(Value::as_str).map(str::to_owned);
        texts.collect::<Vec<_>>()
    };
    let edge = bound("edge").next();
    let edge = edge.map(|edge| listener(&edge["address"], &edge["options"]["advertise"]));
    let link = links.first();
    let link = link.map(|link| listener(&link["bind"], &link["advertise"]));
    Ok(Config {
        edge: edge.transpose()?.unwrap_or_default(),
        link: link.transpose()?,
        more: bound("edge").skip(1).count() + links.len().saturating_sub(1),
        tunnel: bound("tunnel").next().map(|tunnel| {
            let mut options = tunnel["options"].as_object().cloned().unwrap_or_default();
            let mode = options.remove("mode");
            // As the router itself has it.
            let mode = mode.as_ref().and_then(Value::as_str).unwrap_or("tproxy");
            let mode = mode.to_owned();
            Tunnel { mode, options }
        }),
        dns: names("dns"),
        ip: names("ip"),
    })
}

/// `address` is `tls:0.0.0.0:3022`; `advertise` is a host and a port, with or
/// without a protocol.
fn listener(address: &Value, advertise: &Value) -> Result<Listener> {
    let port = |text: &str| text.rsplit(':').next().map(str::parse).transpose();
    let bound = address.as_str().map(port).transpose();
    let bound =
        bound.with_context(|| format!("the address {address} of a listener has no port"))?;
    let told = advertise.as_str().and_then(|text| {
        let (host, port) = text.strip_prefix("tls:").unwrap_or(text).rsplit_once(':')?;
        Some((host.to_owned(), port.parse().ok()?))
    });
    Ok(Listener {
        port: bound.flatten(),
        advertise: told,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn listeners_tunnel_and_names_are_read_from_the_configuration() {
        let config = json!({"v": 3, "identity": {}, "listeners": [
            {"binding": "edge", "address": "tls:0.0.0.0:3023", "options": {"advertise": "edge.example.com:443"}},
            {"binding": "edge", "address": "wss:0.0.0.0:3024", "options": {"advertise": "wss.example.com:443"}},
            {"binding": "tunnel", "options": {"mode": "proxy", "services": ["web:8080"]}},
        ], "link": {"listeners": [
            {"binding": "transport", "bind": "tls:0.0.0.0:3023", "advertise": "tls:link.example.com:443"},
        ]}, "edge": {"csr": {"sans": {"dns": ["a"], "ip": ["192.0.2.1"], "uri": []}}}});
        let listener = |host: &str| Listener {
            port: Some(3023),
            advertise: Some((host.to_owned(), 443)),
        };
        let expected = Config {
            edge: listener("edge.example.com"),
            link: Some(listener("link.example.com")),
            more: 1,
            tunnel: Some(Tunnel {
                mode: "proxy".to_owned(),
                options: serde_json::from_value(json!({"services": ["web:8080"]})).unwrap(),
            }),
            dns: vec!["a".to_owned()],
            ip: vec!["192.0.2.1".to_owned()],
        };
        assert_eq!(parse(&config).unwrap(), expected);
        assert_eq!(parse(&json!({"v": 3})).unwrap(), Config::default());
        let broken = json!({"listeners": [{"binding": "edge", "address": "tls:0.0.0.0:x"}]});
        assert!(parse(&broken).is_err());
    }
}
