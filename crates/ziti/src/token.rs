//! Enrollment tokens: what a one-time JWT of a Ziti network says about itself.
//!
//! Reading is not trusting. [`EnrollmentToken::parse`] decodes and checks the shape only;
//! the signature is verified where the token is used, in [`crate::trust`]. Expiry is never
//! judged here: it is the controller's clock that counts.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use snafu::{OptionExt, ResultExt, Snafu, ensure};
use url::Url;

use crate::pki::sha256_hex;

/// JWTs carry no padding, but people paste tokens that went through tools which add it.
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Characters of the SHA-256 that [`EnrollmentToken::digest`] shows: 64 bits tell tokens
/// apart and give away nothing.
const DIGEST_LENGTH: usize = 16;

/// Why a string is not an enrollment token. No variant carries text of the token.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum TokenError {
    /// Nothing but white space.
    #[snafu(display("the enrollment token is empty"))]
    Empty,
    /// Not `header.claims.signature`.
    #[snafu(display(
        "the enrollment token is not a JWT: it has {parts} part(s) separated by dots, a JWT has 3"
    ))]
    NotThreeParts {
        /// How many parts it has.
        parts: usize,
    },
    /// A part is not base64url.
    #[snafu(display("the {part} of the enrollment token is not base64url"))]
    NotBase64 {
        /// `header`, `claims` or `signature`.
        part: &'static str,
    },
    /// A part is not a JSON object. The source gives the position, never the text.
    #[snafu(display("the {part} of the enrollment token is not a JSON object"))]
    NotJson {
        /// `header` or `claims`.
        part: &'static str,
        /// Where the text stops being JSON.
        source: serde_json::Error,
    },
    /// A claim or header field that enrollment cannot do without.
    #[snafu(display("the enrollment token has no `{field}`"))]
    MissingField {
        /// The name of the claim or header field.
        field: &'static str,
    },
    /// `iss` is not an `https://` address with a host.
    #[snafu(display(
        "the issuer of the enrollment token is not an https address of a Ziti controller"
    ))]
    BadIssuer,
}

/// How a token is meant to be redeemed (claim `em`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnrollmentMethod {
    /// `erott`: one edge router, once.
    Erott,
    /// `ott`: one identity, once.
    Ott,
    /// `network`: names a network and how to trust it; nothing can be redeemed with it.
    Network,
    /// Anything else that Ziti may issue (`ottca`, `ca`, `updb`, …).
    Other(String),
}

impl EnrollmentMethod {
    fn from_claim(value: &str) -> Self {
        match value {
            "erott" => Self::Erott,
            "ott" => Self::Ott,
            "network" => Self::Network,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The value of claim `em`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Erott => "erott",
            Self::Ott => "ott",
            Self::Network => "network",
            Self::Other(other) => other,
        }
    }
}

impl fmt::Display for EnrollmentMethod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// An enrollment token that has the right shape. Whoever holds it may redeem it, so it never
/// shows in `Debug`, and only [`EnrollmentToken::expose`] gives the text back.
#[derive(Clone)]
pub struct EnrollmentToken {
    raw: SecretString,
    one_time_token: SecretString,
    algorithm: String,
    key_id: Option<String>,
    issuer: Url,
    subject: String,
    method: EnrollmentMethod,
    expires_at: Option<Timestamp>,
    controllers: Vec<String>,
    digest: String,
}

impl EnrollmentToken {
    /// Decodes header and claims of `text`, after trimming white space. Nothing is verified.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let raw = text.trim();
        ensure!(!raw.is_empty(), EmptySnafu);
        let parts: Vec<&str> = raw.split('.').collect();
        let [header, claims, signature] = parts[..] else {
            return NotThreePartsSnafu { parts: parts.len() }.fail();
        };
        let header = json_object("header", header)?;
        let claims = json_object("claims", claims)?;
        // Decoded here so that a truncated paste fails now, not after a round trip.
        BASE64_URL
            .decode(signature)
            .ok()
            .filter(|bytes| !bytes.is_empty())
            .context(NotBase64Snafu { part: "signature" })?;

