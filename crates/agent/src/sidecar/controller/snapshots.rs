//! The database of this member, for whoever makes backups: by HTTPS on a port of its own. Only the
//! sidecar uses this module.
//!
//! | path | answers |
//! | --- | --- |
//! | `/snapshot` | 200 with the database; 429 while another one is given, or within a minute of the one before; 503 while this is no member of a cluster with a leader; 507 where the data volume has no room for it |
//!
//! Everybody who reaches the pod may connect, and nobody gets further than the handshake but the
//! network's own backup ([`ziti::mutual`]). The certificate is the controller's, read when the sidecar
//! starts: pods are restarted for a new one.
//!
//! The controller writes the snapshot onto its data volume, if there is room: a volume that is full stops
//! the network. The file loses its name as soon as it is there, so it is gone with the answer, however
//! that ends; what a sidecar left that was killed goes when the next one starts.

use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use aws_lc_rs::digest::{self, Digest};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::statvfs::statvfs;
use snafu::{ResultExt, Snafu};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::io::ReaderStream;
use tracing::{debug, info, warn};
use ziti::mutual::{MutualError, Party, member_config};
use ziti::pki::{Key, PkiError};
use ziti::trust::{CaBundle, TrustError};

use super::Controller;
use crate::sidecar::places::Places;
use crate::sidecar::{Neighbour, PAUSE, Sidecar, serve};
use crate::socket::SocketError;
use crate::socket::controller::take_snapshot;

/// Where the controller writes it, below the data directory.
const FILE: &str = "ziti-agent.snapshot.db";
/// The controller's database, as large as a snapshot of it.
const DATABASE: &str = "ctrl-ha.db";
/// How long a handshake may take.
const SHAKES_WITHIN: Duration = Duration::from_secs(5);
/// How long an answer may take: a snapshot, and a large database over a slow network.
const LONGEST: Duration = Duration::from_mins(30);
/// When to ask again.
const LATER: HeaderValue = HeaderValue::from_static("10");
/// What Ziti says of a snapshot within a minute of the one before.
const TOO_SOON: &str = "once per minute";
/// Header with the SHA-256 of the database (RFC 9530).
pub(crate) const DIGEST: &str = "repr-digest";
/// Header with the id of this member.
pub(crate) const MEMBER: &str = "ziti-member";

/// How databases are given away.
#[derive(Debug, Clone)]
pub struct Snapshots {
    /// On which port.
    pub port: u16,
    /// The controller's certificate, PEM.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The roots of the network, PEM.
    pub trust: PathBuf,
}

/// Why they are not.
#[derive(Debug, Snafu)]
pub enum SnapshotsError {
    /// A file is not there.
    #[snafu(display("cannot read {}: {source}", path.display()))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The key is none.
    #[snafu(display("{}: {source}", path.display()))]
    BadKey {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        source: PkiError,
    },
    /// The roots are none.
    #[snafu(display("{}: {source}", path.display()))]
    Trust {
        /// Their file.
        path: PathBuf,
        /// What is wrong with them.
        source: TrustError,
    },
    /// Certificate, key and roots are no use.
    #[snafu(display("{}: {source}", path.display()))]
    Tls {
        /// The file of the certificate.
        path: PathBuf,
        /// What is wrong.
        source: MutualError,
    },
    /// The port is taken, or may not be used.
    #[snafu(display("cannot listen on port {port}: {source}"))]
    Listen {
        /// The port.
        port: u16,
        /// Why not.
        source: io::Error,
    },
}

