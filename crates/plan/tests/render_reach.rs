//! What each kind of exposure makes of a set: Services, Ingresses, routes, pods
//! and configurations, and what is refused.
//!
//! `INSTA_UPDATE=always cargo test -p ziti-operator-plan --test render_reach`
//! writes the snapshots anew; read the difference before you commit it.
#![allow(clippy::unwrap_used, reason = "a test says what it expects")]

use api::reasons::{self, types};
use api::{EdgeRouter, ZitiRouter, ZitiRouterSpec, names};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::jiff::Timestamp;
use plan::Settings;
use plan::conditions::find;
use plan::set::roster::Node;
use plan::set::{Facts, Network, Plan, Step, TokensSecret, plan, render};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn settings() -> Settings {
    Settings {
        install_id: "pier".into(),
        agent_image: "registry.example/agent:7".into(),
        router_image: "registry.example/router:7".into(),
        cluster_dns: None,
    }
}

fn object(mut spec: Value) -> ZitiRouter {
    spec["networkRef"] = json!({"name": "sea"});
    let spec: ZitiRouterSpec = serde_json::from_value(spec).unwrap();
    let mut object = ZitiRouter::new("lamp", spec);
    object.metadata.namespace = Some("coast".into());
    object.metadata.uid = Some("11111111-2222-3333-4444-555555555555".into());
    object.metadata.generation = Some(4);
    object.metadata.finalizers = Some(vec![names::FINALIZER_ROUTER.into()]);
    object
}

fn facts<'a>(object: &'a ZitiRouter, settings: &'a Settings) -> Facts<'a> {
    Facts {
        tokens: TokensSecret::Ours(BTreeMap::new()),
        ..Facts::of_nothing(object, settings)
    }
}

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

/// Plan, and let Services and ConfigMaps come to be, until nothing new does.
/// The cluster chooses node ports and addresses.
fn settle(facts: &mut Facts) -> Plan {
    for _ in 0..4 {
        let plan = plan(facts);
        for step in &plan.steps {
            match step {
                Step::ApplyService(service) => {
                    let service = provided(service, facts.services.len());
                    facts
                        .services
                        .retain(|one| one.metadata.name != service.metadata.name);
                    facts.services.push(service);
                }
                Step::ApplyConfigMap(map) => {
                    facts
                        .config_maps
                        .retain(|one| one.metadata.name != map.metadata.name);
                    facts.config_maps.push(map.as_ref().clone());
                }
                _ => {}
            }
        }
    }
    plan(facts)
}

