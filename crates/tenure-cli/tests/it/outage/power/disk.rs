//! A file system that keeps what was not synced apart, and forgets an arbitrary part of it at a cut.
//!
//! It promises what POSIX promises and no more: data is durable after a sync of its file, a name after a sync of its
//! directory. Everything else may be lost in any order, by pages of 4 KiB, and one page of a write may be torn.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use super::Chance;

/// What the disk writes as one.
const PAGE: usize = 4096;
/// Only the kernel changes anything, so that it may cache for as long as the mount lasts.
const CACHED: Duration = Duration::from_secs(86_400);

/// A mounted disk. Unmounted when dropped.
pub(super) struct Disk {
    // Before the directory, which is removed.
    session: Option<BackgroundSession>,
    shared: Shared,
    dir: tempfile::TempDir,
}

/// What a cut did to the disk.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Cut {
    /// Pages that were written and not synced, and are lost.
    pub(super) pages: u64,
    /// Pages of which only the beginning was written.
    pub(super) torn: u64,
    /// Names that were created, removed or moved, and are as before.
    pub(super) names: u64,
    /// The mark of the store is torn, empty or gone.
    pub(super) is_mark_hurt: bool,
}

impl Disk {
    /// Mounts an empty disk. `None`, with a message, where FUSE is not available.
    pub(super) fn mount() -> Option<Self> {
        let root = rustix::process::getuid().is_root();
        if !root || fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
            eprintln!("SKIPPED: a disk that loses power needs root and /dev/fuse");
            return None;
        }
        let mut disk = Self {
            session: None,
            shared: Shared::default(),
            dir: tempfile::tempdir().unwrap(),
        };
        disk.attach();
        Some(disk)
    }

    fn attach(&mut self) {
        let session = fuser::spawn_mount(self.shared.clone(), self.path(), &Config::default());
        self.session = Some(session.unwrap());
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// From now on each sync succeeds and does nothing.
    pub(super) fn lie(&self) {
        self.shared.lock().lies = true;
    }

    /// The power fails with the `nth` change from now: it may be lost, and everything after it fails.
    pub(super) fn fail_after(&self, nth: u64) {
        let mut state = self.shared.lock();
        state.fails_at = Some(state.changes + nth);
    }

    /// Changes of files and names so far.
    pub(super) fn changes(&self) -> u64 {
        self.shared.lock().changes
    }

    /// Waits until the power has failed, for a while at most. Answers whether it has.
    pub(super) fn wait_for_failure(&self, within: Duration) -> bool {
        let failing = self
            .shared
            .failed
            .wait_timeout_while(self.shared.lock(), within, |state| !state.failed);
        failing.unwrap_or_else(PoisonError::into_inner).0.failed
    }

    /// Forgets an arbitrary part of what was not synced, and mounts what is left. No process may use the disk.
    pub(super) fn cut(&mut self, chance: &mut Chance) -> Cut {
        if let Some(session) = self.session.take() {
            match session.umount_and_join() {
                // The kernel may tell the server first that the connection of the mount is over.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                ended => ended.unwrap(),
            }
        }
        let cut = self.shared.lock().cut(chance);
        self.attach();
        cut
    }
}

/// A change of a file.
enum Change {
    Write { at: usize, data: Vec<u8> },
    Length(usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write { at, data } => {
                let end = at + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*at..end].copy_from_slice(data);
            }
            Self::Length(length) => bytes.resize(*length, 0),
        }
    }

    /// The parts that reach the disk each for itself.
    fn pages(self) -> Vec<Self> {
        let Self::Write { mut at, data } = self else {
            return vec![self];
        };
        let (mut rest, mut pages) = (&data[..], Vec::new());
        while !rest.is_empty() {
            let (page, later) = rest.split_at(rest.len().min(PAGE - at % PAGE));
            let data = page.to_vec();
            pages.push(Self::Write { at, data });
            (at, rest) = (at + page.len(), later);
        }
        pages
    }
}