        let method = string(&claims, "em").context(MissingFieldSnafu { field: "em" })?;
        let method = EnrollmentMethod::from_claim(&method);
        let redeemable = method != EnrollmentMethod::Network;
        let issuer = string(&claims, "iss").context(MissingFieldSnafu { field: "iss" })?;
        let issuer = Url::parse(&issuer).ok().context(BadIssuerSnafu)?;
        ensure!(
            issuer.scheme() == "https" && issuer.host_str().is_some_and(|host| !host.is_empty()),
            BadIssuerSnafu
        );
        let subject = string(&claims, "sub").unwrap_or_default();
        ensure!(
            !redeemable || !subject.is_empty(),
            MissingFieldSnafu { field: "sub" }
        );
        let one_time_token = string(&claims, "jti").unwrap_or_default();
        ensure!(
            !redeemable || !one_time_token.is_empty(),
            MissingFieldSnafu { field: "jti" }
        );

        Ok(Self {
            algorithm: string(&header, "alg").context(MissingFieldSnafu { field: "alg" })?,
            key_id: string(&header, "kid"),
            issuer,
            subject,
            method,
            expires_at: timestamp(claims.get("exp")),
            controllers: strings(claims.get("ctrls")),
            digest: sha256_hex(raw.as_bytes())
                .chars()
                .take(DIGEST_LENGTH)
                .collect(),
            one_time_token: one_time_token.into(),
            raw: raw.into(),
        })
    }

    /// Where the token is redeemed (claim `iss`): the client API of the issuing controller.
    pub fn issuer(&self) -> &Url {
        &self.issuer
    }

    /// Whom the token admits (claim `sub`): the id of the edge router or of the identity.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// How it is to be redeemed (claim `em`).
    pub fn method(&self) -> &EnrollmentMethod {
        &self.method
    }

    /// When it stops being accepted, by the clock of the controller (claim `exp`).
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }

    /// The control plane addresses that the network gives to routers (claim `ctrls`, from
    /// Ziti 1.x on), in the form `tls:host:port`. Empty where the token names none.
    pub fn controllers(&self) -> &[String] {
        &self.controllers
    }

    /// The first 16 hexadecimal digits of the token's SHA-256: safe to show, and enough to
    /// tell two tokens apart.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Which key signed it (header `kid`): SHA-1 of the issuer's certificate, in hex.
    pub fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    /// The token itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        self.raw.expose_secret()
    }

    /// The signature algorithm that the header claims.
    pub(crate) fn algorithm(&self) -> &str {
        &self.algorithm
    }

    /// Claim `jti`: what the controller is given at enrollment.
    pub(crate) fn one_time_token(&self) -> &SecretString {
        &self.one_time_token
    }

    /// The signed text and the signature over it.
    pub(crate) fn signed_parts(&self) -> Option<(&str, Vec<u8>)> {
        let (message, signature) = self.expose().rsplit_once('.')?;
        Some((message, BASE64_URL.decode(signature).ok()?))
    }
}

impl fmt::Debug for EnrollmentToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EnrollmentToken")
            .field("issuer", &self.issuer.as_str())
            .field("subject", &self.subject)
            .field("method", &self.method)
            .field("expires_at", &self.expires_at)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

fn json_object(part: &'static str, text: &str) -> Result<Map<String, Value>, TokenError> {
    let bytes = BASE64_URL
        .decode(text)
        .ok()
        .context(NotBase64Snafu { part })?;
    serde_json::from_slice(&bytes).context(NotJsonSnafu { part })
}

