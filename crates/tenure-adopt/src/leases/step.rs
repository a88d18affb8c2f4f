//! Old leases: the plain keys `poll:lease:<target>` = instance id with a ttl, by which programs share targets without
//! Tenure.
//!
//! Such programs acquire a lease with `SET key id NX PX ttl` and renew it with `PEXPIRE`. During a migration, one
//! instance at a time, a new node must respect their keys and make them respect its own. So it acquires the old key as
//! well, by the steps here. Each is one script over at most 200 keys that compares and changes atomically and carries a
//! not-after time: a step that timed out at the caller does not take effect later.
//!
//! All steps are idempotent. A repeated `take` reads back the outcome of a lost reply: a key with our value is ours. So
//! no other process may use the same value.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::error::{Error, ErrorKind, Result};
use tenure_core::id::LeaseName;
use tenure_core::store::Call;
use tenure_core::time::{micros, show_duration};
use tenure_valkey::connection::{Connection, Invocation, Lateness, Malformed, Read, Reader, Script};

use super::keys::{OldKeys, TakeOutcome};
use crate::pattern::KeyPattern;
use crate::scan::{Pace, Scan, ScanSource};
use crate::{PAGE, text};

const HEAD: &str = include_str!("../scripts/adopt_lease_head.lua");
/// Declared as a writing script, so that no server runs it on a replica, which may lag.
const READS: &str = "#!lua flags=allow-oom\n";
/// Releases and renewals must work on a server whose memory is full.
const KEEPS: &str = READS;
const TAKES: &str = "#!lua\n";
const NEEDED: &str = "it needs +eval +evalsha +time +ping and, on these keys, +get +set +pexpire +pttl +del";

/// The shortest ttl of an old lease.
pub const MIN_OLD_TTL: Duration = Duration::from_secs(1);
/// The longest ttl of an old lease.
pub const MAX_OLD_TTL: Duration = Duration::from_secs(3600);

/// Slow, in favour of the store's other users.
const PACE: Pace = Pace {
    page: 500,
    rest: Duration::from_millis(2),
};
/// The most old leases of one pattern. More means that the pattern is too wide.
const MAX_LISTED: usize = 1_000_000;

/// The current state of an old lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldLease {
    /// The target, as in the key.
    pub target: Vec<u8>,
    /// The value, which identifies the holder. Empty if the key is not a string.
    pub value: Vec<u8>,
    /// When it expires unless renewed; `None`: never.
    pub free_in: Option<Duration>,
}

/// The steps over old leases in a store. Clones share the connection.
#[derive(Clone)]
pub struct StoredKeys {
    connection: Connection,
    pattern: KeyPattern,
    ttl: Duration,
    take: Arc<Script>,
    renew: Arc<Script>,
    release: Arc<Script>,
    look: Arc<Script>,
}

impl fmt::Debug for StoredKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredKeys({} at {})", self.pattern, self.connection.place())
    }
}

impl StoredKeys {
    /// The steps over the keys of a pattern. An acquired key lasts for `ttl`, best that of the old programs.
    ///
    /// # Errors
    /// `Invalid` for a ttl outside 1 s to 1 h.
    pub fn new(connection: Connection, pattern: KeyPattern, ttl: Duration) -> Result<Self> {
        if ttl < MIN_OLD_TTL || ttl > MAX_OLD_TTL {
            let (shown, least, most) = (
                show_duration(ttl),
                show_duration(MIN_OLD_TTL),
                show_duration(MAX_OLD_TTL),
            );
            return Err(Error::invalid(format!(
                "the ttl {shown} of the old leases is outside {least} to {most}"
            )));
        }
        let script = |name, flags, body| Arc::new(Script::new(name, &[flags, HEAD, body]));
        Ok(Self {
            connection,
            pattern,
            ttl,
            take: script(
                "adopt_lease_take",
                TAKES,
                include_str!("../scripts/adopt_lease_take.lua"),
            ),
            renew: script(
                "adopt_lease_renew",
                KEEPS,
                include_str!("../scripts/adopt_lease_renew.lua"),
            ),
            release: script(
                "adopt_lease_release",
                KEEPS,
                include_str!("../scripts/adopt_lease_release.lua"),
            ),
            look: script(
                "adopt_lease_look",
                READS,
                include_str!("../scripts/adopt_lease_look.lua"),
            ),
        })
    }

    /// All current old leases, by target. Changes nothing. O(size of the keyspace), in pages.
    ///
    /// # Errors
    /// `Unavailable` if the list would be incomplete; `Misconfigured` above a million; `Denied`.
    pub async fn list(&self) -> Result<Vec<OldLease>> {
        let mut all = BTreeMap::new();
        let mut scan = Scan::begin(&self.connection, ScanSource::Keys(self.pattern.clone()), PACE);
        while let Some(keys) = scan.page().await? {
            for some in keys.chunks(PAGE) {
                for lease in self.look(some).await? {
                    all.insert(lease.target.clone(), lease);
                }
            }
            if all.len() > MAX_LISTED {
                let message = format!(
                    "more than a million keys match {}; use a narrower pattern",
                    self.pattern
                );
                return Err(Error::new(ErrorKind::Misconfigured, message));
            }
        }
        Ok(all.into_values().collect())
    }