/// A change of a directory.
enum Naming {
    Put(OsString, u64),
    Remove(OsString),
    Move(OsString, OsString, u64),
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<OsString, u64>) {
        match self {
            Self::Put(name, ino) => drop(names.insert(name.clone(), *ino)),
            Self::Remove(name) => drop(names.remove(name)),
            Self::Move(from, to, ino) => {
                names.remove(from);
                names.insert(to.clone(), *ino);
            }
        }
    }
}

/// What the kernel sees, what is on the disk, and what was changed between the two.
struct Kept<T, C> {
    now: T,
    durable: T,
    pending: Vec<C>,
}

impl<T: Default, C> Default for Kept<T, C> {
    fn default() -> Self {
        Self {
            now: T::default(),
            durable: T::default(),
            pending: Vec::new(),
        }
    }
}

enum Contents {
    File(Kept<Vec<u8>, Change>),
    Directory(Kept<BTreeMap<OsString, u64>, Naming>),
}

struct Node {
    mode: u32,
    contents: Contents,
}

struct State {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    changes: u64,
    fails_at: Option<u64>,
    failed: bool,
    lies: bool,
}

/// What is done with the pending changes of one file or directory.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Lost,
    Kept,
    /// Each for itself.
    Mixed,
    /// The first so many.
    Prefix(usize),
}

impl Fate {
    fn draw(chance: &mut Chance, changes: usize) -> Self {
        match chance.below(5) {
            0 => Self::Lost,
            1 => Self::Kept,
            2 | 3 => Self::Mixed,
            _ => Self::Prefix(chance.index(changes + 1)),
        }
    }

    fn keeps(self, nth: usize, chance: &mut Chance) -> bool {
        match self {
            Self::Lost => false,
            Self::Kept => true,
            Self::Mixed => chance.below(2) == 0,
            Self::Prefix(first) => nth < first,
        }
    }
}

impl State {
    fn cut(&mut self, chance: &mut Chance) -> Cut {
        let mut cut = Cut::default();
        let mut torn = Vec::new();
        for (ino, node) in &mut self.nodes {
            match &mut node.contents {
                Contents::File(file) => {
                    let before = cut.torn;
                    cut_file(file, chance, &mut cut);
                    torn.extend((cut.torn > before).then_some(*ino));
                }
                Contents::Directory(names) => {
                    let pending = std::mem::take(&mut names.pending);
                    let fate = Fate::draw(chance, pending.len());
                    for (nth, naming) in pending.iter().enumerate() {
                        if fate.keeps(nth, chance) {
                            naming.apply(&mut names.durable);
                        } else {
                            cut.names += 1;
                        }
                    }
                    names.now.clone_from(&names.durable);
                }
            }
        }
        self.drop_unreachable();
        cut.is_mark_hurt = self
            .mark()
            .is_none_or(|(ino, is_empty)| is_empty || torn.contains(&ino));
        (self.fails_at, self.failed) = (None, false);
        cut
    }

    /// A file without a name is gone, and so is a directory that lost its own.
    fn drop_unreachable(&mut self) {
        let (mut reached, mut next) = (BTreeMap::new(), vec![INodeNo::ROOT.0]);
        while let Some(ino) = next.pop() {
            let Some(node) = self.nodes.remove(&ino) else { continue };
            if let Contents::Directory(names) = &node.contents {
                next.extend(names.now.values());
            }
            reached.insert(ino, node);
        }
        self.nodes = reached;
    }

    /// The mark beside the store, and whether it is empty.
    fn mark(&self) -> Option<(u64, bool)> {
        let names = self.nodes.values().filter_map(|node| match &node.contents {
            Contents::Directory(names) => Some(&names.now),
            Contents::File(_) => None,
        });
        let mut entries = names.flatten();
        let (_, ino) = entries.find(|(name, _)| name.to_string_lossy().ends_with(".mark"))?;
        let Contents::File(file) = &self.nodes.get(ino)?.contents else {
            return None;
        };
        Some((*ino, file.now.is_empty()))
    }

    fn file(&mut self, ino: INodeNo) -> Result<&mut Kept<Vec<u8>, Change>, Errno> {
        match &mut self.nodes.get_mut(&ino.0).ok_or(Errno::ENOENT)?.contents {
            Contents::File(file) => Ok(file),
            Contents::Directory(_) => Err(Errno::EISDIR),
        }
    }

