//! The certificates that a user has the members show beside their own: read, and
//! put into what a planner may know.

use super::secrets::text;
use crate::context::Context;
use crate::problem::{self, Error};
use api::ZitiController;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::Api;
use plan::controller::web::{CERTIFICATE, KEY, WebCertificate};
use std::collections::BTreeMap;
use ziti::pki::Key;

/// Of each Secret in `spec.web.altServerCerts`, by its name.
pub(super) async fn read(
    context: &Context,
    object: &ZitiController,
) -> Result<BTreeMap<String, WebCertificate>, Error> {
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let mut found = BTreeMap::new();
    for certificate in &object.spec.web.alt_server_certs {
        let name = &certificate.secret_ref.name;
        let secret = api.get_opt(name).await;
        let secret = secret.map_err(Error::kubernetes("reading", format!("Secret {name}")))?;
        found.insert(name.clone(), certificate_in(secret.as_ref()));
    }
    Ok(found)
}

fn certificate_in(secret: Option<&Secret>) -> WebCertificate {
    let Some(secret) = secret else {
        return WebCertificate::Absent;
    };
    match sound(secret) {
        Ok(digest) => WebCertificate::Ready { digest },
        Err(why) => WebCertificate::Unusable(why),
    }
}

/// A digest of the two, if they belong together: Ziti would not start otherwise.
fn sound(secret: &Secret) -> Result<String, String> {
    let missing = |key: &str| format!("it has no {key}");
    let chain = text(secret, CERTIFICATE).ok_or_else(|| missing(CERTIFICATE))?;
    let key = text(secret, KEY).ok_or_else(|| missing(KEY))?;
    let said = |error: ziti::pki::PkiError| problem::chain(&error);
    let belongs = Key::from_pem(&key).and_then(|key| key.belongs_to(&chain));
    if !belongs.map_err(said)? {
        return Err(format!("{KEY} does not belong to {CERTIFICATE}"));
    }
    Ok(plan::set::applied::hash(&(&chain, &key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use ziti::authority::{Authority, Validity};

    fn secret(entries: &[(&str, &str)]) -> Secret {
        let entry =
            |(key, text): &(&str, &str)| ((*key).to_owned(), ByteString(text.as_bytes().to_vec()));
        Secret {
            data: Some(entries.iter().map(entry).collect()),
            ..Secret::default()
        }
    }

    fn pair() -> (String, String) {
        let now = jiff::Timestamp::now();
        let validity = Validity {
            not_before: now,
            not_after: now + jiff::SignedDuration::from_hours(1),
        };
        let root = Authority::root("web.test", validity).unwrap();
        (
            root.cert_pem().to_owned(),
            root.key().expose_pem().to_owned(),
        )
    }

    #[test]
    fn a_certificate_is_taken_with_its_own_key_alone() {
        let unusable = |secret: &Secret| match certificate_in(Some(secret)) {
            WebCertificate::Unusable(why) => why,
            other => panic!("{other:?}"),
        };
        let ((chain, key), (_, other)) = (pair(), pair());
        assert_eq!(certificate_in(None), WebCertificate::Absent);
        assert_eq!(unusable(&secret(&[(KEY, &key)])), "it has no tls.crt");
        assert_eq!(
            unusable(&secret(&[(CERTIFICATE, &chain)])),
            "it has no tls.key"
        );
        let why = unusable(&secret(&[(CERTIFICATE, &chain), (KEY, "planted")]));
        assert!(
            why.contains("private key") && !why.contains("planted"),
            "{why}"
        );
        let why = unusable(&secret(&[(CERTIFICATE, "text"), (KEY, &key)]));
        assert!(why.contains("no PEM certificate"), "{why}");
        let why = unusable(&secret(&[(CERTIFICATE, &chain), (KEY, &other)]));
        assert_eq!(why, "tls.key does not belong to tls.crt");
        let sound = certificate_in(Some(&secret(&[(CERTIFICATE, &chain), (KEY, &key)])));
        assert!(matches!(sound, WebCertificate::Ready { digest } if !digest.is_empty()));
    }
}
