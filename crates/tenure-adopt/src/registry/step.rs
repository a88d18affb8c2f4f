//! The steps of a pass, one store call each.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::store::Call;
use tenure_core::time::{StoreTime, micros};
use tenure_valkey::connection::{Connection, Invocation, Lateness, Malformed, Reader, Script};

use super::owner::HeartbeatState;
use super::{AdoptSettings, brake};
use crate::health::{Info, ServerSnapshot};
use crate::scan::{Pace, Scan, ScanSource};
use crate::slot::tag_in;
use crate::{MARKER_KEPT, text};

const HEAD: &str = include_str!("../scripts/adopt_head.lua");
const NEEDED: &str = "it needs +hscan +type +ping +time +info +eval +evalsha on the hash (and +hget +hdel there), on \
                      the heartbeat keys (+exists +pttl) and on tenure:adopt:* (+get +set +del +pexpire)";

/// An entry of the hash whose owner appears dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its key in the hash.
    pub field: Vec<u8>,
    /// Its value when it was checked. Empty in a preview, which keeps no values.
    pub value: Vec<u8>,
    /// The owner in the value.
    pub owner: Vec<u8>,
}

impl Candidate {
    /// The size of a step's part for it.
    pub(super) fn weight(&self) -> usize {
        self.field.len() + self.value.len()
    }
}

/// The fields and values of a page of the hash. A page may be empty, or much larger than requested.
pub(super) type Page = Vec<(Vec<u8>, Vec<u8>)>;

/// Slow, in favour of the store's other users: a page takes the server less than half a millisecond.
const PACE: Pace = Pace {
    page: 500,
    rest: Duration::from_millis(1),
};

/// A command on the brake's record.
pub(super) enum BrakeCommand<'a> {
    Read,
    Engage {
        body: &'a [u8],
        replaces: &'a [u8],
        kept: Duration,
    },
    Lift(&'a [u8]),
}

/// The steps over one hash, with the marker of this janitor.
pub(super) struct Steps {
    pub(super) connection: Connection,
    settings: AdoptSettings,
    marker: Vec<u8>,
    brake: Vec<u8>,
    begin: Arc<Script>,
    check: Arc<Script>,
    look: Arc<Script>,
    evict: Arc<Script>,
    brakes: Arc<Script>,
}

impl Steps {
    pub(super) fn new(connection: Connection, settings: AdoptSettings, janitor: &str) -> Self {
        let script = |name, body| Arc::new(Script::new(name, &[HEAD, body]));
        // Our keys use the slot of the hash, so that one step can touch both.
        let tag = tag_in(&settings.hash).unwrap_or(&settings.hash);
        let own = |name: &str| [b"tenure:adopt:{", tag, b"}:", name.as_bytes()].concat();
        Self {
            marker: own(&format!("janitor:{janitor}")),
            brake: own("brake"),
            connection,
            settings,
            begin: script("adopt_begin", include_str!("../scripts/adopt_begin.lua")),
            check: script("adopt_check", include_str!("../scripts/adopt_check.lua")),
            look: script("adopt_look", include_str!("../scripts/adopt_look.lua")),
            evict: script("adopt_evict", include_str!("../scripts/adopt_evict.lua")),
            brakes: script("adopt_brake", include_str!("../scripts/adopt_brake.lua")),
        }
    }

