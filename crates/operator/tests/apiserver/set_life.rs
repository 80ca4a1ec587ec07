//! A set that runs: what its pods report, what becomes of their tokens, an upgraded operator, and
//! an operator that is killed again and again.

use std::hash::{BuildHasher, Hasher, RandomState};

use api::edge_router::AgentReport;
use api::reasons::{self, types};
use api::{EdgeRouter, ZitiRouter, names};
use futures::StreamExt;
use futures::stream::select;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use testbed::ziti::LocalRouter;
use ziti::token::EnrollmentToken;

use crate::operator::{AGENT_IMAGE, Operator, Options, ROUTER_IMAGE};
use crate::player::Player;
use crate::set::{until_replicas, zitirouter};
use crate::world::{Told, World};
use crate::ziti_network as network;

#[tokio::test]
async fn a_token_is_taken_away_when_the_pod_holds_what_the_network_expects() {
    let controller = network::shared_controller().await;
    let world = World::new("reports").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    world
        .create::<ZitiRouter>(zitirouter("reports", 1, json!({})))
        .await;
    let player = Player::new(&world, "reports");
    let pod = player.schedule(0).await;
    let enrolled = player.enroll(0).await;
    let fingerprint = Some(enrolled.identity.fingerprint.clone());
    // The network has seen it redeemed. That does not show that the pod has the certificate.
    world
        .until::<EdgeRouter>("reports-0", "seen redeemed", |er| {
            er.status.as_ref().unwrap().fingerprint == fingerprint
        })
        .await;
    let mounted = world.secret_value("reports-tokens", "reports-0").await;
    assert_eq!(mounted.as_ref(), Some(&enrolled.token));

    player.report(0, &enrolled.report()).await;
    world
        .until::<EdgeRouter>("reports-0", "known to hold its identity", |er| {
            let enrolled = er.condition(types::ENROLLED).unwrap();
            enrolled.status == "True" && enrolled.message.contains("holds its identity")
        })
        .await;
    let is_empty =
        |key: &'static str| move |secret: &Secret| secret.data.as_ref().unwrap()[key].0.is_empty();
    let enrollment = names::enrollment_secret("reports-0");
    world
        .until::<Secret>(&enrollment, "emptied", is_empty(names::TOKEN_KEY))
        .await;
    world
        .until::<Secret>("reports-tokens", "emptied", is_empty("reports-0"))
        .await;
    let er: EdgeRouter = world.get("reports-0").await;
    let token = EnrollmentToken::parse(&enrolled.token).unwrap();
    let reported = AgentReport {
        pod_uid: pod.metadata.uid.unwrap(),
        reason: AgentReport::ENROLLED.to_owned(),
        message: None,
        router_id: Some(enrolled.identity.id.clone()),
        fingerprint,
        not_after: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            enrolled.identity.not_after,
        )),
        token_digest: Some(token.digest().to_owned()),
        token_reason: None,
    };
    assert_eq!(er.status.unwrap().agent, Some(reported));

    let _router = enrolled.run();
    player.ready(0).await;
    let told = world
        .told::<ZitiRouter>("reports", types::READY, "True", reasons::READY)
        .await;
    assert_eq!(told, "1 of 1 members are online");
    let status = world.get::<ZitiRouter>("reports").await.status.unwrap();
    let counts = (
        status.replicas,
        status.ready_replicas,
        status.online_replicas,
    );
    assert_eq!(counts, (1, 1, 1));
}

#[tokio::test]
async fn another_version_of_the_operator_restarts_nothing_until_something_else_changes() {
    let controller = network::shared_controller().await;
    let world = World::new("upgraded").await;
    network::connect(&world, &controller).await;
    let before = Operator::start(&world);
    world
        .create::<ZitiRouter>(zitirouter("upgraded", 1, json!({})))
        .await;
    let old = until_replicas(&world, "upgraded", 1).await;
    let images = |set: &StatefulSet| {
        let pod = set.spec.as_ref().unwrap().template.spec.clone().unwrap();
        let init = pod.init_containers.unwrap().remove(0).image.unwrap();
        (init, pod.containers[0].image.clone().unwrap())
    };
    before.stop();
    let options = Options {
        agent_image: "registry.example/agent:2",
        router_image: "registry.example/router:2",
        ..Options::default()
    };
    let _after = Operator::start_with(&world, &options);
    world
        .patch::<ZitiRouter>("upgraded", json!({"spec": {"cost": 5}}))
        .await;
    let ziti = network::admin(&controller);
    network::until_router(&ziti, "upgraded-0", "of cost 5", |router| router.cost == 5).await;
    world
        .told::<ZitiRouter>(
            "upgraded",
            types::PROGRESSING,
            "True",
            reasons::MEMBERS_NOT_READY,
        )
        .await;
    let new: StatefulSet = world.get("upgraded").await;
    assert_eq!(new.metadata.generation, old.metadata.generation);
    assert_eq!(
        images(&new),
        (AGENT_IMAGE.to_owned(), ROUTER_IMAGE.to_owned())
    );

    let change = json!({"spec": {"edge": {"port": 4022}}});
    world.patch::<ZitiRouter>("upgraded", change).await;
    let wished = (
        options.agent_image.to_owned(),
        options.router_image.to_owned(),
    );
    world
        .until::<StatefulSet>("upgraded", "of the new images", |set| images(set) == wished)
        .await;
}

