//! Each fault in a ZitiRouter is told in the set's Ready, costs nothing, and heals when mended.

use api::reasons::{self, types};
use api::{EdgeRouter, ZitiRouter, names};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use crate::operator::Operator;
use crate::set::{self, zitirouter};
use crate::world::{Told, World};
use crate::ziti_network as network;

/// Waits until the set says this, and checks the sentence.
async fn says(world: &World, name: &str, reason: &str, words: &[&str]) {
    let told = world
        .told::<ZitiRouter>(name, types::READY, "False", reason)
        .await;
    for word in words {
        assert!(told.contains(word), "{name}: {told:?} should say {word:?}");
    }
    world
        .told::<ZitiRouter>(name, types::DEGRADED, "True", reason)
        .await;
}

#[tokio::test]
async fn a_set_that_cannot_be_run_as_written_says_why_and_is_run_once_mended() {
    let controller = network::shared_controller().await;
    let world = World::new("bad-set").await;
    let spec = network::prepare(&world, &controller).await;
    let _operator = Operator::start(&world);

    world
        .create::<ZitiRouter>(zitirouter("bad-set-a", 1, json!({})))
        .await;
    let words = ["ZitiNetwork network", "does not exist", "create it"];
    says(&world, "bad-set-a", reasons::NETWORK_NOT_FOUND, &words).await;
    network::create(&world, spec).await;
    set::until_replicas(&world, "bad-set-a", 1).await;

    let faults = [
        (
            json!({"csr": {"sans": {"dns": ["router.example", "$HOME.example"]}}}),
            reasons::DOLLAR_IN_STRING,
            &[
                "spec.csr.sans.dns",
                "$HOME.example",
                "Write the value itself",
            ][..],
            json!({"csr": {"sans": {"dns": ["router.example"]}}}),
        ),
        (
            json!({"csr": {"sans": {"ip": ["10.0.0.256"]}}}),
            reasons::INVALID_SPEC,
            &["spec.csr.sans.ip", "10.0.0.256"],
            json!({"csr": {"sans": {"ip": ["10.0.0.25"]}}}),
        ),
        (
            json!({"edge": {"port": 4444}, "link": {"port": 4444, "expose": {"type": "HostPort"}}}),
            reasons::INVALID_SPEC,
            &["spec.edge.port", "4444", "give each its own"],
            json!({"edge": {"port": 4443}, "link": {"expose": null}}),
        ),
        (
            json!({"extraConfig": {"identity": {"key": "mine"}}}),
            reasons::CONFIG_KEY_REFUSED,
            &["spec.extraConfig", "identity", "the agent keeps"],
            json!({"extraConfig": null}),
        ),
        (
            json!({"extraConfig": {"metrics": {"reportInterval": 5}}}),
            reasons::CONFIG_INVALID,
            &["metrics.reportInterval", "a duration"],
            json!({"extraConfig": null}),
        ),
    ];
    for (fault, reason, words, mended) in faults {
        let before: StatefulSet = world.get("bad-set-a").await;
        world
            .patch::<ZitiRouter>("bad-set-a", json!({"spec": fault}))
            .await;
        says(&world, "bad-set-a", reason, words).await;
        let after: StatefulSet = world.get("bad-set-a").await;
        assert_eq!(before.metadata.generation, after.metadata.generation);
        world
            .patch::<ZitiRouter>("bad-set-a", json!({"spec": mended}))
            .await;
        world
            .until::<ZitiRouter>("bad-set-a", "mended", |set| {
                let degraded = set.condition(types::DEGRADED).unwrap();
                degraded.status == "False"
                    && degraded.observed_generation == set.metadata.generation
            })
            .await;
    }
}

