//! Whether an object is as we want it, so that a steady state costs no write.
//!
//! Two tests, since neither is enough. The hash of what we want, kept in an
//! annotation, finds a field that we no longer want. The comparison finds what
//! somebody else changed: everything that we want must be there; what the
//! server added by default may be there too.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt;

/// Annotation with the hash of the object as we want it.
pub const ANNOTATION_APPLIED: &str = "openziti.io/applied-hash";

/// Annotation on a StatefulSet: the generation of the ZitiRouter by which it
/// was last written. It moves with other changes only.
pub const ANNOTATION_GENERATION: &str = "openziti.io/zitirouter-generation";

/// A short hash of anything that can be written as JSON.
pub fn hash(value: &impl Serialize) -> String {
    let text = serde_json::to_vec(value).unwrap_or_default();
    hex::encode(&Sha256::digest(text)[..8])
}

/// Put the hash of the object on the object.
pub fn stamp<T: Resource + Serialize + Clone>(object: &T) -> T {
    let mut stamped = object.clone();
    // By the value, whose keys are sorted.
    if let Ok(value) = serde_json::to_value(object) {
        let annotations = stamped.meta_mut().annotations.get_or_insert_default();
        annotations.insert(ANNOTATION_APPLIED.to_owned(), hash(&value));
    }
    stamped
}

/// Whether an object was made by us. Labels are copied by `kubectl expose` and
/// the like; this is not.
pub(crate) fn is_stamped(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(ANNOTATION_APPLIED))
}

/// Whether the actual object has everything that the wanted (and stamped) one
/// says.
pub fn is_applied<T: Serialize>(wanted: &T, actual: &T) -> bool {
    match (serde_json::to_value(wanted), serde_json::to_value(actual)) {
        (Ok(wanted), Ok(actual)) => holds(&wanted, &actual),
        _ => false,
    }
}

/// One field of an object that is not as we want it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Where, for example `spec.ports[0].port`.
    pub path: String,
    /// What stands there; null where there is nothing.
    pub from: Value,
    /// What should stand there.
    pub to: Value,
}

/// A value longer than this is not repeated in a sentence.
const LONGEST_VALUE: usize = 120;

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |value: &Value| match value {
            Value::Null => "nothing".to_owned(),
            value if value.to_string().len() > LONGEST_VALUE => "…".to_owned(),
            value => value.to_string(),
        };
        let (from, to) = (told(&self.from), told(&self.to));
        write!(formatter, "{}: {from} → {to}", self.path)
    }
}

/// Bookkeeping of our own, which is of no interest to anybody.
const BOOKKEEPING: [&str; 3] = [
    ANNOTATION_APPLIED,
    ANNOTATION_GENERATION,
    api::names::ANNOTATION_TEMPLATE,
];

/// What of the wanted object the actual one does not say, field by field. Empty
/// where [`is_applied`] holds.
pub fn differences<T: Serialize>(wanted: &T, actual: &T) -> Vec<Difference> {
    let mut found = Vec::new();
    if let (Ok(wanted), Ok(actual)) = (serde_json::to_value(wanted), serde_json::to_value(actual)) {
        compare("", &wanted, &actual, &mut found);
    }
    found
}

fn compare(path: &str, wanted: &Value, actual: &Value, found: &mut Vec<Difference>) {
    match (wanted, actual) {
        (Value::Object(wanted), Value::Object(actual)) => {
            for (key, value) in wanted {
                let path = match path {
                    "" => key.clone(),
                    path => format!("{path}.{key}"),
                };
                match actual.get(key) {
                    _ if BOOKKEEPING.contains(&key.as_str()) => {}
                    Some(actual) if same_quantity(key, value, actual) => {}
                    Some(actual) => compare(&path, value, actual, found),
                    None if is_empty(value) => {}
                    None => compare(&path, value, &Value::Null, found),
                }
            }
        }
        (Value::Array(wanted), Value::Array(actual)) if wanted.len() == actual.len() => {
            for (index, (wanted, actual)) in wanted.iter().zip(actual).enumerate() {
                compare(&format!("{path}[{index}]"), wanted, actual, found);
            }
        }
        _ if holds(wanted, actual) => {}
        _ => found.push(Difference {
            path: path.to_owned(),
            from: actual.clone(),
            to: wanted.clone(),
        }),
    }
}

fn holds(wanted: &Value, actual: &Value) -> bool {
    match (wanted, actual) {
        (Value::Object(wanted), Value::Object(actual)) => {
            wanted.iter().all(|(key, value)| match actual.get(key) {
                Some(actual) => same_quantity(key, value, actual) || holds(value, actual),
                // The server drops empty maps, empty lists and nulls.
                None => is_empty(value),
            })
        }
        (Value::Array(wanted), Value::Array(actual)) => {
            wanted.len() == actual.len()
                && wanted
                    .iter()
                    .zip(actual)
                    .all(|(wanted, actual)| holds(wanted, actual))
        }
        _ => wanted == actual,
    }
}