#[tokio::test]
async fn a_pod_that_could_not_enroll_is_told_and_replaced_when_another_token_waits() {
    let controller = network::shared_controller().await;
    let world = World::new("failing").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    world
        .create::<ZitiRouter>(zitirouter("failing", 1, json!({})))
        .await;
    let player = Player::new(&world, "failing");
    let pod = player.schedule(0).await;
    world.token("failing-0").await;
    let missing = json!({"outcome": "Failed", "reason": "ControllerUnreachable",
        "message": "no answer from https://ziti:1280"});
    player.report(0, &missing).await;
    let told = world
        .told::<ZitiRouter>(
            "failing",
            types::READY,
            "False",
            reasons::CONTROLLER_UNREACHABLE,
        )
        .await;
    assert!(
        told.contains("failing-0") && told.contains("https://ziti:1280"),
        "{told}"
    );

    // It saw another token than the one that waits: a new pod takes it at once.
    let stale = json!({"outcome": "Failed", "reason": "TokenSpent", "message": "spent",
        "tokenDigest": "0000000000000000"});
    player.report(0, &stale).await;
    let stopping = player.until_stopping(0).await;
    assert_eq!(stopping.metadata.uid, pod.metadata.uid);
    player.stopped(&stopping).await;
    let next = player.schedule(0).await;
    assert_ne!(next.metadata.uid, pod.metadata.uid);
}

#[tokio::test]
async fn an_operator_killed_at_any_moment_registers_each_router_once() {
    const SETS: [&str; 3] = ["killed-a", "killed-b", "killed-c"];
    const EACH: i32 = 5;
    let controller = network::shared_controller().await;
    let world = World::new("killed").await;
    network::connect(&world, &controller).await;
    for set in SETS {
        world
            .create::<ZitiRouter>(zitirouter(set, 0, json!({})))
            .await;
    }
    let mut operator = Operator::start(&world);
    network::until_ready(&world).await;
    let config = watcher::Config::default;
    let of_routers = watcher(world.api::<EdgeRouter>(), config()).touched_objects();
    let of_secrets = watcher(world.api::<Secret>(), config()).touched_objects();
    let mut changes = Box::pin(select(of_routers.map(|_| ()), of_secrets.map(|_| ())));
    for set in SETS {
        world
            .patch::<ZitiRouter>(set, json!({"spec": {"replicas": EACH}}))
            .await;
    }
    for _ in 0..8 {
        let after = 1 + RandomState::new().build_hasher().finish() % 12;
        println!("killed after {after} more changes");
        for _ in 0..after {
            // Fewer may be left than that; a kill at rest counts as well.
            let quiet = std::time::Duration::from_secs(2);
            if tokio::time::timeout(quiet, changes.next()).await.is_err() {
                break;
            }
        }
        operator.kill();
        operator = Operator::start(&world);
    }
    for set in SETS {
        until_replicas(&world, set, EACH).await;
    }
    let ziti = network::admin(&controller);
    let routers = network::routers_of(&ziti, "killed").await;
    let mut registered: Vec<_> = routers.iter().map(|r| r.name.clone()).collect();
    registered.sort();
    let mut members = Vec::new();
    for set in SETS {
        for ordinal in 0..EACH {
            let member = format!("{set}-{ordinal}");
            let token = world
                .secret_value(&names::tokens_secret(set), &member)
                .await;
            let token = EnrollmentToken::parse(&token.unwrap()).unwrap();
            let router = routers.iter().find(|r| r.name == member).unwrap();
            assert_eq!(token.expose(), network::token_of(router), "{member}");
            let er: EdgeRouter = world.get(&member).await;
            assert_eq!(er.status.unwrap().id.as_ref(), Some(&router.id));
            members.push(member);
        }
    }
    assert_eq!(registered, members, "each once, and nothing else");
    drop(operator);
}

/// Takes a member from its pod to a router that is online.
pub(crate) async fn bring_up(
    player: &Player<'_>,
    ordinal: i32,
) -> (LocalRouter, tempfile::TempDir) {
    player.schedule(ordinal).await;
    let enrolled = player.enroll(ordinal).await;
    player.report(ordinal, &enrolled.report()).await;
    let router = enrolled.run();
    player.ready(ordinal).await;
    router
}
