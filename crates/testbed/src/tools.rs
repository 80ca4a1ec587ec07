//! The pinned programs: Kubernetes, etcd, CoreDNS, Helm, the volume provisioner, Ziti and an S3 server,
//! built from their Go modules. The pins are the `go.mod` and `go.sum` files below `tools/`, one module
//! per program family, since their requirements contradict each other.
//!
//! A program lies in the cache under a key made of all that decides its content: the module's two
//! files, the build flags, the Go version and the package. A changed pin builds anew, and an
//! unchanged one never does.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use aws_lc_rs::digest;

use crate::command::{Cmd, Stream};
use crate::paths;
use crate::progress::{Step, seconds};

/// The Kubernetes release of `tools/kubernetes`, stamped into its programs.
pub const KUBERNETES: &str = "v1.34.4";
/// The Ziti release of `tools/ziti`. It is the newest that is to be had as a Go module, and is for
/// local use and tests; what users run are the published images.
pub const ZITI: &str = "v1.6.0";

/// One program of the table.
#[derive(Debug, Clone, Copy)]
struct Tool {
    name: &'static str,
    /// The folder below `tools/`.
    module: &'static str,
    package: &'static str,
}

const fn tool(name: &'static str, module: &'static str, package: &'static str) -> Tool {
    Tool {
        name,
        module,
        package,
    }
}

