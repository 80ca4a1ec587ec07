//! Every path and field that this crate uses exists in the API descriptions that Ziti publishes,
//! at the version that the pinned Ziti uses (`tools/ziti/go.mod`). They come from the Go module
//! cache, so that nothing is copied and nothing can go stale.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper of tests fails as a test does"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::de::value::Error;
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};
use serde_json::{Value, json};
use ziti::management::{EdgeRouterEntity, EdgeRouterPatch, NewEdgeRouter, Version};

const MODULE: &str = "github.com/openziti/edge-api";

/// One of the two descriptions (Swagger 2.0).
struct Description(Value);

impl Description {
    fn read(name: &str) -> Self {
        let text = std::fs::read_to_string(module_dir().join(name)).unwrap();
        Self(serde_saphyr::from_str(&text).unwrap())
    }

    /// The operation, which must exist.
    fn operation(&self, method: &str, path: &str) -> &Value {
        let operation = &self.0["paths"][path][method];
        assert!(operation.is_object(), "there is no {method} {path}");
        operation
    }

    /// Names of the query parameters, those of the path included.
    fn parameters(&self, method: &str, path: &str) -> BTreeSet<String> {
        let own = self.operation(method, path).get("parameters");
        let shared = self.0["paths"][path].get("parameters");
        let lists = [own, shared].into_iter().flatten();
        lists
            .flat_map(|list| list.as_array().unwrap())
            .map(|parameter| self.resolve(parameter))
            .filter(|parameter| parameter["in"] == "query")
            .map(|parameter| parameter["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Fields of the body that the operation takes.
    fn request(&self, method: &str, path: &str) -> BTreeSet<String> {
        let parameters = self.operation(method, path)["parameters"].as_array();
        let body = parameters.unwrap().iter().find(|p| p["in"] == "body");
        self.fields(&body.unwrap()["schema"])
    }

    /// Fields of member `data` of a good reply; of its rows where it is a list.
    fn response(&self, method: &str, path: &str) -> BTreeSet<String> {
        let responses = &self.operation(method, path)["responses"];
        let good = ["200", "201"].iter().find_map(|code| responses.get(code));
        let envelope = self.resolve(&self.resolve(good.unwrap())["schema"]);
        let data = self.resolve(&envelope["properties"]["data"]);
        self.fields(data.get("items").unwrap_or(data))
    }

    fn fields(&self, schema: &Value) -> BTreeSet<String> {
        let schema = self.resolve(schema);
        let own = schema["properties"].as_object();
        let mut fields: BTreeSet<String> =
            own.into_iter().flatten().map(|(k, _)| k.clone()).collect();
        for part in schema["allOf"].as_array().into_iter().flatten() {
            fields.extend(self.fields(part));
        }
        fields
    }

    fn resolve<'a>(&'a self, node: &'a Value) -> &'a Value {
        let Some(reference) = node.get("$ref").and_then(Value::as_str) else {
            return node;
        };
        let target = self.0.pointer(reference.trim_start_matches('#'));
        self.resolve(target.unwrap_or_else(|| panic!("{reference} leads nowhere")))
    }
}

fn module_dir() -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/ziti");
    let output = Command::new("go")
        .args(["mod", "download", "-json", MODULE])
        .current_dir(&tools)
        .env("GOWORK", "off")
        .env("GOFLAGS", "-mod=readonly")
        .env("GOTOOLCHAIN", "local")
        .output()
        .expect("Go is needed to find the API descriptions of Ziti");
    let text = String::from_utf8_lossy(&output.stdout);
    let found: Value = serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    PathBuf::from(found["Dir"].as_str().unwrap_or_else(|| panic!("{found}")))
}

/// The names that a type reads, by asking the type: nothing to keep in step by hand.
fn read_by<'de, T: Deserialize<'de>>() -> BTreeSet<String> {
    struct Asking<'a>(&'a mut BTreeSet<String>);
    impl<'de> Deserializer<'de> for Asking<'_> {
        type Error = Error;
        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _name: &'static str,
            fields: &'static [&'static str],
            _visitor: V,
        ) -> Result<V::Value, Error> {
            self.0
                .extend(fields.iter().map(|field| (*field).to_owned()));
            Err(Error::custom("only asking"))
        }
        fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
            Err(Error::custom("only structures are asked"))
        }
        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }
    let mut names = BTreeSet::new();
    // It fails, having told.
    let _ = T::deserialize(Asking(&mut names));
    assert!(!names.is_empty());
    names
}

