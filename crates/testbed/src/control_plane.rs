//! How etcd and the programs of the Kubernetes control plane are started. Used by the API server
//! of the tests ([`crate::apiserver`]) and by the whole cluster ([`crate::cluster`]), which differ
//! in addresses, ports and fate only.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::kubernetes;
use crate::paths;
use crate::pki::{Pki, Subject};
use crate::process::{Daemon, Fate, Running};

/// Which requests go to the audit log: all writes, reads none. Metadata level, so that no Secret gets
/// into it.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, verbs: [get, list, watch]}
- {level: Metadata}
";

/// The same with the reads of `ServiceAccounts` that are not the cluster's own.
const AUDIT_POLICY_WITH_READS: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, verbs: [get, list, watch], userGroups: ['system:serviceaccounts:kube-system']}
- {level: Metadata, userGroups: ['system:serviceaccounts']}
- {level: None, verbs: [get, list, watch]}
- {level: Metadata}
";

/// What the programs of one control plane have in common.
#[derive(Debug, Clone)]
pub(crate) struct ControlPlane {
    /// Where the programs are.
    pub(crate) bin: PathBuf,
    /// Where state, certificates and logs go.
    pub(crate) dir: PathBuf,
    /// The address of the API server, for its clients and its certificate.
    pub(crate) address: Ipv4Addr,
    /// The port of the API server.
    pub(crate) port: u16,
    /// The ports of etcd on loopback: clients, peers.
    pub(crate) etcd_ports: (u16, u16),
    /// The range of the Services' addresses.
    pub(crate) services: String,
    /// The first address of that range: Service `kubernetes` in `default`.
    pub(crate) first_service: Ipv4Addr,
    /// The range of the pods' addresses.
    pub(crate) pods: String,
    /// The network namespace, none is the host's.
    pub(crate) netns: Option<PathBuf>,
    /// Whether the programs outlive us.
    pub(crate) fate: Fate,
    /// Whether the reads of `ServiceAccounts` are in the audit log as well.
    pub(crate) audit_reads: bool,
}

impl ControlPlane {
    /// Makes certificates, kubeconfigs and the audit policy where they are missing.
    pub(crate) fn prepare(&self) -> Result<()> {
        let pki = self.pki()?;
        pki.issue(
            "apiserver",
            &Subject {
                common_name: "kube-apiserver",
                dns: [
                    "localhost",
                    "kubernetes",
                    "kubernetes.default",
                    "kubernetes.default.svc",
                    "kubernetes.default.svc.cluster.local",
                ]
                .map(str::to_owned)
                .to_vec(),
                ips: vec![
                    IpAddr::V4(Ipv4Addr::LOCALHOST),
                    IpAddr::V4(self.address),
                    IpAddr::V4(self.first_service),
                ],
                ..Subject::default()
            },
        )?;
        for (name, user, group) in [
            ("admin", "admin", Some("system:masters")),
            ("controller-manager", "system:kube-controller-manager", None),
            ("scheduler", "system:kube-scheduler", None),
        ] {
            self.user(name, user, group)?;
        }
        let policy = if self.audit_reads {
            AUDIT_POLICY_WITH_READS
        } else {
            AUDIT_POLICY
        };
        paths::write(&self.dir.join("audit-policy.yaml"), policy)
    }

    /// Makes a client certificate and a kubeconfig for a user.
    pub(crate) fn user(&self, name: &str, user: &str, group: Option<&str>) -> Result<()> {
        let pki = self.pki()?;
        pki.issue(
            name,
            &Subject {
                common_name: user,
                organization: group,
                ..Subject::default()
            },
        )?;
        pki.kubeconfig(name, &self.url(), &self.kubeconfig(name))
    }

    /// The PKI of this control plane.
    pub(crate) fn pki(&self) -> Result<Pki> {
        Pki::open(self.dir.join("pki"))
    }

