//! The file operations with which an identity is written. A trait, so that a test can end the
//! world before, within or after each of them; [`RealDisk`] is what runs.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Owner only: keys are among them.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// File operations that change something. After each returns, its effect is on the disk.
pub trait Disk {
    /// Creates a directory, and its parents, unless it exists.
    fn create_directory(&self, path: &Path) -> io::Result<()>;
    /// Writes a whole file, readable by its owner alone.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Moves a file or directory within one directory tree, replacing a file of that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a directory and what is in it; fine where there is none.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
}

/// The file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(path)?;
        sync_parent(path)
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(FILE_MODE)
            .open(path)?;
        // The mode above is for a new file only.
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
        file.write_all(content)?;
        file.sync_all()?;
        sync_parent(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        sync_parent(from)?;
        sync_parent(to)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => sync_parent(path),
        }
    }
}

/// A new name is on the disk when its directory is.
fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}
