//! The program `ziti-agent controller` beside real members of a cluster: who initializes, when a member
//! is ready, who leads after a drain, and what a restore leaves.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use agent::socket::AgentSocket;
use agent::socket::controller::{Member, members};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::ziti::{LocalCluster, LocalMember};

const PATIENCE: Duration = Duration::from_secs(90);
const PASSWORD: &str = "a-test-password";
const READY: &str = "a member of its cluster, which has a leader";
const WAITS: &str = "the controller waits to be added to its cluster";
const STUCK: &str = "the controller could not be initialized or restored: the log of the container \
                     of ziti-agent says why";

/// The Secret of the orders, as the kubelet mounts it.
struct Bootstrap(TempDir);

impl Bootstrap {
    fn new(files: &[(&str, &str)]) -> Self {
        let bootstrap = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            bootstrap.write(name, text);
        }
        bootstrap
    }

    /// The order to initialize, for the member `c0`.
    fn initialize(password: &str) -> Self {
        Self::new(&[
            ("initialize", "c0"),
            ("username", "admin"),
            ("password", password),
            ("name", "Default Admin"),
        ])
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }
}

/// The running program, which ends with this value.
struct Sidecar {
    program: Child,
    tmp: PathBuf,
    log: PathBuf,
    port: u16,
}

