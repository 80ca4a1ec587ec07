//! What runs beside a router for as long as it lives: says when the router is ready, and lets it
//! leave gently. Started by the program as `ziti-agent sidecar`, a native sidecar of the pod.
//!
//! It holds no credential and no identity, and reaches nobody but the router in its pod, by the
//! socket of [`crate::router_socket`].
//!
//! **Ready** is a router that has been online in this life of its process. The latch is kept with the
//! life that it is of ([`latch`]): a controller that goes away later un-readies nobody, a router that
//! restarts has to connect again, a sidecar that restarts remembers. The first sign of being online is
//! a `dequiesce` that a controller carried out, which at the same time takes back what a drain before
//! had left in the controller's database.
//!
//! **Leaving**: the kubelet starts the preStop hooks of both containers at once, and ends the router
//! as soon as the router's own hook returns; the sidecar is ended after the router. So the sidecar's
//! hook begins the drain (`ziti-agent drain`, by a socket in the pod), and the router's hook is an
//! HTTP request to the sidecar that is answered when the drain is over ([`serve`]). That needs no
//! program in the router's image, which is not ours (a copy of this one would need the C library that
//! it was built with), and takes no longer than the circuits do, as a `sleep` would. Whoever else
//! sends that request waits for nothing: it begins no drain.

mod drain;
mod latch;
mod serve;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use snafu::{ResultExt, Snafu};
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use self::drain::Drain;
use self::latch::Latch;
use crate::router_socket::{Life, Request, RouterSocket};

/// How often a router that is not online yet is asked.
const EAGER: Duration = Duration::from_millis(250);
/// How often it is looked whether the router is still the same.
const AT_REST: Duration = Duration::from_secs(1);
/// How long a router has to answer that it is online. One that never was does not answer; asking
/// anew is quicker than waiting, since the router looks for a controller ever less often. (It carries
/// out what was asked before as well, when it is online at last. So a drain within the first seconds
/// of a router that was long in coming may be taken back: circuits get their time all the same.)
const ONLINE_WITHIN: Duration = Duration::from_secs(2);
/// How old a life of the router is before it is asked at all. Until then the network may still hold
/// what the life before hosted, which leads nowhere: taken back from `failed`, it would draw requests
/// away from other hosts. A router clears it away and hosts anew within milliseconds of its start
/// (1.6), or three seconds (2.1).
const SETTLED: Duration = Duration::from_secs(4);
/// The sidecar's own socket, beside the router's.
const CONTROL: &str = "ziti-agent.sock";

/// How it runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// The temporary directory of the router, shared with it; writable.
    pub router_tmp: PathBuf,
    /// Port for the kubelet's requests.
    pub port: u16,
    /// How long circuits have to end when the pod leaves.
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
    /// There is no sidecar to drain the router.
    #[snafu(display("no sidecar listens on {}: the router leaves without a drain", path.display()))]
    NoSidecar {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// What all parts of the sidecar share.
#[derive(Debug)]
struct Sidecar {
    router_tmp: PathBuf,
    latch: Latch,
    drain: Drain,
}

/// Runs until `stop` turns true.
pub async fn run(options: &Options, mut stop: watch::Receiver<bool>) -> Result<(), SidecarError> {
    let control = options.router_tmp.join(CONTROL);
    // That of the sidecar before this one.
    let _ = std::fs::remove_file(&control);
    let hooks = UnixListener::bind(&control).context(ControlSnafu { path: &control })?;
    let port = options.port;
    let listener = serve::listen(port).await.context(ListenSnafu { port })?;
    let sidecar = Arc::new(Sidecar {
        router_tmp: options.router_tmp.clone(),
        latch: Latch::restore(&options.router_tmp),
        drain: Drain::new(options.drain_within),
    });
    info!(port, "waiting for the router");
    tokio::select! {
        () = watch_router(&sidecar) => Ok(()),
        () = drain_on_request(&sidecar, &hooks) => Ok(()),
        served = serve::serve(listener, Arc::clone(&sidecar)) => {
            served.context(ListenSnafu { port })
        }
        // The other end goes only with the process.
        _ = stop.wait_for(|stop| *stop) => Ok(()),
    }
}

/// Asks the sidecar for the drain and waits until it is over: the sidecar's preStop hook.
pub async fn request_drain(router_tmp: &Path) -> Result<(), SidecarError> {
    let path = router_tmp.join(CONTROL);
    let mut stream = UnixStream::connect(&path)
        .await
        .context(NoSidecarSnafu { path: &path })?;
    // The connection ends with the drain.
    let mut nothing = Vec::new();
    let ended = stream.read_to_end(&mut nothing).await;
    ended.context(NoSidecarSnafu { path }).map(drop)
}

/// Closes the latch when the router is online, in each life of it.
async fn watch_router(sidecar: &Sidecar) {
    let mut told = String::new();
    let mut seen: Option<(Life, Instant)> = None;
    loop {
        let problem = match RouterSocket::find(&sidecar.router_tmp) {
            Err(error) => Some(error.to_string()),
            Ok(None) => None,
            Ok(Some(router)) if sidecar.latch.holds(router.life()) => {
                tokio::time::sleep(AT_REST).await;
                continue;
            }
            // What a drain has done must stay.
            Ok(Some(_)) if sidecar.drain.is_begun() => None,
            Ok(Some(router)) if !is_settled(&mut seen, router.life()) => None,
            Ok(Some(router)) => match router.ask(Request::Dequiesce, ONLINE_WITHIN).await {
                Ok(_) => {
                    sidecar.latch.close(router.life());
                    info!("the router is online");
                    told.clear();
                    None
                }
                Err(error) => Some(error.to_string()),
            },
        };
        // Said once, not four times a second.
        if let Some(problem) = problem.filter(|problem| *problem != told) {
            info!(problem, "the router is not online yet");
            told = problem;
        }
        tokio::time::sleep(EAGER).await;
    }
}

/// Whether this life of the router is no new one. `seen` is the last that was seen, and since when.
fn is_settled(seen: &mut Option<(Life, Instant)>, life: &Life) -> bool {
    match seen {
        Some((known, since)) if known == life => since.elapsed() >= SETTLED,
        _ => {
            *seen = Some((life.clone(), Instant::now()));
            false
        }
    }
}

/// Drains when the preStop hook connects, and lets it wait.
async fn drain_on_request(sidecar: &Arc<Sidecar>, hooks: &UnixListener) {
    loop {
        match hooks.accept().await {
            Ok((hook, _)) => {
                let sidecar = Arc::clone(sidecar);
                tokio::spawn(async move {
                    sidecar.drain.run(&sidecar.router_tmp, &sidecar.latch).await;
                    drop(hook);
                });
            }
            Err(error) => {
                warn!(%error, "cannot take the request of a preStop hook");
                tokio::time::sleep(AT_REST).await;
            }
        }
    }
}
