//! The program as the pod runs it: exit code, termination message, log.

use std::process::Command;

const PLANTED: &str = "planted-secret-of-a-token";

#[test]
fn failure_is_one_line_of_json_without_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, format!("{PLANTED}.{PLANTED}.{PLANTED}")).unwrap();
    let message = dir.path().join("termination-log");
    let output = Command::new(env!("CARGO_BIN_EXE_ziti-agent"))
        .arg("enroll")
        .arg("--identity-dir")
        .arg(dir.path().join("config"))
        .arg("--token-file")
        .arg(&token)
        .arg("--termination-log")
        .arg(&message)
        .args(["--dns", "router.example", "--ip", "127.0.0.1"])
        .args([
            "--endpoint",
            "tls:ctrl.example:1280",
            "--on-mismatch",
            "replace",
        ])
        .env("RUST_LOG", "trace")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));

    let message = std::fs::read_to_string(&message).unwrap();
    let report: serde_json::Value = serde_json::from_str(&message).unwrap();
    assert_eq!(report["outcome"], "Failed");
    assert_eq!(report["reason"], "TokenMalformed");
    assert!(message.len() <= agent::report::MAX_LENGTH + 1);

    let log = String::from_utf8(output.stdout).unwrap();
    assert!(!log.is_empty());
    for line in log.lines() {
        let fact: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(fact["message"].is_string(), "{line}");
    }
    let errors = String::from_utf8(output.stderr).unwrap();
    for text in [message, log, errors] {
        assert!(!text.contains(PLANTED), "{text}");
    }
}
