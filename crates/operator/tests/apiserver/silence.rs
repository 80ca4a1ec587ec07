//! Tokens, keys and passwords are in no log, event or status, even when everything is logged.

use api::reasons::{self, types};
use api::{EdgeRouter, ZitiNetwork, ZitiRouter, names};
use base64::Engine;
use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};
use testbed::ziti::LocalController;

use crate::credentials::admin_token;
use crate::edge_router::registered;
use crate::operator::{Operator, Options};
use crate::player::Player;
use crate::set::zitirouter;
use crate::world::World;
use crate::ziti_network::{self as network, NETWORK};

/// The traces of a secret: itself, its base64 as the Kubernetes API carries it, and the lines of a
/// PEM.
fn traces(secret: &str) -> Vec<String> {
    let base64 = base64::engine::general_purpose::STANDARD.encode(secret);
    let lines = secret
        .lines()
        .filter(|line| line.len() > 24 && !line.starts_with("---"));
    let mut traces: Vec<String> = lines.map(str::to_owned).collect();
    traces.extend([secret.to_owned(), base64]);
    traces
}

#[tokio::test]
async fn no_secret_is_in_any_log_event_or_status() {
    let controller = network::shared_controller().await;
    let world = World::new("silent").await;
    let ziti = network::admin(&controller);
    let admin = admin_token(&ziti, "silent-operator").await;
    let given = network::token_of(&network::register(&ziti, "silent-given", json!({})).await);
    let options = Options {
        log: "trace",
        ..Options::default()
    };
    let operator = Operator::start_with(&world, &options);

    // Every way in: a wrong and a right password, a one-time token, tokens both ways.
    let spec = network::prepare(&world, &controller).await;
    let wrong = json!({"username": "admin", "password": "a-wrong-guess"});
    world.secret("network-admin", wrong).await;
    network::create(&world, spec.clone()).await;
    world
        .told::<ZitiNetwork>(NETWORK, types::READY, "False", reasons::BAD_CREDENTIALS)
        .await;
    network::prepare(&world, &controller).await;
    network::until_ready(&world).await;
    world.secret("admin-token", json!({"jwt": admin})).await;
    let mut by_token = spec;
    by_token["credential"] = json!({"enrollmentToken": {"name": "admin-token", "key": "jwt"}});
    let object = json!({"metadata": {"name": "by-token"}, "spec": by_token});
    world.create::<ZitiNetwork>(object).await;
    world
        .told::<ZitiNetwork>("by-token", types::READY, "True", reasons::READY)
        .await;
    registered(&world, "silent-a", json!({})).await;
    let managed = world.token("silent-a").await;
    let inline = json!({"tokens": {"silent-0": given}});
    world
        .create::<ZitiRouter>(zitirouter("silent", 1, inline))
        .await;
    let player = Player::new(&world, "silent");
    player.schedule(0).await;
    let enrolled = player.enroll(0).await;
    player.report(0, &enrolled.report()).await;
    world
        .told::<EdgeRouter>("silent-0", types::ENROLLED, "True", reasons::ENROLLED)
        .await;
    world.delete::<EdgeRouter>("silent-a").await;
    world.until_gone::<EdgeRouter>("silent-a").await;

    let key = world
        .secret_value(&names::admin_identity_secret("by-token"), "tls.key")
        .await
        .unwrap();
    let secrets = [
        ("the password", LocalController::PASSWORD.to_owned()),
        ("the wrong password", "a-wrong-guess".to_owned()),
        ("the administrator's token", admin),
        ("the managed token", managed),
        ("the provided token", given),
        ("the administrator's key", key),
    ];
    let log = operator.log();
    assert!(
        log.contains("TRACE") && log.contains("silent-a"),
        "it logs all"
    );
    let mut said = vec![("the log", log)];
    said.push(("an event", json!(world.list::<Event>().await).to_string()));
    let statuses: Vec<Value> = [
        json!(world.list::<ZitiNetwork>().await),
        json!(world.list::<EdgeRouter>().await),
        json!(world.list::<ZitiRouter>().await),
    ]
    .into_iter()
    .flat_map(|list| list.as_array().unwrap().clone())
    .map(|object| object["status"].clone())
    .collect();
    assert_eq!(statuses.len(), 4);
    said.push(("a status", json!(statuses).to_string()));
    for (what, secret) in secrets {
        for trace in traces(&secret) {
            for (place, said) in &said {
                let line = said.lines().find(|line| line.contains(&trace));
                assert!(line.is_none(), "{what} is in {place}: {}", line.unwrap());
            }
        }
    }
}
