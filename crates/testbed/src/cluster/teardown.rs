//! Ending a cluster, or one node of it: nothing of it may be left, whatever state it was in. Order matters: who
//! restarts things ends first, then what it started, then mounts, which only go when nobody is in
//! them, then cgroups and the network.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use super::layout::Layout;
use super::site::Site;
use super::{cgroups, join, network};
use crate::kubernetes;
use crate::paths;
use crate::process::Running;
use crate::progress::Step;

/// How long each part may take before `down` gives up and says what is left.
const PATIENCE: Duration = Duration::from_secs(20);

/// Who ends in this order; all others after them.
const FIRST: [&str; 2] = ["kubelet", "kube-controller-manager"];

/// Ends all of a cluster, and the second one beside it.
pub(super) async fn run(layout: &Layout, step: &Step) -> Result<()> {
    if let Some(second) = Layout::load(&layout.second_dir())? {
        step.say("ending the second cluster");
        Box::pin(run(&second, step)).await?;
    }
    for site in layout.further_nodes() {
        step.say(&format!("ending {}", site.name()));
        further_node(&site).await?;
    }
    let site = layout.first_node();
    let mut programs = layout.records().all();
    programs.sort_by_key(|program| !FIRST.contains(&program.name.as_str()));
    for program in programs.iter().filter(|program| is_first(program)) {
        step.say(&format!("ending {}", program.name));
        program.stop(Duration::from_secs(3))?;
    }

    step.say("ending pods");
    let sockets = shim_sockets(&site);
    kill_pods(&site).await?;

    for program in programs.iter().filter(|program| !is_first(program)) {
        step.say(&format!("ending {}", program.name));
        // The API server waits long for watches that hang; its data is about to be removed.
        program.stop(Duration::from_secs(1))?;
    }

    step.say("mounts, cgroups and network");
    clear(&site, sockets).await?;
    network::remove(layout)?;
    remove_traces(&site);
    fs::remove_dir_all(&layout.dir).with_context(|| format!("removing {}", layout.dir.display()))
}

/// Ends a node beside the first, in whatever state it is; its object stays.
pub(super) async fn further_node(site: &Site) -> Result<()> {
    join::cut(site)?;
    let sockets = shim_sockets(site);
    kill(site).await?;
    clear(site, sockets).await?;
    join::remove(site)?;
    remove_traces(site);
    let dir = site.dir();
    fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))
}

/// Kills a node's programs and pods, all at once.
pub(super) async fn kill(site: &Site) -> Result<()> {
    let programs = site.records().all();
    for program in &programs {
        program.kill();
    }
    kill_pods(site).await?;
    for program in &programs {
        // Killed already: this waits until it is gone.
        program.stop(Duration::ZERO)?;
    }
    Ok(())
}

/// Kills the shims and all that runs in the pods.
async fn kill_pods(site: &Site) -> Result<()> {
    for shim in containerd_shims(site) {
        // A shim that dies first cannot report its container's end, which nobody wants to know.
        let _ = signal::kill(Pid::from_raw(shim), Signal::SIGKILL);
    }
    kubernetes::poll("the pods' processes to end", PATIENCE, async || {
        let left = cgroups::kill_all(&site.cgroup())? + containerd_shims(site).len();
        Ok((left == 0).then_some(()))
    })
    .await
}

/// Removes the mounts and cgroups of a node that has ended.
async fn clear(site: &Site, sockets: Vec<PathBuf>) -> Result<()> {
    for socket in sockets {
        // The shim's own clean-up did not run.
        let _ = fs::remove_file(socket);
    }
    unmount_below(&site.dir())?;
    kubernetes::poll("the cgroups to be empty", PATIENCE, async || {
        Ok(cgroups::remove(&site.cgroup())?.then_some(()))
    })
    .await
}

fn is_first(program: &Running) -> bool {
    FIRST.contains(&program.name.as_str())
}

/// The shims of this node's containerd, by the address in their command line. They are in no
/// record, since containerd starts them, and in no cgroup of ours.
fn containerd_shims(site: &Site) -> Vec<i32> {
    let socket = site.containerd_socket();
    let socket = socket.to_string_lossy();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse::<i32>().ok()?;
            let arguments = fs::read(entry.path().join("cmdline")).ok()?;
            let arguments = String::from_utf8_lossy(&arguments).into_owned();
            let mut arguments = arguments.split('\0');
            let program = arguments.next()?;
            (program.ends_with("containerd-shim-runc-v2")
                && arguments.any(|argument| argument == socket))
            .then_some(pid)
        })
        .collect()
}

/// The sockets of the shims, which lie below `/run/containerd/s` under a hash. Each bundle names
/// its own.
fn shim_sockets(site: &Site) -> Vec<PathBuf> {
    let bundles = site
        .containerd_state()
        .join("io.containerd.runtime.v2.task/k8s.io");
    let Ok(entries) = fs::read_dir(bundles) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path().join("address")).ok())
        .filter_map(|address| Some(PathBuf::from(address.trim().strip_prefix("unix://")?)))
        .filter(|socket| socket.starts_with("/run/containerd/s"))
        .collect()
}

/// Unmounts everything below a directory, the innermost first.
fn unmount_below(dir: &Path) -> Result<()> {
    for target in mounts_below(dir)?.iter().rev() {
        if umount2(target, MntFlags::empty()).is_err() {
            // Somebody still looks into it: it goes when they leave.
            umount2(target, MntFlags::MNT_DETACH)
                .with_context(|| format!("unmounting {}", target.display()))?;
        }
    }
    let left = mounts_below(dir)?;
    if !left.is_empty() {
        bail!("still mounted: {left:?}");
    }
    Ok(())
}

/// What is mounted below a directory, in the order in which it was mounted.
fn mounts_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let info = paths::read(Path::new("/proc/self/mountinfo"))?;
    Ok(info
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        // The kernel writes blanks and the like in octal.
        .map(|target| PathBuf::from(target.replace("\\040", " ").replace("\\011", "\t")))
        .filter(|target| target != dir && target.starts_with(dir))
        .collect())
}

/// What the programs put outside our directory, by fixed paths of theirs. Best effort: what is
/// left does no harm.
fn remove_traces(site: &Site) {
    for link in entries("/var/log/containers") {
        if fs::read_link(&link).is_ok_and(|target| target.starts_with(site.dir())) {
            let _ = fs::remove_file(link);
        }
    }
    // Results of CNI: `<network>-<id of the pod's sandbox>-<interface>`. That of the loopback
    // interface has the same id and a network name that is everybody's.
    let network = format!("{}-", site.cni_network());
    let results = entries("/var/lib/cni/results");
    let ids: Vec<&str> = results
        .iter()
        .filter_map(|path| path.file_name()?.to_str()?.strip_prefix(&network))
        .filter_map(|rest| rest.split('-').next())
        // Another network's name may begin like ours.
        .filter(|id| id.len() == 64)
        .collect();
    for path in &results {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if ids.iter().any(|id| name.contains(id)) {
            let _ = fs::remove_file(path);
        }
    }
}

fn entries(dir: &str) -> Vec<PathBuf> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}
