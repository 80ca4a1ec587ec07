//! The rules of ZitiRouter about tunnel modes, identities and pods, see [`crate::rules`].

use api::ZitiRouter;
use serde_json::{Value, json};

use crate::rules::{Case, TAKEN, on_change, on_creation, refused};
use crate::world::World;

fn spec(key: &str, value: Value) -> Value {
    let mut spec = json!({"networkRef": {"name": "n"}});
    spec[key] = value;
    spec
}

fn tunnel(value: Value) -> Value {
    spec("tunnel", value)
}

fn proxy(services: &Value) -> Value {
    tunnel(json!({"mode": "proxy", "proxy": {"services": services}}))
}

fn tproxy(settings: &Value) -> Value {
    tunnel(json!({"mode": "tproxy", "tproxy": settings}))
}

fn of_proxy() -> Vec<Case> {
    let one = |more: Value| {
        let mut service = json!({"service": "a.b c_d", "port": 9000});
        service["kubernetesService"] = more;
        proxy(&json!([service]))
    };
    vec![
        (
            "a service",
            proxy(&json!([{"service": "a", "port": 9000, "protocol": "UDP"}])),
            TAKEN,
        ),
        (
            "everything said",
            one(
                json!({"name": "db", "type": "NodePort", "port": 53, "nodePort": 30000,
                "annotations": {"a.example/b": "c"}}),
            ),
            TAKEN,
        ),
        (
            "proxy without services",
            tunnel(json!({"mode": "proxy"})),
            refused("mode proxy needs tunnel.proxy"),
        ),
        (
            "no services",
            proxy(&json!([])),
            refused("should have at least 1 items"),
        ),
        (
            "services for another mode",
            tunnel(
                json!({"mode": "host", "proxy": {"services": [{"service": "a", "port": 9000}]}}),
            ),
            refused("no other mode takes it"),
        ),
        (
            "a port twice",
            proxy(&json!([{"service": "a", "port": 9000}, {"service": "b", "port": 9000}])),
            refused("Duplicate value"),
        ),
        (
            "a low port",
            proxy(&json!([{"service": "a", "port": 80}])),
            refused("or equal to 1024"),
        ),
        (
            "a node port within the cluster",
            one(json!({"nodePort": 30000})),
            refused("nodePort is for the types"),
        ),
        (
            "a name of no Service",
            one(json!({"name": "a.b"})),
            refused("kubernetesService.name"),
        ),
    ]
}

fn of_tproxy() -> Vec<Case> {
    vec![
        ("tproxy alone", tunnel(json!({"mode": "tproxy"})), TAKEN),
        (
            "everything said",
            tproxy(
                &json!({"resolver": "udp://0.0.0.0:53", "lanIf": "eth0.7", "dnsSvcIpRange": "100.65.0.0/16",
                "dnsUpstream": "udp://10.96.0.10:53", "clusterDns": {"nameservers": ["10.96.0.10", "fd00::a"]}}),
            ),
            TAKEN,
        ),
        (
            "settings for another mode",
            tunnel(json!({"mode": "none", "tproxy": {}})),
            refused("tunnel.tproxy is for mode tproxy"),
        ),
        (
            "a resolver by name",
            tproxy(&json!({"resolver": "udp://dns:53"})),
            refused("tproxy.resolver"),
        ),
        (
            "the host's network and a DNS",
            tproxy(&json!({"hostNetwork": true, "clusterDns": {"nameservers": ["10.96.0.10"]}})),
            refused("clusterDns is for the pod's own network"),
        ),
        (
            "three nameservers",
            tproxy(&json!({"clusterDns": {"nameservers": ["10.0.0.1", "10.0.0.2", "10.0.0.3"]}})),
            refused("must have at most 2 items"),
        ),
        (
            "a $ in an interface",
            tproxy(&json!({"lanIf": "$A"})),
            refused("tproxy.lanIf"),
        ),
    ]
}

fn of_identities() -> Vec<Case> {
    let storage = |value: Value| spec("identityStorage", value);
    let path = |path: &str| storage(json!({"hostPath": {"path": path}}));
    vec![
        ("a directory of the node", path("/var/lib/ziti.d"), TAKEN),
        (
            "up from a directory",
            path("/var/../etc"),
            refused("hostPath.path"),
        ),
        ("the root", path("/"), refused("hostPath.path")),
        ("a relative path", path("var/lib"), refused("hostPath.path")),
        ("in the pod alone", storage(json!({"ephemeral": {}})), TAKEN),
        (
            "in the pod, not too much",
            storage(json!({"ephemeral": {"sizeLimit": "64Mi"}})),
            TAKEN,
        ),
        (
            "two places",
            storage(json!({"ephemeral": {}, "hostPath": {"path": "/var/lib"}})),
            refused("identityStorage"),
        ),
    ]
}

