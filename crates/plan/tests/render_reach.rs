//! What each kind of exposure makes of a set: Services, Ingresses, routes, pods
//! and configurations.
//!
//! `INSTA_UPDATE=always cargo test -p ziti-operator-plan --test render_reach`
//! writes the snapshots anew; read the difference before you commit it.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

mod common;

use common::{facts, object, settings, settle};
use plan::set::Step;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Everything that a set makes, when Services are there at once: each object by
/// its kind and name, the parts that matter of it.
fn made(spec: Value) -> BTreeMap<String, Value> {
    let (object, settings) = (object(spec), settings());
    let mut facts = facts(&object, &settings);
    let plan_of = settle(&mut facts);
    let mut made = BTreeMap::new();
    let services = facts.services.iter().map(|service| {
        let annotations = service.metadata.annotations.clone().unwrap_or_default();
        let annotations: BTreeMap<_, _> = annotations
            .into_iter()
            .filter(|(key, _)| !key.starts_with("openziti.io/"))
            .collect();
        let name = service.metadata.name.clone().unwrap();
        let body = json!({"annotations": annotations, "spec": service.spec});
        (format!("Service {name}"), body)
    });
    made.extend(services);
    for map in &facts.config_maps {
        for (key, text) in map.data.iter().flatten() {
            let value = serde_saphyr::from_str(text).unwrap_or_else(|_| json!(text));
            made.insert(format!("ConfigMap {key}"), value);
        }
    }
    for step in &plan_of.steps {
        if let Step::ApplyExtra(_, extra) = step {
            let types = extra.types.clone().unwrap();
            let mut annotations = extra.metadata.annotations.clone().unwrap_or_default();
            annotations.remove("openziti.io/applied-hash");
            let key = format!("{} {}", types.kind, extra.metadata.name.clone().unwrap());
            made.insert(
                key,
                json!({"annotations": annotations, "spec": extra.data["spec"]}),
            );
        }
    }
    let set = plan::set::workload::stateful_set(&facts, "lamp-config-0", 1);
    let pod = set.spec.unwrap().template.spec.unwrap();
    let (enroll, router) = (&pod.init_containers.unwrap()[0], &pod.containers[0]);
    made.insert(
        "Pod".into(),
        json!({
            "enroll": {"args": enroll.args, "env": enroll.env},
            "router": {"args": router.args, "ports": router.ports, "readiness": router.readiness_probe},
        }),
    );
    made
}

macro_rules! exposure {
    ($($test:ident: $spec:tt;)*) => {$(
        #[test]
        fn $test() {
            insta::assert_yaml_snapshot!(made(json!($spec)));
        }
    )*};
}

