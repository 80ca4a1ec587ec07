//! Certificates out of a "certs only" PKCS#7 message (RFC 8951 `cacerts`). For [`crate::trust`].
//!
//! Read by hand with the `der` reader: Ziti writes the certificates in any order, while a
//! strict `SET OF` decoder refuses a list that is unsorted or holds one twice.

use der::{AnyRef, Decode, Reader, SliceReader, Tag, TagNumber};
use rustls_pki_types::CertificateDer;

/// The certificates of a PKCS#7 `SignedData` in DER, or `None` where it is not one.
pub(crate) fn certificates(message: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    read(message).ok()
}

fn read(message: &[u8]) -> der::Result<Vec<CertificateDer<'static>>> {
    // ContentInfo ::= SEQUENCE { contentType OID, content [0] EXPLICIT SignedData }
    let content_info = constructed(&mut SliceReader::new(message)?, Tag::Sequence)?;
    let mut content_info = SliceReader::new(content_info)?;
    AnyRef::decode(&mut content_info)?;
    let content = constructed(&mut content_info, context(TagNumber::N0))?;
    // SignedData ::= SEQUENCE { version, digestAlgorithms, encapContentInfo,
    //                           certificates [0] IMPLICIT OPTIONAL, … }
    let signed_data = constructed(&mut SliceReader::new(content)?, Tag::Sequence)?;
    let mut signed_data = SliceReader::new(signed_data)?;
    for _ in ["version", "digestAlgorithms", "encapContentInfo"] {
        AnyRef::decode(&mut signed_data)?;
    }
    let certificates = constructed(&mut signed_data, context(TagNumber::N0))?;
    let mut certificates = SliceReader::new(certificates)?;
    let mut found = Vec::new();
    while !certificates.is_finished() {
        found.push(CertificateDer::from(certificates.tlv_bytes()?.to_vec()));
    }
    Ok(found)
}

fn context(number: TagNumber) -> Tag {
    Tag::ContextSpecific {
        constructed: true,
        number,
    }
}

fn constructed<'a>(reader: &mut SliceReader<'a>, tag: Tag) -> der::Result<&'a [u8]> {
    let any = AnyRef::decode(reader)?;
    tag.assert_eq(der::Tagged::tag(&any))?;
    Ok(any.value())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One DER element; lengths below 65,536 are enough here.
    fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![tag, 0x82];
        out.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
        // The shortest form is mandatory in DER.
        if content.len() < 128 {
            out = vec![tag, u8::try_from(content.len()).unwrap()];
        } else if content.len() < 256 {
            out = vec![tag, 0x81, u8::try_from(content.len()).unwrap()];
        }
        out.extend(content);
        out
    }

    fn message(certificates: &[&[u8]]) -> Vec<u8> {
        let oid = tlv(
            0x06,
            &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02],
        );
        let signed = [
            tlv(0x02, &[1]),
            tlv(0x31, &[]),
            tlv(0x30, &oid),
            tlv(0xa0, &certificates.concat()),
            tlv(0x31, &[]),
        ];
        let content = tlv(0xa0, &tlv(0x30, &signed.concat()));
        tlv(0x30, &[oid, content].concat())
    }

    #[test]
    fn reads_unsorted_and_repeated_certificates() {
        let (one, two) = (tlv(0x30, &[9; 200]), tlv(0x30, &[1; 3]));
        let found = certificates(&message(&[&one, &two, &one])).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!(found[1].as_ref(), two);
    }

    #[test]
    fn refuses_what_is_not_pkcs7() {
        assert!(certificates(b"").is_none());
        assert!(certificates(b"<html>").is_none());
        assert!(certificates(&tlv(0x30, &[0x02, 0x01, 0x00])).is_none());
    }
}
