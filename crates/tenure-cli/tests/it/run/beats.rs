//! A command that leaves a sign of life every two milliseconds, and what a file of such signs says: who lived when.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use tenure_testkit::wait;

use crate::run::PATIENCE;
use crate::support::exists;

const FILE: &str = "BEATS_FILE";
const WHO: &str = "BEATS_WHO";
const PROGRAM: &str = "BEATS_PROGRAM";
/// Nothing that a test starts lives longer, whatever becomes of the test.
const LONGEST: Duration = Duration::from_secs(600);

/// The commands that share it write their signs of life into one file.
pub(crate) struct Beats {
    dir: TempDir,
}

/// One process from its first sign of life to its last, by the boot clock, which all processes share.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(crate) who: String,
    pub(crate) pid: String,
    first: Duration,
    last: Duration,
}

impl Beats {
    pub(crate) fn new() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
        }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("beats")
    }

    /// The variables that a supervisor must pass to the command.
    pub(crate) fn arm(&self, command: &mut Command, who: &str) {
        command.env(FILE, self.file()).env(WHO, who);
        command.env(PROGRAM, std::env::current_exe().unwrap());
    }

    /// What lives under these names, in the order in which it began.
    pub(crate) fn lives(&self, who: &str) -> Vec<Life> {
        let mut lives = self.all();
        lives.retain(|life| life.who == who);
        lives
    }

    fn all(&self) -> Vec<Life> {
        let text = fs::read_to_string(self.file()).unwrap_or_default();
        let mut lives: BTreeMap<&str, Life> = BTreeMap::new();
        for line in text.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let [who, pid, at] = words[..] else { continue };
            let at = Duration::from_nanos(at.parse().unwrap());
            let life = lives.entry(pid).or_insert_with(|| Life {
                who: who.to_owned(),
                pid: pid.to_owned(),
                first: at,
                last: at,
            });
            life.last = at;
        }
        let mut lives: Vec<_> = lives.into_values().collect();
        lives.sort_by_key(|life| life.first);
        lives
    }

    /// Waits until this one has begun for the `nth` time, counted from 1.
    #[track_caller]
    pub(crate) fn begins(&self, who: &str, nth: usize) -> Life {
        wait::until(&format!("{who} has begun {nth} times"), PATIENCE, || {
            self.lives(who).len() >= nth
        });
        self.lives(who).swap_remove(nth - 1)
    }

    /// Waits for more signs of life of one process.
    #[track_caller]
    pub(crate) fn goes_on(&self, life: &Life) {
        let last = || self.all().into_iter().find(|one| one.pid == life.pid).unwrap().last;
        let before = last();
        let enough = before + Duration::from_millis(50);
        wait::until(&format!("{life:?} goes on"), PATIENCE, || last() > enough);
    }

    /// How long two of different names have lived at the same time; nothing, when they have not.
    pub(crate) fn overlap(&self) -> Duration {
        let lives = self.all();
        let pairs = lives.iter().flat_map(|one| lives.iter().map(move |other| (one, other)));
        pairs
            .filter(|(one, other)| one.who != other.who)
            .map(|(one, other)| one.last.min(other.last).saturating_sub(one.first.max(other.first)))
            .max()
            .unwrap_or_default()
    }

    /// From the last sign of life of the one to the first of the other that comes after it.
    pub(crate) fn gap(&self, from: &str, to: &str) -> Duration {
        let last = self.lives(from).iter().map(|life| life.last).max().unwrap();
        let lives = self.lives(to);
        let next = lives.iter().map(|life| life.first).find(|first| *first > last);
        next.unwrap().saturating_sub(last)
    }

    #[track_caller]
    pub(crate) fn never_overlapped(&self) {
        let overlap = self.overlap();
        assert_eq!(overlap, Duration::ZERO, "{:#?}", self.all());
    }
}

#[track_caller]
pub(crate) fn dies(life: &Life) {
    wait::until(&format!("{life:?} is dead"), PATIENCE, || !exists(&life.pid));
}

/// The words that make this very program the command.
fn words(test: &str) -> String {
    format!("\"${PROGRAM}\" --ignored --exact run::beats::{test} --nocapture")
}

/// A command that beats until TERM.
pub(crate) fn command() -> Vec<OsString> {
    shell(&format!("exec {}", words("the_command")))
}

/// A command that only KILL ends, with a background process in its own session that also ignores TERM.
pub(crate) fn stubborn() -> Vec<OsString> {
    let it = words("the_command");
    shell(&format!("trap '' TERM; (setsid {it} &); exec {it}"))
}

pub(crate) fn shell(script: &str) -> Vec<OsString> {
    ["sh", "-c", script].map(OsString::from).to_vec()
}

#[test]
#[ignore = "it is the command of the other tests, which start it"]
fn the_command() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let who = std::env::var(WHO).unwrap();
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(Path::new(&path))
        .unwrap();
    let begun = boot_time();
    let mut now = begun;
    while now < begun + LONGEST {
        // The time is read after a sign was due and before it is written: a life is never shown longer than it was.
        let line = format!("{who} {} {}\n", std::process::id(), now.as_nanos());
        file.write_all(line.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(2)); // tidy: waits on the next sign of life being due
        now = boot_time();
    }
}

fn boot_time() -> Duration {
    let at = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(at.tv_sec).unwrap(), u32::try_from(at.tv_nsec).unwrap())
}

#[test]
fn an_overlap_is_seen_and_a_gap_is_none() {
    let beats = Beats::new();
    let write = |lines: &str| fs::write(beats.file(), lines).unwrap();
    write("a 1 100\na 1 200\nb 2 201\nb 2 300\n");
    assert_eq!(beats.overlap(), Duration::ZERO);
    assert_eq!(beats.gap("a", "b"), Duration::from_nanos(1));
    write("a 1 100\nb 2 150\na 1 200\nb 2 300\n");
    assert_eq!(beats.overlap(), Duration::from_nanos(50));
    // What one node has running beside itself is its own affair.
    write("a 1 100\na 2 150\na 1 200\na 2 300\n");
    assert_eq!(beats.overlap(), Duration::ZERO);
}
