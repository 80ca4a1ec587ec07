//! The router's own agent socket: the one way in which a program beside a router can ask it
//! something. [`crate::sidecar`] is who asks.
//!
//! Every `ziti router run` listens on `$TMPDIR/gops-agent.<pid>.sock`, mode 0700. `ziti agent` speaks
//! to it; so does this module, because the image with `ziti` in it is not ours to run here. A
//! connection begins with thirteen magic bytes and the kind of request. Two kinds are used:
//! [`APP_INFO`], answered by a line of JSON, and [`CHANNEL`], which turns the connection into a
//! channel of Ziti's (wire format v2, the same as the control plane's): a hello, then requests that
//! are answered by a result.
//!
//! Seen on 1.6.0 and 2.1:
//! - `dequiesce` makes a round trip to a controller, so its success is proof that the router is
//!   online. Nothing else on this socket is, on 1.6. While the router has never been connected, the
//!   request is not answered at all; afterwards, it fails after five seconds.
//! - `quiesce` sets the precedence of all of the router's terminators to `failed`, in the
//!   controller's database. It outlives the router; `dequiesce` takes it back. Both may be repeated.
//! - The router does not remove the socket when it ends.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use snafu::{OptionExt, ResultExt, Snafu, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const MAGIC: [u8; 13] = [1, 0xb, 0xa, 0xd, 0xe, 0xc, 0xa, 0xf, 0xe, 0xf, 0, 0, 0xd];
/// Asks who is there.
const APP_INFO: u8 = 0x0a;
/// Asks for a channel.
const CHANNEL: u8 = 0x15;
/// The channel is to be with the router in the process.
const TO_ROUTER: u8 = 2;

const FRAME: [u8; 4] = [3, 6, 9, 0xc];
const HEADER_LENGTH: usize = 20;
/// What a message may hold: some ten thousand circuits.
const MAX_LENGTH: usize = 4 << 20;
const HELLO: i32 = 0;
const RESULT: i32 = 2;
/// Header: to which message this is the answer.
const REPLY_FOR: i32 = 1;
/// Header: whether it was done.
const SUCCESS: i32 = 2;

/// What a router can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// The text of its forwarding tables.
    Tables = 10074,
    /// New circuits shall avoid its terminators.
    Quiesce = 10077,
    /// Its terminators are as good as any again.
    Dequiesce = 10078,
}

/// Why there is no answer.
#[derive(Debug, Snafu)]
pub enum SocketError {
    /// The directory of the socket cannot be read.
    #[snafu(display("cannot look for the router's socket in {}", path.display()))]
    Look {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Nobody listens: the router does not run, or not yet.
    #[snafu(display("the router does not listen on {}", path.display()))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The connection broke.
    #[snafu(display("the router did not answer {what}"))]
    Exchange {
        /// What was asked.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// No answer in time.
    #[snafu(display("the router did not answer {what} within {within:?}"))]
    Late {
        /// What was asked.
        what: String,
        /// How long it had.
        within: Duration,
    },
    /// The answer is not one.
    #[snafu(display("the router's answer cannot be read: {why}"))]
    Strange {
        /// What is wrong with it.
        why: &'static str,
    },
    /// The router answered that it could not.
    #[snafu(display("the router did not carry out {what}: {message}"))]
    Refused {
        /// What was asked.
        what: String,
        /// What it said.
        message: String,
    },
}

/// One life of a router: a process that listens makes its socket anew.
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

/// A router's socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouterSocket {
    path: PathBuf,
    life: Life,
}

impl RouterSocket {
    /// The newest in the router's temporary directory: those of earlier lives stay there.
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

    /// Which life of the router it belongs to.
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// Whether a process listens: the socket of a router that was killed is still there. One that
    /// is too busy to answer listens all the same.
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
        // An answer that does not come is one of a busy router.
        !matches!(tokio::time::timeout(within, asked).await, Ok(Err(_)))
    }

    /// Asks, and returns the text of the answer.
    pub async fn ask(&self, request: Request, within: Duration) -> Result<String, SocketError> {
        let what = || format!("{request:?}");
        tokio::time::timeout(within, self.exchange(request))
            .await
            .ok()
            .with_context(|| LateSnafu {
                what: what(),
                within,
            })?
    }

    /// How many circuits begin or end at the router and are in use. Those that only pass through are
    /// not among them: the controller leads them another way when the router is gone.
    pub async fn circuits(&self, within: Duration) -> Result<usize, SocketError> {
        let tables = self.ask(Request::Tables, within).await?;
        let why = "the forwarding tables have no line `xgress (n):`";
        circuits(&tables).context(StrangeSnafu { why })
    }