/// All programs, those first that most others wait for.
const TOOLS: &[Tool] = &[
    tool("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    tool("ziti", "ziti", "github.com/openziti/ziti/ziti"),
    tool(
        "kube-apiserver",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-apiserver",
    ),
    tool("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
    tool(
        "kube-controller-manager",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    tool(
        "kube-scheduler",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-scheduler",
    ),
    tool("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet"),
    tool(
        "kube-proxy",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-proxy",
    ),
    tool("coredns", "coredns", "github.com/coredns/coredns"),
    tool(
        "local-path-provisioner",
        "local-path-provisioner",
        "github.com/rancher/local-path-provisioner",
    ),
    tool("helm", "helm", "helm.sh/helm/v4/cmd/helm"),
    tool(
        "versitygw",
        "versitygw",
        "github.com/versity/versitygw/cmd/versitygw",
    ),
];

/// Linker flags: no symbol tables (halves the size), and the version where the program states it.
fn ldflags(tool: Tool) -> String {
    let mut flags = String::from("-s -w");
    let mut stamp = |variable: &str, value: &str| {
        flags.extend([" -X ", variable, "=", value]);
    };
    match tool.module {
        "ziti" => stamp("github.com/openziti/ziti/common/version.Version", ZITI),
        "local-path-provisioner" => stamp("main.VERSION", "v0.0.30"),
        "kubernetes" => {
            let mut numbers = KUBERNETES.trim_start_matches('v').split('.');
            let (major, minor) = (numbers.next().unwrap_or(""), numbers.next().unwrap_or(""));
            for package in [
                "k8s.io/component-base/version",
                "k8s.io/client-go/pkg/version",
            ] {
                stamp(&format!("{package}.gitVersion"), KUBERNETES);
                stamp(&format!("{package}.gitMajor"), major);
                stamp(&format!("{package}.gitMinor"), minor);
                stamp(&format!("{package}.gitTreeState"), "clean");
            }
        }
        _ => {}
    }
    flags
}

/// Builds what is missing from the cache. Returns how many programs were built.
///
/// # Errors
/// When Go is missing, a module cannot be downloaded or a program does not compile.
pub fn build(step: &Step) -> Result<usize> {
    let go = Cmd::new("go")
        .arg("version")
        .env("GOTOOLCHAIN", "local")
        .output()
        .context("Go is needed to build Kubernetes and Ziti; see https://go.dev/dl")?;
    let bin = paths::bin()?;
    paths::make_dir(&bin)?;
    // Two commands at once would build everything twice; the second waits for the first.
    let lock_path = bin.join(".lock");
    let lock =
        File::create(&lock_path).with_context(|| format!("creating {}", lock_path.display()))?;
    step.say("waiting for another build to end");
    lock.lock()
        .with_context(|| format!("locking {}", lock_path.display()))?;

    let mut pending = Vec::new();
    for &tool in TOOLS {
        let key = key(tool, &go)?;
        let built = bin.join(&key).join(tool.name);
        if built.exists() {
            link(&bin, &key, tool.name)?;
        } else {
            pending.push((tool, key, built));
        }
    }
    let total = pending.len();
    for (index, (tool, key, built)) in pending.iter().enumerate() {
        let started = Instant::now();
        let label = format!("{} of {total}: {}", index + 1, tool.name);
        compile(*tool, built, step, &label)?;
        link(&bin, key, tool.name)?;
        step.note(&format!("{label}, built in {}", seconds(started.elapsed())));
    }
    Ok(total)
}

fn compile(tool: Tool, to: &Path, step: &Step, label: &str) -> Result<()> {
    if let Some(dir) = to.parent() {
        paths::make_dir(dir)?;
    }
    // Under another name first: an interrupted build must not look like a finished one.
    let unfinished = to.with_extension("unfinished");
    let mut packages = 0_usize;
    let mut modules = 0_usize;
    step.say(&format!("{label}, looking up its modules"));
    Cmd::new("go")
        .args(["build", "-v", "-mod=readonly", "-trimpath", "-ldflags"])
        .arg(ldflags(tool))
        .arg("-o")
        .arg(&unfinished)
        .arg(tool.package)
        .cwd(module_dir(tool))
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "")
        // A go.work somewhere above would replace our pins.
        .env("GOWORK", "off")
        .timeout(Duration::from_mins(40))
        .lines(|stream, line| {
            if stream == Stream::Out || line.is_empty() {
                return;
            }
            if line.starts_with("go: downloading") {
                modules += 1;
                step.say(&format!("{label}, {modules} modules downloaded"));
            } else {
                packages += 1;
                step.say(&format!("{label}, {packages} packages compiled"));
            }
        })
        .with_context(|| format!("building {} from tools/{}", tool.name, tool.module))?;
    fs::rename(&unfinished, to).with_context(|| format!("renaming to {}", to.display()))
}

/// Leads `bin/<name>` to the program of that key, by a rename, so that it is never missing.
fn link(bin: &Path, key: &str, name: &str) -> Result<()> {
    let link = bin.join(name);
    let target = Path::new(key).join(name);
    if fs::read_link(&link).is_ok_and(|present| present == target) {
        return Ok(());
    }
    let unfinished = bin.join(format!(".{name}.link"));
    // It may be left from an interrupted run.
    let _ = fs::remove_file(&unfinished);
    symlink(&target, &unfinished).with_context(|| format!("linking {}", unfinished.display()))?;
    fs::rename(&unfinished, &link).with_context(|| format!("renaming to {}", link.display()))
}

fn key(tool: Tool, go: &str) -> Result<String> {
    let mut context = digest::Context::new(&digest::SHA256);
    for file in ["go.mod", "go.sum"] {
        let path = module_dir(tool).join(file);
        context.update(&fs::read(&path).with_context(paths::reading(&path))?);
        context.update(b"\0");
    }
    for part in [go, &ldflags(tool), tool.package] {
        context.update(part.as_bytes());
        context.update(b"\0");
    }
    Ok(hex::encode(&context.finish().as_ref()[..8]))
}

fn module_dir(tool: Tool) -> PathBuf {
    paths::repository().join("tools").join(tool.module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pin_is_the_one_that_is_stamped() {
        for (module, requirement) in [
            ("kubernetes", format!("k8s.io/kubernetes {KUBERNETES}")),
            ("ziti", format!("github.com/openziti/ziti {ZITI}")),
            (
                "local-path-provisioner",
                "github.com/rancher/local-path-provisioner v0.0.30".to_owned(),
            ),
        ] {
            let path = paths::repository()
                .join("tools")
                .join(module)
                .join("go.mod");
            assert!(
                paths::read(&path).unwrap().contains(&requirement),
                "tools/{module} does not pin {requirement}"
            );
        }
    }

    #[test]
    fn a_key_depends_on_the_compiler_and_the_program() {
        let [first, second] = [TOOLS[2], TOOLS[3]];
        assert_eq!(key(first, "go1").unwrap(), key(first, "go1").unwrap());
        assert_ne!(key(first, "go1").unwrap(), key(first, "go2").unwrap());
        assert_ne!(key(first, "go1").unwrap(), key(second, "go1").unwrap());
    }
}
