//! Reads what a ZitiNetwork names, and makes a connection of it.

use crate::context::Context;
use crate::networks::{Connection, Network};
use crate::{io, problem};
use api::ziti_network::{Credential as CredentialSpec, Trust};
use api::{SecretKeyRef, ZitiNetwork, names, reasons};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta};
use kube::{Resource, ResourceExt};
use plan::edge_router::Problem;
use std::collections::BTreeMap;
use std::time::Duration;
use ziti::enroll::{EnrollError, enroll_identity};
use ziti::management::{Credential, ManagementClient, Options};
use ziti::pki::{CertificateFacts, Key};
use ziti::token::EnrollmentToken;
use ziti::trust::{CaBundle, TrustAnchor};
use ziti::{SecretString, Url};

/// Deadline of one exchange with a controller.
const TIMEOUT: Duration = Duration::from_secs(10);
/// In the Secret with the operator's own identity: digest of the token that it
/// was made with.
const DIGEST_KEY: &str = "token-digest";
/// In the same: the key that was made for a token which has not been redeemed yet,
/// and the digest of that.
const PENDING_KEY: &str = "pending.key";
const PENDING_DIGEST: &str = "pending-digest";

/// What is read before a connection is made.
struct Inputs {
    trust_text: String,
    credential: Option<CredentialInput>,
}

enum CredentialInput {
    Password {
        username: String,
        password: SecretString,
    },
    Certificate {
        cert_pem: String,
        key_pem: SecretString,
    },
    Token(Box<EnrollmentToken>),
}

/// The connection that the object asks for: the one there is, while what it was
/// made of is unchanged, else a new one.
pub(super) async fn connect(
    context: &Context,
    object: &ZitiNetwork,
    network: &Network,
) -> Result<Connection, Problem> {
    let inputs = read(context, object).await?;
    let digest = digest(object, &inputs);
    if let Some(connection) = network
        .connection()
        .filter(|connection| connection.inputs == digest)
    {
        return Ok(connection);
    }
    let source = match &object.spec.trust {
        Trust::ConfigMap(reference) => {
            format!("key {} of ConfigMap {}", reference.key, reference.name)
        }
        Trust::Secret(reference) | Trust::Token(reference) => {
            format!("key {} of Secret {}", reference.key, reference.name)
        }
    };
    let bundle = match &object.spec.trust {
        Trust::ConfigMap(_) | Trust::Secret(_) => CaBundle::from_pem(&inputs.trust_text)
            .map_err(|error| problem::of_trust(&error, &source))?,
        Trust::Token(_) => {
            let token = parse(&inputs.trust_text, "spec.trust.token")?;
            TrustAnchor::Token(token)
                .resolve(TIMEOUT)
                .await
                .map_err(|error| problem::of_trust(&error, &source))?
        }
    };
    let (credential, credential_expiry) = match inputs.credential {
        None => (None, None),
        Some(CredentialInput::Password { username, password }) => {
            (Some(Credential::Password { username, password }), None)
        }
        Some(CredentialInput::Certificate { cert_pem, key_pem }) => with_expiry(cert_pem, key_pem),
        Some(CredentialInput::Token(token)) => {
            let (cert_pem, key_pem) = admin_identity(context, object, &token, &bundle).await?;
            with_expiry(cert_pem, key_pem)
        }
    };
    let endpoints: Vec<Url> = object
        .spec
        .management_api
        .iter()
        .map(|text| {
            text.parse().map_err(|error| {
                Problem::new(
                    reasons::INVALID_SPEC,
                    format!("spec.managementApi holds {text:?}, which is no URL: {error}"),
                )
            })
        })
        .collect::<Result<_, _>>()?;
    let has_credential = credential.is_some();
    let client = ManagementClient::new(&endpoints, &bundle, credential, &Options::default())
        .map_err(|error| problem::of_management(&error))?;
    let connection = Connection {
        client,
        bundle,
        has_credential,
        credential_expiry,
        inputs: digest,
    };
    network.connect(connection.clone());
    Ok(connection)
}

fn with_expiry(cert_pem: String, key_pem: SecretString) -> (Option<Credential>, Option<Timestamp>) {
    let expiry = CertificateFacts::from_pem(&cert_pem)
        .ok()
        .map(|facts| facts.not_after);
    (
        Some(Credential::ClientCertificate { cert_pem, key_pem }),
        expiry,
    )
}

