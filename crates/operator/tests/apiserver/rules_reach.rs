//! The rules of how a ZitiRouter is reached and configured, see [`crate::rules`].

use api::ZitiRouter;
use serde_json::{Value, json};

use crate::rules::{TAKEN, on_change, on_creation, refused, with};
use crate::world::World;

#[tokio::test]
async fn exposure_and_configuration_keep_their_rules() {
    let world = World::new("rules-reach").await;
    let base = json!({"networkRef": {"name": "n"}});
    let and = |additions: Value| with(&base, &additions);
    let edge = |expose: Value, advertise: Value| {
        and(json!({"edge": {"expose": expose, "advertise": advertise}}))
    };
    let host = || json!({"host": "{member}.example"});
    let needs_host = "types NodePort, Ingress and TLSRoute need advertise.host";
    let gate = json!({"type": "TLSRoute", "parentRefs": [{"name": "gate"}]});
    let extra = |list: Value| and(json!({"edge": {"listeners": list}}));
    let cases = vec![
        ("an empty exposure", edge(json!({}), json!({})), TAKEN),
        (
            "ClusterIP",
            edge(json!({"type": "ClusterIP"}), host()),
            TAKEN,
        ),
        (
            "none",
            and(json!({"link": {"expose": {"type": "None"}}})),
            TAKEN,
        ),
        (
            "another type",
            edge(json!({"type": "ExternalName"}), host()),
            refused("Unsupported value"),
        ),
        (
            "a node port",
            edge(json!({"type": "NodePort", "nodePort": 30022}), host()),
            TAKEN,
        ),
        (
            "node ports by member",
            edge(
                json!({"type": "NodePort", "nodePorts": {"a-0": 30022}}),
                host(),
            ),
            TAKEN,
        ),
        (
            "both",
            edge(
                json!({"type": "NodePort", "nodePort": 1, "nodePorts": {"a-0": 2}}),
                host(),
            ),
            refused("give nodePort or nodePorts, not both"),
        ),
        (
            "a node port of something else",
            edge(json!({"nodePort": 30022}), host()),
            refused("nodePort and nodePorts are for type NodePort"),
        ),
        (
            "a node port without a host",
            edge(json!({"type": "NodePort"}), json!({"port": 1})),
            refused(needs_host),
        ),
        (
            "an Ingress without a host",
            and(json!({"link": {"expose": {"type": "Ingress"}}})),
            refused(needs_host),
        ),
        (
            "a load balancer",
            edge(
                json!({"type": "LoadBalancer", "port": 443, "loadBalancerClass": "a", "sourceRanges": ["192.0.2.0/24"], "externalTrafficPolicy": "Local"}),
                json!({}),
            ),
            TAKEN,
        ),
        (
            "source ranges of something else",
            edge(
                json!({"type": "HostPort", "sourceRanges": ["192.0.2.0/24"]}),
                json!({}),
            ),
            refused("are for type LoadBalancer"),
        ),
        (
            "a traffic policy of something else",
            edge(json!({"externalTrafficPolicy": "Local"}), json!({})),
            refused("externalTrafficPolicy is for"),
        ),
        (
            "annotations of nothing",
            edge(
                json!({"type": "HostPort", "annotations": {"a": "b"}}),
                json!({}),
            ),
            refused("annotations are for"),
        ),
        ("a route", edge(gate.clone(), host()), TAKEN),
        (
            "a route without a gateway",
            edge(json!({"type": "TLSRoute"}), host()),
            refused("type TLSRoute needs parentRefs"),
        ),
        (
            "a gateway of something else",
            edge(with(&gate, &json!({"type": "Ingress"})), host()),
            refused("type TLSRoute needs parentRefs"),
        ),
        (
            "a host port",
            edge(json!({"type": "HostPort", "hostPort": 443}), json!({})),
            TAKEN,
        ),
        (
            "a host that is none",
            edge(json!({}), json!({"host": "a b"})),
            refused("edge.advertise.host"),
        ),
        (
            "several listeners",
            extra(
                json!([{"name": "a", "port": 4000}, {"name": "b", "port": 4001, "protocol": "wss"}]),
            ),
            TAKEN,
        ),
        (
            "a name twice",
            extra(json!([{"name": "a", "port": 4000}, {"name": "a", "port": 4001}])),
            refused("Duplicate value"),
        ),
        (
            "the name of another",
            extra(json!([{"name": "link", "port": 4000}])),
            refused("edge and link are the names of the first listeners"),
        ),
        (
            "a name that counts",
            extra(json!([{"name": "0", "port": 4000}])),
            refused("edge.listeners"),
        ),
        (
            "options",
            and(json!({
                "forwarder": {"linkDialWorkerCount": 8},
                "metrics": {"reportInterval": "1m30s"},
                "healthChecks": {"linkCheck": {"minLinks": 1, "interval": "5s"}},
                "ctrl": {"startupTimeout": "1m", "options": {"anything": {"goes": 1}}},
                "link": {"dialers": [{"groups": ["a"], "split": false}]},
            })),
            TAKEN,
        ),
        (
            "a duration that is none",
            and(json!({"metrics": {"reportInterval": "5"}})),
            refused("metrics.reportInterval"),
        ),
        (
            "any other key",
            and(json!({"extraConfig": {"web": [{"name": "a"}], "x": null}})),
            TAKEN,
        ),
        (
            "no keys at all",
            and(json!({"extraConfig": "web"})),
            refused("extraConfig"),
        ),
    ];
    on_creation::<ZitiRouter>(&world, cases).await;

    let changes = vec![
        (
            "another exposure",
            json!({"edge": {"expose": {"type": "LoadBalancer"}}}),
            TAKEN,
        ),
        (
            "and another",
            json!({"edge": {"expose": {"type": "HostPort"}, "advertise": {"host": "{node}"}}}),
            TAKEN,
        ),
    ];
    on_change::<ZitiRouter>(&world, "reached", base, changes).await;
}