fn string(object: &Map<String, Value>, name: &str) -> Option<String> {
    object.get(name)?.as_str().map(str::to_owned)
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).map(Vec::as_slice);
    items
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// `NumericDate` of RFC 7519: seconds since 1970, possibly with a fraction.
fn timestamp(value: Option<&Value>) -> Option<Timestamp> {
    let number = value?.as_number()?;
    let seconds = number.as_i64().or_else(|| {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "whole seconds are what is wanted, and the cast saturates"
        )]
        number.as_f64().map(|seconds| seconds as i64)
    })?;
    Timestamp::from_second(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str, claims: &str) -> String {
        let encode = |text: &str| BASE64_URL.encode(text).trim_end_matches('=').to_owned();
        format!(
            "{}.{}.{}",
            encode(header),
            encode(claims),
            encode("signature")
        )
    }

    const CLAIMS: &str = r#"{"iss":"https://ctrl.example:1280","sub":"r1","aud":[""],
        "em":"erott","exp":1700000000,"jti":"planted-secret","ctrls":["tls:ctrl.example:6262"]}"#;

    #[test]
    fn reads_what_a_router_token_says() {
        let text = format!("  {}\n", token(r#"{"alg":"ES256","kid":"ab12"}"#, CLAIMS));
        let token = EnrollmentToken::parse(&text).unwrap();
        assert_eq!(token.issuer().as_str(), "https://ctrl.example:1280/");
        assert_eq!(token.subject(), "r1");
        assert_eq!(*token.method(), EnrollmentMethod::Erott);
        assert_eq!(token.controllers(), ["tls:ctrl.example:6262"]);
        assert_eq!(token.key_id(), Some("ab12"));
        assert_eq!(token.expires_at().unwrap().as_second(), 1_700_000_000);
        assert_eq!(token.digest().len(), DIGEST_LENGTH);
        assert_eq!(token.expose(), text.trim());
    }

    #[test]
    fn debug_shows_neither_the_token_nor_its_secret() {
        let text = token(r#"{"alg":"ES256"}"#, CLAIMS);
        let shown = format!("{:?}", EnrollmentToken::parse(&text).unwrap());
        assert!(!shown.contains("planted-secret"), "{shown}");
        assert!(!shown.contains(&text), "{shown}");
    }

    #[test]
    fn two_tokens_have_two_digests() {
        let one = EnrollmentToken::parse(&token(r#"{"alg":"ES256"}"#, CLAIMS)).unwrap();
        let two = EnrollmentToken::parse(&token(r#"{"alg":"ES384"}"#, CLAIMS)).unwrap();
        assert_ne!(one.digest(), two.digest());
    }

    #[test]
    fn each_malformation_has_its_name() {
        let header = r#"{"alg":"ES256"}"#;
        let cases = [
            (" \n".to_owned(), "is empty"),
            ("abc".to_owned(), "1 part(s)"),
            (
                "!.e30.c2ln".to_owned(),
                "header of the enrollment token is not base64url",
            ),
            (
                "e30.eyJ.c2ln".to_owned(),
                "claims of the enrollment token is not",
            ),
            (
                "bm9wZQ.e30.c2ln".to_owned(),
                "header of the enrollment token is not a JSON",
            ),
            (token(header, "{}"), "no `em`"),
            (token(header, r#"{"em":"erott"}"#), "no `iss`"),
            (
                token(header, r#"{"em":"erott","iss":"http://a"}"#),
                "not an https address",
            ),
            (
                token(header, r#"{"em":"erott","iss":"https://a"}"#),
                "no `sub`",
            ),
            (
                token(header, r#"{"em":"erott","iss":"https://a","sub":"r"}"#),
                "no `jti`",
            ),
            (token("{}", CLAIMS), "no `alg`"),
        ];
        for (text, expected) in cases {
            let error = EnrollmentToken::parse(&text).unwrap_err().to_string();
            assert!(
                error.contains(expected),
                "{error:?} should say {expected:?}"
            );
        }
    }

    #[test]
    fn a_network_token_needs_no_subject() {
        let text = token(
            r#"{"alg":"ES256"}"#,
            r#"{"em":"network","iss":"https://a"}"#,
        );
        let token = EnrollmentToken::parse(&text).unwrap();
        assert_eq!(*token.method(), EnrollmentMethod::Network);
        assert_eq!(token.expires_at(), None);
    }
}
