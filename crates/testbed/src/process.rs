//! Programs that keep running: started into a log file, recorded by pid, start time and boot, so
//! that a pid which was given to another program meanwhile is never stopped by mistake.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::paths;

/// Whether a program outlives the one that started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It runs on, until it is stopped by its record.
    Detached,
    /// The kernel kills it when this process ends, however it ends (`PR_SET_PDEATHSIG`).
    DiesWithUs,
}

/// A program about to be started.
#[derive(Debug, Clone)]
pub struct Daemon {
    /// Its name in records and messages, for example `kube-apiserver`.
    pub name: String,
    /// The program itself.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Additional environment.
    pub env: BTreeMap<String, String>,
    /// The network namespace to run in (a path below `/run/netns`); none is the host's.
    pub netns: Option<PathBuf>,
    /// Where its output goes (appended).
    pub log: PathBuf,
    /// Whether it outlives us.
    pub fate: Fate,
}

impl Daemon {
    /// A program that runs on the host's network and is stopped by its record.
    pub fn new(
        name: impl Into<String>,
        program: impl Into<PathBuf>,
        log: impl Into<PathBuf>,
    ) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            netns: None,
            log: log.into(),
            fate: Fate::Detached,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// When the log cannot be opened or the program cannot be executed.
    pub fn start(&self) -> Result<Running> {
        if let Some(dir) = self.log.parent() {
            paths::make_dir(dir)?;
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("opening the log {}", self.log.display()))?;
        let pid = self.spawn(log)?;
        let started = stat(pid)
            .with_context(|| format!("{} ended at once:\n{}", self.name, tail(&self.log, 20)))?
            .start_ticks;
        Ok(Running {
            name: self.name.clone(),
            pid,
            start_ticks: started,
            boot: boot_id()?,
            log: self.log.clone(),
        })
    }

    /// `setsid` detaches from the terminal, `setpriv` asks the kernel for the death signal and
    /// `nsenter` enters the network namespace; each then becomes the next, so the pid stays.
    /// (`ip netns exec` would remount /sys and hide the cgroups from a kubelet.)
    fn spawn(&self, log: File) -> Result<i32> {
        let mut argv: Vec<OsString> = Vec::new();
        match self.fate {
            Fate::Detached => {
                argv.extend(["setsid", "bash", "-c", CLOSE_INHERITED, "bash"].map(OsString::from));
            }
            Fate::DiesWithUs => {
                argv.extend(["setpriv", "--pdeathsig", "KILL", "--"].map(OsString::from));
            }
        }
        if let Some(netns) = &self.netns {
            argv.push("nsenter".into());
            argv.push(format!("--net={}", netns.display()).into());
            argv.push("--".into());
        }
        argv.push(self.program.clone().into());
        argv.extend(self.args.iter().cloned());

        let err = log
            .try_clone()
            .with_context(|| format!("sharing the log of {}", self.name))?;
        let mut command = Command::new(&argv[0]);
        command
            .args(&argv[1..])
            .envs(&self.env)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(err);
        let child = spawn_from_lasting_thread(command)
            .with_context(|| format!("starting {} ({})", self.name, self.program.display()))?;
        i32::try_from(child).context("a pid out of range")
    }
}

/// Closes what a program would inherit besides its input and output. What outlives us must not hold
/// what is not ours: a lock, for example, under which somebody started us.
const CLOSE_INHERITED: &str = r#"
for fd in /proc/$$/fd/*; do
    fd=${fd##*/}
    if ((fd > 2)); then eval "exec $fd>&-"; fi
done
exec "$@"
"#;

type Job = (Command, Sender<std::io::Result<u32>>);

/// The kernel sends the death signal when the *thread* that started a program ends, not the
/// process. The thread of a test ends long before the tests do, so one thread that never ends
/// starts them all.
fn spawn_from_lasting_thread(command: Command) -> Result<u32> {
    static SPAWNER: OnceLock<Sender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for (mut command, answer) in receiver {
                let started = command.spawn().map(|mut child| {
                    let pid = child.id();
                    // Reaps it when it ends, else it would stay as a zombie.
                    thread::spawn(move || child.wait());
                    pid
                });
                // Nobody waits for the answer only when the asking thread died.
                let _ = answer.send(started);
            }
        });
        sender
    });
    let (sender, receiver) = mpsc::channel();
    spawner
        .send((command, sender))
        .map_err(|_| anyhow!("the thread that starts programs is gone"))?;
    Ok(receiver
        .recv()
        .context("the thread that starts programs is gone")??)
}

/// A program that was started, as it is recorded on disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Running {
    /// Its name, see [`Daemon::name`].
    pub name: String,
    /// Its process id.
    pub pid: i32,
    /// Its log.
    pub log: PathBuf,
    /// When it started, in clock ticks since boot (field 22 of `/proc/<pid>/stat`).
    start_ticks: u64,
    /// The boot it belongs to: ticks and pids begin anew with the next.
    boot: String,
}

impl Running {
    /// Whether this very program still runs.
    pub fn is_alive(&self) -> bool {
        boot_id().is_ok_and(|boot| boot == self.boot)
            && stat(self.pid)
                .is_ok_and(|stat| stat.start_ticks == self.start_ticks && stat.state != 'Z')
    }

