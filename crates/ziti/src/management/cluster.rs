//! The controllers of a network as a cluster: who is in it, who leads, and how that is changed.
//!
//! These calls go to the fabric API (`/fabric/v1`), which takes the sessions of the management
//! API. All of them need an administrator.

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use snafu::OptionExt;
use tokio::time::timeout;

use super::client::{ManagementClient, write};
use super::error::{ConfigurationSnafu, ManagementError, UnexpectedSnafu};
use super::fields::or_default;
use crate::pki::CertificateFacts;

const LIST_MEMBERS: &str = "/fabric/v1/cluster/list-members";
const ADD_MEMBER: &str = "/fabric/v1/cluster/add-member";
const REMOVE_MEMBER: &str = "/fabric/v1/cluster/remove-member";
const TRANSFER_LEADERSHIP: &str = "/fabric/v1/cluster/transfer-leadership";
const SNAPSHOT: &str = "/fabric/v1/database/snapshot";

/// A member of the cluster, as the controller that was asked sees it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "they are Ziti's")]
pub struct Member {
    /// Its id: the common name of its certificate.
    pub id: String,
    /// Where its control plane is, `tls:host:port`.
    pub address: String,
    /// Whether it counts for the quorum.
    #[serde(default, deserialize_with = "or_default")]
    pub voter: bool,
    /// Whether it leads. Nobody does while there is no quorum, and for a moment after a leader
    /// was lost.
    #[serde(default, deserialize_with = "or_default")]
    pub leader: bool,
    /// Version of its program; `<not connected>` where [`Self::connected`] is false.
    #[serde(default, deserialize_with = "or_default")]
    pub version: String,
    /// Whether the controller that was asked is connected to it; itself it always is. Followers
    /// need no connection to each other and, on 1.6, have none: only the leader's word tells who
    /// is away.
    #[serde(default, deserialize_with = "or_default")]
    pub connected: bool,
    /// Whether the controller that was asked takes no writes, because versions differ in the
    /// cluster. It stands in each row, and is the same in all.
    #[serde(default, deserialize_with = "or_default")]
    pub read_only: bool,
}

impl ManagementClient {
    /// Who is in the cluster, by the word of the controller that answers. One that was removed and
    /// still runs is listed as well while it is connected, and does not vote (1.6.0).
    /// [`ManagementError::NotACluster`] where that stands alone.
    pub async fn cluster_members(&self) -> Result<Vec<Member>, ManagementError> {
        let members = self.get(LIST_MEMBERS, &[]).await?;
        serde_json::from_value(members)
            .ok()
            .with_context(|| UnexpectedSnafu {
                call: write(Method::GET, LIST_MEMBERS, None).call(),
                status: 200_u16,
                code: "",
                message: "`data` is not a list of members",
            })
    }

    /// Takes the controller whose control plane is at `address` (`tls:host:port`) into the
    /// cluster; it must run, and be in none. One that is in it already stays; under an id or
    /// address that is known in another combination, the old entry goes first.
    ///
    /// [`ManagementError::Invalid`] says why it could not be reached. After a
    /// [`ManagementError::Timeout`] it may be in: Ziti itself waits longer for the joiner (15 s)
    /// than for its own answer.
    pub async fn add_member(&self, address: &str, voter: bool) -> Result<(), ManagementError> {
        let body = json!({"address": address, "isVoter": voter});
        self.act(ADD_MEMBER, body).await
    }

    /// Takes the member out of the cluster. One that is not in it is no error. It may run on: it
    /// takes no writes, and must be emptied before it joins again under another id.
    pub async fn remove_member(&self, id: &str) -> Result<(), ManagementError> {
        self.act(REMOVE_MEMBER, json!({"id": id})).await
    }

    /// Has another member lead: the voter `id`, or whichever is furthest. It is carried out by the
    /// leader, wherever it is asked for. [`ManagementError::Conflict`] where nobody else can.
    pub async fn transfer_leadership(&self, id: Option<&str>) -> Result<(), ManagementError> {
        let body = id.map_or_else(|| json!({}), |id| json!({"newLeaderId": id}));
        self.act(TRANSFER_LEADERSHIP, body).await
    }

    /// Has the controller that answers write a copy of its database beside it, or at `path` *on
    /// its own disk*, and returns where it is. In the path Ziti puts in `__DATE__`, `__TIME__`,
    /// `__DB_DIR__`, `__DB_FILE__` and `__RAFT_INDEX__`. No keys are in it.
    /// [`ManagementError::TooManyRequests`] within a minute of the one before.
    pub async fn snapshot(&self, path: Option<&str>) -> Result<String, ManagementError> {
        let body = path.map_or_else(|| json!({}), |path| json!({"path": path}));
        let made = self.post(SNAPSHOT, &body).await?;
        let path = made.get("path").and_then(Value::as_str);
        let path = path.with_context(|| UnexpectedSnafu {
            call: write(Method::POST, SNAPSHOT, None).call(),
            status: 200_u16,
            code: "",
            message: "there is no path in it",
        })?;
        Ok(path.to_owned())
    }

    /// Which member answers at this one of [`Self::endpoints`], by the certificate that it shows: its
    /// SPIFFE id is `spiffe://<trust domain>/controller/<id>`. `None` where nobody answers, or
    /// somebody with another certificate for this API.
    ///
    /// (`GET /controllers` is of no use here: 1.6.0 leaves out the addresses of members that it
    /// took in itself.)
    pub async fn member_at(&self, endpoint: &str) -> Option<String> {
        self.index_of(endpoint).ok()?;
        let leaf = self.connection.served_leaf(endpoint);
        let leaf = timeout(self.timeout(), leaf).await.ok()??;
        let facts = CertificateFacts::from_der(&leaf).ok()?;
        let id = |uri: &String| {
            let (_, id) = uri.strip_prefix("spiffe://")?.split_once("/controller/")?;
            Some(id.to_owned())
        };
        facts.uris.iter().find_map(id)
    }

    /// The endpoints that the client was made with, `https://host:port` each.
    pub fn endpoints(&self) -> &[String] {
        &self.connection.endpoints
    }

    /// The endpoint that the next call goes to, one of [`Self::endpoints`].
    pub async fn endpoint(&self) -> &str {
        &self.connection.endpoints[self.connection.current().await]
    }

    /// Has the next calls, of all clones, go to this one of [`Self::endpoints`]. Should it not be
    /// reachable, they move on to the next as ever. One that is not among them changes nothing.
    pub async fn turn_to(&self, endpoint: &str) {
        if let Ok(index) = self.index_of(endpoint) {
            self.connection.turn_to(index).await;
        }
    }

    /// A client for this one of [`Self::endpoints`] alone, with a session of its own: to ask one
    /// controller, whether or not the others answer.
    pub fn only(&self, endpoint: &str) -> Result<Self, ManagementError> {
        let connection = self.connection.only(self.index_of(endpoint)?)?;
        Ok(Self {
            connection: connection.into(),
        })
    }

    fn index_of(&self, endpoint: &str) -> Result<usize, ManagementError> {
        let found = self.endpoints().iter().position(|known| known == endpoint);
        found.context(ConfigurationSnafu {
            reason: format!("{endpoint} is not one of the endpoints of this client"),
        })
    }

    async fn act(&self, path: &str, body: Value) -> Result<(), ManagementError> {
        self.run(&write(Method::POST, path, Some(body))).await?;
        Ok(())
    }
}
