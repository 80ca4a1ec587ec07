//! Where backups are: a directory of a volume, or a bucket that speaks S3. Both by one library, so that
//! there is one way to everything. Whatever it says ends in a [`Failure`] with a reason.

use std::error::Error;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use futures::stream::BoxStream;
use object_store::aws::AmazonS3Builder;
use object_store::buffered::BufWriter;
use object_store::client::{HttpClient, HttpConnector};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, RetryConfig};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::AsyncWriteExt;
use tracing::{info, warn};

use super::members::chain;
use super::report::{Failure, Reason};

/// The size of the parts in which a large backup goes to a bucket, in bytes: S3 takes ten thousand.
const PART: usize = 8 * 1024 * 1024;
/// How many parts are on their way at once; each is in memory.
const PARTS: usize = 2;
/// How long a run may take: the Job's deadline.
const LONGEST_RUN: Duration = Duration::from_hours(1);
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long nothing may come.
const SILENT_WITHIN: Duration = Duration::from_mins(1);
/// How often, and how long, a request is tried anew.
const RETRIES: usize = 5;
const RETRY_WITHIN: Duration = Duration::from_mins(1);
/// Whom the library asks for credentials where it was given none.
const METADATA: &str = "http://169.254.169.254/";
/// Where a bucket is, unless somebody says it: of no matter for servers other than AWS.
const REGION: &str = "us-east-1";

/// A directory or a bucket.
#[derive(Debug, Clone)]
pub enum Place {
    /// A directory, which must be there.
    Volume(PathBuf),
    /// A bucket, which must be there.
    Bucket(Bucket),
}

/// A bucket. Its credentials are taken from the environment.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// Below which path; may be empty.
    pub prefix: String,
    /// Where it is, if that is of matter.
    pub region: Option<String>,
    /// The server; AWS where it is not said.
    pub endpoint: Option<String>,
    /// What the server is trusted by, in place of the public authorities.
    pub ca: Option<PathBuf>,
}

/// A place that was opened.
pub(super) struct Store {
    inner: Arc<dyn ObjectStore>,
    prefix: Path,
    /// For people.
    place: String,
}

