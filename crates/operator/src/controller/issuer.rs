//! Members' certificates that cert-manager issues: what it has put into its Secrets
//! is read, and copied to where pods mount it. What is copied, and when, is the
//! planner's to say (`plan::controller::issuer`).

use super::issue::{change, create, write};
use super::observe::Observed;
use super::secrets::{CA, MADE, Secrets, life, members_in, names_in, text};
use super::sign::{Data, bytes};
use super::written;
use crate::context::Context;
use crate::io;
use crate::problem::{self, Error};
use api::{ZitiController, names};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::DynamicObject;
use plan::controller::RootFacts;
use plan::controller::config::files;
use plan::controller::issuer::{Adoption, Authority, Held, Issuer, Offer, Offered, Print};
use plan::controller::pki::{Leaf, Life, MemberPki};
use plan::set::extra::CERTIFICATE;
use serde_json::{Value, json};
use tracing::info;
use ziti::chain::{Chain, certificates, chain};
use ziti::pki::{CertificateFacts, Key};

/// Keys of cert-manager's Secrets.
const CERT: &str = "tls.crt";
const KEY: &str = "tls.key";
/// Key in the Secret of the root, beside what is trusted.
const TRUST_DOMAIN: &str = "trust-domain";

/// The Secrets in which cert-manager keeps what it issued for this object, by the
/// label that our Certificates have it put there.
pub(super) async fn read(
    context: &Context,
    namespace: &str,
    name: &str,
) -> Result<Vec<Secret>, Error> {
    let label = format!("{}={name}", names::LABEL_CONTROLLER);
    let all = io::list::<Secret>(
        &context.client,
        namespace,
        &ListParams::default().labels(&label),
    )
    .await?;
    let issued = |secret: &Secret| secret.type_.as_deref() == Some("kubernetes.io/tls");
    Ok(all.into_iter().filter(issued).collect())
}

/// The authorities that are trusted, in the place of a root of our own.
pub(super) fn sound_root(secret: &Secret) -> Result<RootFacts, String> {
    let bundle = text(secret, CA).ok_or_else(|| format!("it has no {CA}"))?;
    let first = CertificateFacts::from_pem(&bundle).map_err(|error| problem::chain(&error))?;
    Ok(RootFacts {
        key: key_of(&first),
        made: secret.annotations().contains_key(MADE),
        trust_domain: text(secret, TRUST_DOMAIN),
        life: life(&first),
        bundle,
        // A network of another's certificates is not restored.
        restoring: None,
        restored_from: None,
    })
}

/// The identifier of a certificate's key; of the certificate, where it states none.
fn key_of(facts: &CertificateFacts) -> String {
    let key = facts.key_id.clone();
    key.unwrap_or_else(|| facts.fingerprint.clone())
}

/// What a planner may know of cert-manager's work; `None` where the root is our own.
pub(super) fn offered(secrets: &Secrets, installed: bool) -> Option<Issuer> {
    let issued = secrets.issued.as_ref()?;
    let offers = issued
        .iter()
        .filter_map(|secret| Some((secret.name_any(), offer(secret)?)));
    let bundle = secrets.root.as_ref().and_then(|secret| text(secret, CA));
    let trusted = certificates(&bundle.unwrap_or_default()).into_iter();
    Some(Issuer {
        installed,
        offers: offers.collect(),
        trusted: trusted.filter_map(authority).collect(),
    })
}

fn authority(pem: String) -> Option<Authority> {
    let facts = CertificateFacts::from_pem(&pem).ok()?;
    Some(Authority {
        key: key_of(&facts),
        life: life(&facts),
        pem,
    })
}

/// What one Secret holds; nothing, until something was issued.
fn offer(secret: &Secret) -> Option<Offer> {
    let certificate = text(secret, CERT)?;
    Some(match sound(secret, &certificate) {
        Ok(offered) => Offer::Sound(Box::new(offered)),
        Err(why) => Offer::Unusable(why),
    })
}

