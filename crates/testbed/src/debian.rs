//! What the testbed takes from Debian, installed only where it is missing.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::command::Cmd;
use crate::progress::Step;

/// A package and a file of it that shows that it is there.
struct Package {
    name: &'static str,
    file: &'static str,
}

const fn package(name: &'static str, file: &'static str) -> Package {
    Package { name, file }
}

/// What builds and tests need: the C parts of aws-lc-rs and the pause program, above all.
const BUILD: &[Package] = &[
    package("gcc", "/usr/bin/gcc"),
    package("g++", "/usr/bin/g++"),
    package("libc6-dev", "/usr/include/stdlib.h"),
    package("make", "/usr/bin/make"),
    package("cmake", "/usr/bin/cmake"),
    package("ca-certificates", "/etc/ssl/certs/ca-certificates.crt"),
    // No build needs it: the tests check our certificates with it.
    package("openssl", "/usr/bin/openssl"),
];

/// What a node needs.
const NODE: &[Package] = &[
    package("containerd", "/usr/bin/containerd"),
    package("runc", "/usr/sbin/runc"),
    package("containernetworking-plugins", "/usr/lib/cni/bridge"),
    package("iptables", "/usr/sbin/iptables"),
    package("conntrack", "/usr/sbin/conntrack"),
    package("iproute2", "/usr/sbin/ip"),
    package("socat", "/usr/bin/socat"),
    package("busybox-static", "/bin/busybox"),
    package("util-linux", "/usr/bin/nsenter"),
    package("procps", "/usr/sbin/sysctl"),
    package("mount", "/usr/bin/umount"),
];

/// What tests put in front of routers.
const TESTS: &[Package] = &[package("haproxy", "/usr/sbin/haproxy")];

/// What is missing here.
pub fn missing() -> Vec<&'static str> {
    BUILD
        .iter()
        .chain(NODE)
        .chain(TESTS)
        .filter(|package| {
            // Older releases keep /bin and /usr/bin apart; Debian 12 has one in the other.
            !Path::new(package.file).exists()
                && !Path::new("/usr").join(&package.file[1..]).exists()
        })
        .map(|package| package.name)
        .collect()
}

/// Installs what is missing with apt-get and returns its names.
///
/// # Errors
/// When something is missing and this is no Debian, or not root.
pub fn install(step: &Step) -> Result<Vec<&'static str>> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(missing);
    }
    let list = missing.join(" ");
    ensure!(
        Path::new("/usr/bin/apt-get").exists(),
        "these Debian packages (or their like) are missing, and there is no apt-get here: {list}"
    );
    ensure!(
        nix::unistd::geteuid().is_root(),
        "these Debian packages are missing; install them as root: apt-get install {list}"
    );
    step.note(&format!("from Debian: {list}"));
    step.say("apt-get update");
    Cmd::new("apt-get")
        .args(["update", "-qq"])
        .timeout(Duration::from_mins(5))
        .run()
        .context("refreshing Debian's package lists")?;
    Cmd::new("apt-get")
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(&missing)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // On a machine with an init the packages start services (containerd), which nobody asked for.
        .env("RUNLEVEL", "1")
        .timeout(Duration::from_mins(10))
        .lines(|_, line| step.say(line))
        .with_context(|| format!("installing {list}"))?;
    Ok(missing)
}
