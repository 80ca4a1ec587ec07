//! What the operator makes for a network and tells its Jobs of backups: what the tests of them share.

#![allow(dead_code, reason = "each test file uses its part of it")]
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use testbed::s3::{S3Options, S3Server};
use testbed::ziti::{LocalCluster, LocalMember};
use ziti::authority::{Authority, Validity};
use ziti::backup::Identity;
use ziti::pki::{CertificateFacts, Key};
use ziti::{ExposeSecret, Timestamp};

use crate::beside::PASSWORD;

/// The termination message.
const LOG: &str = "termination-log";
/// Of the ZitiController.
const UID: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
pub(crate) const DOMAIN: &str = "cluster.test.ziti";

/// A directory of files that somebody mounted, or a network writes.
pub(crate) struct Files(pub(crate) TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The names in a directory, sorted.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(directory)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }
}

/// What the operator has made for a network, and what its Jobs are told.
pub(crate) struct Operator {
    pub(crate) files: Files,
    pub(crate) authority: Authority,
    /// Who can read backups.
    pub(crate) identity: Identity,
    /// To whom a restore hands the keys over.
    pub(crate) own: Identity,
}

pub(crate) fn validity() -> Validity {
    Validity {
        not_before: Timestamp::from_second(Timestamp::now().as_second() - 300).unwrap(),
        not_after: Timestamp::from_second(Timestamp::now().as_second() + 3600).unwrap(),
    }
}

impl Operator {
    pub(crate) fn new(cluster: &LocalCluster, member: &LocalMember) -> Self {
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

    /// The name of a backup of this network that was taken then.
    pub(crate) fn named(&self, time: &str) -> String {
        let root = CertificateFacts::from_pem(self.authority.cert_pem()).unwrap();
        let (root, uid) = (root.key_id.unwrap(), &UID[..8]);
        format!(
            "ns.net.{time}.{}-{uid}.tar.age",
            &root[..8].to_ascii_lowercase()
        )
    }

    /// The client certificate of the next backups.
    pub(crate) fn present(&self, (certificate, key): &(String, Key)) {
        self.files.put("client/tls.crt", certificate);
        self.files.put("client/tls.key", key.expose_pem());
    }

    /// The program, about to be run. What is in this process' environment for a bucket is not for it.
    fn program(&self, command: &str, args: Vec<OsString>, env: &[(&str, &str)]) -> Command {
        let log = self.files.put(LOG, "");
        let named = !args.contains(&OsString::from("--name"));
        let mut program = Command::new(env!("CARGO_BIN_EXE_ziti-agent"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
            program.env_remove(name);
        }
        program
            .args([command, "--namespace", "ns"])
            .args(named.then_some(["--name", "net"]).into_iter().flatten())
            .arg("--termination-log")
            .arg(&log)
            .args(args)
            .envs(env.iter().copied());
        program
    }

    /// What it said last, after it has ended.
    pub(crate) fn report(&self, output: &Output) -> Value {
        let line = std::fs::read_to_string(self.files.path(LOG)).unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let report: Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{error}: {line:?} after {said} {output:?}"));
        let failed = report["outcome"] == "Failed";
        assert_eq!(output.status.success(), !failed, "{said}");
        assert!(line.len() <= 4096, "{} bytes", line.len());
        let identity = self.identity.expose();
        let identity = identity.expose_secret();
        for secret in [PASSWORD, S3Server::SECRET_KEY, "PRIVATE KEY", identity] {
            assert!(!line.contains(secret) && !said.contains(secret), "{said}");
        }
        report
    }

    pub(crate) fn backup(&self, host: &str, place: &Target) -> Value {
        let output = self.backup_program(host, place).output().unwrap();
        self.report(&output)
    }

    pub(crate) fn backup_program(&self, host: &str, place: &Target) -> Command {
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
        args.extend(["--uid", UID].map(OsString::from));
        args.extend(["--keep", "2", "--trust-domain", DOMAIN].map(OsString::from));
        args.extend(["--within", place.within, "--members", host].map(OsString::from));
        args.extend(place.args.clone());
        self.program("backup", args, &place.env)
    }

    pub(crate) fn restore(&self, to: &Path, place: &Target, more: &[&str]) -> Value {
        let mut args: Vec<OsString> = vec!["--identity".into(), self.files.path("identity").into()];
        let recipient = self.own.recipient().to_string();
        args.extend(["--recipient".into(), recipient.into()]);
        args.extend(["--data".into(), to.into()]);
        args.extend(place.args.clone());
        args.extend(more.iter().map(OsString::from));
        let output = self.program("restore", args, &place.env).output().unwrap();
        self.report(&output)
    }

    pub(crate) fn fails(&self, place: &Target, more: &[&str], reason: &str, why: &str) {
        let data = tempfile::tempdir().unwrap();
        let report = self.restore(data.path(), place, more);
        assert_failed(&report, reason, why);
        let left = std::fs::read_dir(data.path()).unwrap().count();
        assert_eq!(left, 0, "nothing stays of what was not restored");
    }
}

pub(crate) fn assert_failed(report: &Value, reason: &str, why: &str) {
    assert_eq!(report["outcome"], "Failed", "{report}");
    assert_eq!(report["reason"], reason, "{report}");
    let message = report["message"].as_str().unwrap();
    assert!(message.contains(why), "{message}");
}

/// Where backups go, and how long the members are asked.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(&'static str, &'static str)>,
    pub(crate) within: &'static str,
}

impl Target {
    pub(crate) fn volume(directory: &Path) -> Self {
        Self {
            args: vec!["--volume".into(), directory.into()],
            env: Vec::new(),
            within: "0",
        }
    }

    pub(crate) fn bucket(server: &S3Server, name: &str) -> Self {
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

    pub(crate) fn within(self, within: &'static str) -> Self {
        Self { within, ..self }
    }
}

pub(crate) fn tls() -> S3Server {
    let options = S3Options {
        tls: true,
        ..S3Options::default()
    };
    S3Server::start_with(&options).unwrap()
}
