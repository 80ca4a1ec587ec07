//! Asks a cluster who it is and what may be done there. Only this controller uses
//! this module.

use crate::problem;
use api::{ZitiCluster, reasons};
use futures::StreamExt;
use futures::stream;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, PostParams};
use plan::edge_router::Problem;
use plan::ziti_cluster::rights::{NODES, RIGHTS, Right};
use std::error::Error as StdError;
use std::time::{Duration, Instant};

/// How many questions are out at a time.
const AT_ONCE: usize = 8;

/// Its version, and how long it took to say so.
pub(super) async fn version(client: &Client) -> Result<(String, Duration), Problem> {
    let asked = Instant::now();
    let version = client.apiserver_version().await;
    let version = version.map_err(|error| told("asking for its version", &error))?;
    Ok((version.git_version, asked.elapsed()))
}

/// What may not be done in the namespace, of all that has to be.
pub(super) async fn missing(client: &Client, namespace: &str) -> Result<Vec<String>, Problem> {
    let questions: Vec<_> = RIGHTS
        .iter()
        .flat_map(|right| right.verbs.iter().map(move |verb| (right, *verb)))
        .map(|(right, verb)| may(client.clone(), namespace.to_owned(), right, verb))
        .collect();
    let answers: Vec<_> = stream::iter(questions).buffered(AT_ONCE).collect().await;
    let mut missing = Vec::new();
    for answer in answers {
        let (right, allowed) = answer?;
        if !allowed {
            missing.push(right);
        }
    }
    Ok(missing)
}

/// Whether the nodes may be read, which sets with one router per node need and no
/// Role for a namespace gives.
pub(super) async fn reads_nodes(client: &Client) -> Result<bool, Problem> {
    for verb in NODES.verbs {
        if !ask(client.clone(), None, &NODES, verb).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// One right by its name, and whether it is given.
async fn may(
    client: Client,
    namespace: String,
    right: &'static Right,
    verb: &'static str,
) -> Result<(String, bool), Problem> {
    let allowed = ask(client, Some(namespace), right, verb).await?;
    Ok((right.named(verb), allowed))
}

async fn ask(
    client: Client,
    namespace: Option<String>,
    right: &Right,
    verb: &str,
) -> Result<bool, Problem> {
    let attributes = ResourceAttributes {
        namespace,
        group: Some(right.group.to_owned()),
        resource: Some(right.resource.to_owned()),
        verb: Some(verb.to_owned()),
        ..ResourceAttributes::default()
    };
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            non_resource_attributes: None,
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(client);
    let answer = api.create(&PostParams::default(), &review).await;
    let answer = answer.map_err(|error| told("asking what may be done", &error))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// The uid of the namespace; `None` where it may not be read, which is then among
/// what is missing.
pub(super) async fn identity(
    client: &Client,
    object: &ZitiCluster,
) -> Result<Option<String>, Problem> {
    let namespace = object.remote_namespace();
    let api: Api<Namespace> = Api::all(client.clone());
    match api.get_metadata_opt(&namespace).await {
        Ok(Some(found)) => Ok(found.metadata.uid),
        Ok(None) => Err(Problem::new(
            reasons::NAMESPACE_MISSING,
            format!(
                "the cluster has no namespace {namespace}: create it there, or correct spec.namespace"
            ),
        )),
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(None),
        Err(error) => Err(told("reading its namespace", &error)),
    }
}

/// A failed call, in the words of the API.
pub(crate) fn told(act: &str, error: &kube::Error) -> Problem {
    let (reason, advice) = match error {
        kube::Error::Api(status) if status.code == 401 => (
            reasons::BAD_CREDENTIALS,
            "the cluster does not accept the credential: it is wrong, or has ended. Replace it",
        ),
        kube::Error::Api(status) if status.is_forbidden() => (
            reasons::PERMISSIONS_MISSING,
            "apply there what `ziti-operator cluster-credential` prints",
        ),
        kube::Error::Api(_) => (reasons::REFUSED, "it is tried again"),
        _ if is_about_trust(error) => (
            reasons::CLUSTER_NOT_TRUSTED,
            "check the CA certificates of the credential or of spec.certificateAuthority; where the address is not the API server's \
             own, give spec.tlsServerName",
        ),
        _ => (
            reasons::CLUSTER_UNREACHABLE,
            "what runs there is left alone; it is tried again",
        ),
    };
    Problem::new(
        reason,
        format!("{act}: {}: {advice}", problem::chain(error)),
    )
}

/// Whether the other side was reached and not believed.
fn is_about_trust(error: &kube::Error) -> bool {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = next {
        if matches!(
            error.downcast_ref(),
            Some(rustls::Error::InvalidCertificate(_))
        ) {
            return true;
        }
        // An error of input and output has what it wraps in it, and not as its source.
        let wrapped = error.downcast_ref::<std::io::Error>();
        next = match wrapped.and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    false
}
