//! The program as the pod runs it: exit code, termination message, log, and no secret in any.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testbed::ziti::LocalController;
use ziti::SecretString;
use ziti::management::{Credential, ManagementClient, NewEdgeRouter, Options};
use ziti::trust::CaBundle;

/// What a run of the program left behind.
struct Ended {
    code: Option<i32>,
    /// The termination message.
    message: String,
    /// Both output streams.
    log: String,
}

/// Runs `ziti-agent enroll` with `token`, saying all that it can say.
fn run(dir: &Path, token: &str) -> Ended {
    let token_file = dir.join("token");
    std::fs::write(&token_file, token).unwrap();
    let message = dir.join("termination-log");
    let output = Command::new(env!("CARGO_BIN_EXE_ziti-agent"))
        .arg("enroll")
        .arg("--identity-dir")
        .arg(dir.join("config"))
        .arg("--token-file")
        .arg(&token_file)
        .arg("--termination-log")
        .arg(&message)
        .args(["--dns", "router.example", "--ip", "127.0.0.1"])
        .args(["--endpoint", "tls:ctrl.example:1280"])
        .args(["--on-mismatch", "replace", "--retry-seconds", "5"])
        .env("RUST_LOG", "trace")
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(!stdout.is_empty());
    for line in stdout.lines() {
        let fact: Value = serde_json::from_str(line).unwrap();
        assert!(fact["message"].is_string(), "{line}");
    }
    Ended {
        code: output.status.code(),
        message: std::fs::read_to_string(&message).unwrap(),
        log: format!("{stdout}{}", String::from_utf8(output.stderr).unwrap()),
    }
}

fn assert_hides(ended: &Ended, secrets: &[&str]) {
    for secret in secrets {
        assert!(!ended.message.contains(secret), "{}", ended.message);
        let line = ended.log.lines().find(|line| line.contains(secret));
        assert_eq!(line, None);
    }
}

#[test]
fn failure_is_one_line_of_json_without_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let planted = "planted-secret-of-a-token";
    let ended = run(dir.path(), &format!("{planted}.{planted}.{planted}"));
    assert_eq!(ended.code, Some(1));
    let report: Value = serde_json::from_str(&ended.message).unwrap();
    assert_eq!(report["outcome"], "Failed");
    assert_eq!(report["reason"], "TokenMalformed");
    assert!(ended.message.len() <= agent::report::MAX_LENGTH + 1);
    assert_hides(&ended, &[planted]);
}

#[tokio::test]
async fn an_enrollment_shows_neither_token_nor_key_even_when_tracing() {
    let controller = LocalController::start().await.unwrap();
    let credential = Credential::Password {
        username: LocalController::USERNAME.to_owned(),
        password: SecretString::from(LocalController::PASSWORD),
    };
    let ca = CaBundle::from_pem(controller.ca_pem()).unwrap();
    let endpoints = [controller.url().parse().unwrap()];
    let options = Options::default();
    let client = ManagementClient::new(&endpoints, &ca, Some(credential), &options).unwrap();
    let router = NewEdgeRouter {
        name: "traced".to_owned(),
        ..NewEdgeRouter::default()
    };
    let id = client.create_edge_router(&router).await.unwrap();
    let path = format!("/edge-routers/{id}");
    let entity = client.get(&path, &[]).await.unwrap();
    let token = entity["enrollmentJwt"].as_str().unwrap();
    let one_time = entity["enrollmentToken"].as_str().unwrap();

    let dir = tempfile::tempdir().unwrap();
    let ended = run(dir.path(), token);
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let report: Value = serde_json::from_str(&ended.message).unwrap();
    assert_eq!(report["outcome"], "Enrolled");
    assert_eq!(report["routerId"], id.as_str());
    for field in ["fingerprint", "notAfter", "tokenDigest"] {
        assert!(report[field].is_string(), "{report}");
    }
    let key = std::fs::read_to_string(dir.path().join("config/ziti-router.key")).unwrap();
    let key_line = key.lines().nth(1).unwrap();
    assert_hides(&ended, &[token, one_time, key_line]);

    let again = run(dir.path(), token);
    assert_eq!(again.code, Some(0));
    assert!(again.message.contains("AlreadyEnrolled"));
}
