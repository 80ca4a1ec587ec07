//! The event stream of a real controller, and what a controller that misbehaves comes to.

#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{
    PATIENCE, admin, admin_client, client, password, redeemed, registered, router_until,
    write_identity,
};
use futures::{SinkExt, StreamExt};
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use serde_json::json;
use testbed::ziti::{LocalController, LocalRouter, RouterOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use ziti::events::{EventStream, EventsError, FrameError, RouterChange, RouterEvent};
use ziti::management::{EdgeRouterEntity, ManagementClient, Options};
use ziti::trust::CaBundle;

async fn next(stream: &mut EventStream) -> Result<RouterEvent, EventsError> {
    let next = tokio::time::timeout(PATIENCE, stream.next()).await;
    next.unwrap()
}

fn told(id: &str, change: RouterChange) -> RouterEvent {
    RouterEvent {
        router_id: id.to_owned(),
        change,
    }
}

#[tokio::test]
async fn the_coming_and_going_of_a_router_is_told() {
    let mut controller = LocalController::start().await.unwrap();
    let client = admin_client(&controller);
    let (id, token) = registered(&client, "told").await;
    let (key, identity) = redeemed(&token).await;
    let dir = tempfile::tempdir().unwrap();
    write_identity(dir.path(), &key, &identity);
    let mut stream = client.events().await.unwrap();

    let router = LocalRouter::start(dir.path(), RouterOptions::default()).unwrap();
    let event = next(&mut stream).await.unwrap();
    assert_eq!(event, told(&id, RouterChange::Online));
    let in_service = EdgeRouterEntity::is_in_service;
    router_until(&client, &id, "in service", in_service).await;

    let ended = Instant::now();
    drop(router);
    let event = next(&mut stream).await.unwrap();
    println!("a killed router is told after {:?}", ended.elapsed());
    assert_eq!(event, told(&id, RouterChange::Offline));
    // The row follows its event.
    router_until(&client, &id, "offline", |router| !router.is_online).await;

    // The end of the controller is the end of the stream, and of no router. The next stream needs
    // no other client.
    let _router = LocalRouter::start(dir.path(), RouterOptions::default()).unwrap();
    let event = next(&mut stream).await.unwrap();
    assert_eq!(event, told(&id, RouterChange::Online));
    controller.stop().unwrap();
    let error = next(&mut stream).await.unwrap_err();
    assert!(matches!(error, EventsError::Ended { .. }), "{error}");
    let error = client.events().await.unwrap_err();
    assert!(!error.is_refusal(), "{error}");
    controller.restart().await.unwrap();
    client.events().await.unwrap();
}

#[tokio::test]
async fn only_an_administrator_is_given_the_stream_and_a_session_that_is_over_is_replaced() {
    let controller = LocalController::start().await.unwrap();
    let root = admin_client(&controller);
    let plain = json!({"name": "plain", "type": "Default", "isAdmin": false});
    let plain = root.post("/identities", &plain).await.unwrap();
    let updb = json!({"method": "updb", "identityId": plain["id"],
        "username": "plain", "password": "plain-password"});
    root.post("/authenticators", &updb).await.unwrap();
    let plain = client(&controller, Some(password("plain", "plain-password")));
    let error = plain.events().await.unwrap_err();
    assert!(matches!(error, EventsError::Forbidden { .. }), "{error}");
    assert!(error.is_refusal());

    let sessions = root.get("/current-api-session", &[]).await.unwrap();
    let path = format!("/api-sessions/{}", sessions["id"].as_str().unwrap());
    admin_client(&controller).delete(&path).await.unwrap();
    root.events().await.unwrap();
    let stranger = client(&controller, None).events().await.unwrap_err();
    assert!(matches!(stranger, EventsError::Login { .. }), "{stranger}");
}

type Peer = WebSocketStream<TlsStream<TcpStream>>;

/// A controller that takes one login, and then one more connection.
struct Fake {
    client: ManagementClient,
    /// The connection after the login.
    upgrade: tokio::sync::oneshot::Receiver<TlsStream<TcpStream>>,
}

impl Fake {
    async fn start() -> Self {
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
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (upgrade, upgraded) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let (login, _) = listener.accept().await.unwrap();
            let mut login = acceptor.accept(login).await.unwrap();
            let mut head = Vec::new();
            while !head.windows(5).any(|bytes| bytes == b"\r\n\r\n{") {
                head.push(login.read_u8().await.unwrap());
            }
            let body = r#"{"data":{"token":"session"}}"#;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}", body.len());
            let reply = format!("{head}\r\nconnection: close\r\n\r\n{body}");
            login.write_all(reply.as_bytes()).await.unwrap();
            let (next, _) = listener.accept().await.unwrap();
            upgrade.send(acceptor.accept(next).await.unwrap()).unwrap();
        });
        let endpoint = format!("https://localhost:{port}").parse().unwrap();
        let ca = CaBundle::from_pem(&certificate.pem()).unwrap();
        let options = Options {
            timeout: Duration::from_secs(2),
        };
        let client = ManagementClient::new(&[endpoint], &ca, Some(admin()), &options).unwrap();
        Self {
            client,
            upgrade: upgraded,
        }
    }

    /// An open stream and its other end.
    async fn open() -> (EventStream, Peer) {
        let Self { client, upgrade } = Self::start().await;
        let serve = async {
            let mut peer = tokio_tungstenite::accept_async(upgrade.await.unwrap())
                .await
                .unwrap();
            let asked = peer.next().await.unwrap().unwrap().into_data();
            assert_eq!(asked[4..8], 10040_u32.to_le_bytes());
            peer.send(Message::binary(answer(1))).await.unwrap();
            peer
        };
        let (stream, peer) = tokio::join!(client.events(), serve);
        (stream.unwrap(), peer)
    }
}

