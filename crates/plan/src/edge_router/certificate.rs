//! How long a router's certificate lasts, and when to say so. Only `status`
//! uses it.
//!
//! A router renews its certificates by itself seven days before they run out,
//! while it is online, on the volume and without a restart: what its pod
//! reported when it started is then out of date. The network shows the
//! certificate that it holds now, in the list that is read anyway; so its word
//! counts. A warning any earlier than that would be raised for every router
//! once a year, for nothing.

use super::Entity;
use crate::conditions::Truth;
use api::edge_router::AgentReport;
use api::reasons;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How long before its end a certificate should have been renewed: the router
/// begins at seven days, and has one for it. Six days are left to act.
pub const RENEWED_BY: SignedDuration = SignedDuration::from_hours(6 * 24);
/// Timers of more than two years cannot be had, and a look costs nothing.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_hours(24);

/// The end of a certificate, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// Of the certificate that the network holds now.
    Present(Timestamp),
    /// Of the one with which the pod started: the router may have renewed it.
    AtStart(Timestamp),
}

impl Expiry {
    /// What the network shows; where it shows no certificate, what the pod says
    /// of the one with the same fingerprint.
    pub(super) fn of(entity: &Entity, agent: Option<&AgentReport>) -> Option<Self> {
        let same = agent
            .filter(|agent| agent.fingerprint.is_some() && agent.fingerprint == entity.fingerprint);
        let reported = same.and_then(|agent| agent.not_after.as_ref());
        entity
            .certificate_expiry
            .or(reported.map(|time| time.0))
            .map(Self::Present)
    }

    /// What the pod says, where no network can be asked.
    pub(super) fn reported(agent: Option<&AgentReport>) -> Option<Self> {
        let time = agent?.not_after.as_ref()?;
        Some(Self::AtStart(time.0))
    }

    pub(super) fn time(self) -> Timestamp {
        match self {
            Self::Present(time) | Self::AtStart(time) => time,
        }
    }

    /// What `CertificateExpiring` says.
    pub(super) fn judge(self, now: Timestamp) -> (Truth, &'static str, String) {
        let time = self.time();
        let left = time.duration_since(now);
        match self {
            _ if left > RENEWED_BY => (
                Truth::False,
                reasons::CERTIFICATE_VALID,
                format!("the router's certificate is valid until {time}"),
            ),
            Self::AtStart(_) => (
                Truth::Unknown,
                reasons::UNKNOWN,
                format!(
                    "the certificate with which the pod started is valid until {time}; whether the router renewed it since, only a network with a credential can tell. A restart of the pod tells as well"
                ),
            ),
            Self::Present(_) if left.is_positive() => (
                Truth::True,
                reasons::CERTIFICATE_EXPIRING,
                format!(
                    "the router's certificate runs out at {time}, and the router should have renewed it: see that it is online and can write its volume, and look for `enroll` in its log"
                ),
            ),
            Self::Present(_) => (
                Truth::True,
                reasons::CERTIFICATE_EXPIRED,
                format!(
                    "the router's certificate ran out at {time}: restart its pod, which then gets a new one"
                ),
            ),
        }
    }

    /// When the judgement may be another.
    pub(super) fn look_again(self, now: Timestamp) -> SignedDuration {
        let left = self.time().duration_since(now);
        let until = [left.saturating_sub(RENEWED_BY), left]
            .into_iter()
            .find(SignedDuration::is_positive);
        until
            .unwrap_or(LOOK_AGAIN)
            .clamp(SignedDuration::from_secs(1), LOOK_AGAIN)
    }
}
