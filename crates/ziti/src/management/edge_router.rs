//! Edge routers as the management API shows and takes them.

use std::fmt;

use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use snafu::{Snafu, ensure};

use super::fields::{certificate_end, moment, not_blank, or_default, secret};
use crate::token::{EnrollmentToken, TokenError};

/// `syncStatus` of a router whose data model is complete: only then does it carry traffic.
pub const SYNC_DONE: &str = "SYNC_DONE";

/// Why a string cannot be the name of a router.
#[derive(Debug, Snafu, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// Empty, or white space only: Ziti accepts it, and nobody finds it again.
    #[snafu(display("the name is empty"))]
    Blank,
    /// White space around the name: Ziti keeps it, and treats it as another name.
    #[snafu(display("{name:?} has white space at an end"))]
    NotTrimmed {
        /// The offending name.
        name: String,
    },
    /// A backslash or a control character: the entity could not be found by a filter.
    #[snafu(display("{name:?} contains a backslash or a control character"))]
    BadCharacter {
        /// The offending name.
        name: String,
    },
}

/// Whether `name` can be given to a router and found again by a filter.
pub fn validate_name(name: &str) -> Result<(), NameError> {
    ensure!(!name.trim().is_empty(), BlankSnafu);
    let bad = |c: char| c == '\\' || c.is_control();
    ensure!(!name.contains(bad), BadCharacterSnafu { name });
    ensure!(name.trim() == name, NotTrimmedSnafu { name });
    Ok(())
}

/// An edge router as one controller sees it. What an older or newer Ziti leaves out has its
/// default here.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "they are Ziti's")]
pub struct EdgeRouterEntity {
    /// Given by the network; also the CN of the router's certificates.
    pub id: String,
    /// Unique among all routers.
    pub name: String,
    /// Attributes for policies (`#attribute`), sorted by Ziti.
    #[serde(default, deserialize_with = "or_default")]
    pub role_attributes: Vec<String>,
    /// Whether it has an identity of its own, to host and dial services.
    #[serde(default, deserialize_with = "or_default")]
    pub is_tunneler_enabled: bool,
    /// Routing cost, 0–65535.
    #[serde(default, deserialize_with = "or_default")]
    pub cost: u32,
    /// Whether traffic between others may not pass through it.
    #[serde(default, deserialize_with = "or_default")]
    pub no_traversal: bool,
    /// Whether the network refuses it.
    #[serde(default, deserialize_with = "or_default")]
    pub disabled: bool,
    /// Tags; the operator's marks of ownership live here.
    #[serde(default, deserialize_with = "or_default")]
    pub tags: Map<String, Value>,
    /// Free data for applications.
    #[serde(default, deserialize_with = "or_default")]
    pub app_data: Map<String, Value>,
    /// Whether its token was redeemed. Not proof that a pod holds the certificate.
    #[serde(default, deserialize_with = "or_default")]
    pub is_verified: bool,
    /// Whether it is connected to *this* controller.
    #[serde(default, deserialize_with = "or_default")]
    pub is_online: bool,
    /// How far its data model is, see [`SYNC_DONE`]; empty where Ziti says nothing.
    #[serde(default, deserialize_with = "or_default")]
    pub sync_status: String,
    /// What it advertises, once it was online.
    #[serde(default, deserialize_with = "or_default")]
    pub hostname: String,
    /// Of the client certificate it must present; `None` until a token is redeemed.
    #[serde(default, deserialize_with = "not_blank")]
    pub fingerprint: Option<String>,
    /// When the certificate of that fingerprint runs out; of a certificate that cannot be read,
    /// `None`. A router that renews its certificate in place shows the new one here.
    #[serde(default, rename = "certPem", deserialize_with = "certificate_end")]
    pub certificate_expiry: Option<Timestamp>,
    /// Version of the router's program, while it is known.
    #[serde(default, rename = "versionInfo", deserialize_with = "version")]
    pub version: Option<String>,
    /// The one-time token, while it can be redeemed. In a cluster each controller shows one
    /// of its own, good only there.
    #[serde(default, deserialize_with = "secret")]
    pub enrollment_jwt: Option<SecretString>,
    /// When the token runs out, by the controller's clock.
    #[serde(default, deserialize_with = "moment")]
    pub enrollment_expires_at: Option<Timestamp>,
    /// When the router was registered.
    #[serde(default, deserialize_with = "moment")]
    pub created_at: Option<Timestamp>,
}

