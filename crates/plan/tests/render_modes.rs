//! How the objects of a set differ by tunnel mode, by where identities are kept,
//! and by the options of its pods; and what is refused. See `render` for whole
//! objects and for how the snapshots are written anew.
#![allow(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    reason = "a test says what it expects"
)]

use api::reasons::{self, types};
use api::router::ClusterDns;
use api::{EdgeRouter, ZitiRouter, ZitiRouterSpec};
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec, Service};
use plan::Settings;
use plan::set::applied::stamp;
use plan::set::roster::Node;
use plan::set::{Facts, Step};
use plan::set::{network_policy, plan, render, tunnel, workload};
use serde_json::{Value, json};

fn settings() -> Settings {
    Settings {
        install_id: "pier".into(),
        install_uid: None,
        agent_image: "registry.example/agent:7".into(),
        router_image: "registry.example/router:7".into(),
        controller_image: "registry.example/controller:7".into(),
        cluster_dns: Some(ClusterDns {
            nameservers: vec!["10.96.0.10".into()],
            domain: "wharf.local".into(),
        }),
    }
}

/// A set with these fields besides its network.
fn set(mut spec: Value) -> ZitiRouter {
    spec["networkRef"] = json!({"name": "sea"});
    let spec: ZitiRouterSpec = serde_json::from_value(spec).unwrap();
    let mut object = ZitiRouter::new("lamp", spec);
    object.metadata.namespace = Some("coast".into());
    object.metadata.uid = Some("11111111-2222-3333-4444-555555555555".into());
    object.metadata.generation = Some(4);
    object
}

fn facts<'a>(object: &'a ZitiRouter, settings: &'a Settings) -> Facts<'a> {
    Facts {
        nodes: Some(vec![Node::default()]),
        ..Facts::of_nothing(object, settings)
    }
}

/// The listeners in the configuration of a set.
fn listeners(object: &ZitiRouter) -> Value {
    let text = render::config_map(object).data.unwrap();
    let text = text.into_values().next().unwrap();
    let config: Value = serde_saphyr::from_str(&text).unwrap();
    config["listeners"].clone()
}

fn template(object: &ZitiRouter) -> PodTemplateSpec {
    let settings = settings();
    let set = workload::stateful_set(&facts(object, &settings), "lamp-config-0", 2);
    set.spec.unwrap().template
}

fn pod(object: &ZitiRouter) -> PodSpec {
    template(object).spec.unwrap()
}

/// Reason and message of what the planner says of a set that it refuses.
fn refusal(object: &ZitiRouter, settings: &Settings) -> Option<(String, String)> {
    let plan = plan(&facts(object, settings));
    let ready = plan.status.conditions.into_iter();
    let mut ready = ready.filter(|condition| condition.type_ == types::READY);
    let ready = ready.next().unwrap();
    plan.steps
        .is_empty()
        .then_some((ready.reason, ready.message))
}

fn proxy(services: &Value) -> ZitiRouter {
    set(json!({"tunnel": {"mode": "proxy", "proxy": {"services": services}}}))
}

/// Two services, the second with everything set otherwise than by default.
fn two() -> ZitiRouter {
    proxy(&json!([
        {"service": "tide.tables", "port": 10432},
        {"service": "names_of ships", "port": 10053, "protocol": "UDP", "kubernetesService": {
            "name": "ships", "type": "LoadBalancer", "port": 53, "nodePort": 30053,
            "annotations": {"lb.example/kind": "outer"},
        }},
    ]))
}

#[test]
fn proxy_listens_at_each_port() {
    insta::assert_yaml_snapshot!(listeners(&two()));
}

#[test]
fn each_proxied_port_has_its_service() {
    insta::assert_yaml_snapshot!(tunnel::services(&two()));
}

#[test]
fn proxied_ports_are_reached_from_the_namespace_alone_and_the_others_by_everybody() {
    insta::assert_yaml_snapshot!(network_policy::policy(&two()));
}

#[test]
fn who_reaches_which_ports_can_be_said() {
    let mut object = two();
    object.spec.network_policy = serde_json::from_value(json!({
        "proxyFrom": [{"namespaceSelector": {"matchLabels": {"team": "crew"}}}],
        "listenersFrom": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
    }))
    .unwrap();
    insta::assert_yaml_snapshot!(
        network_policy::policy(&object)
            .unwrap()
            .spec
            .unwrap()
            .ingress
    );
}

