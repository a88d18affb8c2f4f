//! Which process holds the lock of a database whose lock file is gone, or which is open under another name.
//!
//! Only for a message: the kernel lists who holds a lock, and the owner's own lock file, also a deleted one, can be read
//! through its descriptors. Where `/proc` says nothing the owner stays unknown.

use std::fs::{self, File};
use std::path::Path;

use crate::lock::{FileId, Owner, read};

/// How often the kernel's list is read: a read of it skips entries while other processes lock and unlock.
const READS: usize = 5;

/// The owner of a locked database.
pub(crate) fn of(database: &File) -> Owner {
    let found = || {
        let id = FileId::from(&database.metadata().ok()?);
        let locks = fs::read_to_string("/proc/locks").ok()?;
        locks
            .lines()
            .filter_map(|line| pid_of(line, id.inode))
            .find_map(|pid| owner(pid, id))
    };
    (0..READS).find_map(|_| found()).unwrap_or_default()
}

/// The process of a line like `1: FLOCK  ADVISORY  WRITE 1234 fd:01:393231 0 EOF`, when it is about this inode.
fn pid_of(line: &str, inode: u64) -> Option<u32> {
    let mut words = line.split_whitespace().skip_while(|word| *word != "FLOCK").skip(3);
    let (pid, file) = (words.next()?, words.next()?);
    (file.rsplit(':').next()?.parse() == Ok(inode)).then_some(())?;
    pid.parse().ok()
}

/// What the lock file of this process says, if the process has the database open.
pub(crate) fn owner(pid: u32, id: FileId) -> Option<Owner> {
    let mut open = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()? {
        open.push(entry.ok()?.path());
    }
    let is_it = |path: &std::path::PathBuf| fs::metadata(path).is_ok_and(|meta| FileId::from(&meta) == id);
    open.iter().any(is_it).then_some(())?;
    let unnamed = Owner {
        pid,
        ..Owner::default()
    };
    let named = open.iter().filter(|path| is_lock(path)).find_map(|path| {
        let owner = read(&mut File::open(path).ok()?);
        (owner.pid == pid).then_some(owner)
    });
    Some(named.unwrap_or(unnamed))
}

fn is_lock(descriptor: &Path) -> bool {
    let name = fs::read_link(descriptor).unwrap_or_default();
    let name = name.to_string_lossy();
    name.strip_suffix(" (deleted)").unwrap_or(&name).ends_with(".lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_another_file_or_kind_is_skipped() {
        let line = "1: FLOCK  ADVISORY  WRITE 1234 fd:01:393231 0 EOF";
        assert_eq!(pid_of(line, 393_231), Some(1234));
        assert_eq!(pid_of(line, 393_232), None);
        assert_eq!(
            pid_of("2: POSIX  ADVISORY  READ 1234 fd:01:393231 0 EOF", 393_231),
            None
        );
        assert_eq!(pid_of("1: -> FLOCK  ADVISORY  WRITE 7 fd:01:5 0 EOF", 5), Some(7));
        assert_eq!(pid_of("", 5), None);
    }
}
