//! Tokens written in a `ZitiRouter`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An enrollment token (JWT) written in an object. Whoever prints the object
/// does not print it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct InlineToken(pub String);

impl std::fmt::Debug for InlineToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InlineToken(…)")
    }
}