fn provided(service: &Service, count: usize) -> Service {
    let mut json = serde_json::to_value(service).unwrap();
    let spec = &mut json["spec"];
    if spec["type"] != "ClusterIP" && spec["ports"][0]["nodePort"].is_null() {
        spec["ports"][0]["nodePort"] = json!(31000 + count);
    }
    if spec["type"] == "LoadBalancer" {
        json["status"] =
            json!({"loadBalancer": {"ingress": [{"ip": format!("198.51.100.{count}")}]}});
    }
    serde_json::from_value(json).unwrap()
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

fn refusal(spec: Value) -> (String, String) {
    let (object, settings) = (object(spec), settings());
    let plan = plan(&facts(&object, &settings));
    assert!(plan.steps.is_empty(), "what is refused costs nothing");
    let ready = find(&plan.status.conditions, types::READY).unwrap();
    (ready.reason.clone(), ready.message.clone())
}

/// Each is refused by name, and nothing of what runs is touched.
#[test]
fn what_cannot_be_reached_or_configured_is_refused() {
    let cases = [
        (
            json!({"edge": {"port": 4000, "expose": {"type": "None"}}, "link": {"port": 4000}}),
            reasons::INVALID_SPEC,
            "are both 4000",
        ),
        (
            json!({"edge": {"listeners": [{"name": "a", "port": 10080}]}}),
            reasons::INVALID_SPEC,
            "are both 10080",
        ),
        (
            json!({"edge": {"listeners": [{"name": "a", "port": 1}]}, "link": {"listeners": [{"name": "a", "port": 2}]}}),
            reasons::INVALID_SPEC,
            "the name a",
        ),
        (
            json!({"edge": {"advertise": {"host": "all.example"}}}),
            reasons::INVALID_SPEC,
            "lamp-0 and edge of lamp-1 would both be advertised at all.example:3022",
        ),
        (
            json!({"edge": {"advertise": {"host": "{membr}.example"}}}),
            reasons::INVALID_SPEC,
            "{membr}",
        ),
        (
            json!({"edge": {"advertise": {"host": "{node}"}}}),
            reasons::INVALID_SPEC,
            "HostPort",
        ),
        (
            json!({"edge": {"expose": {"type": "NodePort"}}}),
            reasons::INVALID_SPEC,
            "advertise.host is missing",
        ),
        (
            json!({"edge": {"expose": {"type": "NodePort", "nodePort": 65535}, "advertise": {"host": "n"}}}),
            reasons::INVALID_SPEC,
            "no port for lamp-1",
        ),
        (
            json!({"edge": {"expose": {"type": "None"}, "advertise": {"port": 1}}}),
            reasons::INVALID_SPEC,
            "cannot be advertised",
        ),
        (
            json!({"replicas": 1, "edge": {"expose": {"type": "Ingress"}, "advertise": {"host": "192.0.2.1"}}}),
            reasons::INVALID_SPEC,
            "must be a name",
        ),
        (
            json!({"edge": {"options": {"x": "$Y"}}}),
            reasons::DOLLAR_IN_STRING,
            "spec.edge.options.x",
        ),
        (
            json!({"extraConfig": {"trace": {"path": "${HOME}"}}}),
            reasons::DOLLAR_IN_STRING,
            "spec.extraConfig.trace.path",
        ),
        (
            json!({"link": {"groups": ["$G"]}}),
            reasons::DOLLAR_IN_STRING,
            "spec.link.groups",
        ),
        (
            json!({"extraConfig": {"identity": {}}}),
            reasons::CONFIG_KEY_REFUSED,
            "identity",
        ),
        (
            json!({"extraConfig": {"ctrl": {"endpoint": "tls:a:1"}}}),
            reasons::CONFIG_KEY_REFUSED,
            "spec.controlPlane.endpoints",
        ),
        (
            json!({"extraConfig": {"listeners": []}}),
            reasons::CONFIG_INVALID,
            "no edge listener",
        ),
        (
            json!({"extraConfig": {"metrics": {"reportInterval": 5}}}),
            reasons::CONFIG_INVALID,
            "metrics.reportInterval",
        ),
        (
            json!({"extraConfig": {"listeners": [{"binding": "edge", "address": "tls:0.0.0.0:3022", "options": {"advertise": "elsewhere.example:443"}}]}}),
            reasons::CONFIG_INVALID,
            "spec.csr.sans",
        ),
    ];
    for (spec, reason, text) in cases {
        let (said, message) = refusal(spec.clone());
        assert_eq!(said, reason, "{spec}: {message}");
        assert!(message.contains(text), "{spec}: {message}");
    }
    // What stands in an annotation never comes to the router.
    let spec = json!({"edge": {"expose": {"type": "LoadBalancer", "annotations": {"a": "$b"}}}});
    let (object, settings) = (object(spec), settings());
    assert!(!plan(&facts(&object, &settings)).steps.is_empty());
}

/// What a set with these nodes is refused for, if it is.
fn refused_on(nodes: &[&str], spec: Value) -> Option<String> {
    let (object, settings) = (object(spec), settings());
    let mut facts = facts(&object, &settings);
    let node = |name: &&str| Node {
        name: (*name).to_owned(),
        ..Node::default()
    };
    facts.nodes = Some(nodes.iter().map(node).collect());
    let plan = plan(&facts);
    let ready = find(&plan.status.conditions, types::READY).unwrap();
    plan.steps.is_empty().then(|| ready.message.clone())
}

/// Two objects of one name would be written by turns, for ever.
#[test]
fn no_two_objects_of_a_set_want_one_name() {
    let exposed = |type_: &str| json!({"topology": "PerNode", "edge": {"expose": {"type": type_}, "advertise": {"host": "{member}.example"}}});
    for (type_, kind) in [("LoadBalancer", "Service"), ("NodePort", "Service")] {
        let message = refused_on(&["a", "a-edge"], exposed(type_)).unwrap();
        for words in [
            "spec.edge of lamp-a",
            "member lamp-a-edge",
            &format!("Kubernetes {kind} lamp-a-edge:"),
            "spec.nodes.selector",
        ] {
            assert!(message.contains(words), "{words} in: {message}");
        }
    }
    // Objects of different kinds may share a name.
    assert_eq!(refused_on(&["a", "a-edge"], exposed("Ingress")), None);
    assert_eq!(
        refused_on(&["a", "a-edge"], json!({"topology": "PerNode"})),
        None
    );
    let ports = json!([{"name": "b-edge", "port": 3443, "expose": {"type": "Ingress"}, "advertise": {"host": "{member}.other.example"}}]);
    let mut two = exposed("Ingress");
    two["edge"]["listeners"] = ports;
    let message = refused_on(&["a", "a-b"], two).unwrap();
    assert!(
        message.contains("Kubernetes Ingress lamp-a-b-edge"),
        "{message}"
    );

    // What is offered to the cluster, and what exposes a member that may come.
    let offered = json!({"mode": "proxy", "proxy": {"services": [
        {"service": "a", "port": 9000, "kubernetesService": {"name": "lamp-7-edge"}}]}});
    let spec = json!({"tunnel": offered, "edge": {"expose": {"type": "LoadBalancer"}}});
    let message = refused_on(&[], spec).unwrap();
    assert!(message.contains("member lamp-7 and port 9000"), "{message}");
    assert!(message.contains("kubernetesService.name"), "{message}");
    assert_eq!(refused_on(&[], json!({"tunnel": offered})), None);
}

/// The API server would refuse it, after the first of the set's objects is made.
#[test]
fn no_service_of_a_set_has_a_name_that_is_too_long() {
    let longest = "l".repeat(52);
    let refused = |more: Value| {
        let mut object = object(more);
        object.metadata.name = Some(longest.clone());
        let settings = settings();
        let plan = plan(&facts(&object, &settings));
        let ready = find(&plan.status.conditions, types::READY).unwrap();
        plan.steps.is_empty().then(|| ready.message.clone())
    };
    assert_eq!(
        refused(json!({"edge": {"expose": {"type": "LoadBalancer"}}})),
        None
    );
    let named = json!([{"name": "tenletters", "port": 3443, "expose": {"type": "LoadBalancer"}}]);
    let message = refused(json!({"edge": {"listeners": named}})).unwrap();
    for words in [
        "-0-tenletters of spec.edge.listeners[tenletters]",
        "65 characters",
        "shorter",
    ] {
        assert!(message.contains(words), "{words} in: {message}");
    }
    let offered = json!([{"service": "a", "port": 10000}]);
    let proxy = json!({"tunnel": {"mode": "proxy", "proxy": {"services": offered}}});
    let message = refused(proxy).unwrap();
    assert!(message.contains("kubernetesService.name"), "{message}");
}

/// Its address goes into the certificate for which its token is redeemed.
#[test]
fn a_member_is_registered_when_its_address_is_known() {
    let spec = json!({"replicas": 2, "edge": {"expose": {"type": "LoadBalancer"}}});
    let (object, settings) = (object(spec), settings());
    let mut facts = facts(&object, &settings);
    settle(&mut facts);
    // The second has no address yet.
    let name = Some("lamp-1-edge".to_owned());
    let second = facts
        .services
        .iter_mut()
        .find(|one| one.metadata.name == name);
    second.unwrap().status = None;
    let plan = plan(&facts);
    let registered: Vec<_> = plan
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::ApplyEdgeRouter(er) => er.metadata.name.clone(),
            _ => None,
        })
        .collect();
    assert_eq!(registered, ["lamp-0"]);

    // The first is on its way; what is said is what the second waits for.
    let mut er: EdgeRouter = render::edge_router(&facts, "lamp-0", None);
    er.metadata.finalizers = Some(vec![
        names::FINALIZER_EDGE_ROUTER.into(),
        names::FINALIZER_IN_USE.into(),
    ]);
    facts.edge_routers.push(er);
    let plan = plan_of(&facts);
    let ready = find(&plan.status.conditions, types::READY).unwrap();
    assert_eq!(ready.reason, reasons::ADDRESS_PENDING);
    assert!(
        ready
            .message
            .contains("lamp-1: Service lamp-1-edge has no address yet"),
        "{}",
        ready.message
    );
    let degraded = find(&plan.status.conditions, types::DEGRADED).unwrap();
    assert_eq!(degraded.status, "False");
}

