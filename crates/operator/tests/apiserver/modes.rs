//! Sets in tunnel modes against a real API server: what they own comes and goes with the wish, and
//! what a namespace does not allow is said.

use api::reasons::{self, types};
use api::{ZitiRouter, names};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::json;

use crate::operator::Operator;
use crate::set::zitirouter;
use crate::world::World;
use crate::ziti_network as network;

#[tokio::test]
async fn a_proxied_port_has_its_service_and_policy_as_long_as_it_is_offered() {
    let controller = network::shared_controller().await;
    let world = World::new("proxied").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    let offer = |services| json!({"tunnel": {"mode": "proxy", "proxy": {"services": services}}});
    let web = json!({"service": "web", "port": 9000});
    let names = json!({"service": "names", "port": 9053, "protocol": "UDP", "kubernetesService":
        {"name": "names", "port": 53, "type": "NodePort"}});
    let spec = offer(json!([web, names]));
    world
        .create::<ZitiRouter>(zitirouter("proxied", 1, spec))
        .await;
    for name in ["proxied-proxy-9000", "names"] {
        world.until::<Service>(name, "there", |_| true).await;
    }
    world
        .until::<NetworkPolicy>("proxied", "there", |policy| {
            let spec = policy.spec.as_ref().unwrap();
            spec.ingress.as_ref().unwrap().len() == 3
        })
        .await;

    // A type is changed in place, and one service is offered no more.
    let names = json!({"service": "names", "port": 9053, "protocol": "UDP", "kubernetesService":
        {"name": "names", "port": 53, "type": "ClusterIP"}});
    let spec = json!({"spec": offer(json!([names]))});
    world.patch::<ZitiRouter>("proxied", spec).await;
    world
        .until::<Service>("names", "within the cluster", |service| {
            service.spec.as_ref().unwrap().type_.as_deref() == Some("ClusterIP")
        })
        .await;
    world.until_gone::<Service>("proxied-proxy-9000").await;

    let spec = json!({"spec": {"tunnel": {"mode": "host", "proxy": null}}});
    world.patch::<ZitiRouter>("proxied", spec).await;
    world.until_gone::<Service>("names").await;
    world.until_gone::<NetworkPolicy>("proxied").await;
    let member: Service = world.get("proxied-0").await;
    assert!(
        member
            .metadata
            .labels
            .unwrap()
            .contains_key(names::LABEL_MEMBER)
    );
}

#[tokio::test]
async fn a_pod_that_its_namespace_does_not_allow_is_said_with_what_to_do() {
    let controller = network::shared_controller().await;
    let world = World::new("barred").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    // There are no nodes here, for which the topology of this mode asks.
    let tunnel = json!({"mode": "tproxy", "tproxy": {"hostNetwork": true}});
    let spec = json!({"topology": "StatefulSet", "tunnel": tunnel});
    world
        .create::<ZitiRouter>(zitirouter("barred", 1, spec))
        .await;
    let told = world
        .told::<ZitiRouter>("barred", types::READY, "False", reasons::MEMBER_FAILING)
        .await;
    for words in [
        "violates PodSecurity",
        "mode tproxy needs NET_ADMIN",
        "pod-security.kubernetes.io/enforce=privileged",
    ] {
        assert!(told.contains(words), "{told:?} should say {words:?}");
    }
}
