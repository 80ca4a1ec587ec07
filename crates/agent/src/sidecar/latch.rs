//! Whether the router has been online in its present life. Only [`super::router`] uses it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tracing::warn;

use crate::socket::Life;

/// Beside the router's socket.
const FILE: &str = "ziti-agent.online";

/// Closed by the first time that the router is online, open again in its next life. It is kept in a
/// file, so that a sidecar that restarts while the controllers are away un-readies nobody.
#[derive(Debug)]
pub(super) struct Latch {
    file: PathBuf,
    closed: Mutex<Option<String>>,
}

impl Latch {
    /// The latch as the sidecar before this one left it.
    pub(super) fn restore(directory: &Path) -> Self {
        let file = directory.join(FILE);
        let closed = std::fs::read_to_string(&file).ok();
        Self {
            file,
            closed: Mutex::new(closed),
        }
    }

    /// Whether the router has been online in this life.
    pub(super) fn holds(&self, life: &Life) -> bool {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        closed.as_ref() == Some(&life.key())
    }

    /// The router is online.
    pub(super) fn close(&self, life: &Life) {
        let key = life.key();
        if let Err(error) = std::fs::write(&self.file, &key) {
            warn!(%error, path = %self.file.display(), "cannot remember that the router was online");
        }
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::socket::AgentSocket;

    #[test]
    fn a_restarted_sidecar_remembers_and_a_restarted_router_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let life = || {
            let socket = dir.path().join("gops-agent.1.sock");
            let _ = std::fs::remove_file(&socket);
            let _listener = UnixListener::bind(&socket).unwrap();
            let found = AgentSocket::find(dir.path()).unwrap().unwrap();
            found.life().clone()
        };
        let first = life();
        let latch = Latch::restore(dir.path());
        assert!(!latch.holds(&first));
        latch.close(&first);
        assert!(latch.holds(&first) && Latch::restore(dir.path()).holds(&first));
        let second = life();
        assert!(!latch.holds(&second) && !Latch::restore(dir.path()).holds(&second));
    }
}