#[test]
fn a_policy_is_the_default_for_proxy_alone() {
    let has = |object: &ZitiRouter| network_policy::policy(object).is_some();
    let asked = json!({"enabled": true});
    let mut object = set(json!({"tunnel": {"mode": "host"}}));
    assert!(!has(&object));
    object.spec.network_policy = serde_json::from_value(asked).unwrap();
    assert!(has(&object));
    let mut object = two();
    assert!(has(&object));
    object.spec.network_policy.enabled = Some(false);
    assert!(!has(&object));
}

/// The Services of a set that once offered a third service, whose members have
/// Services of their own.
fn services_of_an_earlier_set() -> Vec<Service> {
    let named = |name: &str, member: Option<&str>| {
        let object = two();
        Service {
            metadata: render::metadata(&object, name, member),
            ..Service::default()
        }
    };
    // Made by somebody with labels that were copied: `kubectl expose` does it.
    let copied = named("debug", None);
    vec![
        named("lamp-0", Some("lamp-0")),
        stamp(&named("lamp-proxy-10999", None)),
        copied,
    ]
}

#[test]
fn a_service_goes_when_its_port_is_offered_no_more_and_those_of_members_stay() {
    let (object, settings) = (two(), settings());
    let mut facts = facts(&object, &settings);
    facts.services = services_of_an_earlier_set();
    facts.services.extend(tunnel::services(&object));
    let steps = plan(&facts).steps;
    let deleted: Vec<_> = steps
        .iter()
        .filter_map(|step| match step {
            Step::DeleteService { name } => Some(name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(deleted, ["lamp-proxy-10999"]);
    let applied = steps.iter().filter_map(|step| match step {
        Step::ApplyService(service) => service.metadata.name.as_deref(),
        _ => None,
    });
    assert_eq!(applied.collect::<Vec<_>>(), ["lamp-0", "lamp-1"]);
}

#[test]
fn what_a_router_cannot_be_told_is_refused_by_name() {
    let one = |service: &str, port: u16| json!({"service": service, "port": port});
    let named = |service: &str, port: u16, name: &str| json!({"service": service, "port": port, "kubernetesService": {"name": name}});
    let cases = [
        (
            json!([one("a:b", 9000)]),
            reasons::SERVICE_NAME_UNUSABLE,
            "\"a:b\"",
        ),
        (
            json!([one("a\nb", 9000)]),
            reasons::SERVICE_NAME_UNUSABLE,
            "control",
        ),
        (
            json!([one("a$b", 9000)]),
            reasons::DOLLAR_IN_STRING,
            "\"a$b\"",
        ),
        (
            json!([one("a", 9000), one("a", 9001)]),
            reasons::INVALID_SPEC,
            "twice",
        ),
        (
            json!([one("a", 3022)]),
            reasons::INVALID_SPEC,
            "spec.edge.port",
        ),
        (
            json!([one("a", 10080)]),
            reasons::INVALID_SPEC,
            "spec.link.port",
        ),
        (
            json!([named("a", 9000, "x"), named("b", 9001, "x")]),
            reasons::INVALID_SPEC,
            "Kubernetes Service x",
        ),
        (
            json!([named("a", 9000, "lamp-7")]),
            reasons::INVALID_SPEC,
            "member lamp-7 and port 9000",
        ),
    ];
    for (services, reason, words) in cases {
        let (said, message) = refusal(&proxy(&services), &settings()).unwrap();
        assert_eq!(said, reason, "{services}");
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(refusal(&two(), &settings()), None);
}

#[test]
fn the_network_holds_a_tunneler_for_every_mode_but_none() {
    let enabled = |tunnel: Value| {
        let (object, settings) = (set(json!({"tunnel": tunnel})), settings());
        let router: EdgeRouter = render::edge_router(&facts(&object, &settings), "lamp-0", None);
        router.spec.tunneler_enabled
    };
    assert!(!enabled(json!({})));
    assert!(enabled(json!({"mode": "host"})));
    assert!(enabled(json!({"mode": "tproxy"})));
    let services = json!([{"service": "a", "port": 9000}]);
    assert!(enabled(
        json!({"mode": "proxy", "proxy": {"services": services}})
    ));
}

fn tproxy(settings: &Value) -> ZitiRouter {
    set(json!({"tunnel": {"mode": "tproxy", "tproxy": settings}}))
}

#[test]
fn tproxy_in_the_pods_own_network() {
    let object = set(json!({"tunnel": {"mode": "tproxy"}}));
    insta::assert_yaml_snapshot!(listeners(&object));
    insta::assert_yaml_snapshot!(pod(&object));
}

#[test]
fn tproxy_on_the_host_network() {
    let object = tproxy(&json!({
        "hostNetwork": true, "lanIf": "eth0", "dnsSvcIpRange": "100.64.64.0/20",
        "resolver": "udp://192.0.2.1:53", "dnsUpstream": "udp://192.0.2.53:53",
    }));
    insta::assert_yaml_snapshot!(listeners(&object));
    insta::assert_yaml_snapshot!(pod(&object));
}

#[test]
fn tproxy_asks_the_dns_that_is_given_and_needs_none_where_it_cannot_come_first() {
    let given = json!({"nameservers": ["192.0.2.53"], "domain": "dock.local"});
    let object = tproxy(&json!({"resolver": "udp://0.0.0.0:53", "clusterDns": given}));
    let config = pod(&object).dns_config.unwrap();
    assert_eq!(config.nameservers.unwrap(), ["127.0.0.1", "192.0.2.53"]);
    assert_eq!(config.searches.unwrap()[0], "coast.svc.dock.local");
    let outside = Settings {
        cluster_dns: None,
        ..settings()
    };
    let (reason, message) = refusal(&tproxy(&json!({})), &outside).unwrap();
    assert_eq!(reason, reasons::INVALID_SPEC);
    assert!(message.contains("clusterDns.nameservers"), "{message}");
    for resolver in ["udp://127.0.0.1:5353", "udp://127.0.0.1:53"] {
        let host = resolver.ends_with(":53");
        let object = tproxy(&json!({"resolver": resolver, "hostNetwork": host}));
        assert_eq!(refusal(&object, &outside), None);
        assert_eq!(pod(&object).dns_config, None);
    }
}

#[test]
fn tproxy_refuses_what_is_no_address() {
    for (settings_given, words) in [
        (
            json!({"resolver": "udp://127.0.0.1:70000"}),
            "tproxy.resolver",
        ),
        (json!({"resolver": "udp://300.0.0.1:53"}), "tproxy.resolver"),
        (
            json!({"dnsUpstream": "udp://10.0.0.1:99999"}),
            "tproxy.dnsUpstream",
        ),
        (json!({"dnsSvcIpRange": "100.64.0.1/33"}), "dnsSvcIpRange"),
        (
            json!({"clusterDns": {"nameservers": ["10.0.0"]}}),
            "clusterDns.nameservers",
        ),
    ] {
        let (_, message) = refusal(&tproxy(&settings_given), &settings()).unwrap();
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn an_identity_on_the_node() {
    let object = set(
        json!({"topology": "PerNode", "identityStorage": {"hostPath": {"path": "/var/lib/ziti"}}}),
    );
    insta::assert_yaml_snapshot!(pod(&object));
    let settings = settings();
    let set = workload::stateful_set(&facts(&object, &settings), "lamp-config-0", 2);
    assert_eq!(set.spec.unwrap().volume_claim_templates, None);
}

#[test]
fn an_identity_in_the_pod_alone() {
    let object = set(json!({"identityStorage": {"ephemeral": {"sizeLimit": "64Mi"}}}));
    let volumes = pod(&object).volumes.unwrap();
    let volume = volumes.iter().find(|volume| volume.name == "identity");
    let limit = volume.unwrap().empty_dir.clone().unwrap().size_limit;
    assert_eq!(limit.unwrap().0, "64Mi");
    let init = pod(&object).init_containers.unwrap();
    let names: Vec<&str> = init.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["enroll", "sidecar"]);
}

#[test]
fn every_option_of_the_pods() {
    let object = set(json!({"pod": {
        "labels": {"team": "crew"},
        "annotations": {"note.example/of": "keeper"},
        "nodeSelector": {"zone": "quay"},
        "tolerations": [{"key": "salt", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone"}
        ]}},
        "topologySpreadConstraints": [],
        "priorityClassName": "high",
        "runtimeClassName": "other",
        "imagePullSecrets": [{"name": "registry"}],
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"fsGroup": 5000, "supplementalGroups": [6000]},
        "env": {"GOMEMLIMIT": "100MiB"},
        "extraVolumes": [{"name": "charts", "mountPath": "/srv/charts", "configMap": {"name": "maps"}}],
        "hostAliases": [{"ip": "192.0.2.9", "hostnames": ["buoy.example"]}],
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
    }}));
    insta::assert_yaml_snapshot!(template(&object));
}

#[test]
fn own_labels_stay_and_dns_of_a_user_comes_last() {
    let mut object = set(json!({"tunnel": {"mode": "tproxy"}, "pod": {
        "dnsConfig": {"nameservers": ["192.0.2.8"], "searches": ["example"]},
    }}));
    let ours = "openziti.io/zitirouter".to_owned();
    object.spec.pod.labels = [(ours.clone(), "other".to_owned())].into();
    let template = template(&object);
    assert_eq!(template.metadata.unwrap().labels.unwrap()[&ours], "lamp");
    let config = template.spec.unwrap().dns_config.unwrap();
    let nameservers = config.nameservers.unwrap();
    assert_eq!(nameservers, ["127.0.0.1", "10.96.0.10", "192.0.2.8"]);
}

#[test]
fn options_that_cannot_be_are_refused() {
    let volume = |name: &str, path: &str| json!({"name": name, "mountPath": path, "configMap": {"name": "m"}});
    for (options, reason, words) in [
        (
            json!({"env": {"A": "$(POD_NAME)"}}),
            reasons::DOLLAR_IN_STRING,
            "spec.pod.env",
        ),
        (
            json!({"extraVolumes": [volume("a", "/srv/x"), volume("b", "/srv/x/")]}),
            reasons::INVALID_SPEC,
            "extraVolumes",
        ),
    ] {
        let (said, message) = refusal(&set(json!({"pod": options})), &settings()).unwrap();
        assert_eq!(said, reason);
        assert!(message.contains(words), "{message}");
    }
}

/// To scale a set must not restart those that run.
#[test]
fn the_template_does_not_depend_on_the_number_of_members() {
    let of = |replicas: i32| template(&set(json!({"replicas": replicas})));
    assert_eq!(of(1), of(3));
}

/// What is planned for a set on one node, by where its identity is kept: its
/// router is enrolled, and neither pod nor StatefulSet nor claim is there.
fn enrolled_without_a_claim(storage: &Value) -> Vec<Step> {
    let (object, settings) = (
        set(json!({"topology": "PerNode", "identityStorage": storage})),
        settings(),
    );
    let mut facts = facts(&object, &settings);
    facts.nodes = Some(vec![Node {
        name: "here".into(),
        ..Node::default()
    }]);
    let mut router = render::edge_router(&facts, "lamp-here", Some("here"));
    router.status = serde_json::from_value(json!({"conditions": [{
        "type": types::ENROLLED, "status": "True", "reason": reasons::ENROLLED, "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}))
    .unwrap();
    facts.edge_routers = vec![router];
    plan(&facts).steps
}

#[test]
fn an_identity_on_the_node_is_trusted_to_be_there_and_one_in_the_pod_is_gone_with_it() {
    let starts = |steps: &[Step]| {
        let mut steps = steps.iter();
        steps.any(|step| matches!(step, Step::ApplyStatefulSet(_)))
    };
    let lost = |steps: &[Step]| {
        let mut steps = steps.iter();
        steps.any(|step| matches!(step, Step::ReportAgent { .. }))
    };
    let on_node = enrolled_without_a_claim(&json!({"hostPath": {"path": "/var/lib/ziti"}}));
    assert!(starts(&on_node) && !lost(&on_node));
    let in_pod = enrolled_without_a_claim(&json!({"ephemeral": {}}));
    assert!(!starts(&in_pod) && lost(&in_pod));
}

/// A member that moves would leave its key on a node, void when it comes back.
#[test]
fn a_directory_of_the_node_is_for_members_that_stay_on_theirs() {
    let kept = json!({"hostPath": {"path": "/var/lib/ziti"}});
    for topology in ["StatefulSet", "PerMember"] {
        let object = set(json!({"topology": topology, "identityStorage": kept}));
        let (reason, message) = refusal(&object, &settings()).unwrap();
        assert_eq!(reason, reasons::INVALID_SPEC);
        assert!(message.contains("topology PerNode"), "{message}");
    }
}

/// Kubernetes takes a rule without ports for one of all ports.
#[test]
fn a_set_without_exposed_listeners_opens_no_port_to_everybody() {
    let mut object = two();
    object.spec.edge.expose = Some(serde_json::from_value(json!({"type": "None"})).unwrap());
    object.spec.link.expose.clone_from(&object.spec.edge.expose);
    let policy = network_policy::policy(&object).unwrap().spec.unwrap();
    let rules = policy.ingress.unwrap();
    assert!(!rules.is_empty());
    for rule in rules {
        assert!(!rule.ports.unwrap_or_default().is_empty());
    }
}
