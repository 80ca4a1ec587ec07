//! The rules of the kinds, as the API server keeps them: what it takes, what it refuses with which
//! words, what it fills in.

use api::{EdgeRouter, ZitiNetwork, ZitiRouter};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::{Object, World};

/// A change that is tried and what becomes of it: taken, or refused with these words.
pub(crate) type Case = (&'static str, Value, Result<(), &'static str>);

pub(crate) const TAKEN: Result<(), &str> = Ok(());

pub(crate) fn refused(words: &'static str) -> Result<(), &'static str> {
    Err(words)
}

fn check(what: &str, answer: Result<(), kube::Error>, wished: Result<(), &str>) {
    match (answer, wished) {
        (Ok(()), Ok(())) => {}
        (Ok(()), Err(words)) => panic!("{what}: taken, and should be refused with {words:?}"),
        (Err(error), Ok(())) => panic!("{what}: should be taken: {error}"),
        (Err(error), Err(words)) => {
            let said = error.to_string();
            assert!(
                said.contains(words),
                "{what}: {said:?} should say {words:?}"
            );
        }
    }
}

/// Tries to create an object of each spec, all of the same name, without keeping any.
pub(crate) async fn on_creation<K: Object>(world: &World, cases: Vec<Case>) {
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    for (what, spec, wished) in cases {
        let object = json!({"metadata": {"name": "tried"}, "spec": spec});
        let answer = raw::<K>(world).create(&params, &untyped::<K>(object)).await;
        check(what, answer.map(|_| ()), wished);
    }
}

/// Tries changes of an object of this spec, without keeping any.
pub(crate) async fn on_change<K: Object>(world: &World, name: &str, spec: Value, cases: Vec<Case>) {
    let object = untyped::<K>(json!({"metadata": {"name": name}, "spec": spec}));
    let created = raw::<K>(world)
        .create(&PostParams::default(), &object)
        .await;
    created.unwrap();
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    for (what, patch, wished) in cases {
        let patch = Patch::Merge(json!({"spec": patch}));
        let answer = raw::<K>(world).patch(name, &params, &patch).await;
        check(what, answer.map(|_| ()), wished);
    }
}

/// The kind without its type: what is refused is often what the type cannot hold.
fn raw<K: Object>(world: &World) -> kube::Api<kube::api::DynamicObject> {
    let resource = kube::core::ApiResource::erase::<K>(&());
    kube::Api::namespaced_with(world.client.clone(), &world.namespace, &resource)
}

fn untyped<K: Object>(mut object: Value) -> kube::api::DynamicObject {
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    serde_json::from_value(object).unwrap()
}

pub(crate) fn with(base: &Value, additions: &Value) -> Value {
    let mut spec = base.clone();
    for (key, value) in additions.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

pub(crate) fn role_attributes(base: &Value) -> Vec<Case> {
    let roles = |roles: Value| with(base, &json!({"roleAttributes": roles}));
    vec![
        ("role attributes", roles(json!(["a", "b c"])), TAKEN),
        (
            "a #",
            roles(json!(["#a"])),
            refused("should match '^[^#@]'"),
        ),
        (
            "an @",
            roles(json!(["@a"])),
            refused("should match '^[^#@]'"),
        ),
        (
            "an attribute twice",
            roles(json!(["a", "a"])),
            refused("Duplicate value"),
        ),
        (
            "an empty attribute",
            roles(json!([""])),
            refused("should be at least 1 chars"),
        ),
    ]
}

#[tokio::test]
async fn an_edge_router_keeps_its_rules() {
    let world = World::new("rules-er").await;
    let base = json!({"networkRef": {"name": "n"}});
    let and = |additions: Value| with(&base, &additions);
    let provided = json!({"provided": {"secretKeyRef": {"name": "s", "key": "k"}}});
    let mut cases = role_attributes(&base);
    cases.extend([
        ("a network alone", base.clone(), TAKEN),
        ("a token alone", json!({"enrollment": provided}), TAKEN),
        (
            "neither",
            json!({}),
            refused("networkRef is required unless the token is provided"),
        ),
        (
            "both enrollments",
            and(json!({"enrollment": {"managed": {}, "provided": provided["provided"]}})),
            refused("spec.enrollment"),
        ),
        ("a cost", and(json!({"cost": 65535})), TAKEN),
        (
            "a cost too high",
            and(json!({"cost": 65536})),
            refused("less than or equal to 65535"),
        ),
        (
            "a negative cost",
            and(json!({"cost": -1})),
            refused("greater than or equal to 0"),
        ),
        ("a tag", and(json!({"tags": {"team": "one"}})), TAKEN),
        (
            "a tag of ours",
            and(json!({"tags": {"ziti-operator-uid": "x"}})),
            refused("are the operator's own"),
        ),
        (
            "another policy",
            and(json!({"deletionPolicy": "Keep"})),
            refused("Unsupported value"),
        ),
        (
            "an empty name",
            and(json!({"name": ""})),
            refused("at least 1 chars"),
        ),
    ]);
    on_creation::<EdgeRouter>(&world, cases).await;

    let changes = vec![
        (
            "another name",
            json!({"name": "b"}),
            refused("name is immutable"),
        ),
        (
            "no name",
            json!({"name": null}),
            refused("name is immutable"),
        ),
        (
            "another network",
            json!({"networkRef": {"name": "m"}}),
            refused("networkRef is immutable"),
        ),
        (
            "no network",
            json!({"networkRef": null}),
            refused("networkRef"),
        ),
        (
            "the other enrollment",
            json!({"enrollment": {"managed": null, "provided": provided["provided"]}}),
            refused("enrollment cannot change between managed and provided"),
        ),
        (
            "a policy",
            json!({"deletionPolicy": "Retain", "adoptionPolicy": "ByName"}),
            TAKEN,
        ),
        (
            "roles and cost",
            json!({"roleAttributes": ["x"], "cost": 1}),
            TAKEN,
        ),
        (
            "reissue",
            json!({"enrollment": {"managed": {"reissue": "OnDemand"}}}),
            TAKEN,
        ),
    ];
    let named = and(json!({"name": "a"}));
    on_change::<EdgeRouter>(&world, "named", named, changes).await;
    let changes = vec![("a name", json!({"name": "b"}), refused("name is immutable"))];
    on_change::<EdgeRouter>(&world, "unnamed", base.clone(), changes).await;
    let changes = vec![
        (
            "a network",
            json!({"networkRef": {"name": "m"}}),
            refused("cannot be added or removed"),
        ),
        (
            "the other enrollment",
            json!({"enrollment": {"provided": null, "managed": {}}}),
            refused("enrollment cannot change"),
        ),
    ];
    on_change::<EdgeRouter>(&world, "given", json!({"enrollment": provided}), changes).await;
}

#[tokio::test]
async fn a_ziti_network_keeps_its_rules() {
    let world = World::new("rules-zn").await;
    let map = json!({"name": "ca", "key": "ca.crt"});
    let base = json!({"managementApi": ["https://ziti:1280"], "trust": {"configMap": map}});
    let and = |additions: Value| with(&base, &additions);
    let password = json!({"name": "p"});
    let cases: Vec<Case> = vec![
        ("the least", base.clone(), TAKEN),
        (
            "two endpoints",
            and(json!({"managementApi": ["https://a:1", "https://b:2/"]})),
            TAKEN,
        ),
        (
            "no endpoint",
            and(json!({"managementApi": []})),
            refused("should have at least 1 items"),
        ),
        (
            "plain HTTP",
            and(json!({"managementApi": ["http://a:1"]})),
            refused("managementApi"),
        ),
        (
            "a path",
            and(json!({"managementApi": ["https://a/b"]})),
            refused("managementApi"),
        ),
        (
            "no trust",
            json!({"managementApi": ["https://a:1"]}),
            refused("spec.trust"),
        ),
        (
            "two kinds of trust",
            and(json!({"trust": {"configMap": map, "secret": map}})),
            refused("spec.trust"),
        ),
        (
            "a password",
            and(json!({"credential": {"password": password}})),
            TAKEN,
        ),
        (
            "two credentials",
            and(json!({"credential": {"password": password, "clientCertificate": password}})),
            refused("spec.credential"),
        ),
        (
            "a pattern",
            and(json!({"namePattern": "{install}-{namespace}-{member}"})),
            TAKEN,
        ),
        (
            "one name for all",
            and(json!({"namePattern": "x"})),
            refused("must contain {member}"),
        ),
        (
            "addresses",
            and(json!({"controlPlane": {"endpoints": ["tls:ctrl:1280"]}})),
            TAKEN,
        ),
        (
            "an address without its scheme",
            and(json!({"controlPlane": {"endpoints": ["ctrl:1280"]}})),
            refused("spec.controlPlane.endpoints"),
        ),
        (
            "an address that the router would expand",
            and(json!({"controlPlane": {"endpoints": ["tls:$CTRL:1280"]}})),
            refused("spec.controlPlane.endpoints"),
        ),
    ];
    on_creation::<ZitiNetwork>(&world, cases).await;
}

#[tokio::test]
async fn names_must_fit_what_is_named_after_them() {
    let world = World::new("rules-names").await;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let spec = json!({"networkRef": {"name": "n"}});
    let named = |name: &str| json!({"metadata": {"name": name}, "spec": spec});
    for (name, wished) in [
        ("a".repeat(63), TAKEN),
        ("a".repeat(64), refused("at most 63 characters")),
    ] {
        let object = untyped::<EdgeRouter>(named(&name));
        let answer = raw::<EdgeRouter>(&world).create(&params, &object).await;
        check(&name, answer.map(|_| ()), wished);
    }
    for (name, wished) in [
        ("a".repeat(52), TAKEN),
        ("a".repeat(53), refused("at most 52 characters")),
        ("1st".to_owned(), refused("must begin with a letter")),
        ("a.b".to_owned(), refused("must begin with a letter")),
    ] {
        let object = untyped::<ZitiRouter>(named(&name));
        let answer = raw::<ZitiRouter>(&world).create(&params, &object).await;
        check(&name, answer.map(|_| ()), wished);
    }
}

#[tokio::test]
async fn what_a_user_leaves_out_is_filled_in() {
    let world = World::new("rules-defaults").await;
    let base = json!({"metadata": {"name": "least"}, "spec": {"networkRef": {"name": "n"}}});
    let params = PostParams::default();
    let er = raw::<EdgeRouter>(&world)
        .create(&params, &untyped::<EdgeRouter>(base.clone()))
        .await
        .unwrap();
    let filled = json!({"networkRef": {"name": "n"}, "tunnelerEnabled": false, "cost": 0,
        "noTraversal": false, "enrollment": {"managed": {"reissue": "Automatic"}},
        "deletionPolicy": "Delete", "adoptionPolicy": "IfTagged", "paused": false});
    assert_eq!(er.data["spec"], filled);
    let set = raw::<ZitiRouter>(&world)
        .create(&params, &untyped::<ZitiRouter>(base))
        .await
        .unwrap();
    let filled = json!({"networkRef": {"name": "n"}, "replicas": 2,
        "tunnel": {"mode": "none"}, "edge": {"port": 3022, "protocol": "tls"}, "link": {"port": 10080},
        "csr": {"sans": {}}, "cost": 0, "noTraversal": false,
        "identityStorage": {"persistentVolumeClaim": {"size": "50Mi"}},
        "retention": {"whenDeleted": "Delete", "whenScaled": "Delete"},
        "drain": {"timeoutSeconds": 15}, "deletionPolicy": "Delete", "adoptionPolicy": "IfTagged", "paused": false});
    assert_eq!(set.data["spec"], filled);
}
