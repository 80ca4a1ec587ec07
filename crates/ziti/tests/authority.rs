//! The certificates of a provisioned network, judged by others: by `openssl`, chain by chain and
//! through time, and by a real controller that runs on them.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{
    TRUST_DOMAIN, admin_client, controller_pki, enrollment, now, redeemed, registered,
    router_until, sans, token_of, write_identity,
};
use testbed::ziti::config::Storage;
use testbed::ziti::{ControllerOptions, LocalController, LocalRouter, RouterOptions};
use ziti::Timestamp;
use ziti::authority::{Authority, AuthorityError, Validity, backup_uri};
use ziti::enroll::enroll_router;
use ziti::management::EdgeRouterEntity;
use ziti::pki::{CertificateFacts, Key, Sans};

const MEMBER: &str = "demo-controller-0";
/// 2030-01-01T00:00:00Z, when everything here begins.
const BEGIN: i64 = 1_893_456_000;
const DAY: i64 = 86_400;

fn days(from: i64, to: i64) -> Validity {
    let moment = |day: i64| Timestamp::from_second(BEGIN + day * DAY).unwrap();
    Validity {
        not_before: moment(from),
        not_after: moment(to),
    }
}

/// Files for a command that knows files only.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// Runs `openssl`, without which this test fails; it says whether it succeeded, and what it said.
fn openssl(args: &[&str]) -> (bool, String) {
    let output = Command::new("openssl").args(args).output();
    let output = output.unwrap_or_else(|error| {
        panic!("cannot run openssl ({error}): install it, or have `cargo xtask up` do it")
    });
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// `openssl verify` of `leaf` on a day, for one use; the error is what it said.
fn verified(
    root: &Path,
    between: Option<&Path>,
    leaf: &Path,
    purpose: &str,
    day: i64,
) -> Result<(), String> {
    let [root, leaf] = [root, leaf].map(|path| path.display().to_string());
    let between = between.map(|path| path.display().to_string());
    let time = (BEGIN + day * DAY).to_string();
    let mut args = vec!["verify", "-x509_strict", "-CAfile", &root];
    args.extend(["-purpose", purpose, "-attime", &time]);
    if let Some(between) = &between {
        args.extend(["-untrusted", between]);
    }
    args.push(&leaf);
    let (good, said) = openssl(&args);
    if good { Ok(()) } else { Err(said) }
}

#[test]
fn openssl_verifies_every_chain_for_both_uses_while_all_of_it_is_valid_and_no_longer() {
    let files = Files::new();
    let root = Authority::root(TRUST_DOMAIN, days(0, 100)).unwrap();
    let signer = root.signer(MEMBER, None, days(0, 80)).unwrap();
    let certificate = |authority: &Authority| {
        authority.controller_certificate(MEMBER, &sans(), TRUST_DOMAIN, days(10, 60))
    };
    let (by_root, _) = certificate(&root).unwrap();
    let (by_signer, _) = certificate(&signer).unwrap();
    let root_file = files.put("root.crt", root.cert_pem());
    let signer_file = files.put("signer.crt", signer.cert_pem());
    let by_root = files.put("by-root.crt", &by_root);
    let by_signer = files.put("by-signer.crt", &by_signer);

    for purpose in ["sslserver", "sslclient"] {
        let direct = |day| verified(&root_file, None, &by_root, purpose, day);
        let chained = |day| verified(&root_file, Some(&signer_file), &by_signer, purpose, day);
        for check in [&direct as &dyn Fn(i64) -> Result<(), String>, &chained] {
            assert!(check(9).unwrap_err().contains("not yet valid"));
            for day in [11, 59] {
                assert_eq!(check(day), Ok(()), "{purpose} on day {day}");
            }
            assert!(check(61).unwrap_err().contains("has expired"));
        }
        // Without the certificate between, there is no chain.
        let lone = verified(&root_file, None, &by_signer, purpose, 20);
        assert!(lone.unwrap_err().contains("unable to get local issuer"));
    }

    // The root, renewed in time: what either one signed verifies under the other.
    let renewed = root.renewed(days(50, 400)).unwrap();
    let renewed_file = files.put("renewed.crt", renewed.cert_pem());
    let old = |day| verified(&renewed_file, None, &by_root, "sslserver", day);
    assert_eq!(old(55), Ok(()));
    let late = renewed.controller_certificate(MEMBER, &sans(), TRUST_DOMAIN, days(50, 300));
    let late = files.put("late.crt", &late.unwrap().0);
    assert_eq!(verified(&root_file, None, &late, "sslclient", 99), Ok(()));
    let too_late = verified(&root_file, None, &late, "sslclient", 101);
    assert!(too_late.unwrap_err().contains("has expired"));
    assert_eq!(
        verified(&renewed_file, None, &late, "sslclient", 299),
        Ok(())
    );

    // A signer renewed with its key: what it signed before verifies under the new certificate.
    let key = signer.key().clone();
    let again = renewed.signer(MEMBER, Some(key), days(50, 200)).unwrap();
    let again = files.put("signer-again.crt", again.cert_pem());
    let kept = verified(&root_file, Some(&again), &by_signer, "sslserver", 55);
    assert_eq!(kept, Ok(()));

    // Another network of the same trust domain is not this one, and no signer makes signers.
    let other = Authority::root(TRUST_DOMAIN, days(0, 100)).unwrap();
    let other = files.put("other.crt", other.cert_pem());
    assert!(verified(&other, None, &by_root, "sslserver", 20).is_err());
    let deeper = signer.signer("deeper", None, days(0, 80)).unwrap();
    let (leaf, _) = certificate(&deeper).unwrap();
    let chain = format!("{}{}", deeper.cert_pem(), signer.cert_pem());
    let (chain, leaf) = (files.put("chain.crt", &chain), files.put("deep.crt", &leaf));
    let deep = verified(&root_file, Some(&chain), &leaf, "sslserver", 20);
    assert!(deep.unwrap_err().contains("path length"));
}

#[test]
fn a_backup_has_the_certificate_of_a_client_and_of_nothing_else() {
    let files = Files::new();
    let root = Authority::root(TRUST_DOMAIN, days(0, 100)).unwrap();
    let (pem, key) = root.backup_certificate(TRUST_DOMAIN, days(0, 10)).unwrap();
    let facts = CertificateFacts::from_pem(&pem).unwrap();
    assert_eq!(facts.uris, [format!("spiffe://{TRUST_DOMAIN}/backup")]);
    assert_eq!(facts.uris, [backup_uri(TRUST_DOMAIN).unwrap()]);
    assert!(facts.dns.is_empty() && facts.ips.is_empty() && !facts.is_ca);
    assert!(key.belongs_to(&pem).unwrap());
    let root = files.put("root.crt", root.cert_pem());
    let leaf = files.put("backup.crt", &pem);
    assert_eq!(verified(&root, None, &leaf, "sslclient", 5), Ok(()));
    let served = verified(&root, None, &leaf, "sslserver", 5);
    assert!(served.unwrap_err().contains("certificate purpose"));
}

#[test]
fn openssl_reads_what_we_wrote_and_we_read_the_same() {
    let files = Files::new();
    let root = Authority::root(TRUST_DOMAIN, days(0, 100)).unwrap();
    let wanted = Sans {
        dns: vec!["demo-controller-0.ns.svc".to_owned()],
        ips: vec!["fd00::1".parse().unwrap()],
        uris: vec!["spiffe://other/one".to_owned()],
    };
    let (pem, key) = root
        .controller_certificate(MEMBER, &wanted, TRUST_DOMAIN, days(0, 60))
        .unwrap();
    assert!(key.belongs_to(&pem).unwrap());
    let file = files.put("leaf.crt", &pem).display().to_string();
    let (_, text) = openssl(&["x509", "-in", &file, "-noout", "-text"]);
    for said in [
        "Subject: CN = demo-controller-0\n",
        "Issuer: CN = demo.ziti root\n",
        "DNS:demo-controller-0.ns.svc, IP Address:FD00:0:0:0:0:0:0:1",
        "URI:spiffe://demo.ziti/controller/demo-controller-0",
        "Digital Signature, Key Encipherment",
        "TLS Web Server Authentication, TLS Web Client Authentication",
        "NIST CURVE: P-256",
    ] {
        assert!(text.contains(said), "no `{said}` in\n{text}");
    }
    assert!(
        !text.contains("spiffe://other"),
        "Ziti allows one SPIFFE id"
    );
    let (_, serial) = openssl(&["x509", "-in", &file, "-noout", "-serial"]);
    assert_eq!(serial.trim().len(), "serial=".len() + 32, "{serial}");
    let (_, print) = openssl(&["x509", "-in", &file, "-noout", "-fingerprint", "-sha1"]);
    let print = print.rsplit('=').next().unwrap();

    let facts = CertificateFacts::from_pem(&pem).unwrap();
    assert_eq!(
        print.trim().replace(':', "").to_lowercase(),
        facts.fingerprint
    );
    let authority = CertificateFacts::from_pem(root.cert_pem()).unwrap();
    assert!(authority.is_ca && !facts.is_ca);
    assert_eq!(authority.uris, ["spiffe://demo.ziti"]);
    assert_eq!(facts.issuer_key_id, authority.key_id);
    assert!(facts.issuer_key_id.is_some() && facts.key_id != facts.issuer_key_id);
    assert_eq!(facts.subject, "CN=demo-controller-0");
    assert_eq!((facts.dns, facts.ips), (wanted.dns, wanted.ips));
    assert_eq!(
        facts.uris,
        ["spiffe://demo.ziti/controller/demo-controller-0"]
    );
    assert_eq!(
        (facts.not_before, facts.not_after),
        (days(0, 60).not_before, days(0, 60).not_after)
    );
}

#[test]
fn what_cannot_be_a_certificate_is_refused_by_name_and_long_names_are_cut() {
    let bad = |name: &str| Authority::root(name, days(0, 1)).unwrap_err();
    for name in ["", "Demo", "a/b", "a b", &"a".repeat(256)] {
        assert!(matches!(bad(name), AuthorityError::BadTrustDomain { .. }));
    }
    let backwards = Authority::root("a", days(1, 1)).unwrap_err();
    assert!(matches!(backwards, AuthorityError::BadValidity { .. }));

    let files = Files::new();
    let long = "a".repeat(200);
    let root = Authority::root(&long, days(0, 9)).unwrap();
    let signer = root.signer(&"m".repeat(64), None, days(0, 9)).unwrap();
    let id = "c".repeat(64);
    let (leaf, key) = signer
        .controller_certificate(&id, &sans(), &long, days(0, 9))
        .unwrap();
    let root_file = files.put("root.crt", root.cert_pem());
    let signer_file = files.put("signer.crt", signer.cert_pem());
    let leaf_file = files.put("leaf.crt", &leaf);
    let chain = verified(&root_file, Some(&signer_file), &leaf_file, "sslserver", 1);
    assert_eq!(chain, Ok(()));
    let too_long = "c".repeat(65);
    let refused = root.controller_certificate(&too_long, &sans(), "a", days(0, 9));
    assert!(matches!(
        refused,
        Err(AuthorityError::BadControllerId { .. })
    ));

    let stored = Authority::load(
        root.cert_pem(),
        Key::from_pem(root.key().expose_pem()).unwrap(),
    );
    assert_eq!(stored.unwrap().cert_pem(), root.cert_pem());
    let other = Authority::load(root.cert_pem(), key.clone());
    assert!(matches!(other, Err(AuthorityError::OtherKey { .. })));
    let leaf = Authority::load(&leaf, key);
    assert!(matches!(leaf, Err(AuthorityError::NotAnAuthority { .. })));
    let not_a_root = signer.renewed(days(0, 9));
    assert!(matches!(not_a_root, Err(AuthorityError::NotARoot { .. })));
    assert!(!format!("{root:?}").contains("PRIVATE"));
}

/// Both forms of the controller's certificate, each on a controller of its own: a router enrolls,
/// comes into service, and its certificates verify under the root alone, by way of the signer.
#[tokio::test]
async fn a_controller_in_cluster_mode_runs_on_these_and_routers_enroll_at_it() {
    for by_root in [true, false] {
        let root = Authority::root(TRUST_DOMAIN, now()).unwrap();
        let signer = root.signer(MEMBER, None, now()).unwrap();
        let options = ControllerOptions {
            storage: Some(Storage::Cluster),
            pki: Some(controller_pki(&root, &signer, MEMBER, by_root)),
            ..ControllerOptions::default()
        };
        let controller = LocalController::start_with(&options).await.unwrap();
        let client = admin_client(&controller);
        let (id, token) = registered(&client, "first").await;
        let (key, identity) = redeemed(&token).await;
        let facts = CertificateFacts::from_pem(&identity.cert_pem).unwrap();
        let signed_by = CertificateFacts::from_pem(signer.cert_pem()).unwrap();
        assert_eq!(facts.issuer_key_id, signed_by.key_id);
        let files = Files::new();
        let root_file = files.put("root.crt", root.cert_pem());
        let cert = files.put("router.crt", &identity.cert_pem);
        let [root_file, cert] = [root_file, cert].map(|path| path.display().to_string());
        let args = ["verify", "-CAfile", &root_file, "-untrusted", &cert, &cert];
        let (good, said) = openssl(&args);
        assert!(good, "{said}");

        let dir = tempfile::tempdir().unwrap();
        write_identity(dir.path(), &key, &identity);
        let _router = LocalRouter::start(dir.path(), RouterOptions::default()).unwrap();
        router_until(&client, &id, "in service", EdgeRouterEntity::is_in_service).await;

        // Again for the same router: what was known is replaced.
        client.re_enroll(&id).await.unwrap();
        let token = token_of(&client, &id).await;
        let key = Key::generate().unwrap();
        let sans = sans();
        let again = enroll_router(&token, &enrollment(&key, &sans, None)).await;
        assert_ne!(again.unwrap().fingerprint, identity.fingerprint);
    }
}
