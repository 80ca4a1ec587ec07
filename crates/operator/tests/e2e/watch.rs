//! Rules that must hold all the while: each state that a watch shows is held against them.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use testbed::kubernetes;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::objects::Object;
use crate::stage::PATIENCE;

/// A watch that looks on while a test goes on.
pub(crate) struct Witness {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
}

/// Holds a rule against every state of the objects with these labels, from now on. The rule gets
/// all of them, by name.
pub(crate) async fn witness<K: Object>(
    api: Api<K>,
    labels: &str,
    mut rule: impl FnMut(&BTreeMap<String, K>) -> Result<()> + Send + 'static,
) -> Result<Witness> {
    let (stop, mut stopped) = oneshot::channel();
    let (begun, has_begun) = oneshot::channel();
    let config = watcher::Config::default().labels(labels);
    let task = tokio::spawn(async move {
        let mut begun = Some(begun);
        let mut objects = BTreeMap::new();
        let mut complete = false;
        let mut events = pin!(watcher(api, config).default_backoff());
        loop {
            let event = tokio::select! {
                event = events.next() => event.context("the watch ended")?,
                _ = &mut stopped => return Ok(()),
            };
            // The watch itself goes on after a failure.
            let Ok(event) = event else { continue };
            match event {
                Event::Init => {
                    complete = false;
                    objects.clear();
                }
                Event::InitApply(object) | Event::Apply(object) => {
                    objects.insert(object.name_any(), object);
                }
                Event::Delete(object) => {
                    objects.remove(&object.name_any());
                }
                Event::InitDone => complete = true,
            }
            if complete {
                rule(&objects)?;
                if let Some(begun) = begun.take() {
                    // Nobody may wait for it any more.
                    let _ = begun.send(());
                }
            }
        }
    });
    // Where the rule is broken at once there is no begin; `end` tells.
    let _ = tokio::time::timeout(PATIENCE, has_begun)
        .await
        .context("beginning to watch")?;
    Ok(Witness { stop, task })
}

impl Witness {
    /// Ends the watch; fails where the rule was broken.
    pub(crate) async fn end(self) -> Result<()> {
        drop(self.stop);
        self.task.await.context("watching")?
    }

    /// Watches on for that long; fails at once where the rule is broken.
    pub(crate) async fn end_after(mut self, time: Duration) -> Result<()> {
        match tokio::time::timeout(time, &mut self.task).await {
            Err(_) => self.end().await,
            Ok(ended) => {
                ended.context("watching")??;
                bail!("the watch ended by itself");
            }
        }
    }
}

/// Looks again and again for that long; fails at once where a look does.
pub(crate) async fn always(time: Duration, mut look: impl FnMut() -> Result<()>) -> Result<()> {
    let started = Instant::now();
    let watched = kubernetes::poll("the time to pass", time + PATIENCE, async || {
        look()?;
        Ok((started.elapsed() >= time).then_some(()))
    });
    watched.await
}
