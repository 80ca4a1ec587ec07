//! `ziti-operator spread`, as docs/clusters.md has it: with kubectl, over the ZitiClusters that a
//! selector finds, and taken back by its label.

use std::process::{Command, Stdio};

use api::{ZitiCluster, ZitiRouter, names};
use kube::ResourceExt;
use serde_json::json;
use testbed::paths;

use crate::set::zitirouter;
use crate::world::World;

async fn cluster(world: &World, name: &str, region: &str) {
    let labels = json!({"region": region});
    world
        .create::<ZitiCluster>(json!({"metadata": {"name": name, "labels": labels},
            "spec": {"server": "https://far.example", "namespace": "edge", "credential": {"token": {"name": name}}}}))
        .await;
}

/// Prints for a selector, and applies as a person would.
fn apply_spread(world: &World, selector: &str) -> Result<String, String> {
    let namespace = world.namespace.as_str();
    let mut manifest = zitirouter("edge", 1, json!({}));
    manifest["apiVersion"] = json!("openziti.io/v1alpha1");
    manifest["kind"] = json!("ZitiRouter");
    let file = world.dir().join(format!("{namespace}.yaml"));
    std::fs::write(&file, manifest.to_string()).unwrap();
    let printed = Command::new(env!("CARGO_BIN_EXE_ziti-operator"))
        .args(["spread", "-n", namespace, "--clusters", selector, "-f"])
        .arg(&file)
        .env("KUBECONFIG", world.admin_kubeconfig())
        .output()
        .unwrap();
    if !printed.status.success() {
        return Err(String::from_utf8(printed.stderr).unwrap());
    }
    std::fs::write(&file, &printed.stdout).unwrap();
    let applied = Command::new(paths::program("kubectl").unwrap())
        .args(["apply", "-n", namespace, "-f", "-"])
        .args(["--prune", "-l", "openziti.io/spread=edge"])
        .arg("--prune-allowlist=openziti.io/v1alpha1/ZitiRouter")
        .env("KUBECONFIG", world.admin_kubeconfig())
        .stdin(Stdio::from(std::fs::File::open(&file).unwrap()))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&applied.stderr).into_owned();
    assert!(applied.status.success(), "{told}");
    Ok(String::from_utf8(applied.stdout).unwrap())
}

/// The ZitiRouters that were spread, and where each is.
async fn spread(world: &World) -> Vec<(String, String)> {
    let all = world.list::<ZitiRouter>().await;
    let place = |set: &ZitiRouter| set.spec.cluster().unwrap_or("nowhere").to_owned();
    let of_spread = |set: &&ZitiRouter| set.labels().get(names::LABEL_SPREAD).is_some();
    let mut found: Vec<_> = all
        .iter()
        .filter(of_spread)
        .map(|set| (set.name_any(), place(set)))
        .collect();
    found.sort();
    found
}

#[tokio::test]
async fn a_router_is_spread_over_the_clusters_of_a_label_and_taken_from_those_that_lose_it() {
    let world = World::new("spread").await;
    for (name, region) in [("paris", "eu"), ("rome", "eu"), ("austin", "us")] {
        cluster(&world, name, region).await;
    }
    // Somebody else's, which has no such label.
    world
        .create::<ZitiRouter>(zitirouter("alone", 1, json!({})))
        .await;
    let pair = |city: &str| (format!("edge-{city}"), city.to_owned());
    apply_spread(&world, "region=eu").unwrap();
    assert_eq!(spread(&world).await, [pair("paris"), pair("rome")]);

    let moved = json!({"metadata": {"labels": {"region": "us"}}});
    world.patch::<ZitiCluster>("rome", moved).await;
    let told = apply_spread(&world, "region=eu").unwrap();
    assert!(told.contains("edge-rome pruned"), "{told}");
    assert_eq!(spread(&world).await, [pair("paris")]);

    let told = apply_spread(&world, "region=mars").unwrap_err();
    assert!(
        told.contains("no ZitiCluster with the labels region=mars"),
        "{told}"
    );
    assert_eq!(spread(&world).await, [pair("paris")]);
    assert!(world.find::<ZitiRouter>("alone").await.is_some());
}