impl EdgeRouterEntity {
    /// Connected to this controller, with a complete data model.
    pub fn is_in_service(&self) -> bool {
        self.is_online && self.sync_status == SYNC_DONE
    }

    /// The one-time token in parsed form, where there is one.
    pub fn enrollment_token(&self) -> Option<Result<EnrollmentToken, TokenError>> {
        let jwt = self.enrollment_jwt.as_ref()?;
        Some(EnrollmentToken::parse(jwt.expose_secret()))
    }
}

impl fmt::Debug for EdgeRouterEntity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EdgeRouterEntity")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("is_verified", &self.is_verified)
            .field("is_online", &self.is_online)
            .field("sync_status", &self.sync_status)
            .field("fingerprint", &self.fingerprint)
            .field("has_token", &self.enrollment_jwt.is_some())
            .field("enrollment_expires_at", &self.enrollment_expires_at)
            .finish_non_exhaustive()
    }
}

/// A router to be registered. Ziti chooses the id.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewEdgeRouter {
    /// See [`validate_name`].
    pub name: String,
    /// Attributes for policies.
    pub role_attributes: Vec<String>,
    /// Whether it gets an identity of its own.
    pub is_tunneler_enabled: bool,
    /// Routing cost.
    pub cost: u16,
    /// Whether traffic between others may not pass through it.
    pub no_traversal: bool,
    /// Tags.
    pub tags: Map<String, Value>,
    /// Free data for applications.
    pub app_data: Map<String, Value>,
}

/// A change of a router: what is `None` is not sent and stays as it is.
///
/// There is no name in it on purpose: Ziti answers a renaming onto a taken name with 200 and
/// drops the whole change. Nor is there `disabled`, which on an online router has brought a
/// whole cluster to a standstill.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EdgeRouterPatch {
    /// Replaces the whole list; empty clears it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_attributes: Option<Vec<String>>,
    /// Turning it off destroys the router's identity and all that refers to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_tunneler_enabled: Option<bool>,
    /// Routing cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<u16>,
    /// Whether traffic between others may not pass through it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_traversal: Option<bool>,
    /// Replaces the whole map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Map<String, Value>>,
    /// Replaces the whole map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_data: Option<Map<String, Value>>,
}

impl EdgeRouterPatch {
    /// Whether nothing would be sent.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    struct VersionInfo {
        #[serde(default)]
        version: String,
    }
    let info = Option::<VersionInfo>::deserialize(deserializer)?;
    Ok(info
        .map(|info| info.version)
        .filter(|version| !version.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_bare_entity_is_enough() {
        let entity: EdgeRouterEntity =
            serde_json::from_value(json!({"id": "a", "name": "r"})).unwrap();
        assert!(!entity.is_in_service());
        assert!(entity.enrollment_token().is_none());
        let nulls = json!({"id": "a", "name": "r", "roleAttributes": null, "tags": null,
            "syncStatus": null, "fingerprint": null, "versionInfo": null, "enrollmentJwt": null,
            "createdAt": "0001-01-01T00:00:00.000Z", "isOnline": null});
        let entity: EdgeRouterEntity = serde_json::from_value(nulls).unwrap();
        assert_eq!(entity.created_at, None);
    }

    #[test]
    fn debug_hides_the_token() {
        let entity: EdgeRouterEntity =
            serde_json::from_value(json!({"id": "a", "name": "r", "enrollmentJwt": "planted"}))
                .unwrap();
        assert!(!format!("{entity:?}").contains("planted"));
    }

    #[test]
    fn a_patch_sends_what_is_set() {
        let patch = EdgeRouterPatch {
            role_attributes: Some(Vec::new()),
            cost: Some(5),
            ..EdgeRouterPatch::default()
        };
        assert_eq!(
            serde_json::to_value(&patch).unwrap(),
            json!({"roleAttributes": [], "cost": 5})
        );
        assert!(!patch.is_empty());
        assert!(EdgeRouterPatch::default().is_empty());
    }

    #[test]
    fn names_that_cannot_be_found_again_are_refused() {
        assert_eq!(validate_name("router \"one\" ü"), Ok(()));
        assert_eq!(validate_name("  "), Err(NameError::Blank));
        assert!(matches!(
            validate_name(" a"),
            Err(NameError::NotTrimmed { .. })
        ));
        for bad in ["a\\b", "a\tb", "a\nb"] {
            assert!(matches!(
                validate_name(bad),
                Err(NameError::BadCharacter { .. })
            ));
        }
    }
}
