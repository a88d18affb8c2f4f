//! The steps over sessions and their index, one store call each.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::store::Call;
use tenure_core::time::{StoreTime, micros};
use tenure_valkey::connection::{Connection, Invocation, Lateness, Malformed, Read, Reader, Script};

use super::reap::ReapSettings;
use super::{IndexKeys, SessionSettings, check_slots};
use crate::health::{Info, ServerSnapshot};
use crate::scan::{Pace, Scan, ScanSource};
use crate::{MARKER_KEPT, PAGE, text};

const HEAD: &str = include_str!("../scripts/adopt_session_head.lua");
/// Declared as writing scripts, so that no server runs them on a replica, which may lag.
const ADDS: &str = "#!lua\n";
/// Reads and deletions must work on a server whose memory is full.
const FREES: &str = "#!lua flags=allow-oom\n";
/// A time further ahead is not believed, as in the scripts.
const AHEAD: Duration = Duration::from_secs(24 * 3600);
const NEEDED: &str = "it needs +scan +zscan +zrange +zrangebyscore +zscore +zcard +zcount +zadd +zrem +type +hget +hset +hincrby \
                      +del +ping +time +eval +evalsha (and +info, and to reap +get +set +pexpire +unlink) on the sessions, \
                      their index and tenure:adopt:*";

/// What a step may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Write,
    /// Also changes foreign entries.
    Repair,
    Look,
}

impl Mode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Repair => "repair",
            Self::Look => "look",
        }
    }

    fn lateness(self) -> Lateness {
        match self {
            Self::Write | Self::Repair => Lateness::Refused(Call::default()),
            Self::Look => Lateness::Harmless,
        }
    }
}

/// The comparison of a session with its entry: a mark of the index script, and both times if they differ.
#[derive(Debug)]
pub(super) struct EntryComparison {
    pub(super) mark: u8,
    pub(super) session: Vec<u8>,
    pub(super) index: Vec<u8>,
}

/// An old entry, whose session may be an orphan.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) id: Vec<u8>,
    pub(super) score: String,
}

/// The reply of the reap script.
pub(super) struct ReapReply {
    /// The store's time of the reply.
    pub(super) at: StoreTime,
    /// One mark per candidate. `None`: the marker was gone and nothing was reaped.
    pub(super) marks: Option<Vec<u8>>,
    /// In a preview: the other keys that would be deleted with each reaped session.
    pub(super) goes_with: Vec<Vec<Vec<u8>>>,
}

/// The steps over one index.
pub(super) struct Steps {
    pub(super) connection: Connection,
    pub(super) settings: SessionSettings,
    pub(super) keys: IndexKeys,
    index: Arc<Script>,
    look: Arc<Script>,
    passed: Arc<Script>,
    undo: Arc<Script>,
    begin: Arc<Script>,
    check: Arc<Script>,
    reap: Arc<Script>,
}

impl Steps {
    pub(super) fn new(connection: Connection, settings: SessionSettings) -> Result<Self> {
        if settings.rate == 0 {
            return Err(Error::invalid("the rate is 0 keys per second; write at least 1"));
        }
        if settings.index.as_deref() == Some("") {
            return Err(Error::invalid("the name of the index is empty"));
        }
        let script = |name, flags, body| Arc::new(Script::new(name, &[flags, HEAD, body]));
        let index = include_str!("../scripts/adopt_session_index.lua");
        Ok(Self {
            keys: IndexKeys::of(&settings),
            connection,
            settings,
            index: script("adopt_session_index", ADDS, index),
            look: script("adopt_session_look", FREES, index),
            passed: script(
                "adopt_session_passed",
                FREES,
                include_str!("../scripts/adopt_session_passed.lua"),
            ),
            undo: script(
                "adopt_session_undo",
                FREES,
                include_str!("../scripts/adopt_session_undo.lua"),
            ),
            begin: script("adopt_session_begin", FREES, include_str!("../scripts/adopt_begin.lua")),
            check: script("adopt_session_check", FREES, include_str!("../scripts/adopt_check.lua")),
            reap: script(
                "adopt_session_reap",
                FREES,
                include_str!("../scripts/adopt_session_reap.lua"),
            ),
        })
    }

    /// Writes the marker of an epoch. Returns a snapshot of the server and the previous marker.
    pub(super) async fn begin(&self, marker: &str, epoch: &str) -> Result<(ServerSnapshot, Option<String>)> {
        let generation = self.connection.generation();
        let call = Invocation::new(vec![marker.to_owned()], Lateness::Refused(Call::default()))
            .arg(epoch)
            .number(kept_ms());
        let read = |reader: &mut Reader, at| {
            let before = reader.maybe_text()?;
            Ok((at, before, reader.maybe_bytes()?))
        };
        let (at, before, info) = self
            .explained(self.connection.call(&self.begin, call, read).await)
            .await?;
        Ok((self.snapshot(generation, at, true, info), before))
    }

