//! Runs `cargo test`, keeps its whole output in a log, shows failures, and adds up the results.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testbed::paths;
use testbed::progress::Step;

use super::plan::{Stage, Targets};
use crate::{build, output};

/// What was counted.
#[derive(Debug)]
pub(super) struct Tally {
    passed: usize,
    failed: usize,
    logs: PathBuf,
}

/// `test result: ok. 3 passed; 0 failed; …`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
}

impl Counts {
    fn of_line(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let count = |word: &str| {
            counts
                .split(';')
                .find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
        };
        Some(Self {
            passed: count("passed")?,
            failed: count("failed")?,
        })
    }
}

impl Tally {
    /// Nothing counted yet.
    pub(super) fn new() -> Result<Self> {
        let logs = paths::cache()?.join("logs");
        std::fs::create_dir_all(&logs).with_context(|| format!("creating {}", logs.display()))?;
        Ok(Self {
            passed: 0,
            failed: 0,
            logs,
        })
    }

    /// Where the output of that part of the run is kept.
    pub(super) fn log(&self, part: &str) -> PathBuf {
        self.logs.join(format!("test-{}.log", part.to_lowercase()))
    }

    /// All that passed, and all that failed.
    pub(super) fn sum(&self) -> (usize, usize) {
        (self.passed, self.failed)
    }

    /// Runs a stage. Returns what to say of it.
    ///
    /// # Errors
    /// When a test failed, or tests could not be built or run.
    pub(super) fn run(
        &mut self,
        stage: Stage,
        targets: &Targets,
        filter: Option<&str>,
        env: &[(&'static str, String)],
        step: &Step,
    ) -> Result<String> {
        let Some(arguments) = targets.arguments(stage) else {
            return Ok("there are none".to_owned());
        };
        let log = self.log(&format!("{stage:?}"));
        let mut file = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let mut command = build::cargo()?
            .args(["test", "--workspace", "--locked", "--no-fail-fast"])
            .args(arguments)
            .timeout(Duration::from_mins(45));
        for (name, value) in env {
            command = command.env(name, value);
        }
        if let Some(filter) = filter {
            command = command.args(["--", filter]);
        }
        let (before_passed, before_failed) = self.sum();
        let mut failures = Failures::default();
        let outcome = command.lines(|_, line| {
            // The log is a convenience: the run goes on without.
            let _ = writeln!(file, "{line}");
            step.say(line.trim());
            if let Some(counts) = Counts::of_line(line) {
                self.passed += counts.passed;
                self.failed += counts.failed;
            }
            failures.line(line);
        });
        let passed = self.passed - before_passed;
        let failed = self.failed - before_failed;
        if outcome.is_err() {
            output::line(failures.text());
        }
        match outcome {
            Ok(()) => Ok(format!("{passed} passed")),
            Err(_) if failed > 0 => {
                bail!(
                    "{failed} tests failed, {passed} passed; all of it is in {}",
                    log.display()
                )
            }
            // Not built, crashed, timed out or interrupted.
            Err(error) => {
                self.failed += 1;
                Err(error.context(format!("all of it is in {}", log.display())))
            }
        }
    }
}

/// Collects what the test harness prints of failures: from `failures:` to the next result.
#[derive(Debug, Default)]
struct Failures {
    text: String,
    inside: bool,
}

impl Failures {
    fn line(&mut self, line: &str) {
        self.inside = match line {
            "failures:" => true,
            _ if line.starts_with("test result: ") => false,
            _ => self.inside,
        };
        if self.inside || line.starts_with("error") {
            self.text.push_str(line);
            self.text.push('\n');
        }
    }

    fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let line =
            "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 1 filtered out";
        assert_eq!(
            Counts::of_line(line),
            Some(Counts {
                passed: 12,
                failed: 3
            })
        );
        assert_eq!(Counts::of_line("test name ... ok"), None);
    }
}
