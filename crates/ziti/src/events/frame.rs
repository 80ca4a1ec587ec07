//! The messages of a Ziti channel ("version 2"), as far as the event stream needs them. Each binary
//! websocket message is one:
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | `03 06 09 0c` |
//! | 4 | content type |
//! | 4 | sequence |
//! | 4 | length of the headers |
//! | 4 | length of the body |
//! | | headers: key, length, bytes, each number in 4 bytes |
//! | | body |
//!
//! Numbers are little-endian. (Source: `message.go` of `github.com/openziti/channel`.)

use snafu::{OptionExt, Snafu, ensure};

/// The largest message that is accepted; an event of a router has 300 bytes.
pub(super) const MAX_FRAME: usize = 64 * 1024;

const MAGIC: [u8; 4] = [0x03, 0x06, 0x09, 0x0c];
const FIXED: usize = 20;

/// Why bytes are no message of a Ziti channel.
#[derive(Debug, Snafu, PartialEq, Eq)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum FrameError {
    /// More than the client reads.
    #[snafu(display("{length} bytes, where at most {MAX_FRAME} are expected"))]
    TooLarge {
        /// Length of the message.
        length: usize,
    },
    /// It does not begin as such messages do.
    #[snafu(display("it is no message of a Ziti channel"))]
    NotAChannel,
    /// The lengths in it do not add up to its own.
    #[snafu(display("its lengths do not add up"))]
    Truncated,
}

/// One message, in the bytes that it came in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) content_type: u32,
    pub(super) sequence: u32,
    headers: &'a [u8],
    pub(super) body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// A message without headers.
    pub(super) fn new(content_type: u32, sequence: u32, body: &'a [u8]) -> Self {
        Self {
            content_type,
            sequence,
            headers: &[],
            body,
        }
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, FrameError> {
        let length = FIXED + self.headers.len() + self.body.len();
        ensure!(length <= MAX_FRAME, TooLargeSnafu { length });
        let size = |part: &[u8]| u32::try_from(part.len()).ok().context(TruncatedSnafu);
        let numbers = [
            self.content_type,
            self.sequence,
            size(self.headers)?,
            size(self.body)?,
        ];
        let mut bytes = MAGIC.to_vec();
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend_from_slice(self.headers);
        bytes.extend_from_slice(self.body);
        Ok(bytes)
    }

    /// Reads one message, which must be all of `bytes`, its headers included.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let length = bytes.len();
        ensure!(length <= MAX_FRAME, TooLargeSnafu { length });
        let rest = bytes.strip_prefix(&MAGIC).context(NotAChannelSnafu)?;
        let (content_type, rest) = number(rest)?;
        let (sequence, rest) = number(rest)?;
        let (headers, rest) = number(rest)?;
        let (body, rest) = number(rest)?;
        let (headers, body_bytes) = split(rest, headers)?;
        ensure!(
            usize::try_from(body) == Ok(body_bytes.len()),
            TruncatedSnafu
        );
        let frame = Self {
            content_type,
            sequence,
            headers,
            body: body_bytes,
        };
        let mut left = frame.headers;
        while !left.is_empty() {
            (_, left) = header(left)?;
        }
        Ok(frame)
    }

    /// The value of a header, where it is there.
    pub(super) fn header(&self, key: u32) -> Option<&'a [u8]> {
        let mut left = self.headers;
        while let Ok(((found, value), rest)) = header(left) {
            if found == key {
                return Some(value);
            }
            left = rest;
        }
        None
    }
}

type Rest<'a> = &'a [u8];

fn number(bytes: &[u8]) -> Result<(u32, Rest<'_>), FrameError> {
    let (number, rest) = bytes.split_first_chunk().context(TruncatedSnafu)?;
    Ok((u32::from_le_bytes(*number), rest))
}

fn split(bytes: &[u8], at: u32) -> Result<(&[u8], Rest<'_>), FrameError> {
    let at = usize::try_from(at).ok();
    at.and_then(|at| bytes.split_at_checked(at))
        .context(TruncatedSnafu)
}

fn header(bytes: &[u8]) -> Result<((u32, &[u8]), Rest<'_>), FrameError> {
    let (key, rest) = number(bytes)?;
    let (length, rest) = number(rest)?;
    let (value, rest) = split(rest, length)?;
    Ok(((key, value), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply as a controller sends it: content type 2, the answer to message 1, success.
    fn reply() -> Vec<u8> {
        let mut bytes = vec![3, 6, 9, 12, 2, 0, 0, 0, 7, 0, 0, 0, 21, 0, 0, 0, 2, 0, 0, 0];
        bytes.extend([1, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0]);
        bytes.extend([2, 0, 0, 0, 1, 0, 0, 0, 1]);
        bytes.extend(b"ok");
        bytes
    }

    #[test]
    fn reads_a_reply_of_a_controller() {
        let bytes = reply();
        let frame = Frame::decode(&bytes).unwrap();
        assert_eq!((frame.content_type, frame.sequence), (2, 7));
        assert_eq!(frame.header(1), Some([1, 0, 0, 0].as_slice()));
        assert_eq!(frame.header(2), Some([1].as_slice()));
        assert_eq!(frame.header(3), None);
        assert_eq!(frame.body, b"ok");
    }

    #[test]
    fn what_is_written_reads_back() {
        let frame = Frame::new(10040, 1, b"{}");
        let bytes = frame.encode().unwrap();
        assert_eq!(bytes[..8], [3, 6, 9, 12, 0x38, 0x27, 0, 0]);
        assert_eq!(Frame::decode(&bytes).unwrap(), frame);
        assert_eq!(reply(), Frame::decode(&reply()).unwrap().encode().unwrap());
    }

    #[test]
    fn any_part_of_a_message_alone_is_refused() {
        let bytes = reply();
        for end in 0..bytes.len() {
            let expected = if end < 4 {
                FrameError::NotAChannel
            } else {
                FrameError::Truncated
            };
            assert_eq!(Frame::decode(&bytes[..end]), Err(expected), "{end} bytes");
        }
        let mut longer = reply();
        longer.push(0);
        assert_eq!(Frame::decode(&longer), Err(FrameError::Truncated));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        // Of all headers, of the body, of the first header, of the second.
        for at in [12, 16, 24, 36] {
            for lie in [0, 3, 250] {
                for high in [0, 0x7f, 0xff] {
                    let mut bytes = reply();
                    if (bytes[at], bytes[at + 3]) == (lie, high) {
                        continue;
                    }
                    (bytes[at], bytes[at + 3]) = (lie, high);
                    assert_eq!(
                        Frame::decode(&bytes),
                        Err(FrameError::Truncated),
                        "{lie} and {high} at {at}"
                    );
                }
            }
        }
        let mut bytes = reply();
        bytes[0] = b'{';
        assert_eq!(Frame::decode(&bytes), Err(FrameError::NotAChannel));
    }

    #[test]
    fn what_is_too_large_is_neither_read_nor_written() {
        let length = MAX_FRAME + 1;
        let bytes = vec![0; length];
        assert_eq!(Frame::decode(&bytes), Err(FrameError::TooLarge { length }));
        let most = vec![0; MAX_FRAME - FIXED];
        assert!(Frame::new(1, 1, &most).encode().is_ok());
        let frame = Frame::new(1, 1, &bytes);
        assert!(matches!(frame.encode(), Err(FrameError::TooLarge { .. })));
    }
}
