//! Reads what a ZitiCluster names, and makes of it how to reach the cluster. Only
//! this controller uses this module.

use super::kubeconfig;
use super::watch::RENEWED;
use crate::context::Context;
use crate::problem;
use api::ziti_cluster::{ClusterCredential, KubeconfigCredential, ServiceAccountCredential};
use api::{ZitiCluster, names, reasons};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, PostParams};
use kube::config::AuthInfo;
use kube::{Config, ResourceExt};
use plan::edge_router::Problem;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};
use std::time::Duration;

/// How long a connection may take to come about. Through Ziti it takes as long as
/// a circuit; one that hangs must not hold a place of work.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer, or a part of one, may take.
const ANSWER: Duration = Duration::from_secs(15);
/// How long a watch may be silent: longer than it is asked for.
const SILENCE: Duration = Duration::from_secs(RENEWED as u64 + 15);
/// How long a token that we ask for ourselves shall live; it is asked for anew when
/// a fifth of that is left.
const TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(1);

/// How a cluster is reached, as a credential tells it.
#[derive(Clone, Debug, Default)]
pub(super) struct Access {
    pub(super) server: Option<String>,
    /// PEM, in base64.
    pub(super) certificate_authority: Option<String>,
    pub(super) tls_server_name: Option<String>,
    pub(super) proxy: Option<String>,
    pub(super) user: AuthInfo,
}

/// What a client is made of.
pub(super) struct Inputs {
    pub(super) config: Config,
    /// What tells it from other inputs, without telling it.
    pub(super) digest: String,
}

impl Inputs {
    /// The same for watches.
    pub(super) fn watching(&self) -> Config {
        let mut config = self.config.clone();
        config.read_timeout = Some(SILENCE);
        config
    }
}

/// Everything that is read before a client is made, but for a token that has to be
/// asked for.
pub(super) async fn read(context: &Context, object: &ZitiCluster) -> Result<Inputs, Problem> {
    let access = match &object.spec.credential {
        ClusterCredential::Kubeconfig(reference) => of_kubeconfig(context, object, reference).await,
        ClusterCredential::Token(reference) => of_token(context, object, &reference.name).await,
        // Its token is asked for with the client, and not at each look.
        ClusterCredential::ServiceAccount(_) => Ok(Access::default()),
    }?;
    let authority = authority(context, object, &access).await?;
    let config = config(object, &access, &authority)?;
    let digest = digest(object, &access, &authority);
    Ok(Inputs { config, digest })
}

async fn of_kubeconfig(
    context: &Context,
    object: &ZitiCluster,
    reference: &KubeconfigCredential,
) -> Result<Access, Problem> {
    let secret = secret(context, object, &reference.name).await?;
    let text = text(&secret, &reference.key)?;
    let source = format!("key {} of Secret {}", reference.key, reference.name);
    kubeconfig::access(text.expose_secret(), reference.context.as_deref(), &source)
}

async fn of_token(context: &Context, object: &ZitiCluster, name: &str) -> Result<Access, Problem> {
    let secret = secret(context, object, name).await?;
    let token = text(&secret, "token")?;
    let authority = secret.data.as_ref().and_then(|data| data.get("ca.crt"));
    Ok(Access {
        certificate_authority: authority.map(|pem| STANDARD.encode(&pem.0)),
        user: AuthInfo {
            token: Some(token.expose_secret().trim().to_owned().into()),
            ..AuthInfo::default()
        },
        ..Access::default()
    })
}

/// A short-lived token of a ServiceAccount, and when to ask for the next.
///
/// Who owns the ServiceAccount must say that its tokens may go there: otherwise
/// whoever may write a ZitiCluster had the tokens of every ServiceAccount of the
/// namespace.
pub(super) async fn token(
    context: &Context,
    object: &ZitiCluster,
    reference: &ServiceAccountCredential,
    now: Timestamp,
) -> Result<(SecretString, Timestamp), Problem> {
    let name = &reference.name;
    let api: Api<ServiceAccount> = Api::namespaced(context.client.clone(), &namespace(object));
    let fault = |error: kube::Error| {
        let message = format!(
            "ServiceAccount {name}: {}; it is tried again",
            problem::chain(&error)
        );
        Problem::new(reasons::REFUSED, message)
    };
    let account = api.get_metadata_opt(name).await.map_err(fault)?.ok_or_else(|| {
        let message = format!(
            "ServiceAccount {name} does not exist in this namespace: create it, or correct spec.credential.serviceAccount"
        );
        Problem::new(reasons::SOURCE_MISSING, message)
    })?;
    let allowed = account
        .annotations()
        .get(names::ANNOTATION_CLUSTER_AUDIENCE);
    if allowed != Some(&reference.audience) {
        let message = format!(
            "ServiceAccount {name} does not say that its tokens may be sent to another cluster: annotate it with {}={}",
            names::ANNOTATION_CLUSTER_AUDIENCE,
            reference.audience
        );
        return Err(Problem::new(reasons::CREDENTIAL_REFUSED, message));
    }
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec![reference.audience.clone()],
            expiration_seconds: Some(TOKEN_LIFE.as_secs()),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let answer = api
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .map_err(fault)?;
    let status = answer.status.ok_or_else(|| {
        let message =
            format!("ServiceAccount {name}: the API server gave no token; it is tried again");
        Problem::new(reasons::REFUSED, message)
    })?;
    let life = status.expiration_timestamp.0.duration_since(now);
    let renew = now.checked_add(life / 5 * 4).unwrap_or(now);
    Ok((SecretString::from(status.token), renew))
}

