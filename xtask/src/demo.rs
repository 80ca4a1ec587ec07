//! `cargo xtask demo`: from a bare machine to two enrolled routers.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use testbed::cluster::Cluster;
use testbed::operator_install::Installation;
use testbed::progress::{Progress, Step, seconds};
use testbed::ziti_in_cluster::{ControllerSpec, ZitiController};
use testbed::{dump, image, kubernetes, paths, ziti_in_cluster};

use crate::{Place, build, cluster_commands, output};

/// Where the quickstart's objects are.
const NAMESPACE: &str = "ziti";
/// Its set of routers, and how many they are.
const ROUTERS: (&str, u64) = ("edge", 2);
/// How long the routers have to come online.
const ONLINE_WITHIN: Duration = Duration::from_mins(5);

/// Shows the operator at work: two routers, each with its own identity, online in a real network.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    #[command(flatten)]
    place: Place,
    /// With a second cluster beside it, which it reaches.
    #[arg(long, conflicts_with = "context")]
    second: bool,
    /// A cluster that exists already: a context of your kubeconfig. Nothing is installed on this
    /// machine then but the programs that talk to it.
    #[arg(long, requires = "operator_image", conflicts_with = "dir")]
    context: Option<String>,
    /// The kubeconfig of that context. Default: $KUBECONFIG, else ~/.kube/config.
    #[arg(long, requires = "context")]
    kubeconfig: Option<PathBuf>,
    /// The operator's image that the cluster can pull.
    #[arg(long, requires = "context")]
    operator_image: Option<String>,
    /// The image of routers, on a cluster that exists already.
    #[arg(long, default_value = "docker.io/openziti/ziti-router:2.0.3")]
    router_image: String,
    /// The image of the Ziti controller, on a cluster that exists already.
    #[arg(long, default_value = "docker.io/openziti/ziti-controller:2.0.3")]
    controller_image: String,
}

/// The cluster that the demo works on, and what runs in it.
struct Stage {
    kubeconfig: PathBuf,
    context: Option<String>,
    operator_image: String,
    router_image: String,
    controller_image: String,
    /// Size of the operator's image in bytes, where it was made here.
    image_size: Option<u64>,
    /// Where the cluster is the testbed's own.
    cluster: Option<Cluster>,
    /// What `cargo xtask down` has to be told to find it.
    place: String,
}

impl Demo {
    /// Runs all of it.
    pub(crate) async fn run(&self) -> Result<()> {
        let steps = if self.context.is_some() { 5 } else { 8 };
        let progress = Progress::new(steps + usize::from(self.second));
        cluster_commands::prepare(&progress).await?;
        let stage = match &self.context {
            Some(context) => self.existing(context)?,
            None => self.local(&progress).await?,
        };
        let client = stage.client().await?;
        let outcome = play(&stage, &client, &progress).await;
        if outcome.is_err() {
            for namespace in [NAMESPACE, testbed::operator_install::RELEASE] {
                output::line(dump::namespace(&stage.kubeconfig, namespace));
            }
        }
        let online = outcome?;
        show(&stage, online)?;
        output::timings(&progress);
        stage.how_to_go_on();
        Ok(())
    }

    fn existing(&self, context: &str) -> Result<Stage> {
        let kubeconfig = match &self.kubeconfig {
            Some(path) => path.clone(),
            None => match std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()) {
                Some(path) => path.into(),
                None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?)
                    .join(".kube/config"),
            },
        };
        Ok(Stage {
            kubeconfig,
            context: Some(context.to_owned()),
            operator_image: self
                .operator_image
                .clone()
                .context("--operator-image is missing")?,
            router_image: self.router_image.clone(),
            controller_image: self.controller_image.clone(),
            image_size: None,
            cluster: None,
            place: String::new(),
        })
    }

    async fn local(&self, progress: &Progress) -> Result<Stage> {
        let operator = progress
            .step("operator and agent", async |step| {
                let archive = build::operator_image(step)?;
                let detail = format!("image of {}", output::megabytes(archive.size));
                Ok((archive, detail))
            })
            .await?;
        let cluster = cluster_commands::start(progress, &self.place).await?;
        let ziti = progress
            .step("images into the cluster", async |step| {
                let ziti = image::ziti()?;
                for archive in [&operator, &ziti.router, &ziti.controller] {
                    step.say(&archive.reference);
                    cluster.import(archive)?;
                }
                Ok((ziti, String::new()))
            })
            .await?;
        if self.second {
            cluster_commands::start_second(progress, &cluster).await?;
        }
        Ok(Stage {
            kubeconfig: cluster.kubeconfig(),
            context: None,
            operator_image: operator.reference,
            router_image: ziti.router.reference,
            controller_image: ziti.controller.reference,
            image_size: Some(operator.size),
            cluster: Some(cluster),
            place: self.place.arguments(),
        })
    }
}

