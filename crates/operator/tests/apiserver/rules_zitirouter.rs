//! The rules of ZitiRouter, see [`crate::rules`].

use api::ZitiRouter;
use serde_json::{Value, json};

use crate::rules::{TAKEN, on_change, on_creation, refused, role_attributes, with};
use crate::world::World;

#[tokio::test]
async fn a_ziti_router_keeps_its_rules() {
    let world = World::new("rules-zr").await;
    let base = json!({"networkRef": {"name": "n"}});
    let and = |additions: Value| with(&base, &additions);
    let tokens = json!({"tokens": {"tried-0": "eyJ"}});
    let secret = json!({"tokensSecretRef": {"name": "s"}});
    let mut cases = role_attributes(&base);
    cases.extend([
        ("a network alone", base.clone(), TAKEN),
        ("tokens alone", tokens.clone(), TAKEN),
        ("a Secret of tokens alone", secret.clone(), TAKEN),
        ("a network and tokens", and(tokens.clone()), TAKEN),
        (
            "none of them",
            json!({}),
            refused("give networkRef, or tokens, or tokensSecretRef"),
        ),
        (
            "two sources of tokens",
            with(&tokens, &secret),
            refused("give tokens or tokensSecretRef, not both"),
        ),
        (
            "an unknown topology",
            and(json!({"topology": "PerZone"})),
            refused("Unsupported value"),
        ),
        (
            "members of their own, without one",
            and(json!({"topology": "PerMember", "reserveOrdinals": [1]})),
            TAKEN,
        ),
        (
            "an ordinal left out of a row",
            and(json!({"reserveOrdinals": [1]})),
            refused("reserveOrdinals are for topology PerMember"),
        ),
        (
            "some nodes",
            and(json!({"topology": "PerNode", "nodes": {"selector": {"matchLabels": {"a": "b"}}}})),
            TAKEN,
        ),
        (
            "nodes for a row",
            and(json!({"nodes": {"goneAfterSeconds": 5}})),
            refused("nodes are for topology PerNode"),
        ),
        ("none", and(json!({"replicas": 0})), TAKEN),
        ("a hundred", and(json!({"replicas": 100})), TAKEN),
        (
            "more",
            and(json!({"replicas": 101})),
            refused("less than or equal to 100"),
        ),
        (
            "fewer than none",
            and(json!({"replicas": -1})),
            refused("greater than or equal to 0"),
        ),
        (
            "no drain",
            and(json!({"drain": {"timeoutSeconds": 0}})),
            TAKEN,
        ),
        (
            "a drain of more than an hour",
            and(json!({"drain": {"timeoutSeconds": 3601}})),
            refused("less than or equal to 3600"),
        ),
        ("mode host", and(json!({"tunnel": {"mode": "host"}})), TAKEN),
        (
            "another mode",
            and(json!({"tunnel": {"mode": "other"}})),
            refused("Unsupported value"),
        ),
        (
            "a port",
            and(json!({"edge": {"port": 1024}, "link": {"port": 65535}})),
            TAKEN,
        ),
        (
            "a low port",
            and(json!({"edge": {"port": 443}})),
            refused("or equal to 1024"),
        ),
        (
            "a high port",
            and(json!({"link": {"port": 65536}})),
            refused("or equal to 65535"),
        ),
        (
            "a size in words",
            and(json!({"identityStorage": {"persistentVolumeClaim": {"size": "some"}}})),
            refused("identityStorage.persistentVolumeClaim.size"),
        ),
        (
            "a cost too high",
            and(json!({"cost": 65536})),
            refused("less than or equal to 65535"),
        ),
        (
            "a name twice",
            and(json!({"csr": {"sans": {"dns": ["a", "a"]}}})),
            refused("Duplicate value"),
        ),
        (
            "another policy",
            and(json!({"retention": {"whenScaled": "x"}})),
            refused("Unsupported"),
        ),
    ]);
    on_creation::<ZitiRouter>(&world, cases).await;

    let changes = vec![
        (
            "another network",
            json!({"networkRef": {"name": "m"}}),
            refused("networkRef is immutable"),
        ),
        (
            "tokens",
            tokens.clone(),
            refused("cannot change between provided and managed"),
        ),
        (
            "more storage",
            json!({"identityStorage": {"persistentVolumeClaim": {"size": "1Gi"}}}),
            refused("identityStorage is immutable"),
        ),
        (
            "a topology",
            json!({"topology": "PerMember"}),
            refused("topology cannot be added or removed"),
        ),
        (
            "replicas and ports",
            json!({"replicas": 5, "edge": {"port": 4000}}),
            TAKEN,
        ),
        (
            "image and mode",
            json!({"image": "a/b:1", "tunnel": {"mode": "host"}}),
            TAKEN,
        ),
    ];
    on_change::<ZitiRouter>(&world, "managed", base.clone(), changes).await;
    let changes = vec![
        (
            "a network",
            base.clone(),
            refused("networkRef cannot be added or removed"),
        ),
        (
            "a Secret instead",
            json!({"tokens": null, "tokensSecretRef": {"name": "s"}}),
            TAKEN,
        ),
        (
            "another token",
            json!({"tokens": {"tried-1": "eyJ"}}),
            TAKEN,
        ),
    ];
    on_change::<ZitiRouter>(&world, "provided", tokens, changes).await;
    let changes = vec![(
        "managed",
        json!({"tokensSecretRef": null}),
        refused("cannot change between"),
    )];
    on_change::<ZitiRouter>(&world, "both", and(secret), changes).await;
}