fn sound(secret: &Secret, certificate: &str) -> Result<Offered, String> {
    let name = secret.name_any();
    let key = text(secret, KEY).ok_or_else(|| format!("has no {KEY} in Secret {name}"))?;
    let bundle = text(secret, CA).ok_or_else(|| {
        format!(
            "has no {CA} in Secret {name}, so nobody knows what to trust (ACME issuers tell no CA)"
        )
    })?;
    let chain = linked(certificate, &key, &bundle)?;
    Ok(Offered {
        print: print(&chain),
        own: life(&chain.first),
        life: life_of(&chain),
        names: names_in(&chain.first),
        uri: chain.first.uris.first().cloned(),
        signs: chain.first.is_ca,
        authority: Authority {
            key: key_of(&chain.authority),
            life: life(&chain.authority),
            pem: chain.authority_pem,
        },
    })
}

/// The chain of a certificate whose key is there; else what is wrong with it.
fn linked(certificate: &str, key: &str, bundle: &str) -> Result<Chain, String> {
    let said = |error: ziti::pki::PkiError| format!("cannot be read: {}", problem::chain(&error));
    let key = Key::from_pem(key).map_err(said)?;
    if !key.belongs_to(certificate).map_err(said)? {
        return Err("is not of the key beside it".to_owned());
    }
    chain(certificate, bundle)
        .map_err(said)?
        .ok_or_else(|| format!("does not lead to a CA in the {CA} beside it"))
}

fn print(chain: &Chain) -> Print {
    Print {
        digest: chain.first.fingerprint.clone(),
        authority: key_of(&chain.authority),
    }
}

fn life_of(chain: &Chain) -> Life {
    Life {
        from: chain.not_before,
        until: chain.not_after,
    }
}

/// What a member was given.
pub(super) fn given(secret: &Secret, root: &RootFacts, member: &str) -> MemberPki {
    let of = |certificate: &str, key: &str| {
        let certificate = text(secret, &format!("{member}.{certificate}"))?;
        let key = text(secret, &format!("{member}.{key}"))?;
        linked(&certificate, &key, &root.bundle).ok()
    };
    let certificate = of(files::CERT, files::KEY);
    let signer = of(files::SIGNER, files::SIGNER_KEY).filter(|chain| chain.first.is_ca);
    MemberPki {
        held: Held {
            certificate: certificate.as_ref().map(print),
            signer: signer.as_ref().map(print),
        },
        bundle_is_current: text(secret, CA).as_ref() == Some(&root.bundle),
        written_at: written::at(secret, member),
        certificate: certificate.map(|chain| Leaf {
            life: life_of(&chain),
            names: names_in(&chain.first),
            uri: chain.first.uris.first().cloned(),
        }),
        signer: signer.as_ref().map(life_of),
    }
}

/// Writes what the network is trusted by.
pub(super) async fn keep_trust(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
    trust_domain: &str,
    bundle: &str,
) -> Result<(), Error> {
    let mut data = Data::from([(CA.to_owned(), Some(bytes(bundle)))]);
    let known = observed.secrets.root.as_ref();
    if known.is_none_or(|known| text(known, TRUST_DOMAIN).is_none()) {
        data.insert(TRUST_DOMAIN.to_owned(), Some(bytes(trust_domain)));
    }
    let name = names::controller_root_secret(&object.name_any());
    write(context, object, known, &name, data).await?;
    info!(
        controller = io::path(object),
        trust_domain, "changed what the network is trusted by"
    );
    Ok(())
}

