//! The programs `ziti-agent backup` and `ziti-agent restore` on a real network: its database through the
//! sidecar's own port, to a directory and to a real S3 server, and back into a member that has nothing.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod beside;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use beside::{Bootstrap, PASSWORD, READY, Sidecar, comes_back, create, free_port, logged_in};
use serde_json::Value;
use tempfile::TempDir;
use testbed::s3::{S3Options, S3Server};
use testbed::ziti::{LocalCluster, LocalMember};
use ziti::authority::{Authority, Validity};
use ziti::backup::{Identity, Keys, open};
use ziti::pki::{CertificateFacts, Key};
use ziti::{ExposeSecret, Timestamp};

const DOMAIN: &str = "cluster.test.ziti";

/// A directory of files that somebody mounted, or a network writes.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The names in a directory, sorted.
    fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(directory)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }
}

/// What the operator has made for a network, and what its Jobs are told.
struct Operator {
    files: Files,
    authority: Authority,
    /// Who can read backups.
    identity: Identity,
    /// To whom a restore hands the keys over.
    own: Identity,
}

fn validity() -> Validity {
    Validity {
        not_before: Timestamp::from_second(Timestamp::now().as_second() - 300).unwrap(),
        not_after: Timestamp::from_second(Timestamp::now().as_second() + 3600).unwrap(),
    }
}

impl Operator {
    fn new(cluster: &LocalCluster, member: &LocalMember) -> Self {
        let root = cluster.authority();
        let key = Key::from_pem(&root.key_pem).unwrap();
        let authority = Authority::load(&root.cert_pem, key).unwrap();
        let files = Files::new();
        files.put("root/ca.crt", &root.cert_pem);
        files.put("root/ca.key", &root.key_pem);
        files.put("admin/username", "admin");
        files.put("admin/password", PASSWORD);
        for file in [
            "signer.crt",
            "signer.key",
            "controller.crt",
            "controller.key",
        ] {
            let content = std::fs::read(member.pki().join(file)).unwrap();
            files.put(&format!("pki/c0.{file}"), content);
        }
        // As the kubelet has it.
        files.put("pki/..data/c0.signer.key", "not a file of the Secret");
        std::fs::create_dir(files.path("scratch")).unwrap();
        let identity = Identity::generate();
        files.put("identity", identity.expose().expose_secret());
        let operator = Self {
            files,
            authority,
            identity,
            own: Identity::generate(),
        };
        let pair = operator.authority.backup_certificate(DOMAIN, validity());
        operator.present(&pair.unwrap());
        operator
    }

    /// The client certificate of the next backups.
    fn present(&self, (certificate, key): &(String, Key)) {
        self.files.put("client/tls.crt", certificate);
        self.files.put("client/tls.key", key.expose_pem());
    }