/// What listens.
pub(in crate::sidecar) struct Door {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

/// Listens, with the certificate that is there now.
pub(in crate::sidecar) async fn open(snapshots: &Snapshots) -> Result<Door, SnapshotsError> {
    let read = |path: &PathBuf| std::fs::read_to_string(path).context(ReadSnafu { path });
    let certificate = read(&snapshots.certificate)?;
    let path = &snapshots.key;
    let key = Key::from_pem(&read(path)?).context(BadKeySnafu { path })?;
    let path = &snapshots.trust;
    let trust = CaBundle::from_pem(&read(path)?).context(TrustSnafu { path })?;
    let member = Party {
        cert_pem: &certificate,
        key: &key,
        trust: &trust,
    };
    let path = &snapshots.certificate;
    let config = member_config(member).context(TlsSnafu { path })?;
    let port = snapshots.port;
    let listener = serve::listen(port).await.context(ListenSnafu { port })?;
    info!(port, "listening for backups");
    Ok(Door {
        listener,
        acceptor: TlsAcceptor::from(Arc::new(config)),
    })
}

/// What the answers share.
struct Giver {
    sidecar: Arc<Sidecar<Controller>>,
    /// One at a time.
    turn: Arc<Semaphore>,
}

/// Answers until the process ends.
pub(in crate::sidecar) async fn serve(door: Door, sidecar: Arc<Sidecar<Controller>>) {
    let left = sidecar.neighbour.orders.data.join(FILE);
    if std::fs::remove_file(&left).is_ok() {
        info!(path = %left.display(), "deleted a snapshot that a sidecar before left");
    }
    let places = Places::new(serve::CONNECTIONS.0, serve::CONNECTIONS.1);
    let app = Router::new()
        .route("/snapshot", get(snapshot))
        .with_state(Arc::new(Giver {
            sidecar,
            turn: Arc::new(Semaphore::new(1)),
        }));
    loop {
        let (stream, from) = match door.listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "cannot take the connection of a backup");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let address = from.ip().to_canonical();
        let Some(place) = places.take(address) else {
            continue;
        };
        let answered = answer(door.acceptor.clone(), stream, app.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(LONGEST, answered).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => debug!(error, %address, "the connection of a backup ended early"),
                Err(_) => warn!(%address, "a backup did not take its database in time"),
            }
            drop(place);
        });
    }
}

async fn answer(acceptor: TlsAcceptor, stream: TcpStream, app: Router) -> Result<(), String> {
    let shaken = tokio::time::timeout(SHAKES_WITHIN, acceptor.accept(stream));
    let shaken = shaken.await.map_err(|_| "no handshake in time")?;
    let stream = shaken.map_err(|error| error.to_string())?;
    let served = serve::answer(stream, app).await;
    served.map_err(|error| error.to_string())
}