    fn names(&mut self, ino: INodeNo) -> Result<&mut Kept<BTreeMap<OsString, u64>, Naming>, Errno> {
        match &mut self.nodes.get_mut(&ino.0).ok_or(Errno::ENOENT)?.contents {
            Contents::Directory(names) => Ok(names),
            Contents::File(_) => Err(Errno::ENOTDIR),
        }
    }

    fn write(&mut self, ino: INodeNo, change: Change) -> Result<(), Errno> {
        let file = self.file(ino)?;
        change.apply(&mut file.now);
        file.pending.push(change);
        Ok(())
    }

    fn name(&mut self, directory: INodeNo, naming: Naming) -> Result<(), Errno> {
        let names = self.names(directory)?;
        naming.apply(&mut names.now);
        names.pending.push(naming);
        Ok(())
    }

    fn find(&mut self, directory: INodeNo, name: &OsStr) -> Result<u64, Errno> {
        self.names(directory)?.now.get(name).copied().ok_or(Errno::ENOENT)
    }

    fn make(&mut self, directory: INodeNo, name: &OsStr, mode: u32, contents: Contents) -> Result<FileAttr, Errno> {
        if self.find(directory, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        let ino = self.next;
        self.next += 1;
        self.nodes.insert(ino, Node { mode, contents });
        self.name(directory, Naming::Put(name.to_owned(), ino))?;
        self.attr(INodeNo(ino))
    }

    fn attr(&self, ino: INodeNo) -> Result<FileAttr, Errno> {
        let node = self.nodes.get(&ino.0).ok_or(Errno::ENOENT)?;
        let (kind, size) = match &node.contents {
            Contents::File(file) => (FileType::RegularFile, file.now.len() as u64),
            Contents::Directory(_) => (FileType::Directory, 0),
        };
        Ok(FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: u16::try_from(node.mode & 0o7777).unwrap_or(0o700),
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

fn cut_file(file: &mut Kept<Vec<u8>, Change>, chance: &mut Chance, cut: &mut Cut) {
    let pages: Vec<_> = std::mem::take(&mut file.pending)
        .into_iter()
        .flat_map(Change::pages)
        .collect();
    let fate = Fate::draw(chance, pages.len());
    for (nth, mut page) in pages.into_iter().enumerate() {
        let is_edge = fate == Fate::Prefix(nth) || (fate == Fate::Mixed && chance.below(8) == 0);
        match &mut page {
            Change::Write { data, .. } if is_edge => {
                data.truncate(chance.index(data.len()));
                cut.torn += 1;
                page.apply(&mut file.durable);
            }
            _ if fate.keeps(nth, chance) => page.apply(&mut file.durable),
            Change::Write { at, data } => {
                cut.pages += 1;
                // The length can reach the disk without the data.
                let end = *at + data.len();
                if fate != Fate::Lost && file.durable.len() < end && chance.below(4) == 0 {
                    file.durable.resize(end, 0);
                }
            }
            Change::Length(_) => cut.pages += 1,
        }
    }
    file.now.clone_from(&file.durable);
}

#[derive(Clone)]
struct Shared {
    state: Arc<Mutex<State>>,
    failed: Arc<Condvar>,
}

impl Default for Shared {
    fn default() -> Self {
        let root = Node {
            mode: 0o700,
            contents: Contents::Directory(Kept::default()),
        };
        let state = State {
            nodes: BTreeMap::from([(INodeNo::ROOT.0, root)]),
            next: INodeNo::ROOT.0 + 1,
            changes: 0,
            fails_at: None,
            failed: false,
            lies: false,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            failed: Arc::default(),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, read: impl FnOnce(&mut State) -> Result<T, Errno>) -> Result<T, Errno> {
        let mut state = self.lock();
        if state.failed {
            Err(Errno::EIO)
        } else {
            read(&mut state)
        }
    }

    /// A change, after which the power may fail. What fails with it is pending at most.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> Result<T, Errno>) -> Result<T, Errno> {
        self.count(|state, _| change(state))
    }

    fn count<T>(&self, change: impl FnOnce(&mut State, bool) -> Result<T, Errno>) -> Result<T, Errno> {
        self.read(|state| {
            state.changes += 1;
            let fails = state.fails_at.is_some_and(|at| state.changes >= at);
            let done = change(state, fails);
            if fails {
                state.failed = true;
                self.failed.notify_all();
                return Err(Errno::EIO);
            }
            done
        })
    }

    fn sync<T, C>(
        &self,
        find: impl FnOnce(&mut State) -> Result<&mut Kept<T, C>, Errno>,
        apply: impl Fn(&C, &mut T),
    ) -> Result<(), Errno> {
        self.count(|state, fails| {
            if !fails && !state.lies {
                let kept = find(state)?;
                let durable = &mut kept.durable;
                kept.pending.drain(..).for_each(|change| apply(&change, durable));
            }
            Ok(())
        })
    }

    fn remove(&self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        self.change(|state| {
            state.find(parent, name)?;
            state.name(parent, Naming::Remove(name.to_owned()))
        })
    }
}

fn emptily(done: Result<(), Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn with_entry(done: Result<FileAttr, Errno>, reply: ReplyEntry) {
    match done {
        Ok(attr) => reply.entry(&CACHED, &attr, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn with_attr(done: Result<FileAttr, Errno>, reply: ReplyAttr) {
    match done {
        Ok(attr) => reply.attr(&CACHED, &attr),
        Err(error) => reply.error(error),
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

impl Filesystem for Shared {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.read(|state| {
            let ino = state.find(parent, name)?;
            state.attr(INodeNo(ino))
        });
        with_entry(found, reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        with_attr(self.read(|state| state.attr(ino)), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = self.change(|state| {
            if let (Some(mode), Some(node)) = (mode, state.nodes.get_mut(&ino.0)) {
                node.mode = mode;
            }
            if let Some(size) = size {
                state.write(ino, Change::Length(index(size)))?;
            }
            state.attr(ino)
        });
        with_attr(set, reply);
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let directory = Contents::Directory(Kept::default());
        with_entry(
            self.change(|state| state.make(parent, name, mode & !umask, directory)),
            reply,
        );
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        emptily(self.remove(parent, name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        emptily(self.remove(parent, name), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = self.change(|state| {
            if parent != to {
                return Err(Errno::EXDEV);
            }
            let ino = state.find(parent, name)?;
            state.name(parent, Naming::Move(name.to_owned(), to_name.to_owned(), ino))
        });
        emptily(renamed, reply);
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, _: i32, reply: ReplyCreate) {
        let file = Contents::File(Kept::default());
        match self.change(|state| state.make(parent, name, mode & !umask, file)) {
            Ok(attr) => reply.created(&CACHED, &attr, Generation(0), FileHandle(0), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.read(|state| {
            let bytes = &state.file(ino)?.now;
            let from = index(offset).min(bytes.len());
            let to = (from + size as usize).min(bytes.len());
            Ok(bytes[from..to].to_vec())
        });
        match read {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (at, written) = (index(offset), data.to_vec());
        match self.change(|state| state.write(ino, Change::Write { at, data: written })) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap()),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        emptily(self.sync(|state| state.file(ino), Change::apply), reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        emptily(self.sync(|state| state.names(ino), Naming::apply), reply);
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.read(|state| {
            let names: Vec<_> = state.names(ino)?.now.clone().into_iter().collect();
            let kind = |ino| state.attr(INodeNo(ino)).map(|attr| (attr.ino, attr.kind));
            names
                .into_iter()
                .map(|(name, ino)| Ok((kind(ino)?, name)))
                .collect::<Result<Vec<_>, Errno>>()
        });
        match listed {
            Ok(names) => {
                for (nth, ((ino, kind), name)) in names.into_iter().enumerate().skip(index(offset)) {
                    if reply.add(ino, nth as u64 + 1, kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(error),
        }
    }
}

/// A path below the disk.
pub(super) fn below(disk: &Disk, name: &str) -> PathBuf {
    disk.path().join(name)
}