exposure! {
    node_port_with_given_ports: {
        "replicas": 2,
        "edge": {"expose": {"type": "NodePort", "nodePort": 30022, "externalTrafficPolicy": "Local"}, "advertise": {"host": "nodes.example"}},
    };
    node_port_that_the_cluster_chooses: {
        "replicas": 2,
        "edge": {"expose": {"type": "NodePort", "nodePorts": {"lamp-0": 30022}}, "advertise": {"host": "nodes.example"}},
    };
    load_balancer: {
        "replicas": 2,
        "edge": {"expose": {"type": "LoadBalancer", "port": 443, "loadBalancerClass": "metal", "sourceRanges": ["192.0.2.0/24"], "annotations": {"a.example/b": "c"}}},
    };
    load_balancer_with_a_name: {
        "replicas": 1,
        "edge": {"expose": {"type": "LoadBalancer"}, "advertise": {"host": "{member}.example", "port": 443}},
    };
    ingress: {
        "replicas": 1,
        "edge": {"expose": {"type": "Ingress", "ingressClassName": "nginx"}, "advertise": {"host": "{member}.edge.example"}},
        "link": {"expose": {"type": "Ingress", "annotations": {"haproxy.org/ssl-passthrough": "yes"}}, "advertise": {"host": "{member}.link.example"}},
    };
    tls_route: {
        "replicas": 1,
        "edge": {"expose": {"type": "TLSRoute", "parentRefs": [{"name": "gate", "namespace": "gates", "sectionName": "tls"}]}, "advertise": {"host": "{index}.{set}.{namespace}.example"}},
    };
    host_port: {
        "replicas": 1,
        "edge": {"expose": {"type": "HostPort", "hostPort": 443}},
        "link": {"expose": {"type": "HostPort"}, "advertise": {"host": "{node}"}},
    };
    none_at_all: {
        "replicas": 1,
        "edge": {"expose": {"type": "None"}},
        "link": {"expose": {"type": "None"}},
    };
    one_port_for_both: {
        "replicas": 1,
        "edge": {"advertise": {"host": "{member}.example", "port": 443}, "expose": {"type": "LoadBalancer", "port": 443}},
        "link": {"port": 3022},
    };
    several_listeners_and_options: {
        "replicas": 1,
        "edge": {
            "heartbeatIntervalSeconds": 30,
            "options": {"maxQueuedConnects": 5},
            "listeners": [{"name": "browser", "port": 3443, "protocol": "wss", "advertise": {"host": "{member}.browser.example", "port": 443}, "expose": {"type": "Ingress"}}],
        },
        "link": {
            "groups": ["coast"],
            "bindInterface": "eth0",
            "listeners": [{"name": "far", "port": 10081, "groups": ["far"], "options": {"outQueueSize": 8}}],
            "dialers": [{"groups": ["coast"]}, {"groups": ["far"], "bind": "eth1", "split": false}],
        },
        "forwarder": {"linkDialWorkerCount": 8, "unresponsiveLinkTimeout": "30s"},
        "metrics": {"reportInterval": "15s"},
        "healthChecks": {"linkCheck": {"minLinks": 1}},
        "ctrl": {"startupTimeout": "1m", "options": {"outQueueSize": 16}},
        "extraConfig": {"edge": {"csr": {"country": "US"}}, "web": [{"name": "health"}]},
    };
}

/// What is advertised stands in the certificate, in each kind of exposure: in the
/// configuration, and in what the agent is told.
#[test]
fn names_of_certificates_hold_what_is_advertised() {
    for spec in [
        json!({"replicas": 1}),
        json!({"replicas": 1, "edge": {"expose": {"type": "LoadBalancer"}}}),
        json!({"replicas": 1, "edge": {"expose": {"type": "NodePort"}, "advertise": {"host": "n.example"}}}),
        json!({"replicas": 1, "edge": {"expose": {"type": "HostPort"}}, "link": {"advertise": {"host": "{index}.example"}}}),
        json!({"replicas": 1, "edge": {"expose": {"type": "HostPort"}, "advertise": {"host": "{node}"}}}),
        json!({"replicas": 1, "edge": {"expose": {"type": "None"}}}),
    ] {
        let made = made(spec.clone());
        let config = made
            .get("ConfigMap ziti-router.yaml")
            .or_else(|| made.get("ConfigMap lamp-0.yaml"));
        let config = config.unwrap();
        let sans = &config["edge"]["csr"]["sans"];
        let sans: Vec<&Value> = ["dns", "ip"]
            .iter()
            .flat_map(|key| sans[key].as_array().unwrap())
            .collect();
        let told = made["Pod"]["enroll"]["args"].as_array().unwrap().clone();
        let file = made
            .get("ConfigMap lamp-0.names")
            .cloned()
            .unwrap_or_default();
        let told = json!(told).to_string() + &file.to_string();
        let links = config["link"]["listeners"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["advertise"]);
        let edges = config["listeners"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["options"]["advertise"]);
        for advertised in links.chain(edges) {
            let advertised = advertised.as_str().unwrap().trim_start_matches("tls:");
            let host = advertised.rsplit_once(':').unwrap().0;
            assert!(sans.contains(&&json!(host)), "{spec}: {host} in {sans:?}");
            let as_told = host
                .replace("${ZITI_MEMBER}", "$(ZITI_MEMBER)")
                .replace("${HOST_IP}", "$(HOST_IP)")
                .replace("${NODE_NAME}", "$(NODE_NAME)");
            let whole = as_told.replace("lamp-0", "$(ZITI_MEMBER)");
            assert!(
                told.contains(&as_told) || told.contains(&whole),
                "{spec}: {host} in {told}"
            );
        }
    }
}
