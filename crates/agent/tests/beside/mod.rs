//! A sidecar beside a controller, and the Secret of its orders: what the tests against real members
//! of a cluster share.

#![allow(dead_code, reason = "each test file uses its part of it")]
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::ziti::LocalMember;

const PATIENCE: Duration = Duration::from_secs(90);
pub(crate) const PASSWORD: &str = "a-test-password";
pub(crate) const READY: &str = "a member of its cluster, which has a leader";
pub(crate) const WAITS: &str = "the controller waits to be added to its cluster";
pub(crate) const STUCK: &str = "the controller could not be initialized or restored: the log of the container \
                     of ziti-agent says why";

/// The Secret of the orders, as the kubelet mounts it.
pub(crate) struct Bootstrap(TempDir);

impl Bootstrap {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let bootstrap = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            bootstrap.write(name, text);
        }
        bootstrap
    }

    /// The order to initialize, for the member `c0`.
    pub(crate) fn initialize(password: &str) -> Self {
        Self::new(&[
            ("initialize", "c0"),
            ("username", "admin"),
            ("password", password),
            ("name", "Default Admin"),
        ])
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }
}

/// The running program, which ends with this value.
pub(crate) struct Sidecar {
    program: Child,
    tmp: PathBuf,
    log: PathBuf,
    port: u16,
}

impl Sidecar {
    pub(crate) fn start(member: &LocalMember, bootstrap: &Bootstrap) -> Self {
        Self::start_with(member, bootstrap, &[])
    }

    /// The same, with more arguments.
    pub(crate) fn start_with(
        member: &LocalMember,
        bootstrap: &Bootstrap,
        more: &[OsString],
    ) -> Self {
        let port = free_port();
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
            .args(more)
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
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
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
    pub(crate) async fn says(&self, text: &str) {
        let mut said = (0, String::new());
        until(text, async || {
            said = self.get("/ready");
            said.1 == text
        })
        .await;
        assert_eq!(said.0 == 200, text == READY, "{said:?}");
    }

    /// Both hooks, as the kubelet runs them; returns when the controller may be ended.
    pub(crate) fn leave(&self) {
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

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// A port of loopback that nobody listens on.
pub(crate) fn free_port() -> u16 {
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    free.local_addr().unwrap().port()
}

/// Waits until it holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "waiting until: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A session of the first administrator, once the API answers: on a busy machine the cluster may have
/// its leader before that.
pub(crate) async fn logged_in(member: &LocalMember) -> String {
    let mut session = None;
    until("the administrator logs in", async || {
        session = member.log_in("admin", PASSWORD).await.ok();
        session.is_some()
    })
    .await;
    session.unwrap()
}

pub(crate) async fn create(
    member: &LocalMember,
    session: &str,
    name: &str,
) -> Result<Value, String> {
    let path = "/edge/management/v1/identities";
    let body = json!({"name": name, "type": "Default", "isAdmin": false});
    let made = member.post(session, path, &body).await;
    made.map_err(|error| format!("{error:#}"))
}

/// Waits for the end that follows a restore, and plays the kubelet.
pub(crate) async fn comes_back(member: &mut LocalMember, sidecar: &Sidecar) {
    let restored = "the database has been restored, and the controller restarts";
    sidecar.says(restored).await;
    until("it ends by itself", async || !member.is_alive()).await;
    member.start().unwrap();
    sidecar.says(READY).await;
}