    async fn look(&self, keys: &[Vec<u8>]) -> Result<Vec<OldLease>> {
        let call = Invocation::new(Vec::new(), Lateness::Harmless).foreign_keys(keys.iter().cloned());
        let read = |reader: &mut Reader, _| {
            let marks = reader.text()?;
            let mut held = reader.array()?;
            let mut found = Vec::with_capacity(keys.len());
            for (mark, key) in marks.bytes().zip(keys) {
                let (value, free_in) = match mark {
                    b'+' => read_held(&mut held)?,
                    b'?' => (Vec::new(), None),
                    _ => continue,
                };
                if let Some(target) = self.pattern.name(key).map(<[u8]>::to_vec) {
                    found.push(OldLease { target, value, free_in });
                }
            }
            of_length(marks.into_bytes(), keys.len()).map(|_| found)
        };
        self.explained(self.connection.call(&self.look, call, read).await)
    }

    fn over(&self, leases: &[(LeaseName, String)], for_a_ttl: bool) -> Result<Invocation> {
        if leases.len() > PAGE {
            return Err(Error::invalid(format!(
                "{} old leases in one call; at most {PAGE}",
                leases.len()
            )));
        }
        let call = Invocation::new(Vec::new(), Lateness::Refused(Call::default()))
            .foreign_keys(leases.iter().map(|(target, _)| self.pattern.key(target.as_str())));
        let call = if for_a_ttl {
            call.number(micros(self.ttl) / 1000)
        } else {
            call
        };
        Ok(call.args(leases.iter().map(|(_, value)| value)))
    }

    /// Adds context for old leases to an error.
    fn explained<T>(&self, done: Result<T>) -> Result<T> {
        done.map_err(|error| {
            let words = error.chain();
            if words.contains("CROSSSLOT") || words.contains("hash to the same slot") {
                let message = format!(
                    "the store is a cluster, where one step can access only the keys of one slot; give {} one hash tag, or use \
                     the stop-the-fleet way",
                    self.pattern
                );
                return Error::new(ErrorKind::Misconfigured, message).because(error);
            }
            if error.kind() == ErrorKind::Denied {
                let message = format!("the store denies a command that the old leases {} need; {NEEDED}", self.pattern);
                return Error::new(ErrorKind::Denied, message).because(error);
            }
            error
        })
    }
}

/// The outcome of `TooLate` and `Unavailable` says whether anything may have changed; a repeated call reads it back.
/// Also `Denied`, `Misconfigured`, and `Invalid` for too many targets.
#[async_trait]
impl OldKeys for StoredKeys {
    async fn take(&self, wanted: &[(LeaseName, String)]) -> Result<Vec<TakeOutcome>> {
        let call = self.over(wanted, true)?;
        let read = |reader: &mut Reader, _| {
            let marks = reader.text()?;
            let mut held = reader.array()?;
            let taken: Read<Vec<TakeOutcome>> = marks
                .bytes()
                .map(|mark| match mark {
                    b'o' => Ok(TakeOutcome::Ours),
                    b'-' => read_held(&mut held).map(|(by, free_in)| TakeOutcome::Held { by: text(&by), free_in }),
                    b'?' => Ok(TakeOutcome::Held {
                        by: String::new(),
                        free_in: None,
                    }),
                    _ => Err(Malformed(format!("the mark {mark}"))),
                })
                .collect();
            of_length(taken?, wanted.len())
        };
        self.explained(self.connection.call(&self.take, call, read).await)
    }

    async fn renew(&self, held: &[(LeaseName, String)]) -> Result<Vec<bool>> {
        let call = self.over(held, true)?;
        let read = |reader: &mut Reader, _| read_marks(reader, held.len());
        self.explained(self.connection.call(&self.renew, call, read).await)
    }

    async fn release(&self, held: &[(LeaseName, String)]) -> Result<Vec<bool>> {
        let call = self.over(held, false)?;
        let read = |reader: &mut Reader, _| read_marks(reader, held.len());
        self.explained(self.connection.call(&self.release, call, read).await)
    }
}

fn read_held(held: &mut Reader) -> Read<(Vec<u8>, Option<Duration>)> {
    let value = held
        .maybe_bytes()?
        .ok_or_else(|| Malformed("a value is missing".to_owned()))?;
    // -1 for a key without a ttl. -2 is impossible: the value existed in the same step.
    let left = u64::try_from(held.integer()?).ok();
    Ok((value, left.map(Duration::from_millis)))
}

fn read_marks(reader: &mut Reader, wanted: usize) -> Read<Vec<bool>> {
    let marks = reader.text()?;
    let read: Read<Vec<bool>> = marks
        .bytes()
        .map(|mark| match mark {
            b'o' => Ok(true),
            b'-' => Ok(false),
            _ => Err(Malformed(format!("the mark {mark}"))),
        })
        .collect();
    of_length(read?, wanted)
}

fn of_length<T>(read: Vec<T>, wanted: usize) -> Read<Vec<T>> {
    if read.len() == wanted {
        Ok(read)
    } else {
        Err(Malformed("not one mark for each old lease".to_owned()))
    }
}
