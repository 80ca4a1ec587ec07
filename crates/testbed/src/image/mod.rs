//! Container images without a container engine: the operator's own, Ziti's, and those that the
//! cluster itself needs. What is in the operator's image is what the `Dockerfile` puts there too.

mod archive;
mod layer;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub use self::archive::Archive;
use self::archive::Image;
use self::layer::Layer;
use crate::command::Cmd;
use crate::paths;
use crate::tools::ZITI_NEXT_PROGRAM;

/// What holds a pod's namespaces; containerd's configuration names it.
pub(crate) const PAUSE: &str = "docker.io/ziti-testbed/pause:1";
/// The name of the operator's image; its tag is made from its content.
const OPERATOR: &str = "docker.io/openziti/ziti-operator";
/// Who the operator and the agent run as.
const OPERATOR_USER: u64 = 65532;
/// Who Ziti runs as, as in the published images.
const ZITI_USER: u64 = 2171;

/// The operator's image: both programs, the libraries they link, and nothing to write to.
///
/// `programs` is a directory that holds `ziti-operator` and `ziti-agent`.
///
/// # Errors
/// When a program is not there.
pub fn operator(programs: &Path) -> Result<Archive> {
    let mut layer = Layer::new().users("nonroot", OPERATOR_USER, "/");
    for name in ["ziti-operator", "ziti-agent"] {
        let program = programs.join(name);
        for library in libraries(&program)? {
            layer = layer.program(&library.to_string_lossy(), &library);
        }
        layer = layer.program(&format!("/usr/local/bin/{name}"), &program);
    }
    Image {
        repository: OPERATOR.to_owned(),
        tag: None,
        layers: vec![layer],
        entrypoint: vec!["/usr/local/bin/ziti-operator".to_owned()],
        user: format!("{OPERATOR_USER}:{OPERATOR_USER}"),
    }
    .build()
}

/// The images of Ziti.
#[derive(Debug, Clone)]
pub struct ZitiImages {
    /// `docker.io/openziti/ziti-router:<version>`.
    pub router: Archive,
    /// `docker.io/openziti/ziti-controller:<version>`.
    pub controller: Archive,
}

/// Images of the `ziti` program, named like the published ones and with the program in the same
/// place. They lack the published ones' entry scripts: the operator does not use those.
///
/// The program is `$ZITI_BIN`, else the pinned one.
pub fn ziti() -> Result<ZitiImages> {
    images_of(&crate::ziti::ziti_bin()?)
}

/// The same of [`crate::tools::ZITI_NEXT`], to upgrade to.
pub fn ziti_next() -> Result<ZitiImages> {
    images_of(&paths::program(ZITI_NEXT_PROGRAM)?)
}

fn images_of(program: &Path) -> Result<ZitiImages> {
    Ok(ZitiImages {
        router: of_ziti("ziti-router", program)?,
        controller: of_ziti("ziti-controller", program)?,
    })
}

fn of_ziti(name: &str, program: &Path) -> Result<Archive> {
    let version = crate::ziti::version(program)?;
    Image {
        repository: format!("docker.io/openziti/{name}"),
        tag: Some(version.trim_start_matches('v').to_owned()),
        // The big layer is the same for routers and controllers.
        layers: vec![
            Layer::new().program("/usr/local/bin/ziti", program),
            busybox_layer()?
                .users("ziggy", ZITI_USER, "/home/ziggy")
                .dir("/home/ziggy", 0o755, ZITI_USER),
            iptables_layer()?,
        ],
        entrypoint: vec!["/usr/local/bin/ziti".to_owned()],
        user: format!("{ZITI_USER}:{ZITI_USER}"),
    }
    .build()
}

/// What holds a pod's namespaces: a C program of a few lines, since a static one needs no library.
pub(crate) fn pause() -> Result<Archive> {
    let source = include_str!("../../assets/pause.c");
    let dir = tempfile::tempdir().context("making a directory for the pause program")?;
    let program = dir.path().join("pause");
    Cmd::new("gcc")
        .args(["-static", "-Os", "-s", "-x", "c", "-", "-o"])
        .arg(&program)
        .stdin(source)
        .run()
        .context("compiling the pause program")?;
    testbed_image("pause", Layer::new().program("/pause", &program), "/pause")
}

