//! What to do about the identity of a router: keep it, replace it, or get one.
//!
//! Who publishes a token to a router that has an identity means that the router shall have a new
//! one. So what happens is decided by the two together ([`Course`]); without a token, or with the
//! one that the identity was made with, a sound identity is kept and nobody is asked. An identity
//! that still serves is given up for a better one only: where its own router's token cannot be
//! redeemed, it stays. Whether a *token* has expired is for the controller to say; this clock is
//! not asked.
//!
//! How an identity is got is in [`acquire`]. Called by the program, through [`enroll`].

mod acquire;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use jiff::Timestamp;
use snafu::{ResultExt, Snafu};
use tokio::sync::watch;
use tracing::{info, warn};
use ziti::enroll::EnrollError;
use ziti::pki::Sans;
use ziti::token::{EnrollmentToken, TokenError};
use ziti::trust::TrustError;

use self::acquire::{acquire, endpoints};
use crate::disk::Disk;
use crate::names::{self, NamesError};
use crate::report::{Outcome, Reason, Report};
use crate::volume::{Found, Identity, Volume, VolumeError};

/// Deadline of each exchange with the controller.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What to do when the volume holds the identity of another router than the token's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnMismatch {
    /// Keep it and fail: a volume may have been given to the wrong pod.
    Refuse,
    /// Keep it aside and enroll anew.
    Replace,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// Where the identity is, or goes.
    pub identity_dir: PathBuf,
    /// Where the token is, if there is one.
    pub token_file: PathBuf,
    /// Names of the router's server certificate.
    pub sans: Sans,
    /// A file with more of them, one a line.
    pub names_file: Option<PathBuf>,
    /// Addresses of the controllers in place of those in the token.
    pub endpoints: Vec<String>,
    /// See [`OnMismatch`].
    pub on_mismatch: OnMismatch,
    /// CA bundle of the network that the token must belong to.
    pub ca_file: Option<PathBuf>,
    /// How long to go on while the controller cannot be reached.
    pub retry_for: Duration,
}

/// Why there is no identity to start a router with.
#[derive(Debug, Snafu)]
enum Failure {
    #[snafu(display("there is no enrollment token in {} ({why})", path.display()))]
    TokenMissing { path: PathBuf, why: String },
    #[snafu(display("{source}"))]
    TokenMalformed { source: TokenError },
    #[snafu(display(
        "the volume holds the identity of router {present}, the token is for {wanted}"
    ))]
    IdentityMismatch { present: String, wanted: String },
    #[snafu(display("the identity's certificate ran out at {not_after}"))]
    IdentityExpired { not_after: Timestamp },
    #[snafu(display("cannot read the names of the certificate from {}: {source}", path.display()))]
    NamesFile {
        path: PathBuf,
        source: std::io::Error,
    },
    #[snafu(display("{source}"))]
    Names { source: NamesError },
    #[snafu(display("neither the token nor the network says where the controllers are"))]
    EndpointsMissing,
    #[snafu(display("cannot read {}: {source}", path.display()))]
    CaFile {
        path: PathBuf,
        source: std::io::Error,
    },
    #[snafu(display("{}: {source}", path.display()))]
    CaBundle { path: PathBuf, source: TrustError },
    #[snafu(display("{source}"))]
    Enroll { source: EnrollError },
    #[snafu(display("stopped while waiting for the controller ({source})"))]
    Interrupted { source: EnrollError },
    #[snafu(display("{source}: {}", root_cause(source)))]
    Volume { source: VolumeError },
}

