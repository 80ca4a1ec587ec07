//! A view of the cluster with some objects laid over it, and a client that
//! cannot write: whatever is not a read is refused before it leaves the process.

use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tower::BoxError;

/// Objects by their path, `/apis/…/namespaces/…/zitirouters/name`.
#[derive(Clone, Default)]
pub(crate) struct Overlay(BTreeMap<String, Value>);

impl Overlay {
    pub(crate) fn put(&mut self, path: String, object: Value) {
        self.0.insert(path, object);
    }

    /// The objects of a collection that carry these labels.
    fn of_collection<'a>(
        &'a self,
        collection: &'a str,
        labels: &'a [(String, String)],
    ) -> impl Iterator<Item = &'a Value> {
        let inside = move |path: &str| {
            path.rsplit_once('/')
                .is_some_and(|(parent, _)| parent == collection)
        };
        let carries = move |object: &Value| {
            let has = &object["metadata"]["labels"];
            labels.iter().all(|(key, value)| has[key] == value.as_str())
        };
        self.0
            .iter()
            .filter(move |(path, object)| inside(path) && carries(object))
            .map(|(_, object)| object)
    }
}

/// A client that reads through `client` with the overlay on top, and writes
/// nothing.
pub(crate) fn reading(client: Client, overlay: Overlay) -> Client {
    let namespace = client.default_namespace().to_owned();
    let overlay = Arc::new(overlay);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, overlay) = (client.clone(), overlay.clone());
        async move { answer(&client, &overlay, request).await }
    });
    Client::new(service, namespace)
}

async fn answer(
    client: &Client,
    overlay: &Overlay,
    request: Request<Body>,
) -> Result<Response<Body>, BoxError> {
    if request.method() != Method::GET {
        let what = format!("{} {}", request.method(), request.uri().path());
        return Err(format!("{what} is a write, and nothing is written here").into());
    }
    let path = request.uri().path().to_owned();
    if let Some(object) = overlay.0.get(&path) {
        return respond(object);
    }
    let labels = selected(request.uri().query().unwrap_or_default());
    let laid_over: Vec<&Value> = overlay.of_collection(&path, &labels).collect();
    let response = client.send(request).await?;
    if laid_over.is_empty() || response.status() != StatusCode::OK {
        return Ok(response);
    }
    let bytes = response.into_body().collect_bytes().await?;
    let mut list: Value = serde_json::from_slice(&bytes)?;
    if let Some(items) = list["items"].as_array_mut() {
        for object in laid_over {
            let name = &object["metadata"]["name"];
            items.retain(|item| &item["metadata"]["name"] != name);
            items.push(object.clone());
        }
    }
    respond(&list)
}

fn respond(body: &Value) -> Result<Response<Body>, BoxError> {
    let body = Body::from(serde_json::to_vec(body)?);
    let response = Response::builder()
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)?;
    Ok(response)
}

/// The label selector of a list; the operator's own are all of the form `key=value`.
fn selected(query: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| text.replace("%2F", "/").replace("%3D", "=");
    let selector = query
        .split('&')
        .find_map(|part| part.strip_prefix("labelSelector="));
    let terms = selector.map(decoded).unwrap_or_default();
    let pairs = terms.split(',').filter_map(|term| term.split_once('='));
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_selector_is_read_from_the_query_and_holds_for_what_is_laid_over() {
        let labels = selected("limit=5&labelSelector=openziti.io%2Fzitirouter%3Dedge");
        assert_eq!(
            labels,
            [("openziti.io/zitirouter".to_owned(), "edge".to_owned())]
        );
        let mut overlay = Overlay::default();
        let labelled = json!({"metadata": {"labels": {"openziti.io/zitirouter": "edge"}}});
        overlay.put("/apis/x/things/a".to_owned(), labelled);
        overlay.put("/apis/x/things/b".to_owned(), json!({}));
        overlay.put("/apis/x/others/c".to_owned(), json!({}));
        assert_eq!(overlay.of_collection("/apis/x/things", &labels).count(), 1);
        assert_eq!(overlay.of_collection("/apis/x/things", &[]).count(), 2);
    }
}
