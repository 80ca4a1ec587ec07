//! Filters in Ziti's query language (`ZitiQL`), built so that no value can break out of its
//! quotes. The grammar is `zitiql/ZitiQl.g4` of module `github.com/openziti/storage`.

use std::fmt;

use snafu::{Snafu, ensure};

/// What a filter cannot say.
#[derive(Debug, Snafu, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterError {
    /// Identifiers are letters, `_`, `-` and dots. A digit or a slash in a tag key makes the
    /// controller refuse the whole filter.
    #[snafu(display(
        "`{identifier}` cannot be filtered on: only letters, `_`, `-` and single dots between"
    ))]
    BadIdentifier {
        /// The offending name.
        identifier: String,
    },
    /// Control characters are illegal, and a backslash is ambiguous: the controller undoes
    /// escapes one kind after the other, so `\\n` would come out as a line break.
    #[snafu(display("{value:?} cannot be filtered on: backslashes and control characters cannot"))]
    BadValue {
        /// The offending value.
        value: String,
    },
}

/// A condition on the members of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter(String);

impl Filter {
    /// Everything.
    pub fn all() -> Self {
        Self("true".to_owned())
    }

    /// `field = "value"`.
    pub fn equals(field: &str, value: &str) -> Result<Self, FilterError> {
        let (field, value) = (identifier(field)?, quoted(value)?);
        Ok(Self(format!("{field}={value}")))
    }

    /// `field = true` or `field = false`. Whether a router is online is field `online`;
    /// `isOnline` is refused.
    pub fn flag(field: &str, value: bool) -> Result<Self, FilterError> {
        Ok(Self(format!("{}={value}", identifier(field)?)))
    }

    /// `tags.key = "value"`.
    pub fn tag(key: &str, value: &str) -> Result<Self, FilterError> {
        Self::equals(&format!("tags.{key}"), value)
    }

    /// The set `field` has `value` in it, such as `roleAttributes`.
    pub fn any_of(field: &str, value: &str) -> Result<Self, FilterError> {
        let (field, value) = (identifier(field)?, quoted(value)?);
        Ok(Self(format!("anyOf({field})={value}")))
    }

    /// Both conditions.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        Self(format!("({}) and ({})", self.0, other.0))
    }

    /// One condition or the other.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        Self(format!("({}) or ({})", self.0, other.0))
    }

    /// The text for parameter `filter`, asking for every match: without `limit none` a list
    /// silently stops at 10 rows.
    pub(crate) fn query(&self) -> String {
        format!("{} limit none", self.0)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

fn identifier(name: &str) -> Result<&str, FilterError> {
    let allowed = |c: char| c.is_ascii_alphabetic() || c == '_' || c == '-';
    let segment =
        |s: &str| s.starts_with(|c: char| c.is_ascii_alphabetic()) && s.chars().all(allowed);
    ensure!(
        name.split('.').all(segment),
        BadIdentifierSnafu { identifier: name }
    );
    Ok(name)
}

fn quoted(value: &str) -> Result<String, FilterError> {
    let bad = |c: char| c == '\\' || c.is_control();
    ensure!(!value.contains(bad), BadValueSnafu { value });
    Ok(format!("\"{}\"", value.replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_in_their_quotes() {
        let filter = Filter::equals("name", r#"a" or true or name="b"#).unwrap();
        assert_eq!(filter.to_string(), r#"name="a\" or true or name=\"b""#);
        assert!(Filter::equals("name", "a\\").is_err());
        assert!(Filter::equals("name", "a\nb").is_err());
    }

    #[test]
    fn identifiers_are_what_the_grammar_holds() {
        for good in ["name", "tags.ziti-owner", "tags.install_id"] {
            assert!(Filter::equals(good, "x").is_ok(), "{good}");
        }
        for bad in [
            "",
            "tags.v1",
            "tags.a/b",
            "a..b",
            "a b",
            "a=b or true",
            "-a",
        ] {
            assert!(Filter::equals(bad, "x").is_err(), "{bad}");
        }
    }

    #[test]
    fn combinations_keep_their_meaning() {
        let a = Filter::tag("owner", "me").unwrap();
        let b = Filter::flag("online", true).unwrap();
        let c = Filter::any_of("roleAttributes", "hub").unwrap();
        assert_eq!(
            a.or(&b).and(&c).query(),
            r#"((tags.owner="me") or (online=true)) and (anyOf(roleAttributes)="hub") limit none"#
        );
    }
}