impl Failure {
    fn reason(&self) -> Reason {
        match self {
            Self::TokenMissing { .. } => Reason::TokenMissing,
            Self::TokenMalformed { .. } => Reason::TokenMalformed,
            Self::IdentityMismatch { .. } => Reason::IdentityMismatch,
            Self::IdentityExpired { .. } => Reason::IdentityExpired,
            Self::Names { .. } => Reason::NamesMissing,
            Self::NamesFile { .. } => Reason::NamesUnreadable,
            Self::EndpointsMissing => Reason::EndpointsMissing,
            Self::CaFile { .. } | Self::CaBundle { .. } => Reason::CaBundleInvalid,
            Self::Volume { .. } => Reason::VolumeNotWritable,
            Self::Interrupted { .. } => Reason::Interrupted,
            Self::Enroll { source } => match source {
                EnrollError::WrongMethod { .. } => Reason::TokenWrongKind,
                EnrollError::IssuerUnreachable { .. } => Reason::ControllerUnreachable,
                EnrollError::IssuerNotTrusted { .. }
                | EnrollError::SignatureInvalid { .. }
                | EnrollError::Connection { .. } => Reason::ControllerNotTrusted,
                EnrollError::TokenSpent => Reason::TokenSpent,
                EnrollError::TokenExpired => Reason::TokenExpired,
                EnrollError::TokenRefused { .. } => Reason::TokenRefused,
                EnrollError::CsrRefused { .. } => Reason::CsrRefused,
                EnrollError::Prepare { .. } => Reason::NamesInvalid,
                EnrollError::ReplyLost { .. } | EnrollError::BadReply { .. } => Reason::ReplyLost,
                _ => Reason::EnrollmentRejected,
            },
        }
    }
}

/// What is known of the identity, for the report of a failure.
#[derive(Default)]
struct Known {
    identity: Option<Identity>,
    router_id: Option<String>,
    token_digest: Option<String>,
}

/// Makes sure that there is an identity, and says how it went. `stop` turns true when the process
/// is asked to end: then it waits for no controller any more.
pub async fn enroll<D: Disk>(request: &Request, disk: D, stop: watch::Receiver<bool>) -> Report {
    let volume = Volume::new(&request.identity_dir, disk);
    let mut known = Known::default();
    let enrolled = match read_names(request) {
        Ok(request) => enrolled(&request, &volume, &mut known, stop).await,
        Err(failure) => Err(failure),
    };
    match enrolled {
        Ok(report) => report,
        Err(failure) => {
            let reason = failure.reason();
            Report {
                outcome: Outcome::Failed,
                reason: Some(reason),
                message: format!("{failure}; {}", reason.advice()),
                router_id: known.router_id,
                fingerprint: known.identity.as_ref().map(|i| i.fingerprint.clone()),
                not_after: known.identity.map(|identity| identity.not_after),
                token_digest: known.token_digest,
            }
        }
    }
}

/// An identity, whose certificate holds the names that it must, and the
/// addresses of the controllers.
async fn enrolled<D: Disk>(
    request: &Request,
    volume: &Volume<D>,
    known: &mut Known,
    stop: watch::Receiver<bool>,
) -> Result<Report, Failure> {
    let mut report = decide(request, volume, known, stop).await?;
    if !request.endpoints.is_empty() {
        let given = endpoints(request, None)?;
        if volume.take_endpoints(&given).context(VolumeSnafu)? {
            info!(endpoints = ?given, "the controllers' addresses are those of the network now");
        }
    }
    if let Found::Sound(identity) = volume.inspect().context(VolumeSnafu)? {
        let extended = names::provide(&request.sans, &identity, volume, TIMEOUT).await;
        if let Some(extended) = extended.context(NamesSnafu)? {
            report.fingerprint = Some(extended.fingerprint);
            report.not_after = Some(extended.not_after);
            report.message = format!("{}; its certificates hold other names now", report.message);
        }
    }
    Ok(report)
}

/// The request with the names of the file, if one is given.
fn read_names(request: &Request) -> Result<Request, Failure> {
    let mut request = request.clone();
    if let Some(path) = &request.names_file {
        let text = std::fs::read_to_string(path).context(NamesFileSnafu { path })?;
        names::add(&mut request.sans, &text);
    }
    Ok(request)
}

/// What a sound identity and the token beside it make of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    /// The identity stays as it is.
    Keep,
    /// A new token for the same router: a new identity, or else the old one.
    Renew,
    /// A new identity, or none: the old one is of no use.
    Replace,
    /// The identity is of another router, and is not to be replaced.
    Mismatch,
    /// The identity has run out, and there is no token.
    Expired,
}

