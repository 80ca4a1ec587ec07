//! A client that sends a request after another, whatever else happens, and what became of them.
//! Tests that disturb routers while requests flow are in files of their own.

use std::fmt::{Display, Formatter};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, LogParams};
use serde_json::{Value, json};
use testbed::kubernetes;

use crate::data_path::{self, ANSWER};
use crate::stage::{PATIENCE, Stage};

/// The client's pod.
pub(crate) const CLIENT: &str = "client";
/// How many good answers in a row are taken for "all is well".
const IN_A_ROW: usize = 50;

/// A pod that sends up to ten requests a second, one after another, each on a connection of its
/// own and for five seconds at most, and writes a line for each. `connect` is a shell command that joins its input and output
/// with the server.
pub(crate) fn client(connect: &str) -> Value {
    let script = format!(
        "while true; do \
         if printf 'GET / HTTP/1.0\\r\\n\\r\\n' | timeout 5 {connect} | grep -q '{ANSWER}'; \
         then echo good; else echo failed; fi; sleep 0.1; done"
    );
    let container = json!({"name": CLIENT, "image": "docker.io/ziti-testbed/busybox:1",
        "command": ["sh", "-c", script]});
    data_path::pod(CLIENT, container, &json!([]))
}

/// The requests of the client that a stage has.
pub(crate) struct Requests<'a> {
    stage: &'a Stage,
}

impl<'a> Requests<'a> {
    /// Lets the client begin.
    pub(crate) async fn begin(stage: &'a Stage, client: Value) -> Result<Self> {
        stage.apply(client).await?;
        stage.address(CLIENT).await?;
        Ok(Self { stage })
    }

    /// Ends the client and waits until it is gone.
    pub(crate) async fn end(self) -> Result<()> {
        let params = DeleteParams::default();
        self.stage.delete::<Pod>(CLIENT, &params).await?;
        self.stage.until_gone::<Pod>(CLIENT).await
    }

    /// This moment, to count from.
    pub(crate) async fn mark(&self) -> Result<Mark> {
        Ok(Mark(self.answers().await?.len()))
    }

    /// Waits until requests succeed again, and tells how it went since.
    pub(crate) async fn until_well(&self, since: &Mark) -> Result<Tally> {
        kubernetes::poll("requests to succeed again", PATIENCE, async || {
            let all = self.answers().await?;
            let since = all.get(since.0..).unwrap_or_default();
            let well = since.iter().rev().take_while(|good| **good).count();
            Ok((well >= IN_A_ROW).then(|| Tally::of(since)))
        })
        .await
    }

    /// For each request so far, whether it was answered well.
    async fn answers(&self) -> Result<Vec<bool>> {
        let pods = self.stage.api::<Pod>();
        let log = pods.logs(CLIENT, &LogParams::default()).await;
        let log = log.context("reading the client's log")?;
        Ok(log.lines().map(|line| line == "good").collect())
    }
}

/// See [`Requests::mark`].
pub(crate) struct Mark(usize);

/// What became of some requests.
pub(crate) struct Tally {
    total: usize,
    pub(crate) failed: usize,
    /// How many requests after the first that failed the last did.
    apart: usize,
}

impl Tally {
    fn of(answers: &[bool]) -> Self {
        let first = answers.iter().position(|good| !good);
        let last = answers.iter().rposition(|good| !good);
        Self {
            total: answers.len(),
            failed: answers.iter().filter(|good| !**good).count(),
            apart: first.zip(last).map_or(0, |(first, last)| last - first),
        }
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self {
            total,
            failed,
            apart,
        } = self;
        write!(
            f,
            "{failed} of {total} requests failed, the last {apart} requests after the first"
        )
    }
}

/// Waits until so many routers host the service.
pub(crate) async fn until_hosted_by(stage: &Stage, service: &str, hosts: usize) -> Result<()> {
    let what = format!("{hosts} routers to host the service");
    kubernetes::poll(&what, PATIENCE, async || {
        let path = format!("/services/{service}/terminators");
        let terminators = stage.ziti.management.get(&path, &[]).await;
        let terminators = terminators.context("listing terminators")?;
        let mut routers: Vec<&str> = terminators
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|terminator| terminator["routerId"].as_str())
            .collect();
        routers.sort_unstable();
        routers.dedup();
        Ok((routers.len() == hosts).then_some(()))
    })
    .await
}

/// Has requests spread at random over all that host the service: else all may go where nothing
/// happens.
pub(crate) async fn spread(stage: &Stage, service: &str) -> Result<()> {
    let random = json!({"terminatorStrategy": "random"});
    let path = format!("/services/{service}");
    let changed = stage.ziti.management.patch(&path, &random).await;
    changed.context("spreading requests over all hosts")?;
    Ok(())
}
