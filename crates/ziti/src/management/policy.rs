//! The two policies without which a router carries nothing: who may use which routers, and which
//! services may be offered at which routers.

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::client::{Deletion, Listed, ManagementClient, entity, good_name, invalid_filter};
use super::error::ManagementError;
use super::fields::or_default;
use super::filter::Filter;

/// Whose place at routers a policy grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// Identities: which routers they may connect to.
    EdgeRouter,
    /// Services: at which routers they may be hosted and reached. Make it before the policy that
    /// lets anybody bind: 1.6 leaves a service unhosted where the two come in the other order.
    ServiceEdgeRouter,
}

impl PolicyKind {
    fn path(self) -> &'static str {
        match self {
            Self::EdgeRouter => "/edge-router-policies",
            Self::ServiceEdgeRouter => "/service-edge-router-policies",
        }
    }

    /// What the roles of the subject are called.
    fn subject(self) -> &'static str {
        match self {
            Self::EdgeRouter => "identityRoles",
            Self::ServiceEdgeRouter => "serviceRoles",
        }
    }
}

/// How the attributes of a list of roles count together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Semantic {
    /// One of them is enough.
    #[default]
    AnyOf,
    /// All must be there; `@id` matches by itself.
    AllOf,
}

/// A policy. Roles are `#attribute`, `@id` or, alone, `#all`; Ziti sorts them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Given by the network.
    pub id: String,
    /// Unique among the policies of its kind.
    pub name: String,
    /// How attributes count together.
    #[serde(default, deserialize_with = "or_default")]
    pub semantic: Semantic,
    /// Of the identities, or of the services, by the kind of the policy.
    #[serde(
        default,
        alias = "identityRoles",
        alias = "serviceRoles",
        deserialize_with = "or_default"
    )]
    pub subject_roles: Vec<String>,
    /// Of the routers.
    #[serde(default, deserialize_with = "or_default")]
    pub edge_router_roles: Vec<String>,
    /// Tags; the operator's marks of ownership live here.
    #[serde(default, deserialize_with = "or_default")]
    pub tags: Map<String, Value>,
}

/// A policy to be made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewPolicy {
    /// See [`super::validate_name`].
    pub name: String,
    /// How attributes count together. It is not to be changed later: Ziti keeps the change and
    /// does not act on it.
    pub semantic: Semantic,
    /// Of the identities, or of the services.
    pub subject_roles: Vec<String>,
    /// Of the routers.
    pub edge_router_roles: Vec<String>,
    /// Tags.
    pub tags: Map<String, Value>,
}

/// A change of a policy: what is `None` is not sent and stays as it is. Each part replaces the
/// whole that was there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicyPatch {
    /// Of the identities, or of the services.
    pub subject_roles: Option<Vec<String>>,
    /// Of the routers.
    pub edge_router_roles: Option<Vec<String>>,
    /// Tags.
    pub tags: Option<Map<String, Value>>,
}

impl PolicyPatch {
    /// Whether nothing would be sent.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn body(&self, kind: PolicyKind) -> Value {
        let mut body = Map::new();
        let parts = [
            (
                kind.subject(),
                self.subject_roles.as_ref().map(|to| json!(to)),
            ),
            (
                "edgeRouterRoles",
                self.edge_router_roles.as_ref().map(|to| json!(to)),
            ),
            ("tags", self.tags.as_ref().map(|to| json!(to))),
        ];
        for (key, value) in parts {
            body.extend(value.map(|value| (key.to_owned(), value)));
        }
        Value::Object(body)
    }
}

impl ManagementClient {
    /// Every policy of the kind that matches.
    pub async fn policies(
        &self,
        kind: PolicyKind,
        filter: &Filter,
    ) -> Result<Listed<Policy>, ManagementError> {
        self.list(kind.path(), filter).await
    }

    /// The policy of exactly this name.
    pub async fn policy_named(
        &self,
        kind: PolicyKind,
        name: &str,
    ) -> Result<Option<Policy>, ManagementError> {
        let filter = Filter::equals("name", name).map_err(invalid_filter(kind.path()))?;
        let found = self.policies(kind, &filter).await?;
        Ok(found.items.into_iter().find(|found| found.name == name))
    }

    /// Makes a policy and returns its id. Look it up by name and tags before it is tried again
    /// (see [`ManagementError::may_have_committed`]).
    pub async fn create_policy(
        &self,
        kind: PolicyKind,
        new: &NewPolicy,
    ) -> Result<String, ManagementError> {
        good_name(kind.path(), &new.name)?;
        let body = json!({
            "name": new.name,
            "semantic": new.semantic,
            kind.subject(): new.subject_roles,
            "edgeRouterRoles": new.edge_router_roles,
            "tags": new.tags,
        });
        self.create(kind.path(), &body).await
    }

    /// Changes what `change` sets, and nothing else. An empty patch sends nothing.
    pub async fn patch_policy(
        &self,
        kind: PolicyKind,
        id: &str,
        change: &PolicyPatch,
    ) -> Result<(), ManagementError> {
        if change.is_empty() {
            return Ok(());
        }
        let path = entity(kind.path(), id, &Method::PATCH)?;
        self.patch(&path, &change.body(kind)).await
    }

    /// Removes a policy.
    pub async fn delete_policy(
        &self,
        kind: PolicyKind,
        id: &str,
    ) -> Result<Deletion, ManagementError> {
        self.delete(&entity(kind.path(), id, &Method::DELETE)?)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_sends_what_is_set_under_the_name_of_its_kind() {
        let patch = PolicyPatch {
            subject_roles: Some(Vec::new()),
            ..PolicyPatch::default()
        };
        let body = |kind| patch.body(kind);
        assert_eq!(body(PolicyKind::EdgeRouter), json!({"identityRoles": []}));
        assert_eq!(
            body(PolicyKind::ServiceEdgeRouter),
            json!({"serviceRoles": []})
        );
        assert!(PolicyPatch::default().is_empty());
    }
}
