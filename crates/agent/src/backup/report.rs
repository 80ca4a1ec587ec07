//! How a backup or a restore ended: one line of JSON, which the kubelet takes from the termination log
//! into the status of the pod, and the operator from there. It holds no secret in the clear.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

/// As long as a line about a backup may be, in bytes.
const LONGEST: usize = crate::report::MAX_LENGTH;
/// What the kubelet keeps of a termination message: the pod of a restore has but one container.
pub(super) const LONGEST_FETCHED: usize = 4096;

/// Why it failed: a closed list, stable for those who read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Reason {
    /// There is no backup of that name, or of that network.
    NoBackup,
    /// The bucket does not answer.
    Unreachable,
    /// The volume or the bucket refuses.
    AccessDenied,
    /// The identity is of none of the recipients.
    CannotDecrypt,
    /// The file is not whole, or not what it says.
    Damaged,
    /// It is the backup of another network.
    OtherNetwork,
    /// No member of the network answers.
    MembersUnreachable,
    /// Members answer, and none gives a snapshot.
    NotReady,
    /// A volume is full.
    NoSpace,
    /// Something that a person wrote cannot be used.
    Misconfigured,
    /// The pod is being stopped.
    Interrupted,
}

/// Why it failed, for programs and for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// For programs.
    pub reason: Reason,
    /// A sentence for people.
    pub message: String,
}

impl Failure {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { reason, message }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

/// A backup was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Saved {
    /// The name of its file.
    pub snapshot: String,
    /// Its size, encrypted.
    pub bytes: u64,
    /// When the database was taken.
    pub taken_at: Timestamp,
    /// How many backups of this network there are now.
    pub kept: usize,
    /// What did not go as it should, although the backup is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A backup was got back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fetched {
    /// The name of its file.
    pub snapshot: String,
    /// When its database was taken.
    pub taken_at: Timestamp,
    /// Of the network.
    pub trust_domain: String,
    /// Lowercase hex, of the database that is on the volume now.
    pub database_sha256: String,
    /// [`ziti::backup::Keys`], sealed.
    pub keys: String,
}

/// The line itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome")]
pub enum Report {
    /// A backup was made.
    Saved(Saved),
    /// A backup was got back.
    Fetched(Fetched),
    /// Neither.
    Failed(Failure),
}

impl Report {
    /// Whether there is nothing to show for it.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    /// The line, without a line break, of at most 1024 bytes (with keys: 4096): the message gives way.
    pub fn to_line(&self) -> String {
        let mut report = self.clone();
        loop {
            let line = serde_json::to_string(&report).unwrap_or_default();
            let message = match &mut report {
                Self::Failed(failure) => &mut failure.message,
                Self::Saved(Saved {
                    message: Some(message),
                    ..
                }) => message,
                // The keys were sealed to fit.
                _ => return line,
            };
            if line.len() <= LONGEST || message.is_empty() {
                return line;
            }
            // What is escaped takes more than it is long.
            let keep = message.chars().count() * 3 / 4;
            *message = message.chars().take(keep).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_what_the_operator_reads() {
        let saved = Saved {
            snapshot: "ns.net.20300101T000000Z.tar.age".to_owned(),
            bytes: 5,
            taken_at: Timestamp::UNIX_EPOCH,
            kept: 2,
            message: None,
        };
        assert_eq!(
            Report::Saved(saved).to_line(),
            r#"{"outcome":"Saved","snapshot":"ns.net.20300101T000000Z.tar.age","bytes":5,"takenAt":"1970-01-01T00:00:00Z","kept":2}"#
        );
        let fetched = Fetched {
            snapshot: "a".to_owned(),
            taken_at: Timestamp::UNIX_EPOCH,
            trust_domain: "b".to_owned(),
            database_sha256: "c".to_owned(),
            keys: "d".to_owned(),
        };
        assert_eq!(
            Report::Fetched(fetched).to_line(),
            r#"{"outcome":"Fetched","snapshot":"a","takenAt":"1970-01-01T00:00:00Z","trustDomain":"b","databaseSha256":"c","keys":"d"}"#
        );
        let failure = Failure::new(Reason::NoSpace, "full");
        assert_eq!(
            Report::Failed(failure).to_line(),
            r#"{"outcome":"Failed","reason":"NoSpace","message":"full"}"#
        );
    }

    #[test]
    fn a_long_message_gives_way() {
        for message in ["x".repeat(5000), "\u{1}".repeat(3000), "ü".repeat(1100)] {
            let line = Report::Failed(Failure::new(Reason::Damaged, message)).to_line();
            assert!(line.len() <= LONGEST, "{} bytes", line.len());
            assert!(line.contains("Damaged") && line.ends_with('}'));
        }
    }
}