async fn read(context: &Context, object: &ZitiNetwork) -> Result<Inputs, Problem> {
    let namespace = object.namespace().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let trust_text = match &object.spec.trust {
        Trust::ConfigMap(reference) => {
            let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
            let map = maps
                .get_opt(&reference.name)
                .await
                .map_err(|error| unreadable("ConfigMap", &reference.name, &error))?;
            let map =
                map.ok_or_else(|| missing("ConfigMap", &reference.name, "spec.trust.configMap"))?;
            let value = map
                .data
                .as_ref()
                .and_then(|data| data.get(&reference.key))
                .cloned();
            value.ok_or_else(|| no_key("ConfigMap", &reference.name, &reference.key))?
        }
        Trust::Secret(reference) => secret_key(&secrets, reference, "spec.trust.secret").await?,
        Trust::Token(reference) => secret_key(&secrets, reference, "spec.trust.token").await?,
    };
    let credential = match &object.spec.credential {
        None => None,
        Some(CredentialSpec::Password(reference)) => {
            let secret = secret(&secrets, &reference.name, "spec.credential.password").await?;
            let password = text_of(&secret, "password")?;
            Some(CredentialInput::Password {
                username: text_of(&secret, "username")?,
                password: SecretString::from(password),
            })
        }
        Some(CredentialSpec::ClientCertificate(reference)) => {
            let secret = secret(
                &secrets,
                &reference.name,
                "spec.credential.clientCertificate",
            )
            .await?;
            let key = text_of(&secret, "tls.key")?;
            Some(CredentialInput::Certificate {
                cert_pem: text_of(&secret, "tls.crt")?,
                key_pem: SecretString::from(key),
            })
        }
        Some(CredentialSpec::EnrollmentToken(reference)) => {
            let text = secret_key(&secrets, reference, "spec.credential.enrollmentToken").await?;
            let token = parse(&text, "spec.credential.enrollmentToken")?;
            Some(CredentialInput::Token(Box::new(token)))
        }
    };
    Ok(Inputs {
        trust_text,
        credential,
    })
}

/// Everything that a connection is made of, as one digest.
fn digest(object: &ZitiNetwork, inputs: &Inputs) -> String {
    use ziti::ExposeSecret;
    let credential = match &inputs.credential {
        None => String::new(),
        Some(CredentialInput::Password { username, password }) => {
            format!("{username}\n{}", password.expose_secret())
        }
        Some(CredentialInput::Certificate { cert_pem, key_pem }) => {
            format!("{cert_pem}\n{}", key_pem.expose_secret())
        }
        Some(CredentialInput::Token(token)) => token.digest().to_owned(),
    };
    plan::set::applied::hash(&(&object.spec.management_api, &inputs.trust_text, credential))
}

fn parse(text: &str, field: &str) -> Result<EnrollmentToken, Problem> {
    EnrollmentToken::parse(text).map_err(|error| {
        Problem::new(
            reasons::SOURCE_INVALID,
            format!("{field} holds no Ziti token: {}", problem::chain(&error)),
        )
    })
}

/// The operator's own identity, made once with the one-time token. The key is
/// stored before the token is spent.
async fn admin_identity(
    context: &Context,
    object: &ZitiNetwork,
    token: &EnrollmentToken,
    bundle: &CaBundle,
) -> Result<(String, SecretString), Problem> {
    let namespace = object.namespace().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    let name = names::admin_identity_secret(&object.name_any());
    let stored = secrets
        .get_opt(&name)
        .await
        .map_err(|error| unreadable("Secret", &name, &error))?;
    if let Some(secret) = &stored
        && secret
            .labels()
            .get(names::LABEL_MANAGED_BY)
            .is_none_or(|manager| manager != names::MANAGER)
    {
        let message = format!(
            "Secret {name} exists and is not the operator's, so the admin identity cannot be kept in it: delete or rename it"
        );
        return Err(Problem::new(reasons::SOURCE_INVALID, message));
    }
    let value = |key: &str| {
        stored
            .as_ref()
            .and_then(|secret| text_of(secret, key).ok())
            .filter(|text| !text.is_empty())
    };
    let same_token = value(DIGEST_KEY).as_deref() == Some(token.digest());
    let kept = value("tls.crt").zip(value("tls.key"));
    if same_token && let Some((cert, key)) = kept {
        return Ok((cert, SecretString::from(key)));
    }
    let told =
        |error: ziti::pki::PkiError| Problem::new(reasons::SOURCE_INVALID, problem::chain(&error));
    // Of a try before this one.
    let begun = if value(PENDING_DIGEST).as_deref() == Some(token.digest()) {
        value(PENDING_KEY)
    } else {
        value("tls.key").filter(|_| same_token)
    };
    let key = match begun {
        Some(pem) => Key::from_pem(&pem).map_err(told)?,
        None => Key::generate().map_err(told)?,
    };
    let write = |data: Vec<(&'static str, String)>| {
        let data = data.into_iter();
        let object = Secret {
            metadata: own_secret(object, &name),
            data: Some(
                data.map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())))
                    .collect(),
            ),
            ..Secret::default()
        };
        let secrets = secrets.clone();
        async move {
            io::apply(&secrets, &object, names::FIELD_MANAGER_NETWORK)
                .await
                .map_err(|error| error.problem())
        }
    };
    let mut pending = vec![
        (PENDING_KEY, key.expose_pem().to_owned()),
        (PENDING_DIGEST, token.digest().to_owned()),
    ];
    if let (Some((cert, key)), Some(digest)) = (&kept, value(DIGEST_KEY)) {
        // What works stays until there is another.
        pending.extend([
            ("tls.crt", cert.clone()),
            ("tls.key", key.clone()),
            (DIGEST_KEY, digest),
        ]);
    }
    write(pending).await?;
    let identity = enroll_identity(token, &key, Some(bundle), TIMEOUT)
        .await
        .map_err(|error| of_enrollment(&error))?;
    write(vec![
        ("tls.key", key.expose_pem().to_owned()),
        ("tls.crt", identity.cert_pem.clone()),
        (DIGEST_KEY, token.digest().to_owned()),
    ])
    .await?;
    let pem = SecretString::from(key.expose_pem().to_owned());
    Ok((identity.cert_pem, pem))
}