    /// Writes the marker of an epoch. Returns a snapshot of the server and the previous marker.
    pub(super) async fn begin(&self, epoch: &str) -> Result<(ServerSnapshot, Option<String>)> {
        let generation = self.connection.generation();
        let call = Invocation::new(Vec::new(), Lateness::Refused(Call::default()))
            .foreign_keys([self.marker.clone()])
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

    /// Returns a snapshot of the server and the marker.
    pub(super) async fn check(&self, epoch: &str) -> Result<(ServerSnapshot, Option<String>)> {
        let generation = self.connection.generation();
        let call = Invocation::new(Vec::new(), Lateness::Harmless)
            .foreign_keys([self.marker.clone()])
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

    /// Starts a scan of the hash.
    pub(super) fn scan(&self) -> Scan {
        Scan::begin(&self.connection, ScanSource::Hash(self.settings.hash.clone()), PACE)
    }

    /// The next page of a scan; `None` after the last one.
    pub(super) async fn page(&self, scan: &mut Scan) -> Result<Option<Page>> {
        let page = self.explained(scan.page().await).await?;
        Ok(page.map(|mut page| {
            let pairs = page.chunks_exact_mut(2);
            pairs.map(|pair| (take(&mut pair[0]), take(&mut pair[1]))).collect()
        }))
    }

    /// Checks the heartbeats of at most [`PAGE`](crate::PAGE) owners. The result of a check without an epoch must not be used for a
    /// decision. Also returns whether the marker still existed.
    pub(super) async fn look(&self, epoch: Option<&str>, owners: &[Vec<u8>]) -> Result<(bool, Vec<HeartbeatState>)> {
        let spellings: Vec<Vec<Vec<u8>>> = owners.iter().map(|owner| self.heartbeats(owner)).collect();
        let keys = spellings.iter().map(Vec::len).sum::<usize>();
        let call = Invocation::new(Vec::new(), Lateness::Harmless)
            .foreign_keys([self.marker.clone()])
            .foreign_keys(spellings.iter().flatten().cloned())
            .arg(epoch.unwrap_or_default());
        let read = |reader: &mut Reader, _| {
            let kept = reader.number()? == 1;
            let states: Option<Vec<HeartbeatState>> = reader.text()?.bytes().map(HeartbeatState::read).collect();
            let Some(states) = states.filter(|states| states.len() == keys) else {
                return Err(Malformed("not one mark for each heartbeat".to_owned()));
            };
            let mut states = states.as_slice();
            let each = spellings.iter().map(|keys| {
                let (own, rest) = states.split_at(keys.len());
                states = rest;
                HeartbeatState::of_all(own)
            });
            Ok((kept, each.collect()))
        };
        self.explained(self.connection.call(&self.look, call, read).await).await
    }

    /// Removes those of at most [`PAGE`](crate::PAGE) candidates whose owner is dead and whose value is unchanged. `None`: the
    /// marker was gone and nothing was removed.
    pub(super) async fn evict(
        &self,
        epoch: &str,
        page: u64,
        candidates: &[Candidate],
        not_after: StoreTime,
    ) -> Result<Option<Vec<bool>>> {
        let mut owners: Vec<&[u8]> = candidates.iter().map(|entry| entry.owner.as_slice()).collect();
        owners.sort_unstable();
        owners.dedup();
        let heartbeats: Vec<Vec<Vec<u8>>> = owners.iter().map(|owner| self.heartbeats(owner)).collect();
        let counts: Vec<String> = heartbeats.iter().map(|keys| keys.len().to_string()).collect();
        let mut call = Invocation::new(Vec::new(), Lateness::Refused(Call::not_after(not_after)))
            .foreign_keys([self.settings.hash.clone(), self.marker.clone()])
            .foreign_keys(heartbeats.into_iter().flatten())
            .arg(epoch)
            .number(page)
            .number(kept_ms())
            .arg(counts.concat());
        for entry in candidates {
            let owner = owners.partition_point(|owner| *owner < entry.owner.as_slice());
            call = call.arg(&entry.field).arg(&entry.value).number(owner as u64 + 1);
        }
        let read = |reader: &mut Reader, _| {
            let kept = reader.number()? == 1;
            let marks = reader.text()?;
            if !kept {
                return Ok(None);
            }
            read_marks(&marks, candidates.len())
                .map(Some)
                .ok_or_else(|| Malformed("not one mark for each candidate".to_owned()))
        };
        self.explained(self.connection.call(&self.evict, call, read).await)
            .await
    }

    /// The heartbeat keys of an owner, at most nine.
    fn heartbeats(&self, owner: &[u8]) -> Vec<Vec<u8>> {
        let spellings = self.settings.owner_at.spellings(owner);
        spellings.iter().map(|id| self.settings.heartbeat.key(id)).collect()
    }

    /// Reads or changes the brake's record. Returns the record in force and the store's time.
    pub(super) async fn brakes(&self, what: BrakeCommand<'_>) -> Result<(Option<brake::BrakeRecord>, StoreTime)> {
        let lateness = match what {
            BrakeCommand::Read => Lateness::Harmless,
            _ => Lateness::Refused(Call::default()),
        };
        let call = Invocation::new(Vec::new(), lateness).foreign_keys([self.brake.clone()]);
        let call = match what {
            BrakeCommand::Read => call.arg("read"),
            BrakeCommand::Engage { body, replaces, kept } => {
                call.arg("engage").arg(body).number(micros(kept) / 1000).arg(replaces)
            }
            BrakeCommand::Lift(record) => call.arg("lift").arg(record),
        };
        let read = |reader: &mut Reader, at| Ok((reader.maybe_bytes()?.and_then(brake::BrakeRecord::read), at));
        self.explained(self.connection.call(&self.brakes, call, read).await)
            .await
    }

    /// Deletes the marker.
    pub(super) async fn forget(&self) -> Result<()> {
        self.connection.ask(&[b"DEL", &self.marker], |_| Ok(())).await
    }

    /// Adds context for an adopted hash to an error.
    async fn explained<T>(&self, done: Result<T>) -> Result<T> {
        let Err(error) = done else { return done };
        let words = error.chain();
        if words.contains("WRONGTYPE") {
            return Err(self.not_a_hash().await);
        }
        if words.contains("CROSSSLOT") || words.contains("hash to the same slot") {
            self.settings.heartbeat.check_slots(&self.settings.hash)?;
        }
        if error.kind() == ErrorKind::Denied {
            let message = format!(
                "the store denies a command that adopting {:?} needs; {NEEDED}",
                text(&self.settings.hash)
            );
            return Err(Error::new(ErrorKind::Denied, message).because(error));
        }
        Err(error)
    }

    async fn not_a_hash(&self) -> Error {
        let words: &[&[u8]] = &[b"TYPE", &self.settings.hash];
        let kind = self.connection.ask(words, Reader::text).await;
        let found = kind.unwrap_or_else(|_| "something else".to_owned());
        Error::new(
            ErrorKind::Misconfigured,
            format!(
                "the key {:?} holds a {found}, not a hash; write the name of the hash of key -> owner's id",
                text(&self.settings.hash)
            ),
        )
    }
}

fn kept_ms() -> u64 {
    micros(MARKER_KEPT) / 1000
}

/// Parses one mark per candidate: whether it was removed.
pub(super) fn read_marks(marks: &str, wanted: usize) -> Option<Vec<bool>> {
    let read: Option<Vec<bool>> = marks
        .bytes()
        .map(|mark| match mark {
            b'x' => Some(true),
            b'-' => Some(false),
            _ => None,
        })
        .collect();
    read.filter(|read| read.len() == wanted)
}