    fn run(&self, command: &str, args: Vec<OsString>, env: &[(&str, &str)]) -> Value {
        let log = self.files.put("termination-log", "");
        let mut program = Command::new(env!("CARGO_BIN_EXE_ziti-agent"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
            program.env_remove(name);
        }
        let output = program
            .args([command, "--namespace", "ns", "--name", "net"])
            .arg("--termination-log")
            .arg(&log)
            .args(args)
            .envs(env.iter().copied())
            .output()
            .unwrap();
        let line = std::fs::read_to_string(log).unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let report: Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{error}: {line:?} after {said} {output:?}"));
        let failed = report["outcome"] == "Failed";
        assert_eq!(output.status.success(), !failed, "{said}");
        assert!(line.len() <= 4096, "{} bytes", line.len());
        for secret in [PASSWORD, S3Server::SECRET_KEY, "PRIVATE KEY", "AGE-SECRET"] {
            assert!(!line.contains(secret) && !said.contains(secret), "{said}");
        }
        report
    }

    fn backup(&self, host: &str, place: &Target) -> Value {
        let mut args: Vec<OsString> = Vec::new();
        for (flag, file) in [
            ("--certificate", "client/tls.crt"),
            ("--key", "client/tls.key"),
            ("--trust", "root/ca.crt"),
            ("--root", "root"),
            ("--pki", "pki"),
            ("--admin", "admin"),
            ("--scratch", "scratch"),
        ] {
            args.extend([flag.into(), self.files.path(file).into()]);
        }
        let recipients = [Identity::generate().recipient(), self.identity.recipient()];
        let recipients = recipients.map(|one| one.to_string()).join(",");
        args.extend(["--recipients".into(), recipients.into()]);
        args.extend(["--keep", "2", "--trust-domain", DOMAIN].map(OsString::from));
        args.extend(["--within", place.within, "--members", host].map(OsString::from));
        args.extend(place.args.clone());
        self.run("backup", args, &place.env)
    }

    fn restore(&self, to: &Path, place: &Target, more: &[&str]) -> Value {
        let mut args: Vec<OsString> = vec!["--identity".into(), self.files.path("identity").into()];
        let recipient = self.own.recipient().to_string();
        args.extend(["--recipient".into(), recipient.into()]);
        args.extend(["--data".into(), to.into()]);
        args.extend(place.args.clone());
        args.extend(more.iter().map(OsString::from));
        self.run("restore", args, &place.env)
    }

    fn fails(&self, place: &Target, more: &[&str], reason: &str, why: &str) {
        let data = tempfile::tempdir().unwrap();
        let report = self.restore(data.path(), place, more);
        assert_failed(&report, reason, why);
        let left = std::fs::read_dir(data.path()).unwrap().count();
        assert_eq!(left, 0, "nothing stays of what was not restored");
    }
}

fn assert_failed(report: &Value, reason: &str, why: &str) {
    assert_eq!(report["outcome"], "Failed", "{report}");
    assert_eq!(report["reason"], reason, "{report}");
    let message = report["message"].as_str().unwrap();
    assert!(message.contains(why), "{message}");
}

/// Where backups go, and how long the members are asked.
#[derive(Clone)]
struct Target {
    args: Vec<OsString>,
    env: Vec<(&'static str, &'static str)>,
    within: &'static str,
}

impl Target {
    fn volume(directory: &Path) -> Self {
        Self {
            args: vec!["--volume".into(), directory.into()],
            env: Vec::new(),
            within: "0",
        }
    }

    fn bucket(server: &S3Server, name: &str) -> Self {
        let mut args: Vec<OsString> = ["--bucket", name, "--prefix", "some/where"]
            .map(OsString::from)
            .to_vec();
        args.extend(["--endpoint".into(), server.endpoint().into()]);
        if let Some(ca) = server.ca() {
            args.extend(["--ca".into(), ca.into()]);
        }
        Self {
            args,
            env: vec![
                ("AWS_ACCESS_KEY_ID", S3Server::ACCESS_KEY),
                ("AWS_SECRET_ACCESS_KEY", S3Server::SECRET_KEY),
            ],
            within: "0",
        }
    }

    fn within(self, within: &'static str) -> Self {
        Self { within, ..self }
    }
}

fn tls() -> S3Server {
    let options = S3Options {
        tls: true,
        ..S3Options::default()
    };
    S3Server::start_with(&options).unwrap()
}

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
    let [later, older, oldest] = old.map(|time| format!("ns.net.{time}.tar.age"));
    let others = [
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
    for (pair, why) in [
        (
            stranger.backup_certificate(DOMAIN, validity()).unwrap(),
            "UnknownCA",
        ),
        (
            operator
                .authority
                .backup_certificate("other.domain", validity())
                .unwrap(),
            "AccessDenied",
        ),
        (
            (
                read("controller.crt"),
                Key::from_pem(&read("controller.key")).unwrap(),
            ),
            "AccessDenied",
        ),
        ((format!("{leaf}{}", signer.cert_pem()), key), "UnknownCA"),
    ] {
        operator.present(&pair);
        let report = operator.backup(&host, &volume);
        assert_failed(&report, "MembersUnreachable", why);
    }
    let pair = operator.authority.backup_certificate(DOMAIN, validity());
    operator.present(&pair.unwrap());
    assert_eq!(
        backups.names(".").len(),
        6,
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
        &["--root-key-id", "0102"],
        "OtherNetwork",
        "its root has the key",
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
