//! The programs `ziti-agent backup` and `ziti-agent restore` on a real network: its database through the
//! sidecar's own port, to a directory and to a real S3 server, and back into a member that has nothing.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod backups;
mod beside;

use std::ffi::OsString;
use std::path::Path;

use backups::{DOMAIN, Files, Operator, Target, assert_failed, tls, validity};
use beside::{Bootstrap, PASSWORD, READY, Sidecar, comes_back, create, free_port, logged_in};
use testbed::ziti::{LocalCluster, LocalMember};
use ziti::ExposeSecret;
use ziti::authority::Authority;
use ziti::backup::{Identity, Keys, open};
use ziti::pki::{CertificateFacts, Key};

/// The sidecar's arguments for backups.
fn giving(member: &LocalMember, port: u16) -> Vec<OsString> {
    let pki = member.pki();
    let mut args: Vec<OsString> = vec!["--backup-port".into(), port.to_string().into()];
    for (flag, file) in [
        ("--certificate", "controller.crt"),
        ("--key", "controller.key"),
        ("--trust", "ca.crt"),
    ] {
        args.extend([flag.into(), pki.join(file).into()]);
    }
    args
}

/// Restores into a member that has nothing, which then starts with the database: what was there is there.
async fn comes_back_with(member: &mut LocalMember, database: &Path, id: &str) {
    let bootstrap = Bootstrap::initialize("another-password");
    bootstrap.write("initialize", member.id());
    bootstrap.write("restore", database.to_str().unwrap());
    bootstrap.write("restore-id", id);
    let sidecar = Sidecar::start(member, &bootstrap);
    member.start().unwrap();
    comes_back(member, &sidecar).await;
    let session = logged_in(member).await;
    let again = create(member, &session, "kept").await;
    assert!(again.is_err(), "it is there already");
    create(member, &session, "new").await.unwrap();
    assert!(!database.exists(), "it is of no more use");
}