/// The names that a value is written with.
fn written(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn assert_within(what: &str, used: &BTreeSet<String>, published: &BTreeSet<String>) {
    let unknown: Vec<_> = used.difference(published).collect();
    assert!(
        unknown.is_empty(),
        "{what}: {unknown:?} not among {published:?}"
    );
}

#[test]
fn what_the_management_client_uses_is_published() {
    let api = Description::read("management.yml");
    assert_eq!(api.0["basePath"], "/edge/management/v1");
    let version = api.response("get", "/version");
    assert_within("version", &read_by::<Version>(), &version);

    assert_within(
        "login",
        &names(&["username", "password"]),
        &api.request("post", "/authenticate"),
    );
    assert_within(
        "login",
        &names(&["method"]),
        &api.parameters("post", "/authenticate"),
    );
    assert_within(
        "login",
        &names(&["token"]),
        &api.response("post", "/authenticate"),
    );
    api.operation("get", "/current-api-session");

    for list in ["/identities", "/edge-routers"] {
        assert_within(list, &names(&["filter"]), &api.parameters("get", list));
    }
    let identity = api.response("get", "/identities");
    assert_within("identity", &names(&["id", "isDefaultAdmin"]), &identity);

    let entity = read_by::<EdgeRouterEntity>();
    for path in ["/edge-routers", "/edge-routers/{id}"] {
        assert_within(path, &entity, &api.response("get", path));
    }
    let create = api.request("post", "/edge-routers");
    assert_within(
        "create",
        &written(&json!(NewEdgeRouter::default())),
        &create,
    );
    assert_within(
        "created",
        &names(&["id"]),
        &api.response("post", "/edge-routers"),
    );
    let full = EdgeRouterPatch {
        role_attributes: Some(Vec::new()),
        is_tunneler_enabled: Some(true),
        cost: Some(1),
        no_traversal: Some(true),
        tags: Some(serde_json::Map::new()),
        app_data: Some(serde_json::Map::new()),
    };
    let patch = api.request("patch", "/edge-routers/{id}");
    assert_within("patch", &written(&json!(full)), &patch);
    api.operation("delete", "/edge-routers/{id}");
    api.operation("post", "/edge-routers/{id}/re-enroll");

    let page = api.fields(&json!({"$ref": "#/definitions/meta"}));
    assert_within("list", &names(&["pagination"]), &page);
    let page = api.fields(&json!({"$ref": "#/definitions/pagination"}));
    assert_within("list", &names(&["totalCount"]), &page);
}

#[test]
fn what_enrollment_uses_is_published() {
    let api = Description::read("client.yml");
    assert_eq!(api.0["basePath"], "/edge/client/v1");
    api.operation("get", "/.well-known/est/cacerts");
    let enroll = api.operation("post", "/enroll");
    for media_type in ["application/json", "application/x-pem-file"] {
        let consumed = enroll["consumes"].as_array().unwrap();
        assert!(consumed.contains(&json!(media_type)), "{consumed:?}");
    }
    assert_within(
        "enroll",
        &names(&["method", "token"]),
        &api.parameters("post", "/enroll"),
    );
    let reply = api.response("post", "/enroll");
    assert_within("enroll", &names(&["cert", "serverCert", "ca"]), &reply);
    // The description of `/enroll` leaves the body of a router out; its renewal names it.
    let body = api.request("post", "/enroll/extend/router");
    assert_within("enroll", &names(&["certCsr", "serverCertCsr"]), &body);
}

#[test]
fn refusals_are_read_as_published() {
    let api = Description::read("management.yml");
    let error = api.fields(&json!({"$ref": "#/definitions/apiError"}));
    assert_within(
        "error",
        &names(&["code", "message", "cause", "causeMessage"]),
        &error,
    );
    let cause = api.fields(&json!({"$ref": "#/definitions/apiErrorCause"}));
    assert_within("cause", &names(&["field", "reason", "message"]), &cause);
}
