//! The API server's audit log, as tests count writes with it. Only writes are in it, at metadata
//! level (no bodies), and a request is in the log before it is answered.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// Who, for example `system:serviceaccount:ziti-operator:ziti-operator`.
    pub user: String,
    /// The plural, for example `edgerouters`.
    pub resource: String,
    /// `status`, `scale`, `finalizers`…, or empty.
    pub subresource: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The object's name; empty for a create, whose name is in the body.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
}

/// A position in an audit log, from which on writes are counted.
#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
    from: u64,
}

impl AuditLog {
    /// The log from its present end on.
    pub fn from_now(path: &Path) -> Self {
        let from = std::fs::metadata(path).map_or(0, |data| data.len());
        Self {
            path: path.to_path_buf(),
            from,
        }
    }

    /// The writes since then, the Leases' heartbeats left out: those are no change of anything.
    ///
    /// # Errors
    /// When the log cannot be read or a line of it is no audit event.
    pub fn writes(&self) -> Result<Vec<Write>> {
        let shown = self.path.display();
        let mut file = File::open(&self.path).with_context(|| format!("opening {shown}"))?;
        file.seek(SeekFrom::Start(self.from))
            .with_context(|| format!("seeking in {shown}"))?;
        let mut text = String::new();
        file.read_to_string(&mut text)
            .with_context(|| format!("reading {shown}"))?;
        let mut writes = Vec::new();
        for line in text.lines() {
            let event: Event =
                serde_json::from_str(line).with_context(|| format!("reading a line of {shown}"))?;
            let object = event.object_ref.unwrap_or_default();
            if object.resource != "leases" {
                writes.push(Write {
                    verb: event.verb,
                    user: event.user.username,
                    resource: object.resource,
                    subresource: object.subresource,
                    namespace: object.namespace,
                    name: object.name,
                    code: event.response_status.code,
                });
            }
        }
        Ok(writes)
    }

    /// The writes of one user since then.
    pub fn writes_by(&self, user: &str) -> Result<Vec<Write>> {
        let mut writes = self.writes()?;
        writes.retain(|write| write.user == user);
        Ok(writes)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    user: User,
    #[serde(default)]
    object_ref: Option<ObjectRef>,
    #[serde(default)]
    response_status: Status,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    code: u16,
}
