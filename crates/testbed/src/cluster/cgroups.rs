//! The cgroup that holds all pods of a cluster: made before the kubelet starts, and what `down`
//! finds the pods' processes by. Works with the first and the second version of cgroups, and with
//! machines that mount both.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::paths;

/// Makes the cgroup in each hierarchy.
pub(super) fn create(name: &str) -> Result<()> {
    for root in hierarchies()? {
        let dir = root.join(name);
        paths::make_dir(&dir)?;
        // A new cpuset (version 1) has no CPUs and takes no process: give it its parent's.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let own = dir.join(file);
            if own.exists()
                && paths::read(&own)?.trim().is_empty()
                && let Ok(parent) = fs::read(root.join(file))
            {
                fs::write(&own, parent).with_context(|| format!("writing {}", own.display()))?;
            }
        }
    }
    Ok(())
}

/// The processes in it and below.
pub(super) fn processes(name: &str) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    for dir in all_dirs(name)? {
        let procs = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        found.extend(procs.lines().filter_map(|line| line.parse::<i32>().ok()));
    }
    found.sort_unstable();
    found.dedup();
    // 0 stands for processes of another pid namespace: not ours to signal.
    found.retain(|pid| *pid > 0);
    Ok(found)
}

/// Kills all processes in it; returns how many there were.
pub(super) fn kill_all(name: &str) -> Result<usize> {
    let found = processes(name)?;
    for pid in &found {
        // It may have ended by itself.
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
    Ok(found.len())
}

/// Removes it from each hierarchy. The last of its processes may need a moment to vanish: returns
/// whether all is gone.
pub(super) fn remove(name: &str) -> Result<bool> {
    let mut gone = true;
    // Children first.
    for dir in all_dirs(name)?.iter().rev() {
        gone &= fs::remove_dir(dir).is_ok();
    }
    Ok(gone)
}

/// The cgroup's directories in all hierarchies, parents before children.
fn all_dirs(name: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for root in hierarchies()? {
        let dir = root.join(name);
        if dir.is_dir() {
            found.push(dir.clone());
            collect(&dir, &mut found);
        }
    }
    Ok(found)
}

fn collect(dir: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            into.push(path.clone());
            collect(&path, into);
        }
    }
}

/// Where cgroup hierarchies are mounted. A hierarchy may be mounted twice, which does no harm.
fn hierarchies() -> Result<Vec<PathBuf>> {
    let mounts = paths::read(Path::new("/proc/self/mounts"))?;
    Ok(mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let target = fields.next()?;
            matches!(fields.next()?, "cgroup" | "cgroup2").then(|| PathBuf::from(target))
        })
        .collect())
}
