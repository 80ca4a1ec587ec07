//! The messages of Ziti's channels (wire format v2), as bytes. Only [`super`] uses this module.
//!
//! A message is four magic bytes, four little-endian numbers (kind, sequence, length of the headers,
//! length of the body), the headers (`key, length, value` after one another) and the body. It is the
//! format of the control plane too.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

const MAGIC: [u8; 4] = [3, 6, 9, 0xc];
const START: usize = 20;
/// What a message may hold: some ten thousand circuits.
const MAX_LENGTH: usize = 4 << 20;
/// Header: to which message this is the answer.
const REPLY_FOR: i32 = 1;
/// Header: whether it was done.
const SUCCESS: i32 = 2;

/// A message that came.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: i32,
    headers: Vec<u8>,
    pub(super) body: Vec<u8>,
}

impl Frame {
    /// Whether it answers the message of this sequence number.
    pub(super) fn answers(&self, sequence: i32) -> bool {
        let value = header(&self.headers, REPLY_FOR);
        value.and_then(|value| number(value, 0)) == Some(sequence)
    }

    /// Whether it says that what was asked has been done.
    pub(super) fn is_success(&self) -> bool {
        header(&self.headers, SUCCESS).is_some_and(|value| value.first() == Some(&1))
    }
}

/// The bytes of a message.
pub(super) fn encode(kind: i32, sequence: i32, headers: &[(i32, &[u8])], body: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::new();
    for (key, value) in headers {
        encoded.extend(key.to_le_bytes());
        encoded.extend(length(value));
        encoded.extend(*value);
    }
    let mut message = MAGIC.to_vec();
    message.extend(kind.to_le_bytes());
    message.extend(sequence.to_le_bytes());
    message.extend(length(&encoded));
    message.extend(length(body));
    message.extend(encoded);
    message.extend(body);
    message
}

/// Reads one message. What is no message is an error of kind [`io::ErrorKind::InvalidData`].
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Frame> {
    let strange = |why| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    let mut start = [0; START];
    stream.read_exact(&mut start).await?;
    if !start.starts_with(&MAGIC) {
        return strange("it does not begin as a message does");
    }
    let length = |at: usize| usize::try_from(number(&start, at).unwrap_or(-1));
    let (Ok(headers), Ok(body)) = (length(12), length(16)) else {
        return strange("it has a negative length");
    };
    if headers > MAX_LENGTH || body > MAX_LENGTH {
        return strange("it is too long");
    }
    let mut frame = Frame {
        kind: number(&start, 4).unwrap_or_default(),
        headers: vec![0; headers],
        body: vec![0; body],
    };
    stream.read_exact(&mut frame.headers).await?;
    stream.read_exact(&mut frame.body).await?;
    Ok(frame)
}

fn length(bytes: &[u8]) -> [u8; 4] {
    i32::try_from(bytes.len()).unwrap_or(i32::MAX).to_le_bytes()
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

    #[tokio::test]
    async fn a_message_is_read_as_it_was_written() {
        let sequence = 7_i32.to_le_bytes();
        let message = encode(2, 9, &[(SUCCESS, &[1]), (REPLY_FOR, &sequence)], b"done");
        let frame = read(&mut &message[..]).await.unwrap();
        assert_eq!((frame.kind, &frame.body[..]), (2, &b"done"[..]));
        assert!(frame.is_success() && frame.answers(7) && !frame.answers(9));

        let cut = read(&mut &message[..message.len() - 1]).await.unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
        for (at, byte) in [(0, 0), (15, 0xff), (19, 0x7f)] {
            let mut strange = message.clone();
            strange[at] = byte;
            let error = read(&mut &strange[..]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "byte {at}");
        }
    }

    #[test]
    fn headers_are_found_and_cut_ones_are_not_read() {
        let mut headers = Vec::new();
        for (key, value) in [(2_i32, &[1_u8][..]), (1, &7_i32.to_le_bytes())] {
            headers.extend(key.to_le_bytes());
            headers.extend(length(value));
            headers.extend(value);
        }
        assert_eq!(header(&headers, SUCCESS), Some(&[1][..]));
        let reply_for = header(&headers, REPLY_FOR).unwrap();
        assert_eq!(number(reply_for, 0), Some(7));
        assert_eq!(header(&headers, 9), None);
        headers.pop();
        assert_eq!(header(&headers, REPLY_FOR), None);
    }
}