impl Sidecar {
    fn start(member: &LocalMember, bootstrap: &Bootstrap) -> Self {
        let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let tmp = member.tmp();
        let log = tmp.with_file_name("sidecar.log");
        let mut options = std::fs::File::options();
        let output = options.create(true).append(true).open(&log).unwrap();
        let program = Command::new(env!("CARGO_BIN_EXE_ziti-agent"))
            .args(["controller", "--member", member.id()])
            .args(["--port", &port.to_string()])
            .arg("--controller-tmp")
            .arg(&tmp)
            .arg("--data")
            .arg(member.data())
            .arg("--bootstrap")
            .arg(bootstrap.0.path())
            .stdout(output)
            .spawn()
            .unwrap();
        Self {
            program,
            tmp,
            log,
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

    /// Waits until `/ready` says this, with 200 if it is of a member that is ready.
    async fn says(&self, text: &str) {
        let mut said = (0, String::new());
        until(text, async || {
            said = self.get("/ready");
            said.1 == text
        })
        .await;
        assert_eq!(said.0 == 200, text == READY, "{said:?}");
    }

    /// Both hooks, as the kubelet runs them; returns when the controller may be ended.
    fn leave(&self) {
        let mut hook = Command::new(env!("CARGO_BIN_EXE_ziti-agent"))
            .args(["drain", "--controller-tmp"])
            .arg(&self.tmp)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let ended = self.get("/drained");
        assert_eq!(ended, (200, "the drain is over".to_owned()));
        assert!(hook.wait().unwrap().success());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
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
        assert!(Instant::now() < deadline, "waiting until: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The list of the members, as this one sees it; empty while it does not answer.
async fn list(member: &LocalMember) -> Vec<Member> {
    match AgentSocket::find(&member.tmp()).unwrap() {
        Some(socket) => {
            let listed = members(&socket, Duration::from_secs(5)).await;
            listed.unwrap_or_default()
        }
        None => Vec::new(),
    }
}

/// Who leads, as the member sees it.
async fn leader(member: &LocalMember) -> Option<String> {
    let mut members = list(member).await.into_iter();
    members.find(|row| row.is_leader).map(|row| row.id)
}

/// A session of the first administrator, once the API answers: on a busy machine the cluster may have
/// its leader before that.
async fn logged_in(member: &LocalMember) -> String {
    let mut session = None;
    until("the administrator logs in", async || {
        session = member.log_in("admin", PASSWORD).await.ok();
        session.is_some()
    })
    .await;
    session.unwrap()
}

async fn create(member: &LocalMember, session: &str, name: &str) -> Result<Value, String> {
    let path = "/edge/management/v1/identities";
    let body = json!({"name": name, "type": "Default", "isAdmin": false});
    let made = member.post(session, path, &body).await;
    made.map_err(|error| format!("{error:#}"))
}

#[tokio::test]
async fn one_member_initializes_once_and_the_others_are_added() {
    let cluster = LocalCluster::new().unwrap();
    let [mut first, mut second, mut third] =
        ["c0", "c1", "c2"].map(|id| cluster.member(id).unwrap());
    // The password is too short: said in the log, which does not hold it, and mended in the Secret.
    let bootstrap = Bootstrap::initialize("1a:b");
    let sidecar = Sidecar::start(&first, &bootstrap);
    sidecar.says("the controller does not listen yet").await;
    first.start().unwrap();
    sidecar.says(STUCK).await;
    assert!(!sidecar.log().contains("1a:b"), "{}", sidecar.log());
    bootstrap.write("password", PASSWORD);
    sidecar.says(READY).await;
    let session = logged_in(&first).await;

    // A second start, with another password in the Secret: nothing is made anew.
    first.stop().unwrap();
    sidecar.says("the controller does not run").await;
    bootstrap.write("password", "another-password");
    first.start().unwrap();
    sidecar.says(READY).await;
    until("it was asked", async || {
        sidecar.log().contains("initialized before")
    })
    .await;
    logged_in(&first).await;
    let refused = first.log_in("admin", "another-password").await;
    assert!(refused.is_err());

    // The others see the same Secret, and wait to be added.
    let mut sidecars = vec![sidecar];
    for other in [&mut second, &mut third] {
        other.start().unwrap();
        let sidecar = Sidecar::start(other, &bootstrap);
        sidecar.says(WAITS).await;
        first.add(&session, other).await.unwrap();
        sidecar.says(READY).await;
        sidecars.push(sidecar);
    }

    // A follower's drain moves nobody.
    let before = leader(&first).await;
    assert_eq!(before.as_deref(), Some("c0"));
    sidecars[2].leave();
    let leaving = sidecars[2].get("/ready");
    assert_eq!(leaving, (503, "the pod is leaving".to_owned()));
    third.stop().unwrap();
    assert_eq!(leader(&first).await, before);
    assert_eq!(leader(&second).await, before);

    // The leader's hands over, to the one that is there; a write right after its end succeeds. That
    // needs the third again: two votes of three.
    third.start().unwrap();
    sidecars[2] = Sidecar::start(&third, &bootstrap);
    sidecars[2].says(READY).await;
    let session = logged_in(&second).await;
    sidecars[0].leave();
    let after = leader(&second).await;
    assert!(
        matches!(after.as_deref(), Some("c1" | "c2")),
        "{after:?} leads"
    );
    first.stop().unwrap();
    create(&second, &session, "right-after").await.unwrap();

    // It comes back without its volume, and the Secret names nobody any more: it makes no cluster of
    // its own, and the others take it back.
    bootstrap.write("initialize", "");
    first.lose_volume().unwrap();
    first.start().unwrap();
    sidecars[0] = Sidecar::start(&first, &bootstrap);
    until(
        "it is back, after a restart where the version needs one",
        async || {
            if !first.is_alive() {
                first.start().unwrap();
            }
            sidecars[0].get("/ready").0 == 200
        },
    )
    .await;
    assert_eq!(leader(&first).await, leader(&second).await);

    // Quorum lost: the one that is left is not ready.
    first.stop().unwrap();
    third.stop().unwrap();
    sidecars[1].says("the cluster has no leader").await;
}

#[tokio::test]
async fn a_start_that_was_cut_short_is_finished_by_the_next() {
    let cluster = LocalCluster::new().unwrap();
    let mut member = cluster.member("c0").unwrap();
    let bootstrap = Bootstrap::initialize(PASSWORD);
    let sidecar = Sidecar::start(&member, &bootstrap);
    member.start().unwrap();
    // There is a cluster, and its administrator comes a second or two later.
    until("there is a cluster", async || {
        !list(&member).await.is_empty()
    })
    .await;
    member.kill().unwrap();
    sidecar.says("the controller does not run").await;
    member.start().unwrap();
    sidecar.says(READY).await;
    logged_in(&member).await;
}

#[tokio::test]
async fn a_backup_is_restored_once_and_stays_as_it_is() {
    let cluster = LocalCluster::new().unwrap();
    let mut old = cluster.member("c0").unwrap();
    let bootstrap = Bootstrap::initialize(PASSWORD);
    let sidecar = Sidecar::start(&old, &bootstrap);
    old.start().unwrap();
    sidecar.says(READY).await;
    let session = logged_in(&old).await;
    create(&old, &session, "kept").await.unwrap();
    let backups = tempfile::tempdir().unwrap();
    let backup = backups.path().join("backup.db");
    assert!(snapshot(&old, &backup).status.success());
    let again = snapshot(&old, &backup);
    let said = String::from_utf8(again.stdout).unwrap();
    assert!(said.contains("at most once per minute"), "{said}");
    let whole = std::fs::read(&backup).unwrap();
    drop((sidecar, old));

    // All is lost but the backup; the password of the new Secret is another one.
    let mut new = cluster.member("c0-again").unwrap();
    let bootstrap = Bootstrap::initialize("another-password");
    bootstrap.write("initialize", "c0-again");
    bootstrap.write("restore", "/no/such/backup.db");
    bootstrap.write("restore-id", "first");
    let sidecar = Sidecar::start(&new, &bootstrap);
    new.start().unwrap();
    sidecar.says(STUCK).await;
    let said = sidecar.log();
    assert!(said.contains("cannot copy /no/such/backup.db"), "{said}");
    bootstrap.write("restore", backup.to_str().unwrap());
    comes_back(&mut new, &sidecar).await;
    let session = logged_in(&new).await;
    assert!(create(&new, &session, "kept").await.is_err(), "it is there");
    create(&new, &session, "later").await.unwrap();
    assert!(
        std::fs::read(&backup).unwrap() == whole,
        "the backup changed"
    );

    // A restart of both restores nothing.
    drop(sidecar);
    new.stop().unwrap();
    new.start().unwrap();
    let sidecar = Sidecar::start(&new, &bootstrap);
    sidecar.says(READY).await;
    let session = logged_in(&new).await;
    let twice = create(&new, &session, "later").await;
    assert!(twice.is_err(), "what came after the restore is gone");

    // Another order is carried out while it runs.
    bootstrap.write("restore-id", "second");
    comes_back(&mut new, &sidecar).await;
    let session = logged_in(&new).await;
    create(&new, &session, "later").await.unwrap();
}

/// Waits for the end that follows a restore, and plays the kubelet.
async fn comes_back(member: &mut LocalMember, sidecar: &Sidecar) {
    let restored = "the database has been restored, and the controller restarts";
    sidecar.says(restored).await;
    until("it ends by itself", async || !member.is_alive()).await;
    member.start().unwrap();
    sidecar.says(READY).await;
}

#[test]
fn a_snapshot_without_a_controller_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let output = ask_for_snapshot(dir.path(), &dir.path().join("none.db"));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("there is no agent socket in"), "{said}");
}

fn snapshot(member: &LocalMember, file: &Path) -> Output {
    ask_for_snapshot(&member.tmp(), file)
}

fn ask_for_snapshot(tmp: &Path, file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ziti-agent"))
        .args(["snapshot", "--controller-tmp"])
        .arg(tmp)
        .arg(file)
        .output()
        .unwrap()
}