    async fn exchange(&self, request: Request) -> Result<String, SocketError> {
        let what = format!("{request:?}");
        let mut stream = UnixStream::connect(&self.path)
            .await
            .context(ConnectSnafu { path: &self.path })?;
        let mut greeting = MAGIC.to_vec();
        greeting.extend([CHANNEL, TO_ROUTER]);
        greeting.extend(frame(HELLO, -1, b"ziti-agent"));
        let io = ExchangeSnafu { what: &what };
        stream.write_all(&greeting).await.context(io)?;
        answer(&mut stream, -1, &what).await?;
        let sent = frame(request as i32, 1, &[]);
        stream.write_all(&sent).await.context(io)?;
        answer(&mut stream, 1, &what).await
    }
}

/// The number in the line `xgress (n):`.
fn circuits(tables: &str) -> Option<usize> {
    let lines = tables.lines().rev();
    let mut counts = lines.filter_map(|line| line.strip_prefix("xgress ("));
    counts.next()?.strip_suffix("):")?.parse().ok()
}

fn frame(content_type: i32, sequence: i32, body: &[u8]) -> Vec<u8> {
    let mut frame = FRAME.to_vec();
    let length = i32::try_from(body.len()).unwrap_or(i32::MAX);
    for number in [content_type, sequence, 0, length] {
        frame.extend(number.to_le_bytes());
    }
    frame.extend(body);
    frame
}

/// Reads messages until the answer to `sequence` comes.
async fn answer(stream: &mut UnixStream, sequence: i32, what: &str) -> Result<String, SocketError> {
    let io = ExchangeSnafu { what };
    loop {
        let mut start = [0; HEADER_LENGTH];
        stream.read_exact(&mut start).await.context(io)?;
        let why = "it does not begin as a message does";
        ensure!(start.starts_with(&FRAME), StrangeSnafu { why });
        let length = |at: usize| usize::try_from(number(&start, at).unwrap_or(-1));
        let (Ok(headers), Ok(body)) = (length(12), length(16)) else {
            let why = "it has a negative length";
            return StrangeSnafu { why }.fail();
        };
        let why = "it is too long";
        ensure!(
            headers <= MAX_LENGTH && body <= MAX_LENGTH,
            StrangeSnafu { why }
        );
        let mut data = vec![0; headers + body];
        stream.read_exact(&mut data).await.context(io)?;
        let (headers, body) = data.split_at(headers);
        let reply_for = header(headers, REPLY_FOR).and_then(|value| number(value, 0));
        if number(&start, 4) != Some(RESULT) || reply_for != Some(sequence) {
            continue;
        }
        let message = String::from_utf8_lossy(body).trim_end().to_owned();
        let done = header(headers, SUCCESS).is_some_and(|value| value.first() == Some(&1));
        ensure!(done, RefusedSnafu { what, message });
        return Ok(message);
    }
}

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    let bytes = bytes.get(at..at + 4)?;
    bytes.try_into().ok().map(i32::from_le_bytes)
}

/// The value of a header among `key, length, value` after one another.
fn header(mut headers: &[u8], key: i32) -> Option<&[u8]> {
    loop {
        let length = usize::try_from(number(headers, 4)?).ok()?;
        let value = headers.get(8..8 + length)?;
        if number(headers, 0)? == key {
            return Some(value);
        }
        headers = &headers[8 + length..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circuits_in_use_are_counted_and_those_that_ended_are_not() {
        let ended = "circuits (1):\n\n\tc/SrUN\t\t@/ROoa -> @/Lymw\n\ndestinations (0):\n\n\nxgress (0):\n\n\n";
        assert_eq!(circuits(ended), Some(0));
        let two = "circuits (0):\n\ndestinations (2):\n\n\nxgress (2):\n\n\tc/SrUN:\n\t\t@/Lymw\n";
        assert_eq!(circuits(two), Some(2));
        assert_eq!(circuits("another text"), None);
    }

    #[test]
    fn headers_are_found_and_cut_ones_are_not_read() {
        let mut headers = Vec::new();
        for (key, value) in [(2_i32, &[1_u8][..]), (1, &7_i32.to_le_bytes())] {
            headers.extend(key.to_le_bytes());
            headers.extend(i32::try_from(value.len()).unwrap().to_le_bytes());
            headers.extend(value);
        }
        assert_eq!(header(&headers, SUCCESS), Some(&[1][..]));
        let reply_for = header(&headers, REPLY_FOR).unwrap();
        assert_eq!(number(reply_for, 0), Some(7));
        assert_eq!(header(&headers, 9), None);
        headers.pop();
        assert_eq!(header(&headers, REPLY_FOR), None);
    }

    #[test]
    fn there_is_no_socket_before_the_router_listens() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("gops-agent.1.sock"), "no socket").unwrap();
        assert_eq!(RouterSocket::find(dir.path()).unwrap(), None);
        assert!(RouterSocket::find(&dir.path().join("absent")).is_err());
    }
}
