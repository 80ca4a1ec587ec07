//! A proxy that hands TLS through unopened, by the name that the client asks for: what an Ingress
//! controller is to routers. It is HAProxy from Debian, in the network of the first node.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpStream;

use super::Cluster;
use crate::kubernetes;
use crate::paths;
use crate::process::Daemon;

/// Its name in records and logs.
const NAME: &str = "haproxy";
/// Where it listens.
const PORT: u16 = 443;

impl Cluster {
    /// Starts the proxy at port 443 of the first node, whose address is returned, with these routes
    /// from name to server. It replaces the one that runs, and is ended with the cluster.
    ///
    /// # Errors
    /// When it does not listen in time; the end of its log is in the error.
    pub async fn pass_through(&self, routes: &BTreeMap<String, SocketAddr>) -> Result<Ipv4Addr> {
        let site = self.layout.first_node();
        let records = site.records();
        if let Some(former) = records.get(NAME) {
            former.stop(Duration::from_secs(1))?;
        }
        let file = site.dir().join("haproxy.cfg");
        paths::write(&file, configuration(site.address(), routes)?)?;
        let mut proxy = Daemon::new(NAME, Path::new("/usr/sbin/haproxy"), site.log(NAME)).args([
            "-db".into(),
            "-f".into(),
            file.into_os_string(),
        ]);
        proxy.netns = Some(site.netns());
        let (running, _) = records.ensure(&proxy)?;
        let address = (site.address(), PORT);
        kubernetes::poll("the proxy to listen", Duration::from_secs(10), async || {
            running.ensure_alive()?;
            Ok(TcpStream::connect(address).await.ok())
        })
        .await?;
        Ok(site.address())
    }
}

fn configuration(address: Ipv4Addr, routes: &BTreeMap<String, SocketAddr>) -> Result<String> {
    let mut rules = String::new();
    let mut backends = String::new();
    for (number, (name, server)) in routes.iter().enumerate() {
        writeln!(
            rules,
            "    use_backend server{number} if {{ req.ssl_sni -i {name} }}"
        )
        .and_then(|()| writeln!(backends, "backend server{number}\n    server only {server}"))
        .context("writing the proxy's configuration")?;
    }
    Ok(format!(
        "\
global
    maxconn 500
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend tls
    bind {address}:{PORT}
    tcp-request inspect-delay 5s
    tcp-request content accept if {{ req.ssl_hello_type 1 }}
{rules}{backends}"
    ))
}
