//! Backups of a network and what is got back from them: `ziti-agent backup` and `ziti-agent restore`,
//! each the one container of a Job. Called by the program alone.
//!
//! A backup is one file, `<namespace>.<name>.<time>.<root>-<object>.tar.age`: a tar, encrypted with age to public keys,
//! so that whoever makes it and whoever keeps it cannot read it. `age -d -i key FILE | tar t` shows what
//! is in it. The agent has no Kubernetes credential: Secrets are what is mounted, and what a restore
//! finds goes to the operator by the termination message, keys encrypted to a key of the operator's.
//!
//! | module | holds |
//! | --- | --- |
//! | [`cli`] | the arguments |
//! | [`save`] | how a backup is made |
//! | [`fetch`] | how one is got back |
//! | [`members`] | who is asked for the database |
//! | [`archive`] | what is in a backup, in which order |
//! | [`store`] | where backups are: a volume or a bucket |
//! | [`names`] | which files are backups of which network, and which of them are too many |
//! | [`pipe`] | from what arrives to what reads |
//! | [`report`] | how it ended |
//! | [`vacant`] | whether a data directory holds no network |

mod archive;
pub mod cli;
mod fetch;
mod members;
mod names;
mod pipe;
pub mod report;
mod save;
mod store;
mod vacant;

use std::path::Path;

use tokio::sync::watch;

pub use self::fetch::{Fetch, fetch};
pub use self::members::Members;
pub use self::names::Series;
use self::report::{Failure, Reason};
pub use self::save::{Save, save};
pub use self::store::{Bucket, Place};

/// A text file that somebody mounted.
fn text(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        let why = format!("cannot read {}: {error}", path.display());
        Failure::new(Reason::Misconfigured, why)
    })
}

/// Does the work unless the pod is stopped meanwhile.
async fn unless_stopped<T>(
    mut stop: watch::Receiver<bool>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        ended = work => ended,
        // The other end goes only with the process.
        _ = stop.wait_for(|stop| *stop) => {
            let why = "the pod was stopped before the end; the next run begins anew";
            Err(Failure::new(Reason::Interrupted, why))
        }
    }
}
