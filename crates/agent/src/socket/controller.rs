//! What a running controller can be asked by its agent socket: as a member of a cluster (of one, at
//! first). [`crate::sidecar`] is who asks.
//!
//! Seen on 1.6.0 and 2.1, but for what is marked as read in the source of 1.6.0:
//! - The list of members is Raft's own configuration, as this member knows it. It is empty before the
//!   member belongs to a cluster. A member's own row always counts as connected; followers that have no
//!   need of each other show each other as not connected.
//! - The initialization makes a cluster of one and its first administrator, in two steps (read): a
//!   process that ends between them has a cluster without an administrator, and takes a second one.
//! - A follower that is asked to hand over the leadership asks the leader to do so.
//! - A restore is taken by a member that is in no cluster yet, which then makes a cluster of one. It
//!   writes into the file that it is given. Five seconds after its answer the process ends, to come
//!   back with the restored database.
//! - A snapshot is taken once a minute at most; `__DATE__`, `__TIME__` and `__RAFT_INDEX__` in its path
//!   are replaced (read), and a file that is there is overwritten.

use std::path::Path;
use std::time::Duration;

use snafu::OptionExt;
use ziti::{ExposeSecret, SecretString};

use super::{AbsentSnafu, AgentSocket, App, Question, SocketError, StrangeSnafu, protobuf};

const SNAPSHOT: i32 = 10070;
const LIST_MEMBERS: i32 = 10080;
const TRANSFER_LEADERSHIP: i32 = 10084;
const INITIALIZE: i32 = 10086;
const RESTORE: i32 = 10087;

/// Header: the member that shall lead.
const MEMBER_ID: i32 = 10;
/// Header: where the snapshot goes.
const SNAPSHOT_PATH: i32 = 13;

/// How long a database has to be written.
const SNAPSHOT_WITHIN: Duration = Duration::from_mins(2);

/// How the refusal of a second initialization begins.
const ALREADY: &str = "already initialized";

/// A row of the list of members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// Its id: the common name of its certificate.
    pub id: String,
    /// Whether it votes.
    pub is_voter: bool,
    /// Whether it leads.
    pub is_leader: bool,
    /// Whether this member has a connection with it; always so for its own row.
    pub is_connected: bool,
}

/// The first administrator of a network.
#[derive(Debug, Clone)]
pub struct Administrator {
    /// With which to log in: 4 to 100 characters.
    pub username: String,
    /// With which to log in: 5 to 100 characters.
    pub password: SecretString,
    /// Of the identity: 4 to 100 characters.
    pub name: String,
}

/// How an initialization ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initialized {
    /// There was no administrator; there is now.
    Now,
    /// There was one already, and nothing has changed.
    Before,
}

/// The members of the cluster, as this one knows them.
pub async fn members(
    controller: &AgentSocket,
    within: Duration,
) -> Result<Vec<Member>, SocketError> {
    let what = "the request for the list of members";
    let question = question(what, LIST_MEMBERS);
    let answer = controller.ask(question, within).await?;
    let why = "it is no list of members";
    parse_members(&answer.body).context(StrangeSnafu { what, why })
}

/// Makes a cluster of one and its administrator.
pub async fn initialize(
    controller: &AgentSocket,
    administrator: &Administrator,
    within: Duration,
) -> Result<Initialized, SocketError> {
    let body = init_request(administrator);
    let question = Question {
        body: &body,
        ..question("the initialization", INITIALIZE)
    };
    match controller.ask(question, within).await {
        Ok(_) => Ok(Initialized::Now),
        Err(SocketError::Refused { message, .. }) if message.starts_with(ALREADY) => {
            Ok(Initialized::Before)
        }
        Err(error) => Err(error),
    }
}

/// Asks the leader to hand over to the voter of that id.
pub async fn transfer_leadership(
    leader: &AgentSocket,
    to: &str,
    within: Duration,
) -> Result<(), SocketError> {
    let question = Question {
        headers: &[(MEMBER_ID, to.as_bytes())],
        ..question("the handover of the leadership", TRANSFER_LEADERSHIP)
    };
    leader.ask(question, within).await.map(drop)
}

