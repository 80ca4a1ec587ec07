//! A Ziti network as Ziti itself sees it: a real controller in a namespace, and its management API.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::{Value, json};
use testbed::environment::Environment;
use testbed::kubernetes;
use testbed::ziti_in_cluster::{ControllerSpec, ZitiController};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use ziti::management::{
    Credential, EdgeRouterEntity, Filter, ManagementClient, NewEdgeRouter, Options,
};
use ziti::trust::CaBundle;

use crate::stage::PATIENCE;

/// A network and the administrator's way into it.
pub(crate) struct Ziti {
    /// Where its controller is.
    pub(crate) namespace: String,
    pub(crate) controller: ZitiController,
    pub(crate) management: ManagementClient,
}

impl Ziti {
    /// Starts a controller, or finds the one that is there.
    pub(crate) async fn deploy(
        client: &Client,
        environment: &Environment,
        namespace: &str,
        token_life: Duration,
    ) -> Result<Self> {
        let spec = ControllerSpec {
            namespace: namespace.to_owned(),
            image: environment.controller_image.clone(),
            token_life,
        };
        let controller = ZitiController::deploy(client, &spec).await?;
        let (username, password) = controller.admin().await?;
        let credential = Credential::Password {
            username,
            password: password.into(),
        };
        let endpoint = controller.url.parse().context("reading the address")?;
        let ca = CaBundle::from_pem(&controller.ca_pem).context("reading the authority")?;
        let management =
            ManagementClient::new(&[endpoint], &ca, Some(credential), &Options::default())
                .context("making a management client")?;
        let ziti = Self {
            namespace: namespace.to_owned(),
            controller,
            management,
        };
        ziti.until_it_answers().await?;
        Ok(ziti)
    }

    /// Brings its controller back, and waits until it answers.
    pub(crate) async fn start(&self) -> Result<()> {
        self.controller.start().await?;
        self.until_it_answers().await
    }

    /// Waits until its controller answers here as well: its pod is ready some moments before the
    /// Service leads to it.
    async fn until_it_answers(&self) -> Result<()> {
        kubernetes::poll("the controller to answer", PATIENCE, async || {
            Ok(self.management.version().await.ok())
        })
        .await?;
        Ok(())
    }

    /// All of its edge routers, by name.
    pub(crate) async fn routers(&self) -> Result<BTreeMap<String, EdgeRouterEntity>> {
        let listed = self.management.edge_routers(&Filter::all()).await;
        let routers = listed.context("listing the network's routers")?.items;
        Ok(routers
            .into_iter()
            .map(|router| (router.name.clone(), router))
            .collect())
    }

    /// The ids of its routers by name; fails where there are others than `names`.
    pub(crate) async fn ids(&self, names: &[&str]) -> Result<BTreeMap<String, String>> {
        let ids: BTreeMap<_, _> = self
            .routers()
            .await?
            .into_iter()
            .map(|(name, router)| (name, router.id))
            .collect();
        let have: Vec<&str> = ids.keys().map(String::as_str).collect();
        ensure!(
            have == names,
            "the network has the routers {have:?}, not {names:?}"
        );
        Ok(ids)
    }

    /// Fails unless Ziti has exactly these routers and sees each online and in sync.
    pub(crate) async fn expect_online(&self, names: &[&str]) -> Result<()> {
        let routers = self.routers().await?;
        let have: Vec<&str> = routers.keys().map(String::as_str).collect();
        ensure!(
            have == names,
            "the network has the routers {have:?}, not {names:?}"
        );
        for router in routers.values() {
            ensure!(
                router.is_in_service(),
                "Ziti does not see it online: {router:?}"
            );
        }
        Ok(())
    }

    /// Waits until Ziti has exactly these routers and sees each online and in sync.
    pub(crate) async fn until_online(&self, names: &[&str]) -> Result<()> {
        let mut last = None;
        kubernetes::poll("Ziti to see the routers online", PATIENCE, async || {
            last = self.expect_online(names).await.err();
            Ok(last.is_none().then_some(()))
        })
        .await
        .with_context(|| last.map_or_else(String::new, |error| format!("{error:#}")))
    }

