//! The index of SQLite's log (`-shm`): what the log must contain while the file is open.
//!
//! SQLite reads the index and not the log to find out where a commit is. So it never notices that the log lost commits, and
//! it appends later ones where the next open does not find them. The index counts the frames of the log and has its salts and
//! the checksum of its last frame. A checkpoint that empties the log, also that of another program, empties the index first.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::watch::beside;

/// The length of the index's head: two copies of the same 48 bytes.
const INDEX_HEAD: usize = 96;
/// The length of the log's head, and where its salts are.
const LOG_HEAD: u64 = 32;
const LOG_SALTS: u64 = 16;
/// The length of a frame's head, with the salts and the checksum at 8.
const FRAME_HEAD: u64 = 24;
const FRAME_PROOF: u64 = 8;
/// How often a head that changes during the read is read again. A writer changes it with each commit.
const TRIES: usize = 100;

/// The log and its index, open to be looked at.
///
/// Closing the index drops SQLite's own locks on it, because they are POSIX record locks. So it is closed after SQLite's
/// connections.
#[derive(Debug)]
pub(crate) struct OpenLog {
    log: File,
    index: File,
}

/// What the index says of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Expected {
    salts: [u8; 8],
    /// The checksum of the last frame.
    checksum: [u8; 8],
    frames: u32,
    page: u64,
}

impl OpenLog {
    /// Opens both.
    ///
    /// # Errors
    /// Also before the first transaction: then there is no log.
    pub(crate) fn beside(path: &Path) -> io::Result<Self> {
        Ok(Self {
            log: File::open(beside(path, "-wal"))?,
            index: File::open(beside(path, "-shm"))?,
        })
    }

    /// Says what is wrong, if the log does not contain what the index says, or if the index was cut.
    pub(crate) fn look(&self) -> Option<&'static str> {
        for _ in 0..TRIES {
            let mut head = [0; INDEX_HEAD];
            if self.index.read_exact_at(&mut head, 0).is_err() {
                return Some("has an index (-shm) that was cut short");
            }
            // `None`: it is being written, or SQLite will rebuild it from the log.
            let Some(expected) = Expected::read(&head) else {
                continue;
            };
            if expected.is_in(&self.log) {
                return None;
            }
            // A commit may have gone to a new log since.
            let mut again = [0; INDEX_HEAD];
            if self.index.read_exact_at(&mut again, 0).is_ok() && again == head {
                return Some("was cut short or overwritten");
            }
        }
        None
    }
}

impl Expected {
    /// Reads the head of the index, which is in the byte order of the machine. `None` when its copies differ or it is not in
    /// use.
    fn read(head: &[u8; INDEX_HEAD]) -> Option<Self> {
        let (one, other) = head.split_at(INDEX_HEAD / 2);
        let (is_init, size) = (one[12], u16::from_ne_bytes([one[14], one[15]]));
        if one != other || is_init == 0 {
            return None;
        }
        let number = |at: usize| u32::from_ne_bytes([one[at], one[at + 1], one[at + 2], one[at + 3]]);
        let mut checksum = [0; 8];
        checksum[..4].copy_from_slice(&number(24).to_be_bytes());
        checksum[4..].copy_from_slice(&number(28).to_be_bytes());
        let mut salts = [0; 8];
        salts.copy_from_slice(&one[32..40]);
        Some(Self {
            salts,
            checksum,
            frames: number(16),
            // 1 stands for 65,536.
            page: u64::from(size & 0xfe00) + (u64::from(size & 1) << 16),
        })
    }

    /// Whether the head of the log and its last frame are there.
    fn is_in(&self, log: &File) -> bool {
        let Some(before) = self.frames.checked_sub(1) else {
            return true;
        };
        let last = LOG_HEAD + u64::from(before) * (FRAME_HEAD + self.page);
        let end = last + FRAME_HEAD + self.page;
        let (mut salts, mut proof) = ([0; 8], [0; 16]);
        log.metadata().is_ok_and(|meta| meta.len() >= end)
            && log.read_exact_at(&mut salts, LOG_SALTS).is_ok()
            && salts == self.salts
            && log.read_exact_at(&mut proof, last + FRAME_PROOF).is_ok()
            && proof[..8] == self.salts
            && proof[8..] == self.checksum
    }
}
