//! An image as one file: an OCI layout in a tar, which `ctr images import`, `docker load`,
//! `podman load` and `skopeo` take. Layers are not compressed: nobody downloads them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tar::Header;

use super::layer::Layer;
use crate::paths;

/// An image archive in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archive {
    /// The name under which it is known in a cluster, for example
    /// `docker.io/openziti/ziti-router:1.6.0`.
    pub reference: String,
    /// The file.
    pub path: PathBuf,
    /// The digest of its manifest, `sha256:…`.
    pub digest: String,
    /// The size of its layers, unpacked, in bytes.
    pub size: u64,
}

/// Where programs are found in every image.
const PATH: &str = "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/bin";

/// An image about to be made.
#[derive(Debug)]
pub(super) struct Image {
    /// Its name without a tag.
    pub(super) repository: String,
    /// Its tag; none: the beginning of its digest, so that another content has another name.
    pub(super) tag: Option<String>,
    pub(super) layers: Vec<Layer>,
    pub(super) entrypoint: Vec<String>,
    /// `uid:gid`.
    pub(super) user: String,
}

impl Image {
    /// Makes the archive, or finds it in the cache.
    pub(super) fn build(&self) -> Result<Archive> {
        let dir = paths::cache()?.join("images");
        paths::make_dir(&dir)?;
        let key = self.key()?;
        let record = dir.join(format!("{key}.json"));
        if let Ok(text) = fs::read(&record)
            && let Ok(archive) = serde_json::from_slice::<Archive>(&text)
            && archive.path.exists()
        {
            return Ok(archive);
        }
        let scratch = tempfile::tempdir_in(&dir).context("making a directory for layers")?;
        let archive = self
            .write(scratch.path(), &dir.join(format!("{key}.tar")))
            .with_context(|| format!("making image {}", self.repository))?;
        let text = serde_json::to_vec_pretty(&archive).context("recording an image")?;
        paths::write(&record, text)?;
        Ok(archive)
    }

    fn key(&self) -> Result<String> {
        let mut context = digest::Context::new(&digest::SHA256);
        let facts = json!([self.repository, self.tag, self.entrypoint, self.user, PATH]);
        context.update(facts.to_string().as_bytes());
        for layer in &self.layers {
            layer.key(&mut context)?;
        }
        Ok(hex::encode(&context.finish().as_ref()[..12]))
    }

    fn write(&self, scratch: &Path, to: &Path) -> Result<Archive> {
        let mut layers = Vec::new();
        let mut size = 0;
        for (index, layer) in self.layers.iter().enumerate() {
            let file = scratch.join(format!("{index}.tar"));
            let (digest, bytes) = layer.write(&file)?;
            size += bytes;
            layers.push((file, digest, bytes));
        }
        let platform = json!({"os": "linux", "architecture": architecture()});
        let digests: Vec<&String> = layers.iter().map(|(_, digest, _)| digest).collect();
        let config = bytes(&json!({
            "os": "linux",
            "architecture": architecture(),
            "config": {
                "Entrypoint": self.entrypoint,
                "User": self.user,
                "Env": [PATH],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": digests},
        }))?;
        let config_digest = sha256(&config);
        let descriptors: Vec<Value> = layers
            .iter()
            .map(|(_, digest, size)| {
                json!({
                    "mediaType": "application/vnd.oci.image.layer.v1.tar",
                    "digest": digest,
                    "size": size,
                })
            })
            .collect();
        let manifest = bytes(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": config_digest,
                "size": config.len(),
            },
            "layers": descriptors,
        }))?;
        let manifest_digest = sha256(&manifest);
        let tag = match &self.tag {
            Some(tag) => tag.clone(),
            None => blob_name(&manifest_digest)[..12].to_owned(),
        };
        let reference = format!("{}:{tag}", self.repository);
        let index = bytes(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": manifest_digest,
                "size": manifest.len(),
                "platform": platform,
                "annotations": {
                    "io.containerd.image.name": reference,
                    "org.opencontainers.image.ref.name": tag,
                },
            }],
        }))?;
        // For a `docker load` of before OCI layouts.
        let legacy = bytes(&json!([{
            "Config": blob_path(&config_digest),
            "RepoTags": [reference],
            "Layers": digests.iter().map(|digest| blob_path(digest)).collect::<Vec<_>>(),
        }]))?;

        let unfinished = to.with_extension("unfinished");
        let file = File::create(&unfinished)
            .with_context(|| format!("creating {}", unfinished.display()))?;
        let mut tar = tar::Builder::new(std::io::BufWriter::new(file));
        add(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        add(&mut tar, "index.json", &index)?;
        add(&mut tar, "manifest.json", &legacy)?;
        add(&mut tar, &blob_path(&manifest_digest), &manifest)?;
        add(&mut tar, &blob_path(&config_digest), &config)?;
        for (path, digest, _) in &layers {
            let mut layer = File::open(path).with_context(paths::reading(path))?;
            tar.append_file(blob_path(digest), &mut layer)
                .with_context(|| format!("adding {}", path.display()))?;
        }
        tar.into_inner()
            .and_then(|writer| {
                writer
                    .into_inner()
                    .map_err(std::io::IntoInnerError::into_error)
            })
            .with_context(|| format!("finishing {}", unfinished.display()))?;
        fs::rename(&unfinished, to).with_context(|| format!("renaming to {}", to.display()))?;
        Ok(Archive {
            reference,
            path: to.to_path_buf(),
            digest: manifest_digest,
            size,
        })
    }
}

fn add<W: std::io::Write>(tar: &mut tar::Builder<W>, name: &str, content: &[u8]) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    tar.append_data(&mut header, name, content)
        .with_context(|| format!("adding {name}"))
}

fn bytes(value: &Value) -> Result<Vec<u8>> {
    serde_json::to_vec(value).context("writing JSON of an image")
}

fn sha256(content: &[u8]) -> String {
    format!(
        "sha256:{}",
        hex::encode(digest::digest(&digest::SHA256, content))
    )
}

fn blob_name(digest: &str) -> &str {
    digest.trim_start_matches("sha256:")
}

fn blob_path(digest: &str) -> String {
    format!("blobs/sha256/{}", blob_name(digest))
}

/// This machine's architecture, as images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(text: &str) -> Image {
        Image {
            repository: "docker.io/test/image".to_owned(),
            tag: None,
            layers: vec![Layer::new().text("/etc/motd", text)],
            entrypoint: vec!["/bin/true".to_owned()],
            user: "1:1".to_owned(),
        }
    }

    #[test]
    fn equal_content_has_an_equal_name_and_other_content_another() {
        let dir = tempfile::tempdir().unwrap();
        let build = |text: &str, file: &str| {
            image(text)
                .write(dir.path(), &dir.path().join(file))
                .unwrap()
        };
        let [first, second, third] = [
            build("a", "1.tar"),
            build("a", "2.tar"),
            build("b", "3.tar"),
        ];
        assert_eq!(
            fs::read(&first.path).unwrap().len(),
            fs::read(&second.path).unwrap().len()
        );
        assert_eq!(first.digest, second.digest);
        assert_eq!(first.reference, second.reference);
        assert_ne!(first.reference, third.reference);
    }
}
