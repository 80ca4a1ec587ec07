//! The little of protobuf's wire format that the messages of [`super::controller`] need: strings and
//! flags to write and to read. Four messages are no reason for a library and its generated code.

/// A field's value, as it is on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A number or a flag.
    Varint(u64),
    /// A text or a message.
    Bytes(&'a [u8]),
}

impl Value<'_> {
    pub(super) fn flag(self) -> bool {
        matches!(self, Self::Varint(number) if number != 0)
    }

    pub(super) fn text(self) -> String {
        match self {
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Varint(_) => String::new(),
        }
    }
}

/// Appends a field of text. Ziti's writers leave out what is empty; readers take both.
pub(super) fn put_text(message: &mut Vec<u8>, field: u64, text: &str) {
    put_varint(message, (field << 3) | 2);
    put_varint(message, text.len() as u64);
    message.extend(text.as_bytes());
}

/// The fields of a message, those of a kind that is not used here left out. None where it is none.
pub(super) fn fields(mut message: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let key = take_varint(&mut message)?;
        let length = match key & 7 {
            0 => {
                fields.push((key >> 3, Value::Varint(take_varint(&mut message)?)));
                continue;
            }
            1 => 8,
            2 => usize::try_from(take_varint(&mut message)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (value, rest) = message.split_at_checked(length)?;
        if key & 7 == 2 {
            fields.push((key >> 3, Value::Bytes(value)));
        }
        message = rest;
    }
    Some(fields)
}

fn put_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    message.push(number.to_le_bytes()[0]);
}

fn take_varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = message.split_first()?;
        *message = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_protoc_writes_is_written() {
        // printf 'a: "admin"' | protoc --encode, and a text longer than a byte can count.
        let mut message = Vec::new();
        put_text(&mut message, 1, "admin");
        assert_eq!(message, b"\x0a\x05admin");
        let long = "x".repeat(300);
        let mut message = Vec::new();
        put_text(&mut message, 3, &long);
        assert_eq!(&message[..3], &[0x1a, 0xac, 0x02]);
        assert_eq!(
            fields(&message).unwrap(),
            [(3, Value::Bytes(long.as_bytes()))]
        );
    }

    #[test]
    fn unknown_fields_are_passed_over_and_cut_ones_are_no_message() {
        // Field 9 as fixed32, 8 as fixed64, 4 as a flag, 1 as a text.
        let message = b"\x4d\x01\x02\x03\x04\x41\x01\x02\x03\x04\x05\x06\x07\x08\x20\x01\x0a\x02hi";
        let expected = [(4, Value::Varint(1)), (1, Value::Bytes(b"hi"))];
        assert_eq!(fields(message).unwrap(), expected);
        assert_eq!(fields(b""), Some(Vec::new()));
        for cut in [1, 4, 8, 15, 17, 18] {
            assert_eq!(fields(&message[..cut]), None, "{cut} bytes");
        }
        assert_eq!(fields(&[0xff; 11]), None, "a number that does not end");
        assert_eq!(fields(b"\x0b"), None, "a group");
    }
}
