//! How this API writes what is common to its entities, for serde. For this module only.

use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Deserializer};

use crate::pki::CertificateFacts;

/// `null` counts as absent, everywhere in this API.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

pub(super) fn not_blank<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()))
}

pub(super) fn secret<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SecretString>, D::Error> {
    Ok(not_blank(deserializer)?.map(SecretString::from))
}

/// Go's zero time (year 1) is "none" here.
pub(super) fn moment<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Timestamp>, D::Error> {
    let time = Option::<Timestamp>::deserialize(deserializer)?;
    Ok(time.filter(|time| *time > Timestamp::UNIX_EPOCH))
}

/// The PEM itself, two kilobytes of each router, is not kept.
pub(super) fn certificate_end<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Timestamp>, D::Error> {
    let pem = not_blank(deserializer)?;
    let facts = pem.and_then(|pem| CertificateFacts::from_pem(&pem).ok());
    Ok(facts.map(|facts| facts.not_after))
}
