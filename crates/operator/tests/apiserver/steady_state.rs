//! What a set costs: the writes of making it, and none once it stands.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use api::reasons::{self, types};
use api::{ZitiNetwork, ZitiRouter};
use serde_json::json;
use testbed::audit::Write;
use tokio::net::TcpListener;

use crate::edge_router::registered;
use crate::operator::Operator;
use crate::player::Player;
use crate::set::zitirouter;
use crate::set_life::bring_up;
use crate::world::{PATIENCE, Told, World};
use crate::ziti_network as network;

/// How long nothing may be written.
const QUIET: Duration = Duration::from_secs(10);

/// More than this to make a set of two would be news for `docs/performance.md`.
const MOST_WRITES: usize = 60;

/// A network that nobody answers for, tried again every few seconds: each try shows that the
/// operator is alive and that this much time has passed for it.
async fn marker(world: &World) -> TcpListener {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let mut spec =
        json!({"managementApi": [format!("https://{}", listener.local_addr().unwrap())]});
    spec["trust"] = json!({"configMap": {"name": "network-ca", "key": "ca.crt"}});
    let object = json!({"metadata": {"name": "marker"}, "spec": spec});
    world.create::<ZitiNetwork>(object).await;
    listener
}

/// Waits for the next try, and answers with what is no TLS, so that each fails alike.
async fn tried(listener: &TcpListener) {
    let answer = async {
        let (stream, _) = listener.accept().await?;
        stream.writable().await?;
        stream.try_write(b"this is no Ziti controller\r\n")?;
        // Until the other side has read it: hanging up first would be another failure.
        loop {
            stream.readable().await?;
            match stream.try_read(&mut [0; 1024]) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return Ok::<_, std::io::Error>(()),
            }
        }
    };
    let answered = tokio::time::timeout(PATIENCE, answer).await;
    answered.expect("the operator tries again").unwrap();
}

#[tokio::test]
async fn a_set_that_stands_costs_no_write() {
    let controller = network::shared_controller().await;
    let world = World::new("steady").await;
    network::connect(&world, &controller).await;
    let _operator = Operator::start(&world);
    network::until_ready(&world).await;
    let making = world.audit();
    world
        .create::<ZitiRouter>(zitirouter("steady", 2, json!({})))
        .await;
    let player = Player::new(&world, "steady");
    let _routers = (bring_up(&player, 0).await, bring_up(&player, 1).await);
    let told = world
        .told::<ZitiRouter>("steady", types::READY, "True", reasons::READY)
        .await;
    assert_eq!(told, "2 of 2 members are online");
    let made = making.writes_by(&world.operator_user()).unwrap();
    print_counted(&made);
    assert!(
        made.len() <= MOST_WRITES,
        "{} writes: {made:#?}",
        made.len()
    );

    // A router whose token waits is asked for every second, and nothing comes of it.
    registered(&world, "steady-waiting", json!({})).await;
    let listener = marker(&world).await;
    let tries = async {
        loop {
            tried(&listener).await;
        }
    };
    let told = |network: &ZitiNetwork| network.condition(types::READY).is_some();
    tokio::select! {
        _ = world.until::<ZitiNetwork>("marker", "tried", told) => {}
        () = tries => {}
    }
    tried(&listener).await;
    let (quiet, since) = (world.audit(), Instant::now());
    while since.elapsed() < QUIET {
        tried(&listener).await;
    }
    let writes = quiet.writes_by(&world.operator_user()).unwrap();
    assert!(writes.is_empty(), "written in a steady state: {writes:#?}");
}

fn print_counted(writes: &[Write]) {
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    for write in writes {
        let Write {
            verb,
            resource,
            subresource,
            ..
        } = write;
        *counted
            .entry(format!("{verb} {resource} {subresource}"))
            .or_default() += 1;
    }
    println!(
        "a set of 2, from nothing to online: {} writes",
        writes.len()
    );
    for (what, count) in counted {
        println!("{count:4} {what}");
    }
}
