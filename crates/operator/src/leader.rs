//! One of several replicas works at a time: the one that holds the Lease.
//!
//! Kubernetes fences nothing, and Ziti knows no fencing token either. So the
//! holder counts by its own monotonic clock how long it may still be sure of
//! the Lease, and starts no write to Ziti that could outlast it
//! ([`Leadership::may_write`]). Losing the Lease ends the process.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long a Lease lasts without renewal.
const DURATION: Duration = Duration::from_secs(20);
/// How often it is renewed, or looked at.
const PERIOD: Duration = Duration::from_secs(4);
/// The longest that one write to Ziti may take.
const LONGEST_WRITE: Duration = Duration::from_secs(10);

/// Whether this process may work, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Leadership {
    /// Until when the Lease is surely ours; `None` where no Lease is used.
    until: Option<Arc<Mutex<Instant>>>,
}

impl Leadership {
    /// Work without a Lease: for a process that is surely alone.
    pub(crate) fn alone() -> Self {
        Self { until: None }
    }

    /// Whether a write to Ziti that begins now surely ends within the Lease.
    pub(crate) fn may_write(&self) -> bool {
        match &self.until {
            None => true,
            Some(until) => until
                .lock()
                .is_ok_and(|until| Instant::now() + LONGEST_WRITE < *until),
        }
    }

    fn renewed(&self, at: Instant) {
        if let Some(until) = &self.until
            && let Ok(mut until) = until.lock()
        {
            *until = at + DURATION;
        }
    }

    fn is_over(&self) -> bool {
        self.until
            .as_ref()
            .is_some_and(|until| until.lock().is_ok_and(|until| Instant::now() >= *until))
    }
}

/// What to do about a Lease as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Take or renew it.
    Take,
    /// Another holds it.
    Wait,
}

/// Decide about a Lease. `unchanged_for` is how long, by our own clock, it has
/// not been renewed: the times that stand in it are of another machine's clock.
fn judge(spec: Option<&LeaseSpec>, me: &str, unchanged_for: Duration) -> Verdict {
    let holder = spec
        .and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default();
    let lasts = spec
        .and_then(|spec| spec.lease_duration_seconds)
        .and_then(|s| u64::try_from(s).ok())
        .unwrap_or(0);
    if holder.is_empty() || holder == me || unchanged_for >= Duration::from_secs(lasts) {
        Verdict::Take
    } else {
        Verdict::Wait
    }
}

/// The Lease of this installation.
pub(crate) struct Candidate {
    api: Api<Lease>,
    lease: String,
    me: String,
}

impl Candidate {
    /// For the Lease of this name; `me` is the name under which it is held.
    pub(crate) fn new(client: kube::Client, namespace: &str, lease: String, me: String) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            lease,
            me,
        }
    }

    /// Wait until the Lease is ours.
    pub(crate) async fn acquire(&self) -> Result<Leadership> {
        let mut seen: Option<(Option<LeaseSpec>, Instant)> = None;
        let mut told = false;
        loop {
            let started = Instant::now();
            let lease = self
                .api
                .get_opt(&self.lease)
                .await
                .with_context(|| format!("reading the Lease {}", self.lease))?;
            let spec = lease.as_ref().and_then(|lease| lease.spec.clone());
            let since = match &seen {
                Some((before, since)) if *before == spec => *since,
                _ => started,
            };
            seen = Some((spec.clone(), since));
            if judge(spec.as_ref(), &self.me, since.elapsed()) == Verdict::Take
                && self.write(lease, true).await?
            {
                info!(identity = %self.me, "holds the Lease");
                let leadership = Leadership {
                    until: Some(Arc::new(Mutex::new(started + DURATION))),
                };
                return Ok(leadership);
            }
            if !told {
                let holder = spec
                    .and_then(|spec| spec.holder_identity)
                    .unwrap_or_default();
                info!(%holder, "another replica holds the Lease; waiting");
                told = true;
            }
            tokio::time::sleep(PERIOD / 2).await;
        }
    }

    /// Renew until it is lost. Returns only with an error.
    pub(crate) async fn hold(&self, leadership: &Leadership) -> Result<()> {
        loop {
            tokio::time::sleep(PERIOD).await;
            let started = Instant::now();
            match self.renew().await {
                Ok(true) => leadership.renewed(started),
                Ok(false) => bail!("another replica took the Lease"),
                Err(error) => warn!(
                    error = format!("{error:#}"),
                    "the Lease could not be renewed"
                ),
            }
            if leadership.is_over() {
                bail!("the Lease ran out");
            }
        }
    }

    /// Let another replica have it at once.
    pub(crate) async fn release(&self) {
        let Ok(Some(mut lease)) = self.api.get_opt(&self.lease).await else {
            return;
        };
        if lease
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.as_deref())
            != Some(&self.me)
        {
            return;
        }
        if let Some(spec) = lease.spec.as_mut() {
            spec.holder_identity = None;
        }
        if let Err(error) = self
            .api
            .replace(&self.lease, &PostParams::default(), &lease)
            .await
        {
            warn!(%error, "the Lease could not be released");
        }
    }

    async fn renew(&self) -> Result<bool> {
        let lease = self
            .api
            .get_opt(&self.lease)
            .await
            .with_context(|| format!("reading the Lease {}", self.lease))?;
        match judge(
            lease.as_ref().and_then(|lease| lease.spec.as_ref()),
            &self.me,
            Duration::ZERO,
        ) {
            Verdict::Take => self.write(lease, false).await,
            Verdict::Wait => Ok(false),
        }
    }

    /// Write ourselves into the Lease. False when somebody was faster.
    async fn write(&self, lease: Option<Lease>, acquired: bool) -> Result<bool> {
        let now = MicroTime(Timestamp::now());
        let exists = lease.is_some();
        let mut lease = lease.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.lease.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        let spec = lease.spec.get_or_insert_default();
        if acquired && spec.holder_identity.as_deref() != Some(&self.me) {
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + 1);
            spec.acquire_time = Some(now.clone());
        }
        spec.holder_identity = Some(self.me.clone());
        spec.lease_duration_seconds = i32::try_from(DURATION.as_secs()).ok();
        spec.renew_time = Some(now);
        let written = if exists {
            self.api
                .replace(&self.lease, &PostParams::default(), &lease)
                .await
        } else {
            self.api.create(&PostParams::default(), &lease).await
        };
        match written {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                Ok(false)
            }
            Err(error) => Err(error).with_context(|| format!("writing the Lease {}", self.lease)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(20),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_is_taken_when_free_ours_or_silent_for_its_whole_length() {
        assert_eq!(judge(None, "me", Duration::ZERO), Verdict::Take);
        assert_eq!(
            judge(Some(&held_by("me")), "me", Duration::ZERO),
            Verdict::Take
        );
        assert_eq!(
            judge(Some(&held_by("you")), "me", Duration::from_secs(19)),
            Verdict::Wait
        );
        assert_eq!(
            judge(Some(&held_by("you")), "me", Duration::from_secs(20)),
            Verdict::Take
        );
    }

    #[test]
    fn no_write_begins_that_could_outlast_the_lease() {
        let leadership = Leadership {
            until: Some(Arc::new(Mutex::new(
                Instant::now() + Duration::from_secs(5),
            ))),
        };
        assert!(!leadership.may_write());
        leadership.renewed(Instant::now());
        assert!(leadership.may_write());
    }
}
