//! `cargo xtask test`: everything that must hold, in one command. It starts and ends all it needs,
//! goes on after a failure so that one run tells all, and sums up in its last line.

mod plan;
mod tally;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use testbed::cluster::Cluster;
use testbed::command::Cmd;
use testbed::environment::Environment;
use testbed::image::{self, Archive};
use testbed::progress::{Progress, Step};
use testbed::{dump, interrupt, operator_install};

use self::plan::{Stage, Targets};
use self::tally::Tally;
use crate::{build, cluster_commands, crds, output};

/// The cluster of the tests; the demo's stays untouched.
const CLUSTER: &str = "test";
/// Whose pods and logs are shown when an end-to-end stage fails.
const DUMPED: [&str; 2] = [operator_install::RELEASE, "ziti"];

/// Checks by cargo alone.
const CHECKS: [(&str, &[&str]); 3] = [
    ("formatting", &["fmt", "--all", "--check"]),
    (
        "lints",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ],
    ),
    (
        "build",
        &["build", "--workspace", "--all-targets", "--locked"],
    ),
];

/// Formatting, lints and all tests.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// The inner loop: no cluster and no Ziti, about a minute when warm.
    #[arg(long)]
    fast: bool,
    /// Runs only tests whose name contains this.
    #[arg(long)]
    filter: Option<String>,
}

impl Test {
    /// Runs it; returns whether all is well.
    pub(crate) async fn run(&self) -> Result<bool> {
        let mut run = Run {
            progress: Progress::new(if self.fast { 5 } else { 14 }),
            tally: Tally::new()?,
            filter: self.filter.clone(),
            problems: Vec::new(),
        };
        let targets = Targets::read()?;
        if !self.fast {
            run.attempt(async |run| cluster_commands::prepare(&run.progress).await)
                .await;
        }
        run.checks().await;
        run.tests("unit and property tests", Stage::Fast, &targets, &[])
            .await;
        if !self.fast {
            run.tests(
                "tests against Ziti and the API server",
                Stage::Local,
                &targets,
                &[],
            )
            .await;
            run.end_to_end(&targets).await;
        }
        Ok(run.conclude())
    }
}

/// A run, and what was found so far.
struct Run {
    progress: Progress,
    tally: Tally,
    filter: Option<String>,
    problems: Vec<anyhow::Error>,
}

impl Run {
    /// Does one thing unless the person has interrupted; remembers its failure.
    async fn attempt<T>(&mut self, work: impl AsyncFnOnce(&mut Self) -> Result<T>) -> Option<T> {
        if interrupt::is_set() {
            return None;
        }
        match work(self).await {
            Ok(value) => Some(value),
            Err(error) => {
                output::failure(&error);
                self.problems.push(error);
                None
            }
        }
    }

    /// What is no test. All of it is built first, in the one way that the tests use: cargo chooses
    /// the features of the dependencies by what is built together.
    async fn checks(&mut self) {
        for (title, args) in CHECKS {
            self.attempt(async |run| run.quiet_step(title, args).await)
                .await;
        }
        self.attempt(async |run| {
            run.progress
                .step("CRDs are as generated", async |_| {
                    crds::check(&build::target_dir()?.join("debug/ziti-operator"))?;
                    Ok(((), String::new()))
                })
                .await
        })
        .await;
    }

    /// Runs cargo, with its output in a log.
    async fn quiet_step(&self, title: &str, args: &[&str]) -> Result<()> {
        let log = self.tally.log(title);
        self.progress
            .step(title, async |step| {
                let mut text = String::new();
                let outcome = build::cargo()?
                    .args(args)
                    .timeout(Duration::from_mins(40))
                    .lines(|_, line| {
                        step.say(line.trim());
                        text.extend([line, "\n"]);
                    });
                std::fs::write(&log, text).with_context(|| format!("writing {}", log.display()))?;
                outcome.with_context(|| format!("all of it is in {}", log.display()))?;
                Ok(((), String::new()))
            })
            .await
    }

