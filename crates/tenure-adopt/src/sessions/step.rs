//! The single steps over sessions and their index, each one call to the store.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::store::Call;
use tenure_core::time::{StoreTime, micros};
use tenure_valkey::connection::{Connection, Invocation, Lateness, Malformed, Read, Reader, Script};

use super::reap::ReapSettings;
use super::{Keys, SessionSettings, check_slots};
use crate::health::{Info, Vitals};
use crate::scan::{Over, Pace, Scan};
use crate::{MARKER_KEPT, PAGE, text};

const HEAD: &str = include_str!("../scripts/adopt_session_head.lua");
/// Declared as scripts that write, so that no server runs them on a replica, which may be behind.
const ADDS: &str = "#!lua\n";
/// What looks or deletes has to work on a server whose memory is full.
const FREES: &str = "#!lua flags=allow-oom\n";
/// A time that is further ahead is none, as the scripts see it.
const AHEAD: Duration = Duration::from_secs(24 * 3600);
const NEEDED: &str = "it needs +scan +zscan +zrange +zrangebyscore +zscore +zcard +zcount +zadd +zrem +type +hget +hset +hincrby \
                      +del +ping +time +eval +evalsha (and +info, and to reap +get +set +pexpire +unlink) on the sessions, \
                      their index and tenure:adopt:*";

/// Whether a step changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Write,
    /// To write also what is not ours.
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

/// How a session and its entry compare: one character of the index script, and what both say when they differ.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) mark: u8,
    pub(super) session: Vec<u8>,
    pub(super) index: Vec<u8>,
}

/// The old entry of a session that may be an orphan.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) id: Vec<u8>,
    pub(super) score: String,
}

/// What became of candidates.
pub(super) struct Judged {
    /// When, by the store's clock.
    pub(super) at: StoreTime,
    /// One character each. `None`: the marker was gone, and nothing was reaped.
    pub(super) marks: Option<Vec<u8>>,
    /// For a look: the other keys that would go with each that would be reaped.
    pub(super) goes_with: Vec<Vec<Vec<u8>>>,
}

/// The steps over one index.
pub(super) struct Steps {
    pub(super) connection: Connection,
    pub(super) settings: SessionSettings,
    pub(super) keys: Keys,
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
            return Err(Error::invalid("the rate is 0 keys a second; write at least 1"));
        }
        if settings.index.as_deref() == Some("") {
            return Err(Error::invalid("the name of the index is empty"));
        }
        let script = |name, flags, body| Arc::new(Script::new(name, &[flags, HEAD, body]));
        let index = include_str!("../scripts/adopt_session_index.lua");
        Ok(Self {
            keys: Keys::of(&settings),
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

    /// Leaves the marker of an epoch; answers the server's state and the marker there was.
    pub(super) async fn begin(&self, marker: &str, epoch: &str) -> Result<(Vitals, Option<String>)> {
        let life = self.connection.life();
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
        Ok((self.vitals(life, at, true, info), before))
    }

    /// Asks for the server's state; answers also what the marker says. Changes nothing that anyone decides by.
    pub(super) async fn check(&self, marker: &str, epoch: &str) -> Result<(Vitals, Option<String>)> {
        let life = self.connection.life();
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
        Ok((self.vitals(life, at, kept, info), marker))
    }

    fn vitals(&self, life: Option<u64>, at: StoreTime, marker: bool, info: Option<Vec<u8>>) -> Vitals {
        Vitals {
            // A reconnect while we asked shows as another connection at the next look.
            life: life.or_else(|| self.connection.life()).unwrap_or(0),
            at,
            arrived: self.connection.clock().mono(),
            marker,
            info: info.map(|info| Info::parse(&String::from_utf8_lossy(&info))),
        }
    }

    /// A scan of the sessions' keys.
    pub(super) fn scan(&self) -> Scan {
        let over = Over::Keys(self.settings.pattern.clone());
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

    /// How many entries the index has.
    pub(super) async fn count(&self) -> Result<u64> {
        self.number(&[b"ZCARD", &self.keys.index]).await
    }

    /// How many entries are further ahead than any time is believed.
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
    pub(super) async fn index(&self, mode: Mode, ids: &[Vec<u8>]) -> Result<Vec<Seen>> {
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
                seen.push(Seen { mark, session, index });
            }
            of_length(seen, ids.len())
        };
        self.explained(self.connection.call(script, call, read).await).await
    }

    /// Notes the end of a pass; answers how many in a row have changed nothing.
    pub(super) async fn passed(&self, changed: u64) -> Result<u64> {
        let call = Invocation::new(Vec::new(), Lateness::Refused(Call::default()))
            .foreign_keys([self.keys.notes.clone()])
            .number(changed);
        let read = |reader: &mut Reader, _| reader.number();
        self.explained(self.connection.call(&self.passed, call, read).await)
            .await
    }

    /// Takes entries of ours out of the index, at most [`PAGE`]: how many, how many were not ours any more, and how many
    /// were looked at.
    pub(super) async fn undo(&self, mode: Mode, from: u64) -> Result<(u64, u64, u64)> {
        let (keys, look) = (&self.keys, mode == Mode::Look);
        let call = Invocation::new(Vec::new(), mode.lateness())
            .foreign_keys([keys.index.clone(), keys.added.clone(), keys.notes.clone()])
            .arg(mode.as_str())
            .number(if look { from } else { 0 });
        let read = |reader: &mut Reader, _| Ok((reader.number()?, reader.number()?, reader.number()?));
        self.explained(self.connection.call(&self.undo, call, read).await).await
    }

    /// The oldest entries that are as old as this at least, after those that are passed over: `from` is a score, and
    /// `skip` counts from there.
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

    /// Judges candidates, and reaps those that are orphans at this moment. Without a page it is only a look.
    pub(super) async fn reap(
        &self,
        settings: &ReapSettings,
        marker: &str,
        page: Option<(&str, u64, StoreTime)>,
        resumed: StoreTime,
        candidates: &[Candidate],
    ) -> Result<Judged> {
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
            Ok(Judged { at, marks, goes_with })
        };
        self.explained(self.connection.call(&self.reap, call, read).await).await
    }

    /// Removes a marker.
    pub(super) async fn forget(&self, marker: &str) -> Result<()> {
        self.connection.ask(&[b"DEL", marker.as_bytes()], |_| Ok(())).await
    }

    /// Leaves the store to others, for as long as the rate wants it after so many keys.
    pub(super) async fn rest(&self, keys: u64) {
        self.connection.clock().sleep(self.rest_after(keys)).await;
    }

    fn rest_after(&self, keys: u64) -> Duration {
        self.settings.rest(keys).max(Duration::from_millis(1))
    }

    /// Says what an error means for adopted sessions.
    async fn explained<T>(&self, done: Result<T>) -> Result<T> {
        let Err(error) = done else { return done };
        let words = error.chain();
        if words.contains("WRONGTYPE") {
            let message = format!(
                "the key {:?} is no sorted set, so it cannot be the index; name another one",
                text(&self.keys.index)
            );
            return Err(Error::new(ErrorKind::Misconfigured, message).because(error));
        }
        if words.contains("CROSSSLOT") || words.contains("hash to the same slot") {
            check_slots(&self.keys, &self.settings, &[])?;
        }
        if error.kind() == ErrorKind::Denied {
            let message = format!(
                "the store denies what adopting {} needs; {NEEDED}",
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
    name.ok_or_else(|| Malformed("nothing in place of a name".to_owned()))
}