    /// Returns a snapshot of the server and the marker. Changes only the marker's ttl.
    pub(super) async fn check(&self, marker: &str, epoch: &str) -> Result<(ServerSnapshot, Option<String>)> {
        let generation = self.connection.generation();
        let call = Invocation::new(vec![marker.to_owned()], Lateness::Harmless)
            .arg(epoch)
            .number(kept_ms());
        let read = |reader: &mut Reader, at| {
            let kept = reader.number()? == 1;
            let marker = reader.maybe_text()?;
            Ok((at, kept, marker, reader.maybe_bytes()?))
        };
        let (at, kept, marker, info) = self
            .explained(self.connection.call(&self.check, call, read).await)
            .await?;
        Ok((self.snapshot(generation, at, kept, info), marker))
    }

    fn snapshot(&self, generation: Option<u64>, at: StoreTime, marker: bool, info: Option<Vec<u8>>) -> ServerSnapshot {
        ServerSnapshot {
            // If the client reconnects during the call, the next check sees another connection.
            generation: generation.or_else(|| self.connection.generation()).unwrap_or(0),
            at,
            arrived: self.connection.clock().mono(),
            marker,
            info: info.map(|info| Info::parse(&String::from_utf8_lossy(&info))),
        }
    }

    /// Starts a scan of the session keys.
    pub(super) fn scan(&self) -> Scan {
        let over = ScanSource::Keys(self.settings.pattern.clone());
        let pace = Pace {
            page: self.settings.page(),
            rest: self.rest_after(self.settings.page()),
        };
        Scan::begin(&self.connection, over, pace)
    }

    /// The next page of a scan; `None` after the last one.
    pub(super) async fn page(&self, scan: &mut Scan) -> Result<Option<Vec<Vec<u8>>>> {
        self.explained(scan.page().await).await
    }

    /// The number of entries.
    pub(super) async fn count(&self) -> Result<u64> {
        self.number(&[b"ZCARD", &self.keys.index]).await
    }

    /// The number of entries with a time too far ahead.
    pub(super) async fn never_due(&self, now: StoreTime) -> Result<u64> {
        let ahead = self.settings.unit.of_micros((now + AHEAD).micros());
        let above = format!("({ahead}");
        self.number(&[b"ZCOUNT", &self.keys.index, above.as_bytes(), b"+inf"])
            .await
    }

    async fn number(&self, words: &[&[u8]]) -> Result<u64> {
        self.explained(self.connection.ask(words, Reader::number).await).await
    }

    /// Compares at most [`PAGE`] sessions with their entries.
    pub(super) async fn index(&self, mode: Mode, ids: &[Vec<u8>]) -> Result<Vec<EntryComparison>> {
        let call = Invocation::new(Vec::new(), mode.lateness())
            .foreign_keys([self.keys.index.clone(), self.keys.added.clone()])
            .foreign_keys(ids.iter().map(|id| self.settings.pattern.key(id)))
            .arg(mode.as_str())
            .arg(&self.settings.field)
            .number(self.settings.unit.micros())
            .args(ids);
        let script = match mode {
            Mode::Write | Mode::Repair => &self.index,
            Mode::Look => &self.look,
        };
        let read = |reader: &mut Reader, _| {
            let marks = reader.text()?;
            let mut told = reader.array()?;
            let mut seen = Vec::with_capacity(ids.len());
            for mark in marks.bytes() {
                let (session, index) = match mark {
                    b'k' | b'g' | b'n' | b'+' => (Vec::new(), Vec::new()),
                    _ => (
                        told.maybe_bytes()?.unwrap_or_default(),
                        told.maybe_bytes()?.unwrap_or_default(),
                    ),
                };
                seen.push(EntryComparison { mark, session, index });
            }
            of_length(seen, ids.len())
        };
        self.explained(self.connection.call(script, call, read).await).await
    }

    /// Records the end of a pass. Returns the number of consecutive passes without a change.
    pub(super) async fn passed(&self, changed: u64) -> Result<u64> {
        let call = Invocation::new(Vec::new(), Lateness::Refused(Call::default()))
            .foreign_keys([self.keys.notes.clone()])
            .number(changed);
        let read = |reader: &mut Reader, _| reader.number();
        self.explained(self.connection.call(&self.passed, call, read).await)
            .await
    }

    /// Removes up to [`PAGE`] of our entries from the index. Returns how many were removed, how many are not ours any
    /// more, and how many were checked.
    pub(super) async fn undo(&self, mode: Mode, from: u64) -> Result<(u64, u64, u64)> {
        let (keys, look) = (&self.keys, mode == Mode::Look);
        let call = Invocation::new(Vec::new(), mode.lateness())
            .foreign_keys([keys.index.clone(), keys.added.clone(), keys.notes.clone()])
            .arg(mode.as_str())
            .number(if look { from } else { 0 });
        let read = |reader: &mut Reader, _| Ok((reader.number()?, reader.number()?, reader.number()?));
        self.explained(self.connection.call(&self.undo, call, read).await).await
    }