/// Replaces the database by that of a file, into which the controller writes as well.
pub async fn restore(
    controller: &AgentSocket,
    file: &Path,
    within: Duration,
) -> Result<(), SocketError> {
    let question = Question {
        body: file.as_os_str().as_encoded_bytes(),
        ..question("the restore", RESTORE)
    };
    controller.ask(question, within).await.map(drop)
}

/// Has the controller with that temporary directory write its database into a file, and returns the
/// path of the file.
pub async fn take_snapshot(tmp: &Path, file: &Path) -> Result<String, SocketError> {
    let controller = AgentSocket::find(tmp)?.context(AbsentSnafu { path: tmp })?;
    let question = Question {
        headers: &[(SNAPSHOT_PATH, file.as_os_str().as_encoded_bytes())],
        ..question("the snapshot", SNAPSHOT)
    };
    let answer = controller.ask(question, SNAPSHOT_WITHIN).await?;
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

fn question(what: &'static str, kind: i32) -> Question<'static> {
    Question {
        app: App::Controller,
        what,
        kind,
        headers: &[],
        body: &[],
    }
}

/// `InitRequest` of Ziti's `mgmt.proto`.
fn init_request(administrator: &Administrator) -> Vec<u8> {
    let mut message = Vec::new();
    protobuf::put_text(&mut message, 1, &administrator.username);
    protobuf::put_text(&mut message, 2, administrator.password.expose_secret());
    protobuf::put_text(&mut message, 3, &administrator.name);
    message
}

/// `RaftMemberListResponse` of Ziti's `mgmt.proto`.
fn parse_members(message: &[u8]) -> Option<Vec<Member>> {
    let rows = protobuf::fields(message)?.into_iter();
    let rows = rows.filter_map(|(field, value)| match value {
        protobuf::Value::Bytes(row) if field == 1 => Some(row),
        _ => None,
    });
    rows.map(parse_member).collect()
}

fn parse_member(row: &[u8]) -> Option<Member> {
    let mut member = Member::default();
    for (field, value) in protobuf::fields(row)? {
        match field {
            1 => member.id = value.text(),
            3 => member.is_voter = value.flag(),
            4 => member.is_leader = value.flag(),
            6 => member.is_connected = value.flag(),
            // The address, the version, and what later versions add.
            _ => {}
        }
    }
    Some(member)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_administrator_is_written_as_the_proto_says_and_never_shown() {
        let administrator = Administrator {
            username: "admin".to_owned(),
            password: SecretString::from("secret"),
            name: "Default".to_owned(),
        };
        let expected = b"\x0a\x05admin\x12\x06secret\x1a\x07Default";
        assert_eq!(init_request(&administrator), expected);
        assert!(!format!("{administrator:?}").contains("secret"));
    }

    #[test]
    fn the_list_of_a_2_1_is_read_as_well_as_that_of_a_1_6() {
        // A leader with all flags set and a field of 2.1 (7), and a follower that is away.
        let leader = b"\x0a\x02c0\x12\x05tls:a\x18\x01\x20\x01\x2a\x06v1.6.0\x30\x01\x38\x01";
        let away = b"\x0a\x02c1\x12\x05tls:b\x18\x01\x2a\x0f<not connected>";
        let mut list = Vec::new();
        for row in [&leader[..], &away[..]] {
            list.extend([0x0a, u8::try_from(row.len()).unwrap()]);
            list.extend(row);
        }
        let expected = [("c0", true), ("c1", false)].map(|(id, up)| Member {
            id: id.to_owned(),
            is_voter: true,
            is_leader: up,
            is_connected: up,
        });
        assert_eq!(parse_members(&list).unwrap(), expected);
        assert_eq!(parse_members(b""), Some(Vec::new()));
        list.pop();
        assert_eq!(parse_members(&list), None);
    }
}
