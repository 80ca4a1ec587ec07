//! Gets an identity for a token: makes the key, redeems the token, and writes what comes of it all or
//! nothing. Whether it should is decided in [`super`], which alone calls this.

use std::path::Path;
use std::time::{Duration, Instant};

use snafu::ResultExt;
use tokio::sync::watch;
use tracing::{info, warn};
use ziti::enroll::{RouterEnrollment, RouterIdentity, enroll_router};
use ziti::pki::Key;
use ziti::token::EnrollmentToken;
use ziti::trust::CaBundle;

use super::{
    CaBundleSnafu, CaFileSnafu, EndpointsMissingSnafu, Failure, Request, TIMEOUT, VolumeSnafu,
};
use crate::disk::Disk;
use crate::report::{Outcome, Report};
use crate::volume::{Identity, Volume};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// A new identity, in place of `old` where there is one. What can fail without the token is done
/// first; until the new identity is whole, the old one stays in its place as well.
pub(super) async fn acquire<D: Disk>(
    request: &Request,
    volume: &Volume<D>,
    token: &EnrollmentToken,
    old: Option<&Identity>,
    stop: watch::Receiver<bool>,
) -> Result<Report, Failure> {
    let endpoints = endpoints(request, Some(token))?;
    let ca = request.ca_file.as_deref().map(read_ca).transpose()?;
    let key = volume.prepare_key().context(VolumeSnafu)?;
    if let Some(old) = old {
        volume.keep_aside(old).context(VolumeSnafu)?;
    }
    info!(
        router_id = token.subject(),
        issuer = %token.issuer(),
        token_digest = token.digest(),
        "redeeming the token"
    );
    let redeemed = redeem(request, token, &key, ca.as_ref(), stop).await;
    if let (Err(_), Some(old)) = (&redeemed, old)
        && let Err(error) = volume.forget_aside(old)
    {
        warn!(%error, "a needless copy of the identity stays");
    }
    let identity = redeemed?;
    volume
        .install(&identity, &endpoints, token.digest())
        .context(VolumeSnafu)?;
    // Only a change of names asks for it, and finds other ways without.
    if let Err(error) = volume.note_issuer(token.issuer().as_str()) {
        warn!(%error, "it is not written down who enrolled the router");
    }
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
pub(super) fn endpoints(
    request: &Request,
    token: Option<&EnrollmentToken>,
) -> Result<Vec<String>, Failure> {
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

fn read_ca(path: &Path) -> Result<CaBundle, Failure> {
    let pem = std::fs::read_to_string(path).context(CaFileSnafu { path })?;
    CaBundle::from_pem(&pem).context(CaBundleSnafu { path })
}
