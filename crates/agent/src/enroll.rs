//! What to do about the identity of a router: keep it, replace it, or get one.
//!
//! A sound identity is kept and nobody is asked. A token is only for the router without one, or
//! for one whose identity has run out, or, where that is wished, for one that shall become another
//! router. Whether a *token* has expired is for the controller to say; this clock is not asked.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use jiff::Timestamp;
use snafu::{ResultExt, Snafu};
use tokio::sync::watch;
use tracing::{info, warn};
use ziti::enroll::{EnrollError, RouterEnrollment, RouterIdentity, enroll_router};
use ziti::pki::{Key, Sans};
use ziti::token::{EnrollmentToken, TokenError};
use ziti::trust::{CaBundle, TrustError};

use crate::disk::Disk;
use crate::report::{Outcome, Reason, Report};
use crate::volume::{Found, Identity, Volume, VolumeError};

/// Deadline of each exchange with the controller.
const TIMEOUT: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

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
    match decide(request, &volume, &mut known, stop).await {
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
    match volume.inspect().context(VolumeSnafu)? {
        Found::Nothing => info!("there is no identity on the volume"),
        Found::Unsound(why) => warn!(why, "the identity on the volume is not sound"),
        Found::Sound(identity) => {
            known.router_id = Some(identity.id.clone());
            known.identity = Some(identity.clone());
            let other = token.as_ref().ok().map(EnrollmentToken::subject);
            let other = other.filter(|subject| *subject != identity.id);
            let expired = identity.not_after < Timestamp::now();
            match (other, request.on_mismatch) {
                (Some(subject), OnMismatch::Refuse) => {
                    return IdentityMismatchSnafu {
                        present: identity.id,
                        wanted: subject,
                    }
                    .fail();
                }
                (Some(subject), OnMismatch::Replace) => {
                    info!(present = identity.id, subject, "replacing the identity");
                    // Aside first: until the new one is there, the old one stays in place too.
                    volume.keep_aside(&identity).context(VolumeSnafu)?;
                }
                (None, _) if !expired => return keep(request, volume, identity, token.ok()),
                (None, _) if token.is_ok() => {
                    warn!(not_after = %identity.not_after, "the identity has run out");
                }
                (None, _) => {
                    let not_after = identity.not_after;
                    return IdentityExpiredSnafu { not_after }.fail();
                }
            }
        }
    }
    acquire(request, volume, token?, stop).await
}

/// The identity stays. Only the addresses of the controllers may be missing.
fn keep<D: Disk>(
    request: &Request,
    volume: &Volume<D>,
    identity: Identity,
    token: Option<EnrollmentToken>,
) -> Result<Report, Failure> {
    if !identity.has_endpoints {
        let endpoints = endpoints(request, token.as_ref())?;
        info!(?endpoints, "writing the addresses of the controllers");
        volume.write_endpoints(&endpoints).context(VolumeSnafu)?;
    }
    Ok(Report {
        outcome: Outcome::AlreadyEnrolled,
        reason: None,
        message: format!(
            "the volume holds a sound identity of router {}",
            identity.id
        ),
        router_id: Some(identity.id),
        fingerprint: Some(identity.fingerprint),
        not_after: Some(identity.not_after),
        token_digest: token.map(|token| token.digest().to_owned()),
    })
}

/// A new identity. What can fail without the token is done first.
async fn acquire<D: Disk>(
    request: &Request,
    volume: &Volume<D>,
    token: EnrollmentToken,
    stop: watch::Receiver<bool>,
) -> Result<Report, Failure> {
    let endpoints = endpoints(request, Some(&token))?;
    let ca = request.ca_file.as_deref().map(read_ca).transpose()?;
    let key = volume.prepare_key().context(VolumeSnafu)?;
    info!(
        router_id = token.subject(),
        issuer = %token.issuer(),
        token_digest = token.digest(),
        "redeeming the token"
    );
    let identity = redeem(request, &token, &key, ca.as_ref(), stop).await?;
    volume.install(&identity, &endpoints).context(VolumeSnafu)?;
    info!(
        router_id = identity.id,
        fingerprint = identity.fingerprint,
        not_after = %identity.not_after,
        "enrolled"
    );
    Ok(Report {
        outcome: Outcome::Enrolled,
        reason: None,
        message: format!("router {} has a new identity", identity.id),
        router_id: Some(identity.id),
        fingerprint: Some(identity.fingerprint),
        not_after: Some(identity.not_after),
        token_digest: Some(token.digest().to_owned()),
    })
}

/// Redeems the token, going on for a while where the controller cannot be reached. Only failures
/// that cannot have spent it are tried again.
async fn redeem(
    request: &Request,
    token: &EnrollmentToken,
    key: &Key,
    ca: Option<&CaBundle>,
    mut stop: watch::Receiver<bool>,
) -> Result<RouterIdentity, Failure> {
    let enrollment = RouterEnrollment {
        key,
        sans: &request.sans,
        ca,
        timeout: TIMEOUT,
    };
    let deadline = Instant::now() + request.retry_for;
    let mut pause = FIRST_PAUSE;
    loop {
        let source = match enroll_router(token, &enrollment).await {
            Ok(identity) => return Ok(identity),
            Err(error) => error,
        };
        if !source.is_retryable() || Instant::now() + pause > deadline {
            return Err(Failure::Enroll { source });
        }
        warn!(error = %source, pause_ms = pause.as_millis(), "trying again");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // An error means that nobody can ask any more; then only the time counts.
            Ok(_) = stop.wait_for(|stop| *stop) => return Err(Failure::Interrupted { source }),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Where the controllers are: as the network says, else as the token says.
fn endpoints(request: &Request, token: Option<&EnrollmentToken>) -> Result<Vec<String>, Failure> {
    let mut endpoints = request.endpoints.clone();
    if endpoints.is_empty() {
        endpoints.extend(token.iter().flat_map(|t| t.controllers()).cloned());
    }
    // A line break would be another entry of the file.
    endpoints.retain(|endpoint| !endpoint.is_empty() && !endpoint.contains(char::is_control));
    if endpoints.is_empty() {
        return EndpointsMissingSnafu.fail();
    }
    Ok(endpoints)
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

fn read_ca(path: &Path) -> Result<CaBundle, Failure> {
    let pem = std::fs::read_to_string(path).context(CaFileSnafu { path })?;
    CaBundle::from_pem(&pem).context(CaBundleSnafu { path })
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}