#[tokio::test]
async fn a_network_is_backed_up_and_comes_back_from_a_volume_and_from_a_bucket() {
    let cluster = LocalCluster::new().unwrap();
    let mut member = cluster.member("c0").unwrap();
    let operator = Operator::new(&cluster, &member);
    let port = free_port();
    let host = format!("localhost:{port}");
    let bootstrap = Bootstrap::new(&[]);
    let sidecar = Sidecar::start_with(&member, &bootstrap, &giving(&member, port));

    // There are backups of before, of others, and what somebody else keeps there.
    let backups = Files::new();
    let old = ["20300101T000000Z", "20200101T000000Z", "20190101T000000Z"];
    let [later, older, oldest] = old.map(|time| operator.named(time));
    let others = [
        "ns.net.20190101T000000Z.tar.age",
        "ns.net2.20190101T000000Z.tar.age",
        "ns.net.notes",
        "x/ns.net.tar.age",
    ];
    for name in [&later, &older, &oldest]
        .map(String::as_str)
        .into_iter()
        .chain(others)
    {
        backups.put(name, "old");
    }
    let half = backups.put(&format!("{oldest}#1"), "half");
    let half = std::fs::File::options().write(true).open(half).unwrap();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_hours(2);
    half.set_modified(long_ago).unwrap();
    let volume = Target::volume(backups.0.path());

    // Before there is a network.
    sidecar.says("the controller does not listen yet").await;
    let report = operator.backup(&host, &volume);
    assert_failed(&report, "NotReady", "the controller does not listen yet");
    bootstrap.write("initialize", "c0");
    bootstrap.write("username", "admin");
    bootstrap.write("password", PASSWORD);
    bootstrap.write("name", "Default Admin");
    member.start().unwrap();
    sidecar.says(READY).await;
    let session = logged_in(&member).await;
    create(&member, &session, "kept").await.unwrap();

    // Nobody else gets the database: not who is of another network, nor who is somebody else in this
    // one, nor who had a member's signer sign what a router asks for.
    let stranger = Authority::root(DOMAIN, validity()).unwrap();
    let signer = operator.authority.signer("c0", None, validity()).unwrap();
    let (leaf, key) = signer.backup_certificate(DOMAIN, validity()).unwrap();
    let read = |file: &str| std::fs::read_to_string(member.pki().join(file)).unwrap();
    for pair in [
        stranger.backup_certificate(DOMAIN, validity()).unwrap(),
        operator
            .authority
            .backup_certificate("other.domain", validity())
            .unwrap(),
        (
            read("controller.crt"),
            Key::from_pem(&read("controller.key")).unwrap(),
        ),
        (format!("{leaf}{}", signer.cert_pem()), key),
    ] {
        operator.present(&pair);
        let report = operator.backup(&host, &volume);
        assert_failed(&report, "MembersUnreachable", "gave a snapshot: localhost");
    }
    let pair = operator.authority.backup_certificate(DOMAIN, validity());
    operator.present(&pair.unwrap());
    assert_eq!(
        backups.names(".").len(),
        7,
        "nothing was written or deleted"
    );

    // To a volume. The one of a time to come is newer than ours, and two are kept.
    let saved = operator.backup(&host, &volume);
    assert_eq!(saved["outcome"], "Saved", "{saved}\n{}", sidecar.log());
    assert_eq!(saved["kept"], 2, "{saved}");
    let snapshot = saved["snapshot"].as_str().unwrap();
    let mut expected = vec![
        snapshot,
        &later,
        "ns.net.20190101T000000Z.tar.age",
        "ns.net2.20190101T000000Z.tar.age",
        "ns.net.notes",
        "x",
    ];
    expected.sort_unstable();
    assert_eq!(backups.names("."), expected);
    let size = std::fs::metadata(backups.path(snapshot)).unwrap().len();
    assert_eq!(saved["bytes"], size);
    std::fs::remove_file(backups.path(&later)).unwrap();
    let left = std::fs::read_dir(member.data()).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(!left.into_iter().any(|name| name.contains("snapshot.db")));

    // To a bucket, by TLS, in several parts. Ziti gives a snapshot a minute: it is waited for.
    let server = tls();
    let objects = server.create_bucket("ziti").unwrap();
    let bucket = Target::bucket(&server, "ziti");
    for part in 0..40 {
        let noise = noise(part);
        operator.files.put(&format!("pki/noise.{part}"), noise);
    }
    let report = operator.backup(&host, &bucket);
    assert_failed(&report, "NotReady", "once per minute");
    let saved = operator.backup(&host, &bucket.clone().within("90"));
    assert_eq!(saved["outcome"], "Saved", "{saved}\n{}", server.log());
    let stored = objects
        .join("some/where")
        .join(saved["snapshot"].as_str().unwrap());
    assert_eq!(saved["bytes"], std::fs::metadata(stored).unwrap().len());
    drop((sidecar, member));

    // All is lost. What is in the way of a restore is told.
    let [data, other] = [
        cluster.member("c0-again").unwrap(),
        cluster.member("c0-bucket").unwrap(),
    ];
    operator.fails(&volume, &["--snapshot", "nothing"], "NoBackup", snapshot);
    operator.fails(
        &volume,
        &["--root-key-id", "0102", "--snapshot", snapshot],
        "OtherNetwork",
        "its root has the key",
    );
    std::fs::remove_file(backups.path("ns.net.20190101T000000Z.tar.age")).unwrap();
    operator.fails(
        &volume,
        &["--root-key-id", "0102"],
        "OtherNetwork",
        "are of other networks",
    );
    let empty = tempfile::tempdir().unwrap();
    operator.fails(
        &Target::volume(empty.path()),
        &[],
        "NoBackup",
        "there is no backup of net",
    );
    let whole = std::fs::read(backups.path(snapshot)).unwrap();
    for (name, content) in [
        ("half.age", &whole[..whole.len() / 2]),
        ("almost.age", &whole[..whole.len() - 1]),
        ("header.age", &whole[..150]),
        ("none.age", b"hello"),
        ("empty.age", b""),
    ] {
        backups.put(name, content);
        operator.fails(&volume, &["--snapshot", name], "Damaged", name);
    }
    let copy = "ns.other.20300101T000000Z.tar.age";
    backups.put(copy, &whole);
    operator.fails(
        &volume,
        &["--name", "other"],
        "OtherNetwork",
        "it is of net in namespace ns",
    );
    let stranger = Identity::generate();
    operator
        .files
        .put("identity", stranger.expose().expose_secret());
    operator.fails(
        &volume,
        &[],
        "CannotDecrypt",
        "not encrypted to the identity",
    );
    operator.files.put("identity", "hello");
    operator.fails(
        &volume,
        &[],
        "Misconfigured",
        "there is no age identity in it",
    );
    operator
        .files
        .put("identity", operator.identity.expose().expose_secret());

    // It comes back from both.
    let root = CertificateFacts::from_pem(&cluster.authority().cert_pem).unwrap();
    let key_id = root.key_id.unwrap();
    let name = [
        "--name",
        "other",
        "--snapshot",
        copy,
        "--root-key-id",
        &key_id,
    ];
    for (mut member, place, more) in [(data, &volume, name.as_slice()), (other, &bucket, &[])] {
        let report = operator.restore(&member.data(), place, more);
        assert_eq!(report["outcome"], "Fetched", "{report}");
        assert_eq!(report["trustDomain"], DOMAIN);
        let keys = open(report["keys"].as_str().unwrap(), &operator.own).unwrap();
        assert_keys(&keys, &operator);
        let database = member.data().join("ziti-agent.restore-from.db");
        comes_back_with(&mut member, &database, report["snapshot"].as_str().unwrap()).await;
    }
}

/// Half a mebibyte that cannot be made smaller.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..64 * 1024).flat_map(|_| next()).collect()
}

fn assert_keys(keys: &Keys, operator: &Operator) {
    let read = |file: &str| std::fs::read_to_string(operator.files.path(file)).unwrap();
    assert_eq!(keys.root.certificate, read("root/ca.crt"));
    assert_eq!(keys.root.key.expose_pem(), read("root/ca.key"));
    assert_eq!(keys.signers.len(), 1);
    assert_eq!(
        keys.signers["c0"].key.expose_pem(),
        read("pki/c0.signer.key")
    );
    assert_eq!(keys.admin.username, "admin");
    assert_eq!(keys.admin.password.expose_secret(), PASSWORD);
}
