//! The programs `ziti-agent backup` and `ziti-agent restore` where something is wrong: what they say of it,
//! and what they leave.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod backups;
mod beside;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use aws_lc_rs::digest;
use backups::{Operator, Target, assert_failed, tls};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use beside::{PASSWORD, free_port};
use testbed::s3::S3Server;
use testbed::ziti::{LocalCluster, LocalMember};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use ziti::mutual::{Party, member_config};
use ziti::pki::Key;
use ziti::trust::CaBundle;

#[tokio::test]
async fn what_is_wrong_is_told_with_a_reason() {
    let cluster = LocalCluster::new().unwrap();
    let member = cluster.member("c0").unwrap();
    let operator = Operator::new(&cluster, &member);
    let server = S3Server::start().unwrap();
    server.create_bucket("ziti").unwrap();
    let bucket = Target::bucket(&server, "ziti");
    operator.fails(&bucket, &[], "NoBackup", "there is no backup of net");
    let absent = Target::bucket(&server, "absent");
    operator.fails(&absent, &[], "Misconfigured", "NoSuchBucket");
    let secret = Target {
        env: vec![
            ("AWS_ACCESS_KEY_ID", S3Server::ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", "wrong"),
        ],
        ..bucket.clone()
    };
    operator.fails(&secret, &[], "AccessDenied", "SignatureDoesNotMatch");
    let nobody = Target {
        env: vec![
            ("AWS_ACCESS_KEY_ID", "nobody"),
            ("AWS_SECRET_ACCESS_KEY", S3Server::SECRET_KEY),
        ],
        ..bucket.clone()
    };
    operator.fails(&nobody, &[], "Misconfigured", "No user exists with");

    // A backup as well, and before anybody is asked for a database.
    let nowhere = format!("localhost:{}", free_port());
    let report = operator.backup(&nowhere, &secret);
    assert_failed(
        &report,
        "AccessDenied",
        "cannot list the bucket ziti below some/where",
    );
    let report = operator.backup(&nowhere, &bucket);
    assert_failed(&report, "MembersUnreachable", "Connection refused");
    let gone = Target::volume(Path::new("/no/such/directory"));
    assert_failed(
        &operator.backup(&nowhere, &gone),
        "Misconfigured",
        "/no/such/directory",
    );

    // Who serves the bucket is not who it is said to be.
    let server = tls();
    let mut unknown = Target::bucket(&server, "ziti");
    unknown.args.truncate(unknown.args.len() - 2);
    operator.fails(&unknown, &[], "Unreachable", "invalid peer certificate");
    let other = cluster.authority().cert_pem.clone();
    let other = operator.files.put("other.crt", other);
    unknown.args.extend(["--ca".into(), other.into()]);
    operator.fails(&unknown, &[], "Unreachable", "invalid peer certificate");
    let endpoint = server.endpoint();
    drop(server);
    operator.fails(&unknown, &[], "Unreachable", &endpoint);

    // What a person wrote.
    let volume = Target::volume(operator.files.0.path());
    operator.files.put("admin/password", "");
    let report = operator.backup(&nowhere, &volume);
    assert_failed(&report, "Misconfigured", "lack admin/password");
    operator.files.put("admin/password", PASSWORD);
    operator.files.put("client/tls.key", "hello");
    let report = operator.backup(&nowhere, &volume);
    assert_failed(&report, "Misconfigured", "client/tls.key");
}

#[test]
fn a_pod_that_is_stopped_ends_and_says_so() {
    let cluster = LocalCluster::new().unwrap();
    let operator = Operator::new(&cluster, &cluster.member("c0").unwrap());
    let volume = Target::volume(operator.files.0.path()).within("600");
    let nowhere = format!("localhost:{}", free_port());
    let mut program = operator.backup_program(&nowhere, &volume);
    let mut program = program.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    assert!(lines.any(|line| line.contains("no snapshot yet, asking again")));
    let stopped = Command::new("kill").arg(program.id().to_string()).status();
    assert!(stopped.unwrap().success());
    let report = operator.report(&program.wait_with_output().unwrap());
    assert_failed(&report, "Interrupted", "the next run begins anew");
}

/// Answers each connection with the next of these bodies, as a member's sidecar that announces `whole`.
fn member_that_gives(
    operator: &Operator,
    member: &LocalMember,
    whole: &'static [u8],
    bodies: Vec<&'static [u8]>,
) -> String {
    let read = |file: &str| std::fs::read_to_string(member.pki().join(file)).unwrap();
    let party = Party {
        cert_pem: &read("controller.crt"),
        key: &Key::from_pem(&read("controller.key")).unwrap(),
        trust: &CaBundle::from_pem(operator.authority.cert_pem()).unwrap(),
    };
    let acceptor = TlsAcceptor::from(Arc::new(member_config(party).unwrap()));
    let digest = digest::digest(&digest::SHA256, whole);
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nrepr-digest: sha-256=:{}:\r\nziti-member: c0\r\n\r\n",
        whole.len(),
        STANDARD.encode(digest)
    );
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let listener = TcpListener::from_std(listener).unwrap();
    tokio::spawn(async move {
        for body in bodies {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            stream.read_exact(&mut [0; 4]).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(body).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    format!("localhost:{port}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_does_not_come_whole_is_asked_for_again() {
    let cluster = LocalCluster::new().unwrap();
    let member = cluster.member("c0").unwrap();
    let operator = Operator::new(&cluster, &member);
    let volume = Target::volume(operator.files.0.path());
    let gives = |bodies| member_that_gives(&operator, &member, b"database", bodies);
    let report = operator.backup(&gives(vec![b"data"]), &volume);
    assert_failed(&report, "NotReady", "the database of c0 did not come whole");
    let report = operator.backup(&gives(vec![b"DATABASE"]), &volume);
    assert_failed(
        &report,
        "NotReady",
        "it is not the one whose length and digest",
    );
    let host = gives(vec![b"data", b"DATABASE", b"database"]);
    let report = operator.backup(&host, &volume.clone().within("60"));
    assert_eq!(report["outcome"], "Saved", "{report}");
    assert_eq!(report["kept"], 1, "nothing else was written");
}
