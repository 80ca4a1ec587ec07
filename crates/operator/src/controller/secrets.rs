//! The Secrets of a ZitiController: read, and put into what a planner may know.

use super::{issuer, written};
use crate::context::Context;
use crate::problem::{self, Error};
use api::{ZitiController, names};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Api;
use plan::controller::config::files;
use plan::controller::issuer::Held;
use plan::controller::pki::{Leaf, Life, MemberPki};
use plan::controller::restore::Order;
use plan::controller::{Admin, Bootstrap, OperatorToken, Root, RootFacts};
use std::collections::{BTreeMap, BTreeSet};
use ziti::pki::{CertificateFacts, Key};

/// Key of the root's certificate, and of the trust bundle.
pub(super) const CA: &str = files::CA;
/// Key of the root's key.
pub(super) const CA_KEY: &str = "ca.key";
/// Annotation on the root's Secret: a network was made with it.
pub(super) const MADE: &str = "openziti.io/network-made";
/// Annotations on the root's Secret: the restore that it is of, until its network is
/// there.
pub(super) const RESTORING: &str = "openziti.io/restoring";
/// And the backup that it was restored from.
pub(super) const RESTORED_FROM: &str = "openziti.io/restored-from";
/// Key of a restore's Secret: an age identity.
pub(super) const IDENTITY_KEY: &str = "identity";
/// Annotation on a restore's Secret: claims without a database, by uid.
pub(super) const EMPTY: &str = "openziti.io/empty-claims";
/// Annotations on the Secret of the operator's token.
pub(super) const IDENTITY: &str = "openziti.io/identity";
/// How often an identity was made.
pub(super) const SERIAL: &str = "openziti.io/serial";
/// When the identity was made.
pub(super) const MADE_AT: &str = "openziti.io/made-at";
/// Keys of the bootstrap Secret.
pub(super) const INITIALIZE: &str = "initialize";
/// The path of a database to take instead.
pub(super) const RESTORE: &str = "restore";
/// What that is called.
pub(super) const RESTORE_ID: &str = "restore-id";

/// The Secrets, as they are.
pub(super) struct Secrets {
    pub(super) root: Option<Secret>,
    pub(super) pki: Option<Secret>,
    pub(super) admin: Option<Secret>,
    pub(super) bootstrap: Option<Secret>,
    pub(super) operator: Option<Secret>,
    /// The client certificate of backups.
    pub(super) backup: Option<Secret>,
    /// The key of a restore.
    pub(super) restore: Option<Secret>,
    /// The operator's own client certificate, which the ZitiNetwork's controller
    /// keeps.
    pub(super) identity: Option<Secret>,
    /// What cert-manager has issued; `None` where the root is our own.
    pub(super) issued: Option<Vec<Secret>>,
}

/// By their names: one that a person put back may lack our labels.
pub(super) async fn read(context: &Context, object: &ZitiController) -> Result<Secrets, Error> {
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let get = async |wanted: String| {
        let found = api.get_opt(&wanted).await;
        found.map_err(Error::kubernetes("reading", format!("Secret {wanted}")))
    };
    let (root, pki, admin, bootstrap, operator, identity, backup, restore) = tokio::try_join!(
        get(names::controller_root_secret(&name)),
        get(names::controller_pki_secret(&name)),
        get(admin_name(object)),
        get(names::controller_bootstrap_secret(&name)),
        get(names::controller_operator_secret(&name)),
        get(names::admin_identity_secret(&name)),
        get(names::controller_backup(&name)),
        get(names::controller_restore(&name)),
    )?;
    let issued = match &object.spec.pki.issuer_ref {
        Some(_) => Some(issuer::read(context, &namespace, &name).await?),
        None => None,
    };
    Ok(Secrets {
        root,
        pki,
        admin,
        bootstrap,
        operator,
        backup,
        restore,
        identity,
        issued,
    })
}

/// One key of a Secret as text.
pub(super) fn text(secret: &Secret, key: &str) -> Option<String> {
    let value = secret.data.as_ref()?.get(key)?;
    let text = String::from_utf8(value.0.clone()).ok()?;
    (!text.is_empty()).then_some(text)
}

/// The root.
pub(super) fn root(secrets: &Secrets) -> Root {
    let Some(secret) = &secrets.root else {
        return Root::Absent;
    };
    let sound = match &secrets.issued {
        Some(_) => issuer::sound_root(secret),
        None => sound_root(secret),
    };
    match sound {
        Ok(root) => Root::Sound(root),
        Err(why) => Root::Unusable(why),
    }
}

fn sound_root(secret: &Secret) -> Result<RootFacts, String> {
    let missing = |key: &str| format!("it has no {key}");
    let bundle = text(secret, CA).ok_or_else(|| missing(CA))?;
    let key = text(secret, CA_KEY).ok_or_else(|| missing(CA_KEY))?;
    let said = |error: ziti::pki::PkiError| problem::chain(&error);
    let facts = CertificateFacts::from_pem(&bundle).map_err(said)?;
    let key = Key::from_pem(&key).map_err(said)?;
    if !key.belongs_to(&bundle).map_err(said)? {
        return Err(format!("{CA_KEY} does not belong to {CA}"));
    }
    let uri = facts
        .uris
        .iter()
        .find_map(|uri| uri.strip_prefix("spiffe://"));
    Ok(RootFacts {
        key: facts.key_id.clone().unwrap_or_default(),
        made: secret.annotations().contains_key(MADE),
        restoring: secret.annotations().get(RESTORING).cloned(),
        restored_from: secret.annotations().get(RESTORED_FROM).cloned(),
        trust_domain: uri.map(str::to_owned),
        life: life(&facts),
        bundle,
    })
}

