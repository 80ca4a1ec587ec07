//! What somebody changes behind the operator's back, on the network or in the cluster, is put back,
//! and an event on the object says what it was: from what to what.

use api::{EdgeRouter, ZitiRouter};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;
use testbed::kubernetes;
use ziti::management::EdgeRouterPatch;

use crate::edge_router::registered;
use crate::operator::Operator;
use crate::set::{until_replicas, zitirouter};
use crate::world::{Object, PATIENCE, World};
use crate::ziti_network as network;

/// Waits for the event that says this of the object.
async fn told<K: Object>(world: &World, object: &str, words: &[&str]) {
    let mut last = Vec::new();
    let told = kubernetes::poll("an event", PATIENCE, async || {
        let listed = world.api::<Event>().list(&ListParams::default()).await?;
        last = listed
            .into_iter()
            .filter(|event| {
                let regarding = event.regarding.as_ref();
                event.reason.as_deref() == Some("PutBack")
                    && regarding.is_some_and(|regarding| {
                        regarding.name.as_deref() == Some(object)
                            && regarding.kind.as_deref() == Some(K::kind(&()).as_ref())
                    })
            })
            .filter_map(|event| event.note)
            .collect();
        let says = |note: &String| words.iter().all(|word| note.contains(word));
        Ok(last.iter().any(says).then_some(()))
    });
    let told = told.await;
    assert!(
        told.is_ok(),
        "no event says {words:?} of {object}: {last:?}"
    );
}

#[tokio::test]
async fn what_is_changed_on_the_network_is_put_back_and_told() {
    let controller = network::shared_controller().await;
    let world = World::new("drifted").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    let spec = json!({"roleAttributes": ["blue"], "cost": 3, "tags": {"team": "one"}});
    registered(&world, "drifted-a", spec).await;
    let ziti = network::admin(&controller);
    let router = network::router_named(&ziti, "drifted-a").await.unwrap();
    let mut tags = router.tags.clone();
    tags.insert("team".to_owned(), json!("two"));
    let drift = EdgeRouterPatch {
        role_attributes: Some(vec!["red".to_owned()]),
        is_tunneler_enabled: Some(true),
        cost: Some(99),
        no_traversal: Some(true),
        tags: Some(tags),
        app_data: None,
    };
    ziti.patch_edge_router(&router.id, &drift).await.unwrap();
    network::until_router(&ziti, "drifted-a", "put back", |router| {
        router.role_attributes == ["blue"]
            && !router.is_tunneler_enabled
            && router.cost == 3
            && !router.no_traversal
            && router.tags["team"] == "one"
    })
    .await;
    let words = [
        r#"role attributes ["red"] → ["blue"]"#,
        "tunneler enabled true → false",
        "cost 99 → 3",
        "no traversal true → false",
        r#"tag team "two" → "one""#,
    ];
    told::<EdgeRouter>(&world, "drifted-a", &words).await;
}

#[tokio::test]
async fn what_is_changed_in_the_cluster_is_put_back_and_told() {
    let controller = network::shared_controller().await;
    let world = World::new("bent").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    world
        .create::<ZitiRouter>(zitirouter(
            "bent",
            1,
            json!({"cost": 3, "networkPolicy": {"enabled": true}}),
        ))
        .await;
    until_replicas(&world, "bent", 1).await;

    let bent = json!({"spec": {"publishNotReadyAddresses": false}});
    world.patch::<Service>("bent-0", bent).await;
    world
        .until::<Service>("bent-0", "put back", |service| {
            service.spec.as_ref().unwrap().publish_not_ready_addresses == Some(true)
        })
        .await;
    let words = [
        "Service bent-0",
        "spec.publishNotReadyAddresses: nothing → true",
    ];
    told::<ZitiRouter>(&world, "bent", &words).await;

    let bent = json!({"spec": {"template": {"spec": {"automountServiceAccountToken": true}}}});
    world.patch::<StatefulSet>("bent", bent).await;
    world
        .until::<StatefulSet>("bent", "put back", |set| {
            let pod = set.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
            pod.automount_service_account_token == Some(false)
        })
        .await;
    let words = [
        "StatefulSet bent",
        "automountServiceAccountToken: true → false",
    ];
    told::<ZitiRouter>(&world, "bent", &words).await;

    let bent = json!({"spec": {"cost": 9}});
    world.patch::<EdgeRouter>("bent-0", bent).await;
    told::<ZitiRouter>(&world, "bent", &["EdgeRouter bent-0", "spec.cost: 9 → 3"]).await;

    let bent = json!({"spec": {"policyTypes": ["Egress"]}});
    world.patch::<NetworkPolicy>("bent", bent).await;
    let words = ["NetworkPolicy bent", "spec.policyTypes"];
    told::<ZitiRouter>(&world, "bent", &words).await;

    let maps = world.list::<ConfigMap>().await;
    let map = maps
        .iter()
        .find(|map| map.name_any().starts_with("bent-config-"));
    let map = map.unwrap().name_any();
    world.delete::<ConfigMap>(&map).await;
    world.until::<ConfigMap>(&map, "made again", |_| true).await;
    told::<ZitiRouter>(&world, "bent", &["made ConfigMap", &map, "again"]).await;
}
