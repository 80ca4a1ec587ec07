//! The programs `ziti-agent backup` and `ziti-agent restore` where something is wrong: what they say of it,
//! and what they leave.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod backups;
mod beside;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use backups::{Operator, Target, assert_failed, tls};
use beside::{PASSWORD, free_port};
use testbed::s3::S3Server;
use testbed::ziti::LocalCluster;

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