pub(super) fn life(facts: &CertificateFacts) -> Life {
    Life {
        from: facts.not_before,
        until: facts.not_after,
    }
}

/// The certificates of the members.
pub(super) fn pki(secrets: &Secrets, root: &Root) -> Option<BTreeMap<String, MemberPki>> {
    let secret = secrets.pki.as_ref()?;
    let Root::Sound(root) = root else {
        return None;
    };
    let current = text(secret, CA).as_ref() == Some(&root.bundle);
    if secrets.issued.is_some() {
        let given = members_in(secret).into_iter().map(|member| {
            let pki = issuer::given(secret, root, &member);
            (member, pki)
        });
        return Some(given.collect());
    }
    let members = members_in(secret).into_iter().map(|member| {
        let name = member.as_str();
        let of = |file: &str| format!("{member}.{file}");
        let certificate = pair(secret, root, &of(files::CERT), &of(files::KEY));
        let signer = pair(secret, root, &of(files::SIGNER), &of(files::SIGNER_KEY));
        let pki = MemberPki {
            certificate: certificate.map(|facts| leaf(&facts)),
            signer: signer.filter(|facts| facts.is_ca).map(|facts| life(&facts)),
            written_at: written::at(secret, name),
            bundle_is_current: current,
            held: Held::default(),
        };
        (member, pki)
    });
    Some(members.collect())
}

/// The members of which the Secret holds anything.
pub(super) fn members_in(secret: &Secret) -> BTreeSet<String> {
    let keys = secret.data.iter().flatten().map(|(key, _)| key.as_str());
    files::OF_MEMBER
        .iter()
        .flat_map(|file| keys.clone().filter_map(move |key| key.strip_suffix(*file)))
        .filter_map(|member| member.strip_suffix('.'))
        .map(str::to_owned)
        .collect()
}

/// A certificate that the root signed and whose key is there.
pub(super) fn pair(
    secret: &Secret,
    root: &RootFacts,
    certificate: &str,
    key: &str,
) -> Option<CertificateFacts> {
    let certificate = text(secret, certificate)?;
    let key = Key::from_pem(&text(secret, key)?).ok()?;
    let facts = CertificateFacts::from_pem(&certificate).ok()?;
    let signed = facts.issuer_key_id.as_deref() == Some(root.key.as_str());
    (signed && key.belongs_to(&certificate).ok()?).then_some(facts)
}

/// Host names and addresses in a certificate.
pub(super) fn names_in(facts: &CertificateFacts) -> BTreeSet<String> {
    let ips = facts.ips.iter().map(ToString::to_string);
    facts.dns.iter().cloned().chain(ips).collect()
}

pub(super) fn leaf(facts: &CertificateFacts) -> Leaf {
    Leaf {
        life: life(facts),
        names: names_in(facts),
        uri: facts.uris.first().cloned(),
    }
}

/// The first administrator's name and password.
pub(super) fn credentials(secrets: &Secrets) -> Option<(String, String)> {
    let secret = secrets.admin.as_ref()?;
    Some((text(secret, "username")?, text(secret, "password")?))
}

pub(super) fn admin(secrets: &Secrets) -> Admin {
    let Some(secret) = &secrets.admin else {
        return Admin::Absent;
    };
    let name = secret.name_any();
    match credentials(secrets) {
        // Ziti's own bounds.
        Some((username, password)) if username.len() < 4 || password.len() < 5 => Admin::Unusable(
            format!("Secret {name}: a username has at least 4 characters, and a password 5"),
        ),
        Some(both) => Admin::Ready {
            digest: plan::set::applied::hash(&both),
        },
        None => Admin::Unusable(format!(
            "Secret {name} needs the keys username and password"
        )),
    }
}

pub(super) fn bootstrap(secrets: &Secrets) -> Option<Bootstrap> {
    let secret = secrets.bootstrap.as_ref()?;
    let restore = text(secret, RESTORE).zip(text(secret, RESTORE_ID));
    let both = text(secret, "username").zip(text(secret, "password"));
    Some(Bootstrap {
        initialize: text(secret, INITIALIZE),
        restore: restore.map(|(file, id)| Order { file, id }),
        admin: both.map(|both| plan::set::applied::hash(&both)),
    })
}

pub(super) fn operator(secrets: &Secrets) -> Option<OperatorToken> {
    let secret = secrets.operator.as_ref()?;
    let annotation = |key: &str| secret.annotations().get(key);
    Some(OperatorToken {
        identity: annotation(IDENTITY)?.clone(),
        serial: annotation(SERIAL)?.parse().ok()?,
        made_at: annotation(MADE_AT)?.parse::<Timestamp>().ok()?,
        enrolled: certificate(secrets).is_some(),
    })
}

/// The operator's own certificate and its key.
pub(super) fn certificate(secrets: &Secrets) -> Option<(String, String)> {
    let secret = secrets.identity.as_ref()?;
    text(secret, "tls.crt").zip(text(secret, "tls.key"))
}

/// Name of the Secret with the first administrator.
pub(super) fn admin_name(object: &ZitiController) -> String {
    let given = object.spec.admin_secret_ref.as_ref();
    given.map_or_else(
        || names::controller_admin_secret(&object.name_any()),
        |given| given.name.clone(),
    )
}
