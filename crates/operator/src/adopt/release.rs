//! What the chart made: the Deployment, its configuration, its volume.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, PodSpec, ResourceRequirements,
};
use kube::api::Api;
use kube::{Client, ResourceExt};
use serde_json::Value;

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
}

/// The volume with the identity.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) class: Option<String>,
    pub(super) size: String,
    pub(super) reclaim_policy: String,
}

/// What of the router's configuration matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) edge_port: Option<u16>,
    /// `None` where it has no tunnel.
    pub(super) tunnel_mode: Option<String>,
    pub(super) dns: Vec<String>,
    pub(super) ip: Vec<String>,
}

/// Read everything about a Deployment.
pub(super) async fn read(client: &Client, namespace: &str, name: &str) -> Result<Release> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment = deployments
        .get(name)
        .await
        .with_context(|| format!("reading Deployment {namespace}/{name}"))?;
    let spec = deployment.spec.unwrap_or_default();
    let pod = spec.template.spec.unwrap_or_default();
    let claim = claim_of(&pod).with_context(|| {
        format!("Deployment {name} has no PersistentVolumeClaim, so there is no identity to take over: use a new ZitiRouter")
    })?;
    let config = config(client, namespace, name, &pod).await?;
    let container = pod.containers.into_iter().next();
    Ok(Release {
        namespace: namespace.to_owned(),
        deployment: name.to_owned(),
        image: container
            .as_ref()
            .and_then(|container| container.image.clone()),
        resources: container.and_then(|container| container.resources),
        volume: volume(client, namespace, &claim).await?,
        claim,
        config,
    })
}

fn claim_of(pod: &PodSpec) -> Option<String> {
    let volumes = pod.volumes.iter().flatten();
    let mut claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.next().map(|claim| claim.claim_name.clone())
}

async fn volume(client: &Client, namespace: &str, claim: &str) -> Result<Volume> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let object = claims
        .get(claim)
        .await
        .with_context(|| format!("reading PersistentVolumeClaim {namespace}/{claim}"))?;
    let name = object.spec.and_then(|spec| spec.volume_name);
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
    Ok(Volume {
        name,
        class: spec.storage_class_name,
        size: size
            .with_context(|| format!("PersistentVolume of {claim} has no size"))?
            .0,
        reclaim_policy: spec
            .persistent_volume_reclaim_policy
            .unwrap_or_else(|| "Retain".to_owned()),
    })
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
    let listeners = config["listeners"].as_array().cloned().unwrap_or_default();
    let bound = |binding: &str| {
        listeners
            .iter()
            .find(|listener| listener["binding"] == binding)
    };
    let port = bound("edge").and_then(|edge| edge["address"].as_str()?.rsplit(':').next());
    let port = port.map(str::parse).transpose();
    let csr = match &config["edge"]["csr"] {
        Value::Null => &config["csr"],
        csr => csr,
    };
    let names = |key: &str| {
        let list = csr["sans"][key].as_array().cloned().unwrap_or_default();
        let texts = list.iter().filter_map(Value::as_str).map(str::to_owned);
        texts.collect::<Vec<_>>()
    };
    Ok(Config {
        edge_port: port.context("the edge listener's address has no port")?,
        tunnel_mode: bound("tunnel").map(|tunnel| {
            // As the router itself has it.
            let mode = tunnel["options"]["mode"].as_str();
            mode.unwrap_or("tproxy").to_owned()
        }),
        dns: names("dns"),
        ip: names("ip"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn port_mode_and_names_are_read_from_the_configuration() {
        let config = json!({"v": 3, "identity": {}, "listeners": [
            {"binding": "edge", "address": "tls:0.0.0.0:3023"},
            {"binding": "tunnel", "options": {"mode": "host"}},
        ], "edge": {"csr": {"sans": {"dns": ["a"], "ip": ["192.0.2.1"], "uri": []}}}});
        let expected = Config {
            edge_port: Some(3023),
            tunnel_mode: Some("host".to_owned()),
            dns: vec!["a".to_owned()],
            ip: vec!["192.0.2.1".to_owned()],
        };
        assert_eq!(parse(&config).unwrap(), expected);
        assert_eq!(parse(&json!({"v": 3})).unwrap(), Config::default());
    }
}
