//! What users of routers have reported of other ways to run them, and must not happen here: see
//! `docs/what-users-report.md`.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

mod common;

use api::ZitiRouter;
use api::router::Topology;
use common::{facts, object, settings};
use k8s_openapi::api::core::v1::PodSpec;
use kube::core::DynamicObject;
use plan::set::{Facts, Step, plan, render, service, tunnel, workload};
use serde_json::{Value, json};

fn pod(facts: &Facts) -> PodSpec {
    let set = workload::stateful_set(facts, "config", 2);
    set.spec.unwrap().template.spec.unwrap()
}

/// A certificate in a Secret is mounted read-only, and every renewal of it is lost.
#[test]
fn an_identity_is_kept_where_its_router_can_renew_it() {
    for storage in [
        json!({"persistentVolumeClaim": {}}),
        json!({"ephemeral": {}}),
    ] {
        let (object, settings) = (object(json!({"identityStorage": storage})), settings());
        let pod = pod(&facts(&object, &settings));
        let router = &pod.containers[0];
        let config = render::config_map(&object).data.unwrap();
        let text = config.values().next().unwrap();
        let config: Value = serde_saphyr::from_str(text).unwrap();
        for key in ["cert", "server_cert", "key", "ca"] {
            let file = config["identity"][key].as_str().unwrap();
            let mounts = router.volume_mounts.iter().flatten();
            let mut mounts = mounts.filter(|mount| file.starts_with(&mount.mount_path));
            let mount = mounts.next().unwrap();
            assert_eq!(mount.name, "identity", "{key}");
            assert_ne!(mount.read_only, Some(true), "{key}");
        }
        let mut volumes = pod.volumes.iter().flatten();
        assert!(volumes.all(|volume| volume.name != "identity" || volume.secret.is_none()));
    }
}

/// A Deployment's next pod waits for a volume that the last one holds, for ever.
#[test]
fn no_pod_waits_for_the_volume_of_the_one_that_it_replaces() {
    let (object, settings) = (object(json!({})), settings());
    let set = workload::stateful_set(&facts(&object, &settings), "config", 2);
    let spec = set.spec.unwrap();
    assert_eq!(spec.update_strategy.unwrap().type_.unwrap(), "OnDelete");
    let claims = spec.volume_claim_templates.unwrap();
    let names = claims.iter().map(|claim| claim.metadata.name.as_deref());
    assert!(names.eq([Some("identity")]), "each member has its own");
}

/// The addresses of intercepted services are each router's own: a router elsewhere, or the
/// cluster's DNS, would lead to another's.
#[test]
fn an_intercepting_router_is_on_every_node_and_answers_its_own_pod_first() {
    let of = |mode: &str| {
        object(json!({"tunnel": {"mode": mode}}))
            .spec
            .effective_topology()
    };
    assert_eq!(of("tproxy"), Topology::PerNode);
    assert_eq!(of("proxy"), Topology::StatefulSet);
    let object = object(json!({"tunnel": {"mode": "tproxy", "tproxy": {
        "clusterDns": {"nameservers": ["192.0.2.53"], "domain": "dock.local"}}}}));
    let settings = settings();
    let pod = pod(&facts(&object, &settings));
    assert_eq!(pod.dns_policy.as_deref(), Some("None"));
    let asked = pod.dns_config.unwrap().nameservers.unwrap();
    assert_eq!(asked, ["127.0.0.1", "192.0.2.53"]);
}

/// What exposes the edge listener of the first member: an Ingress or a TLSRoute.
fn made(type_: &str, mut expose: Value) -> DynamicObject {
    expose["type"] = json!(type_);
    let advertise = json!({"host": "{member}.example"});
    let object = object(json!({"edge": {"expose": expose, "advertise": advertise}}));
    let settings = settings();
    let steps = plan(&facts(&object, &settings)).steps;
    let mut made = steps.into_iter().filter_map(|step| match step {
        Step::ApplyExtra(kind, extra) if kind.kind == type_ => Some(*extra),
        _ => None,
    });
    made.next().unwrap()
}

