//! The objects that are asked about: from a file, as if it had been applied, or
//! from the cluster by name.

use super::overlay::Overlay;
use crate::documents::parse;
use anyhow::{Context, Result, bail};
use api::{EdgeRouter, ZitiController, ZitiNetwork, ZitiRouter, names};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;

/// An object that is asked about.
#[derive(Clone)]
pub(super) enum Subject {
    Controller(Box<ZitiController>),
    Network(Box<ZitiNetwork>),
    EdgeRouter(Box<EdgeRouter>),
    Router(Box<ZitiRouter>),
}

impl Subject {
    pub(super) fn namespace(&self) -> String {
        let namespace = match self {
            Self::Controller(object) => object.namespace(),
            Self::Network(object) => object.namespace(),
            Self::EdgeRouter(object) => object.namespace(),
            Self::Router(object) => object.namespace(),
        };
        namespace.unwrap_or_default()
    }
}

/// What a file says.
pub(super) struct Documents {
    pub(super) subjects: Vec<Subject>,
    pub(super) overlay: Overlay,
    /// What the reader should know of how the file was taken.
    pub(super) notes: Vec<String>,
}

/// The objects of a file, as they would be once it was applied.
pub(super) async fn of_file(client: &Client, text: &str, namespace: &str) -> Result<Documents> {
    let mut documents = Documents {
        subjects: Vec::new(),
        overlay: Overlay::default(),
        notes: Vec::new(),
    };
    for document in parse(text)? {
        documents.add(client, document, namespace).await?;
    }
    if documents.subjects.is_empty() {
        bail!("the file holds no ZitiController, ZitiRouter, EdgeRouter or ZitiNetwork");
    }
    Ok(documents)
}

impl Documents {
    async fn add(&mut self, client: &Client, document: Value, namespace: &str) -> Result<()> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, kind) = (text(&document["apiVersion"]), text(&document["kind"]));
        let ours = format!("{}/{}", api::GROUP, api::VERSION);
        match (group.as_str(), kind.as_str()) {
            (group, "ZitiNetwork") if group == ours => {
                let object = self.lay(client, document, namespace).await?;
                self.subjects.push(Subject::Network(Box::new(object)));
            }
            (group, "EdgeRouter") if group == ours => {
                let object = self.lay(client, document, namespace).await?;
                self.subjects.push(Subject::EdgeRouter(Box::new(object)));
            }
            (group, "ZitiRouter") if group == ours => {
                let object: ZitiRouter = self.lay(client, document, namespace).await?;
                self.lay_copied_tokens(&object)?;
                self.subjects.push(Subject::Router(Box::new(object)));
            }
            ("v1", "Secret") => {
                let mut secret: Secret = typed(document, namespace)?;
                let texts = secret.string_data.take().unwrap_or_default();
                let data = secret.data.get_or_insert_default();
                data.extend(texts.into_iter().map(|(key, text)| {
                    let bytes = text.into_bytes();
                    (key, k8s_openapi::ByteString(bytes))
                }));
                self.put(&secret)?;
            }
            ("v1", "ConfigMap") => {
                let map: ConfigMap = typed(document, namespace)?;
                self.put(&map)?;
            }
            (group, "ZitiController") if group == ours => {
                let object: ZitiController = self.lay(client, document, namespace).await?;
                self.subjects.push(Subject::Controller(Box::new(object)));
            }
            _ => self.notes.push(format!(
                "{kind} {} ({group}) is no object that the operator reads: left out",
                text(&document["metadata"]["name"])
            )),
        }
        Ok(())
    }

    /// One of our own kinds, as the API server would keep it.
    async fn lay<K: Kind>(
        &mut self,
        client: &Client,
        document: Value,
        namespace: &str,
    ) -> Result<K> {
        let wanted: K = typed(document, namespace)?;
        let kind = K::kind(&());
        let (name, namespace) = (wanted.name_any(), wanted.namespace().unwrap_or_default());
        let told = || format!("{kind} {namespace}/{name}");
        let api: Api<K> = Api::namespaced(client.clone(), &namespace);
        let live = api
            .get_opt(&name)
            .await
            .with_context(|| format!("reading {}", told()))?;
        let merged = merged(&wanted, live.as_ref())?;
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let kept = match &live {
            None => api.create(&params, &merged).await,
            Some(_) => api.replace(&name, &params, &merged).await,
        };
        let object = match kept {
            Ok(object) => object,
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                self.notes.push(format!(
                    "{}: taken as it is written, since this account may not ask the API server to check it ({})",
                    told(),
                    status.message
                ));
                let mut object = merged;
                // What it owns must be seen to be its own.
                object.meta_mut().uid.get_or_insert("to-come".to_owned());
                object
            }
            Err(error) => {
                return Err(error).with_context(|| format!("{} would be refused", told()));
            }
        };
        self.put(&object)?;
        Ok(object)
    }

    /// The Secret into which the operator will copy tokens that are written in
    /// the object, for its EdgeRouters to read. Without the label by which the
    /// set finds its objects: the copying itself is still to be told.
    fn lay_copied_tokens(&mut self, object: &ZitiRouter) -> Result<()> {
        let Some(tokens) = &object.spec.tokens else {
            return Ok(());
        };
        let bytes = |text: &str| k8s_openapi::ByteString(text.as_bytes().to_vec());
        let data = tokens
            .iter()
            .map(|(member, token)| (member.clone(), bytes(&token.0)));
        self.put(&Secret {
            metadata: ObjectMeta {
                name: Some(names::provided_tokens_secret(&object.name_any())),
                namespace: object.namespace(),
                ..ObjectMeta::default()
            },
            data: Some(data.collect()),
            ..Secret::default()
        })
    }

    fn put<K: Kind>(&mut self, object: &K) -> Result<()> {
        let mut json = serde_json::to_value(object).context("writing an object as JSON")?;
        json["apiVersion"] = Value::String(K::api_version(&()).into_owned());
        json["kind"] = Value::String(K::kind(&()).into_owned());
        let collection = K::url_path(&(), object.namespace().as_deref());
        self.overlay
            .put(format!("{collection}/{}", object.name_any()), json);
        Ok(())
    }
}