fn own_secret(object: &ZitiNetwork, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: object.namespace(),
        labels: Some(BTreeMap::from([(
            names::LABEL_MANAGED_BY.to_owned(),
            names::MANAGER.to_owned(),
        )])),
        owner_references: object.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

fn of_enrollment(error: &EnrollError) -> Problem {
    let advice =
        "have a new one-time token made for an admin identity and put it in place of this one";
    let said = problem::chain(error);
    match error {
        EnrollError::TokenSpent => Problem::new(
            reasons::TOKEN_SPENT,
            format!("the admin token was used already: {advice}"),
        ),
        EnrollError::TokenExpired => Problem::new(
            reasons::TOKEN_EXPIRED,
            format!("the admin token ran out unused: {advice}"),
        ),
        EnrollError::IssuerUnreachable { .. } | EnrollError::ReplyLost { .. } => Problem::new(
            reasons::CONTROLLER_UNREACHABLE,
            format!("{said}: it is tried again"),
        ),
        EnrollError::IssuerNotTrusted { .. } | EnrollError::SignatureInvalid { .. } => {
            Problem::new(
                reasons::CONTROLLER_NOT_TRUSTED,
                format!("{said}: check spec.trust, and that the token is of this network"),
            )
        }
        _ => Problem::new(reasons::TOKEN_REFUSED, format!("{said}: {advice}")),
    }
}

async fn secret(api: &Api<Secret>, name: &str, field: &str) -> Result<Secret, Problem> {
    let found = api
        .get_opt(name)
        .await
        .map_err(|error| unreadable("Secret", name, &error))?;
    found.ok_or_else(|| missing("Secret", name, field))
}

async fn secret_key(
    api: &Api<Secret>,
    reference: &SecretKeyRef,
    field: &str,
) -> Result<String, Problem> {
    text_of(&secret(api, &reference.name, field).await?, &reference.key)
}

/// One key of a Secret as text.
fn text_of(secret: &Secret, key: &str) -> Result<String, Problem> {
    let name = secret.name_any();
    let value = secret
        .data
        .as_ref()
        .and_then(|data| data.get(key))
        .ok_or_else(|| no_key("Secret", &name, key))?;
    String::from_utf8(value.0.clone()).map_err(|_| {
        Problem::new(
            reasons::SOURCE_INVALID,
            format!("key {key} of Secret {name} is not text"),
        )
    })
}

fn missing(kind: &str, name: &str, field: &str) -> Problem {
    Problem::new(
        reasons::SOURCE_MISSING,
        format!("{kind} {name}, named in {field}, does not exist in this namespace: create it"),
    )
}

fn no_key(kind: &str, name: &str, key: &str) -> Problem {
    Problem::new(
        reasons::KEY_MISSING,
        format!("{kind} {name} has no key {key}: add it"),
    )
}

fn unreadable(kind: &str, name: &str, error: &kube::Error) -> Problem {
    Problem::new(
        reasons::REFUSED,
        format!("{kind} {name} could not be read: {error}; it is tried again"),
    )
}
