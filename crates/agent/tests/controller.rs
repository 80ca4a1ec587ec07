//! The program `ziti-agent controller` beside real members of a cluster: who initializes, when a member
//! is ready, who leads after a drain, and what a restore leaves.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod beside;

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use agent::socket::AgentSocket;
use agent::socket::controller::{Member, members};
use beside::{
    Bootstrap, PASSWORD, READY, STUCK, Sidecar, WAITS, comes_back, create, logged_in, until,
};
use testbed::ziti::{LocalCluster, LocalMember};

/// The list of the members, as this one sees it; empty while it does not answer.
async fn list(member: &LocalMember) -> Vec<Member> {
    match AgentSocket::find(&member.tmp()).unwrap() {
        Some(socket) => {
            let listed = members(&socket, Duration::from_secs(5)).await;
            listed.unwrap_or_default()
        }
        None => Vec::new(),
    }
}

/// Who leads, as the member sees it.
async fn leader(member: &LocalMember) -> Option<String> {
    let mut members = list(member).await.into_iter();
    members.find(|row| row.is_leader).map(|row| row.id)
}

#[tokio::test]
async fn one_member_initializes_once_and_the_others_are_added() {
    let cluster = LocalCluster::new().unwrap();
    let [mut first, mut second, mut third] =
        ["c0", "c1", "c2"].map(|id| cluster.member(id).unwrap());
    // The password is too short: said in the log, which does not hold it, and mended in the Secret.
    let bootstrap = Bootstrap::initialize("1a:b");
    let sidecar = Sidecar::start(&first, &bootstrap);
    sidecar.says("the controller does not listen yet").await;
    first.start().unwrap();
    sidecar.says(STUCK).await;
    assert!(!sidecar.log().contains("1a:b"), "{}", sidecar.log());
    bootstrap.write("password", PASSWORD);
    sidecar.says(READY).await;
    let session = logged_in(&first).await;

    // A second start, with another password in the Secret: nothing is made anew.
    first.stop().unwrap();
    sidecar.says("the controller does not run").await;
    bootstrap.write("password", "another-password");
    first.start().unwrap();
    sidecar.says(READY).await;
    until("it was asked", async || {
        sidecar.log().contains("initialized before")
    })
    .await;
    logged_in(&first).await;
    let refused = first.log_in("admin", "another-password").await;
    assert!(refused.is_err());

    // The others see the same Secret, and wait to be added.
    let mut sidecars = vec![sidecar];
    for other in [&mut second, &mut third] {
        other.start().unwrap();
        let sidecar = Sidecar::start(other, &bootstrap);
        sidecar.says(WAITS).await;
        first.add(&session, other).await.unwrap();
        sidecar.says(READY).await;
        sidecars.push(sidecar);
    }

    // A follower's drain moves nobody.
    let before = leader(&first).await;
    assert_eq!(before.as_deref(), Some("c0"));
    sidecars[2].leave();
    let leaving = sidecars[2].get("/ready");
    assert_eq!(leaving, (503, "the pod is leaving".to_owned()));
    third.stop().unwrap();
    assert_eq!(leader(&first).await, before);
    assert_eq!(leader(&second).await, before);

    // The leader's hands over, to the one that is there; a write right after its end succeeds. That
    // needs the third again: two votes of three.
    third.start().unwrap();
    sidecars[2] = Sidecar::start(&third, &bootstrap);
    sidecars[2].says(READY).await;
    let session = logged_in(&second).await;
    sidecars[0].leave();
    let after = leader(&second).await;
    assert!(
        matches!(after.as_deref(), Some("c1" | "c2")),
        "{after:?} leads"
    );
    first.stop().unwrap();
    create(&second, &session, "right-after").await.unwrap();

    // It comes back without its volume, and the Secret names nobody any more: it makes no cluster of
    // its own, and the others take it back.
    bootstrap.write("initialize", "");
    first.lose_volume().unwrap();
    first.start().unwrap();
    sidecars[0] = Sidecar::start(&first, &bootstrap);
    until(
        "it is back, after a restart where the version needs one",
        async || {
            if !first.is_alive() {
                first.start().unwrap();
            }
            sidecars[0].get("/ready").0 == 200
        },
    )
    .await;
    assert_eq!(leader(&first).await, leader(&second).await);

    // Quorum lost: the one that is left is not ready.
    first.stop().unwrap();
    third.stop().unwrap();
    sidecars[1].says("the cluster has no leader").await;
}

