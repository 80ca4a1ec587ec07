//! What a call to the management API can come to, told apart by what one can do about it.

use std::fmt;

use reqwest::{Method, StatusCode};
use snafu::Snafu;

use crate::http::{Failure, Reply};

/// Which call it was: method and path, below `/edge/management/v1` unless it is of the fabric API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `GET`, `POST`, `PATCH` or `DELETE`.
    pub method: Method,
    /// Path, without parameters.
    pub path: String,
}

impl fmt::Display for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.method, self.path)
    }
}

/// The kinds of [`ManagementError`], for conditions and metric labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No endpoint answers.
    Unreachable,
    /// Somebody answers who is not trusted.
    NotTrusted,
    /// The credential is refused, or there is none.
    BadCredentials,
    /// The session is good and lacks the permission.
    Forbidden,
    /// There is no such entity.
    NotFound,
    /// Another entity has the name.
    NameTaken,
    /// The state of the network does not allow it now.
    Conflict,
    /// No reply in time; a write may have been carried out.
    Timeout,
    /// The controller is busy.
    TooManyRequests,
    /// The cluster has no leader, so it takes no writes.
    NoLeader,
    /// The controller stands alone, and was asked about its cluster.
    NotACluster,
    /// The controller does not accept a value.
    Invalid,
    /// The client was given something it cannot use.
    Configuration,
    /// Anything else.
    Unexpected,
}

/// Why a call failed. Each says which call it was.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum ManagementError {
    /// No connection to any of the endpoints. Nothing was sent.
    #[snafu(display("{call}: cannot reach {endpoint}: {reason}"))]
    Unreachable {
        /// Which call.
        call: Call,
        /// The endpoint tried last.
        endpoint: String,
        /// What happened.
        reason: String,
    },
    /// The server's certificate does not verify under the network's CA bundle.
    #[snafu(display("{call}: the certificate of {endpoint} is not trusted: {reason}"))]
    NotTrusted {
        /// Which call.
        call: Call,
        /// The endpoint.
        endpoint: String,
        /// What TLS said.
        reason: String,
    },
    /// The controller refused the credential. (A member of a cluster that has lost its
    /// volume does this too, until it has caught up.)
    #[snafu(display("{call}: {endpoint} refused the credential ({code})"))]
    BadCredentials {
        /// Which call.
        call: Call,
        /// The endpoint.
        endpoint: String,
        /// Ziti's error code.
        code: String,
    },
    /// The call needs a credential, and the client has none.
    #[snafu(display("{call}: this network has no credential configured"))]
    NoCredential {
        /// Which call.
        call: Call,
    },
    /// The session is valid, and the identity behind it may not do this.
    #[snafu(display("{call}: the identity of the credential lacks the permission"))]
    Forbidden {
        /// Which call.
        call: Call,
    },
    /// The controller says that there is no such entity.
    #[snafu(display("{call}: there is no such entity"))]
    NotFound {
        /// Which call.
        call: Call,
    },
    /// Names of edge, transit and fabric routers are unique together; that of a tunneler is
    /// an identity's as well.
    #[snafu(display("{call}: the name is taken ({reason})"))]
    NameTaken {
        /// Which call.
        call: Call,
        /// Ziti's sentence.
        reason: String,
    },
    /// In use, or in a state that forbids it.
    #[snafu(display("{call}: {code}: {message}"))]
    Conflict {
        /// Which call.
        call: Call,
        /// Ziti's error code.
        code: String,
        /// Ziti's sentence.
        message: String,
    },
    /// The reply did not come. A write may have been carried out: look before repeating it.
    #[snafu(display("{call}: no reply: {reason}"))]
    Timeout {
        /// Which call.
        call: Call,
        /// What happened.
        reason: String,
    },
    /// Too many requests at once, or too many logins.
    #[snafu(display("{call}: the controller is busy ({code})"))]
    TooManyRequests {
        /// Which call.
        call: Call,
        /// Ziti's error code.
        code: String,
    },
    /// The cluster is electing a leader or has lost its quorum.
    #[snafu(display("{call}: the Ziti cluster has no leader"))]
    NoLeader {
        /// Which call.
        call: Call,
    },
    /// The controller has a database of its own (`db`) and no Raft log.
    #[snafu(display("{call}: the controller is not in cluster mode"))]
    NotACluster {
        /// Which call.
        call: Call,
    },
    /// A value that the controller does not accept.
    #[snafu(display("{call}: `{field}` is not accepted: {reason}"))]
    Invalid {
        /// Which call.
        call: Call,
        /// The field, as Ziti calls it; empty where it named none.
        field: String,
        /// Ziti's sentence.
        reason: String,
    },
    /// The client was built from something unusable.
    #[snafu(display("cannot use the configuration of the network: {reason}"))]
    Configuration {
        /// What is wrong.
        reason: String,
    },
    /// An answer that this client does not know.
    #[snafu(display("{call}: unexpected answer, status {status}, code `{code}`: {message}"))]
    Unexpected {
        /// Which call.
        call: Call,
        /// HTTP status.
        status: u16,
        /// Ziti's error code; empty where the body had none.
        code: String,
        /// What was wrong with it.
        message: String,
    },
}