/// Whether a field of this name holds the same quantity, or quantities: the
/// server writes them in its own way.
fn same_quantity(key: &str, wanted: &Value, actual: &Value) -> bool {
    match key {
        "limits" | "requests" => same_amounts(wanted, actual),
        "sizeLimit" => same_amount(wanted, actual),
        _ => false,
    }
}

fn same_amounts(wanted: &Value, actual: &Value) -> bool {
    let (Some(wanted), Some(actual)) = (wanted.as_object(), actual.as_object()) else {
        return is_empty(wanted);
    };
    let mut wanted = wanted.iter();
    wanted.all(|(key, value)| {
        let actual = actual.get(key);
        actual.is_some_and(|actual| same_amount(value, actual))
    })
}

fn same_amount(wanted: &Value, actual: &Value) -> bool {
    let amounts = wanted
        .as_str()
        .and_then(nanos)
        .zip(actual.as_str().and_then(nanos));
    amounts.map_or(wanted == actual, |(wanted, actual)| wanted == actual)
}

/// A quantity in billionths; `None` where it is none, or too large to tell.
fn nanos(quantity: &str) -> Option<i128> {
    let end = quantity.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-');
    let (number, unit) = quantity.split_at(end.unwrap_or(quantity.len()));
    let nanos: i128 = match unit {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "" => 1_000_000_000,
        "k" => 10_i128.pow(12),
        "M" => 10_i128.pow(15),
        "G" => 10_i128.pow(18),
        "T" => 10_i128.pow(21),
        "Ki" => 1_000_000_000 << 10,
        "Mi" => 1_000_000_000 << 20,
        "Gi" => 1_000_000_000 << 30,
        "Ti" => 1_000_000_000 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    Some(digits.checked_mul(nanos)? / scale)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(list) => list.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_quantity_that_the_server_writes_in_its_own_way_is_no_difference() {
        let limits = |cpu: &str, memory: &str| json!({"resources": {"limits": {"cpu": cpu, "memory": memory}}});
        assert!(holds(&limits("0.5", "1024Mi"), &limits("500m", "1Gi")));
        assert!(holds(&limits("2", "1.5Gi"), &limits("2", "1536Mi")));
        assert!(!holds(&limits("0.5", "1Gi"), &limits("600m", "1Gi")));
        assert!(!holds(&limits("0.5", "1Gi"), &limits("500m", "1G")));
        assert!(!holds(
            &json!({"limits": {"cpu": "1"}}),
            &json!({"limits": {}})
        ));
        assert!(holds(&json!({"limits": null}), &json!({})));
        assert!(holds(
            &json!({"sizeLimit": "1024Mi"}),
            &json!({"sizeLimit": "1Gi"})
        ));
        assert!(!holds(
            &json!({"sizeLimit": "1Gi"}),
            &json!({"sizeLimit": "2Gi"})
        ));
        assert!(holds(
            &json!({"limits": {"cpu": "1e3"}}),
            &json!({"limits": {"cpu": "1e3"}})
        ));
    }

    #[test]
    fn a_difference_says_where_and_from_what_to_what() {
        let wanted = json!({"metadata": {"annotations": {ANNOTATION_APPLIED: "a"}},
            "spec": {"ports": [{"port": 1}], "limits": {"cpu": "0.5"}, "labels": {}, "new": 3}});
        let actual = json!({"metadata": {"annotations": {ANNOTATION_APPLIED: "b"}},
            "spec": {"ports": [{"port": 2, "protocol": "TCP"}], "limits": {"cpu": "500m"}}});
        let told: Vec<String> = differences(&wanted, &actual)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(told, ["spec.new: nothing → 3", "spec.ports[0].port: 2 → 1"]);
        assert!(differences(&wanted, &wanted).is_empty());
    }

    #[test]
    fn what_the_server_adds_is_no_difference_and_what_is_changed_is() {
        let wanted = json!({"spec": {"ports": [{"port": 1}], "labels": {}}});
        assert!(holds(
            &wanted,
            &json!({"spec": {"ports": [{"port": 1, "protocol": "TCP"}]}, "status": {}})
        ));
        assert!(!holds(&wanted, &json!({"spec": {"ports": [{"port": 2}]}})));
        assert!(!holds(
            &wanted,
            &json!({"spec": {"ports": [{"port": 1}, {"port": 2}]}})
        ));
    }
}
