//! A file system layer as a reproducible tar: sorted, without times, with the owners we say. Equal
//! content gives an equal digest, so that an image that did not change is not imported again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use aws_lc_rs::digest;
use tar::{EntryType, Header};

use crate::paths;

#[derive(Debug, Clone)]
enum Content {
    Dir,
    Text(Vec<u8>),
    Copy(PathBuf),
    Link(String),
}

#[derive(Debug, Clone)]
struct Entry {
    content: Content,
    mode: u32,
    owner: u64,
}

/// The files of one layer, by their absolute path in the image.
#[derive(Debug, Clone, Default)]
pub(super) struct Layer {
    entries: BTreeMap<String, Entry>,
}

impl Layer {
    /// An empty layer.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// A program or library, copied from this machine.
    pub(super) fn program(self, at: &str, from: &Path) -> Self {
        self.put(at, Content::Copy(from.to_path_buf()), 0o755, 0)
    }

    /// A small file.
    pub(super) fn text(self, at: &str, content: &str) -> Self {
        self.put(at, Content::Text(content.as_bytes().to_vec()), 0o644, 0)
    }

    /// A directory; parents of other entries need not be named.
    pub(super) fn dir(self, at: &str, mode: u32, owner: u64) -> Self {
        self.put(at, Content::Dir, mode, owner)
    }

    /// A symbolic link.
    pub(super) fn link(self, at: &str, to: &str) -> Self {
        self.put(at, Content::Link(to.to_owned()), 0o777, 0)
    }

    /// The users `root` and one more, and how names are resolved.
    pub(super) fn users(self, name: &str, id: u64, home: &str) -> Self {
        self.text(
            "/etc/passwd",
            &format!("root:x:0:0:root:/root:/bin/sh\n{name}:x:{id}:{id}:{name}:{home}:/bin/sh\n"),
        )
        .text("/etc/group", &format!("root:x:0:\n{name}:x:{id}:\n"))
        .text(
            "/etc/nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files dns\n",
        )
        .dir("/tmp", 0o1777, 0)
    }

    fn put(mut self, at: &str, content: Content, mode: u32, owner: u64) -> Self {
        let mut parent = Path::new(at).parent();
        while let Some(dir) = parent.filter(|dir| *dir != Path::new("/")) {
            self.entries
                .entry(dir.to_string_lossy().into_owned())
                .or_insert(Entry {
                    content: Content::Dir,
                    mode: 0o755,
                    owner: 0,
                });
            parent = dir.parent();
        }
        let entry = Entry {
            content,
            mode,
            owner,
        };
        self.entries.insert(at.to_owned(), entry);
        self
    }

    /// A hash over all that the layer is made of, cheaper than making it.
    pub(super) fn key(&self, into: &mut digest::Context) -> Result<()> {
        for (path, entry) in &self.entries {
            into.update(format!("{path}\0{:o}\0{}\0", entry.mode, entry.owner).as_bytes());
            match &entry.content {
                Content::Dir => into.update(b"dir"),
                Content::Text(text) => into.update(text),
                Content::Link(to) => into.update(to.as_bytes()),
                Content::Copy(from) => {
                    let mut file = open(from)?;
                    io::copy(&mut file, &mut Hashing(into))
                        .with_context(|| format!("reading {}", from.display()))?;
                }
            }
            into.update(b"\0");
        }
        Ok(())
    }

    /// Writes the tar and returns its digest (`sha256:…`) and size.
    pub(super) fn write(&self, to: &Path) -> Result<(String, u64)> {
        let shown = to.display();
        let file = File::create(to).with_context(|| format!("creating {shown}"))?;
        let mut builder = tar::Builder::new(Digesting::new(io::BufWriter::new(file)));
        for (path, entry) in &self.entries {
            ensure!(path.starts_with('/'), "{path} in an image is not absolute");
            append(&mut builder, path, entry)
                .with_context(|| format!("adding {path} to {shown}"))?;
        }
        let digesting = builder
            .into_inner()
            .with_context(|| format!("finishing {shown}"))?;
        digesting
            .finish()
            .with_context(|| format!("writing {shown}"))
    }
}

fn append<W: Write>(builder: &mut tar::Builder<W>, path: &str, entry: &Entry) -> Result<()> {
    let name = &path[1..];
    let mut header = Header::new_gnu();
    header.set_mode(entry.mode);
    header.set_uid(entry.owner);
    header.set_gid(entry.owner);
    header.set_mtime(0);
    match &entry.content {
        Content::Dir => {
            header.set_entry_type(EntryType::Directory);
            header.set_size(0);
            builder.append_data(&mut header, format!("{name}/"), io::empty())?;
        }
        Content::Link(to) => {
            header.set_entry_type(EntryType::Symlink);
            header.set_size(0);
            builder.append_link(&mut header, name, to)?;
        }
        Content::Text(text) => {
            header.set_size(u64::try_from(text.len())?);
            builder.append_data(&mut header, name, text.as_slice())?;
        }
        Content::Copy(from) => {
            let file = open(from)?;
            header.set_size(file.metadata().with_context(paths::reading(from))?.len());
            builder.append_data(&mut header, name, file)?;
        }
    }
    Ok(())
}

fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| format!("opening {}", path.display()))
}

struct Hashing<'a>(&'a mut digest::Context);

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Passes bytes on and keeps their digest and number.
struct Digesting<W> {
    to: W,
    digest: digest::Context,
    size: u64,
}

impl<W: Write> Digesting<W> {
    fn new(to: W) -> Self {
        Self {
            to,
            digest: digest::Context::new(&digest::SHA256),
            size: 0,
        }
    }

    fn finish(mut self) -> io::Result<(String, u64)> {
        self.to.flush()?;
        Ok((
            format!("sha256:{}", hex::encode(self.digest.finish())),
            self.size,
        ))
    }
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.digest.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
