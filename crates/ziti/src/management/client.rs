//! The calls themselves.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use snafu::{OptionExt, ensure};
use url::Url;

use super::edge_router::{EdgeRouterEntity, EdgeRouterPatch, NewEdgeRouter, validate_name};
use super::error::{InvalidSnafu, ManagementError, UnexpectedSnafu, from_refusal};
use super::filter::Filter;
use super::session::{Connection, Credential, Request};
use crate::events::{EventsError, Socket};
use crate::http::Reply;
use crate::trust::CaBundle;

const EDGE_ROUTERS: &str = "/edge-routers";
const IDENTITIES: &str = "/identities";

/// How a client behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// The time of one call, a login that it needs included. Ziti itself gives up after 10 s
    /// (and may carry the write out afterwards).
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
        }
    }
}

/// What `GET /version` says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Version {
    /// Such as `v1.6.0`.
    #[serde(default)]
    pub version: String,
    /// Such as `HA_CONTROLLER`; may be empty.
    #[serde(default)]
    pub capabilities: Vec<String>,
}

/// A complete list, and when the controller made it, by its own clock.
#[derive(Debug, Clone)]
pub struct Listed<T> {
    /// Every match.
    pub items: Vec<T>,
    /// Whole seconds. The expiry of tokens is judged by this, not by the local clock.
    pub server_time: Option<Timestamp>,
}

/// How a deletion ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// It was there, and is gone.
    Deleted,
    /// It was not there (with a valid session: a controller of another network also says so).
    AlreadyGone,
}

/// One Ziti network, through the management API of its controllers. Cheap to clone; clones
/// share the session.
#[derive(Clone)]
pub struct ManagementClient {
    pub(super) connection: Arc<Connection>,
}

impl fmt::Debug for ManagementClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ManagementClient")
    }
}

impl ManagementClient {
    /// A client for the controllers at `endpoints` (`https://host:port`), which must prove
    /// themselves under `ca`. Nothing is sent yet. Without a credential only
    /// [`Self::version`] works.
    pub fn new(
        endpoints: &[Url],
        ca: &CaBundle,
        credential: Option<Credential>,
        options: &Options,
    ) -> Result<Self, ManagementError> {
        let connection = Connection::new(endpoints, ca, credential, options.timeout)?;
        Ok(Self {
            connection: Arc::new(connection),
        })
    }

    /// Version and capabilities of the controller that answers. Needs no credential.
    pub async fn version(&self) -> Result<Version, ManagementError> {
        let request = Request {
            method: Method::GET,
            path: "/version",
            query: &[],
            body: None,
            authenticated: false,
        };
        let reply = self.connection.call(&request).await?;
        typed(&request, &reply, data(&request, &reply)?)
    }

    /// The id of the default administrator: it changes with the database of the network and
    /// with nothing else, so it tells a rebuilt network from the one that was known.
    /// `None` where the network has none (not yet set up).
    pub async fn default_admin_id(&self) -> Result<Option<String>, ManagementError> {
        let filter = Filter::flag("isDefaultAdmin", true).map_err(invalid_filter(IDENTITIES))?;
        let identities: Listed<Value> = self.list(IDENTITIES, &filter).await?;
        let id = |identity: &Value| Some(identity.get("id")?.as_str()?.to_owned());
        Ok(identities.items.iter().find_map(id))
    }

    /// Every edge router that matches, with its token where it still has one.
    pub async fn edge_routers(
        &self,
        filter: &Filter,
    ) -> Result<Listed<EdgeRouterEntity>, ManagementError> {
        self.list(EDGE_ROUTERS, filter).await
    }

    /// The edge router of exactly this name.
    pub async fn edge_router_named(
        &self,
        name: &str,
    ) -> Result<Option<EdgeRouterEntity>, ManagementError> {
        let filter = Filter::equals("name", name).map_err(invalid_filter(EDGE_ROUTERS))?;
        let routers = self.edge_routers(&filter).await?;
        Ok(routers.items.into_iter().find(|router| router.name == name))
    }

    /// The edge router with this id. `None` only on the controller's own word, given to a
    /// valid session; whether it is still the same network is for the caller to know.
    pub async fn edge_router(&self, id: &str) -> Result<Option<EdgeRouterEntity>, ManagementError> {
        self.one(EDGE_ROUTERS, id).await
    }

