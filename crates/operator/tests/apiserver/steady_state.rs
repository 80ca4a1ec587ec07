//! What a set costs: the writes of making it, and none once it stands.

use std::collections::BTreeMap;
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
use crate::world::{PATIENCE, World};
use crate::ziti_network as network;

/// How long nothing may be written.
const QUIET: Duration = Duration::from_secs(10);

/// Less than the operator waits before it tries a network again.
const PAUSE: Duration = Duration::from_secs(3);

/// More than this to make a set of two would be news for `docs/performance.md`.
const MOST_WRITES: usize = 60;

/// A network whose controller hangs up on everybody. It is tried again every few seconds, and fails
/// each time a little differently: each try shows that the operator is alive and that this much time
/// has passed for it.
pub(crate) struct Marker(TcpListener);

impl Marker {
    pub(crate) async fn create(world: &World) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let spec = json!({"managementApi": [format!("https://{address}")],
            "trust": {"configMap": {"name": "network-ca", "key": "ca.crt"}}});
        let object = json!({"metadata": {"name": "marker"}, "spec": spec});
        world.create::<ZitiNetwork>(object).await;
        let mut marker = Self(listener);
        let reason = reasons::CONTROLLER_UNREACHABLE;
        tokio::select! {
            _ = world.told::<ZitiNetwork>("marker", types::READY, "False", reason) => {}
            () = async { loop { marker.tried().await } } => {}
        }
        marker
    }

    /// Waits for a try that came by the clock alone: what it wrote first woke it once more.
    pub(crate) async fn rests(&mut self) {
        let mut last = Instant::now();
        while last.elapsed() < PAUSE {
            last = Instant::now();
            self.tried().await;
        }
    }

    /// Waits for the next try, and hangs up.
    async fn tried(&mut self) {
        let next = tokio::time::timeout(PATIENCE, self.0.accept()).await;
        drop(next.expect("the operator tries again").unwrap());
    }
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
    let mut marker = Marker::create(&world).await;
    marker.rests().await;
    let (quiet, since) = (world.audit(), Instant::now());
    while since.elapsed() < QUIET {
        marker.tried().await;
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
