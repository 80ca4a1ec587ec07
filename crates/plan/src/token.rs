//! What a planner knows of an enrollment token: everything but its text.

use k8s_openapi::jiff::Timestamp;

/// Facts about a token, safe to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFacts {
    /// Short digest of the text: tells two tokens apart.
    pub digest: String,
    /// The router's id that the token is for (claim `sub`).
    pub subject: String,
    /// When it runs out, by its own word (claim `exp`).
    pub expires_at: Option<Timestamp>,
    /// Whether it names the controllers that the router shall dial (`ctrls`).
    pub names_controllers: bool,
}

impl TokenFacts {
    /// Whether the token has run out at `now`. A token that names no end has
    /// none.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}
