//! The programs of a node: containerd, kubelet, kube-proxy, and their configuration.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::further::NodeOptions;
use super::site::Site;
use crate::command::Cmd;
use crate::control_plane::ControlPlane;
use crate::image::{Archive, PAUSE};
use crate::kubernetes;
use crate::paths;
use crate::pki::Subject;
use crate::process::Daemon;

/// The kubelet's port for health.
const HEALTH_PORT: u16 = 10248;

/// Writes the configuration of the node's programs. Unchanged files are not touched: kube-proxy
/// ends when its file is written.
pub(super) fn prepare(site: &Site, plane: &ControlPlane, options: &NodeOptions) -> Result<()> {
    let pki = plane.pki()?;
    let name = site.name();
    let credential = site.credential();
    pki.issue(
        &credential,
        &Subject {
            common_name: &format!("system:node:{name}"),
            organization: Some("system:nodes"),
            dns: vec![name],
            ips: vec![site.address().into()],
        },
    )?;
    pki.kubeconfig(&credential, &plane.url(), &plane.kubeconfig(&credential))?;
    plane.user("proxy", "system:kube-proxy", None)?;
    write_changed(
        &site.dir().join("cni/10-testbed.conflist"),
        &json_text(&cni(site))?,
    )?;
    write_changed(
        &site.dir().join("containerd/config.toml"),
        &containerd_config(site),
    )?;
    write_changed(
        &site.dir().join("kubelet.yaml"),
        &json_text(&kubelet_config(site, plane, options)?)?,
    )?;
    write_changed(
        &site.dir().join("proxy.yaml"),
        &json_text(&proxy_config(site, plane))?,
    )?;
    // The node resolves nothing; without a file of its own the kubelet hands pods the host's.
    write_changed(&site.dir().join("resolv.conf"), "")
}

/// A program of the node, with its log and network namespace.
fn daemon(site: &Site, plane: &ControlPlane, name: &str, program: &Path) -> Daemon {
    let mut daemon = plane.daemon(name, program);
    daemon.netns = Some(site.netns());
    daemon.log = site.log(name);
    daemon
}

/// containerd, which pulls nothing: all images are imported.
pub(super) fn containerd(site: &Site, plane: &ControlPlane) -> Daemon {
    let config = site.dir().join("containerd/config.toml");
    daemon(site, plane, "containerd", Path::new("containerd"))
        .args([format!("--config={}", config.display())])
}