impl Store {
    /// Deletes what a run that was killed left of files that are `ours`, an hour after it was written to:
    /// who makes one by hand may run beside the schedule, and no run is longer. A file that is being written is
    /// called `<name>#<number>` on a volume, and is no file of the list. (What is left of an upload is for
    /// the bucket's own rules to delete: whoever may write a backup may not always list uploads.)
    pub(super) fn sweep(place: &Place, ours: impl Fn(&str) -> bool) {
        let Place::Volume(directory) = place else {
            return;
        };
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let of = name.to_str().and_then(|name| name.rsplit_once('#'));
            let modified = entry.metadata().and_then(|file| file.modified());
            let age = modified.ok().and_then(|at| at.elapsed().ok());
            let old = age.is_some_and(|age| age >= LONGEST_RUN);
            if old && of.is_some_and(|(of, _)| ours(of)) {
                let path = entry.path();
                match std::fs::remove_file(&path) {
                    Ok(()) => info!(path = %path.display(), "deleted what a run before left"),
                    Err(error) => {
                        warn!(%error, path = %path.display(), "what a run before left stays");
                    }
                }
            }
        }
    }

    /// Nothing is asked yet of a bucket.
    pub(super) fn open(place: &Place) -> Result<Self, Failure> {
        match place {
            Place::Volume(directory) => {
                let place = format!("the volume at {}", directory.display());
                let inner = LocalFileSystem::new_with_prefix(directory);
                let inner = inner.map_err(|error| failure("open", &place, &error))?;
                Ok(Self {
                    inner: Arc::new(inner.with_fsync(true)),
                    prefix: Path::default(),
                    place,
                })
            }
            Place::Bucket(bucket) => bucket.open(),
        }
    }

    /// For people.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// The names of the files that are right there.
    pub(super) async fn list(&self) -> Result<Vec<String>, Failure> {
        let listed = self.inner.list_with_delimiter(Some(&self.prefix)).await;
        let listed = listed.map_err(|error| failure("list", &self.place, &error))?;
        let names = listed.objects.into_iter();
        let names = names.filter_map(|object| object.location.filename().map(str::to_owned));
        Ok(names.collect())
    }

    /// Copies a file to there, and returns its size as the store tells it. A file of that name is whole
    /// or absent.
    pub(super) async fn put(&self, name: &str, from: &std::path::Path) -> Result<u64, Failure> {
        let to = self.prefix.clone().join(name);
        let mut file = tokio::fs::File::open(from).await.map_err(|error| {
            let why = format!("cannot read {}: {error}", from.display());
            Failure::new(Reason::NoSpace, why)
        })?;
        let wrong = |error: &(dyn Error + 'static)| failure("write to", &self.place, error);
        let mut writer = BufWriter::with_capacity(Arc::clone(&self.inner), to.clone(), PART)
            .with_max_concurrency(PARTS);
        if let Err(error) = tokio::io::copy(&mut file, &mut writer).await {
            // Parts that are left cost money.
            let _ = writer.abort().await;
            return Err(wrong(&error));
        }
        writer.shutdown().await.map_err(|error| wrong(&error))?;
        let there = self.inner.head(&to).await.map_err(|error| wrong(&error))?;
        Ok(there.size)
    }

    /// The content of a file, as it comes.
    pub(super) async fn get(
        &self,
        name: &str,
    ) -> Result<BoxStream<'static, object_store::Result<Bytes>>, Failure> {
        let from = self.prefix.clone().join(name);
        let got = self.inner.get(&from).await;
        let got = got.map_err(|error| self.unread(&error))?;
        Ok(got.into_stream())
    }

    /// What reading failed of.
    pub(super) fn unread(&self, error: &object_store::Error) -> Failure {
        failure("read from", &self.place, error)
    }

    pub(super) async fn delete(&self, name: &str) -> Result<(), Failure> {
        let file = self.prefix.clone().join(name);
        let deleted = self.inner.delete(&file).await;
        deleted.map_err(|error| failure("delete from", &self.place, &error))
    }
}

impl Bucket {
    fn open(&self) -> Result<Store, Failure> {
        let place = match (self.prefix.trim_matches('/'), &self.endpoint) {
            ("", None) => format!("the bucket {}", self.name),
            (prefix, None) => format!("the bucket {} below {prefix}", self.name),
            ("", Some(at)) => format!("the bucket {} at {at}", self.name),
            (prefix, Some(at)) => format!("the bucket {} below {prefix} at {at}", self.name),
        };
        let wrong = |error: &(dyn Error + 'static)| {
            let why = format!("cannot use {place}: {}", chain(error));
            Failure::new(Reason::Misconfigured, why)
        };
        let prefix = Path::parse(&self.prefix).map_err(|error| wrong(&error))?;
        let retry = RetryConfig {
            max_retries: RETRIES,
            retry_timeout: RETRY_WITHIN,
            ..RetryConfig::default()
        };
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(&self.name)
            .with_retry(retry)
            .with_http_connector(Connector(self.client(&wrong)?));
        if let Some(endpoint) = &self.endpoint {
            builder = builder
                .with_endpoint(endpoint.trim_end_matches('/'))
                .with_allow_http(endpoint.starts_with("http://"));
        }
        let region = object_store::aws::AmazonS3ConfigKey::Region;
        if let Some(said) = &self.region {
            builder = builder.with_region(said);
        } else if builder.get_config_value(&region).is_none() {
            builder = builder.with_region(REGION);
        }
        let inner = builder.build().map_err(|error| wrong(&error))?;
        Ok(Store {
            inner: Arc::new(inner),
            prefix,
            place,
        })
    }

