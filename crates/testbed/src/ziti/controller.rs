//! A real Ziti controller on loopback, for tests.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::config::{self, ControllerConfig, Storage};
use super::pki::{Authority, ControllerPki};
use super::{port, version, ziti_bin};
use crate::process::{Daemon, Fate, Running, tail};

/// How long a start may take. It takes 2 s alone, and there are tests beside it.
const START_DEADLINE: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(50);

/// How a controller differs from the usual one.
#[derive(Debug, Clone)]
pub struct ControllerOptions {
    /// How long enrollment tokens live; at least five minutes, or Ziti makes it 180.
    pub token_life: Duration,
    /// Kind of database; by the program's version where it is not said.
    pub storage: Option<Storage>,
    /// Certificates; its own where they are not given. They must be good for `localhost` and
    /// 127.0.0.1.
    pub pki: Option<ControllerPki>,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            token_life: Duration::from_mins(30),
            storage: None,
            pki: None,
        }
    }
}

/// A running controller with an administrator. It ends when this value is dropped, or when the
/// process ends, however it ends; its directory goes with it.
#[derive(Debug)]
pub struct LocalController {
    dir: TempDir,
    program: PathBuf,
    storage: Storage,
    ca_pem: String,
    address: String,
    http: reqwest::Client,
    running: Option<Running>,
}

impl LocalController {
    /// Name of the administrator.
    pub const USERNAME: &str = "admin";
    /// Password of the administrator.
    pub const PASSWORD: &str = "a-test-password";

    /// Starts a controller on a free port, with certificates of its own, and returns once the
    /// administrator can log in.
    pub async fn start() -> Result<Self> {
        Self::start_with(&ControllerOptions::default()).await
    }

    /// The same, with differences.
    pub async fn start_with(options: &ControllerOptions) -> Result<Self> {
        let mut controller = Self::prepare(options)?;
        controller.set_up().await?;
        Ok(controller)
    }

    /// Starts a controller that waits to be taken into a cluster: it has no administrator, and
    /// answers nothing yet. The options must name the cluster's kind of database, and certificates
    /// of the cluster.
    pub fn start_joiner(options: &ControllerOptions) -> Result<Self> {
        let mut controller = Self::prepare(options)?;
        let data = controller.path("data");
        std::fs::create_dir_all(&data).with_context(|| format!("creating {}", data.display()))?;
        controller.run()?;
        Ok(controller)
    }

    fn prepare(options: &ControllerOptions) -> Result<Self> {
        let program = ziti_bin()?;
        let storage = match options.storage {
            Some(storage) => storage,
            None => Storage::of_version(&version(&program)?),
        };
        let dir = tempfile::tempdir().context("making a directory for a Ziti controller")?;
        let address = format!("127.0.0.1:{}", port::free()?);
        let pki = if let Some(pki) = &options.pki {
            pki.clone()
        } else {
            let names = ["localhost".to_owned()];
            Authority::new("test.ziti")?.controller("ctrl", &names, &["127.0.0.1".parse()?])?
        };
        let controller = Self {
            http: client(&pki.ca_pem)?,
            dir,
            program,
            storage,
            ca_pem: pki.ca_pem.clone(),
            address,
            running: None,
        };
        pki.write_to(&controller.path("pki"))?;
        let config = ControllerConfig {
            storage,
            pki_dir: controller.path("pki"),
            data_dir: controller.path("data"),
            bind: controller.address.clone(),
            advertise: controller.address.clone(),
            token_life: options.token_life,
        };
        config::write(&controller.path("ctrl.yaml"), &config.render()?)?;
        Ok(controller)
    }

    /// `https://127.0.0.1:port`: management and client API.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// `tls:127.0.0.1:port`: what routers dial.
    pub fn control_plane(&self) -> String {
        format!("tls:{}", self.address)
    }

    /// `127.0.0.1:port`: where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Where the files of [`super::pki::ControllerPki::files`] are.
    pub fn pki_dir(&self) -> PathBuf {
        self.path("pki")
    }

    /// Gives it another `web` section from its next start on.
    pub fn set_web(&self, web: &Value) -> Result<()> {
        let path = self.path("ctrl.yaml");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        let mut config: Value = serde_saphyr::from_str(&text)
            .with_context(|| format!("reading {} as YAML", path.display()))?;
        config["web"] = web.clone();
        let text = serde_saphyr::to_string(&config).context("writing a configuration as YAML")?;
        config::write(&path, &text)
    }

    /// The authority of its network, PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The end of its log, for the message of a failed test.
    pub fn log(&self) -> String {
        tail(&self.path("log"), 40)
    }

