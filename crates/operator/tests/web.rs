//! What `spec.web` becomes in a configuration, on a real controller: it is taken, and does what it
//! says.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::ZitiController;
use plan::controller::config::{PKI_DIR, files, of_member};
use plan::controller::web::{CERTIFICATE, CERTIFICATES_DIR, KEY};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ProtocolVersion, RootCertStore, SupportedProtocolVersion};
use serde_json::{Value, json};
use testbed::ziti::{LocalController, pki};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use ziti::authority::{Authority, Validity};
use ziti::pki::Sans;

const PATIENCE: Duration = Duration::from_mins(1);

/// A controller with the `web` section that the operator writes for this `spec.web`, with paths
/// and addresses of here in place of those in a pod.
async fn controller(web: Value, certificates: &Path) -> LocalController {
    let spec = serde_json::from_value(json!({"web": web})).unwrap();
    let mut object = ZitiController::new("lamp", spec);
    object.metadata.namespace = Some("coast".to_owned());
    let mut controller = LocalController::start().await.unwrap();
    let own = controller.pki_dir();
    let own = |name: &str| own.join(name).display().to_string();
    let mut text = of_member(&object, 0)["web"].to_string();
    for (there, here) in [
        ("0.0.0.0:1280", controller.address().to_owned()),
        (
            "lamp-controller-0.coast.svc:1280",
            controller.address().to_owned(),
        ),
        ("0.0.0.0:", "127.0.0.1:".to_owned()),
        ("lamp-controller-0.coast.svc:", "127.0.0.1:".to_owned()),
        (CERTIFICATES_DIR, certificates.display().to_string()),
        (&format!("{PKI_DIR}/{}", files::CERT), own(pki::CHAIN)),
        (&format!("{PKI_DIR}/{}", files::KEY), own(pki::KEY)),
        (&format!("{PKI_DIR}/{}", files::CA), own(pki::CA)),
    ] {
        text = text.replace(there, &here);
    }
    let web = serde_json::from_str(&text).unwrap();
    controller.set_web(&web).unwrap();
    let started = controller.restart().await;
    started.unwrap_or_else(|error| panic!("{error:#}\n{}", controller.log()));
    controller
}

/// A certificate for `name` by an authority that the network does not know.
fn foreign(name: &str, dir: &Path) -> String {
    let now = jiff::Timestamp::now();
    let validity = Validity {
        not_before: now - jiff::SignedDuration::from_mins(5),
        not_after: now + jiff::SignedDuration::from_hours(24),
    };
    let authority = Authority::root("public.test", validity).unwrap();
    let sans = Sans {
        dns: vec![name.to_owned()],
        ..Sans::default()
    };
    let issued = authority.controller_certificate(name, &sans, "public.test", validity);
    let (cert_pem, key) = issued.unwrap();
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join(CERTIFICATE), cert_pem).unwrap();
    std::fs::write(dir.join(KEY), key.expose_pem()).unwrap();
    authority.cert_pem().to_owned()
}

/// A connection that trusts this authority alone, and asks for this name.
async fn connect(
    address: &str,
    name: &str,
    ca_pem: &str,
    versions: &[&'static SupportedProtocolVersion],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream);
    timeout(PATIENCE, connected).await.unwrap()
}

/// Sends a request, and returns what comes until the other side hangs up.
async fn get(mut stream: TlsStream<TcpStream>, path: &str, more: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\n{more}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // Ziti ends connections without TLS's own goodbye.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer))
        .await
        .unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

const VERSION: &str = "/edge/management/v1/version";

#[tokio::test]
async fn other_names_are_answered_with_their_certificates_and_the_networks_own_with_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let authorities: Vec<String> = ["console.public.test", "api.public.test"]
        .iter()
        .enumerate()
        .map(|(index, name)| foreign(name, &dir.path().join(index.to_string())))
        .collect();
    let web = json!({"altServerCerts": [
        {"secretRef": {"name": "a"}}, {"secretRef": {"name": "b"}},
    ]});
    let controller = controller(web, dir.path()).await;
    let own = controller.ca_pem();
    for (name, ca) in [
        ("console.public.test", authorities[0].as_str()),
        ("api.public.test", authorities[1].as_str()),
        ("localhost", own),
        ("127.0.0.1", own),
    ] {
        let stream = connect(controller.address(), name, ca, rustls::ALL_VERSIONS).await;
        let stream = stream.unwrap_or_else(|error| panic!("{name}: {error}"));
        let answer = get(stream, VERSION, "Connection: close\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{name}: {answer}");
    }
    let other = connect(
        controller.address(),
        "api.public.test",
        own,
        rustls::ALL_VERSIONS,
    );
    other.await.unwrap_err();
}

#[tokio::test]
async fn options_and_metrics_are_taken() {
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let web = json!({
        "options": {
            "idleTimeout": "700ms", "readTimeout": "3s", "writeTimeout": "20s",
            "minTLSVersion": "TLS1.3", "maxTLSVersion": "TLS1.3",
        },
        "metrics": {"port": port},
    });
    let controller = controller(web, Path::new("/nowhere")).await;
    let ca = controller.ca_pem();
    for address in [controller.address(), &format!("127.0.0.1:{port}")] {
        let old = connect(address, "localhost", ca, &[&rustls::version::TLS12]).await;
        let error = old.unwrap_err().to_string();
        assert!(error.contains("ProtocolVersion"), "{address}: {error}");
    }

    let address = controller.address();
    let stream = connect(address, "localhost", ca, rustls::ALL_VERSIONS).await;
    let stream = stream.unwrap();
    let spoken = stream.get_ref().1.protocol_version();
    assert_eq!(spoken, Some(ProtocolVersion::TLSv1_3));
    // It is kept for as long as it may be idle, and no longer.
    let begun = std::time::Instant::now();
    let answer = get(stream, VERSION, "").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let kept = begun.elapsed();
    let expected = Duration::from_millis(600)..Duration::from_millis(4500);
    assert!(expected.contains(&kept), "kept for {kept:?}");

    let address = format!("127.0.0.1:{port}");
    let stream = connect(&address, "localhost", ca, rustls::ALL_VERSIONS).await;
    let answer = get(stream.unwrap(), "/metrics", "Connection: close\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("# TYPE "), "{answer}");
}