    /// Runs the tests of a stage and adds them up.
    async fn tests(
        &mut self,
        title: &str,
        stage: Stage,
        targets: &Targets,
        env: &[(&'static str, String)],
    ) {
        self.attempt(async |run| {
            let Run {
                progress,
                tally,
                filter,
                ..
            } = run;
            progress
                .step(title, async |step| {
                    let summary = tally.run(stage, targets, filter.as_deref(), env, step)?;
                    Ok(((), summary))
                })
                .await
        })
        .await;
    }

    async fn end_to_end(&mut self, targets: &Targets) {
        let Some(operator) = self
            .attempt(async |run| {
                run.progress
                    .step("operator's image", async |step| {
                        Ok((build::operator_image(step)?, String::new()))
                    })
                    .await
            })
            .await
        else {
            return;
        };
        let cluster = self.attempt(async |run| cluster(&run.progress).await).await;
        if let Some(cluster) = cluster {
            let problems = self.problems.len();
            if let Some(environment) = self
                .attempt(async |run| stage(&run.progress, &cluster, &operator).await)
                .await
            {
                let mut variables = environment.variables();
                // They wait more than they work, and take turns where they work.
                variables.push(("RUST_TEST_THREADS", "32".to_owned()));
                self.tests("end-to-end tests", Stage::EndToEnd, targets, &variables)
                    .await;
            }
            if self.problems.len() > problems && !interrupt::is_set() {
                for namespace in DUMPED {
                    output::line(dump::namespace(&cluster.kubeconfig(), namespace));
                }
            }
        }
        // Also after an interruption: nothing may be left running.
        let interrupted = interrupt::is_set();
        interrupt::clear();
        self.attempt(async |run| {
            run.progress
                .step("end the cluster", async |step| {
                    Cluster::down(CLUSTER, step).await?;
                    Ok(((), String::new()))
                })
                .await
        })
        .await;
        if interrupted {
            self.problems.push(anyhow::anyhow!("interrupted"));
        }
    }

    /// Prints times, problems and the sum, which is the last line.
    fn conclude(self) -> bool {
        output::timings(&self.progress);
        if !self.problems.is_empty() {
            output::heading("What failed");
            for problem in &self.problems {
                let cause = problem.chain().nth(1).map(ToString::to_string);
                let cause = cause.as_deref().and_then(|text| text.lines().next());
                output::line(format!("  {problem}: {}", cause.unwrap_or_default()));
            }
        }
        let (passed, mut failed) = self.tally.sum();
        if failed == 0 && !self.problems.is_empty() {
            // A check that is no test (formatting, a build, the cluster) must not read as success.
            failed = self.problems.len();
        }
        output::line(format!("\n{passed} passed, {failed} failed"));
        failed == 0 && passed > 0
    }
}

/// Starts the cluster anew: what an interrupted run left goes first.
async fn cluster(progress: &Progress) -> Result<Cluster> {
    progress
        .step("cluster", async |step| {
            Cluster::down(CLUSTER, step).await?;
            Ok((Cluster::up(CLUSTER, None, step).await?, String::new()))
        })
        .await
}

/// Brings images into the cluster, plays the demo on it as on one that exists already: that
/// installs the operator, and is the test of the README's quickstart. Then a second cluster is started.
async fn stage(progress: &Progress, cluster: &Cluster, operator: &Archive) -> Result<Environment> {
    let environment = progress
        .step("demo on an existing cluster", async |step| {
            let ziti = image::ziti()?;
            for archive in [operator, &ziti.router, &ziti.controller, &image::busybox()?] {
                cluster.import(archive)?;
            }
            let environment = Environment {
                kubeconfig: cluster.kubeconfig(),
                operator_image: operator.reference.clone(),
                router_image: ziti.router.reference,
                controller_image: ziti.controller.reference,
                audit_log: Some(cluster.audit_log()),
                cluster_dir: Some(cluster.dir().to_owned()),
            };
            demo(&environment, step)?;
            Ok((environment, String::new()))
        })
        .await?;
    // When the first has all images.
    cluster_commands::start_second(progress, cluster).await?;
    Ok(environment)
}

fn demo(environment: &Environment, step: &Step) -> Result<()> {
    // Not by its path: the build of the workspace may have put another in its place.
    Cmd::new("/proc/self/exe")
        .args(["demo", "--context", "testbed"])
        .arg("--kubeconfig")
        .arg(&environment.kubeconfig)
        .args(["--operator-image", &environment.operator_image])
        .args(["--router-image", &environment.router_image])
        .args(["--controller-image", &environment.controller_image])
        .timeout(Duration::from_mins(12))
        .lines(|_, line| step.say(line))
        .context("playing the demo")
}
