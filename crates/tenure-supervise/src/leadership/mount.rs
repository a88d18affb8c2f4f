//! One look at a mount of LiteFS: is `.primary` there, and is the mount?
//!
//! The directory is opened once, and everything is asked of that handle, so that a mount which comes or goes meanwhile
//! cannot lend one answer to another directory. Every call here may hang for ever; see [`crate::off_thread`].

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::str::FromStr;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

/// The file that LiteFS shows on replicas, with the name of the primary in it.
/// <https://fly.io/docs/litefs/primary/>
const PRIMARY: &str = ".primary";
/// `FUSE_SUPER_MAGIC` of statfs(2).
const FUSE: u64 = 0x6573_5546;

/// Which mounts count as one of LiteFS. An absent file means "primary" only in a mount that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MountRule {
    /// A FUSE mount whose source is `litefs`, as LiteFS mounts itself.
    #[default]
    LiteFs,
    /// Any FUSE mount. Unsafe: a mount of something else has no `.primary` on any node.
    UnsafeAnyFuse,
    /// Any directory. Unsafe: wherever the mount is missing, this node takes itself for the primary. For tests.
    UnsafeNone,
}

impl MountRule {
    /// As it is written in settings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LiteFs => "litefs",
            Self::UnsafeAnyFuse => "unsafe-any-fuse",
            Self::UnsafeNone => "unsafe-none",
        }
    }
}

impl fmt::Display for MountRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// None of the rules; the message names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write litefs, unsafe-any-fuse or unsafe-none")]
pub struct NoSuchRule;

impl FromStr for MountRule {
    type Err = NoSuchRule;

    fn from_str(word: &str) -> Result<Self, NoSuchRule> {
        [Self::LiteFs, Self::UnsafeAnyFuse, Self::UnsafeNone]
            .into_iter()
            .find(|rule| rule.as_str() == word)
            .ok_or(NoSuchRule)
    }
}

/// What a look has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sight {
    /// The mount is there, and `.primary` is: a replica.
    Present,
    /// The mount is there, `.primary` is not.
    Absent {
        /// Which mount this is, so that a new one in its place is not taken for it.
        mount: u64,
    },
    /// The mount is not there, or is dead.
    NoMount(String),
    /// Nothing can be said: hung, or refused.
    Unclear(String),
}

/// Looks. Blocks for as long as the file system likes.
pub(crate) fn look(dir: &Path, rule: MountRule) -> Sight {
    match seen(dir, rule) {
        Ok(sight) => sight,
        // The server of the mount is gone. https://man7.org/linux/man-pages/man4/fuse.4.html
        Err((what, Errno::NOTCONN | Errno::NOENT | Errno::NOTDIR | Errno::CONNABORTED | Errno::NODEV)) => {
            Sight::NoMount(format!(
                "{what} {} is not there, or its file system is dead",
                dir.display()
            ))
        }
        Err((what, error)) => Sight::Unclear(format!("{what} {}: {error}", dir.display())),
    }
}

type Failed = (&'static str, Errno);

fn seen(dir: &Path, rule: MountRule) -> Result<Sight, Failed> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened: OwnedFd = rustix::fs::open(dir, flags, Mode::empty()).map_err(|error| ("the directory", error))?;
    let mount = mount_of(&opened).map_err(|error| ("the mount of", error))?;
    if rule != MountRule::UnsafeNone {
        // Asked of the server itself: a dead or frozen one does not answer.
        let stat = rustix::fs::fstatfs(&opened).map_err(|error| ("the file system of", error))?;
        if u64::try_from(stat.f_type).ok() != Some(FUSE) {
            return Ok(Sight::NoMount(format!(
                "no FUSE file system is mounted at {}",
                dir.display()
            )));
        }
    }
    if rule == MountRule::LiteFs {
        let table = std::fs::read_to_string("/proc/self/mountinfo");
        let source = table.ok().and_then(|table| source_of(&table, mount));
        if source.as_deref() != Some("litefs") {
            let source = source.unwrap_or_else(|| "nothing".to_owned());
            return Ok(Sight::NoMount(format!(
                "{} is a mount of {source}, not of litefs",
                dir.display()
            )));
        }
    }
    match kind_of(opened.as_fd()) {
        Ok(FileType::RegularFile) => Ok(Sight::Present),
        Ok(other) => {
            let kind = match other {
                FileType::Directory => "a directory",
                FileType::Symlink => "a symbolic link",
                _ => "no regular file",
            };
            Ok(Sight::Unclear(format!("{PRIMARY} in {} is {kind}", dir.display())))
        }
        Err(Errno::NOENT) => Ok(Sight::Absent { mount }),
        Err(error) => Err((PRIMARY, error)),
    }
}

