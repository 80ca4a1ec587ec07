//! A port of this host that leads to a Service: members of a cluster have certificates for names
//! that only the cluster's DNS knows, and for `localhost`.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::stage::Stage;

/// It leads there until it is dropped.
pub(crate) struct Forward {
    pub(crate) port: u16,
    task: JoinHandle<()>,
}

impl Forward {
    /// To the first port of a Service in the stage's namespace.
    pub(crate) async fn to(stage: &Stage, service: &str) -> Result<Self> {
        let found: Service = stage.get(service).await?;
        let spec = found
            .spec
            .with_context(|| format!("Service {service} has no spec"))?;
        let port = spec.ports.iter().flatten().next().map(|port| port.port);
        let address = spec.cluster_ip.zip(port);
        let (ip, port) = address.with_context(|| format!("Service {service} has no address"))?;
        let target: SocketAddr = format!("{ip}:{port}")
            .parse()
            .with_context(|| format!("reading the address of Service {service}"))?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.context("listening on loopback")?;
        let port = listener.local_addr().context("asking for the port")?.port();
        let task = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                tokio::spawn(async move {
                    // Whoever dials sees a broken connection where there is none.
                    if let Ok(mut far) = TcpStream::connect(target).await {
                        let _ = copy_bidirectional(&mut near, &mut far).await;
                    }
                });
            }
        });
        Ok(Self { port, task })
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
    }
}
