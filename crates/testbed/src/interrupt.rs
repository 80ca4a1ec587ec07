//! Ctrl-C and SIGTERM as a flag that every wait of the testbed looks at, so that an interrupted
//! run still takes down what it started.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{SignalKind, signal};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Starts to listen for SIGINT and SIGTERM. Call it once, from inside a multi-threaded tokio
/// runtime. A second signal ends the process at once, for those who cannot wait.
pub fn listen() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if INTERRUPTED.swap(true, Ordering::SeqCst) {
                #[expect(clippy::exit, reason = "the second Ctrl-C means: now")]
                std::process::exit(130);
            }
        }
    });
    Ok(())
}

/// Whether the person asked to stop.
pub fn is_set() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Fails when the person asked to stop.
pub fn check() -> Result<()> {
    if is_set() {
        bail!("interrupted");
    }
    Ok(())
}

/// Forgets the interruption, so that the clean-up that follows can run commands and waits.
pub fn clear() {
    INTERRUPTED.store(false, Ordering::SeqCst);
}