/// What `.primary` is, asked of the server and of no cache.
fn kind_of(dir: std::os::fd::BorrowedFd<'_>) -> Result<FileType, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    match rustix::fs::statx(dir, PRIMARY, flags, StatxFlags::TYPE) {
        Ok(stat) => Ok(FileType::from_raw_mode(stat.stx_mode.into())),
        // An old kernel or a strict seccomp profile. LiteFS lets nobody cache the attributes of this file anyway.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::statat(dir, PRIMARY, AtFlags::SYMLINK_NOFOLLOW)
            .map(|stat| FileType::from_raw_mode(stat.st_mode)),
        Err(error) => Err(error),
    }
}

/// The id of the mount that an open directory is on, from `/proc`, which asks no file system.
fn mount_of(opened: &OwnedFd) -> Result<u64, Errno> {
    let path = format!("/proc/self/fdinfo/{}", opened.as_raw_fd());
    let info = std::fs::read_to_string(path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    info.lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))
        .and_then(|id| id.trim().parse().ok())
        .ok_or(Errno::OPNOTSUPP)
}

/// The source of a mount in the table of proc_pid_mountinfo(5), when the whole of a FUSE file system is mounted there.
fn source_of(table: &str, mount: u64) -> Option<String> {
    table.lines().find_map(|line| {
        let (head, tail) = line.split_once(" - ")?;
        let mut head = head.split(' ');
        let (mut tail, id) = (tail.split(' '), head.next()?);
        let root = head.nth(2)?;
        let (kind, source) = (tail.next()?, tail.next()?);
        let fuse = kind == "fuse" || kind.starts_with("fuse.");
        (id.parse() == Ok(mount)).then(|| {
            if fuse && root == "/" {
                source.to_owned()
            } else {
                format!("{kind}, {root} of it")
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
36 27 0:45 / /litefs rw,nosuid,nodev,relatime shared:7 - fuse litefs rw,user_id=0,group_id=0
37 27 0:45 /part /bound rw - fuse litefs rw
38 27 0:46 / /data rw master:1 propagate_from:2 - fuse.litefs litefs rw
39 27 0:47 / /s3 rw - fuse.s3fs s3fs rw";

    #[test]
    fn the_source_of_a_mount_is_found_by_its_id() {
        let source = |id| source_of(TABLE, id);
        assert_eq!(source(36).as_deref(), Some("litefs"));
        assert_eq!(source(38).as_deref(), Some("litefs"));
        assert_eq!(source(39).as_deref(), Some("s3fs"));
        // A part of it may have no `.primary` at any time, and a name proves nothing without the kind.
        assert_ne!(source(37).as_deref(), Some("litefs"));
        assert_ne!(source(22).as_deref(), Some("proc"));
        assert_eq!(source(3), None);
    }

    #[test]
    fn no_directory_without_a_mount_counts_unless_the_rule_says_that_it_is_unsafe() {
        let dir = tempfile::tempdir().unwrap();
        for rule in [MountRule::LiteFs, MountRule::UnsafeAnyFuse] {
            assert!(matches!(look(dir.path(), rule), Sight::NoMount(_)), "{rule}");
        }
        assert!(matches!(look(dir.path(), MountRule::UnsafeNone), Sight::Absent { .. }));
        std::fs::write(dir.path().join(PRIMARY), "other\n").unwrap();
        assert_eq!(look(dir.path(), MountRule::UnsafeNone), Sight::Present);
        // What a plain directory says about a primary is not believed either.
        assert!(matches!(look(dir.path(), MountRule::LiteFs), Sight::NoMount(_)));
        std::fs::remove_file(dir.path().join(PRIMARY)).unwrap();
        std::fs::create_dir(dir.path().join(PRIMARY)).unwrap();
        assert!(matches!(look(dir.path(), MountRule::UnsafeNone), Sight::Unclear(_)));
        for missing in [dir.path().join("nowhere"), "/proc/self/stat".into()] {
            assert!(matches!(look(&missing, MountRule::UnsafeNone), Sight::NoMount(_)));
        }
    }

    #[test]
    fn a_rule_is_read_as_it_is_written() {
        for rule in [MountRule::LiteFs, MountRule::UnsafeAnyFuse, MountRule::UnsafeNone] {
            assert_eq!(rule.as_str().parse(), Ok(rule));
        }
        assert_eq!("none".parse::<MountRule>(), Err(NoSuchRule));
    }
}
