//! The API server's audit log, as tests count writes with it. Only writes are in it (and reads in that
//! of a second cluster), at metadata level (no bodies), and a request is in the log before it is answered. It is read while the API
//! server writes: an unfinished last line is of a request that is not answered yet.

use std::collections::{BTreeMap, BTreeSet};
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
    /// The log from its present end on: that of its last finished line.
    pub fn from_now(path: &Path) -> Self {
        let text = std::fs::read(path).unwrap_or_default();
        let finished = text.iter().rposition(|byte| *byte == b'\n');
        let from = finished.map_or(0, |end| end as u64 + 1);
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
        Ok(self.events()?.into_iter().filter_map(write).collect())
    }

    /// What one user asked for since then, reads as well where the log has them: each as RBAC names
    /// it, `verb resource` or `verb resource.group`, with the HTTP statuses of its answers.
    ///
    /// # Errors
    /// As [`AuditLog::writes`].
    pub fn asked_by(&self, user: &str) -> Result<BTreeMap<String, BTreeSet<u16>>> {
        let mut asked: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for event in self.events()? {
            if let (true, Some(object)) = (event.user.username == user, event.object_ref) {
                let named = object.named(&event.verb);
                let code = event.response_status.code;
                asked.entry(named).or_default().insert(code);
            }
        }
        Ok(asked)
    }

    fn events(&self) -> Result<Vec<Event>> {
        let shown = self.path.display();
        let mut file = File::open(&self.path).with_context(|| format!("opening {shown}"))?;
        file.seek(SeekFrom::Start(self.from))
            .with_context(|| format!("seeking in {shown}"))?;
        let mut text = String::new();
        file.read_to_string(&mut text)
            .with_context(|| format!("reading {shown}"))?;
        read(&text).with_context(|| format!("reading a line of {shown}"))
    }

    /// The writes of one user since then.
    pub fn writes_by(&self, user: &str) -> Result<Vec<Write>> {
        let mut writes = self.writes()?;
        writes.retain(|write| write.user == user);
        Ok(writes)
    }
}

/// The events in the finished lines of a log.
fn read(text: &str) -> Result<Vec<Event>> {
    let finished = text.rfind('\n').map_or("", |end| &text[..end]);
    let parsed = finished
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()));
    parsed.collect()
}

fn write(event: Event) -> Option<Write> {
    let object = event.object_ref.unwrap_or_default();
    let is_read = ["get", "list", "watch"].contains(&event.verb.as_str());
    (!is_read && object.resource != "leases").then_some(Write {
        verb: event.verb,
        user: event.user.username,
        resource: object.resource,
        subresource: object.subresource,
        namespace: object.namespace,
        name: object.name,
        code: event.response_status.code,
    })
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    user: User,
    #[serde(default)]
    object_ref: Option<ObjectRef>,
    #[serde(default)]
    response_status: Status,
}

#[derive(Debug, Deserialize)]
struct User {
    username: String,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

impl ObjectRef {
    /// A verb on it, as RBAC names it.
    fn named(&self, verb: &str) -> String {
        let mut named = format!("{verb} {}", self.resource);
        for (before, part) in [("/", &self.subresource), (".", &self.api_group)] {
            if !part.is_empty() {
                named.push_str(before);
                named.push_str(part);
            }
        }
        named
    }
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Status {
    code: u16,
}

#[cfg(test)]
mod tests {
    use super::{AuditLog, read};

    const EVENT: &str =
        r#"{"verb":"patch","user":{"username":"hub"},"objectRef":{"resource":"pods"}}"#;

    #[test]
    fn a_line_that_is_finished_later_is_counted_from_then_on() {
        let file = std::env::temp_dir().join(format!("audit-{}.jsonl", std::process::id()));
        let (half, rest) = EVENT.split_at(40);
        std::fs::write(&file, format!("{EVENT}\n{half}")).unwrap();
        let log = AuditLog::from_now(&file);
        let before = log.writes().unwrap();
        std::fs::write(&file, format!("{EVENT}\n{half}{rest}\n")).unwrap();
        let after = log.writes().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!((before.len(), after.len()), (0, 1));
    }

    #[test]
    fn reads_are_no_writes_and_are_named_as_rbac_does() {
        let of = |verb: &str, object: &str, code: u16| {
            format!(
                r#"{{"verb":"{verb}","user":{{"username":"hub"}},"objectRef":{object},
                    "responseStatus":{{"code":{code}}}}}"#
            )
            .replace('\n', "")
        };
        let sets = r#"{"resource":"statefulsets","apiGroup":"apps","subresource":"scale"}"#;
        let lines = [
            of("watch", sets, 200),
            of("watch", sets, 403),
            of("patch", r#"{"resource":"pods"}"#, 200),
        ];
        let file = std::env::temp_dir().join(format!("audit-reads-{}.jsonl", std::process::id()));
        std::fs::write(&file, "").unwrap();
        let log = AuditLog::from_now(&file);
        std::fs::write(&file, lines.join("\n") + "\n").unwrap();
        let (writes, asked) = (log.writes().unwrap(), log.asked_by("hub").unwrap());
        std::fs::remove_file(&file).unwrap();
        assert_eq!(writes.len(), 1);
        let expected = [
            ("patch pods", vec![200]),
            ("watch statefulsets/scale.apps", vec![200, 403]),
        ];
        let expected = expected.map(|(name, codes)| (name.to_owned(), codes.into_iter().collect()));
        assert_eq!(asked, expected.into());
    }

    #[test]
    fn a_line_that_is_still_being_written_is_not_read_yet() {
        let (half, rest) = EVENT.split_at(40);
        for (text, writes) in [
            (String::new(), 0),
            (half.to_owned(), 0),
            (format!("{EVENT}\n{half}"), 1),
            (format!("{EVENT}\n{half}{rest}\n"), 2),
        ] {
            assert_eq!(read(&text).unwrap().len(), writes, "{text}");
        }
        assert!(read("no event\n").is_err());
    }
}