    /// Fails with the end of its log when it no longer runs.
    pub fn ensure_alive(&self) -> Result<()> {
        if self.is_alive() {
            return Ok(());
        }
        bail!(
            "{} ended; the end of its log {}:\n{}",
            self.name,
            self.log.display(),
            tail(&self.log, 30)
        )
    }

    /// Sends SIGTERM, waits up to `grace`, then sends SIGKILL. Returns once it is gone.
    ///
    /// # Errors
    /// When it does not even end within ten seconds after SIGKILL.
    pub fn stop(&self, grace: Duration) -> Result<()> {
        self.signal(Signal::SIGTERM);
        if self.gone_within(grace) {
            return Ok(());
        }
        self.signal(Signal::SIGKILL);
        if self.gone_within(Duration::from_secs(10)) {
            return Ok(());
        }
        bail!("{} (pid {}) survives SIGKILL", self.name, self.pid)
    }

    /// Sends SIGKILL without waiting.
    pub fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        if self.is_alive() {
            // It may end between the two lines, which is as good.
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    fn gone_within(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while self.is_alive() {
            if Instant::now() > until {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

/// The records of one directory, a file per program.
#[derive(Debug, Clone)]
pub struct Records {
    dir: PathBuf,
}

impl Records {
    /// The records kept in that directory, which need not exist yet.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Starts a program unless its record says that it runs. Returns its record and whether it was
    /// started now.
    pub fn ensure(&self, daemon: &Daemon) -> Result<(Running, bool)> {
        if let Some(running) = self.get(&daemon.name)
            && running.is_alive()
        {
            return Ok((running, false));
        }
        let running = daemon.start()?;
        paths::write(
            &self.file(&daemon.name),
            serde_json::to_vec_pretty(&running).context("recording a process")?,
        )?;
        Ok((running, true))
    }

    /// The record of that name.
    pub fn get(&self, name: &str) -> Option<Running> {
        serde_json::from_slice(&fs::read(self.file(name)).ok()?).ok()
    }

    /// All records.
    pub fn all(&self) -> Vec<Running> {
        let Ok(entries) = fs::read_dir(&self.dir) else {
            return Vec::new();
        };
        entries
            .filter_map(|entry| fs::read(entry.ok()?.path()).ok())
            .filter_map(|bytes| serde_json::from_slice(&bytes).ok())
            .collect()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.json"))
    }
}

/// The last lines of a log, for messages.
pub fn tail(log: &Path, lines: usize) -> String {
    let Ok(text) = fs::read(log) else {
        return format!("(no log at {})", log.display());
    };
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

struct Stat {
    state: char,
    start_ticks: u64,
}

/// Reads `/proc/<pid>/stat`. The program's name in it may hold anything, blanks and brackets
/// included: the fixed fields begin after the last closing bracket.
fn stat(pid: i32) -> Result<Stat> {
    let path = PathBuf::from(format!("/proc/{pid}/stat"));
    let text = paths::read(&path)?;
    let (_, fields) = text
        .rsplit_once(") ")
        .with_context(|| format!("{} has no name field", path.display()))?;
    let mut fields = fields.split(' ');
    let state = fields.next().and_then(|field| field.chars().next());
    // The state is field 3, the start time field 22: 18 lie between.
    let start_ticks = fields.nth(18).and_then(|field| field.parse().ok());
    match (state, start_ticks) {
        (Some(state), Some(start_ticks)) => Ok(Stat { state, start_ticks }),
        _ => bail!("{} has too few fields", path.display()),
    }
}

fn boot_id() -> Result<String> {
    paths::read(Path::new("/proc/sys/kernel/random/boot_id")).map(|id| id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(dir: &Path, fate: Fate) -> Daemon {
        let mut daemon =
            Daemon::new("sleeper", "sleep", dir.join("log/sleeper.log")).args(["1000"]);
        daemon.fate = fate;
        daemon
    }

    #[test]
    fn what_runs_is_not_started_twice_and_stops() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path().join("processes"));
        let daemon = sleeper(dir.path(), Fate::Detached);
        let (first, started) = records.ensure(&daemon).unwrap();
        assert!(started && first.is_alive());
        let (second, started) = records.ensure(&daemon).unwrap();
        assert!(!started);
        assert_eq!(first.pid, second.pid);
        second.stop(Duration::from_secs(5)).unwrap();
        assert!(!first.is_alive());
        assert!(records.ensure(&daemon).unwrap().1, "started anew");
        for running in records.all() {
            running.stop(Duration::from_secs(5)).unwrap();
        }
    }

    #[test]
    fn what_outlives_us_inherits_nothing() {
        let script = "exec 7</dev/null 23</dev/null; exec \"$@\"";
        let listed = Command::new("bash")
            .args(["-c", script, "bash"])
            .args(["bash", "-c", CLOSE_INHERITED, "bash"])
            .args(["readlink", "/proc/self/fd/7", "/proc/self/fd/23"])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&listed.stdout), "");
        assert!(!listed.status.success(), "nothing was there to be read");
    }

    #[test]
    fn a_reused_pid_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let running = sleeper(dir.path(), Fate::DiesWithUs).start().unwrap();
        let mut other = running.clone();
        other.start_ticks += 1;
        other.kill();
        assert!(running.is_alive());
        running.stop(Duration::from_secs(5)).unwrap();
    }
}