/// The part that is the same on every cluster. Returns how long it took from apply to online; none
/// when the routers were there from an earlier demo.
async fn play(stage: &Stage, client: &Client, progress: &Progress) -> Result<Option<Duration>> {
    let spec = ControllerSpec {
        namespace: NAMESPACE.to_owned(),
        image: stage.controller_image.clone(),
        token_life: Duration::from_hours(3),
    };
    progress
        .step("Ziti controller", async |_| {
            ZitiController::deploy(client, &spec).await?;
            Ok(((), String::new()))
        })
        .await?;
    progress
        .step("operator, by its chart", async |_| {
            Installation {
                kubeconfig: stage.kubeconfig.clone(),
                context: stage.context.clone(),
                install_id: "demo".to_owned(),
                image: stage.operator_image.clone(),
                router_image: stage.router_image.clone(),
                watch_namespaces: Vec::new(),
                log_level: "info".to_owned(),
            }
            .install()?;
            Ok(((), String::new()))
        })
        .await?;
    progress
        .step("two routers online", async |step| {
            let path = paths::repository().join("examples/quickstart.yaml");
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("reading {}", path.display()))?;
            let repeated = routers(client)
                .get_opt(ROUTERS.0)
                .await
                .context("looking for the routers of an earlier demo")?
                .is_some();
            let started = Instant::now();
            kubernetes::apply_yaml(client, &text, NAMESPACE).await?;
            wait_online(client, step).await?;
            let took = started.elapsed();
            Ok(((!repeated).then_some(took), String::new()))
        })
        .await
}

/// The ZitiRouters of the quickstart's namespace.
fn routers(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("openziti.io", "v1alpha1", "ZitiRouter");
    Api::namespaced_with(client.clone(), NAMESPACE, &ApiResource::from_gvk(&kind))
}

/// Waits until the set says that all of its routers are online, and says meanwhile why not.
async fn wait_online(client: &Client, step: &Step) -> Result<()> {
    let (name, wanted) = ROUTERS;
    let online = |router: Option<&DynamicObject>| {
        let Some(router) = router else { return false };
        let status = &router.data["status"];
        let online = status["onlineReplicas"].as_u64().unwrap_or(0);
        let ready = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == "Ready");
        let message = ready.map_or("", |condition| condition["message"].as_str().unwrap_or(""));
        step.say(&format!("{online} of {wanted} online. {message}"));
        online == wanted
    };
    kubernetes::wait_for(routers(client), name, "online", online, ONLINE_WITHIN).await?;
    Ok(())
}

/// Prints what a person wants to see.
fn show(stage: &Stage, online: Option<Duration>) -> Result<()> {
    output::heading("The objects");
    output::line(
        stage
            .kubectl(&["get", "ziti,pods,persistentvolumeclaims"])?
            .trim_end(),
    );
    output::heading("The routers as the Ziti controller sees them");
    output::line(stage.routers_by_ziti()?.trim_end());

    output::heading("Measured");
    let mut rows = vec![vec![
        "from apply to both routers online".to_owned(),
        online.map_or("they were online already".to_owned(), seconds),
    ]];
    if let Some(cluster) = &stage.cluster {
        let memory = cluster
            .resident_memory("ziti-operator")?
            .context("the operator's process is not to be found")?;
        rows.push(vec![
            "operator, resident memory".to_owned(),
            output::megabytes(memory),
        ]);
    }
    if let Some(size) = stage.image_size {
        rows.push(vec!["operator, image".to_owned(), output::megabytes(size)]);
    }
    output::table(&["WHAT", "VALUE"], rows);
    Ok(())
}

impl Stage {
    async fn client(&self) -> Result<Client> {
        kubernetes::client_of_context(&self.kubeconfig, self.context.as_deref()).await
    }

    fn kubectl(&self, args: &[&str]) -> Result<String> {
        kubernetes::kubectl(&self.kubeconfig, self.context.as_deref())?
            .args(["--namespace", NAMESPACE])
            .args(args)
            .output()
    }

    /// Asks with Ziti's own command line, in the controller's pod: that works on every cluster.
    fn routers_by_ziti(&self) -> Result<String> {
        let script = "export HOME=/tmp; \
            ziti edge login localhost:1280 -y --ca /etc/ziti/pki/ca.crt \
                -u \"$USERNAME\" -p \"$PASSWORD\" >/dev/null && ziti edge list edge-routers";
        let pod = format!("statefulset/{}", ziti_in_cluster::NAME);
        let listed = self.kubectl(&["exec", &pod, "-c", "controller", "--", "sh", "-c", script])?;
        let (name, wanted) = ROUTERS;
        for member in 0..wanted {
            ensure!(
                listed.contains(&format!("{name}-{member}")),
                "the Ziti controller does not list {name}-{member}:\n{listed}"
            );
        }
        Ok(listed)
    }

    fn how_to_go_on(&self) {
        let (name, _) = ROUTERS;
        output::heading("Go on");
        if let Some(cluster) = &self.cluster {
            output::line(format!(
                "  export KUBECONFIG={}",
                cluster.kubeconfig().display()
            ));
            if let Ok(bin) = paths::bin() {
                output::line(format!("  export PATH={}:$PATH", bin.display()));
            }
            cluster_commands::tell_second(cluster);
        }
        let context = match &self.context {
            Some(context) => format!(" --context {context}"),
            None => String::new(),
        };
        for command in [
            "get ziti".to_owned(),
            format!("scale zitirouter {name} --replicas 3"),
            format!("delete zitirouter {name}"),
        ] {
            output::line(format!("  kubectl{context} -n {NAMESPACE} {command}"));
        }
        if self.cluster.is_some() {
            output::line(format!("  cargo xtask down{}", self.place));
        }
    }
}
