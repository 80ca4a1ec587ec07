//! The members of a network, as those who give its database away.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};
use tracing::info;
use ziti::mutual::{Party, backup_config};
use ziti::pki::Key;
use ziti::trust::CaBundle;

use super::report::{Failure, Reason};
use super::text;
use crate::sidecar::{DIGEST, MEMBER};

/// How long a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long nothing may come: a controller has two minutes for its snapshot, before which its sidecar
/// answers nothing.
const SILENT_WITHIN: Duration = Duration::from_secs(150);
/// How long nobody is asked after all were, where nobody said how long.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest pause that a member can ask for.
const LONGEST_PAUSE: Duration = Duration::from_mins(2);
/// How much of an answer is shown, in characters.
const SHOWN: usize = 200;

/// Who is asked for the database, and as whom.
#[derive(Debug, Clone)]
pub struct Members {
    /// `host:port`.
    pub hosts: Vec<String>,
    /// Their trust domain.
    pub trust_domain: String,
    /// The client certificate (PEM).
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The roots of the network (PEM).
    pub trust: PathBuf,
    /// How long they are asked.
    pub within: Duration,
}

/// A database that is about to come.
pub(super) struct Snapshot {
    pub(super) response: Response,
    /// The id of the member.
    pub(super) member: String,
    pub(super) bytes: u64,
    /// Lowercase hex.
    pub(super) sha256: String,
}

/// They, while they are being asked.
pub(super) struct Asked<'a> {
    client: Client,
    hosts: &'a [String],
    until: Instant,
}

/// What one of them said.
enum Answer {
    Given(Snapshot),
    /// It answered; ask again after this, or after the usual pause.
    Later(Option<Duration>, String),
    /// It answered that its volume has no room for a snapshot.
    Full(String),
    /// It did not.
    Away(String),
}

impl Members {
    /// Begins to ask. The time runs from now on.
    pub(super) fn ask(&self) -> Result<Asked<'_>, Failure> {
        let wrong = |what: &PathBuf, why: &dyn std::error::Error| {
            let why = chain(why);
            let why = format!("{}: {why}", what.display());
            Failure::new(Reason::Misconfigured, why)
        };
        let certificate = text(&self.certificate)?;
        let key = Key::from_pem(&text(&self.key)?).map_err(|error| wrong(&self.key, &error))?;
        let trust = CaBundle::from_pem(&text(&self.trust)?);
        let trust = trust.map_err(|error| wrong(&self.trust, &error))?;
        let party = Party {
            cert_pem: &certificate,
            key: &key,
            trust: &trust,
        };
        let config = backup_config(party, &self.trust_domain);
        let client = Client::builder()
            .tls_backend_preconfigured(config.map_err(|error| wrong(&self.certificate, &error))?)
            .http1_only()
            .no_proxy()
            .retry(reqwest::retry::never())
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_WITHIN)
            .read_timeout(SILENT_WITHIN)
            .build();
        Ok(Asked {
            client: client.map_err(|error| wrong(&self.certificate, &error))?,
            hosts: &self.hosts,
            until: Instant::now() + self.within,
        })
    }
}

impl Asked<'_> {
    /// Whether there is time to ask them once more.
    pub(super) fn may_go_on(&self) -> bool {
        Instant::now() < self.until
    }

    /// Asks them in turn until one gives its database.
    pub(super) async fn snapshot(&self) -> Result<Snapshot, Failure> {
        loop {
            let mut said = Vec::new();
            let mut reason = Reason::MembersUnreachable;
            let mut pause: Option<Duration> = None;
            for host in self.hosts {
                match self.ask(host).await {
                    Answer::Given(snapshot) => return Ok(snapshot),
                    Answer::Full(why) => {
                        reason = Reason::NoSpace;
                        said.push(format!("{host}: {why}"));
                    }
                    Answer::Later(after, why) => {
                        if reason != Reason::NoSpace {
                            reason = Reason::NotReady;
                        }
                        let after = after.unwrap_or(PAUSE);
                        pause = Some(pause.map_or(after, |pause| pause.min(after)));
                        said.push(format!("{host}: {why}"));
                    }
                    Answer::Away(why) => said.push(format!("{host}: {why}")),
                }
            }
            let said = said.join("; ");
            let pause = pause.unwrap_or(PAUSE).min(LONGEST_PAUSE);
            if Instant::now() + pause > self.until {
                let why = format!("no member of the network gave a snapshot: {said}");
                return Err(Failure::new(reason, why));
            }
            info!(said, "no snapshot yet, asking again");
            tokio::time::sleep(pause).await;
        }
    }

    async fn ask(&self, host: &str) -> Answer {
        let url = format!("https://{host}/snapshot");
        let response = match self.client.get(url).send().await {
            Ok(response) => response,
            Err(error) => return Answer::Away(chain(&error.without_url())),
        };
        let status = response.status();
        if status == StatusCode::OK {
            return match announced(&response) {
                Some((bytes, sha256)) => Answer::Given(Snapshot {
                    bytes,
                    sha256,
                    member: header(response.headers(), MEMBER).unwrap_or_else(|| host.to_owned()),
                    response,
                }),
                None => Answer::Away("it does not say what it gives".to_owned()),
            };
        }
        let after = header(response.headers(), RETRY_AFTER.as_str());
        let after = after.and_then(|text| text.parse().ok());
        let why = response.text().await.unwrap_or_default();
        let why: String = why.trim().chars().take(SHOWN).collect();
        if status == StatusCode::INSUFFICIENT_STORAGE {
            return Answer::Full(why);
        }
        Answer::Later(after.map(Duration::from_secs), format!("{status}: {why}"))
    }
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// The length and the digest (lowercase hex) of what is to come.
fn announced(response: &Response) -> Option<(u64, String)> {
    let digest = header(response.headers(), DIGEST)?;
    let digest = digest.strip_prefix("sha-256=:")?.strip_suffix(':')?;
    let digest = STANDARD.decode(digest).ok()?;
    Some((response.content_length()?, hex::encode(digest)))
}

/// What went wrong, and why.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
