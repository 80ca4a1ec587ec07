//! A pod's volume and token, and the controller that the token is of: what the tests against a real
//! controller share.

#![allow(dead_code, reason = "each test file uses its part of it")]
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agent::disk::RealDisk;
use agent::enroll::{OnMismatch, Request, enroll};
use agent::report::{Outcome, Reason, Report};
use agent::volume::Volume;
use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use tempfile::TempDir;
use testbed::ziti::{LocalController, LocalRouter, RouterOptions};
use tokio::sync::watch;
use ziti::SecretString;
use ziti::enroll::RouterIdentity;
use ziti::management::{Credential, ManagementClient, NewEdgeRouter, Options};
use ziti::pki::Sans;
use ziti::trust::CaBundle;

/// For conditions that take a second on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// A router's volume and what it is given, as the pod has them.
pub(crate) struct Pod {
    dir: TempDir,
    pub(crate) request: Request,
}

impl Pod {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let request = Request {
            identity_dir: dir.path().join("config"),
            token_file: dir.path().join("token"),
            sans: Sans {
                dns: vec!["localhost".to_owned()],
                ips: vec![LocalRouter::ADDRESS.parse().unwrap()],
                uris: Vec::new(),
            },
            names_file: None,
            endpoints: Vec::new(),
            on_mismatch: OnMismatch::Refuse,
            ca_file: None,
            retry_for: Duration::ZERO,
        };
        Self { dir, request }
    }

    pub(crate) fn give(&self, token: &str) {
        std::fs::write(&self.request.token_file, token).unwrap();
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) async fn run(&self) -> Report {
        let (_sender, stop) = watch::channel(false);
        enroll(&self.request, RealDisk, stop).await
    }

    pub(crate) async fn fails(&self, reason: Reason) -> Report {
        let report = self.run().await;
        assert_eq!(report.outcome, Outcome::Failed, "{report:?}");
        assert_eq!(report.reason, Some(reason), "{report:?}");
        report
    }

    pub(crate) async fn succeeds(&self, outcome: Outcome) -> Report {
        let report = self.run().await;
        assert_eq!(
            (report.outcome, report.reason),
            (outcome, None),
            "{report:?}"
        );
        report
    }
}

pub(crate) fn admin(controller: &LocalController) -> ManagementClient {
    let credential = Credential::Password {
        username: LocalController::USERNAME.to_owned(),
        password: SecretString::from(LocalController::PASSWORD),
    };
    let ca = CaBundle::from_pem(controller.ca_pem()).unwrap();
    let endpoints = [controller.url().parse().unwrap()];
    ManagementClient::new(&endpoints, &ca, Some(credential), &Options::default()).unwrap()
}

/// Registers a router: its id and its token.
pub(crate) async fn registered(client: &ManagementClient, name: &str) -> (String, String) {
    let router = NewEdgeRouter {
        name: name.to_owned(),
        ..NewEdgeRouter::default()
    };
    let id = client.create_edge_router(&router).await.unwrap();
    let token = token_of(client, &id).await;
    (id, token)
}

pub(crate) async fn token_of(client: &ManagementClient, id: &str) -> String {
    let entity = client.edge_router(id).await.unwrap().unwrap();
    let token = entity.enrollment_token().unwrap().unwrap();
    token.expose().to_owned()
}

/// Puts an identity of router `id` on the volume that ran out years ago.
pub(crate) fn expired_identity(directory: &Path, id: &str) {
    let volume = Volume::new(directory, RealDisk);
    let key = volume.prepare_key().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, id);
    params.not_before = rcgen::date_time_ymd(2019, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let pair = KeyPair::from_pem(key.expose_pem()).unwrap();
    let pem = params.self_signed(&pair).unwrap().pem();
    let identity = RouterIdentity {
        id: id.to_owned(),
        cert_pem: pem.clone(),
        server_cert_pem: pem.clone(),
        ca_pem: pem,
        controllers: Vec::new(),
        fingerprint: String::new(),
        not_after: Timestamp::UNIX_EPOCH,
    };
    let endpoints = ["tls:localhost:1".to_owned()];
    volume
        .install(&identity, &endpoints, "0123456789abcdef")
        .unwrap();
}

/// Starts a router on the pod's identity and waits until it serves.
pub(crate) async fn in_service(client: &ManagementClient, id: &str, pod: &Pod) -> LocalRouter {
    let router = LocalRouter::start(&pod.request.identity_dir, RouterOptions::default()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let entity = client.edge_router(id).await.unwrap().unwrap();
        if entity.is_in_service() {
            return router;
        }
        router.ensure_alive().unwrap();
        assert!(
            Instant::now() < deadline,
            "not in service:\n{}",
            router.log()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
