//! A file being taken apart: what was taken is remembered, so that the rest can
//! be told.

use serde_json::Value;
use std::collections::BTreeSet;

/// The input, and which of its keys were taken.
pub(super) struct Input {
    root: Value,
    taken: BTreeSet<String>,
}

impl Input {
    pub(super) fn new(root: Value) -> Self {
        Self {
            root,
            taken: BTreeSet::new(),
        }
    }

    /// Take a key by its dotted path, with everything under it. None where it is
    /// absent, null or empty.
    pub(super) fn take(&mut self, path: &str) -> Option<Value> {
        self.taken.insert(path.to_owned());
        let mut found = &self.root;
        for key in path.split('.') {
            found = found.get(key)?;
        }
        let empty = match found {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        };
        (!empty).then(|| found.clone())
    }

    /// Take a text; a number counts as one.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        self.take(path).map(|value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        })
    }

    /// Take a switch.
    pub(super) fn switch(&mut self, path: &str) -> Option<bool> {
        self.take(path)?.as_bool()
    }

    /// Take a number; a text that is one counts as well.
    pub(super) fn number(&mut self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Take a list of texts.
    pub(super) fn texts(&mut self, path: &str) -> Vec<String> {
        let list = self.take(path);
        let list = list.as_ref().and_then(Value::as_array);
        let texts = list.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    }

    /// The keys that nobody took, as far down as they differ from what was taken.
    pub(super) fn rest(&self) -> Vec<String> {
        let mut rest = Vec::new();
        self.walk("", &self.root, &mut rest);
        rest
    }

    fn walk(&self, path: &str, value: &Value, rest: &mut Vec<String>) {
        if self.taken.contains(path) {
            return;
        }
        let below = format!("{path}.");
        let partly = path.is_empty() || self.taken.iter().any(|taken| taken.starts_with(&below));
        match value {
            Value::Object(map) if partly => {
                for (key, value) in map {
                    let path = match path {
                        "" => key.clone(),
                        path => format!("{path}.{key}"),
                    };
                    self.walk(&path, value, rest);
                }
            }
            Value::Null => {}
            Value::Object(map) if map.is_empty() => {}
            Value::Array(list) if list.is_empty() => {}
            _ => rest.push(path.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_nobody_took_is_told_and_empty_values_are_none() {
        let mut input = Input::new(json!({
            "a": {"b": 1, "c": "", "d": {"e": true}}, "f": {"g": 2, "h": 3}, "i": {}, "j": null
        }));
        assert_eq!(input.number("a.b"), Some(1));
        assert_eq!(input.text("a.c"), None);
        assert_eq!(input.switch("a.x"), None);
        assert_eq!(input.rest(), ["a.d", "f"]);
        assert_eq!(input.switch("a.d.e"), Some(true));
        assert_eq!(input.rest(), ["f"]);
    }
}
