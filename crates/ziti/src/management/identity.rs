//! Identities as the management API shows and takes them: the operator's own, above all.

use std::fmt;

use jiff::Timestamp;
use reqwest::Method;
use secrecy::SecretString;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::client::{Deletion, Listed, ManagementClient, entity, good_name, invalid_filter};
use super::error::ManagementError;
use super::fields::{certificate_end, moment, not_blank, or_default, secret};
use super::filter::Filter;

const IDENTITIES: &str = "/identities";
const ENROLLMENTS: &str = "/enrollments";
const AUTHENTICATORS: &str = "/authenticators";

/// Somebody who may log in.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Given by the network.
    pub id: String,
    /// Unique among identities; that of a router with a tunneler is the router's.
    pub name: String,
    /// Whether it may do everything.
    #[serde(default, deserialize_with = "or_default")]
    pub is_admin: bool,
    /// Attributes for policies.
    #[serde(default, deserialize_with = "or_default")]
    pub role_attributes: Vec<String>,
    /// Tags; the operator's marks of ownership live here.
    #[serde(default, deserialize_with = "or_default")]
    pub tags: Map<String, Value>,
    /// The one-time token (method `ott`), until it is redeemed.
    #[serde(default, rename = "enrollment", deserialize_with = "one_time_token")]
    pub one_time_token: Option<OneTimeToken>,
}

/// What an identity enrolls with, once. `Debug` does not show the token.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OneTimeToken {
    /// The token, for [`crate::token::EnrollmentToken::parse`].
    #[serde(default, deserialize_with = "secret")]
    pub jwt: Option<SecretString>,
    /// When it runs out, by the controller's clock. One that ran out stays listed.
    #[serde(default, deserialize_with = "moment")]
    pub expires_at: Option<Timestamp>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Identity")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("is_admin", &self.is_admin)
            .field("has_token", &self.one_time_token.is_some())
            .finish_non_exhaustive()
    }
}

/// An identity to be made. It gets a one-time token at once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewIdentity {
    /// See [`super::validate_name`].
    pub name: String,
    /// Whether it may do everything: before 2.0 the only way to do anything.
    pub is_admin: bool,
    /// What it may do without being an administrator, such as `router` (2.0 and later; older ones
    /// pass over it, and the identity may do nothing).
    pub permissions: Vec<String>,
    /// Tags.
    pub tags: Map<String, Value>,
}

/// A way in which an identity logs in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Authenticator {
    /// Given by the network.
    pub id: String,
    /// `cert` or `updb` (a password).
    #[serde(default, deserialize_with = "or_default")]
    pub method: String,
    /// Of the certificate, see [`crate::pki::CertificateFacts::fingerprint`].
    #[serde(default, deserialize_with = "not_blank")]
    pub fingerprint: Option<String>,
    /// When the certificate runs out; `None` for a password.
    #[serde(default, rename = "certPem", deserialize_with = "certificate_end")]
    pub certificate_expiry: Option<Timestamp>,
}

impl ManagementClient {
    /// Every identity that matches, with its token where it still has one.
    pub async fn identities(&self, filter: &Filter) -> Result<Listed<Identity>, ManagementError> {
        self.list(IDENTITIES, filter).await
    }

    /// The identity of exactly this name.
    pub async fn identity_named(&self, name: &str) -> Result<Option<Identity>, ManagementError> {
        let filter = Filter::equals("name", name).map_err(invalid_filter(IDENTITIES))?;
        let found = self.identities(&filter).await?;
        Ok(found.items.into_iter().find(|found| found.name == name))
    }

    /// The identity with this id. `None` only on the controller's own word.
    pub async fn identity(&self, id: &str) -> Result<Option<Identity>, ManagementError> {
        self.one(IDENTITIES, id).await
    }

    /// Makes an identity with a one-time token and returns its id. Look it up by name and tags
    /// before it is tried again (see [`ManagementError::may_have_committed`]).
    pub async fn create_identity(&self, new: &NewIdentity) -> Result<String, ManagementError> {
        good_name(IDENTITIES, &new.name)?;
        let mut body = json!({
            "name": new.name,
            "type": "Default",
            "isAdmin": new.is_admin,
            "tags": new.tags,
            "enrollment": {"ott": true},
        });
        if !new.permissions.is_empty() {
            body["permissions"] = json!(new.permissions);
        }
        self.create(IDENTITIES, &body).await
    }

    /// Gives an identity that is there another one-time token, good until `expires_at`. With what
    /// it has it can log in as before: so a certificate is replaced without a gap, and the old one
    /// is taken away by [`Self::delete_authenticator`] when the new one was used.
    /// [`ManagementError::Conflict`] while a token of it waits (one that ran out counts).
    pub async fn new_enrollment(
        &self,
        identity: &str,
        expires_at: Timestamp,
    ) -> Result<String, ManagementError> {
        let body = json!({"method": "ott", "identityId": identity, "expiresAt": expires_at});
        self.create(ENROLLMENTS, &body).await
    }

    /// Removes the identity, its ways to log in and its place in policies.
    pub async fn delete_identity(&self, id: &str) -> Result<Deletion, ManagementError> {
        self.delete(&entity(IDENTITIES, id, &Method::DELETE)?).await
    }

    /// In which ways the identity logs in.
    pub async fn authenticators(
        &self,
        identity: &str,
    ) -> Result<Vec<Authenticator>, ManagementError> {
        let path = entity(IDENTITIES, identity, &Method::GET)?;
        let path = format!("{path}{AUTHENTICATORS}");
        Ok(self.list(&path, &Filter::all()).await?.items)
    }

    /// Ends one way to log in, and the sessions that came by it.
    pub async fn delete_authenticator(&self, id: &str) -> Result<Deletion, ManagementError> {
        self.delete(&entity(AUTHENTICATORS, id, &Method::DELETE)?)
            .await
    }
}

/// `enrollment.ott`; the other methods are nothing that the operator uses.
fn one_time_token<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<OneTimeToken>, D::Error> {
    #[derive(Deserialize)]
    struct Enrollment {
        #[serde(default)]
        ott: Option<OneTimeToken>,
    }
    let enrollment = Option::<Enrollment>::deserialize(deserializer)?;
    let token = enrollment.and_then(|enrollment| enrollment.ott);
    Ok(token.filter(|token| token.jwt.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_the_token_and_an_empty_enrollment_is_none() {
        let row = json!({"id": "a", "name": "i", "tags": null,
            "enrollment": {"ott": {"jwt": "planted", "expiresAt": "2030-01-01T00:00:00.000Z"}}});
        let identity: Identity = serde_json::from_value(row).unwrap();
        let token = identity.one_time_token.as_ref().unwrap();
        assert!(token.expires_at.is_some());
        assert!(!format!("{identity:?}{token:?}").contains("planted"));
        let bare = json!({"id": "a", "name": "i", "enrollment": {}});
        let identity: Identity = serde_json::from_value(bare).unwrap();
        assert!(identity.one_time_token.is_none());
    }
}
