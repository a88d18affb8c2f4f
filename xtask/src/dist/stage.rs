//! A folder that becomes a package. Every file and folder has a fixed mode, whatever the umask is.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The mode of a file to read.
pub(crate) const PLAIN: u32 = 0o644;
/// The mode of a program.
pub(crate) const PROGRAM: u32 = 0o755;

#[derive(Debug)]
pub(crate) struct Stage {
    root: PathBuf,
}

impl Stage {
    /// An empty folder.
    pub(crate) fn new(root: PathBuf) -> Result<Stage> {
        fs::remove_dir_all(&root).ok();
        let stage = Stage { root };
        stage.folder(Path::new(""))?;
        Ok(stage)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn write(&self, path: &str, mode: u32, bytes: impl AsRef<[u8]>) -> Result<()> {
        let file = self.place(path)?;
        fs::write(&file, bytes).with_context(|| format!("write {}", file.display()))?;
        set_mode(&file, mode)
    }

    pub(crate) fn copy(&self, from: &Path, path: &str, mode: u32) -> Result<()> {
        let file = self.place(path)?;
        fs::copy(from, &file).with_context(|| format!("copy {} to {}", from.display(), file.display()))?;
        set_mode(&file, mode)
    }

    /// The size of all files, in bytes.
    pub(crate) fn size(&self) -> Result<u64> {
        fn of(folder: &Path) -> std::io::Result<u64> {
            let mut sum = 0;
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                let metadata = entry.metadata()?;
                sum += if metadata.is_dir() {
                    of(&entry.path())?
                } else {
                    metadata.len()
                };
            }
            Ok(sum)
        }
        of(&self.root).with_context(|| format!("read {}", self.root.display()))
    }

    fn place(&self, path: &str) -> Result<PathBuf> {
        if let Some(folder) = Path::new(path).parent() {
            self.folder(folder)?;
        }
        Ok(self.root.join(path))
    }

    fn folder(&self, path: &Path) -> Result<()> {
        let folder = self.root.join(path);
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        for part in path.ancestors() {
            set_mode(&self.root.join(part), PROGRAM)?;
        }
        Ok(())
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .with_context(|| format!("set the mode of {}", path.display()))
}
