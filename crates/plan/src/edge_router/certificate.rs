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
use crate::conditions::{Conditions, Truth};
use api::edge_router::AgentReport;
use api::reasons::{self, types};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How long before its end a certificate should have been renewed: the router
/// begins at seven days, and has one for it. Six days are left to act.
pub const RENEWED_BY: SignedDuration = SignedDuration::from_hours(6 * 24);
/// Timers of more than two years cannot be had, and a look costs nothing.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_hours(24);

/// Sets `CertificateExpiring`; `None` where there is no certificate, or nobody
/// says. Returns after what time it may be otherwise.
pub(super) fn tell(expiry: Option<Expiry>, conditions: &mut Conditions) -> Option<SignedDuration> {
    let type_ = types::CERTIFICATE_EXPIRING;
    let now = conditions.now();
    if let Some(expiry) = expiry {
        let (truth, reason, message) = expiry.judge(now);
        conditions.set(type_, truth, reason, message);
    } else if conditions.get(type_).is_some() {
        let message = "the router has no certificate now";
        conditions.set(type_, Truth::Unknown, reasons::PENDING, message);
    }
    expiry.map(|expiry| expiry.look_again(now))
}

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
    fn judge(self, now: Timestamp) -> (Truth, &'static str, String) {
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
    fn look_again(self, now: Timestamp) -> SignedDuration {
        let left = self.time().duration_since(now);
        let until = [left.saturating_sub(RENEWED_BY), left]
            .into_iter()
            .find(SignedDuration::is_positive);
        until
            .unwrap_or(LOOK_AGAIN)
            .clamp(SignedDuration::from_secs(1), LOOK_AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn now() -> Timestamp {
        Timestamp::from_second(1_000_000).unwrap()
    }

    fn in_hours(hours: i64) -> Timestamp {
        now() + SignedDuration::from_hours(hours)
    }

    fn judged(expiry: Expiry) -> (Truth, &'static str) {
        let (truth, reason, message) = expiry.judge(now());
        assert!(message.contains(&expiry.time().to_string()), "{message}");
        (truth, reason)
    }

    #[test]
    fn it_warns_when_a_renewal_is_overdue_and_not_before() {
        let valid = (Truth::False, reasons::CERTIFICATE_VALID);
        let expiring = (Truth::True, reasons::CERTIFICATE_EXPIRING);
        let expired = (Truth::True, reasons::CERTIFICATE_EXPIRED);
        for (hours, wanted) in [
            (365 * 24, valid),
            // The router renews at this moment.
            (7 * 24, valid),
            (6 * 24, expiring),
            (1, expiring),
            (0, expired),
            (-1, expired),
        ] {
            assert_eq!(judged(Expiry::Present(in_hours(hours))), wanted, "{hours}");
        }
    }

    #[test]
    fn a_report_that_a_renewal_may_have_overtaken_is_no_alarm() {
        let at_start = |hours| judged(Expiry::AtStart(in_hours(hours)));
        assert_eq!(at_start(7 * 24).0, Truth::False);
        assert_eq!(at_start(24), (Truth::Unknown, reasons::UNKNOWN));
        assert_eq!(at_start(-24), (Truth::Unknown, reasons::UNKNOWN));
    }

    #[test]
    fn the_network_knows_of_a_renewal_that_the_pod_has_not_reported() {
        let agent = AgentReport {
            fingerprint: Some("old".into()),
            not_after: Some(Time(in_hours(1))),
            ..AgentReport::default()
        };
        let mut entity = Entity {
            fingerprint: Some("new".into()),
            ..Entity::default()
        };
        assert_eq!(Expiry::of(&entity, Some(&agent)), None);
        entity.certificate_expiry = Some(in_hours(9000));
        let renewed = Expiry::Present(in_hours(9000));
        assert_eq!(Expiry::of(&entity, Some(&agent)), Some(renewed));
        // Where the network does not show the certificate, the same fingerprint is the same one.
        entity.certificate_expiry = None;
        entity.fingerprint = Some("old".into());
        let reported = Expiry::Present(in_hours(1));
        assert_eq!(Expiry::of(&entity, Some(&agent)), Some(reported));
        assert_eq!(Expiry::of(&Entity::default(), None), None);
    }

    #[test]
    fn it_looks_again_when_the_judgement_changes_and_once_a_day() {
        let again = |hours| Expiry::Present(in_hours(hours)).look_again(now());
        assert_eq!(again(9000), LOOK_AGAIN);
        assert_eq!(again(6 * 24 + 2), SignedDuration::from_hours(2));
        assert_eq!(again(3), SignedDuration::from_hours(3));
        assert_eq!(again(-3), LOOK_AGAIN);
    }
}