/// The kubelet.
pub(super) fn kubelet(site: &Site, plane: &ControlPlane, options: &NodeOptions) -> Daemon {
    let kubeconfig = plane.kubeconfig(&site.credential());
    let labels: Vec<String> = options
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    daemon(site, plane, "kubelet", &plane.bin.join("kubelet")).args([
        format!("--config={}", site.dir().join("kubelet.yaml").display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--root-dir={}", site.kubelet_dir().display()),
        format!("--cert-dir={}", site.dir().join("pki").display()),
        format!("--hostname-override={}", site.name()),
        format!("--node-ip={}", site.address()),
        format!("--node-labels={}", labels.join(",")),
    ])
}

/// kube-proxy.
pub(super) fn proxy(site: &Site, plane: &ControlPlane) -> Daemon {
    daemon(site, plane, "kube-proxy", &plane.bin.join("kube-proxy")).args([format!(
        "--config={}",
        site.dir().join("proxy.yaml").display()
    )])
}

/// `ctr`, talking to this node's containerd.
pub(super) fn ctr(site: &Site) -> Cmd {
    Cmd::new("ctr")
        .arg("--address")
        .arg(site.containerd_socket())
        .args(["--namespace", "k8s.io"])
}

/// Whether the kubelet last said that its node is ready.
pub(super) fn is_ready(node: Option<&Node>) -> bool {
    node.and_then(|node| node.status.as_ref()?.conditions.as_ref())
        .is_some_and(|conditions| {
            conditions
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True")
        })
}

/// Whether its container runtime runs.
pub(super) fn has_runtime(site: &Site) -> bool {
    let runtime = site.records().get("containerd");
    runtime.is_some_and(|runtime| runtime.is_alive())
}

/// Imports an image unless the very same is there. Returns whether it was imported now.
pub(super) fn import(site: &Site, archive: &Archive) -> Result<bool> {
    let filter = format!("name=={}", archive.reference);
    let listed = ctr(site)
        .args(["images", "list", &filter])
        .output()
        .with_context(|| format!("looking for image {}", archive.reference))?;
    if listed.contains(&archive.digest) {
        return Ok(false);
    }
    ctr(site)
        .args(["images", "import"])
        .arg(&archive.path)
        .run()
        .with_context(|| format!("importing image {}", archive.reference))?;
    Ok(true)
}

/// Brings to `to` the images that `from` has and it has not.
pub(super) fn copy_images(from: &Site, to: &Site) -> Result<()> {
    let have = images(to)?;
    let missing: Vec<String> = images(from)?
        .into_iter()
        .filter(|image| !have.contains(image))
        .map(|(reference, _)| reference)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let archive = to.dir().join("images.tar");
    ctr(from)
        .args(["images", "export"])
        .arg(&archive)
        .args(&missing)
        .run()
        .with_context(|| format!("exporting images of {}", from.name()))?;
    ctr(to)
        .args(["images", "import"])
        .arg(&archive)
        .run()
        .with_context(|| format!("importing images to {}", to.name()))?;
    std::fs::remove_file(&archive).with_context(|| format!("removing {}", archive.display()))
}

/// Reference and digest of each image.
fn images(site: &Site) -> Result<Vec<(String, String)>> {
    let listed = ctr(site)
        .args(["images", "list"])
        .output()
        .with_context(|| format!("listing the images of {}", site.name()))?;
    let columns = |line: &str| {
        let mut fields = line.split_whitespace();
        Some((fields.next()?.to_owned(), fields.nth(1)?.to_owned()))
    };
    Ok(listed
        .lines()
        .skip(1)
        .filter_map(columns)
        // The kubelet's own names for them, by the digest of their configuration.
        .filter(|(reference, _)| !reference.starts_with("sha256:"))
        .collect())
}

/// Waits until the kubelet answers. A kubelet that was just started anew has a node which still
/// looks ready, so that the node alone says nothing.
pub(super) async fn wait_kubelet(site: &Site) -> Result<()> {
    let running = site
        .records()
        .get("kubelet")
        .context("the kubelet was not started")?;
    let url = format!("http://{}:{HEALTH_PORT}/healthz", site.address());
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
pub(super) async fn wait_containerd(site: &Site) -> Result<()> {
    let running = site
        .records()
        .get("containerd")
        .context("containerd was not started")?;
    kubernetes::poll(
        "containerd to answer",
        Duration::from_secs(30),
        async || {
            running.ensure_alive()?;
            let answers = ctr(site)
                .arg("version")
                .timeout(Duration::from_secs(5))
                .run();
            Ok(answers.is_ok().then_some(()))
        },
    )
    .await
}

fn containerd_config(site: &Site) -> String {
    let dir = site.dir().join("containerd");
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
        state = site.containerd_state().display(),
        socket = site.containerd_socket().display(),
        conf = site.dir().join("cni").display(),
    )
}

fn cni(site: &Site) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": site.cni_network(),
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "ipMasq": false,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": site.dir().join("cni-addresses"),
                    "ranges": [[{"subnet": site.pods()}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

fn kubelet_config(site: &Site, plane: &ControlPlane, options: &NodeOptions) -> Result<Value> {
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
        "tlsCertFile": pki.certificate(&site.credential()),
        "tlsPrivateKeyFile": pki.key(&site.credential()),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", site.cgroup()),
        "failSwapOn": false,
        "failCgroupV1": false,
        "containerRuntimeEndpoint": format!("unix://{}", site.containerd_socket().display()),
        "clusterDNS": [site.cluster.dns()],
        "clusterDomain": "cluster.local",
        "resolvConf": site.dir().join("resolv.conf"),
        "podLogsDir": site.dir().join("pod-logs"),
        "volumePluginDir": site.dir().join("volume-plugins"),
        "maxPods": 250,
        "registerWithTaints": options.taints,
        // Where `up` asks whether it runs.
        "healthzBindAddress": site.address(),
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

fn proxy_config(site: &Site, plane: &ControlPlane) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": plane.kubeconfig("proxy")},
        "clusterCIDR": site.cluster.pods(),
        "hostnameOverride": site.name(),
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
