//! The members of a real controller cluster on loopback, for tests that bring it about themselves:
//! nothing initializes them, and nothing adds one to another. One controller that is ready to use is
//! [`super::LocalController`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::config::{self, ControllerConfig, Storage};
use super::controller::client;
use super::pki::Authority;
use super::{port, ziti_bin};
use crate::process::{Daemon, Fate, Running, tail};

/// What the members of a cluster share.
#[derive(Debug)]
pub struct LocalCluster {
    dir: TempDir,
    authority: Authority,
}

/// One member, which runs or not. It ends when this value is dropped.
#[derive(Debug)]
pub struct LocalMember {
    id: String,
    dir: PathBuf,
    address: String,
    http: reqwest::Client,
    running: Option<Running>,
}

impl LocalCluster {
    /// A cluster without members.
    pub fn new() -> Result<Self> {
        Ok(Self {
            dir: tempfile::tempdir().context("making a directory for a Ziti cluster")?,
            authority: Authority::new("cluster.test.ziti")?,
        })
    }

    /// Who signs the certificates of its members.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// A member that does not run yet, with an empty volume.
    pub fn member(&self, id: &str) -> Result<LocalMember> {
        let member = LocalMember {
            id: id.to_owned(),
            dir: self.dir.path().join(id),
            address: format!("127.0.0.1:{}", port::free()?),
            http: client(&self.authority.cert_pem)?,
            running: None,
        };
        let names = ["localhost".to_owned()];
        let pki = self
            .authority
            .controller(id, &names, &["127.0.0.1".parse()?])?;
        pki.write_to(&member.dir.join("pki"))?;
        let config = ControllerConfig {
            storage: Storage::Cluster,
            pki_dir: member.dir.join("pki"),
            data_dir: member.data(),
            bind: member.address.clone(),
            advertise: member.address.clone(),
            token_life: Duration::from_mins(30),
        };
        config::write(&member.dir.join("ctrl.yaml"), &config.render()?)?;
        for dir in [member.data(), member.tmp()] {
            std::fs::create_dir(&dir).with_context(|| format!("creating {}", dir.display()))?;
        }
        Ok(member)
    }
}

impl LocalMember {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its temporary directory, in which its agent socket is.
    pub fn tmp(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    /// Its data directory.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The directory of its certificates and keys, by the names of [`super::pki::ControllerPki::files`].
    pub fn pki(&self) -> PathBuf {
        self.dir.join("pki")
    }

    /// `tls:127.0.0.1:port`: under which other members reach it.
    pub fn control_plane(&self) -> String {
        format!("tls:{}", self.address)
    }

    /// The end of its log, for the message of a failed test.
    pub fn log(&self) -> String {
        tail(&self.dir.join("log"), 40)
    }

    /// Starts it, with what is on its volume.
    pub fn start(&mut self) -> Result<()> {
        let name = format!("ziti-controller-{}", self.id);
        let mut daemon = Daemon::new(name, ziti_bin()?, self.dir.join("log"));
        let config: OsString = self.dir.join("ctrl.yaml").into();
        daemon = daemon.args([OsString::from("controller"), "run".into(), config]);
        let tmp = self.tmp().display().to_string();
        daemon.env.insert("TMPDIR".to_owned(), tmp);
        daemon.fate = Fate::DiesWithUs;
        self.running = Some(daemon.start()?);
        Ok(())
    }

    /// Whether it runs.
    pub fn is_alive(&self) -> bool {
        self.running.as_ref().is_some_and(Running::is_alive)
    }

    /// Ends it, as the kubelet does.
    pub fn stop(&mut self) -> Result<()> {
        match self.running.take() {
            Some(running) => running.stop(Duration::from_secs(10)),
            None => Ok(()),
        }
    }

    /// Kills it, as a node that fails does.
    pub fn kill(&mut self) -> Result<()> {
        match self.running.take() {
            Some(running) => {
                running.kill();
                running.stop(Duration::ZERO)
            }
            None => Ok(()),
        }
    }

    /// Ends it and empties its volume.
    pub fn lose_volume(&mut self) -> Result<()> {
        self.stop()?;
        let data = self.data();
        std::fs::remove_dir_all(&data).with_context(|| format!("removing {}", data.display()))?;
        std::fs::create_dir(&data).with_context(|| format!("creating {}", data.display()))
    }

    /// A session of an administrator.
    ///
    /// # Errors
    /// When the login is refused or cannot be asked for.
    pub async fn log_in(&self, username: &str, password: &str) -> Result<String> {
        let path = "/edge/management/v1/authenticate?method=password";
        let body = json!({"username": username, "password": password});
        let reply = self.send("", path, &body).await?;
        let token = reply["data"]["token"].as_str();
        Ok(token.context("a login without a token")?.to_owned())
    }

    /// Sends a POST with a session, and returns the body of the answer.
    ///
    /// # Errors
    /// When the answer is no success, with its text.
    pub async fn post(&self, session: &str, path: &str, body: &Value) -> Result<Value> {
        self.send(session, path, body).await
    }

    /// Adds another member to its cluster, as a voter.
    pub async fn add(&self, session: &str, other: &LocalMember) -> Result<()> {
        let body = json!({"address": other.control_plane(), "isVoter": true});
        let path = "/fabric/v1/cluster/add-member";
        self.send(session, path, &body).await.map(drop)
    }

    async fn send(&self, session: &str, path: &str, body: &Value) -> Result<Value> {
        let url = format!("https://{}{path}", self.address);
        let request = self.http.post(&url).json(body);
        let reply = request.header("zt-session", session).send().await?;
        let status = reply.status();
        let text = reply.text().await?;
        if !status.is_success() {
            bail!("{url} answered {status}: {text}");
        }
        serde_json::from_str(&text).with_context(|| format!("{url} answered {text}"))
    }
}

impl Drop for LocalMember {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.kill();
        }
    }
}