/// Some clusters lead to a Service or an Ingress by what stands in its annotations.
#[test]
fn annotations_stand_on_whatever_exposes() {
    let annotations = json!({"kubernetes.io/ingress.class": "traefik"});
    let holds = |found: Option<&String>, what: &str| {
        assert_eq!(found.map(String::as_str), Some("traefik"), "{what}");
    };
    let key = "kubernetes.io/ingress.class";
    for type_ in ["LoadBalancer", "NodePort"] {
        let expose = json!({"type": type_, "annotations": annotations});
        let object =
            object(json!({"edge": {"expose": expose, "advertise": {"host": "{member}.example"}}}));
        let services = service::exposing(&object, "lamp-0", 0);
        assert_eq!(services.len(), 1);
        holds(
            services[0].metadata.annotations.as_ref().unwrap().get(key),
            type_,
        );
    }
    for (type_, more) in [
        ("Ingress", json!({})),
        ("TLSRoute", json!({"parentRefs": [{"name": "gate"}]})),
    ] {
        let mut expose = more;
        expose["annotations"] = annotations.clone();
        let annotations = made(type_, expose).metadata.annotations.unwrap();
        holds(annotations.get(key), type_);
    }
    let offered =
        json!([{"service": "a", "port": 9000, "kubernetesService": {"annotations": annotations}}]);
    let object = object(json!({"tunnel": {"mode": "proxy", "proxy": {"services": offered}}}));
    let services = tunnel::services(&object);
    holds(
        services[0].metadata.annotations.as_ref().unwrap().get(key),
        "proxy",
    );
}

/// What ends TLS on the way shows another certificate than the router's, and asks for none of the
/// client's: dialers see a 502, or somebody whom they do not trust.
#[test]
fn nothing_ends_tls_on_the_way_to_a_router() {
    let ingress = made("Ingress", json!({}));
    assert_eq!(ingress.data["spec"]["tls"], Value::Null);
    let annotations = ingress.metadata.annotations.unwrap();
    let key = "nginx.ingress.kubernetes.io/ssl-passthrough";
    assert_eq!(annotations.get(key).map(String::as_str), Some("true"));
    // By its kind, and it has no other part in which TLS could end.
    let route = made("TLSRoute", json!({"parentRefs": [{"name": "gate"}]}));
    let rule = &route.data["spec"]["rules"][0];
    assert_eq!(rule["backendRefs"][0]["name"], "lamp-0");
}

/// Ids of routers may begin with a dash, which a program takes for an option.
#[test]
fn no_id_of_a_router_is_an_argument() {
    let id = "-Xu7wF.1z";
    let (object, settings) = (object(json!({"replicas": 1})), settings());
    let mut facts = facts(&object, &settings);
    let mut router = render::edge_router(&facts, "lamp-0", None);
    router.status = serde_json::from_value(json!({"id": id})).unwrap();
    facts.edge_routers = vec![router];
    let pod = serde_json::to_string(&pod(&facts)).unwrap();
    assert!(!pod.contains(id), "{pod}");
}

/// A controller that shall dial its routers, as across clusters, needs a listener for it.
#[test]
fn a_router_can_listen_for_its_controller_and_be_in_link_groups() {
    let listener = json!([{"binding": "edge", "bind": "tls:0.0.0.0:6363"}]);
    let object: ZitiRouter = object(json!({
        "link": {"groups": ["east"], "dialers": [{"groups": ["east"]}]},
        "extraConfig": {"ctrl": {"listeners": listener}},
    }));
    let text = render::config_map(&object).data.unwrap();
    let config: Value = serde_saphyr::from_str(text.values().next().unwrap()).unwrap();
    assert_eq!(config["ctrl"]["listeners"], listener);
    assert_eq!(config["link"]["listeners"][0]["groups"], json!(["east"]));
    assert_eq!(config["link"]["dialers"][0]["groups"], json!(["east"]));
    let settings = settings();
    let status = plan(&facts(&object, &settings)).status;
    let refused = status
        .conditions
        .iter()
        .any(|one| one.reason == "ConfigInvalid" || one.reason == "ConfigKeyRefused");
    assert!(!refused, "{:?}", status.conditions);
}

/// A router may be online and carry nothing; the network does not see that, the router's own check
/// of its links does.
#[test]
fn a_router_can_be_told_to_judge_its_links() {
    let checks = json!({"linkCheck": {"minLinks": 1}});
    let object = object(json!({"healthChecks": checks}));
    let text = render::config_map(&object).data.unwrap();
    let config: Value = serde_saphyr::from_str(text.values().next().unwrap()).unwrap();
    assert_eq!(config["healthChecks"]["linkCheck"]["minLinks"], 1);
}