/// The kinds that are read from files.
trait Kind:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
{
}

impl<K> Kind for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
{
}

fn typed<K: Kind>(document: Value, namespace: &str) -> Result<K> {
    let kind = K::kind(&());
    let name = document["metadata"]["name"].as_str().map(str::to_owned);
    let Some(name) = name else {
        bail!("a {kind} in the file has no name: set metadata.name");
    };
    // The parser's own words quote what they found, which may be a token.
    let Ok(mut object) = serde_json::from_value::<K>(document) else {
        bail!(
            "{kind} {name} has a value of another type than the kind wants: compare it with kubectl explain"
        );
    };
    let metadata = object.meta_mut();
    metadata.namespace.get_or_insert(namespace.to_owned());
    Ok(object)
}

/// What is wished now, on the object that is there.
fn merged<K: Kind>(wanted: &K, live: Option<&K>) -> Result<K> {
    let Some(live) = live else {
        return Ok(wanted.clone());
    };
    let mut json = serde_json::to_value(wanted).context("writing an object as JSON")?;
    let known = serde_json::to_value(live).context("writing an object as JSON")?;
    if !known["status"].is_null() {
        json["status"] = known["status"].clone();
    }
    let mut object: K = serde_json::from_value(json).context("reading an object from JSON")?;
    let mut metadata = live.meta().clone();
    let (labels, annotations) = (&wanted.meta().labels, &wanted.meta().annotations);
    let labels = labels.iter().flatten();
    let annotations = annotations.iter().flatten();
    let pair = |(key, value): (&String, &String)| (key.clone(), value.clone());
    metadata
        .labels
        .get_or_insert_default()
        .extend(labels.map(pair));
    let known = metadata.annotations.get_or_insert_default();
    known.extend(annotations.map(pair));
    *object.meta_mut() = metadata;
    Ok(object)
}

/// An object of the cluster, by `NAME` or `KIND/NAME`.
pub(super) async fn by_name(client: &Client, name: &str, namespace: &str) -> Result<Subject> {
    let (kind, name) = match name.split_once('/') {
        Some((kind, name)) => (Some(kind.to_lowercase()), name),
        None => (None, name),
    };
    let asked = |names: [&str; 3]| kind.as_deref().is_none_or(|kind| names.contains(&kind));
    let mut found = Vec::new();
    let mut known_kind = false;
    // A ZitiNetwork of the same name is its own: it is asked for by its kind.
    if asked(["ziticontroller", "ziticontrollers", "zctl"]) {
        known_kind = true;
        let object = get::<ZitiController>(client, name, namespace).await?;
        found.extend(object.map(|object| Subject::Controller(Box::new(object))));
    }
    if asked(["zitirouter", "zitirouters", "zr"]) {
        known_kind = true;
        let object = get::<ZitiRouter>(client, name, namespace).await?;
        found.extend(object.map(|object| Subject::Router(Box::new(object))));
    }
    if asked(["edgerouter", "edgerouters", "er"]) {
        known_kind = true;
        let object = get::<EdgeRouter>(client, name, namespace).await?;
        found.extend(object.map(|object| Subject::EdgeRouter(Box::new(object))));
    }
    if asked(["zitinetwork", "zitinetworks", "zn"]) {
        known_kind = true;
        let object = get::<ZitiNetwork>(client, name, namespace).await?;
        found.extend(object.map(|object| Subject::Network(Box::new(object))));
    }
    if !known_kind {
        bail!(
            "{name} is asked for with a kind that is none of ziticontroller, zitirouter, edgerouter, zitinetwork"
        );
    }
    if found.len() > 1 {
        bail!(
            "{} objects in namespace {namespace} are named {name}: ask for ziticontroller/{name}, zitirouter/{name}, edgerouter/{name} or zitinetwork/{name}",
            found.len()
        );
    }
    found.pop().with_context(|| {
        format!("namespace {namespace} has no ZitiController, ZitiRouter, EdgeRouter or ZitiNetwork {name}: check the name, or give -n")
    })
}

async fn get<K: Kind>(client: &Client, name: &str, namespace: &str) -> Result<Option<K>> {
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let kind = K::kind(&());
    api.get_opt(name)
        .await
        .with_context(|| format!("reading {kind} {namespace}/{name}"))
}
