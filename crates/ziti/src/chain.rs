//! What holds of a whole chain of certificates that somebody else issued: where it leads, and until
//! when it does.
//!
//! For the operator, where members' certificates come from an issuer that is not our own. No network
//! and no clock: signatures and names are looked at, and when the chain holds is told.

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::X509Certificate;

use crate::pki::{CertificateFacts, PkiError, parse};

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// A chain from a certificate up to an authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// What the first certificate says.
    pub first: CertificateFacts,
    /// The authority to which it leads, PEM.
    pub authority_pem: String,
    /// What that says.
    pub authority: CertificateFacts,
    /// First moment at which all of it is valid.
    pub not_before: Timestamp,
    /// Last moment at which all of it is valid.
    pub not_after: Timestamp,
}

/// Each certificate of a PEM text as a text of its own; what stands around them is left out.
pub fn certificates(pem: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = pem;
    while let Some((_, begun)) = rest.split_once(BEGIN) {
        let Some((body, after)) = begun.split_once(END) else {
            break;
        };
        found.push(format!("{BEGIN}{body}{END}\n"));
        rest = after;
    }
    found
}

/// The chain from the first certificate of `pem` to one of `authorities`, by way of the others in
/// `pem`; `None` where there is none. Each signature is verified, and each issuer must be one that
/// may sign. Of two authorities of one key and name it is the one that lasts longer.
///
/// # Errors
/// Where a certificate cannot be read.
pub fn chain(pem: &str, authorities: &str) -> Result<Option<Chain>, PkiError> {
    let between = ders(pem)?;
    let first = between.first().ok_or(PkiError::NoCertificate)?;
    let ends = certificates(authorities);
    let mut at = first;
    let mut life = life_of(first)?;
    // No chain is longer than the certificates that there are.
    for _ in 0..between.len() {
        let mut found: Option<(&String, CertificateFacts)> = None;
        for end in &ends {
            let der = CertificateDer::from_pem_slice(end.as_bytes())
                .map_err(|_| PkiError::ReadCertificate)?;
            if signed(at, &der)? {
                let facts = CertificateFacts::from_der(&der)?;
                if found
                    .as_ref()
                    .is_none_or(|(_, other)| other.not_after < facts.not_after)
                {
                    found = Some((end, facts));
                }
            }
        }
        if let Some((authority_pem, authority)) = found {
            return Ok(Some(Chain {
                first: CertificateFacts::from_der(first)?,
                authority_pem: authority_pem.clone(),
                not_before: life.0.max(authority.not_before),
                not_after: life.1.min(authority.not_after),
                authority,
            }));
        }
        let mut next = None;
        for one in between.iter().skip(1).filter(|one| *one != at) {
            if signed(at, one)? {
                next = Some(one);
            }
        }
        let Some(next) = next else { return Ok(None) };
        let (from, until) = life_of(next)?;
        life = (life.0.max(from), life.1.min(until));
        at = next;
    }
    Ok(None)
}

fn ders(pem: &str) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| PkiError::ReadCertificate)
}

fn life_of(der: &CertificateDer<'_>) -> Result<(Timestamp, Timestamp), PkiError> {
    let facts = CertificateFacts::from_der(der)?;
    Ok((facts.not_before, facts.not_after))
}

/// Whether `issuer` may sign, and has signed `der`.
fn signed(der: &CertificateDer<'_>, issuer: &CertificateDer<'_>) -> Result<bool, PkiError> {
    let (certificate, issuer): (X509Certificate<'_>, X509Certificate<'_>) =
        (parse(der)?, parse(issuer)?);
    let named = certificate.issuer().as_raw() == issuer.subject().as_raw();
    let key = issuer.public_key();
    Ok(named && issuer.is_ca() && certificate.verify_signature(Some(key)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::{Authority, Validity};
    use crate::pki::Sans;

    fn valid(from: i64, until: i64) -> Validity {
        let moment = |day: i64| Timestamp::from_second(2_000_000_000 + day * 86_400).unwrap();
        Validity {
            not_before: moment(from),
            not_after: moment(until),
        }
    }

    #[test]
    fn a_chain_leads_by_way_of_what_is_between_and_ends_with_its_first_end() {
        let root = Authority::root("a.b", valid(0, 100)).unwrap();
        let between = root.signer("between", None, valid(0, 50)).unwrap();
        let leaf = between.controller_certificate("c", &Sans::default(), "a.b", valid(10, 80));
        let (leaf, _) = leaf.unwrap();
        let other = Authority::root("a.b", valid(0, 100)).unwrap();

        let whole = format!("{leaf}{}", between.cert_pem());
        let all = format!("{}{}", other.cert_pem(), root.cert_pem());
        let found = chain(&whole, &all).unwrap().unwrap();
        assert_eq!(found.authority_pem, root.cert_pem());
        assert_eq!(found.first.common_name, "c");
        let holds = (found.not_before, found.not_after);
        assert_eq!(holds, (valid(10, 50).not_before, valid(10, 50).not_after));

        // The link is missing; another authority of the same name; one that may not sign.
        assert_eq!(chain(&leaf, &all).unwrap(), None);
        assert_eq!(chain(&whole, other.cert_pem()).unwrap(), None);
        assert_eq!(chain(&leaf, &leaf).unwrap(), None);
        assert!(chain("", &all).is_err());

        // Of one that was renewed with its key, the one that lasts.
        let renewed = root.renewed(valid(60, 300)).unwrap();
        let both = format!("{}{}", root.cert_pem(), renewed.cert_pem());
        let found = chain(&whole, &both).unwrap().unwrap();
        assert_eq!(found.authority_pem, renewed.cert_pem());
        assert_eq!(certificates(&both).concat(), both);
    }
}