impl ManagementError {
    /// The kind, for conditions and metric labels.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unreachable { .. } => ErrorKind::Unreachable,
            Self::NotTrusted { .. } => ErrorKind::NotTrusted,
            Self::BadCredentials { .. } | Self::NoCredential { .. } => ErrorKind::BadCredentials,
            Self::Forbidden { .. } => ErrorKind::Forbidden,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::NameTaken { .. } => ErrorKind::NameTaken,
            Self::Conflict { .. } => ErrorKind::Conflict,
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::TooManyRequests { .. } => ErrorKind::TooManyRequests,
            Self::NoLeader { .. } => ErrorKind::NoLeader,
            Self::NotACluster { .. } => ErrorKind::NotACluster,
            Self::Invalid { .. } => ErrorKind::Invalid,
            Self::Configuration { .. } => ErrorKind::Configuration,
            Self::Unexpected { .. } => ErrorKind::Unexpected,
        }
    }

    /// Whether a write may have been carried out in spite of the error. A follower may answer
    /// 429 or 503 to what the leader has committed, and a 500 says nothing either way.
    pub fn may_have_committed(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Timeout
                | ErrorKind::TooManyRequests
                | ErrorKind::NoLeader
                | ErrorKind::Unexpected
        )
    }
}

/// What a failed exchange means for `call`.
pub(super) fn from_failure(call: &Call, endpoint: &str, failure: Failure) -> ManagementError {
    let (call, endpoint) = (call.clone(), endpoint.to_owned());
    match failure {
        Failure::Unreachable(reason) => ManagementError::Unreachable {
            call,
            endpoint,
            reason,
        },
        Failure::NotTrusted(reason) => ManagementError::NotTrusted {
            call,
            endpoint,
            reason,
        },
        Failure::ReplyLost(reason) => ManagementError::Timeout { call, reason },
    }
}