    /// The kubeconfig of that user.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.dir.join(format!("{user}.kubeconfig"))
    }

    /// The URL of the API server.
    pub(crate) fn url(&self) -> String {
        format!("https://{}:{}", self.address, self.port)
    }

    /// The API server's audit log: each write, one JSON object per line.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.dir.join("log/audit.jsonl")
    }

    /// A program of this control plane, with its log, fate and network namespace.
    pub(crate) fn daemon(&self, name: &str, program: &Path) -> Daemon {
        let mut daemon = Daemon::new(name, program, self.dir.join(format!("log/{name}.log")));
        daemon.netns.clone_from(&self.netns);
        daemon.fate = self.fate;
        daemon
    }

    /// etcd. Without fsync: nobody mourns a testbed after a power cut.
    pub(crate) fn etcd(&self) -> Daemon {
        let (clients, peers) = self.etcd_ports;
        let clients = format!("http://127.0.0.1:{clients}");
        let peers = format!("http://127.0.0.1:{peers}");
        self.daemon("etcd", &self.bin.join("etcd")).args([
            format!("--data-dir={}", self.dir.join("etcd").display()),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ])
    }

    /// The API server.
    pub(crate) fn apiserver(&self) -> Result<Daemon> {
        let pki = self.pki()?;
        let show = |path: PathBuf| path.display().to_string();
        Ok(self
            .daemon("kube-apiserver", &self.bin.join("kube-apiserver"))
            .args([
                format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_ports.0),
                format!("--bind-address={}", self.address),
                format!("--advertise-address={}", self.address),
                format!("--secure-port={}", self.port),
                format!("--service-cluster-ip-range={}", self.services),
                format!("--cert-dir={}", show(self.dir.join("pki"))),
                format!("--client-ca-file={}", show(pki.ca())),
                format!("--tls-cert-file={}", show(pki.certificate("apiserver"))),
                format!("--tls-private-key-file={}", show(pki.key("apiserver"))),
                format!(
                    "--service-account-key-file={}",
                    show(pki.service_account_public_key())
                ),
                format!(
                    "--service-account-signing-key-file={}",
                    show(pki.service_account_key())
                ),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                "--authorization-mode=Node,RBAC".to_owned(),
                // The last two let a test say for a namespace of its own which nodes its pods may
                // or must have.
                "--enable-admission-plugins=NodeRestriction,PodNodeSelector,\
                 PodTolerationRestriction"
                    .to_owned(),
                // Else logs and exec look the node up by its host name, which nobody resolves.
                "--kubelet-preferred-address-types=InternalIP".to_owned(),
                format!(
                    "--kubelet-client-certificate={}",
                    show(pki.certificate("admin"))
                ),
                format!("--kubelet-client-key={}", show(pki.key("admin"))),
                "--allow-privileged=true".to_owned(),
                format!(
                    "--audit-policy-file={}",
                    show(self.dir.join("audit-policy.yaml"))
                ),
                format!("--audit-log-path={}", show(self.audit_log())),
                // A request is answered after it is in the log: a test can count at once.
                "--audit-log-mode=blocking".to_owned(),
                // Else a polite end waits a minute for watches that hang.
                "--shutdown-delay-duration=0s".to_owned(),
                "--profiling=false".to_owned(),
            ]))
    }

    /// The controller manager; `controllers` as its flag `--controllers` takes them (`*` is all).
    pub(crate) fn controller_manager(&self, controllers: &str, port: u16) -> Result<Daemon> {
        let pki = self.pki()?;
        Ok(self
            .daemon(
                "kube-controller-manager",
                &self.bin.join("kube-controller-manager"),
            )
            .args([
                format!(
                    "--kubeconfig={}",
                    self.kubeconfig("controller-manager").display()
                ),
                format!("--root-ca-file={}", pki.ca().display()),
                format!(
                    "--service-account-private-key-file={}",
                    pki.service_account_key().display()
                ),
                format!("--cluster-signing-cert-file={}", pki.ca().display()),
                format!("--cluster-signing-key-file={}", pki.ca_key().display()),
                format!("--cluster-cidr={}", self.pods),
                format!("--service-cluster-ip-range={}", self.services),
                format!("--controllers={controllers}"),
                format!("--secure-port={port}"),
                "--bind-address=127.0.0.1".to_owned(),
                "--use-service-account-credentials=true".to_owned(),
                "--leader-elect=false".to_owned(),
                "--profiling=false".to_owned(),
            ]))
    }

    /// The scheduler.
    pub(crate) fn scheduler(&self) -> Daemon {
        self.daemon("kube-scheduler", &self.bin.join("kube-scheduler"))
            .args([
                format!("--kubeconfig={}", self.kubeconfig("scheduler").display()),
                "--bind-address=127.0.0.1".to_owned(),
                "--leader-elect=false".to_owned(),
                "--profiling=false".to_owned(),
            ])
    }

    /// Waits until the API server says that it is ready, RBAC's own roles included. Gives up at
    /// once when one of the programs ends.
    pub(crate) async fn wait_ready(&self, running: &[Running], within: Duration) -> Result<()> {
        let kubeconfig = self.kubeconfig("admin");
        let client = kubernetes::client(&kubeconfig).await?;
        kubernetes::poll("the API server to be ready", within, async || {
            for program in running {
                program.ensure_alive()?;
            }
            Ok(kubernetes::get_text(&client, "/readyz")
                .await
                .is_ok()
                .then_some(()))
        })
        .await
        .with_context(|| {
            format!(
                "the end of the API server's log:\n{}",
                crate::process::tail(&self.dir.join("log/kube-apiserver.log"), 30)
            )
        })
    }
}