fn of_pods() -> Vec<Case> {
    let pod = |value: Value| spec("pod", value);
    let labels = |key: &str| pod(json!({"labels": {key: "x"}}));
    let volume = |path: &str| {
        pod(json!({"extraVolumes": [{"name": "v", "mountPath": path, "configMap": {"name": "m"}}]}))
    };
    vec![
        (
            "everything said",
            pod(json!({
                "labels": {"team": "a"}, "annotations": {"a.example/b": "c"}, "nodeSelector": {"a": "b"},
                "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [
                        {"key": "zone", "operator": "In", "values": ["a"]}]}]}}},
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule"}],
                "priorityClassName": "high", "runtimeClassName": "gvisor", "imagePullPolicy": "Always",
                "imagePullSecrets": [{"name": "registry"}], "env": {"GOMEMLIMIT": "1GiB"},
                "securityContext": {"fsGroup": 1000, "supplementalGroups": [2000]},
                "extraVolumes": [{"name": "v", "mountPath": "/srv/v", "configMap": {"name": "m"}}],
                "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["a.example"]}],
                "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
            })),
            TAKEN,
        ),
        (
            "a label of ours",
            labels("openziti.io/zitirouter"),
            refused("the operator sets the labels"),
        ),
        (
            "a recommended label",
            labels("app.kubernetes.io/name"),
            refused("the operator sets the labels"),
        ),
        ("another label", labels("app.kubernetes.io/version"), TAKEN),
        (
            "our variable",
            pod(json!({"env": {"ZITI_MEMBER": "x"}})),
            refused("ZITI_MEMBER, NODE_NAME and HOST_IP are the operator's"),
        ),
        (
            "group root",
            pod(json!({"securityContext": {"fsGroup": 0}})),
            refused("fsGroup"),
        ),
        (
            "over the identity",
            volume("/etc/ziti/config/x"),
            refused("outside of /etc/ziti"),
        ),
        ("over /tmp", volume("/tmp"), refused("outside of /etc/ziti")),
        (
            "around a corner",
            volume("/srv/../etc/ziti"),
            refused("outside of /etc/ziti"),
        ),
        ("beside them", volume("/etc/zitixy/a..b"), TAKEN),
        (
            "another image policy",
            pod(json!({"imagePullPolicy": "x"})),
            refused("Unsupported"),
        ),
    ]
}

fn of_policies() -> Vec<Case> {
    let policy = |value: Value| spec("networkPolicy", value);
    let anybody = json!([{"ipBlock": {"cidr": "0.0.0.0/0"}}]);
    vec![
        (
            "everything said",
            policy(json!({"enabled": true, "proxyFrom": anybody, "listenersFrom": anybody})),
            TAKEN,
        ),
        (
            "nobody, which would be everybody",
            policy(json!({"proxyFrom": []})),
            refused("should have at least 1 items"),
        ),
    ]
}

#[tokio::test]
async fn modes_identities_and_pods_keep_their_rules() {
    let world = World::new("rules-modes").await;
    let cases = [
        of_proxy(),
        of_tproxy(),
        of_identities(),
        of_pods(),
        of_policies(),
    ];
    on_creation::<ZitiRouter>(&world, cases.concat()).await;

    let services = json!([{"service": "a", "port": 9000}]);
    let proxied = json!({"tunnel": {"mode": "proxy", "proxy": {"services": services}}});
    let intercepting = json!({"tunnel": {"mode": "tproxy"}});
    let changes = vec![
        ("to proxy", proxied.clone(), TAKEN),
        (
            "to tproxy",
            intercepting.clone(),
            refused("cannot be changed to or from tproxy"),
        ),
        (
            "another place for identities",
            json!({"identityStorage": {"ephemeral": {}}}),
            refused("identityStorage"),
        ),
    ];
    let plain = json!({"networkRef": {"name": "n"}});
    on_change::<ZitiRouter>(&world, "plain", plain, changes).await;
    let changes = vec![
        (
            "to none",
            json!({"tunnel": {"mode": "none", "tproxy": null}}),
            refused("cannot be changed to or from tproxy"),
        ),
        (
            "other settings",
            json!({"tunnel": {"tproxy": {"hostNetwork": true}}}),
            TAKEN,
        ),
    ];
    on_change::<ZitiRouter>(&world, "tproxy", tproxy(&json!({})), changes).await;
}
