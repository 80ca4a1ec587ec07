//! What a Ziti controller tells by itself is noticed at once, not with the next list; and what
//! becomes of its event stream when the controller restarts or the network is forgotten.

use std::time::{Duration, Instant};

use api::reasons::{self, types};
use api::{EdgeRouter, ZitiNetwork, ZitiRouter};
use serde_json::json;
use testbed::kubernetes;
use testbed::ziti::{LocalController, LocalRouter, RouterOptions};

use crate::operator::Operator;
use crate::player::Player;
use crate::set::zitirouter;
use crate::set_life::bring_up;
use crate::steady_state::Marker;
use crate::world::{PATIENCE, World};
use crate::ziti_network::{self as network, NETWORK};

/// By the clock, a router at rest is looked at every 30 s.
const AT_ONCE: Duration = Duration::from_secs(6);

/// How often a router goes. By the clock alone it would be noticed in time now and then.
const TIMES: usize = 2;

/// Lines of the operator's log that say this.
fn count(operator: &Operator, said: &str) -> usize {
    let log = operator.log();
    log.lines().filter(|line| line.contains(said)).count()
}

/// Waits until the operator has logged this so many times.
async fn until_logged(operator: &Operator, said: &str, times: usize) {
    let what = format!("{said:?} to be logged {times} times");
    let look = async || Ok((count(operator, said) >= times).then_some(()));
    kubernetes::poll(&what, PATIENCE, look).await.unwrap();
}

/// Waits until the router of an EdgeRouter is told to be offline.
async fn until_offline(world: &World, edge_router: &str) {
    world
        .told::<EdgeRouter>(edge_router, types::ONLINE, "False", reasons::OFFLINE)
        .await;
}

async fn until_online(world: &World, edge_router: &str) {
    world
        .told::<EdgeRouter>(edge_router, types::ONLINE, "True", reasons::ONLINE)
        .await;
}

#[tokio::test]
async fn a_router_that_goes_at_rest_is_noticed_at_once() {
    let mut controller = network::own_controller().await;
    let world = World::new("pushed").await;
    network::connect(&world, &controller).await;
    let operator = Operator::start(&world);
    until_logged(&operator, "the event stream is open", 1).await;
    world
        .create::<ZitiRouter>(zitirouter("pushed", 1, json!({})))
        .await;
    let player = Player::new(&world, "pushed");
    let (mut router, dir) = bring_up(&player, 0).await;
    let mut marker = Marker::create(&world).await;
    for _ in 0..TIMES {
        world
            .told::<ZitiRouter>("pushed", types::READY, "True", reasons::READY)
            .await;
        // The lists that follow the event of its coming are over then.
        marker.rests().await;
        let gone = Instant::now();
        drop(router);
        until_offline(&world, "pushed-0").await;
        println!("offline was told after {:?}", gone.elapsed());
        assert!(gone.elapsed() < AT_ONCE, "after {:?}", gone.elapsed());
        router = LocalRouter::start(dir.path(), RouterOptions::default()).unwrap();
        until_online(&world, "pushed-0").await;
    }
    assert!(count(&operator, "change=Offline") >= TIMES);

    // The stream ends with the controller, and is opened again.
    controller.restart().await.unwrap();
    until_logged(&operator, "no event stream", 1).await;
    until_logged(&operator, "the event stream is open", 2).await;
    let ziti = network::admin(&controller);
    network::until_router(&ziti, "pushed-0", "back", |router| router.is_online).await;
    until_online(&world, "pushed-0").await;
    let events = count(&operator, "change=Offline");
    drop(router);
    until_offline(&world, "pushed-0").await;
    assert!(count(&operator, "change=Offline") > events);
}

#[tokio::test]
async fn the_stream_of_a_network_that_is_forgotten_ends() {
    let controller = network::own_controller().await;
    let world = World::new("unpushed").await;
    network::connect(&world, &controller).await;
    let operator = Operator::start(&world);
    network::until_ready(&world).await;
    until_logged(&operator, "the event stream is open", 1).await;
    world.delete::<ZitiNetwork>(NETWORK).await;
    world.until_gone::<ZitiNetwork>(NETWORK).await;
    let look = async || Ok((connections(&controller) == 0).then_some(()));
    kubernetes::poll("the last connection to end", PATIENCE, look)
        .await
        .unwrap();
}

/// How many connections to a controller are open. (Each stands there twice, once for each end; only
/// the end of the client counts.)
fn connections(controller: &LocalController) -> usize {
    const ESTABLISHED: &str = "01";
    let url = controller.url();
    let port: u16 = url.rsplit(':').next().unwrap().parse().unwrap();
    let remote = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let open = table.lines().filter(|line| {
        let mut columns = line.split_whitespace().skip(2);
        columns.next().is_some_and(|to| to.ends_with(&remote))
            && columns.next() == Some(ESTABLISHED)
    });
    open.count()
}
