//! When each member's certificates were written into the Secret that they share, by the
//! API server's clock: the clock by which pods have an age, too.
//!
//! The API server notes when a manager changed something last, and not of which key. So
//! a write notes of the members that it does not give anything when theirs were written,
//! and what it gives is as old as the write.

use super::secrets::members_in;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Annotation: times by member, as JSON.
const WRITTEN: &str = "openziti.io/written-at";

/// When the certificates of a member were written.
pub(super) fn at(secret: &Secret, member: &str) -> Option<Timestamp> {
    noted(secret)
        .remove(member)
        .or_else(|| last_written(secret))
}

/// What a write must say in the Secret's metadata, if it gives something to those members
/// alone, or takes away what they have.
pub(super) fn noting_others(secret: &Secret, given: &[String]) -> Value {
    let others = members_in(secret).into_iter();
    let others = others.filter(|member| !given.contains(member));
    let times: BTreeMap<String, Timestamp> = others
        .filter_map(|member| Some((member.clone(), at(secret, &member)?)))
        .collect();
    json!({"annotations": {WRITTEN: json!(times).to_string()}})
}

fn noted(secret: &Secret) -> BTreeMap<String, Timestamp> {
    let text = secret.annotations().get(WRITTEN);
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

/// When data were written last, by whomever.
fn last_written(secret: &Secret) -> Option<Timestamp> {
    let entries = secret.metadata.managed_fields.iter().flatten();
    let of_data = entries.filter(|entry| {
        let fields = entry.fields_v1.as_ref();
        fields.is_some_and(|fields| fields.0.get("f:data").is_some())
    });
    let written = of_data.filter_map(|entry| entry.time.as_ref()).max();
    let made = secret.metadata.creation_timestamp.as_ref();
    written.or(made).map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn secret(annotations: &Value) -> Secret {
        let entry = |manager: &str, time: &str, fields: Value| {
            json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": time,
                "fieldsType": "FieldsV1", "fieldsV1": fields})
        };
        serde_json::from_value(json!({
            "metadata": {
                "name": "lamp-controller-pki",
                "creationTimestamp": "2030-01-01T00:00:00Z",
                "annotations": annotations,
                "managedFields": [
                    entry("us", "2030-02-01T00:00:00Z", json!({"f:data": {"f:a.controller.crt": {}}})),
                    entry("labeller", "2030-03-01T00:00:00Z", json!({"f:metadata": {"f:labels": {}}})),
                ],
            },
            "data": {"a.controller.crt": "", "b.signer.crt": ""},
        }))
        .unwrap()
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn what_no_write_has_noted_is_as_old_as_the_last_write_of_data() {
        let plain = secret(&json!({}));
        assert_eq!(at(&plain, "a"), Some(time("2030-02-01T00:00:00Z")));
        let mut bare = plain;
        bare.metadata.managed_fields = None;
        assert_eq!(at(&bare, "a"), Some(time("2030-01-01T00:00:00Z")));
    }

    #[test]
    fn a_write_makes_nobody_elses_certificates_younger() {
        let before = secret(&json!({}));
        let after = secret(&noting_others(&before, &["b".to_owned()])["annotations"]);
        let mut after = after;
        let written = &mut after.metadata.managed_fields.as_mut().unwrap()[0];
        written.time = Some(Time(time("2031-01-01T00:00:00Z")));
        assert_eq!(at(&after, "a"), Some(time("2030-02-01T00:00:00Z")));
        assert_eq!(at(&after, "b"), Some(time("2031-01-01T00:00:00Z")));
    }
}
