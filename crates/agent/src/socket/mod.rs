//! The agent socket of a Ziti process: the one way in which a program beside it can ask it something.
//! [`crate::sidecar`] is who asks, a router by [`router`] and a controller by [`controller`].
//!
//! Every `ziti router run` and `ziti controller run` listens on `$TMPDIR/gops-agent.<pid>.sock`, mode
//! 0700. `ziti agent` speaks to it; so does this module, because the image with `ziti` in it is not
//! ours to run here. A connection begins with thirteen magic bytes and the kind of request. Two kinds
//! are used: [`APP_INFO`], answered by a line of JSON, and [`CHANNEL`], which turns the connection into
//! a channel of Ziti's ([`frame`]) with what runs in the process: a hello, then one request that is
//! answered.
//!
//! Seen on 1.6.0 and 2.1: the process does not remove its socket when it ends.

pub mod controller;
mod frame;
mod protobuf;
pub mod router;

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use snafu::{ResultExt, Snafu, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use self::frame::Frame;

const MAGIC: [u8; 13] = [1, 0xb, 0xa, 0xd, 0xe, 0xc, 0xa, 0xf, 0xe, 0xf, 0, 0, 0xd];
/// Asks who is there.
const APP_INFO: u8 = 0x0a;
/// Asks for a channel.
const CHANNEL: u8 = 0x15;

const HELLO: i32 = 0;
const RESULT: i32 = 2;

/// Why there is no answer.
#[derive(Debug, Snafu)]
pub enum SocketError {
    /// The directory of the socket cannot be read.
    #[snafu(display("cannot look for Ziti's agent socket in {}", path.display()))]
    Look {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no socket where one is needed.
    #[snafu(display(
        "there is no agent socket in {}: nothing of Ziti runs with it as its TMPDIR",
        path.display()
    ))]
    Absent {
        /// The directory.
        path: PathBuf,
    },
    /// The process does not run, or not yet.
    #[snafu(display("nobody listens on {}", path.display()))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The connection broke.
    #[snafu(display("there was no answer to {what}"))]
    Exchange {
        /// What was asked.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// No answer in time.
    #[snafu(display("there was no answer to {what} within {within:?}"))]
    Late {
        /// What was asked.
        what: &'static str,
        /// How long it had.
        within: Duration,
    },
    /// The answer is not one.
    #[snafu(display("the answer to {what} cannot be read: {why}"))]
    Strange {
        /// What was asked.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The answer is that it could not.
    #[snafu(display("{what} was not carried out: {message}"))]
    Refused {
        /// What was asked.
        what: &'static str,
        /// What it said.
        message: String,
    },
}

/// One life of a process: whoever listens makes its socket anew.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Life {
    made: (i64, i64),
    device: u64,
    inode: u64,
}

impl Life {
    /// A text that no other life has.
    pub fn key(&self) -> String {
        let Self {
            made: (seconds, nanoseconds),
            device,
            inode,
        } = self;
        format!("{seconds}.{nanoseconds:09} {device} {inode}")
    }
}

/// With what in the process the channel is to be.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum App {
    Controller = 1,
    Router = 2,
}

/// What is asked. Not to be shown: a password may be in the body.
#[derive(Clone, Copy)]
struct Question<'a> {
    app: App,
    /// For messages to people.
    what: &'static str,
    kind: i32,
    headers: &'a [(i32, &'a [u8])],
    body: &'a [u8],
}

/// The socket of a Ziti process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSocket {
    path: PathBuf,
    life: Life,
}

impl AgentSocket {
    /// The newest in the temporary directory of the process: those of earlier lives stay there.
    pub fn find(directory: &Path) -> Result<Option<Self>, SocketError> {
        let look = LookSnafu { path: directory };
        let mut newest: Option<Self> = None;
        for entry in fs::read_dir(directory).context(look)? {
            let entry = entry.context(look)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if !name.starts_with("gops-agent.") || !name.ends_with(".sock") {
                continue;
            }
            // One that went away meanwhile is none.
            let Ok(found) = entry.metadata() else {
                continue;
            };
            let life = Life {
                made: (found.mtime(), found.mtime_nsec()),
                device: found.dev(),
                inode: found.ino(),
            };
            let newer = newest.as_ref().is_none_or(|newest| newest.life < life);
            if found.file_type().is_socket() && newer {
                let path = entry.path();
                newest = Some(Self { path, life });
            }
        }
        Ok(newest)
    }

    /// Which life of the process it belongs to.
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// Whether a process listens: the socket of one that was killed is still there. One that is too
    /// busy to answer listens all the same.
    pub async fn is_alive(&self) -> bool {
        let asked = async {
            let mut stream = UnixStream::connect(&self.path).await?;
            let mut request = MAGIC.to_vec();
            request.push(APP_INFO);
            stream.write_all(&request).await?;
            let mut answer = Vec::new();
            stream.take(4096).read_to_end(&mut answer).await
        };
        let within = Duration::from_millis(500);
        // An answer that does not come is one of a busy process.
        !matches!(tokio::time::timeout(within, asked).await, Ok(Err(_)))
    }

    /// Asks, and returns the answer. A result that says "no" is an error.
    async fn ask(&self, question: Question<'_>, within: Duration) -> Result<Frame, SocketError> {
        let what = question.what;
        match tokio::time::timeout(within, self.exchange(question)).await {
            Ok(answered) => answered,
            Err(_) => LateSnafu { what, within }.fail(),
        }
    }

    async fn exchange(&self, question: Question<'_>) -> Result<Frame, SocketError> {
        let Question {
            app,
            what,
            kind,
            headers,
            body,
        } = question;
        let mut stream = UnixStream::connect(&self.path)
            .await
            .context(ConnectSnafu { path: &self.path })?;
        let mut greeting = MAGIC.to_vec();
        greeting.extend([CHANNEL, app as u8]);
        greeting.extend(frame::encode(HELLO, -1, &[], b"ziti-agent"));
        let io = ExchangeSnafu { what };
        stream.write_all(&greeting).await.context(io)?;
        answer(&mut stream, -1, what).await?;
        let sent = frame::encode(kind, 1, headers, body);
        stream.write_all(&sent).await.context(io)?;
        answer(&mut stream, 1, what).await
    }
}

/// Reads messages until the answer to `sequence` comes.
async fn answer(
    stream: &mut UnixStream,
    sequence: i32,
    what: &'static str,
) -> Result<Frame, SocketError> {
    loop {
        let frame = match frame::read(stream).await {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let why = error.to_string();
                return StrangeSnafu { what, why }.fail();
            }
            read => read.context(ExchangeSnafu { what })?,
        };
        if !frame.answers(sequence) {
            continue;
        }
        let done = frame.kind != RESULT || frame.is_success();
        let message = || String::from_utf8_lossy(&frame.body).trim_end().to_owned();
        ensure!(
            done,
            RefusedSnafu {
                what,
                message: message()
            }
        );
        return Ok(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_socket_before_the_process_listens() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("gops-agent.1.sock"), "no socket").unwrap();
        assert_eq!(AgentSocket::find(dir.path()).unwrap(), None);
        assert!(AgentSocket::find(&dir.path().join("absent")).is_err());
    }
}