/// The cluster's DNS server.
pub(crate) fn coredns() -> Result<Archive> {
    let layer = Layer::new()
        .users("nonroot", OPERATOR_USER, "/")
        .program("/coredns", &paths::program("coredns")?);
    testbed_image("coredns", layer, "/coredns")
}

/// What makes persistent volumes.
pub(crate) fn local_path_provisioner() -> Result<Archive> {
    let program = "/usr/local/bin/local-path-provisioner";
    let layer = Layer::new()
        .users("nonroot", OPERATOR_USER, "/")
        .program(program, &paths::program("local-path-provisioner")?);
    testbed_image("local-path-provisioner", layer, program)
}

/// A shell and small programs, for helper pods and tests. Debian's static busybox cannot resolve
/// names (its `wget` and `nslookup` crash): use addresses, or `nc`.
pub fn busybox() -> Result<Archive> {
    testbed_image(
        "busybox",
        busybox_layer()?.users("nobody", 65534, "/"),
        "/bin/sh",
    )
}

fn testbed_image(name: &str, layer: Layer, entrypoint: &str) -> Result<Archive> {
    Image {
        repository: format!("docker.io/ziti-testbed/{name}"),
        tag: Some("1".to_owned()),
        layers: vec![layer],
        entrypoint: vec![entrypoint.to_owned()],
        user: "0:0".to_owned(),
    }
    .build()
}

fn busybox_layer() -> Result<Layer> {
    let busybox = Path::new("/bin/busybox");
    let programs = Cmd::new(busybox)
        .arg("--list")
        .output()
        .context("asking busybox what it can do")?;
    let layer = Layer::new().program("/bin/busybox", busybox);
    Ok(programs
        .lines()
        .filter(|name| *name != "busybox")
        .fold(layer, |layer, name| {
            layer.link(&format!("/bin/{name}"), "busybox")
        }))
}

/// `iptables` with the modules that a router in mode `tproxy` uses, as in the published image.
fn iptables_layer() -> Result<Layer> {
    let program = std::fs::canonicalize("/usr/sbin/iptables").context("looking for iptables")?;
    let modules = Path::new("/usr/lib/x86_64-linux-gnu/xtables");
    let modules = ["standard", "comment", "tcp", "udp", "TPROXY"]
        .map(|name| modules.join(format!("libxt_{name}.so")));
    let mut layer = Layer::new()
        .program("/usr/sbin/xtables-nft-multi", &program)
        .link("/usr/sbin/iptables", "xtables-nft-multi");
    for file in libraries(&program)?.iter().chain(&modules) {
        layer = layer.program(&file.to_string_lossy(), file);
    }
    Ok(layer)
}

/// The shared libraries that a program links, its loader included, by `ldd`.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let listed = Cmd::new("ldd")
        .arg(program)
        .output()
        .with_context(|| format!("looking up the libraries of {}", program.display()))?;
    Ok(listed.lines().filter_map(library_of_line).collect())
}

/// `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)` or `/lib64/ld-linux-x86-64.so.2 (0x…)`;
/// `linux-vdso.so.1 (0x…)` is the kernel's and no file.
fn library_of_line(line: &str) -> Option<PathBuf> {
    line.split_whitespace()
        .find(|word| word.starts_with('/'))
        .map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_found() {
        let found: Vec<_> = [
            "\tlinux-vdso.so.1 (0x00007ffd)",
            "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)",
            "\t/lib64/ld-linux-x86-64.so.2 (0x00007f)",
        ]
        .into_iter()
        .filter_map(library_of_line)
        .collect();
        assert_eq!(
            found,
            [
                PathBuf::from("/lib/x86_64-linux-gnu/libc.so.6"),
                PathBuf::from("/lib64/ld-linux-x86-64.so.2")
            ]
        );
    }
}