/// What the API server's certificate must verify against, PEM.
async fn authority(
    context: &Context,
    object: &ZitiCluster,
    access: &Access,
) -> Result<String, Problem> {
    if let Some(reference) = &object.spec.certificate_authority {
        let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace(object));
        let what = format!("ConfigMap {}", reference.name);
        let found = api.get_opt(&reference.name).await;
        let map = found_or(found, &what)?;
        let text = map.data.and_then(|mut data| data.remove(&reference.key));
        return text.ok_or_else(|| missing_key(&what, &reference.key));
    }
    let encoded = access.certificate_authority.as_ref().ok_or_else(|| {
        Problem::new(
            reasons::CLUSTER_NOT_TRUSTED,
            "the credential brings no CA certificates, and nothing is trusted on first use: name them in spec.certificateAuthority",
        )
    })?;
    let decoded = STANDARD.decode(encoded.trim()).ok();
    let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| {
        Problem::new(
            reasons::SOURCE_INVALID,
            "the CA certificates that the credential brings are no PEM: correct them, or name others in spec.certificateAuthority",
        )
    })
}

fn config(object: &ZitiCluster, access: &Access, authority: &str) -> Result<Config, Problem> {
    let invalid = |message: String| Problem::new(reasons::INVALID_SPEC, message);
    let spec = &object.spec;
    let server = spec.server.as_ref().or(access.server.as_ref());
    let server = server.ok_or_else(|| {
        invalid("the kubeconfig has no address for the cluster: give spec.server".to_owned())
    })?;
    if !server.starts_with("https://") {
        return Err(invalid(format!(
            "{server} is no https address: correct the kubeconfig, or give spec.server"
        )));
    }
    let url = server
        .parse()
        .map_err(|_| invalid(format!("{server:?} is no address: correct spec.server")))?;
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(authority.as_bytes()).collect();
    let certificates = certificates.unwrap_or_default();
    if certificates.is_empty() {
        return Err(Problem::new(
            reasons::SOURCE_INVALID,
            "there are no certificates (PEM) in what the API server is to be verified against: correct it, or name others in spec.certificateAuthority",
        ));
    }
    let mut config = Config::new(url);
    config.root_cert = Some(certificates.iter().map(|one| one.to_vec()).collect());
    config.auth_info = access.user.clone();
    let name = spec.tls_server_name.as_ref();
    config.tls_server_name = name.or(access.tls_server_name.as_ref()).cloned();
    if let Some(proxy) = spec.proxy.as_ref().or(access.proxy.as_ref()) {
        let parsed = proxy
            .parse()
            .map_err(|_| invalid("the proxy is no address: correct spec.proxy".to_owned()))?;
        config.proxy_url = Some(parsed);
    }
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(ANSWER);
    config.write_timeout = Some(ANSWER);
    // Without it, what a connection lay idle counts as waiting for an answer.
    config.reset_reader_on_write = true;
    // Ours back off by object.
    config.default_retry = false;
    Ok(config)
}

fn digest(object: &ZitiCluster, access: &Access, authority: &str) -> String {
    let spec = &object.spec;
    let user = &access.user;
    let secret =
        |text: &Option<SecretString>| text.as_ref().map(|text| text.expose_secret().to_owned());
    let of_user = (
        &user.client_certificate_data,
        secret(&user.client_key_data),
        secret(&user.token),
        &user.impersonate,
        &user.impersonate_groups,
    );
    let of_server = (&access.server, &access.tls_server_name, &access.proxy);
    plan::set::applied::hash(&(spec, of_server, authority, of_user))
}

fn namespace(object: &ZitiCluster) -> String {
    object.namespace().unwrap_or_default()
}

async fn secret(context: &Context, object: &ZitiCluster, name: &str) -> Result<Secret, Problem> {
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &namespace(object));
    found_or(api.get_opt(name).await, &format!("Secret {name}"))
}

fn found_or<K>(found: kube::Result<Option<K>>, what: &str) -> Result<K, Problem> {
    match found {
        Ok(Some(object)) => Ok(object),
        Ok(None) => Err(Problem::new(
            reasons::SOURCE_MISSING,
            format!("{what} does not exist in this namespace: create it, or correct spec"),
        )),
        Err(error) => Err(Problem::new(
            reasons::REFUSED,
            format!(
                "reading {what}: {}; it is tried again",
                problem::chain(&error)
            ),
        )),
    }
}

fn missing_key(what: &str, key: &str) -> Problem {
    Problem::new(
        reasons::KEY_MISSING,
        format!("{what} has no key {key}: add it, or correct spec"),
    )
}

fn text(secret: &Secret, key: &str) -> Result<SecretString, Problem> {
    let what = format!("Secret {}", secret.name_any());
    let bytes = secret.data.as_ref().and_then(|data| data.get(key));
    let bytes = bytes.ok_or_else(|| missing_key(&what, key))?;
    let text = String::from_utf8(bytes.0.clone()).map_err(|_| {
        let message = format!("key {key} of {what} is no text: correct it");
        Problem::new(reasons::SOURCE_INVALID, message)
    })?;
    Ok(SecretString::from(text))
}
