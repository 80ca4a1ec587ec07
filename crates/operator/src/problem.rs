//! Faults of the outside world, in the words of the API.

use crate::ziti_cluster;
use api::reasons;
use kube::core::Status;
use plan::edge_router::Problem;
use snafu::Snafu;
use ziti::management::{ErrorKind, ManagementError};
use ziti::trust::TrustError;

/// What went wrong in a reconcile, beyond what a condition says.
#[derive(Debug, Snafu)]
pub(crate) enum Error {
    /// The Kubernetes API refused or did not answer.
    #[snafu(display("{act} {object}"))]
    Kubernetes {
        /// What was being done.
        act: &'static str,
        /// To what.
        object: String,
        source: Box<kube::Error>,
    },
    /// The same of another cluster.
    #[snafu(display("in ZitiCluster {cluster}: {act} {object}"))]
    Afar {
        /// Name of the `ZitiCluster`.
        cluster: String,
        /// What was being done.
        act: &'static str,
        /// To what.
        object: String,
        source: Box<kube::Error>,
    },
    /// Something the user or the network must mend; told in a condition.
    #[snafu(display("{}: {}", problem.reason, problem.message))]
    Told {
        /// What was told.
        problem: Problem,
    },
}

impl Error {
    /// Wrap a Kubernetes error with the act and the object.
    pub(crate) fn kubernetes(
        act: &'static str,
        object: impl Into<String>,
    ) -> impl FnOnce(kube::Error) -> Self {
        let object = object.into();
        move |source| Self::Kubernetes {
            act,
            object,
            source: Box::new(source),
        }
    }

    /// The same, of another cluster.
    pub(crate) fn in_cluster(self, cluster: &str) -> Self {
        match self {
            Self::Kubernetes {
                act,
                object,
                source,
            } => Self::Afar {
                cluster: cluster.to_owned(),
                act,
                object,
                source,
            },
            other => other,
        }
    }

    /// The answer of a Kubernetes API, where there was one.
    fn status(&self) -> Option<&Status> {
        let (Self::Kubernetes { source, .. } | Self::Afar { source, .. }) = self else {
            return None;
        };
        match source.as_ref() {
            kube::Error::Api(status) => Some(status),
            _ => None,
        }
    }

    /// Whether another cluster did not answer, or does not know us any more: it has
    /// to be looked at anew.
    pub(crate) fn is_of_link(&self) -> bool {
        let refused = self.status().map(|status| status.code);
        matches!(self, Self::Afar { .. }) && matches!(refused, None | Some(401 | 403))
    }

    /// Whether somebody else changed the object meanwhile: look again at once.
    pub(crate) fn is_conflict(&self) -> bool {
        self.status().is_some_and(Status::is_conflict)
    }

    /// Whether the namespace is being deleted and takes nothing new: what was to
    /// be made will be deleted as well, and nobody has to be told.
    pub(crate) fn is_namespace_ending(&self) -> bool {
        let Some(status) = self.status() else {
            return false;
        };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let mut causes = causes.map(|cause| cause.reason.as_str());
        causes.any(|reason| reason == "NamespaceTerminating")
    }

    /// The same in the API's words.
    pub(crate) fn problem(&self) -> Problem {
        match self {
            Self::Told { problem } => problem.clone(),
            Self::Kubernetes {
                act,
                object,
                source,
            } => Problem::new(
                reasons::REFUSED,
                format!("Kubernetes: {act} {object}: {source}; it is tried again"),
            ),
            Self::Afar {
                cluster,
                act,
                object,
                source,
            } => {
                let act = format!("ZitiCluster {cluster}: {act} {object}");
                ziti_cluster::told(&act, source)
            }
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self::Told { problem }
    }
}

/// A fault of the management API.
pub(crate) fn of_management(error: &ManagementError) -> Problem {
    let (reason, advice) = match error.kind() {
        ErrorKind::Unreachable
        | ErrorKind::Timeout
        | ErrorKind::NoLeader
        | ErrorKind::TooManyRequests => (
            reasons::CONTROLLER_UNREACHABLE,
            "it is tried again; running routers are left alone",
        ),
        ErrorKind::NotTrusted => (
            reasons::CONTROLLER_NOT_TRUSTED,
            "check spec.trust, and that the host in spec.managementApi stands in the controller's certificate",
        ),
        ErrorKind::BadCredentials => (
            reasons::BAD_CREDENTIALS,
            "check the Secret named in spec.credential",
        ),
        ErrorKind::Forbidden => (
            reasons::FORBIDDEN,
            "use an admin identity in spec.credential",
        ),
        ErrorKind::NameTaken => (
            reasons::NAME_TAKEN,
            "choose another name, or set spec.namePattern of the ZitiNetwork",
        ),
        ErrorKind::Configuration => (
            reasons::SOURCE_INVALID,
            "check spec.managementApi and the Secret in spec.credential",
        ),
        _ => (reasons::REFUSED, "it is tried again"),
    };
    Problem::new(reason, format!("{}: {advice}", chain(error)))
}

/// A fault in establishing trust with what stands in `source`.
pub(crate) fn of_trust(error: &TrustError, source: &str) -> Problem {
    let (reason, advice) = match error {
        TrustError::IssuerUnreachable { .. } => {
            (reasons::CONTROLLER_UNREACHABLE, "it is tried again")
        }
        TrustError::IssuerNotTrusted { .. }
        | TrustError::SignatureInvalid { .. }
        | TrustError::AlgorithmNotAccepted { .. } => (
            reasons::CONTROLLER_NOT_TRUSTED,
            "check spec.trust, and that it is of this network",
        ),
        _ => (
            reasons::SOURCE_INVALID,
            "put the network's CA certificates (PEM) there, or correct spec.trust",
        ),
    };
    Problem::new(reason, format!("{source}: {}: {advice}", chain(error)))
}

/// An error and everything under it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(next) = source {
        let line = next.to_string();
        if !text.contains(&line) {
            text.push_str(": ");
            text.push_str(&line);
        }
        source = next.source();
    }
    text
}