/// The answer to message 1.
fn answer(success: u8) -> Vec<u8> {
    let mut bytes = vec![3, 6, 9, 12, 2, 0, 0, 0, 7, 0, 0, 0, 21, 0, 0, 0, 2, 0, 0, 0];
    bytes.extend([1, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0]);
    bytes.extend([2, 0, 0, 0, 1, 0, 0, 0, success]);
    bytes.extend(b"no");
    bytes
}

#[tokio::test]
async fn what_is_no_event_is_passed_over_or_ends_the_stream() {
    let (mut stream, mut peer) = Box::pin(Fake::open()).await;
    peer.send(Message::text("hello")).await.unwrap();
    peer.send(Message::binary(answer(1))).await.unwrap();
    peer.send(Message::binary(vec![0; 40])).await.unwrap();
    let error = next(&mut stream).await.unwrap_err();
    let source = FrameError::NotAChannel;
    assert!(
        matches!(&error, EventsError::Malformed { source: found, .. } if *found == source),
        "{error}"
    );

    let (mut stream, mut peer) = Box::pin(Fake::open()).await;
    let length = 64 * 1024 + 1;
    // It may be hung up on before it is through.
    let _ = peer.send(Message::binary(vec![0; length])).await;
    let error = next(&mut stream).await.unwrap_err();
    let EventsError::Malformed { source, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*source, FrameError::TooLarge { length });

    let (mut stream, mut peer) = Box::pin(Fake::open()).await;
    peer.close(None).await.unwrap();
    let error = next(&mut stream).await.unwrap_err();
    assert!(matches!(error, EventsError::Ended { .. }), "{error}");
}

#[tokio::test]
async fn a_refusal_says_what_it_is() {
    let Fake { client, upgrade } = Fake::start().await;
    let serve = async {
        let mut stream = upgrade.await.unwrap();
        let reply = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(reply).await.unwrap();
        stream
    };
    let (refused, _stream) = tokio::join!(client.events(), serve);
    let error = refused.unwrap_err();
    let is_404 = matches!(error, EventsError::Unsupported { status: 404, .. });
    assert!(is_404 && error.is_refusal(), "{error}");

    let Fake { client, upgrade } = Fake::start().await;
    let serve = async {
        let stream = upgrade.await.unwrap();
        let mut peer = tokio_tungstenite::accept_async(stream).await.unwrap();
        peer.next().await.unwrap().unwrap();
        peer.send(Message::binary(answer(0))).await.unwrap();
        peer
    };
    let (refused, _peer) = tokio::join!(client.events(), serve);
    let error = refused.unwrap_err();
    assert!(error.to_string().ends_with("subscription: no"), "{error}");
    assert!(matches!(error, EventsError::Refused { .. }) && error.is_refusal());
}

#[tokio::test]
async fn silence_ends_the_stream_and_the_way_to_it() {
    let Fake { client, upgrade } = Fake::start().await;
    let started = Instant::now();
    let error = client.events().await.unwrap_err();
    assert!(matches!(error, EventsError::Unreachable { .. }), "{error}");
    assert!(!error.is_refusal() && started.elapsed() < Duration::from_secs(8));
    drop(upgrade);

    // From here on time passes when everybody waits: the peer lives, and answers no ping.
    let (mut stream, _peer) = Box::pin(Fake::open()).await;
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    let error = stream.next().await.unwrap_err();
    assert!(matches!(error, EventsError::Silent { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn a_stream_without_events_lives_on_signs_of_life() {
    let (mut stream, mut peer) = Box::pin(Fake::open()).await;
    tokio::time::pause();
    let mut pings = 0;
    let answering = async {
        while pings < 6 {
            // Reading answers them.
            let message = peer.next().await.unwrap().unwrap();
            pings += usize::from(message.is_ping());
        }
    };
    tokio::select! {
        ended = stream.next() => panic!("{ended:?}"),
        () = answering => {}
    }
    assert_eq!(pings, 6);
}