    /// Registers an edge router and returns its id. After [`ManagementError::Timeout`] (see
    /// [`ManagementError::may_have_committed`]) look it up by name and tags before trying
    /// again: Ziti takes no id from the client.
    pub async fn create_edge_router(
        &self,
        router: &NewEdgeRouter,
    ) -> Result<String, ManagementError> {
        good_name(EDGE_ROUTERS, &router.name)?;
        self.create(EDGE_ROUTERS, &json!(router)).await
    }

    /// Changes what `change` sets, and nothing else. An empty patch sends nothing (a cluster
    /// answers 500 to it).
    pub async fn patch_edge_router(
        &self,
        id: &str,
        change: &EdgeRouterPatch,
    ) -> Result<(), ManagementError> {
        if change.is_empty() {
            return Ok(());
        }
        let path = entity(EDGE_ROUTERS, id, &Method::PATCH)?;
        self.patch(&path, &json!(change)).await
    }

    /// Gives the router a new token. Its certificate can no longer connect from now on, but
    /// an open connection stays (from Ziti 0.32.1 on). In a cluster only the leader's token
    /// is safe. Not to be repeated on a mere timeout.
    pub async fn re_enroll(&self, id: &str) -> Result<(), ManagementError> {
        let path = entity(EDGE_ROUTERS, id, &Method::POST)?;
        let path = format!("{path}/re-enroll");
        self.run(&write(Method::POST, &path, None)).await?;
        Ok(())
    }

    /// Removes the router from the network, and with it its connection, its identity and its
    /// place in policies.
    pub async fn delete_edge_router(&self, id: &str) -> Result<Deletion, ManagementError> {
        self.delete(&entity(EDGE_ROUTERS, id, &Method::DELETE)?)
            .await
    }

    /// Every member of the collection at `path` that matches. Fails where the controller
    /// holds rows back or a row cannot be read: half a list would read as "the rest is gone".
    pub async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        filter: &Filter,
    ) -> Result<Listed<T>, ManagementError> {
        let filter = filter.query();
        let query = [("filter", filter.as_str())];
        let request = read(path, &query);
        let reply = self.run(&request).await?;
        let mut body = reply.json().unwrap_or_default();
        let total = body.pointer("/meta/pagination/totalCount");
        let total = total.and_then(Value::as_u64);
        let rows = body.get_mut("data").map(Value::take).unwrap_or_default();
        let items: Vec<T> = typed(&request, &reply, rows)?;
        ensure!(
            total.is_none_or(|total| total == items.len() as u64),
            UnexpectedSnafu {
                call: request.call(),
                status: reply.status.as_u16(),
                code: "",
                message: format!("{} rows of {total:?}", items.len()),
            }
        );
        Ok(Listed {
            items,
            server_time: reply.server_time(),
        })
    }

    /// The member of `collection` with this id. `None` only on the controller's own word.
    pub(super) async fn one<T: DeserializeOwned>(
        &self,
        collection: &str,
        id: &str,
    ) -> Result<Option<T>, ManagementError> {
        let path = entity(collection, id, &Method::GET)?;
        let request = read(&path, &[]);
        match self.run(&request).await {
            Ok(reply) => Ok(Some(typed(&request, &reply, data(&request, &reply)?)?)),
            Err(ManagementError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds a member to the collection at `path` and returns its id. Never repeated.
    pub(super) async fn create(&self, path: &str, body: &Value) -> Result<String, ManagementError> {
        let created = self.post(path, body).await?;
        let id = created.get("id").and_then(Value::as_str);
        let id = id.with_context(|| UnexpectedSnafu {
            call: write(Method::POST, path, None).call(),
            status: 201_u16,
            code: "",
            message: "there is no id in it",
        })?;
        Ok(id.to_owned())
    }

    /// `GET path`: member `data` of the reply. For kinds that have no call of their own.
    pub async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, ManagementError> {
        let request = read(path, query);
        let reply = self.run(&request).await?;
        data(&request, &reply)
    }

    /// `POST path`: member `data` of the reply. Never repeated.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, ManagementError> {
        let request = write(Method::POST, path, Some(body.clone()));
        let reply = self.run(&request).await?;
        data(&request, &reply)
    }

    /// `PATCH path` with the keys of `body`; a key with `null` counts as absent.
    pub async fn patch(&self, path: &str, body: &Value) -> Result<(), ManagementError> {
        let request = write(Method::PATCH, path, Some(body.clone()));
        self.run(&request).await?;
        Ok(())
    }

    /// `DELETE path`.
    pub async fn delete(&self, path: &str) -> Result<Deletion, ManagementError> {
        match self.run(&write(Method::DELETE, path, None)).await {
            Ok(_) => Ok(Deletion::Deleted),
            Err(ManagementError::NotFound { .. }) => Ok(Deletion::AlreadyGone),
            Err(error) => Err(error),
        }
    }

    /// The time of one call.
    pub(crate) fn timeout(&self) -> Duration {
        self.connection.timeout()
    }

    /// A websocket for [`crate::events`], and the endpoint that it is open to.
    pub(crate) async fn open_events(
        &self,
        deadline: tokio::time::Instant,
    ) -> Result<(Socket, String), EventsError> {
        self.connection.open_events(deadline).await
    }

    pub(super) async fn run(&self, request: &Request<'_>) -> Result<Reply, ManagementError> {
        let reply = self.connection.call(request).await?;
        if reply.status.is_success() {
            Ok(reply)
        } else {
            Err(from_refusal(&request.call(), &reply))
        }
    }
}

pub(super) fn read<'a>(path: &'a str, query: &'a [(&'a str, &'a str)]) -> Request<'a> {
    Request {
        method: Method::GET,
        path,
        query,
        body: None,
        authenticated: true,
    }
}

pub(super) fn write(method: Method, path: &str, body: Option<Value>) -> Request<'_> {
    Request {
        method,
        path,
        query: &[],
        body,
        authenticated: true,
    }
}

