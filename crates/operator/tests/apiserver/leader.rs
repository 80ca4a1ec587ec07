//! A network of three controllers: the operator works with the one that leads, wherever that
//! moves.

use std::time::{Duration, Instant};

use api::ZitiNetwork;
use api::reasons::{self, types};
use serde_json::json;
use testbed::kubernetes;
use testbed::ziti::config::Storage;
use testbed::ziti::pki::Authority;
use testbed::ziti::{ControllerOptions, LocalController};
use ziti::management::ManagementClient;
use ziti::token::EnrollmentToken;

use crate::edge_router::registered;
use crate::operator::Operator;
use crate::steady_state::Marker;
use crate::world::{PATIENCE, World};
use crate::ziti_network::{self as network, NETWORK};

/// Long enough for the lists at rest to have come by once.
const QUIET: Duration = Duration::from_secs(35);

/// Controllers `c-0`, `c-1` and `c-2`; the first leads.
async fn three() -> Vec<LocalController> {
    let authority = Authority::new("leader.ziti").unwrap();
    let options = |index: usize| {
        let names = ["localhost".to_owned()];
        let ips = ["127.0.0.1".parse().unwrap()];
        let pki = authority.controller(&format!("c-{index}"), &names, &ips);
        ControllerOptions {
            storage: Some(Storage::Cluster),
            pki: Some(pki.unwrap()),
            ..ControllerOptions::default()
        }
    };
    let first = LocalController::start_with(&options(0)).await.unwrap();
    let admin = network::admin(&first);
    let mut controllers = vec![first];
    for index in [1, 2] {
        let joiner = LocalController::start_joiner(&options(index)).unwrap();
        let address = joiner.control_plane();
        let join = async || Ok(admin.add_member(&address, true).await.ok());
        let what = format!("c-{index} to be taken in");
        kubernetes::poll(&what, PATIENCE, join).await.unwrap();
        // It takes logins once it has the database.
        let its = network::admin(&joiner);
        let ready = async || Ok(its.default_admin_id().await.ok().flatten());
        let what = format!("c-{index} to take logins");
        kubernetes::poll(&what, PATIENCE, ready).await.unwrap();
        controllers.push(joiner);
    }
    controllers
}

/// The leader's id in the status of a ZitiNetwork.
fn leader(network: &ZitiNetwork) -> Option<&str> {
    let status = network.status.as_ref()?;
    let mut controllers = status.controllers.iter();
    let leader = controllers.find(|controller| controller.leader)?;
    Some(&leader.id)
}

async fn until_led(world: &World, what: &str, wished: impl Fn(&str) -> bool) -> ZitiNetwork {
    let led = |network: &ZitiNetwork| leader(network).is_some_and(&wished);
    world.until::<ZitiNetwork>(NETWORK, what, led).await
}

/// Who issued the token of an EdgeRouter.
async fn issuer(world: &World, edge_router: &str) -> Option<u16> {
    let token = EnrollmentToken::parse(&world.token(edge_router).await).unwrap();
    token.issuer().port()
}

fn port(controller: &LocalController) -> Option<u16> {
    controller.url().parse::<ziti::Url>().unwrap().port()
}

async fn transferred(client: &ManagementClient, to: &str) {
    let moved = async || Ok(client.transfer_leadership(Some(to)).await.ok());
    kubernetes::poll("leadership to move", PATIENCE, moved)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_operator_works_with_the_controller_that_leads() {
    let mut controllers = three().await;
    let world = World::new("leader").await;
    let mut spec = network::prepare(&world, &controllers[0]).await;
    let urls = [1, 2, 0].map(|index| controllers[index].url());
    spec["managementApi"] = json!(urls);
    network::create(&world, spec).await;
    let operator = Operator::start(&world);
    network::until_ready(&world).await;
    let told = until_led(&world, "led by c-0", |leader| leader == "c-0").await;
    let told = told.status.unwrap();
    let ids: Vec<_> = told.controllers.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(ids, ["c-0", "c-1", "c-2"]);
    assert!(told.controllers.iter().all(|c| c.version == told.version));
    registered(&world, "leader-a", json!({})).await;
    assert_eq!(issuer(&world, "leader-a").await, port(&controllers[0]));

    // Leadership moves, and with it the token that waits.
    let began = Instant::now();
    transferred(&network::admin(&controllers[0]), "c-2").await;
    until_led(&world, "led by c-2", |leader| leader == "c-2").await;
    println!("a moved leader was followed after {:?}", began.elapsed());
    let theirs = async || {
        let issuer = issuer(&world, "leader-a").await;
        Ok((issuer == port(&controllers[2])).then_some(()))
    };
    kubernetes::poll("the new leader's token", PATIENCE, theirs)
        .await
        .unwrap();
    registered(&world, "leader-b", json!({})).await;
    assert_eq!(issuer(&world, "leader-b").await, port(&controllers[2]));

    // While nobody is lost and nobody moves, nothing is written.
    let mut marker = Marker::create(&world).await;
    marker.rests().await;
    let (quiet, since) = (world.audit(), Instant::now());
    while since.elapsed() < QUIET {
        marker.rests().await;
    }
    let writes = quiet.writes_by(&world.operator_user()).unwrap();
    assert!(writes.is_empty(), "written in a steady state: {writes:#?}");

    // The leader is gone.
    let began = Instant::now();
    controllers[2].stop().unwrap();
    registered(&world, "leader-c", json!({})).await;
    println!(
        "without its leader, a router was registered after {:?}",
        began.elapsed()
    );
    let told = until_led(&world, "led by another", |leader| leader != "c-2").await;
    let index = usize::from(leader(&told) == Some("c-1"));
    assert_eq!(issuer(&world, "leader-c").await, port(&controllers[index]));
    let opened = operator.log().matches("the event stream is open").count();
    assert!(opened >= 3, "{opened} event streams for three leaders");

    // And so is the quorum: nothing can be done, and the way out is told.
    controllers[index].stop().unwrap();
    let reason = reasons::CONTROLLER_UNREACHABLE;
    let said = world
        .told::<ZitiNetwork>(NETWORK, types::READY, "False", reason)
        .await;
    println!("without a quorum: {said}");
    controllers[2].restart().await.unwrap();
    network::until_ready(&world).await;
}
