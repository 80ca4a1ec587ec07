//! An S3 server for tests of backups: Versity's gateway over a directory. It checks signatures, as the
//! real ones do. What is in a bucket is in the directory, under the same names.

use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tempfile::TempDir;

use crate::paths;
use crate::pki::{Pki, Subject};
use crate::process::{Daemon, Fate, Running, tail};
use crate::ziti::port;

const START_DEADLINE: Duration = Duration::from_mins(1);

/// How the server differs from the usual one.
#[derive(Debug, Clone)]
pub struct S3Options {
    /// The address on which it listens, and the host of its endpoint. Loopback at first.
    pub address: IpAddr,
    /// Whether it speaks TLS, with an authority of its own ([`S3Server::ca`]).
    pub tls: bool,
}

impl Default for S3Options {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST.into(),
            tls: false,
        }
    }
}

/// A running server. It ends when this value is dropped, or when the process ends, however it ends; its
/// directory goes with it.
#[derive(Debug)]
pub struct S3Server {
    dir: TempDir,
    options: S3Options,
    port: u16,
    running: Running,
}

impl S3Server {
    /// Whoever has this and [`Self::SECRET_KEY`] may do everything.
    pub const ACCESS_KEY: &str = "test-access-key";
    /// With [`Self::ACCESS_KEY`].
    pub const SECRET_KEY: &str = "test-secret-key";

    /// Starts a server on a free port of loopback, without TLS.
    pub fn start() -> Result<Self> {
        Self::start_with(&S3Options::default())
    }

    /// The same, with differences.
    pub fn start_with(options: &S3Options) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let (buckets, metadata) = (dir.path().join("buckets"), dir.path().join("metadata"));
        for path in [&buckets, &metadata] {
            paths::make_dir(path)?;
        }
        let port = port::free()?;
        let listen = format!("{}:{port}", host(options.address));
        let program = paths::program("versitygw")?;
        let mut daemon = Daemon::new("versitygw", program, dir.path().join("log"))
            .args(["--port", &listen])
            .args(["--access", Self::ACCESS_KEY])
            .args(["--secret", Self::SECRET_KEY]);
        if options.tls {
            let pki = Pki::open(dir.path().join("pki"))?;
            let subject = Subject {
                common_name: "versitygw",
                ips: vec![options.address],
                ..Subject::default()
            };
            pki.issue("s3", &subject)?;
            daemon = daemon.args(["--cert".into(), pki.certificate("s3")]);
            daemon = daemon.args(["--key".into(), pki.key("s3")]);
        }
        // Metadata beside the files: not every file system has extended attributes.
        daemon = daemon
            .args(["posix", "--sidecar"])
            .args([&metadata, &buckets]);
        daemon.fate = Fate::DiesWithUs;
        let server = Self {
            running: daemon.start()?,
            options: options.clone(),
            dir,
            port,
        };
        server.until_it_listens()?;
        Ok(server)
    }

    fn until_it_listens(&self) -> Result<()> {
        let deadline = Instant::now() + START_DEADLINE;
        while TcpStream::connect((self.options.address, self.port)).is_err() {
            self.running.ensure_alive()?;
            if Instant::now() > deadline {
                bail!("the S3 server does not listen:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Where it is reached: `http://127.0.0.1:port`, or `https` with TLS.
    pub fn endpoint(&self) -> String {
        let scheme = if self.options.tls { "https" } else { "http" };
        format!("{scheme}://{}:{}", host(self.options.address), self.port)
    }

    /// The file with the authority of its certificate, where it speaks TLS.
    pub fn ca(&self) -> Option<PathBuf> {
        let file = || self.dir.path().join("pki/ca.crt");
        self.options.tls.then(file)
    }

    /// Makes a bucket, and returns the directory in which its objects are.
    pub fn create_bucket(&self, name: &str) -> Result<PathBuf> {
        let path = self.dir.path().join("buckets").join(name);
        paths::make_dir(&path)?;
        Ok(path)
    }

    /// The end of its log, for the message of a failed test.
    pub fn log(&self) -> String {
        tail(&self.dir.path().join("log"), 40)
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.running.kill();
    }
}

/// An address as URLs and listeners write it.
fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}
