//! `cargo xtask tools`, `up` and `down`.

use anyhow::Result;
use testbed::cluster::{Cluster, NodeOptions};
use testbed::progress::{Progress, Step};
use testbed::{debian, tools};

use crate::{Place, output};

/// Builds the pinned programs.
pub(crate) async fn tools() -> Result<()> {
    let progress = Progress::new(2);
    prepare(&progress).await
}

/// Starts a cluster with at least so many nodes, and a second one beside it if wished.
pub(crate) async fn up(place: Place, nodes: u8, second: bool) -> Result<()> {
    let progress = Progress::new(3 + usize::from(nodes > 1) + usize::from(second));
    prepare(&progress).await?;
    let cluster = start(&progress, &place).await?;
    if nodes > 1 {
        further_nodes(&progress, &cluster, nodes).await?;
    }
    if second {
        start_second(&progress, &cluster).await?;
    }
    output::timings(&progress);
    output::heading("Go on");
    tell_second(&cluster);
    output::line(format!(
        "  export KUBECONFIG={}",
        cluster.kubeconfig().display()
    ));
    output::line("  kubectl get nodes");
    output::line("  cargo xtask down");
    Ok(())
}

/// Starts the second cluster as a step.
pub(crate) async fn start_second(progress: &Progress, cluster: &Cluster) -> Result<()> {
    progress
        .step("second cluster", async |step| {
            let second = cluster.start_second(step).await?;
            Ok(((), format!("{} is ready", second.cluster().url())))
        })
        .await
}

/// Says how the second cluster is reached, if there is one.
pub(crate) fn tell_second(cluster: &Cluster) {
    if let Ok(second) = cluster.second() {
        output::line(format!(
            "  kubectl --kubeconfig {} get nodes    # of the second cluster",
            second.cluster().kubeconfig().display()
        ));
    }
}

/// Starts what does not run of the nodes beside the first, and adds those that are missing.
async fn further_nodes(progress: &Progress, cluster: &Cluster, nodes: u8) -> Result<()> {
    progress
        .step("further nodes", async |step| {
            let have = cluster.further_nodes();
            for node in &have {
                step.say(&node.name());
                node.start().await?;
            }
            let have = 1 + have.len();
            let wanted = have.max(usize::from(nodes));
            for _ in have..wanted {
                step.say("one more");
                cluster.add_node(&NodeOptions::default()).await?;
            }
            Ok(((), format!("{wanted} nodes are ready")))
        })
        .await
}

/// Ends a cluster, or all.
pub(crate) async fn down(place: Place, all: bool) -> Result<()> {
    let names = if all {
        Cluster::names()?
    } else {
        vec![place.name.clone()]
    };
    let progress = Progress::new(names.len());
    for name in names {
        progress
            .step(&format!("end cluster {name}"), async |step| {
                Ok(((), end(step, &name, &place).await?.to_owned()))
            })
            .await?;
    }
    Ok(())
}

async fn end(step: &Step, name: &str, place: &Place) -> Result<&'static str> {
    let there = match &place.dir {
        Some(dir) => Cluster::down_dir(dir, step).await?,
        None => Cluster::down(name, step).await?,
    };
    Ok(if there {
        "nothing is left"
    } else {
        "there was none"
    })
}

/// The two steps with which every command that runs something begins.
pub(crate) async fn prepare(progress: &Progress) -> Result<()> {
    progress
        .step("Debian packages", async |step| {
            let installed = debian::install(step)?;
            let detail = if installed.is_empty() {
                "all are there".to_owned()
            } else {
                format!("{} installed", installed.len())
            };
            Ok(((), detail))
        })
        .await?;
    progress
        .step("pinned programs", async |step| {
            let detail = match tools::build(step)? {
                0 => "all are in the cache".to_owned(),
                built => format!("{built} built"),
            };
            Ok(((), detail))
        })
        .await
}

/// Starts the cluster as a step.
pub(crate) async fn start(progress: &Progress, place: &Place) -> Result<Cluster> {
    progress
        .step("Kubernetes", async |step| {
            let cluster = Cluster::up(&place.name, place.dir.clone(), step).await?;
            let detail = format!("cluster {} is ready", place.name);
            Ok((cluster, detail))
        })
        .await
}
