//! Pieces of schema that more than one kind needs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::{Schema, SchemaGenerator, json_schema};

/// Schema of `status.conditions`: a list kept by type, so that two field
/// managers can each own theirs.
pub fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let item = generator.subschema_for::<Condition>();
    json_schema!({
        "type": "array",
        "description": "What holds of this object, by type.",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// Schema of a list in which no item comes twice.
pub fn string_set(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": {"type": "string", "minLength": 1, "maxLength": 253},
        "x-kubernetes-list-type": "set",
    })
}

/// Schema of role attributes: what a Ziti policy names as `#attribute`.
pub fn role_attributes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "Role attributes, by which Ziti policies select this router. Written without the leading `#`.",
        "maxItems": 64,
        "items": {"type": "string", "minLength": 1, "maxLength": 253, "pattern": "^[^#@]"},
        "x-kubernetes-list-type": "set",
    })
}

/// Schema of a quantity such as `50Mi`.
pub fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 32,
        "pattern": "^[0-9]+(\\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$",
    })
}

/// Schema of a list of ordinals.
pub fn ordinals(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 100,
        "items": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 999},
        "x-kubernetes-list-type": "set",
    })
}

/// Schema of a duration as Go writes it, such as `30s` or `1m30s`.
pub fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 32,
        "pattern": "^([0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h))+$",
    })
}

/// Schema of an object of which the API server checks nothing.
pub fn free_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// Schema of a list in which each item has a name of its own.
pub fn named<T: schemars::JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let item = generator.subschema_for::<T>();
    json_schema!({
        "type": "array",
        "maxItems": 8,
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    })
}

/// Schema of a quantity that may be left out.
pub fn optional_quantity(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = quantity(generator);
    schema.insert("nullable".to_owned(), true.into());
    schema
}

/// Schema of nameservers: the kubelet takes three at most, and the first is the
/// router.
pub fn nameservers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "Addresses of its nameservers.",
        "minItems": 1,
        "maxItems": 2,
        "items": {"type": "string", "minLength": 2, "maxLength": 45, "pattern": "^[0-9a-fA-F.:]+$"},
    })
}