async fn snapshot(State(giver): State<Arc<Giver>>) -> Response {
    let sidecar = &giver.sidecar;
    if sidecar.drain.is_begun() {
        let why = "the pod is leaving\n";
        return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    }
    if let Err(why) = sidecar.neighbour.ready().await {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response();
    }
    let Ok(permit) = Arc::clone(&giver.turn).try_acquire_owned() else {
        return later("another backup is being made");
    };
    let Controller { tmp, orders, .. } = &sidecar.neighbour;
    let (tmp, data, member) = (tmp.clone(), orders.data.clone(), orders.member.clone());
    // To its end, even if nobody waits for it any more: else the file would stay.
    let taken = tokio::spawn(async move { Taken::take(&tmp, &data, permit).await });
    match taken.await {
        Ok(Ok(taken)) => taken.into_response(&member),
        Ok(Err(TakeError::Controller {
            source: SocketError::Refused { message, .. },
        })) if message.contains(TOO_SOON) => later(&message),
        Ok(Err(error)) => {
            warn!(%error, "there is no snapshot for a backup");
            let status = match error {
                TakeError::NoRoom { .. } => StatusCode::INSUFFICIENT_STORAGE,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            (status, format!("{error}\n")).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn later(why: &str) -> Response {
    let headers = [(RETRY_AFTER, LATER)];
    let why = format!("{why}\n");
    (StatusCode::TOO_MANY_REQUESTS, headers, why).into_response()
}

#[derive(Debug, Snafu)]
enum TakeError {
    #[snafu(display(
        "the data volume has {free} bytes left, and a snapshot of the database needs {needed}: make the \
         volume larger (spec.storage.size)"
    ))]
    NoRoom { free: u64, needed: u64 },
    #[snafu(display("cannot see how much room is on {}: {source}", path.display()))]
    Room { path: PathBuf, source: io::Error },
    #[snafu(display("{source}"))]
    Controller { source: SocketError },
    #[snafu(display("cannot read the snapshot {}: {source}", path.display()))]
    File { path: PathBuf, source: io::Error },
}

/// A snapshot, whose file has no name any more.
struct Taken {
    file: File,
    length: u64,
    digest: Digest,
    permit: OwnedSemaphorePermit,
}

impl Taken {
    async fn take(
        tmp: &Path,
        data: &Path,
        permit: OwnedSemaphorePermit,
    ) -> Result<Self, TakeError> {
        check_room(data)?;
        let path = data.join(FILE);
        let taken = Self::take_to(path.clone(), tmp, permit).await;
        if taken.is_err() {
            // Also where the controller is still writing it: what has no name goes when
            // it is closed.
            let _ = std::fs::remove_file(path);
        }
        taken
    }

    async fn take_to(
        path: PathBuf,
        tmp: &Path,
        permit: OwnedSemaphorePermit,
    ) -> Result<Self, TakeError> {
        take_snapshot(tmp, &path).await.context(ControllerSnafu)?;
        let of = path.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let mut file = File::open(&of)?;
            std::fs::remove_file(&of)?;
            let digest = digest_of(&mut file)?;
            let length = file.stream_position()?;
            file.rewind()?;
            Ok((file, length, digest))
        });
        let opened = opened.await.unwrap_or_else(|_| {
            let why = "reading did not come to its end";
            Err(io::Error::other(why))
        });
        let (file, length, digest) = opened.context(FileSnafu { path })?;
        Ok(Self {
            file,
            length,
            digest,
            permit,
        })
    }

    fn into_response(self, member: &str) -> Response {
        info!(bytes = self.length, "giving the database to a backup");
        let digest = format!("sha-256=:{}:", STANDARD.encode(self.digest));
        let headers = [
            (CONTENT_TYPE.as_str(), "application/octet-stream".to_owned()),
            (CONTENT_LENGTH.as_str(), self.length.to_string()),
            (DIGEST, digest),
            (MEMBER, member.to_owned()),
        ];
        let reading = Reading {
            file: tokio::fs::File::from_std(self.file),
            _permit: self.permit,
        };
        (headers, Body::from_stream(ReaderStream::new(reading))).into_response()
    }
}

/// Refuses where a snapshot, and a tenth of it more, does not fit beside the database.
fn check_room(data: &Path) -> Result<(), TakeError> {
    let size = std::fs::metadata(data.join(DATABASE)).map_or(0, |database| database.len());
    let room = statvfs(data).map_err(io::Error::from);
    let room = room.context(RoomSnafu { path: data })?;
    let free = room.blocks_available().saturating_mul(room.fragment_size());
    let needed = size.saturating_add(size / 10);
    snafu::ensure!(free >= needed, NoRoomSnafu { free, needed });
    Ok(())
}

fn digest_of(file: &mut File) -> io::Result<Digest> {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match io::Read::read(file, &mut buffer)? {
            0 => return Ok(context.finish()),
            read => context.update(&buffer[..read]),
        }
    }
}

/// The file on its way, and the turn that ends with it.
struct Reading {
    file: tokio::fs::File,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for Reading {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_stays_of_a_snapshot_that_was_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path();
        let path = data.join(FILE);
        std::fs::write(&path, "half").unwrap();
        let turn = Arc::new(Semaphore::new(1));
        let permit = || Arc::clone(&turn).try_acquire_owned().unwrap();
        // There is no controller.
        let taken = Taken::take(data, data, permit()).await;
        assert!(matches!(taken, Err(TakeError::Controller { .. })));
        assert!(!path.exists());

        // A database of a size that nothing has twice; the file takes no room.
        let database = File::create(data.join(DATABASE)).unwrap();
        database.set_len(1 << 43).unwrap();
        let taken = Taken::take(data, data, permit()).await;
        assert!(matches!(taken, Err(TakeError::NoRoom { .. })));
    }
}