    /// One that trusts the public authorities, which are compiled in (the image has no files of them), or
    /// those of the file alone.
    fn client(
        &self,
        wrong: &impl Fn(&(dyn Error + 'static)) -> Failure,
    ) -> Result<reqwest::Client, Failure> {
        let mut roots = RootCertStore::empty();
        match &self.ca {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(file) => {
                let bundle = super::text(file)?;
                for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
                    let root = root.map_err(|error| wrong(&error))?;
                    roots.add(root).map_err(|error| wrong(&error))?;
                }
                if roots.is_empty() {
                    let why = format!("there is no certificate in {}", file.display());
                    return Err(Failure::new(Reason::Misconfigured, why));
                }
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config
            .map_err(|error| wrong(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(config)
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_WITHIN)
            .read_timeout(SILENT_WITHIN)
            .build();
        client.map_err(|error| wrong(&error))
    }
}

/// Connects by our own client, so that there is one TLS provider, and trust is ours.
#[derive(Debug)]
struct Connector(reqwest::Client);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// What an error of the library means. `act` and `place` are for people.
fn failure(act: &str, place: &str, error: &(dyn Error + 'static)) -> Failure {
    let text = chain(error);
    let (code, said) = (element(&text, "Code"), element(&text, "Message"));
    let reason = match code {
        Some(code) => meaning(code),
        // From somebody between, who does not speak S3.
        None if text.contains("403 Forbidden") => Reason::AccessDenied,
        None => reason_of(error),
    };
    if text.contains(METADATA) {
        let why = "no credentials were given (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a web \
                   identity), and the machine has none for it";
        let why = format!("cannot {act} {place}: {why}: {text}");
        return Failure::new(Reason::AccessDenied, why);
    }
    let why = match (code, said) {
        (Some(code), Some(said)) => format!("{said} ({code})"),
        (Some(code), None) => code.to_owned(),
        _ => text,
    };
    Failure::new(reason, format!("cannot {act} {place}: {why}"))
}

/// The text of an element of the XML that a server of S3 answers with.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
}

/// What a server of S3 means by a code. The library tells them apart for some requests only.
fn meaning(code: &str) -> Reason {
    match code {
        "AccessDenied"
        | "AllAccessDisabled"
        | "ExpiredToken"
        | "InvalidAccessKeyId"
        | "InvalidToken"
        | "RequestTimeTooSkewed"
        | "SignatureDoesNotMatch" => Reason::AccessDenied,
        "InternalError" | "OperationAborted" | "ServiceUnavailable" | "SlowDown" => {
            Reason::Unreachable
        }
        "QuotaExceeded" => Reason::NoSpace,
        // No such bucket, or in another region; the rest is of the one server or the other.
        _ => Reason::Misconfigured,
    }
}

fn reason_of(error: &(dyn Error + 'static)) -> Reason {
    use object_store::Error as Stored;
    let mut next = Some(error);
    while let Some(current) = next {
        match current.downcast_ref::<Stored>() {
            Some(Stored::PermissionDenied { .. } | Stored::Unauthenticated { .. }) => {
                return Reason::AccessDenied;
            }
            Some(Stored::NotFound { .. } | Stored::InvalidPath { .. }) => {
                return Reason::Misconfigured;
            }
            _ => {}
        }
        let io = current.downcast_ref::<std::io::Error>();
        match io.map(std::io::Error::kind) {
            Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => return Reason::NoSpace,
            Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
                return Reason::AccessDenied;
            }
            Some(ErrorKind::NotFound | ErrorKind::NotADirectory) => return Reason::Misconfigured,
            _ => {}
        }
        // `io::Error` hides what it wraps from `source`.
        let wrapped = io.and_then(|io| io.get_ref()).map(|inner| inner as _);
        next = wrapped.or_else(|| current.source());
    }
    Reason::Unreachable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_run_is_writing_stays() {
        let dir = tempfile::tempdir().unwrap();
        let hours = |hours: u64| {
            let path = dir.path().join(format!("ours#{hours}"));
            let file = std::fs::File::create(path).unwrap();
            let before = std::time::SystemTime::now() - Duration::from_hours(hours);
            file.set_modified(before).unwrap();
        };
        hours(0);
        hours(2);
        let place = Place::Volume(dir.path().to_path_buf());
        Store::sweep(&place, |file| file == "ours");
        let left = std::fs::read_dir(dir.path()).unwrap();
        let left: Vec<_> = left.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(left, ["ours#0"]);
    }
}
