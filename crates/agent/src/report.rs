//! How a run ended: one line of JSON, which the kubelet takes from the termination log into the
//! status of the container, and the operator from there. It never holds a token or a key.

use jiff::Timestamp;
use serde::Serialize;

/// What the kubelet keeps of a termination message is 4 KiB for all containers of a pod; one
/// kibibyte leaves room for the others.
pub const MAX_LENGTH: usize = 1024;

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// A token was redeemed.
    Enrolled,
    /// The identity was there, is sound, and stays: nobody asked for another, or none was to be had.
    AlreadyEnrolled,
    /// There is no identity to start a router with.
    Failed,
}

/// Why it failed: a closed list, stable for those who read it. `docs/enrollment.md` has a row for
/// each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(clap::ValueEnum))]
pub enum Reason {
    /// There is no identity on the volume, and no token to get one with.
    TokenMissing,
    /// The token is no enrollment token.
    TokenMalformed,
    /// The token is one, but not for a router.
    TokenWrongKind,
    /// Redeemed before, or replaced by a newer one.
    TokenSpent,
    /// Not redeemed in time.
    TokenExpired,
    /// The controller does not accept it.
    TokenRefused,
    /// The volume holds the identity of another router.
    IdentityMismatch,
    /// The identity's certificate has run out, and there is no token to get another.
    IdentityExpired,
    /// The controller did not answer, or had no leader, for as long as was allowed.
    ControllerUnreachable,
    /// The controller that answered is not the one that made the token, or not of the network.
    ControllerNotTrusted,
    /// The controller does not sign certificates with these names.
    CsrRefused,
    /// A name for the certificate that no certificate can hold.
    NamesInvalid,
    /// The certificate lacks a name that it must hold, and no other was to be had.
    NamesMissing,
    /// The list of the certificate's names cannot be read.
    NamesUnreadable,
    /// Nobody says where the controllers are.
    EndpointsMissing,
    /// The CA bundle of the network cannot be read.
    CaBundleInvalid,
    /// The volume cannot be read or written.
    VolumeNotWritable,
    /// The controller refused in some other way.
    EnrollmentRejected,
    /// The reply was lost or unusable: the token may be spent.
    ReplyLost,
    /// The pod is being stopped.
    Interrupted,
}

impl Reason {
    /// What a person, or the operator on its behalf, is to do next.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::TokenMissing | Self::IdentityExpired => "provide an enrollment token",
            Self::TokenMalformed | Self::TokenWrongKind => {
                "provide the JWT of an edge router (`enrollmentJwt`) as it is"
            }
            Self::TokenSpent | Self::TokenExpired | Self::ReplyLost => {
                "re-enroll the edge router on the network and provide its new token"
            }
            Self::TokenRefused | Self::EnrollmentRejected => {
                "look at the log of the Ziti controller"
            }
            Self::IdentityMismatch => {
                "delete the volume, or give the token to the router that it names"
            }
            Self::ControllerUnreachable => {
                "check that the controller runs and is reachable from this pod; the next start tries again"
            }
            Self::ControllerNotTrusted => {
                "check that token and CA bundle belong to the same network"
            }
            Self::CsrRefused | Self::NamesInvalid => "check the names of the certificate",
            Self::NamesMissing => {
                "check that a controller is reachable from this pod, or have the router re-enrolled, or take the change of its names back"
            }
            Self::NamesUnreadable => {
                "check that the ConfigMap that the pod mounts is there; the operator writes it"
            }
            Self::EndpointsMissing => "state the control plane endpoints of the network",
            Self::CaBundleInvalid => "mend the CA bundle of the network",
            Self::VolumeNotWritable => "make the volume writable for the user of this container",
            Self::Interrupted => "nothing, the pod was being stopped",
        }
    }
}

/// The line itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// Why, where it failed. With [`Outcome::AlreadyEnrolled`]: why the new token was not redeemed,
    /// for which the router was to be enrolled anew; nothing failed where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// A sentence for people, with what to do next.
    pub message: String,
    /// The router's id, of the identity, or of the token where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_id: Option<String>,
    /// Fingerprint of the identity, as the network shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// When the identity runs out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
    /// Which token was there, redeemed or not: the start of its SHA-256. Where none was, the one
    /// that the identity was made with, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_digest: Option<String>,
}

impl Report {
    /// The line, without a line break, of at most [`MAX_LENGTH`] bytes: the message gives way.
    pub fn to_line(&self) -> String {
        let mut report = self.clone();
        loop {
            let line = serde_json::to_string(&report).unwrap_or_default();
            if line.len() <= MAX_LENGTH || report.message.is_empty() {
                return line;
            }
            let keep = report.message.chars().count() * 3 / 4;
            let mut message: String = report.message.chars().take(keep).collect();
            if !message.is_empty() {
                message.push('…');
            }
            if message.chars().count() >= report.message.chars().count() {
                message.clear();
            }
            report.message = message;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(message: &str) -> Report {
        Report {
            outcome: Outcome::Failed,
            reason: Some(Reason::TokenSpent),
            message: message.to_owned(),
            router_id: Some("r1".to_owned()),
            fingerprint: None,
            not_after: Some(Timestamp::UNIX_EPOCH),
            token_digest: Some("0123456789abcdef".to_owned()),
        }
    }

    #[test]
    fn the_line_is_what_the_operator_reads() {
        assert_eq!(
            report("gone").to_line(),
            r#"{"outcome":"Failed","reason":"TokenSpent","message":"gone","routerId":"r1","notAfter":"1970-01-01T00:00:00Z","tokenDigest":"0123456789abcdef"}"#
        );
    }

    #[test]
    fn each_reason_is_explained() {
        use clap::ValueEnum;
        let text = include_str!("../../../docs/enrollment.md");
        for reason in Reason::value_variants() {
            let row = format!("| `{reason:?}` |");
            assert!(text.contains(&row), "docs/enrollment.md has no row {row}");
        }
    }

    #[test]
    fn a_long_message_gives_way() {
        for message in ["x".repeat(5000), "\u{1}".repeat(3000), "ü".repeat(1100)] {
            let line = report(&message).to_line();
            assert!(line.len() <= MAX_LENGTH, "{} bytes", line.len());
            assert!(line.contains("TokenSpent") && line.ends_with('}'));
        }
    }
}
