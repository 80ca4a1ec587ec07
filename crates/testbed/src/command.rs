//! Programs that are run to their end: bounded in time, stopped with everything they started when
//! the person interrupts, and quoted in the error when they fail.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::interrupt;

/// How many of its last lines are quoted when a program fails.
const QUOTED_LINES: usize = 40;
/// How long a program has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

/// Which of a program's two outputs a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// A program about to be run.
#[derive(Debug)]
pub struct Cmd {
    program: OsString,
    args: Vec<OsString>,
    envs: Vec<(OsString, Option<OsString>)>,
    cwd: Option<PathBuf>,
    stdin: Option<Vec<u8>>,
    timeout: Duration,
}

impl Cmd {
    /// A program by name or path; it has ten minutes unless [`Cmd::timeout`] says otherwise.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            envs: Vec::new(),
            cwd: None,
            stdin: None,
            timeout: Duration::from_mins(10),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.envs
            .push((key.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Runs without an environment variable.
    #[must_use]
    pub fn env_remove(mut self, key: impl AsRef<OsStr>) -> Self {
        self.envs.push((key.as_ref().to_owned(), None));
        self
    }

    /// Runs in that directory.
    #[must_use]
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = Some(dir.into());
        self
    }

    /// Gives it this text on standard input; without it there is none.
    #[must_use]
    pub fn stdin(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(text.into());
        self
    }

    /// How long it may take before it is stopped and counted as failed.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Runs it; its output is only seen when it fails.
    pub fn run(self) -> Result<()> {
        self.lines(|_, _| {})
    }

    /// Runs it and returns its standard output.
    pub fn output(self) -> Result<String> {
        let mut text = String::new();
        self.lines(|stream, line| {
            if stream == Stream::Out {
                text.push_str(line);
                text.push('\n');
            }
        })?;
        Ok(text)
    }

    /// Runs it and hands over each line of output as it comes.
    ///
    /// # Errors
    /// When it cannot be started, ends with a failure, takes too long, or the person interrupts.
    pub fn lines(self, mut each: impl FnMut(Stream, &str)) -> Result<()> {
        let shown = self.display();
        let started = Instant::now();
        let mut child = self.spawn().with_context(|| format!("starting {shown}"))?;
        let (sender, receiver) = mpsc::channel();
        if let Some(out) = child.stdout.take() {
            forward(out, Stream::Out, sender.clone());
        }
        if let Some(err) = child.stderr.take() {
            forward(err, Stream::Err, sender.clone());
        }
        drop(sender);

        let mut last: VecDeque<String> = VecDeque::new();
        let mut ended: Option<(ExitStatus, Instant)> = None;
        let mut drained = false;
        let status = loop {
            match receiver.recv_timeout(Duration::from_millis(100)) {
                Ok((stream, line)) => {
                    each(stream, &line);
                    if last.len() == QUOTED_LINES {
                        last.pop_front();
                    }
                    last.push_back(line);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    drained = true;
                    // Both outputs are closed but it may run on: do not spin.
                    thread::sleep(Duration::from_millis(5));
                }
            }
            if ended.is_none() {
                ended = child
                    .try_wait()
                    .with_context(|| format!("waiting for {shown}"))?
                    .map(|status| (status, Instant::now()));
            }
            if let Some((status, at)) = ended {
                // What it left running may hold its pipes open: do not wait for that.
                if drained || at.elapsed() > Duration::from_secs(1) {
                    break status;
                }
                continue;
            }
            if interrupt::is_set() {
                stop(&mut child);
                bail!("interrupted while running {shown}");
            }
            if started.elapsed() > self.timeout {
                stop(&mut child);
                bail!(
                    "{shown} did not end within {:?}; its last lines:\n{}",
                    self.timeout,
                    Vec::from(last).join("\n")
                );
            }
        };
        if !status.success() {
            bail!(
                "{shown} failed ({status}); its last lines:\n{}",
                Vec::from(last).join("\n")
            );
        }
        Ok(())
    }

    fn spawn(&self) -> Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .stdin(if self.stdin.is_some() {
                Stdio::piped()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own: then all that it started can be stopped with it.
            .process_group(0);
        for (key, value) in &self.envs {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        if let Some(dir) = &self.cwd {
            command.current_dir(dir);
        }
        let mut child = command.spawn()?;
        if let (Some(text), Some(mut pipe)) = (self.stdin.clone(), child.stdin.take()) {
            // From a thread: a program may write much before it has read everything.
            thread::spawn(move || pipe.write_all(&text));
        }
        Ok(child)
    }

    fn display(&self) -> String {
        let mut text = String::from("`");
        text.push_str(&self.program.to_string_lossy());
        for arg in &self.args {
            text.push(' ');
            text.push_str(&arg.to_string_lossy());
        }
        text.push('`');
        text
    }
}

fn forward(pipe: impl Read + Send + 'static, stream: Stream, to: Sender<(Stream, String)>) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n') {
            let Ok(line) = line else { return };
            let line = String::from_utf8_lossy(&line)
                .trim_end_matches('\r')
                .to_owned();
            if to.send((stream, line)).is_err() {
                return;
            }
        }
    });
}

/// Stops a program and all of its group: politely, then for good.
fn stop(child: &mut Child) {
    let Ok(group) = i32::try_from(child.id()) else {
        return;
    };
    let group = Pid::from_raw(group);
    // It may be gone already, which is what we want.
    let _ = killpg(group, Signal::SIGTERM);
    let until = Instant::now() + GRACE;
    while Instant::now() < until {
        if matches!(child.try_wait(), Ok(Some(_))) {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let _ = killpg(group, Signal::SIGKILL);
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_comes_back_whole() {
        let text = Cmd::new("sh")
            .args(["-c", "echo one; echo two >&2; cat"])
            .stdin("three\n")
            .output()
            .unwrap();
        assert_eq!(text, "one\nthree\n");
    }

    #[test]
    fn a_failure_quotes_the_last_lines() {
        let error = Cmd::new("sh")
            .args(["-c", "echo because; exit 3"])
            .run()
            .unwrap_err()
            .to_string();
        assert!(error.contains("because"), "{error}");
        assert!(error.contains("exit status: 3"), "{error}");
    }

    #[test]
    fn too_long_is_stopped_with_its_children() {
        let started = Instant::now();
        let error = Cmd::new("sh")
            .args(["-c", "echo begun; sleep 60 & wait"])
            .timeout(Duration::from_millis(300))
            .run()
            .unwrap_err()
            .to_string();
        assert!(error.contains("did not end within"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}
