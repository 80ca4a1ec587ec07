//! What a person sees while something long runs: which step of how many, what it does now, how
//! long it took. On a terminal the line lives; elsewhere (CI) each fact is a plain line of its own.
//! Everything goes to standard error, so that standard output holds results only.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

/// How often a step that has no terminal says what it is doing.
const PLAIN_EVERY: Duration = Duration::from_secs(20);

/// How one step went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// The step.
    pub title: String,
    /// How long it took.
    pub took: Duration,
    /// Whether it was completed.
    pub completed: bool,
}

/// The steps of one command.
#[derive(Debug, Clone)]
pub struct Progress {
    total: usize,
    terminal: bool,
    timings: Arc<Mutex<Vec<Timing>>>,
}

impl Progress {
    /// A command of that many steps.
    pub fn new(total: usize) -> Self {
        Self {
            total,
            terminal: std::io::stderr().is_terminal(),
            timings: Arc::default(),
        }
    }

    /// Runs one step. `work` gets the step to report on and returns what it ends with, for example
    /// `3 packages installed`; empty says just "done".
    pub async fn step<T>(
        &self,
        title: &str,
        work: impl AsyncFnOnce(&Step) -> Result<(T, String)>,
    ) -> Result<T> {
        let step = self.begin(title);
        match work(&step).await {
            Ok((value, detail)) => {
                step.end(true, &detail);
                Ok(value)
            }
            Err(error) => {
                step.end(false, "");
                Err(error.context(format!("step \"{title}\" failed")))
            }
        }
    }

    /// The steps so far, in order.
    pub fn timings(&self) -> Vec<Timing> {
        self.timings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn begin(&self, title: &str) -> Step {
        let number = self.timings().len() + 1;
        let label = format!("[{number}/{}] {title}", self.total);
        let bar = self.terminal.then(|| {
            let style = ProgressStyle::with_template("{spinner} {prefix}  {elapsed}  {wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            let bar = ProgressBar::new_spinner()
                .with_style(style)
                .with_prefix(label.clone());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        if bar.is_none() {
            print(&format!("{label} ..."));
        }
        Step {
            title: title.to_owned(),
            label,
            bar,
            started: Instant::now(),
            last_plain: Mutex::new(Instant::now()),
            timings: Arc::clone(&self.timings),
        }
    }
}

/// A step that runs.
#[derive(Debug)]
pub struct Step {
    title: String,
    label: String,
    bar: Option<ProgressBar>,
    started: Instant,
    last_plain: Mutex<Instant>,
    timings: Arc<Mutex<Vec<Timing>>>,
}

impl Step {
    /// Says what is being done now. It replaces what was said before; without a terminal it is
    /// printed at most every twenty seconds.
    pub fn say(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.to_owned());
            return;
        }
        let mut last = self
            .last_plain
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() >= PLAIN_EVERY {
            *last = Instant::now();
            print(&format!(
                "{}   {text} ({})",
                self.label,
                seconds(self.started.elapsed())
            ));
        }
    }

    /// Says something that stays to be read.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(format!("      {text}")),
            None => print(&format!("      {text}")),
        }
    }

    fn end(self, completed: bool, detail: &str) {
        let took = self.started.elapsed();
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let (mark, word) = if completed {
            ("✓", "done")
        } else {
            ("✗", "FAILED")
        };
        let detail = if detail.is_empty() {
            String::new()
        } else {
            format!(": {detail}")
        };
        print(&format!(
            "{mark} {} {word} in {}{detail}",
            self.label,
            seconds(took)
        ));
        self.timings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Timing {
                title: self.title,
                took,
                completed,
            });
    }
}

/// A duration as a person says it: `0.4 s`, `12 s`, `3 min 05 s`.
pub fn seconds(time: Duration) -> String {
    let whole = time.as_secs();
    if whole < 10 {
        format!("{:.1} s", time.as_secs_f64())
    } else if whole < 60 {
        format!("{whole} s")
    } else {
        format!("{} min {:02} s", whole / 60, whole % 60)
    }
}

fn print(line: &str) {
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(seconds(Duration::from_millis(420)), "0.4 s");
        assert_eq!(seconds(Duration::from_secs(42)), "42 s");
        assert_eq!(seconds(Duration::from_secs(185)), "3 min 05 s");
    }

    #[tokio::test]
    async fn a_failed_step_is_timed_and_named() {
        let progress = Progress::new(1);
        let result: Result<()> = progress
            .step("breaking", async |_| anyhow::bail!("because"))
            .await;
        assert!(format!("{:#}", result.unwrap_err()).contains("breaking"));
        assert!(!progress.timings()[0].completed);
    }
}
