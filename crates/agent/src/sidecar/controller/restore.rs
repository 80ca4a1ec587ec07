//! The restore of a database, once for each order. Only [`super`] uses this module.
//!
//! A database is never restored over: the controller must list nobody, unless this very restore was begun
//! before, which a file tells. What tells that it has been done is a mark on the data volume: the id of the order and the life of
//! the process that took it. The mark is written when the controller has answered. A sidecar that ends
//! just before restores once more; nobody can have written anything in between, since the member is not
//! ready before there is a mark.
//!
//! The controller is given a copy, for it writes into the file, and a backup shall stay as it is. But what
//! `ziti-agent restore` put onto the data volume is of no more use, and is removed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use snafu::{ResultExt, Snafu};
use tracing::{info, warn};

use super::orders::Restore;
use crate::disk::{Disk, RealDisk};
use crate::socket::controller;
use crate::socket::{AgentSocket, Life, SocketError};

/// How long the controller has to read the database, make a cluster if it is in none, and apply it.
const RESTORE_WITHIN: Duration = Duration::from_mins(2);
/// Which restore was begun, below the data directory.
const BEGUN: &str = "ziti-agent.restoring";
/// Which restore was done, below the data directory.
const MARK: &str = "ziti-agent.restored";
/// Where `ziti-agent restore` puts a database, below the data directory.
const FETCHED: &str = "ziti-agent.restore-from.db";
/// What the controller is given, below the data directory.
const COPY: &str = "ziti-agent.restore.db";

/// Why a database was not restored.
#[derive(Debug, Snafu)]
pub(super) enum RestoreError {
    #[snafu(display(
        "the order {id} is not carried out: the controller is in a cluster already, and its database would \
         be lost. If that is what is wanted, delete the ZitiController and its volume claims, and apply it \
         with spec.restoreFrom"
    ))]
    Inhabited { id: String },
    #[snafu(display("cannot remember that a restore is begun in {}: {source}", path.display()))]
    Begin { path: PathBuf, source: io::Error },
    #[snafu(display("cannot copy {} to {}: {source}", from.display(), to.display()))]
    Copy {
        from: PathBuf,
        to: PathBuf,
        source: io::Error,
    },
    #[snafu(display("{source}"))]
    Controller { source: SocketError },
    #[snafu(display("the database is restored, but cannot remember it in {}: {source}", path.display()))]
    Mark { path: PathBuf, source: io::Error },
}

/// The restores that were done on a data volume.
#[derive(Debug)]
pub(super) struct Restores<'a> {
    data: &'a Path,
}

/// The last one.
#[derive(Debug)]
pub(super) struct Mark {
    id: String,
    life: String,
}

impl Mark {
    /// Whether it is of this order.
    pub(super) fn is_of(&self, restore: &Restore) -> bool {
        self.id == restore.id
    }

    /// Whether the process still is the one that took the restore: it is about to end.
    pub(super) fn is_fresh(&self, life: &Life) -> bool {
        self.life == life.key()
    }
}

impl<'a> Restores<'a> {
    pub(super) fn on(data: &'a Path) -> Self {
        Self { data }
    }

    pub(super) fn last(&self) -> Option<Mark> {
        let text = std::fs::read_to_string(self.data.join(MARK)).ok()?;
        let (id, life) = text.split_once('\n')?;
        Some(Mark {
            id: id.to_owned(),
            life: life.trim_end().to_owned(),
        })
    }

    /// Takes down that it is begun; refuses where there is a database that is not of this restore.
    fn begin(&self, id: &str, is_empty: bool) -> Result<(), RestoreError> {
        let path = self.data.join(BEGUN);
        let begun = std::fs::read_to_string(&path).is_ok_and(|begun| begun == id);
        if begun {
            return Ok(());
        }
        if !is_empty {
            return InhabitedSnafu { id }.fail();
        }
        let written = RealDisk.write(&path, id.as_bytes());
        written.context(BeginSnafu { path })
    }

    /// Restores the database and marks it. `is_empty` says whether the controller lists nobody.
    pub(super) async fn carry_out(
        &self,
        restore: &Restore,
        controller: &AgentSocket,
        is_empty: bool,
    ) -> Result<(), RestoreError> {
        self.begin(&restore.id, is_empty)?;
        let (from, to) = (restore.file.clone(), self.data.join(COPY));
        info!(file = %from.display(), id = restore.id, "restoring the database");
        copy(from, &to).await?;
        let restored = controller::restore(controller, &to, RESTORE_WITHIN).await;
        if let Err(error) = std::fs::remove_file(&to) {
            warn!(%error, path = %to.display(), "cannot remove the copy of the restored database");
        }
        restored.context(ControllerSnafu)?;
        self.mark(&restore.id, controller.life())?;
        if restore.file == self.data.join(FETCHED)
            && let Err(error) = std::fs::remove_file(&restore.file)
        {
            warn!(%error, path = %restore.file.display(), "cannot remove what was restored");
        }
        info!("the database is restored; the controller ends by itself, to start with it");
        Ok(())
    }

    fn mark(&self, id: &str, life: &Life) -> Result<(), RestoreError> {
        let path = self.data.join(MARK);
        let text = format!("{id}\n{}\n", life.key());
        let written = RealDisk.write(&path, text.as_bytes());
        written.context(MarkSnafu { path })
    }
}

/// A database may be large, and the kubelet asks meanwhile.
async fn copy(from: PathBuf, to: &Path) -> Result<(), RestoreError> {
    let (source, target) = (from.clone(), to.to_path_buf());
    let copied = tokio::task::spawn_blocking(move || {
        // A read-only file makes a read-only copy, over which the next one could not be made.
        let _ = std::fs::remove_file(&target);
        let mut source = std::fs::File::open(source)?;
        let mut target = std::fs::File::create(target)?;
        io::copy(&mut source, &mut target)
    });
    let copied = copied.await.unwrap_or_else(|_| {
        let why = "the copy did not come to its end";
        Err(io::Error::other(why))
    });
    copied.context(CopySnafu { from, to }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn nothing_is_restored_over_a_database_but_by_the_restore_that_it_is_of() {
        let dir = tempfile::tempdir().unwrap();
        let restores = Restores::on(dir.path());
        assert!(restores.begin("a", false).is_err());
        restores.begin("a", true).unwrap();
        // The controller made a cluster for it, and the sidecar ended before it had the answer.
        restores.begin("a", false).unwrap();
        assert!(restores.begin("b", false).is_err());
        restores.begin("b", true).unwrap();
    }

    #[test]
    fn a_restore_is_told_from_the_next_and_a_life_from_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let life = || {
            let socket = dir.path().join("gops-agent.1.sock");
            let _ = std::fs::remove_file(&socket);
            let _listener = UnixListener::bind(&socket).unwrap();
            let found = AgentSocket::find(dir.path()).unwrap().unwrap();
            found.life().clone()
        };
        let order = |id: &str| Restore {
            file: PathBuf::new(),
            id: id.to_owned(),
        };
        let restores = Restores::on(dir.path());
        assert!(restores.last().is_none());
        let first = life();
        restores.mark("a", &first).unwrap();
        let mark = restores.last().unwrap();
        assert!(mark.is_of(&order("a")) && !mark.is_of(&order("b")));
        assert!(mark.is_fresh(&first) && !mark.is_fresh(&life()));
    }
}