fn plan_of(facts: &Facts) -> Plan {
    plan(facts)
}

/// The ConfigMap that a plan leaves behind for a set of load balancers.
fn map(facts: &Facts) -> Option<ConfigMap> {
    plan(facts).steps.into_iter().find_map(|step| match step {
        Step::ApplyConfigMap(map) => Some(*map),
        _ => None,
    })
}

#[test]
fn growing_adds_a_file_and_another_address_makes_another_configuration() {
    let spec = |replicas: i32| {
        object(json!({"replicas": replicas, "edge": {"expose": {"type": "LoadBalancer"}}}))
    };
    let (two, three, settings) = (spec(2), spec(3), settings());
    let mut running = facts(&two, &settings);
    settle(&mut running);
    let first = running.config_maps.last().unwrap().clone();
    let name = first.metadata.name.clone().unwrap();
    assert_eq!(first.data.as_ref().unwrap().len(), 4, "two files for each");
    let mut set = plan::set::workload::stateful_set(&running, &name, 2);
    set.metadata.uid = Some("2222".into());
    running.stateful_sets = vec![set];
    assert_eq!(map(&running), None, "nothing is left to do");

    // A third member: what the others read stays as it is.
    let mut grown = Facts {
        object: &three,
        ..running.clone()
    };
    settle(&mut grown);
    let current = grown
        .config_maps
        .iter()
        .find(|map| map.metadata.name.as_ref() == Some(&name));
    let current = current.unwrap().data.clone().unwrap();
    assert_eq!(current.len(), 6);
    for (key, text) in first.data.as_ref().unwrap() {
        assert_eq!(&current[key], text);
    }

    // Another address of a member that runs: another ConfigMap, to be rolled out.
    let mut moved = running.clone();
    let edge = Some("lamp-0-edge".to_owned());
    let service = moved
        .services
        .iter_mut()
        .find(|one| one.metadata.name == edge)
        .unwrap();
    let status = json!({"loadBalancer": {"ingress": [{"hostname": "moved.example"}]}});
    service.status = serde_json::from_value(status).unwrap();
    let other = map(&moved).unwrap();
    assert_ne!(other.metadata.name, first.metadata.name);
    assert!(other.data.unwrap()["lamp-0.names"].contains("moved.example"));

    // An address that went away is no news.
    let mut lost = running.clone();
    for service in &mut lost.services {
        service.status = None;
    }
    assert_eq!(map(&lost), None);
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

/// A set that runs is brought to load balancers when those are there, and not
/// before: its pods would have no configuration.
#[test]
fn a_set_that_runs_waits_for_the_addresses_of_its_change() {
    let (before, settings) = (object(json!({"replicas": 2})), settings());
    let mut running = facts(&before, &settings);
    settle(&mut running);
    let name = running.config_maps[0].metadata.name.clone().unwrap();
    let mut set = plan::set::workload::stateful_set(&running, &name, 2);
    set.metadata.uid = Some("2222".into());
    running.stateful_sets = vec![set.clone()];

    let wish = |replicas: i32| {
        object(json!({"replicas": replicas, "edge": {"expose": {"type": "LoadBalancer"}}}))
    };
    let (after, fewer) = (wish(2), wish(1));
    let mut changed = Facts {
        object: &after,
        ..running.clone()
    };
    let applied = |plan: &Plan| {
        plan.steps.iter().find_map(|step| match step {
            Step::ApplyStatefulSet(set) => set.spec.clone(),
            _ => None,
        })
    };
    let waiting = plan_of(&changed);
    assert_eq!(applied(&waiting), None);
    let progressing = find(&waiting.status.conditions, types::PROGRESSING).unwrap();
    assert_eq!(
        progressing.reason,
        reasons::ADDRESS_PENDING,
        "{}",
        progressing.message
    );

    // A wish for fewer is obeyed meanwhile, by the same template.
    let spec = applied(&plan_of(&Facts {
        object: &fewer,
        ..running.clone()
    }))
    .unwrap();
    assert_eq!(spec.replicas, Some(1));
    assert_eq!(spec.template, set.spec.unwrap().template);

    let last = settle(&mut changed);
    let template = json!(applied(&last).unwrap().template).to_string();
    assert!(template.contains("$(ZITI_MEMBER).yaml"), "{template}");
}

/// What a user sees when a change breaks a member: the rollout stops by itself,
/// and says so when the member's time is over.
#[test]
fn a_rollout_that_fails_stops_and_says_so() {
    let (object, settings) = (object(json!({"replicas": 2})), settings());
    let mut facts = facts(&object, &settings);
    settle(&mut facts);
    let name = facts.config_maps[0].metadata.name.clone().unwrap();
    let mut set = plan::set::workload::stateful_set(&facts, &name, 2);
    set.metadata.uid = Some("2222".into());
    set.status = serde_json::from_value(json!({"replicas": 2, "updateRevision": "new"})).unwrap();
    facts.stateful_sets = vec![set];
    let pod = |name: &str, revision: &str, ready: &str| {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "uid": name, "creationTimestamp": "1970-01-01T00:00:00Z",
                "labels": {"controller-revision-hash": revision},
            },
            "status": {
                "conditions": [{"type": "Ready", "status": ready}],
                "containerStatuses": if ready == "True" { json!([]) } else { json!([{
                    "name": "router", "image": "i", "imageID": "i", "ready": false, "restartCount": 3,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                }]) },
            },
        }))
        .unwrap()
    };
    facts.pods = vec![pod("lamp-0", "old", "True"), pod("lamp-1", "new", "False")];
    for (name, online) in [("lamp-0", "True"), ("lamp-1", "False")] {
        let mut er: EdgeRouter = render::edge_router(&facts, name, None);
        er.metadata.finalizers = Some(vec![
            names::FINALIZER_EDGE_ROUTER.into(),
            names::FINALIZER_IN_USE.into(),
        ]);
        let condition = |type_: &str| json!({"type": type_, "status": online, "reason": "Any", "message": "as it is", "lastTransitionTime": "1970-01-01T00:00:00Z"});
        er.status = serde_json::from_value(json!({
            "onlinePod": (online == "True").then_some(name),
            "conditions": [condition("Online"), condition("Ready")],
        }))
        .unwrap();
        facts.edge_routers.push(er);
    }
    let deleted = |plan: &Plan| {
        plan.steps
            .iter()
            .any(|step| matches!(step, Step::DeletePod { .. }))
    };
    let progressing = |plan: &Plan| {
        find(&plan.status.conditions, types::PROGRESSING)
            .cloned()
            .unwrap()
    };

    facts.now = Timestamp::from_second(299).unwrap();
    let soon = plan_of(&facts);
    assert!(!deleted(&soon), "the last one that works was taken down");
    assert_eq!(progressing(&soon).reason, reasons::ROLLING_OUT);
    assert_eq!(soon.requeue.map(|left| left.as_secs()), Some(1));

    facts.now = Timestamp::from_second(300).unwrap();
    let late = plan_of(&facts);
    assert!(!deleted(&late), "the last one that works was taken down");
    let said = progressing(&late);
    assert_eq!(
        (said.status.as_str(), said.reason.as_str()),
        ("False", reasons::ROLLOUT_STALLED)
    );
    for part in [
        "pod lamp-1 is not online 5 minutes",
        "CrashLoopBackOff",
        "1 more wait",
    ] {
        assert!(said.message.contains(part), "{}", said.message);
    }
    assert_eq!(late.requeue, None);

    // Nobody's time runs while the network cannot be asked.
    if let Network::Found { fault, .. } = &mut facts.network {
        *fault = Some(plan::edge_router::Problem::new(
            reasons::NETWORK_NOT_READY,
            "away",
        ));
    }
    assert_eq!(progressing(&plan_of(&facts)).reason, reasons::ROLLING_OUT);
}
