//! A file system that looks like LiteFS from where a supervisor stands: a flat FUSE mount with a `.primary` that comes
//! and goes. It is served by a process of its own (this very test program), so that it can be frozen and killed.

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

/// Where the server is told what to do.
const HOME: &str = "TENURE_TEST_LITEFS";

/// A mount; dropping it removes it.
#[derive(Debug)]
pub(crate) struct Mount {
    process: Process,
}

impl Mount {
    /// Mounts, as LiteFS does. `None`, after a loud word, where FUSE is not to be had.
    pub(crate) fn start() -> Option<Mount> {
        Mount::of("litefs")
    }

    /// Mounts under another name than that of LiteFS.
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

    /// This node follows a primary from now on.
    pub(crate) fn follow(&self) {
        fs::write(self.process.dir().join("primary"), "other\n").unwrap();
    }

    /// This node follows nobody from now on: it is the primary, or disconnected.
    pub(crate) fn unfollow(&self) {
        fs::remove_file(self.process.dir().join("primary")).unwrap();
    }

    /// The server stands still; whoever looks at the mount hangs.
    pub(crate) fn freeze(&self) {
        self.process.pause().unwrap();
    }

    pub(crate) fn thaw(&self) {
        self.process.resume().unwrap();
    }

    /// The server is gone, and its mount stays, dead.
    pub(crate) fn kill(&self) {
        self.process.kill();
    }

    /// Mounts anew.
    pub(crate) fn restart(&self) {
        self.process.restart().unwrap();
        self.wait();
    }

    /// Takes the mount away from under the directory, which stays.
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
        // Gone already, or dead: either way nothing hangs any more.
        unmount(&self.dir());
    }
}

/// Takes a mount away, in use or not; whether there was one.
fn unmount(dir: &Path) -> bool {
    let mut umount = Command::new("umount");
    let done = umount.arg("--lazy").arg(dir).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

struct FakeLiteFs {
    primary: PathBuf,
}

const PRIMARY: INodeNo = INodeNo(2);
/// A file of our own, to tell the mount from its directory.
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
            // As LiteFS does it, the name may be remembered for a while; its attributes may not.
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
#[ignore = "it is the server of the other tests, which start it"]
fn the_server_of_the_mount() {
    let Some(home) = std::env::var_os(HOME) else { return };
    let (home, source) = (Path::new(&home), std::env::var("TENURE_TEST_SOURCE").unwrap());
    let mnt = home.join("mnt");
    // One of an earlier life may still be there, dead.
    unmount(&mnt);
    fs::create_dir_all(&mnt).unwrap();
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName(source)];
    let served = FakeLiteFs {
        primary: home.join("primary"),
    };
    fuser::mount(served, &mnt, &config).unwrap();
}
