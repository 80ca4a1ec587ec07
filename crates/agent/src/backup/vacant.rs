//! Whether a data directory holds no network: a backup is put into no other. Only [`super::fetch`] uses
//! this module.
//!
//! A member keeps its network in `raft.db` (a log of Raft, in a bolt file), in `snapshots` and in
//! `ctrl-ha.db`, which is made of the two at each start. All of them are there in a member that was never
//! in a cluster, too: the log has no entry then (seen with 1.6.0).

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use super::report::{Failure, Reason};

const LOG: &str = "raft.db";
const SNAPSHOTS: &str = "snapshots";
/// The name of a field in each entry of the log, as Raft writes it. It stays in the file after the entry
/// was deleted, so an old log is taken for one that is in use: doubt refuses.
const OF_AN_ENTRY: &[u8] = b"AppendedAt";

/// Refuses a directory in which a network is, or was.
pub(super) fn check(data: &Path) -> Result<(), Failure> {
    let unread = |error: io::Error| {
        let why = format!("cannot read the data volume, which may hold a database: {error}");
        Failure::new(Reason::AccessDenied, why)
    };
    let held = holds_entries(&data.join(LOG)).map_err(unread)?;
    if held || holds_files(&data.join(SNAPSHOTS)).map_err(unread)? {
        let why = "the data volume of the first member holds the database of a network already, and a \
                   backup is never put over one: if it is of no use, delete the volume claim";
        return Err(Failure::new(Reason::Misconfigured, why));
    }
    Ok(())
}

fn holds_entries(log: &Path) -> io::Result<bool> {
    let mut file = match File::open(log) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    let mut buffer = vec![0; 64 * 1024];
    // What may be the beginning of the word stays in front of what is read next.
    let mut kept = 0;
    loop {
        let read = match file.read(&mut buffer[kept..]) {
            Ok(0) => return Ok(false),
            Ok(read) => kept + read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let seen = &buffer[..read];
        if seen.windows(OF_AN_ENTRY.len()).any(|at| at == OF_AN_ENTRY) {
            return Ok(true);
        }
        kept = read.min(OF_AN_ENTRY.len() - 1);
        buffer.copy_within(read - kept..read, 0);
    }
}

fn holds_files(directory: &Path) -> io::Result<bool> {
    match std::fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        listed => Ok(listed?.next().transpose()?.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_no_network_has_written_is_vacant() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path();
        check(data).unwrap();
        // As a member leaves them that was never in a cluster.
        std::fs::write(data.join("ctrl-ha.db"), [7; 512]).unwrap();
        std::fs::write(data.join(LOG), vec![b'A'; 100_000]).unwrap();
        std::fs::create_dir(data.join(SNAPSHOTS)).unwrap();
        check(data).unwrap();

        // At the edge between two reads.
        for at in [0, 64 * 1024 - 4, 99_000] {
            let mut log = vec![b'A'; 100_000];
            log[at..at + OF_AN_ENTRY.len()].copy_from_slice(OF_AN_ENTRY);
            std::fs::write(data.join(LOG), log).unwrap();
            let refused = check(data).unwrap_err();
            assert_eq!(refused.reason, Reason::Misconfigured, "{at}");
        }
        std::fs::remove_file(data.join(LOG)).unwrap();
        std::fs::create_dir(data.join(SNAPSHOTS).join("2-7-1")).unwrap();
        assert!(check(data).is_err());
    }
}
