//! A small disk in memory, which a test can fill.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

/// The file that takes all the room.
const BALLAST: &str = "ballast";

/// A mounted disk; dropping it unmounts it. Processes that write to it are dropped before.
#[derive(Debug)]
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts an empty disk of some bytes. `None`, with a message, where this process may not mount.
    #[must_use]
    pub fn mount(bytes: u64) -> Option<Self> {
        match Self::try_mount(bytes) {
            Ok(disk) => Some(disk),
            Err(error) => {
                eprintln!("SKIPPED: a disk that is full needs root and tmpfs: {error:#}");
                None
            }
        }
    }

    fn try_mount(bytes: u64) -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "this process is not root");
        let dir = tempfile::Builder::new().prefix("tenure-disk-").tempdir()?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tenure-disk"])
            .arg(dir.path())
            .output()
            .context("run mount")?;
        let said = String::from_utf8_lossy(&mounted.stderr);
        ensure!(mounted.status.success(), "mount: {said}");
        Ok(Self(dir))
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all the room that is left.
    ///
    /// # Errors
    /// If a write fails for another reason than the missing room.
    pub fn fill(&self) -> Result<()> {
        let mut ballast = File::create(self.path().join(BALLAST)).context("create the ballast")?;
        for part in [vec![0; 65_536], vec![0; 512]] {
            loop {
                match ballast.write(&part) {
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
                    Err(error) => bail!("fill the disk: {error}"),
                }
            }
        }
        Ok(())
    }

    /// Makes room again.
    ///
    /// # Errors
    /// If the disk was not full.
    pub fn make_room(&self) -> Result<()> {
        fs::remove_file(self.path().join(BALLAST)).context("remove the ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that was killed may still be going.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_takes_writes_again_after_room_is_made() {
        let Some(disk) = SmallDisk::mount(1 << 20) else { return };
        let file = disk.path().join("file");
        disk.fill().unwrap();
        let full = fs::write(&file, [1; 8_192]).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        disk.make_room().unwrap();
        fs::write(&file, [1; 8_192]).unwrap();
        let path = disk.path().to_owned();
        drop(disk);
        assert!(!path.exists(), "the disk is unmounted");
    }
}
