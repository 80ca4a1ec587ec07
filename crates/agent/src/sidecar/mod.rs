//! What runs beside a Ziti process for as long as it lives: says when that is ready, and lets it leave
//! gently. Started by the program as a native sidecar of the pod: `ziti-agent sidecar` beside a
//! [`router`], `ziti-agent controller` beside a [`controller`]. What the two have in common is here.
//!
//! It holds no identity of its own, and reaches nobody but its neighbour in the pod, by the socket of
//! [`crate::socket`].
//!
//! **Leaving**: the kubelet starts the preStop hooks of both containers at once, and ends the
//! neighbour as soon as the neighbour's own hook returns; the sidecar is ended after it. So the sidecar's
//! hook begins the drain (`ziti-agent drain`, by a socket in the pod), and the neighbour's hook is an
//! HTTP request to the sidecar that is answered when the drain is over ([`serve`]). That needs no
//! program in Ziti's image, which is not ours (a copy of this one would need the C library that
//! it was built with), and takes no longer than the work does, as a `sleep` would. Whoever else
//! sends that request waits for nothing: it begins no drain.

mod controller;
mod drain;
mod latch;
mod places;
mod router;
mod serve;

use std::future::pending;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use snafu::{ResultExt, Snafu};
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tracing::{info, warn};

use self::controller::Controller;
pub use self::controller::Orders;
use self::controller::snapshots;
pub(crate) use self::controller::snapshots::{DIGEST, MEMBER};
pub use self::controller::snapshots::{Snapshots, SnapshotsError};
use self::drain::Drain;
use self::router::Router;
use crate::socket::SocketError;

/// How long nothing is accepted after a connection that could not be.
const PAUSE: Duration = Duration::from_secs(1);
/// The sidecar's own socket, beside that of its neighbour.
const CONTROL: &str = "ziti-agent.sock";

/// How it runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// The temporary directory of the neighbour, shared with it; writable.
    pub tmp: PathBuf,
    /// Port for the kubelet's requests.
    pub port: u16,
    /// How long the drain may take when the pod leaves.
    pub drain_within: Duration,
}

/// Why it does not run.
#[derive(Debug, Snafu)]
pub enum SidecarError {
    /// The port is taken, or may not be used.
    #[snafu(display("cannot listen on port {port} for the kubelet's requests"))]
    Listen {
        /// The port.
        port: u16,
        /// Why not.
        source: io::Error,
    },
    /// The shared directory is not writable, or not there.
    #[snafu(display("cannot listen on {} for the preStop hook", path.display()))]
    Control {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Backups would find nobody.
    #[snafu(display("cannot give snapshots to backups"))]
    Snapshots {
        /// Why not.
        source: SnapshotsError,
    },
    /// There is no sidecar to drain its neighbour.
    #[snafu(display("no sidecar listens on {}: the pod leaves without a drain", path.display()))]
    NoSidecar {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// The process beside which the sidecar runs.
trait Neighbour: Send + Sync + 'static {
    /// Whether it is ready, and a sentence about it either way. Everybody who reaches the pod reads it.
    fn ready(&self) -> impl Future<Output = Result<String, String>> + Send;

    /// Follows it, and does for it what its start needs. Does not return.
    fn watch(&self, drain: &Drain) -> impl Future<Output = ()> + Send;

    /// What it needs to leave gently.
    fn leave(&self) -> impl Future<Output = Result<(), SocketError>> + Send;
}

/// What all parts of the sidecar share.
#[derive(Debug)]
struct Sidecar<N> {
    neighbour: N,
    drain: Drain,
}

/// What was said last, so that a thing that is found every second is said once.
#[derive(Debug, Default)]
struct Told(String);

impl Told {
    fn is_new(&mut self, text: &str) -> bool {
        let is_new = self.0 != text;
        if is_new {
            text.clone_into(&mut self.0);
        }
        is_new
    }
}

/// Runs beside a router until `stop` turns true.
pub async fn run_beside_router(
    options: &Options,
    stop: watch::Receiver<bool>,
) -> Result<(), SidecarError> {
    let router = Router::new(options.tmp.clone());
    run(options, router, |_| pending(), stop).await
}

/// Runs beside a controller until `stop` turns true; backups get its database where `snapshots` says
/// how.
pub async fn run_beside_controller(
    options: &Options,
    orders: Orders,
    snapshots: Option<&Snapshots>,
    stop: watch::Receiver<bool>,
) -> Result<(), SidecarError> {
    let controller = Controller::new(options.tmp.clone(), orders);
    let Some(snapshots) = snapshots else {
        return run(options, controller, |_| pending(), stop).await;
    };
    let door = snapshots::open(snapshots).await.context(SnapshotsSnafu)?;
    let give = |sidecar| snapshots::serve(door, sidecar);
    run(options, controller, give, stop).await
}

/// `more` is what the neighbour has done for it besides; it does not return.
async fn run<N: Neighbour, F: Future<Output = ()>>(
    options: &Options,
    neighbour: N,
    more: impl FnOnce(Arc<Sidecar<N>>) -> F,
    mut stop: watch::Receiver<bool>,
) -> Result<(), SidecarError> {
    let control = options.tmp.join(CONTROL);
    // That of the sidecar before this one.
    let _ = std::fs::remove_file(&control);
    let hooks = UnixListener::bind(&control).context(ControlSnafu { path: &control })?;
    let port = options.port;
    let listener = serve::listen(port).await.context(ListenSnafu { port })?;
    let sidecar = Arc::new(Sidecar {
        neighbour,
        drain: Drain::new(options.drain_within),
    });
    info!(port, "listening");
    tokio::select! {
        () = sidecar.neighbour.watch(&sidecar.drain) => Ok(()),
        () = drain_on_request(&sidecar, &hooks) => Ok(()),
        () = serve::serve(listener, Arc::clone(&sidecar)) => Ok(()),
        () = more(Arc::clone(&sidecar)) => Ok(()),
        // The other end goes only with the process.
        _ = stop.wait_for(|stop| *stop) => Ok(()),
    }
}

/// Asks the sidecar for the drain and waits until it is over: the sidecar's preStop hook.
pub async fn request_drain(tmp: &Path) -> Result<(), SidecarError> {
    let path = tmp.join(CONTROL);
    let mut stream = UnixStream::connect(&path)
        .await
        .context(NoSidecarSnafu { path: &path })?;
    // The connection ends with the drain.
    let mut nothing = Vec::new();
    let ended = stream.read_to_end(&mut nothing).await;
    ended.context(NoSidecarSnafu { path }).map(drop)
}

/// Drains when the preStop hook connects, and lets it wait.
async fn drain_on_request<N: Neighbour>(sidecar: &Arc<Sidecar<N>>, hooks: &UnixListener) {
    loop {
        match hooks.accept().await {
            Ok((hook, _)) => {
                let sidecar = Arc::clone(sidecar);
                tokio::spawn(async move {
                    sidecar.drain.run(sidecar.neighbour.leave()).await;
                    drop(hook);
                });
            }
            Err(error) => {
                warn!(%error, "cannot take the request of a preStop hook");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