    /// Registers a router by hand and returns its id and its token, as an administrator of the
    /// network does for somebody who has no credential. `tunneler`: it may host and dial services.
    pub(crate) async fn register(&self, name: &str, tunneler: bool) -> Result<(String, String)> {
        let router = NewEdgeRouter {
            name: name.to_owned(),
            is_tunneler_enabled: tunneler,
            ..NewEdgeRouter::default()
        };
        let created = self.management.create_edge_router(&router).await;
        let id = created.with_context(|| format!("registering {name}"))?;
        let read = self
            .management
            .get(&format!("/edge-routers/{id}"), &[])
            .await;
        let read = read.with_context(|| format!("reading {name}"))?;
        let token = read["enrollmentJwt"].as_str().context("it has no token")?;
        Ok((id, token.to_owned()))
    }

    /// Creates an entity of any kind and returns its id.
    pub(crate) async fn create(&self, path: &str, body: Value) -> Result<String> {
        let created = self.management.post(path, &body).await;
        let created = created.with_context(|| format!("creating {body} at {path}"))?;
        let id = created["id"].as_str().context("it has no id")?;
        Ok(id.to_owned())
    }

    /// Creates a service policy between `@id`s or `#attributes`.
    pub(crate) async fn service_policy(
        &self,
        kind: &str,
        identity: &str,
        service: &str,
    ) -> Result<()> {
        let policy = json!({"name": format!("{kind}-{identity}"), "type": kind,
            "semantic": "AnyOf", "identityRoles": [identity], "serviceRoles": [service]});
        self.create("/service-policies", policy).await?;
        Ok(())
    }

    /// Has a service, given by its id, intercepted at these addresses and this port.
    pub(crate) async fn intercept(&self, service: &str, addresses: Value, port: u16) -> Result<()> {
        let management = &self.management;
        let filter = [("filter", "name=\"intercept.v1\"")];
        let types = management.get("/config-types", &filter).await;
        let types = types.context("looking for intercept.v1")?;
        let intercept_v1 = types[0]["id"]
            .as_str()
            .context("there is no intercept.v1")?;
        let config = json!({"name": format!("intercept-{service}"), "configTypeId": intercept_v1,
            "data": {"protocols": ["tcp"], "addresses": addresses,
                "portRanges": [{"low": port, "high": port}]}});
        let config = self.create("/configs", config).await?;
        let path = format!("/services/{service}");
        let read = management.get(&path, &[]).await;
        let mut configs = read.context("reading the service")?["configs"].clone();
        let known = configs.as_array_mut().context("it has no configs")?;
        known.push(json!(config));
        let patched = management.patch(&path, &json!({"configs": configs})).await;
        patched.context("giving the service its addresses")?;
        Ok(())
    }

    /// Takes down the id of every router that is ever seen, until it is asked for them.
    pub(crate) fn census(&self) -> Census {
        let (stop, mut stopped) = oneshot::channel();
        let management = self.management.clone();
        let task = tokio::spawn(async move {
            let mut seen = BTreeSet::new();
            // Ends by the other end of the channel.
            while matches!(stopped.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
                let listed = management.edge_routers(&Filter::all()).await;
                let listed = listed.context("listing the network's routers")?;
                seen.extend(
                    listed
                        .items
                        .into_iter()
                        .map(|router| (router.name, router.id)),
                );
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(seen)
        });
        Census { stop, task }
    }
}

/// See [`Ziti::census`].
pub(crate) struct Census {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<BTreeSet<(String, String)>>>,
}

impl Census {
    /// Name and id of each router that was there at any time.
    pub(crate) async fn end(self) -> Result<BTreeSet<(String, String)>> {
        drop(self.stop);
        self.task.await.context("taking the census")?
    }
}