/// `collection/id`. Ziti's ids are letters, digits, `-` and `.`, and may begin with either mark;
/// anything else would be another path.
pub(super) fn entity(
    collection: &str,
    id: &str,
    method: &Method,
) -> Result<String, ManagementError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~');
    ensure!(
        !matches!(id, "" | "." | "..") && id.chars().all(allowed),
        InvalidSnafu {
            call: super::Call {
                method: method.clone(),
                path: collection.to_owned()
            },
            field: "id",
            reason: format!("{id:?} is not an id of a Ziti entity"),
        }
    );
    Ok(format!("{collection}/{id}"))
}

/// Whether `name` can be given to an entity of `collection` and found again.
pub(super) fn good_name(collection: &str, name: &str) -> Result<(), ManagementError> {
    validate_name(name).or_else(|error| {
        InvalidSnafu {
            call: write(Method::POST, collection, None).call(),
            field: "name",
            reason: error.to_string(),
        }
        .fail()
    })
}

pub(super) fn invalid_filter(path: &'static str) -> impl Fn(super::FilterError) -> ManagementError {
    move |error| ManagementError::Invalid {
        call: super::Call {
            method: Method::GET,
            path: path.to_owned(),
        },
        field: "filter".to_owned(),
        reason: error.to_string(),
    }
}

pub(super) fn data(request: &Request<'_>, reply: &Reply) -> Result<Value, ManagementError> {
    reply.data().with_context(|| UnexpectedSnafu {
        call: request.call(),
        status: reply.status.as_u16(),
        code: "",
        message: format!(
            "there is no `data` in a body of type {}",
            reply.media_type()
        ),
    })
}

pub(super) fn typed<T: DeserializeOwned>(
    request: &Request<'_>,
    reply: &Reply,
    data: Value,
) -> Result<T, ManagementError> {
    // What the parser says is dropped: it may quote a value, and rows carry tokens.
    serde_json::from_value(data)
        .ok()
        .with_context(|| UnexpectedSnafu {
            call: request.call(),
            status: reply.status.as_u16(),
            code: "",
            message: format!("`data` is not a {}", std::any::type_name::<T>()),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_all_forms_that_ziti_makes_and_no_path() {
        for good in [
            ".XLt.V.g.x",
            "-a.b-",
            "0a1b2c3d-0000-4000-8000-000000000000",
            "..a",
        ] {
            assert!(
                entity("/edge-routers", good, &Method::GET).is_ok(),
                "{good}"
            );
        }
        for bad in ["", ".", "..", "a/b", "../identities", "a?b", "a b", "a%2fb"] {
            assert!(entity("/edge-routers", bad, &Method::GET).is_err(), "{bad}");
        }
    }
}
