//! The rules of `backup` and `restoreFrom` of a `ZitiController`, as the API server keeps them.

use api::ZitiController;
use serde_json::{Value, json};

use crate::rules::{Case, TAKEN, on_creation, refused, with};
use crate::world::World;

const RECIPIENT: &str = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";

fn volume() -> Value {
    json!({"volume": {"claimName": "backups", "path": "networks/ziti"}})
}

fn stores() -> Vec<Case> {
    let bucket = |additions: Value| json!({"bucket": with(&json!({"name": "ziti"}), &additions)});
    vec![
        ("a volume", volume(), TAKEN),
        ("a bucket", bucket(json!({})), TAKEN),
        (
            "a bucket with all there is",
            bucket(json!({
                "prefix": "a/b", "region": "eu-central-1", "endpoint": "https://s3.example.com:9000",
                "credentialsSecretRef": {"name": "s3"}, "trust": {"configMap": {"name": "ca", "key": "ca.crt"}},
            })),
            TAKEN,
        ),
        (
            "neither",
            json!({}),
            refused("give either volume or bucket"),
        ),
        (
            "both",
            json!({"volume": {"claimName": "a"}, "bucket": {"name": "ziti"}}),
            refused("give either volume or bucket"),
        ),
        (
            "a path that leads out",
            json!({"volume": {"claimName": "a", "path": "../b"}}),
            refused("should match"),
        ),
        (
            "a path from the top",
            json!({"volume": {"claimName": "a", "path": "/b"}}),
            refused("should match"),
        ),
        (
            "a path that would be expanded",
            json!({"volume": {"claimName": "a", "path": "$(HOME)"}}),
            refused("should match"),
        ),
        (
            "an endpoint with a path",
            bucket(json!({"endpoint": "https://s3.example.com/b"})),
            refused("should match"),
        ),
    ]
}

#[tokio::test]
async fn backups_keep_their_rules() {
    let world = World::new("rules-backup").await;
    let base = json!({"schedule": "17 3 * * *", "recipients": [RECIPIENT], "to": volume()});
    let and = |additions: Value| json!({"backup": with(&base, &additions)});
    let mut cases = vec![
        ("a nickname", and(json!({"schedule": "@daily"})), TAKEN),
        (
            "six fields",
            and(json!({"schedule": "0 17 3 * * *"})),
            refused("should match"),
        ),
        (
            "a time zone in the schedule",
            and(json!({"schedule": "TZ=UTC 17 3 * * *"})),
            refused("should match"),
        ),
        (
            "nobody who can read it",
            and(json!({"recipients": []})),
            refused("should have at least 1 items"),
        ),
        (
            "a secret where a public key belongs",
            and(json!({"recipients": ["AGE-SECRET-KEY-1QQQ"]})),
            refused("should match"),
        ),
        (
            "none kept",
            and(json!({"keep": 0})),
            refused("greater than or equal to 1"),
        ),
    ];
    cases.extend(stores().into_iter().map(|(what, to, wished)| {
        let spec = and(json!({"to": to}));
        (what, spec, wished)
    }));
    on_creation::<ZitiController>(&world, cases).await;
}

#[tokio::test]
async fn what_is_restored_from_keeps_its_rules() {
    let world = World::new("rules-restore").await;
    let base = json!({"from": volume(), "identitySecretRef": {"name": "age"}});
    let and = |additions: Value| json!({"restoreFrom": with(&base, &additions)});
    let mut cases = vec![
        (
            "a snapshot",
            and(json!({"snapshot": "edge.ziti.20260101T030000Z.tar.age"})),
            TAKEN,
        ),
        (
            "a snapshot elsewhere",
            and(json!({"snapshot": "../edge.ziti.20260101T030000Z.tar.age"})),
            refused("should match"),
        ),
    ];
    cases.extend(stores().into_iter().map(|(what, from, wished)| {
        let spec = and(json!({"from": from}));
        (what, spec, wished)
    }));
    on_creation::<ZitiController>(&world, cases).await;
}