/// Copies what cert-manager has issued to where pods mount it, and the bundle.
pub(super) async fn adopt(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
    given: &[Adoption],
) -> Result<(), Error> {
    let secrets = &observed.secrets;
    let Some(bundle) = secrets.root.as_ref().and_then(|root| text(root, CA)) else {
        return Ok(());
    };
    let known = secrets.pki.as_ref();
    let mut data = Data::new();
    for adoption in given {
        let member = &adoption.member;
        if adoption.certificate {
            copy(secrets, &names::member_certificate(member), |cert, key| {
                data.insert(format!("{member}.{}", files::CERT), Some(bytes(cert)));
                data.insert(format!("{member}.{}", files::KEY), Some(bytes(key)));
            });
        }
        if adoption.signer {
            copy(secrets, &names::member_signer(member), |cert, key| {
                // What enrolls there is given the whole way up.
                let whole = chain(cert, &bundle).ok().flatten();
                let authority = whole.map(|chain| chain.authority_pem);
                let cert = format!("{}{}", cert_lines(cert), authority.unwrap_or_default());
                data.insert(format!("{member}.{}", files::SIGNER), Some(bytes(&cert)));
                data.insert(format!("{member}.{}", files::SIGNER_KEY), Some(bytes(key)));
            });
        }
        info!(
            controller = io::path(object),
            member,
            certificate = adoption.certificate,
            signer = adoption.signer,
            "gave certificates of the issuer"
        );
    }
    data.insert(CA.to_owned(), Some(bytes(&bundle)));
    let name = names::controller_pki_secret(&object.name_any());
    match known {
        Some(secret) => {
            // A new bundle is something new to all of them.
            let told = text(secret, CA).as_ref() == Some(&bundle);
            let to_some = given.iter().map(|adoption| adoption.member.clone());
            let to_all = || members_in(secret).into_iter();
            let receivers: Vec<String> = if told {
                to_some.collect()
            } else {
                to_some.chain(to_all()).collect()
            };
            let metadata = written::noting_others(secret, &receivers);
            change(context, object, secret, metadata, data).await
        }
        None => create(context, object, &name, data).await,
    }
}

/// The certificates of a text and nothing else, so that more can follow.
fn cert_lines(pem: &str) -> String {
    certificates(pem).concat()
}

fn copy(secrets: &Secrets, name: &str, put: impl FnOnce(&str, &str)) {
    let mut issued = secrets.issued.iter().flatten();
    let secret = issued.find(|secret| secret.name_any() == name);
    let pair = secret.and_then(|secret| text(secret, CERT).zip(text(secret, KEY)));
    if let Some((certificate, key)) = pair {
        put(&certificate, &key);
    }
}

/// Has cert-manager issue Certificates anew, by the condition by which its own
/// command does (`cmctl renew`).
pub(super) async fn reissue(
    context: &Context,
    object: &ZitiController,
    observed: &Observed,
    wanted: &[String],
) -> Result<(), Error> {
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &namespace, &CERTIFICATE.resource());
    let of_name = |extra: &&DynamicObject| wanted.contains(&extra.name_any());
    for certificate in observed.extras.iter().filter(of_name) {
        let name = certificate.name_any();
        let conditions = certificate.data["status"]["conditions"].as_array();
        let mut conditions: Vec<Value> = conditions.cloned().unwrap_or_default();
        conditions.retain(|condition| condition["type"] != "Issuing");
        conditions.push(json!({
            "type": "Issuing",
            "status": "True",
            "reason": "AuthorityEnds",
            "message": "its authority ends before it does; asked for by the Ziti operator",
            "lastTransitionTime": Timestamp::now(),
            "observedGeneration": certificate.metadata.generation,
        }));
        let patch = json!({
            "metadata": {"resourceVersion": certificate.resource_version()},
            "status": {"conditions": conditions},
        });
        let params = PatchParams {
            field_manager: Some(names::FIELD_MANAGER_CONTROLLER.to_owned()),
            ..PatchParams::default()
        };
        api.patch_status(&name, &params, &Patch::Merge(patch))
            .await
            .map_err(Error::kubernetes(
                "asking for a new certificate by the status of",
                format!("Certificate {name}"),
            ))?;
        info!(
            controller = io::path(object),
            certificate = name,
            "asked for a new certificate"
        );
    }
    Ok(())
}
