//! What `kubectl` shows of the kinds: columns, short names, the category, and the scale.

use api::{EdgeRouter, ZitiNetwork, ZitiRouter};
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::world::{Object, World};

/// The columns of a list as the API server makes them for `kubectl get`, the wide ones marked.
async fn columns<K: Object>(world: &World) -> Vec<String> {
    let path = format!("{}?limit=1", K::url_path(&(), Some(&world.namespace)));
    let request = http::Request::get(path)
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = world.client.request(request).await.unwrap();
    assert_eq!(table["kind"], "Table", "{table}");
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let shown = columns.map(|column| {
        let wide = if column["priority"] == 0 { "" } else { "+" };
        format!("{wide}{}", column["name"].as_str().unwrap())
    });
    shown.collect()
}

#[tokio::test]
async fn lists_show_what_a_person_wants_to_see() {
    let world = World::new("columns").await;
    assert_eq!(
        columns::<ZitiNetwork>(&world).await,
        ["Name", "Ready", "Reason", "Version", "+Network", "Age"]
    );
    assert_eq!(
        columns::<EdgeRouter>(&world).await,
        [
            "Name",
            "Registered",
            "Enrolled",
            "Online",
            "Reason",
            "Id",
            "+Version",
            "Age"
        ]
    );
    assert_eq!(
        columns::<ZitiRouter>(&world).await,
        [
            "Name", "Desired", "Ready", "Online", "Status", "+Cluster", "+Mode", "+Message", "Age"
        ]
    );
}

#[tokio::test]
async fn every_kind_has_its_short_name_and_is_listed_by_kubectl_get_ziti() {
    let world = World::new("discovery").await;
    let group_version = format!("{}/{}", api::GROUP, api::VERSION);
    let listed = world
        .client
        .list_api_group_resources(&group_version)
        .await
        .unwrap();
    for (plural, short) in [
        ("zitinetworks", "zn"),
        ("edgerouters", "er"),
        ("zitirouters", "zr"),
    ] {
        let found = listed
            .resources
            .iter()
            .find(|resource| resource.name == plural)
            .unwrap();
        assert_eq!(found.short_names.as_deref(), Some(&[short.to_owned()][..]));
        assert_eq!(found.categories.as_deref(), Some(&["ziti".to_owned()][..]));
        assert!(found.namespaced);
        let status = format!("{plural}/status");
        assert!(
            listed
                .resources
                .iter()
                .any(|resource| resource.name == status)
        );
    }
    assert!(
        listed
            .resources
            .iter()
            .any(|resource| resource.name == "zitirouters/scale")
    );
}

#[tokio::test]
async fn a_set_is_scaled_through_its_scale_subresource() {
    let world = World::new("scale").await;
    let object = json!({"metadata": {"name": "scaled"}, "spec": {"networkRef": {"name": "n"}}});
    world.create::<ZitiRouter>(object).await;
    let api = world.api::<ZitiRouter>();
    let mut scale = api.get_scale("scaled").await.unwrap();
    let spec = scale.spec.as_mut().unwrap();
    assert_eq!(spec.replicas, Some(2), "the default");
    spec.replicas = Some(4);
    let params = PostParams::default();
    api.replace_scale("scaled", &params, &scale).await.unwrap();
    assert_eq!(world.get::<ZitiRouter>("scaled").await.spec.replicas, 4);
}
