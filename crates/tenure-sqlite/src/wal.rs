//! The head of SQLite's write-ahead log: which log it is.
//!
//! Every log carries two salts: a number that rises by one each time the log is restarted behind a checkpoint, and a random
//! one. SQLite replays any log that it finds beside a file; only the salts show whether it belongs there.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The length of the head; a log of this length or less holds nothing.
const HEAD: u64 = 32;
/// The two magic numbers of a log, by the byte order of its checksums.
const MAGIC: [u32; 2] = [0x377f_0682, 0x377f_0683];
/// How often a log may have been restarted since its salts were written down. The mark is not synced, so after a power cut it
/// can be some commits old.
const BEGINNINGS: u32 = 1 << 16;

/// The salts of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Salts {
    pub(crate) count: u32,
    pub(crate) random: u32,
}

impl Salts {
    /// The salts of an open log that holds something.
    pub(crate) fn of(log: &File) -> Option<Self> {
        let mut head = [0; HEAD as usize];
        log.read_exact_at(&mut head, 0).ok()?;
        let number = |at: usize| Some(u32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?));
        MAGIC.contains(&number(0)?).then_some(())?;
        Some(Self {
            count: number(16)?,
            random: number(20)?,
        })
    }

    /// Whether a log with these salts is the one with the earlier salts, or has taken its place since.
    pub(crate) fn continue_from(self, earlier: Self) -> bool {
        let beginnings = self.count.wrapping_sub(earlier.count);
        self == earlier || (1..=BEGINNINGS).contains(&beginnings)
    }
}

/// What is found where the log of a file should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Log {
    /// Nothing, or nothing in it.
    Empty,
    /// A log.
    Salted(Salts),
    /// Bytes that are not a log. SQLite would ignore them.
    Garbled,
}

impl Log {
    /// Looks at the log at this path.
    pub(crate) fn at(path: &Path) -> std::io::Result<Self> {
        let log = match File::open(path) {
            Ok(log) => log,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::Empty),
            Err(error) => return Err(error),
        };
        Ok(match log.metadata()?.len() {
            0..=HEAD => Self::Empty,
            _ => Salts::of(&log).map_or(Self::Garbled, Self::Salted),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn salts(count: u32, random: u32) -> Salts {
        Salts { count, random }
    }

    #[test]
    fn a_log_continues_itself_and_its_predecessors() {
        let now = salts(7, 1);
        assert!(now.continue_from(now));
        assert!(now.continue_from(salts(6, 9)) && salts(0, 3).continue_from(salts(u32::MAX, 4)));
        assert!(!now.continue_from(salts(7, 2)), "the same count with other contents");
        assert!(!now.continue_from(salts(8, 1)), "an older log");
        assert!(!now.continue_from(salts(7_000_000, 1)));
    }

    #[test]
    fn only_a_log_has_salts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenure.db-wal");
        assert_eq!(Log::at(&path).unwrap(), Log::Empty);
        std::fs::write(&path, [0; 32]).unwrap();
        assert_eq!(Log::at(&path).unwrap(), Log::Empty);
        std::fs::write(&path, [7; 5_000]).unwrap();
        assert_eq!(Log::at(&path).unwrap(), Log::Garbled);
        let mut log = vec![0; 5_000];
        log[..4].copy_from_slice(&MAGIC[0].to_be_bytes());
        log[16..20].copy_from_slice(&5u32.to_be_bytes());
        std::fs::write(&path, log).unwrap();
        assert_eq!(Log::at(&path).unwrap(), Log::Salted(salts(5, 0)));
    }
}
