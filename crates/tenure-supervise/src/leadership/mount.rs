//! One observation of a LiteFS mount: whether the mount exists, and whether it has `.primary`.
//!
//! The directory is opened once and all calls use that handle, so that a concurrent mount or unmount cannot mix two
//! directories. Every call here may hang forever; see [`crate::blocking_thread`].

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::str::FromStr;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

/// The file that LiteFS shows on replicas. It contains the name of the primary.
/// <https://fly.io/docs/litefs/primary/>
const PRIMARY: &str = ".primary";
/// `FUSE_SUPER_MAGIC` of statfs(2).
const FUSE: u64 = 0x6573_5546;

/// Which mounts count as LiteFS. An absent file means "primary" only in a mount that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MountRule {
    /// A FUSE mount whose source is `litefs`, as LiteFS mounts itself.
    #[default]
    LiteFs,
    /// Any FUSE mount. Unsafe: a foreign mount has no `.primary` on any node.
    UnsafeAnyFuse,
    /// Any directory. Unsafe: without the mount, this node becomes primary. For tests.
    UnsafeNone,
}

impl MountRule {
    /// The word for it in settings.
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

/// Not a mount rule. The message lists the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write litefs, unsafe-any-fuse or unsafe-none")]
pub struct UnknownMountRule;

impl FromStr for MountRule {
    type Err = UnknownMountRule;

    fn from_str(word: &str) -> Result<Self, UnknownMountRule> {
        [Self::LiteFs, Self::UnsafeAnyFuse, Self::UnsafeNone]
            .into_iter()
            .find(|rule| rule.as_str() == word)
            .ok_or(UnknownMountRule)
    }
}

/// The result of an observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MountState {
    /// The mount exists and has `.primary`: a replica.
    Present,
    /// The mount exists and has no `.primary`.
    Absent {
        /// The mount id, so that a new mount in its place is not mistaken for it.
        mount: u64,
    },
    /// The mount does not exist or is dead.
    NoMount(String),
    /// Unknown: hung or denied.
    Unclear(String),
}

/// Observes the mount. Blocks as long as the file system does.
pub(crate) fn look(dir: &Path, rule: MountRule) -> MountState {
    match inspect(dir, rule) {
        Ok(state) => state,
        // The FUSE server is gone. https://man7.org/linux/man-pages/man4/fuse.4.html
        Err((what, Errno::NOTCONN | Errno::NOENT | Errno::NOTDIR | Errno::CONNABORTED | Errno::NODEV)) => {
            MountState::NoMount(format!(
                "{what} {} does not exist, or its file system is dead",
                dir.display()
            ))
        }
        Err((what, error)) => MountState::Unclear(format!("{what} {}: {error}", dir.display())),
    }
}

type FailedCall = (&'static str, Errno);

fn inspect(dir: &Path, rule: MountRule) -> Result<MountState, FailedCall> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened: OwnedFd = rustix::fs::open(dir, flags, Mode::empty()).map_err(|error| ("the directory", error))?;
    let mount = mount_of(&opened).map_err(|error| ("the mount of", error))?;
    if rule != MountRule::UnsafeNone {
        // The server answers this call itself: a dead or frozen one does not.
        let stat = rustix::fs::fstatfs(&opened).map_err(|error| ("the file system of", error))?;
        if u64::try_from(stat.f_type).ok() != Some(FUSE) {
            return Ok(MountState::NoMount(format!(
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
            return Ok(MountState::NoMount(format!(
                "{} is a mount of {source}, not of litefs",
                dir.display()
            )));
        }
    }
    match kind_of(opened.as_fd()) {
        Ok(FileType::RegularFile) => Ok(MountState::Present),
        Ok(other) => {
            let kind = match other {
                FileType::Directory => "a directory",
                FileType::Symlink => "a symbolic link",
                _ => "not a regular file",
            };
            Ok(MountState::Unclear(format!("{PRIMARY} in {} is {kind}", dir.display())))
        }
        Err(Errno::NOENT) => Ok(MountState::Absent { mount }),
        Err(error) => Err((PRIMARY, error)),
    }
}

/// The type of `.primary`, from the server and not from a cache.
fn kind_of(dir: std::os::fd::BorrowedFd<'_>) -> Result<FileType, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    match rustix::fs::statx(dir, PRIMARY, flags, StatxFlags::TYPE) {
        Ok(stat) => Ok(FileType::from_raw_mode(stat.stx_mode.into())),
        // An old kernel or a strict seccomp profile. LiteFS disables attribute caching for this file anyway.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::statat(dir, PRIMARY, AtFlags::SYMLINK_NOFOLLOW)
            .map(|stat| FileType::from_raw_mode(stat.st_mode)),
        Err(error) => Err(error),
    }
}

/// The mount id of an open directory, from `/proc`, without a call to its file system.
fn mount_of(opened: &OwnedFd) -> Result<u64, Errno> {
    let path = format!("/proc/self/fdinfo/{}", opened.as_raw_fd());
    let info = std::fs::read_to_string(path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    info.lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))
        .and_then(|id| id.trim().parse().ok())
        .ok_or(Errno::OPNOTSUPP)
}

/// The source of a mount in the table of proc_pid_mountinfo(5), if the root of a FUSE file system is mounted there.
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
                format!("{kind}, subdirectory {root}")
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
    fn mount_source_is_found_by_mount_id() {
        let source = |id| source_of(TABLE, id);
        assert_eq!(source(36).as_deref(), Some("litefs"));
        assert_eq!(source(38).as_deref(), Some("litefs"));
        assert_eq!(source(39).as_deref(), Some("s3fs"));
        // A subdirectory may never have `.primary`, and a name proves nothing without the type.
        assert_ne!(source(37).as_deref(), Some("litefs"));
        assert_ne!(source(22).as_deref(), Some("proc"));
        assert_eq!(source(3), None);
    }

    #[test]
    fn plain_directory_counts_only_under_the_unsafe_rule() {
        let dir = tempfile::tempdir().unwrap();
        for rule in [MountRule::LiteFs, MountRule::UnsafeAnyFuse] {
            assert!(matches!(look(dir.path(), rule), MountState::NoMount(_)), "{rule}");
        }
        assert!(matches!(
            look(dir.path(), MountRule::UnsafeNone),
            MountState::Absent { .. }
        ));
        std::fs::write(dir.path().join(PRIMARY), "other\n").unwrap();
        assert_eq!(look(dir.path(), MountRule::UnsafeNone), MountState::Present);
        // A `.primary` in a plain directory does not count either.
        assert!(matches!(look(dir.path(), MountRule::LiteFs), MountState::NoMount(_)));
        std::fs::remove_file(dir.path().join(PRIMARY)).unwrap();
        std::fs::create_dir(dir.path().join(PRIMARY)).unwrap();
        assert!(matches!(
            look(dir.path(), MountRule::UnsafeNone),
            MountState::Unclear(_)
        ));
        for missing in [dir.path().join("nowhere"), "/proc/self/stat".into()] {
            assert!(matches!(look(&missing, MountRule::UnsafeNone), MountState::NoMount(_)));
        }
    }

    #[test]
    fn rules_round_trip() {
        for rule in [MountRule::LiteFs, MountRule::UnsafeAnyFuse, MountRule::UnsafeNone] {
            assert_eq!(rule.as_str().parse(), Ok(rule));
        }
        assert_eq!("none".parse::<MountRule>(), Err(UnknownMountRule));
    }
}