    /// The oldest entries before the cutoff, starting at the score `from` and after `skip` entries.
    pub(super) async fn due(&self, cutoff: StoreTime, from: &str, skip: u64, limit: u64) -> Result<Vec<Candidate>> {
        let (to, skip, limit) = (
            self.settings.unit.of_micros(cutoff.micros()),
            skip.to_string(),
            limit.to_string(),
        );
        let range: [&[u8]; 4] = [b"ZRANGEBYSCORE", &self.keys.index, from.as_bytes(), to.as_bytes()];
        let which: [&[u8]; 4] = [b"WITHSCORES", b"LIMIT", skip.as_bytes(), limit.as_bytes()];
        let asked = self.connection.ask(&[range, which].concat(), read_candidates).await;
        self.explained(asked).await
    }

    /// Judges candidates and reaps those that are orphans now. Without a page it only previews.
    pub(super) async fn reap(
        &self,
        settings: &ReapSettings,
        marker: &str,
        page: Option<(&str, u64, StoreTime)>,
        resumed: StoreTime,
        candidates: &[Candidate],
    ) -> Result<ReapReply> {
        let (epoch, number, lateness) = match page {
            Some((epoch, number, not_after)) => (epoch, number, Lateness::Refused(Call::not_after(not_after))),
            None => ("", 0, Lateness::Harmless),
        };
        let templates = json!({
            "refs": settings.refs.iter().map(super::KeyTemplate::json).collect::<Vec<_>>(),
            "alias": settings.aliases.iter().map(super::KeyTemplate::json).collect::<Vec<_>>(),
        });
        let keys = &self.keys;
        let call = Invocation::new(Vec::new(), lateness)
            .foreign_keys([keys.index.clone(), keys.added.clone(), marker.as_bytes().to_vec()])
            .foreign_keys(candidates.iter().map(|entry| self.settings.pattern.key(&entry.id)))
            .arg(epoch)
            .number(number)
            .number(kept_ms())
            .arg(&self.settings.field)
            .number(self.settings.unit.micros())
            .number(micros(settings.max_age))
            .number(resumed.micros())
            .arg(templates.to_string())
            .args(candidates.iter().map(|entry| &entry.id));
        let read = |reader: &mut Reader, at| {
            let kept = reader.number()? == 1;
            let marks = reader.text()?.into_bytes();
            let (mut each, mut goes_with) = (reader.array()?, Vec::new());
            while each.left() > 0 {
                let mut keys = each.array()?;
                let mut named = Vec::with_capacity(keys.left());
                while keys.left() > 0 {
                    named.push(read_name(&mut keys)?);
                }
                goes_with.push(named);
            }
            let marks = kept.then(|| of_length(marks, candidates.len())).transpose()?;
            Ok(ReapReply { at, marks, goes_with })
        };
        self.explained(self.connection.call(&self.reap, call, read).await).await
    }

    /// Deletes a marker.
    pub(super) async fn forget(&self, marker: &str) -> Result<()> {
        self.connection.ask(&[b"DEL", marker.as_bytes()], |_| Ok(())).await
    }

    /// Pauses after this many keys, according to the rate.
    pub(super) async fn rest(&self, keys: u64) {
        self.connection.clock().sleep(self.rest_after(keys)).await;
    }

    fn rest_after(&self, keys: u64) -> Duration {
        self.settings.rest(keys).max(Duration::from_millis(1))
    }

    /// Adds context for adopted sessions to an error.
    async fn explained<T>(&self, done: Result<T>) -> Result<T> {
        let Err(error) = done else { return done };
        let words = error.chain();
        if words.contains("WRONGTYPE") {
            let message = format!(
                "the key {:?} is not a sorted set, so it cannot be the index; choose another key",
                text(&self.keys.index)
            );
            return Err(Error::new(ErrorKind::Misconfigured, message).because(error));
        }
        if words.contains("CROSSSLOT") || words.contains("hash to the same slot") {
            check_slots(&self.keys, &self.settings, &[])?;
        }
        if error.kind() == ErrorKind::Denied {
            let message = format!(
                "the store denies a command that adopting {} needs; {NEEDED}",
                self.settings.pattern
            );
            return Err(Error::new(ErrorKind::Denied, message).because(error));
        }
        Err(error)
    }
}

fn kept_ms() -> u64 {
    micros(MARKER_KEPT) / 1000
}

fn of_length<T>(read: Vec<T>, wanted: usize) -> Read<Vec<T>> {
    debug_assert!(wanted <= PAGE, "a step of {wanted} sessions");
    if read.len() == wanted {
        Ok(read)
    } else {
        Err(Malformed("not one mark for each session".to_owned()))
    }
}

fn read_candidates(reply: &mut Reader) -> Read<Vec<Candidate>> {
    let mut reader = reply.array()?;
    let mut candidates = Vec::with_capacity(reader.left() / 2);
    while reader.left() > 0 {
        let id = read_name(&mut reader)?;
        let score = reader.text()?;
        candidates.push(Candidate { id, score });
    }
    Ok(candidates)
}

fn read_name(reader: &mut Reader) -> Read<Vec<u8>> {
    let name = reader.maybe_bytes()?;
    name.ok_or_else(|| Malformed("a name is missing".to_owned()))
}
