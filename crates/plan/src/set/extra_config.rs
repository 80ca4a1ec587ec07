//! `spec.extraConfig`: any key of the router's configuration that the spec does
//! not model, merged last. Keys that the operator must own are refused.

use crate::edge_router::Problem;
use api::reasons;
use serde_json::{Map, Value};

/// Keys that the operator owns, and why.
const OWNED: &[(&str, &str)] = &[
    ("v", "the operator writes configurations of version 3"),
    (
        "identity",
        "the agent keeps the identity on the member's volume, and nothing else starts a router with it",
    ),
    (
        "ctrl.endpointsFile",
        "the agent writes the controllers' addresses to this very file",
    ),
    (
        "ctrl.dataDir",
        "older routers look for the controllers' addresses there",
    ),
    (
        "ctrl.endpoint",
        "the file with the controllers' addresses wins over it: set spec.controlPlane.endpoints of the ZitiNetwork",
    ),
    (
        "ctrl.endpoints",
        "the file with the controllers' addresses wins over it: set spec.controlPlane.endpoints of the ZitiNetwork",
    ),
    (
        "edge.db",
        "nothing can be written but on the member's volume",
    ),
    (
        "edge.csr.sans",
        "the names in the certificate must hold what is advertised: add yours to spec.csr.sans",
    ),
    (
        "csr",
        "it would win over edge.csr, which holds the advertised names: use edge.csr for the subject, and spec.csr.sans for names",
    ),
];

/// The first key that the operator must own, if one is given.
pub(super) fn refused(extra: &Map<String, Value>) -> Option<Problem> {
    OWNED
        .iter()
        .find(|(path, _)| has(extra, path))
        .map(|(path, why)| {
            Problem::new(
                reasons::CONFIG_KEY_REFUSED,
                format!("spec.extraConfig holds {path}, which the operator must own: {why}"),
            )
        })
}

pub(crate) fn has(extra: &Map<String, Value>, path: &str) -> bool {
    let (key, rest) = path
        .split_once('.')
        .map_or((path, None), |(key, rest)| (key, Some(rest)));
    match (extra.get(key), rest) {
        (None, _) => false,
        (Some(Value::Object(inner)), Some(rest)) => has(inner, rest),
        // The key itself, or a value in place of the object, which takes the
        // key with it.
        (Some(_), _) => true,
    }
}

/// Merge: objects by key, everything else is replaced.
pub(crate) fn merge(config: &mut Value, extra: &Map<String, Value>) {
    for (key, value) in extra {
        match (config.get_mut(key), value) {
            (Some(have @ Value::Object(_)), Value::Object(more)) => merge(have, more),
            _ => config[key.as_str()] = value.clone(),
        }
    }
}

/// The path of the first string with a `$`, keys included, below `path`.
pub(crate) fn dollar(value: &Value, path: &str) -> Option<(String, String)> {
    match value {
        Value::String(text) if text.contains('$') => Some((path.to_owned(), text.clone())),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| dollar(item, &format!("{path}[{index}]")))
        }
        Value::Object(map) => map.iter().find_map(|(key, item)| {
            if key.contains('$') {
                return Some((path.to_owned(), key.clone()));
            }
            dollar(item, &format!("{path}.{key}"))
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap_or_default()
    }

    #[test]
    fn objects_are_merged_and_lists_replaced() {
        let mut config = json!({"a": {"b": 1, "c": [1, 2]}, "d": 1});
        merge(
            &mut config,
            &object(json!({"a": {"c": [3], "e": 2}, "d": {"f": 1}, "g": null})),
        );
        assert_eq!(
            config,
            json!({"a": {"b": 1, "c": [3], "e": 2}, "d": {"f": 1}, "g": null})
        );
    }

    #[test]
    fn each_key_that_the_operator_owns_is_refused_with_its_reason() {
        for (path, why) in OWNED {
            let mut value = json!("x");
            for key in path.rsplit('.') {
                value = json!({key: value});
            }
            let problem = refused(&object(value));
            let said = problem.map(|problem| (problem.reason, problem.message));
            let said = said.unwrap_or_default();
            assert_eq!(said.0, reasons::CONFIG_KEY_REFUSED, "{path}");
            assert!(said.1.contains(path) && said.1.contains(why), "{}", said.1);
        }
        // A value in place of the object would take what is in it away.
        assert!(refused(&object(json!({"edge": null}))).is_some());
        for fine in [
            json!({"edge": {"csr": {"country": "US"}}, "ctrl": {"options": {}}}),
            json!({"web": [], "transport": {"ws": {}}}),
        ] {
            assert_eq!(refused(&object(fine)), None);
        }
    }

    #[test]
    fn a_dollar_is_found_wherever_it_is() {
        let found = |value: Value| dollar(&value, "x").map(|(path, _)| path);
        assert_eq!(
            found(json!({"a": ["b", {"c": "$D"}]})).as_deref(),
            Some("x.a[1].c")
        );
        assert_eq!(found(json!({"$a": 1})).as_deref(), Some("x"));
        assert_eq!(found(json!({"a": 1, "b": "c"})), None);
    }
}
