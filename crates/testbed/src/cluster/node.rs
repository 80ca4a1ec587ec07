//! The programs of the node: containerd, kubelet, kube-proxy, and their configuration.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::layout::{Layout, NODE};
use crate::command::Cmd;
use crate::control_plane::ControlPlane;
use crate::image::PAUSE;
use crate::kubernetes;
use crate::paths;
use crate::pki::Subject;
use crate::process::Daemon;

/// The kubelet's port for health.
const HEALTH_PORT: u16 = 10248;

/// Writes the configuration of the node's programs. Unchanged files are not touched: kube-proxy
/// ends when its file is written.
pub(super) fn prepare(layout: &Layout, plane: &ControlPlane) -> Result<()> {
    let pki = plane.pki()?;
    pki.issue(
        "kubelet",
        &Subject {
            common_name: &format!("system:node:{NODE}"),
            organization: Some("system:nodes"),
            dns: vec![NODE.to_owned()],
            ips: vec![layout.node_address().into()],
        },
    )?;
    pki.kubeconfig("kubelet", &plane.url(), &plane.kubeconfig("kubelet"))?;
    plane.user("proxy", "system:kube-proxy", None)?;
    write_changed(
        &layout.dir.join("cni/10-testbed.conflist"),
        &json_text(&cni(layout))?,
    )?;
    write_changed(
        &layout.dir.join("containerd/config.toml"),
        &containerd_config(layout),
    )?;
    write_changed(
        &layout.dir.join("kubelet.yaml"),
        &json_text(&kubelet_config(layout, plane)?)?,
    )?;
    write_changed(
        &layout.dir.join("proxy.yaml"),
        &json_text(&proxy_config(layout, plane))?,
    )?;
    // The node resolves nothing; without a file of its own the kubelet hands pods the host's.
    write_changed(&layout.dir.join("resolv.conf"), "")
}

/// containerd, which pulls nothing: all images are imported.
pub(super) fn containerd(layout: &Layout, plane: &ControlPlane) -> Daemon {
    plane
        .daemon("containerd", Path::new("containerd"))
        .args([format!(
            "--config={}",
            layout.dir.join("containerd/config.toml").display()
        )])
}

/// The kubelet.
pub(super) fn kubelet(layout: &Layout, plane: &ControlPlane) -> Daemon {
    plane.daemon("kubelet", &plane.bin.join("kubelet")).args([
        format!("--config={}", layout.dir.join("kubelet.yaml").display()),
        format!("--kubeconfig={}", plane.kubeconfig("kubelet").display()),
        format!("--root-dir={}", layout.kubelet_dir().display()),
        format!("--cert-dir={}", layout.dir.join("pki").display()),
        format!("--hostname-override={NODE}"),
        format!("--node-ip={}", layout.node_address()),
    ])
}

/// kube-proxy.
pub(super) fn proxy(layout: &Layout, plane: &ControlPlane) -> Daemon {
    plane
        .daemon("kube-proxy", &plane.bin.join("kube-proxy"))
        .args([format!(
            "--config={}",
            layout.dir.join("proxy.yaml").display()
        )])
}

/// `ctr`, talking to this cluster's containerd.
pub(super) fn ctr(layout: &Layout) -> Cmd {
    Cmd::new("ctr")
        .arg("--address")
        .arg(layout.containerd_socket())
        .args(["--namespace", "k8s.io"])
}

/// Waits until the kubelet answers. A kubelet that was just started anew has a node which still
/// looks ready, so that the node alone says nothing.
pub(super) async fn wait_kubelet(layout: &Layout) -> Result<()> {
    let running = layout
        .records()
        .get("kubelet")
        .context("the kubelet was not started")?;
    let url = format!("http://{}:{HEALTH_PORT}/healthz", layout.node_address());
    let http = reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(5))
        .build()
        .context("making an HTTP client")?;
    kubernetes::poll(
        "the kubelet to answer",
        Duration::from_mins(1),
        async || {
            running.ensure_alive()?;
            let healthy = http
                .get(&url)
                .send()
                .await
                .is_ok_and(|reply| reply.status().is_success());
            Ok(healthy.then_some(()))
        },
    )
    .await
}

/// Waits until containerd answers.
pub(super) async fn wait_containerd(layout: &Layout) -> Result<()> {
    let running = layout
        .records()
        .get("containerd")
        .context("containerd was not started")?;
    kubernetes::poll(
        "containerd to answer",
        Duration::from_secs(30),
        async || {
            running.ensure_alive()?;
            let answers = ctr(layout)
                .arg("version")
                .timeout(Duration::from_secs(5))
                .run();
            Ok(answers.is_ok().then_some(()))
        },
    )
    .await
}

fn containerd_config(layout: &Layout) -> String {
    let dir = layout.dir.join("containerd");
    let dir = dir.display();
    format!(
        r#"version = 2
root = "{dir}/root"
state = "{state}"
# Shells for other storages and features that a testbed has no use for.
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]
[grpc]
address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
path = "{dir}/opt"
[plugins."io.containerd.grpc.v1.cri"]
# Without CAP_SYS_RESOURCE (in a container, say) runc cannot lower a score, and says only
# "can't get final child's PID from pipe: EOF".
restrict_oom_score_adj = true
sandbox_image = "{PAUSE}"
# Below our directory, so that `down` knows whose they are.
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{conf}"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"#,
        state = layout.containerd_state().display(),
        socket = layout.containerd_socket().display(),
        conf = layout.dir.join("cni").display(),
    )
}

fn cni(layout: &Layout) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": layout.cni_network(),
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "ipMasq": false,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": layout.dir.join("cni-addresses"),
                    "ranges": [[{"subnet": layout.pods()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

fn kubelet_config(layout: &Layout, plane: &ControlPlane) -> Result<Value> {
    let pki = plane.pki()?;
    Ok(json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": pki.ca()},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": pki.certificate("kubelet"),
        "tlsPrivateKeyFile": pki.key("kubelet"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", layout.cgroup()),
        "failSwapOn": false,
        "failCgroupV1": false,
        "containerRuntimeEndpoint": format!("unix://{}", layout.containerd_socket().display()),
        "clusterDNS": [layout.dns()],
        "clusterDomain": "cluster.local",
        "resolvConf": layout.dir.join("resolv.conf"),
        "podLogsDir": layout.dir.join("pod-logs"),
        "volumePluginDir": layout.dir.join("volume-plugins"),
        "maxPods": 250,
        // Where `up` asks whether it runs.
        "healthzBindAddress": layout.node_address(),
        "healthzPort": HEALTH_PORT,
        "serializeImagePulls": false,
        // A full disk of the developer is no reason to evict pods, and no image can come back.
        "evictionHard": {
            "memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        "imageGCHighThresholdPercent": 100,
    }))
}

fn proxy_config(layout: &Layout, plane: &ControlPlane) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": plane.kubeconfig("proxy")},
        "clusterCIDR": layout.pods(),
        "hostnameOverride": NODE,
        // The kernel's table is the host's, and not ours to size.
        "conntrack": {"maxPerCore": 0, "min": 0},
        "iptables": {"minSyncPeriod": "100ms"},
    })
}

fn json_text(value: &Value) -> Result<String> {
    serde_json::to_string_pretty(value).context("writing a configuration")
}

fn write_changed(path: &Path, text: &str) -> Result<()> {
    if std::fs::read_to_string(path).is_ok_and(|present| present == text) {
        return Ok(());
    }
    paths::write(path, text)
}
