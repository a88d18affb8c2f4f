//! A file system that looks like LiteFS to a supervisor: a flat FUSE mount whose `.primary` appears and disappears. A
//! separate process (this test binary) serves it, so it can be frozen and killed.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, MountOption, ReplyAttr, ReplyEntry,
    Request,
};
use tenure_testkit::{Process, own_test};

/// The variable with the mount point of the server.
const HOME: &str = "TENURE_TEST_LITEFS";

/// A mount. Unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Mount {
    process: Process,
}

impl Mount {
    /// Mounts like LiteFS. `None`, with a message, where FUSE is not available.
    pub(crate) fn start() -> Option<Mount> {
        Mount::of("litefs")
    }

    /// Mounts under another source name.
    pub(crate) fn of(source: &str) -> Option<Mount> {
        let root = rustix::process::getuid().is_root();
        if !root || fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
            eprintln!("SKIPPED: mounting a FUSE file system needs root and /dev/fuse");
            return None;
        }
        let process = Process::spawn("litefs", |dir| {
            let mut command = own_test(module_path!(), "the_server_of_the_mount");
            command.env(HOME, dir).env("TENURE_TEST_SOURCE", source);
            command
        });
        let mount = Mount {
            process: process.unwrap(),
        };
        mount.wait();
        Some(mount)
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.process.dir().join("mnt")
    }

    /// Makes this node follow a primary.
    pub(crate) fn follow(&self) {
        fs::write(self.process.dir().join("primary"), "other\n").unwrap();
    }

    /// Makes this node follow no primary: it is the primary, or disconnected.
    pub(crate) fn unfollow(&self) {
        fs::remove_file(self.process.dir().join("primary")).unwrap();
    }

    /// Freezes the server; every access to the mount hangs.
    pub(crate) fn freeze(&self) {
        self.process.pause().unwrap();
    }

    pub(crate) fn thaw(&self) {
        self.process.resume().unwrap();
    }

    /// Kills the server; the mount stays and is dead.
    pub(crate) fn kill(&self) {
        self.process.kill();
    }

    /// Mounts again.
    pub(crate) fn restart(&self) {
        self.process.restart().unwrap();
        self.wait();
    }

    /// Unmounts; the directory stays.
    pub(crate) fn unmount(&self) {
        assert!(unmount(&self.dir()));
    }

    fn wait(&self) {
        let ready = || Ok(fs::metadata(self.dir().join("is-mounted")).map(drop)?);
        self.process.wait_ready(super::PATIENCE, ready).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.process.kill();
        // Already unmounted or dead: nothing can hang any more.
        unmount(&self.dir());
    }
}

/// Unmounts, even in use. Returns whether there was a mount.
fn unmount(dir: &Path) -> bool {
    let mut umount = Command::new("umount");
    let done = umount.arg("--lazy").arg(dir).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

struct FakeLiteFs {
    primary: PathBuf,
}

const PRIMARY: INodeNo = INodeNo(2);
/// A marker file that distinguishes the mount from its directory.
const MARK: INodeNo = INodeNo(3);

impl FakeLiteFs {
    fn attr(ino: INodeNo) -> FileAttr {
        let root = ino == INodeNo::ROOT;
        FileAttr {
            ino,
            size: 6,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if root {
                FileType::Directory
            } else {
                FileType::RegularFile
            },
            perm: if root { 0o777 } else { 0o444 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 512,
            flags: 0,
        }
    }

    fn named(&self, name: &OsStr) -> Option<INodeNo> {
        if name == "is-mounted" {
            Some(MARK)
        } else {
            (name == ".primary" && self.primary.exists()).then_some(PRIMARY)
        }
    }
}

impl Filesystem for FakeLiteFs {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.named(name) {
            // As in LiteFS, the name may be cached for a while, its attributes may not.
            Some(ino) => reply.entry(&Duration::ZERO, &Self::attr(ino), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if ino != PRIMARY || self.primary.exists() {
            reply.attr(&Duration::ZERO, &Self::attr(ino));
        } else {
            reply.error(Errno::ENOENT);
        }
    }
}

#[test]
#[ignore = "the server process of the other tests, which start it"]
fn the_server_of_the_mount() {
    let Some(home) = std::env::var_os(HOME) else { return };
    let (home, source) = (Path::new(&home), std::env::var("TENURE_TEST_SOURCE").unwrap());
    let mnt = home.join("mnt");
    // A dead mount of an earlier server may still be there.
    unmount(&mnt);
    fs::create_dir_all(&mnt).unwrap();
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName(source)];
    let served = FakeLiteFs {
        primary: home.join("primary"),
    };
    fuser::mount(served, &mnt, &config).unwrap();
}