/// What a refusal means for `call`; 401 is settled before, in the session.
pub(super) fn from_refusal(call: &Call, reply: &Reply) -> ManagementError {
    let call = call.clone();
    let error = reply.error();
    let cause = error.cause();
    let leaderless = error.is_for_want_of_a_leader();
    let (code, message) = (error.code, error.message);
    // The same fault is a 400 with a field on the leader and a bare 500 on a follower.
    let taken = cause.reason.contains("must be unique")
        || cause.reason.contains("duplicate value")
        || message.contains("duplicate value");
    match (reply.status, code.as_str()) {
        (_, "TIMEOUT") => ManagementError::Timeout {
            call,
            reason: "the controller gave up on it after 10 s".to_owned(),
        },
        _ if leaderless => ManagementError::NoLeader { call },
        (_, "SERVER_NOT_RUNNING_IN_HA_MODE") => ManagementError::NotACluster { call },
        (StatusCode::TOO_MANY_REQUESTS, _) => ManagementError::TooManyRequests { call, code },
        // A 404 without Ziti's code comes from something in between, and means nothing.
        (StatusCode::NOT_FOUND, "NOT_FOUND") => ManagementError::NotFound { call },
        (StatusCode::BAD_REQUEST | StatusCode::INTERNAL_SERVER_ERROR, _) if taken => {
            let reason = if cause.reason.is_empty() {
                message
            } else {
                cause.reason
            };
            ManagementError::NameTaken { call, reason }
        }
        (StatusCode::CONFLICT, _)
        | (
            _,
            "ENTITY_CAN_NOT_BE_UPDATED" | "ENTITY_CAN_NOT_BE_DELETED" | "TRANSFER_LEADERSHIP_ERROR",
        ) => ManagementError::Conflict {
            call,
            code,
            message: with_reason(message, &cause.reason),
        },
        (StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE, _) => {
            let reason = if cause.reason.is_empty() {
                message
            } else {
                cause.reason
            };
            ManagementError::Invalid {
                call,
                field: cause.field.unwrap_or_default(),
                reason,
            }
        }
        (status, _) => ManagementError::Unexpected {
            call,
            status: status.as_u16(),
            code,
            message: with_reason(message, &cause.reason),
        },
    }
}

fn with_reason(message: String, reason: &str) -> String {
    if reason.is_empty() {
        message
    } else {
        format!("{message} ({reason})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderMap;

    fn kind(status: u16, body: &str) -> ErrorKind {
        let call = Call {
            method: Method::POST,
            path: "/edge-routers".to_owned(),
        };
        let reply = Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: body.as_bytes().to_vec(),
        };
        let error = from_refusal(&call, &reply);
        assert!(
            error.to_string().starts_with("POST /edge-routers: "),
            "{error} should name the call"
        );
        error.kind()
    }

    /// Answers that a test cannot provoke at will, in the form in which Ziti sends them.
    #[test]
    fn tells_refusals_apart() {
        let body = |code: &str| format!(r#"{{"error":{{"code":"{code}","message":"m"}}}}"#);
        assert_eq!(kind(503, &body("TIMEOUT")), ErrorKind::Timeout);
        assert_eq!(kind(503, &body("CLUSTER_NO_LEADER")), ErrorKind::NoLeader);
        let hidden = r#"{"error":{"code":"UNHANDLED","message":"m","cause":{"code":"UNHANDLED",
            "message":"could not x: CLUSTER_NO_LEADER: Cluster has no leader"}}}"#;
        assert_eq!(kind(500, hidden), ErrorKind::NoLeader);
        assert_eq!(kind(429, &body("RATE_LIMITED")), ErrorKind::TooManyRequests);
        let alone = body("SERVER_NOT_RUNNING_IN_HA_MODE");
        assert_eq!(kind(400, &alone), ErrorKind::NotACluster);
        let not_now = body("TRANSFER_LEADERSHIP_ERROR");
        assert_eq!(kind(500, &not_now), ErrorKind::Conflict);
        assert_eq!(kind(404, &body("NOT_FOUND")), ErrorKind::NotFound);
        assert_eq!(kind(404, "<html>"), ErrorKind::Unexpected);
        let in_use = body("CAN_NOT_DELETE_REFERENCED_ENTITY");
        assert_eq!(kind(409, &in_use), ErrorKind::Conflict);
        let field = r#"{"error":{"code":"COULD_NOT_VALIDATE","message":"m",
            "cause":{"field":"cost","reason":"too large"}}}"#;
        assert_eq!(kind(400, field), ErrorKind::Invalid);
        let leader = r#"{"error":{"code":"COULD_NOT_VALIDATE","message":"m",
            "cause":{"field":"name","reason":"name must be unique","value":"x"}}}"#;
        assert_eq!(kind(400, leader), ErrorKind::NameTaken);
        let follower = r#"{"error":{"code":"UNHANDLED","message":"m","cause":{"code":"UNHANDLED",
            "message":"duplicate value 'x' in unique index on routers store"}}}"#;
        assert_eq!(kind(500, follower), ErrorKind::NameTaken);
        assert_eq!(kind(500, ""), ErrorKind::Unexpected);
    }
}
