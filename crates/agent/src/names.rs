//! Whether the certificate on the volume holds the names that it must, and how it gets them.
//!
//! A router ends at its start where it advertises what its certificate does not hold, before it
//! could ask for another certificate itself. So the agent asks, in the router's stead and with the
//! router's identity, before each start at which a name is missing. Called by [`crate::enroll`].

use std::net::IpAddr;
use std::time::Duration;

use snafu::Snafu;
use tracing::{info, warn};
use ziti::Url;
use ziti::enroll::EnrollError;
use ziti::extend::{Extended, Present, extend_router};
use ziti::pki::Sans;

use crate::disk::Disk;
use crate::volume::{Identity, Volume, VolumeError};

/// Why the certificate does not hold the names.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum NamesError {
    /// No controller gave another certificate.
    #[snafu(display(
        "the certificate lacks {}, and no controller gave another: {why}", missing.join(", ")
    ))]
    NotExtended {
        /// The names.
        missing: Vec<String>,
        /// What the last one that was asked said.
        why: String,
    },
    /// The volume did not take it.
    #[snafu(display("the certificate lacks {}: {source}", missing.join(", ")))]
    NotWritten {
        /// The names.
        missing: Vec<String>,
        /// What went wrong.
        source: VolumeError,
    },
}

/// Adds the names in a file, one a line, each once.
pub fn add(sans: &mut Sans, text: &str) {
    for name in text.lines().map(str::trim).filter(|name| !name.is_empty()) {
        match name.parse::<IpAddr>() {
            Ok(address) if sans.ips.contains(&address) => {}
            Ok(address) => sans.ips.push(address),
            Err(_) if sans.dns.iter().any(|known| known == name) => {}
            Err(_) => sans.dns.push(name.to_owned()),
        }
    }
}

/// Sees to it that the certificate holds these names: what was done, if anything was to do.
pub async fn provide<D: Disk>(
    sans: &Sans,
    identity: &Identity,
    volume: &Volume<D>,
    timeout: Duration,
) -> Result<Option<Extended>, NamesError> {
    let missing = missing(sans, identity);
    if missing.is_empty() {
        return Ok(None);
    }
    let not_written = |source| NamesError::NotWritten {
        missing: missing.clone(),
        source,
    };
    let present = volume.present().map_err(not_written)?;
    let Some((key, cert_pem, ca)) = present else {
        return Err(NamesError::NotExtended {
            missing,
            why: "the identity went away meanwhile".to_owned(),
        });
    };
    let present = Present {
        id: &identity.id,
        key: &key,
        cert_pem: &cert_pem,
        ca: &ca,
    };
    volume.prepare_exchange().map_err(not_written)?;
    let mut why = "nobody knows where the controllers are".to_owned();
    for controller in controllers(volume) {
        info!(?missing, %controller, "asking for a certificate with other names");
        match extend_router(&controller, present, sans, timeout).await {
            Ok(extended) => {
                volume.exchange(&extended).map_err(not_written)?;
                info!(
                    fingerprint = extended.fingerprint,
                    "the certificates are replaced"
                );
                return Ok(Some(extended));
            }
            Err(error) => {
                warn!(%controller, %error, "no other certificate");
                why = error.to_string();
                // It may have replaced them: another one would know these no more.
                if matches!(error, EnrollError::ReplyLost { .. }) {
                    break;
                }
            }
        }
    }
    Err(NamesError::NotExtended { missing, why })
}

/// The names that the certificate is not valid for.
fn missing(sans: &Sans, identity: &Identity) -> Vec<String> {
    let held = |name: &&String| {
        !identity
            .dns
            .iter()
            .any(|held| held.eq_ignore_ascii_case(name))
    };
    let dns = sans.dns.iter().filter(held).cloned();
    let ips = sans.ips.iter().filter(|ip| !identity.ips.contains(ip));
    dns.chain(ips.map(IpAddr::to_string)).collect()
}

/// Whom to ask: who enrolled the router; else those to which it connects, which mostly serve both
/// on one port.
fn controllers<D: Disk>(volume: &Volume<D>) -> Vec<Url> {
    let connected = volume.endpoints().into_iter().filter_map(|endpoint| {
        let address = endpoint.strip_prefix("tls:")?;
        Some(format!("https://{address}"))
    });
    let mut urls: Vec<Url> = Vec::new();
    for text in volume.issuer().into_iter().chain(connected) {
        if let Ok(url) = text.parse()
            && !urls.contains(&url)
        {
            urls.push(url);
        }
    }
    urls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_file_are_added_once() {
        let mut sans = Sans {
            dns: vec!["localhost".to_owned()],
            ..Sans::default()
        };
        add(&mut sans, "localhost\n\n a.example \n10.0.0.1\n10.0.0.1\n");
        assert_eq!(sans.dns, ["localhost", "a.example"]);
        assert_eq!(
            sans.ips,
            ["10.0.0.1".parse::<IpAddr>().unwrap_or(IpAddr::from([0; 4]))]
        );
    }
}