    /// Ends it; [`Self::restart`] brings the same network back.
    pub fn stop(&mut self) -> Result<()> {
        match self.running.take() {
            Some(running) => running.stop(Duration::from_secs(10)),
            None => Ok(()),
        }
    }

    /// Whether it is a cluster, of one: all of 2.x are.
    pub fn is_cluster(&self) -> bool {
        self.storage == Storage::Cluster
    }

    /// Ends it if it runs, and starts it again with its database. A cluster takes logins and reads
    /// some seconds before it has elected its leader, and writes only then.
    pub async fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.run()?;
        self.wait_for_login().await
    }

    /// Another network at the same address under the same authority: the database is new, the
    /// certificates are not.
    pub async fn rebuild(&mut self) -> Result<()> {
        self.stop()?;
        let data = self.path("data");
        std::fs::remove_dir_all(&data).with_context(|| format!("removing {}", data.display()))?;
        self.set_up().await
    }

    async fn set_up(&mut self) -> Result<()> {
        let data = self.path("data");
        std::fs::create_dir_all(&data).with_context(|| format!("creating {}", data.display()))?;
        match self.storage {
            Storage::Standalone => {
                let config = self.path("ctrl.yaml");
                self.ziti(&[
                    "controller".as_ref(),
                    "edge".as_ref(),
                    "init".as_ref(),
                    config.as_ref(),
                    "-u".as_ref(),
                    Self::USERNAME.as_ref(),
                    "-p".as_ref(),
                    Self::PASSWORD.as_ref(),
                ])?;
                self.run()?;
            }
            Storage::Cluster => {
                self.run()?;
                self.init_cluster().await?;
            }
        }
        self.wait_for_login().await
    }

    /// The agent listens a moment after the start, so it is asked until it does.
    async fn init_cluster(&self) -> Result<()> {
        let pid = self
            .running
            .as_ref()
            .map_or(0, |running| running.pid)
            .to_string();
        let args = ["agent", "cluster", "init", "-p", &pid];
        let args = args
            .into_iter()
            .chain([Self::USERNAME, Self::PASSWORD, "Default Admin"]);
        let args: Vec<&Path> = args.map(Path::new).collect();
        self.until("its agent takes the administrator", async || {
            self.ziti(&args)
        })
        .await
    }

    fn run(&mut self) -> Result<()> {
        let mut daemon = Daemon::new("ziti-controller", &self.program, self.path("log"));
        let config: OsString = self.path("ctrl.yaml").into();
        daemon = daemon.args([OsString::from("controller"), "run".into(), config]);
        // The agent's socket lies in the temporary directory, under the pid.
        let temp = self.dir.path().display().to_string();
        daemon.env.insert("TMPDIR".to_owned(), temp);
        daemon.fate = Fate::DiesWithUs;
        self.running = Some(daemon.start()?);
        Ok(())
    }

    /// Runs a `ziti` command to its end.
    fn ziti(&self, args: &[&Path]) -> Result<()> {
        let output = Command::new(&self.program)
            .args(args)
            .env("TMPDIR", self.dir.path())
            .output()
            .with_context(|| format!("running {}", self.program.display()))?;
        if !output.status.success() {
            bail!(
                "ziti {} failed: {}{}",
                args[0].display(),
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    }

    async fn wait_for_login(&self) -> Result<()> {
        let url = format!(
            "{}/edge/management/v1/authenticate?method=password",
            self.url()
        );
        let body = json!({"username": Self::USERNAME, "password": Self::PASSWORD});
        self.until("the administrator can log in", async || {
            let reply = self.http.post(&url).json(&body).send().await?;
            reply.error_for_status()?;
            Ok(())
        })
        .await
    }

    async fn until(&self, what: &str, mut attempt: impl AsyncFnMut() -> Result<()>) -> Result<()> {
        let deadline = Instant::now() + START_DEADLINE;
        loop {
            let Err(error) = attempt().await else {
                return Ok(());
            };
            if let Some(running) = &self.running {
                running.ensure_alive()?;
            }
            if Instant::now() > deadline {
                let log = self.log();
                return Err(error.context(format!("waiting until {what}; its log:\n{log}")));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for LocalController {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.kill();
        }
    }
}

/// A client that trusts this authority alone.
pub(super) fn client(ca_pem: &str) -> Result<reqwest::Client> {
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes())?)?;
    let tls = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .pool_max_idle_per_host(0)
        .timeout(Duration::from_secs(10))
        .build()
        .context("a client for a Ziti controller")
}
