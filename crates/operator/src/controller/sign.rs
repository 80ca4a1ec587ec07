//! What stands in the Secrets of root and members: keys and certificates, made of
//! what stood there and of what the planner says. No client and no clock.

use super::secrets::{CA, CA_KEY, text};
use crate::problem::{self, Error};
use api::reasons;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use plan::controller::config::files;
use plan::controller::pki::{Issue, Life};
use plan::edge_router::Problem;
use std::collections::BTreeMap;
use std::net::IpAddr;
use ziti::authority::{Authority, AuthorityError, Validity};
use ziti::chain::certificates;
use ziti::pki::{Key, Sans};

/// Keys of a Secret and their values; those without one go.
pub(super) type Data = BTreeMap<String, Option<ByteString>>;

pub(super) fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

fn told(error: &AuthorityError) -> Error {
    Problem::new(reasons::ROOT_UNUSABLE, problem::chain(error)).into()
}

fn of(life: Life) -> Validity {
    Validity {
        not_before: life.from,
        not_after: life.until,
    }
}

pub(super) fn gone() -> Error {
    let message = "the root of the network's certificates went away meanwhile";
    Problem::new(reasons::ROOT_UNUSABLE, message).into()
}

/// The root that is kept: the newest of its certificates, and all of them.
fn kept(secret: &Secret) -> Result<(Authority, String), Error> {
    let bundle = text(secret, CA).ok_or_else(gone)?;
    let key = text(secret, CA_KEY).ok_or_else(gone)?;
    let key = Key::from_pem(&key).map_err(|error| told(&error.into()))?;
    let newest = certificates(&bundle).into_iter().next();
    let authority =
        Authority::load(&newest.ok_or_else(gone)?, key).map_err(|error| told(&error))?;
    Ok((authority, bundle))
}

/// A new root.
pub(super) fn root(trust_domain: &str, life: Life) -> Result<Data, Error> {
    let root = Authority::root(trust_domain, of(life)).map_err(|error| told(&error))?;
    Ok(Data::from([
        (CA.to_owned(), Some(bytes(root.cert_pem()))),
        (CA_KEY.to_owned(), Some(bytes(root.key().expose_pem()))),
    ]))
}

/// The root, renewed: the new certificate goes before the old one, which stays in
/// the bundle. Both are of one key. Of those before it, the last one alone stays.
pub(super) fn renewed_root(secret: &Secret, life: Life) -> Result<Data, Error> {
    let (authority, _) = kept(secret)?;
    let renewed = authority.renewed(of(life)).map_err(|error| told(&error))?;
    let bundle = format!("{}{}", renewed.cert_pem(), authority.cert_pem());
    Ok(Data::from([(CA.to_owned(), Some(bytes(&bundle)))]))
}

/// What members are given, and the bundle; `known` is what they had.
pub(super) fn issued(
    root: &Secret,
    known: Option<&Secret>,
    issues: &[Issue],
) -> Result<Data, Error> {
    let (root, bundle) = kept(root)?;
    let mut data = Data::from([(CA.to_owned(), Some(bytes(&bundle)))]);
    for issue in issues {
        let member = &issue.member;
        let key_of = |file: &str| format!("{member}.{file}");
        if let Some(life) = issue.certificate {
            let (cert, key) = root
                .controller_certificate(member, &sans(&issue.names), &issue.trust_domain, of(life))
                .map_err(|error| told(&error))?;
            data.insert(key_of(files::CERT), Some(bytes(&cert)));
            data.insert(key_of(files::KEY), Some(bytes(key.expose_pem())));
        }
        if let Some(life) = issue.signer {
            let key = known.and_then(|secret| text(secret, &key_of(files::SIGNER_KEY)));
            let key = key.and_then(|pem| Key::from_pem(&pem).ok());
            let signer = root
                .signer(member, key, of(life))
                .map_err(|error| told(&error))?;
            let chain = format!("{}{}", signer.cert_pem(), root.cert_pem());
            data.insert(key_of(files::SIGNER), Some(bytes(&chain)));
            data.insert(
                key_of(files::SIGNER_KEY),
                Some(bytes(signer.key().expose_pem())),
            );
        }
    }
    Ok(data)
}

/// The certificate by which members know the backup of their own network.
pub(super) fn of_backups(root: &Secret, trust_domain: &str, life: Life) -> Result<Data, Error> {
    let (root, bundle) = kept(root)?;
    let (certificate, key) = root
        .backup_certificate(trust_domain, of(life))
        .map_err(|error| told(&error))?;
    Ok(Data::from([
        (CA.to_owned(), Some(bytes(&bundle))),
        ("tls.crt".to_owned(), Some(bytes(&certificate))),
        ("tls.key".to_owned(), Some(bytes(key.expose_pem()))),
    ]))
}

/// What goes with members.
pub(super) fn forgotten(members: &[String]) -> Data {
    let of_members = members.iter().flat_map(|member| {
        let files = files::OF_MEMBER.iter();
        files.map(move |file| (format!("{member}.{file}"), None))
    });
    of_members.collect()
}

fn sans(names: &[String]) -> Sans {
    let mut sans = Sans::default();
    for name in names {
        match name.parse::<IpAddr>() {
            Ok(ip) => sans.ips.push(ip),
            Err(_) => sans.dns.push(name.clone()),
        }
    }
    sans
}