/// The facts of a token that matter here.
#[derive(Clone, Copy)]
struct Offer<'a> {
    subject: &'a str,
    digest: &'a str,
}

fn course(
    identity: &Identity,
    offer: Option<Offer<'_>>,
    on_mismatch: OnMismatch,
    now: Timestamp,
) -> Course {
    let expired = identity.not_after < now;
    match offer {
        None if expired => Course::Expired,
        None => Course::Keep,
        Some(offer) if offer.subject != identity.id => match on_mismatch {
            OnMismatch::Refuse => Course::Mismatch,
            OnMismatch::Replace => Course::Replace,
        },
        Some(_) if expired => Course::Replace,
        Some(offer) if identity.token_digest.as_deref() == Some(offer.digest) => Course::Keep,
        Some(_) => Course::Renew,
    }
}

async fn decide<D: Disk>(
    request: &Request,
    volume: &Volume<D>,
    known: &mut Known,
    stop: watch::Receiver<bool>,
) -> Result<Report, Failure> {
    volume.recover().context(VolumeSnafu)?;
    let token = read_token(&request.token_file);
    if let Ok(token) = &token {
        known.token_digest = Some(token.digest().to_owned());
        known.router_id = Some(token.subject().to_owned());
    }
    let identity = match volume.inspect().context(VolumeSnafu)? {
        Found::Sound(identity) => identity,
        Found::Nothing => {
            info!("there is no identity on the volume");
            return acquire(request, volume, &token?, None, stop).await;
        }
        Found::Unsound(why) => {
            warn!(why, "the identity on the volume is not sound");
            return acquire(request, volume, &token?, None, stop).await;
        }
    };
    known.router_id = Some(identity.id.clone());
    known.identity = Some(identity.clone());
    known.token_digest = known.token_digest.take().or(identity.token_digest.clone());
    let offer = token.as_ref().ok().map(|token| Offer {
        subject: token.subject(),
        digest: token.digest(),
    });
    let course = course(&identity, offer, request.on_mismatch, Timestamp::now());
    info!(
        ?course,
        router_id = identity.id,
        fingerprint = identity.fingerprint,
        not_after = %identity.not_after,
        token_digest = identity.token_digest,
        "there is an identity on the volume"
    );
    match course {
        Course::Keep => keep(request, volume, identity, token),
        Course::Renew => renew(request, volume, identity, &token?, stop).await,
        Course::Replace => acquire(request, volume, &token?, Some(&identity), stop).await,
        Course::Mismatch => IdentityMismatchSnafu {
            present: identity.id,
            wanted: token?.subject(),
        }
        .fail(),
        Course::Expired => {
            let not_after = identity.not_after;
            IdentityExpiredSnafu { not_after }.fail()
        }
    }
}

/// The identity stays. Only the addresses of the controllers may be missing.
fn keep<D: Disk>(
    request: &Request,
    volume: &Volume<D>,
    identity: Identity,
    token: Result<EnrollmentToken, Failure>,
) -> Result<Report, Failure> {
    if let Err(failure @ Failure::TokenMalformed { .. }) = &token {
        warn!(%failure, "the token is left alone");
    }
    let token = token.ok();
    // What the network says comes before what an earlier deployment has left.
    let known = identity.has_endpoints
        || (request.endpoints.is_empty() && volume.take_over_endpoints().context(VolumeSnafu)?);
    if !known {
        let endpoints = endpoints(request, token.as_ref())?;
        info!(?endpoints, "writing the addresses of the controllers");
        volume.write_endpoints(&endpoints).context(VolumeSnafu)?;
    }
    let message = format!(
        "the volume holds a sound identity of router {}",
        identity.id
    );
    Ok(kept(identity, message))
}

