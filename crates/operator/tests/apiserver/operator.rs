//! The operator itself, as a child process.

use std::path::PathBuf;
use std::time::Duration;

use testbed::process::{Daemon, Fate, Running};

use crate::world::World;

/// The images of the first operator of a test.
pub(crate) const AGENT_IMAGE: &str = "registry.example/agent:1";
/// See [`AGENT_IMAGE`].
pub(crate) const ROUTER_IMAGE: &str = "registry.example/router:1";

/// How an operator differs from the usual one.
pub(crate) struct Options<'a> {
    /// `--install-id`; by default the namespace.
    pub(crate) install_id: Option<&'a str>,
    pub(crate) agent_image: &'a str,
    pub(crate) router_image: &'a str,
    /// `RUST_LOG`.
    pub(crate) log: &'a str,
    /// Whether a Lease is used, and further arguments.
    pub(crate) lease: Option<&'a [&'a str]>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            install_id: None,
            agent_image: AGENT_IMAGE,
            router_image: ROUTER_IMAGE,
            log: "info,ziti_operator=debug,kube_runtime=warn",
            lease: None,
        }
    }
}

/// A running operator. It is killed when dropped; its log is shown when the test fails.
pub(crate) struct Operator {
    running: Running,
    log: PathBuf,
}

impl Operator {
    /// Starts one for the namespace of a test, with the rights of its account there.
    pub(crate) fn start(world: &World) -> Self {
        Self::start_with(world, &Options::default())
    }

    /// The same, with differences.
    pub(crate) fn start_with(world: &World, options: &Options) -> Self {
        let log = world
            .dir()
            .join(format!("log/operator-{}.log", world.namespace));
        let install_id = options.install_id.unwrap_or(&world.namespace);
        let program = env!("CARGO_BIN_EXE_ziti-operator");
        let mut daemon = Daemon::new("ziti-operator", program, &log).args([
            "run",
            "--install-id",
            install_id,
            "--agent-image",
            options.agent_image,
            "--router-image",
            options.router_image,
            "--watch-namespace",
            &world.namespace,
            "--health-address",
            "127.0.0.1:0",
        ]);
        if let Some(more) = options.lease {
            daemon = daemon
                .args(["--lease-namespace", &world.namespace])
                .args(more);
        }
        let kubeconfig = world.operator_kubeconfig().display().to_string();
        daemon.env.insert("KUBECONFIG".to_owned(), kubeconfig);
        daemon
            .env
            .insert("RUST_LOG".to_owned(), options.log.to_owned());
        daemon.fate = Fate::DiesWithUs;
        Self {
            running: daemon.start().unwrap(),
            log,
        }
    }

    /// Ends it without a warning, at whatever it is doing.
    pub(crate) fn kill(self) {
        self.running.kill();
    }

    /// Ends it politely, and waits until it is gone.
    pub(crate) fn stop(self) {
        self.running.stop(Duration::from_secs(10)).unwrap();
    }

    /// What it and those before it in this namespace have logged.
    pub(crate) fn log(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.running.kill();
        if std::thread::panicking() {
            println!(
                "the operator's log:\n{}",
                testbed::process::tail(&self.log, 60)
            );
        }
    }
}