#[tokio::test]
async fn a_token_under_two_keys_is_given_to_neither_and_a_missing_one_is_asked_for() {
    let controller = network::shared_controller().await;
    let world = World::new("given").await;
    network::connect(&world, &controller).await;
    let ziti = network::admin(&controller);
    let mut tokens = Vec::new();
    for name in ["given-x", "given-y", "given-z"] {
        tokens.push(network::token_of(
            &network::register(&ziti, name, json!({})).await,
        ));
    }
    let _operator = Operator::start(&world);
    let given = json!({"tokensSecretRef": {"name": "given-tokens-of-mine"}});
    world
        .create::<ZitiRouter>(zitirouter("given", 3, given))
        .await;
    let words = [
        "Secret given-tokens-of-mine",
        "spec.tokensSecretRef",
        "create it",
    ];
    says(&world, "given", reasons::SOURCE_MISSING, &words).await;

    let twice = json!({"given-0": tokens[0], "given-1": tokens[1], "given-2": tokens[1]});
    world.secret("given-tokens-of-mine", twice).await;
    let words = ["given-1", "another member's key", "token of its own"];
    says(&world, "given", reasons::TOKEN_DUPLICATE, &words).await;
    set::until_replicas(&world, "given", 1).await;
    for member in ["given-1", "given-2"] {
        let mounted = world.secret_value("given-tokens", member).await;
        assert_eq!(mounted.as_deref(), Some(""), "{member}");
    }

    let missing = json!([{"op": "remove", "path": "/data/given-1"}]);
    json_patch(&world, "given-tokens-of-mine", missing).await;
    let words = ["given-1", "no token is given", "add the key given-1"];
    says(&world, "given", reasons::TOKEN_MISSING, &words).await;
    set::until_replicas(&world, "given", 1).await;

    world
        .secret("given-tokens-of-mine", json!({"given-1": tokens[2]}))
        .await;
    set::until_replicas(&world, "given", 3).await;
    for (member, token) in [("given-0", 0), ("given-1", 2), ("given-2", 1)] {
        let mounted = world.secret_value("given-tokens", member).await;
        assert_eq!(mounted.as_ref(), Some(&tokens[token]), "{member}");
    }
}

async fn json_patch(world: &World, secret: &str, patch: Value) {
    use k8s_openapi::api::core::v1::Secret;
    use kube::api::{Patch, PatchParams};
    let patch: kube::core::params::Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap());
    world
        .api::<Secret>()
        .patch(secret, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[tokio::test]
async fn what_somebody_else_made_under_a_members_name_is_not_taken_over() {
    let controller = network::shared_controller().await;
    let world = World::new("foreign").await;
    network::connect(&world, &controller).await;
    let service = json!({"metadata": {"name": "foreign-a-0", "labels": {"of": "somebody"}},
        "spec": {"ports": [{"port": 80}]}});
    let theirs: Service = world.create(service).await;
    world
        .secret("foreign-b-tokens", json!({"theirs": "yes"}))
        .await;
    let map = json!({"metadata": {"name": "foreign-c-0"}, "spec":
        {"networkRef": {"name": network::NETWORK}}});
    world.create::<EdgeRouter>(map).await;
    let _operator = Operator::start(&world);
    for name in ["foreign-a", "foreign-b", "foreign-c"] {
        world
            .create::<ZitiRouter>(zitirouter(name, 1, json!({})))
            .await;
    }
    for (name, words) in [
        ("foreign-a", ["Service foreign-a-0", "delete or rename it"]),
        (
            "foreign-b",
            ["Secret foreign-b-tokens", "delete or rename that Secret"],
        ),
        (
            "foreign-c",
            ["EdgeRouter foreign-c-0", "delete or rename it"],
        ),
    ] {
        let told = world
            .told::<ZitiRouter>(name, types::DEGRADED, "True", reasons::SOURCE_INVALID)
            .await;
        for word in words {
            assert!(told.contains(word), "{name}: {told:?} should say {word:?}");
        }
    }
    let now: Service = world.get("foreign-a-0").await;
    assert_eq!(
        now.metadata.resource_version,
        theirs.metadata.resource_version
    );
    let secret = world.secret_value("foreign-b-tokens", "theirs").await;
    assert_eq!(secret.as_deref(), Some("yes"));
    let er: EdgeRouter = world.get("foreign-c-0").await;
    assert!(er.metadata.owner_references.is_none());
    assert!(
        er.metadata
            .labels
            .is_none_or(|labels| !labels.contains_key(names::LABEL_SET))
    );

    world.delete::<Service>("foreign-a-0").await;
    world
        .delete::<k8s_openapi::api::core::v1::Secret>("foreign-b-tokens")
        .await;
    world.delete::<EdgeRouter>("foreign-c-0").await;
    for name in ["foreign-a", "foreign-b", "foreign-c"] {
        set::until_replicas(&world, name, 1).await;
    }
}