/// A new identity for the same router, or else the old one. Only a volume that cannot be written
/// is a failure: nothing says any more that the old one is whole.
async fn renew<D: Disk>(
    request: &Request,
    volume: &Volume<D>,
    identity: Identity,
    token: &EnrollmentToken,
    stop: watch::Receiver<bool>,
) -> Result<Report, Failure> {
    let failure = match acquire(request, volume, token, Some(&identity), stop).await {
        Ok(report) => return Ok(report),
        Err(failure @ Failure::Volume { .. }) => return Err(failure),
        Err(failure) => failure,
    };
    let reason = failure.reason();
    warn!(
        ?reason,
        error = %failure,
        token_digest = token.digest(),
        "the new token was not redeemed; the identity on the volume stays"
    );
    if !identity.has_endpoints {
        let endpoints = endpoints(request, Some(token))?;
        volume.write_endpoints(&endpoints).context(VolumeSnafu)?;
    }
    let message = format!(
        "the volume keeps its sound identity of router {}, since the new token was not redeemed: \
         {failure}; {}",
        identity.id,
        reason.advice()
    );
    Ok(Report {
        reason: Some(reason),
        // That of the token that was seen: whoever published it learns that it arrived.
        token_digest: Some(token.digest().to_owned()),
        ..kept(identity, message)
    })
}

fn kept(identity: Identity, message: String) -> Report {
    Report {
        outcome: Outcome::AlreadyEnrolled,
        reason: None,
        message,
        router_id: Some(identity.id),
        fingerprint: Some(identity.fingerprint),
        not_after: Some(identity.not_after),
        token_digest: identity.token_digest,
    }
}

fn read_token(path: &Path) -> Result<EnrollmentToken, Failure> {
    let missing = |why: String| Failure::TokenMissing {
        path: path.to_path_buf(),
        why,
    };
    // A key that a Secret does not have becomes a directory in the pod, and reading that fails.
    let text = std::fs::read_to_string(path).map_err(|error| missing(error.to_string()))?;
    if text.trim().is_empty() {
        return Err(missing("it is empty".to_owned()));
    }
    EnrollmentToken::parse(&text).context(TokenMalformedSnafu)
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(token_digest: Option<&str>, not_after: Timestamp) -> Identity {
        Identity {
            id: "mine".to_owned(),
            fingerprint: String::new(),
            not_after,
            dns: Vec::new(),
            ips: Vec::new(),
            has_endpoints: true,
            token_digest: token_digest.map(str::to_owned),
        }
    }

    #[test]
    fn identity_and_token_decide_together() {
        const EXPIRED: Timestamp = Timestamp::MIN;
        const VALID: Timestamp = Timestamp::MAX;
        const NONE: Option<&str> = None;
        let rows = [
            // Validity, digest recorded, token; then the course, where a mismatch is refused.
            (VALID, NONE, None, Course::Keep),
            (VALID, Some("a"), None, Course::Keep),
            (VALID, Some("a"), Some(("mine", "a")), Course::Keep),
            (VALID, Some("a"), Some(("mine", "b")), Course::Renew),
            (VALID, NONE, Some(("mine", "b")), Course::Renew),
            (VALID, Some("a"), Some(("other", "b")), Course::Mismatch),
            (VALID, NONE, Some(("other", "b")), Course::Mismatch),
            (EXPIRED, Some("a"), None, Course::Expired),
            (EXPIRED, Some("a"), Some(("mine", "a")), Course::Replace),
            (EXPIRED, NONE, Some(("mine", "b")), Course::Replace),
            (EXPIRED, NONE, Some(("other", "b")), Course::Mismatch),
        ];
        for (not_after, recorded, token, expected) in rows {
            let identity = identity(recorded, not_after);
            let offer = token.map(|(subject, digest)| Offer { subject, digest });
            let now = Timestamp::UNIX_EPOCH;
            let row = (not_after, recorded, token);
            let refused = course(&identity, offer, OnMismatch::Refuse, now);
            assert_eq!(refused, expected, "{row:?}");
            // Wished or not, replacing matters to the identity of another router alone.
            let expected = match expected {
                Course::Mismatch => Course::Replace,
                other => other,
            };
            let replaced = course(&identity, offer, OnMismatch::Replace, now);
            assert_eq!(replaced, expected, "{row:?}");
        }
    }
}