#[tokio::test]
async fn a_start_that_was_cut_short_is_finished_by_the_next() {
    let cluster = LocalCluster::new().unwrap();
    let mut member = cluster.member("c0").unwrap();
    let bootstrap = Bootstrap::initialize(PASSWORD);
    let sidecar = Sidecar::start(&member, &bootstrap);
    member.start().unwrap();
    // There is a cluster, and its administrator comes a second or two later.
    until("there is a cluster", async || {
        !list(&member).await.is_empty()
    })
    .await;
    member.kill().unwrap();
    sidecar.says("the controller does not run").await;
    member.start().unwrap();
    sidecar.says(READY).await;
    logged_in(&member).await;
}

#[tokio::test]
async fn a_backup_is_restored_once_and_stays_as_it_is() {
    let cluster = LocalCluster::new().unwrap();
    let mut old = cluster.member("c0").unwrap();
    let bootstrap = Bootstrap::initialize(PASSWORD);
    let sidecar = Sidecar::start(&old, &bootstrap);
    old.start().unwrap();
    sidecar.says(READY).await;
    let session = logged_in(&old).await;
    create(&old, &session, "kept").await.unwrap();
    let backups = tempfile::tempdir().unwrap();
    let backup = backups.path().join("backup.db");
    assert!(snapshot(&old, &backup).status.success());
    let again = snapshot(&old, &backup);
    let said = String::from_utf8(again.stdout).unwrap();
    assert!(said.contains("at most once per minute"), "{said}");
    let whole = std::fs::read(&backup).unwrap();
    drop((sidecar, old));

    // All is lost but the backup; the password of the new Secret is another one.
    let mut new = cluster.member("c0-again").unwrap();
    let bootstrap = Bootstrap::initialize("another-password");
    bootstrap.write("initialize", "c0-again");
    bootstrap.write("restore", "/no/such/backup.db");
    bootstrap.write("restore-id", "first");
    let sidecar = Sidecar::start(&new, &bootstrap);
    new.start().unwrap();
    sidecar.says(STUCK).await;
    let said = sidecar.log();
    assert!(said.contains("cannot copy /no/such/backup.db"), "{said}");
    bootstrap.write("restore", backup.to_str().unwrap());
    comes_back(&mut new, &sidecar).await;
    let session = logged_in(&new).await;
    assert!(create(&new, &session, "kept").await.is_err(), "it is there");
    create(&new, &session, "later").await.unwrap();
    assert!(
        std::fs::read(&backup).unwrap() == whole,
        "the backup changed"
    );

    // A restart of both restores nothing.
    drop(sidecar);
    new.stop().unwrap();
    new.start().unwrap();
    let sidecar = Sidecar::start(&new, &bootstrap);
    sidecar.says(READY).await;
    let session = logged_in(&new).await;
    let twice = create(&new, &session, "later").await;
    assert!(twice.is_err(), "what came after the restore is gone");

    // Another order would take the database that is there.
    bootstrap.write("restore-id", "second");
    sidecar.says(STUCK).await;
    let said = sidecar.log();
    assert!(
        said.contains("the order second is not carried out"),
        "{said}"
    );
    bootstrap.write("restore-id", "first");
    sidecar.says(READY).await;
    let session = logged_in(&new).await;
    let still = create(&new, &session, "later").await;
    assert!(still.is_err(), "the database is another one");
}

#[test]
fn a_snapshot_without_a_controller_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let output = ask_for_snapshot(dir.path(), &dir.path().join("none.db"));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("there is no agent socket in"), "{said}");
}

fn snapshot(member: &LocalMember, file: &Path) -> Output {
    ask_for_snapshot(&member.tmp(), file)
}

fn ask_for_snapshot(tmp: &Path, file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ziti-agent"))
        .args(["snapshot", "--controller-tmp"])
        .arg(tmp)
        .arg(file)
        .output()
        .unwrap()
}
