//! What a store file must at least contain, in a small file beside it (`<file>.mark`).
//!
//! The mark is written in place after every commit and never synced by it: after a kill it is exact, and after a power cut
//! it can only be older than the file, which was synced. So a file with fewer commits than its mark has forgotten some.
//! One line of text with a checksum: a mark that cannot be read counts as missing.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use tenure_core::time::micros;

use crate::lock::open_private;
use crate::wal::Salts;
use crate::watch::beside;

/// The length of the line, so that a shorter one leaves nothing behind.
const LINE: usize = 256;
const NAME: &str = "tenure-mark-1";

/// A random number that identifies one life of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity(pub(crate) u128);

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Identity {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

/// The log that the last commit went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogMark {
    pub(crate) salts: Salts,
    /// The number of the last commit that the file holds without this log, or of an earlier one.
    pub(crate) base: u64,
}

/// What the file was when it was last committed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) identity: Identity,
    pub(crate) inode: u64,
    /// The number of its last commit.
    pub(crate) commits: u64,
    /// `None` after a clean close.
    pub(crate) log: Option<LogMark>,
    /// The longest ttl that was served.
    pub(crate) longest: Duration,
}

impl Mark {
    /// The mark beside a file; `None` when it is missing or cannot be understood.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let text = std::fs::read(mark_path(path)).ok()?;
        Self::parse(std::str::from_utf8(text.get(..LINE)?).ok()?.trim_end())
    }

    fn parse(line: &str) -> Option<Self> {
        let (fields, sum) = line.rsplit_once(' ')?;
        (u64::from_str_radix(sum, 16) == Ok(checksum(fields))).then_some(())?;
        let mut fields = fields.split(' ');
        (fields.next()? == NAME).then_some(())?;
        let identity = fields.next()?.parse().ok()?;
        let mut number = || fields.next()?.parse::<u64>().ok();
        let (inode, commits, longest) = (number()?, number()?, number()?);
        let log = match fields.next()? {
            "-" => None,
            salts => {
                let (count, random) = salts.split_once(':')?;
                let salts = Salts {
                    count: count.parse().ok()?,
                    random: random.parse().ok()?,
                };
                let base = fields.next()?.parse().ok()?;
                Some(LogMark { salts, base })
            }
        };
        Some(Self {
            identity,
            inode,
            commits,
            log,
            longest: Duration::from_micros(longest),
        })
    }

    /// The line, of one length whatever it says.
    fn line(&self) -> String {
        let (longest, log) = (micros(self.longest), self.log);
        let log = log.map_or_else(
            || "-".to_owned(),
            |log| format!("{}:{} {}", log.salts.count, log.salts.random, log.base),
        );
        let fields = format!(
            "{NAME} {} {} {} {longest} {log}",
            self.identity, self.inode, self.commits
        );
        let width = LINE - 1;
        format!("{:width$}\n", format!("{fields} {:016x}", checksum(&fields)))
    }
}

/// Where the mark of a file is.
pub(crate) fn mark_path(path: &Path) -> PathBuf {
    beside(path, ".mark")
}

/// FNV-1a.
fn checksum(text: &str) -> u64 {
    let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The mark of an open file.
#[derive(Debug)]
pub(crate) struct Marker {
    file: File,
    log_path: PathBuf,
    /// Opened when SQLite has made it.
    log: Option<File>,
    mark: Mark,
}

impl Marker {
    /// Writes this mark, and makes its file if it is missing. On disk when it returns: from then on it can only lag.
    pub(crate) fn begin(path: &Path, mark: Mark) -> io::Result<Self> {
        let marker = Self {
            file: open_private(&mark_path(path))?,
            log_path: beside(path, "-wal"),
            log: None,
            mark,
        };
        marker.write()?;
        marker.file.sync_data()?;
        Ok(marker)
    }

    /// Notes a commit, or that the log may have been restarted.
    pub(crate) fn note(&mut self, commits: u64, longest: Duration) -> io::Result<()> {
        if self.log.is_none() {
            self.log = File::open(&self.log_path).ok();
        }
        let salts = self.log.as_ref().and_then(Salts::of);
        let known = self.mark.log.filter(|log| Some(log.salts) == salts);
        // SQLite restarts the log when everything before this commit is in the file.
        let base = commits.saturating_sub(1);
        self.mark.log = known.or_else(|| salts.map(|salts| LogMark { salts, base }));
        self.mark.commits = commits;
        self.mark.longest = longest;
        self.write()
    }

    /// Notes that the log is empty and the file complete.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.mark.log = None;
        self.write()?;
        self.file.sync_data()
    }

    fn write(&self) -> io::Result<()> {
        self.file.write_all_at(self.mark.line().as_bytes(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks() -> [Mark; 2] {
        let closed = Mark {
            identity: Identity(u128::MAX - 5),
            inode: 393_231,
            commits: 41,
            log: None,
            longest: Duration::from_secs(120),
        };
        let salts = Salts {
            count: 7,
            random: u32::MAX,
        };
        let open = Mark {
            log: Some(LogMark { salts, base: 40 }),
            commits: u64::MAX,
            ..closed
        };
        [closed, open]
    }

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        for mark in marks() {
            let line = mark.line();
            assert_eq!(line.len(), LINE);
            assert_eq!(Mark::parse(line.trim_end()), Some(mark));
        }
    }

    #[test]
    fn a_mark_that_was_damaged_counts_as_missing() {
        let line = marks()[1].line();
        let line = line.trim_end();
        for n in 0..line.len() {
            let mut bytes = line.as_bytes().to_vec();
            bytes[n] ^= 1;
            assert_eq!(std::str::from_utf8(&bytes).ok().and_then(Mark::parse), None, "byte {n}");
        }
        assert_eq!(Mark::parse(""), None);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenure.db");
        assert_eq!(Mark::read(&path), None);
        std::fs::write(mark_path(&path), "").unwrap();
        assert_eq!(Mark::read(&path), None);
    }

    #[test]
    fn a_shorter_mark_leaves_nothing_of_a_longer_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenure.db");
        let [closed, open] = marks();
        let mut marker = Marker::begin(&path, open).unwrap();
        assert_eq!(Mark::read(&path), Some(open));
        marker.note(41, closed.longest).unwrap();
        assert_eq!(Mark::read(&path), Some(closed), "there is no log");
    }
}
