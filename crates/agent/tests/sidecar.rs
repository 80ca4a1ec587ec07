//! The program `ziti-agent sidecar` beside a real router with a real controller: when it says that
//! the router is ready, and what the network sees when the router leaves.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agent::report::Outcome;
use common::{Pod, admin, in_service, registered};
use serde_json::{Value, json};
use testbed::ziti::{LocalController, LocalRouter, RouterOptions};
use ziti::management::{EdgeRouterPatch, ManagementClient};

const PATIENCE: Duration = Duration::from_secs(90);

/// The running program, which ends with this value.
struct Sidecar {
    program: Child,
    router_tmp: PathBuf,
    port: u16,
}

impl Sidecar {
    fn start(router_tmp: &Path, drain_seconds: u64) -> Self {
        let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let program = Command::new(env!("CARGO_BIN_EXE_ziti-agent"))
            .args(["sidecar", "--port", &port.to_string()])
            .args(["--drain-seconds", &drain_seconds.to_string()])
            .arg("--router-tmp")
            .arg(router_tmp)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            program,
            router_tmp: router_tmp.to_path_buf(),
            port,
        }
    }

    /// Asks as the kubelet does: the status and the text, once it listens.
    fn get(&self, path: &str) -> (u16, String) {
        let deadline = Instant::now() + PATIENCE;
        let mut stream = loop {
            match TcpStream::connect(("127.0.0.1", self.port)) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "no sidecar: {error}"),
            }
            std::thread::yield_now();
        };
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let (_, text) = answer.split_once("\r\n\r\n").unwrap();
        (status, text.trim().to_owned())
    }

    fn is_ready(&self) -> bool {
        self.get("/ready").0 == 200
    }

    /// Starts the preStop hook.
    fn leave(&self) -> Child {
        Command::new(env!("CARGO_BIN_EXE_ziti-agent"))
            .arg("drain")
            .arg("--router-tmp")
            .arg(&self.router_tmp)
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Waits until it holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "waiting until {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// An enrolled router that may host services, not running.
async fn enrolled(client: &ManagementClient, name: &str) -> (String, Pod) {
    let (id, token) = registered(client, name).await;
    let patch = EdgeRouterPatch {
        is_tunneler_enabled: Some(true),
        ..EdgeRouterPatch::default()
    };
    client.patch_edge_router(&id, &patch).await.unwrap();
    let pod = Pod::new();
    pod.give(&token);
    pod.succeeds(Outcome::Enrolled).await;
    (id, pod)
}

fn started(pod: &Pod) -> LocalRouter {
    let options = RouterOptions {
        host_services: true,
    };
    LocalRouter::start(&pod.request.identity_dir, options).unwrap()
}

/// A terminator on the router that is there whether the router runs or not: what a person makes by
/// hand, and what an upgrade of a router must not leave behind as failed.
async fn terminator(client: &ManagementClient, router: &str) -> String {
    let create = async |path: &str, body: Value| {
        let made = client.post(path, &body).await.unwrap();
        made["id"].as_str().unwrap().to_owned()
    };
    let service = json!({"name": "held", "encryptionRequired": false});
    let service = create("/services", service).await;
    let terminator = json!({"service": service, "router": router, "binding": "transport",
        "address": "tcp:127.0.0.1:9"});
    create("/terminators", terminator).await
}

async fn precedence(client: &ManagementClient, terminator: &str) -> String {
    let path = format!("/terminators/{terminator}");
    let terminator = client.get(&path, &[]).await.unwrap();
    terminator["precedence"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_router_is_ready_once_it_was_online_and_until_it_restarts() {
    let controller = LocalController::start().await.unwrap();
    let client = admin(&controller);
    let (id, pod) = enrolled(&client, "latched").await;
    let tmp = &pod.request.identity_dir;
    let sidecar = Sidecar::start(tmp, 5);
    assert_eq!(sidecar.get("/ready").0, 503);

    let router = in_service(&client, &id, &pod).await;
    until("it is ready", async || sidecar.is_ready()).await;

    // The controller goes away. Neither that nor a new sidecar takes it back.
    drop(controller);
    drop(sidecar);
    let sidecar = Sidecar::start(tmp, 5);
    assert!(sidecar.is_ready(), "{:?}", sidecar.get("/ready"));

    // A router that ended is not ready, and in its next life it has to be online first.
    router.stop().unwrap();
    let (status, why) = sidecar.get("/ready");
    assert_eq!((status, why.as_str()), (503, "the router does not run"));
    let _router = started(&pod);
    until("the new router listens", async || {
        let (status, why) = sidecar.get("/ready");
        assert_eq!(status, 503, "{why}");
        why == "the router has not been online yet"
    })
    .await;
}

#[tokio::test]
async fn a_drain_steers_away_and_the_next_life_takes_it_back() {
    let controller = LocalController::start().await.unwrap();
    let client = admin(&controller);
    let (id, pod) = enrolled(&client, "leaving").await;
    let tmp = &pod.request.identity_dir;
    let held = terminator(&client, &id).await;
    let router = started(&pod);
    let sidecar = Sidecar::start(tmp, 30);
    until("it is ready", async || sidecar.is_ready()).await;
    assert_eq!(precedence(&client, &held).await, "default");

    // Both hooks at once, as the kubelet has it. Without a circuit it takes a second or two, and not
    // its thirty.
    let begun = Instant::now();
    let mut hook = sidecar.leave();
    assert_eq!(
        sidecar.get("/drained"),
        (200, "the drain is over".to_owned())
    );
    assert!(begun.elapsed() < Duration::from_secs(20), "{begun:?}");
    assert!(hook.wait().unwrap().success());
    assert_eq!(precedence(&client, &held).await, "failed");
    assert_eq!(
        sidecar.get("/ready"),
        (503, "the pod is leaving".to_owned())
    );
    router.stop().unwrap();
    drop(sidecar);
    assert_eq!(precedence(&client, &held).await, "failed");

    let sidecar = Sidecar::start(tmp, 30);
    let begun = Instant::now();
    let _router = started(&pod);
    until("it is ready again", async || sidecar.is_ready()).await;
    assert_eq!(precedence(&client, &held).await, "default");
    // What the life before hosted is left failed until this one had time to host by itself.
    assert!(begun.elapsed() >= Duration::from_secs(4), "{begun:?}");
}

#[tokio::test]
async fn who_asks_for_the_end_of_a_drain_begins_none_and_is_not_kept() {
    let pod = Pod::new();
    std::fs::create_dir_all(&pod.request.identity_dir).unwrap();
    let sidecar = Sidecar::start(&pod.request.identity_dir, 30);
    assert_eq!(
        sidecar.get("/drained"),
        (200, "there is no drain".to_owned())
    );
    assert_eq!(
        sidecar.get("/ready").1,
        "the router does not listen yet",
        "no drain has begun"
    );

    // A router that never was online leaves at once.
    let begun = Instant::now();
    assert!(sidecar.leave().wait().unwrap().success());
    assert!(begun.elapsed() < Duration::from_secs(10));
}

/// From an address of its own: the whole of 127/8 is this machine.
async fn connect(from: [u8; 4], port: u16) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    let stream = socket.connect(SocketAddr::from(([127, 0, 0, 1], port)));
    let stream = stream.await.unwrap().into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Connections from such an address, more than there are places for all together.
async fn crowd(from: [u8; 4], port: u16) -> Vec<TcpStream> {
    let mut crowd = Vec::new();
    for _ in 0..100 {
        crowd.push(connect(from, port).await);
    }
    crowd
}

#[tokio::test]
async fn strangers_keep_the_kubelet_from_nothing() {
    let pod = Pod::new();
    std::fs::create_dir_all(&pod.request.identity_dir).unwrap();
    let sidecar = Sidecar::start(&pod.request.identity_dir, 30);
    assert_eq!(sidecar.get("/ready").0, 503);

    // Some say nothing, some wait for a drain, more than there are places for either.
    let stranger = [127, 0, 0, 2];
    let mut silent = crowd(stranger, sidecar.port).await;
    let other = [127, 0, 0, 3];
    let mut waiting = crowd(other, sidecar.port).await;
    for stream in &mut waiting {
        // Those without a place are hung up on already.
        let _ = write!(stream, "GET /drained HTTP/1.0\r\n\r\n");
    }
    assert_eq!(sidecar.get("/ready").0, 503, "the kubelet is answered");
    assert_eq!(
        sidecar.get("/drained"),
        (200, "there is no drain".to_owned())
    );
    // By now whoever asked nothing was hung up on.
    for stream in &mut silent {
        let mut nothing = Vec::new();
        if let Err(error) = stream.read_to_end(&mut nothing) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    }
}

#[test]
fn a_hook_without_a_sidecar_fails_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_ziti-agent"))
        .arg("drain")
        .arg("--router-tmp")
        .arg(dir.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("leaves without a drain"), "{said}");
}
