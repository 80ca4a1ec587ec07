//! Faults that a real controller does not show on demand: lost replies, silence, half lists. A
//! write is sent once, whatever happens; doubt never reads as absence.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod common;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{admin, router};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use ziti::management::{ErrorKind, Filter, ManagementClient, Options};
use ziti::trust::CaBundle;

enum Answer {
    /// Status and body.
    Reply(u16, &'static str),
    /// The connection is closed instead of an answer.
    Close,
    /// No answer, and the connection stays.
    Silence,
}

/// A server that answers by a script, and remembers what it was asked.
struct Fake {
    client: ManagementClient,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    /// `script` gets a request, `POST /path`, and how often this one came before. Logins succeed.
    async fn start(script: fn(&str, usize) -> Answer) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let der = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], der)
            .unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = asked.clone();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, log) = (acceptor.clone(), log.clone());
                tokio::spawn(async move {
                    // A client that goes away in the middle ends its connection, no more.
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    while let Some(request) = read_request(&mut stream).await {
                        let before = {
                            let mut log = log.lock().unwrap();
                            log.push(request.clone());
                            log.iter().filter(|asked| **asked == request).count() - 1
                        };
                        let answer = if request == "POST /authenticate" {
                            Answer::Reply(200, r#"{"data":{"token":"session"}}"#)
                        } else {
                            script(&request, before)
                        };
                        match answer {
                            Answer::Close => return,
                            Answer::Silence => std::future::pending().await,
                            Answer::Reply(status, body) => {
                                let length = body.len();
                                let head = format!("HTTP/1.1 {status} X\r\n");
                                let text = format!("{head}content-length: {length}\r\n\r\n{body}");
                                if stream.write_all(text.as_bytes()).await.is_err() {
                                    return;
                                }
                            }
                        }
                    }
                });
            }
        });
        let endpoint = format!("https://localhost:{port}").parse().unwrap();
        let ca = CaBundle::from_pem(&certificate.pem()).unwrap();
        let options = Options {
            timeout: Duration::from_secs(2),
        };
        let client = ManagementClient::new(&[endpoint], &ca, Some(admin()), &options).unwrap();
        Self { client, asked }
    }

    fn count(&self, request: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|asked| *asked == request).count()
    }
}

/// `METHOD /path`, below the management API and without parameters; the body is read and dropped.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    stream.read_exact(&mut vec![0; length]).await.ok()?;
    let mut words = head.split_whitespace();
    let method = words.next()?.to_ascii_uppercase();
    let path = words.next()?.split('?').next()?;
    let path = path.strip_prefix("/edge/management/v1").unwrap_or(path);
    Some(format!("{method} {path}"))
}

const REFUSAL: &str = r#"{"error":{"code":"UNAUTHORIZED","message":"no"}}"#;
const EMPTY: &str = r#"{"data":[],"meta":{"pagination":{"totalCount":0}}}"#;

#[tokio::test]
async fn a_write_whose_reply_is_lost_is_not_sent_again() {
    let fake = Fake::start(|_, _| Answer::Close).await;
    let error = fake.client.create_edge_router(&router("once")).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.may_have_committed());
    assert_eq!(fake.count("POST /edge-routers"), 1);
}

#[tokio::test]
async fn a_read_whose_reply_is_lost_is_sent_once_more() {
    let fake = Fake::start(|_, before| match before {
        0 => Answer::Close,
        _ => Answer::Reply(200, EMPTY),
    })
    .await;
    let listed = fake.client.edge_routers(&Filter::all()).await.unwrap();
    assert!(listed.items.is_empty());
    assert_eq!(fake.count("GET /edge-routers"), 2);

    let fake = Fake::start(|_, _| Answer::Close).await;
    let error = fake.client.edge_routers(&Filter::all()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert_eq!(fake.count("GET /edge-routers"), 2);
}

#[tokio::test]
async fn silence_ends_with_the_time_of_the_call() {
    let fake = Fake::start(|_, _| Answer::Silence).await;
    let started = Instant::now();
    let error = fake.client.re_enroll("r").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(
        error
            .to_string()
            .starts_with("POST /edge-routers/r/re-enroll:"),
        "{error}"
    );
    let error = fake.client.edge_router("r").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(started.elapsed() < Duration::from_secs(8));
    assert_eq!(fake.count("POST /edge-routers/r/re-enroll"), 1);
}

#[tokio::test]
async fn one_call_logs_in_again_at_most_once() {
    let fake = Fake::start(|_, _| Answer::Reply(401, REFUSAL)).await;
    let error = fake.client.edge_router("r").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden, "{error}");
    assert_eq!(fake.count("POST /authenticate"), 2);

    // A session that is alive is not replaced at all.
    let fake = Fake::start(|request, _| match request {
        "GET /current-api-session" => Answer::Reply(200, r#"{"data":{}}"#),
        _ => Answer::Reply(401, REFUSAL),
    })
    .await;
    let error = fake.client.edge_router("r").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden, "{error}");
    assert_eq!(fake.count("POST /authenticate"), 1);
}

#[tokio::test]
async fn what_is_not_the_word_of_ziti_is_not_taken_for_absence() {
    let fake = Fake::start(|_, _| Answer::Reply(404, "<html>no such page</html>")).await;
    let error = fake.client.edge_router("r").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
    let error = fake.client.delete_edge_router("r").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");

    let fake = Fake::start(|_, before| {
        Answer::Reply(
            200,
            match before {
                0 => r#"{"data":[],"meta":{"pagination":{"totalCount":1}}}"#,
                1 => r#"{"data":[{"name":"without an id"}],"meta":{}}"#,
                2 => r#"{"meta":{}}"#,
                _ => "",
            },
        )
    })
    .await;
    for _ in 0..4 {
        let error = fake.client.edge_routers(&Filter::all()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
    }
}
