//! Sessions as returned by the reading scripts, and their state at the time of the read.

use std::time::Duration;

use serde_json::Value;
use tenure_core::error::Result;
use tenure_core::id::{Alias, Group, SessionId};
use tenure_core::session::{Data, Epoch, Orphan, Orphans, Session, SessionState};
use tenure_core::time::StoreTime;

use crate::reply::{Malformed, Read, Reader};
use crate::store::ValkeyStore;
use crate::view::{Liveness, PackedTenure, foreign, whole};

/// How many sessions one script reads at most.
const READS: usize = 200;

/// The record of a session: six little-endian doubles.
#[derive(Debug, Clone, Copy, PartialEq)]
struct SessionRecord {
    epoch: Epoch,
    created_at: StoreTime,
    updated_at: StoreTime,
    grace: Option<Duration>,
    /// While it has no connections: the fixed end of its grace, and the grace.
    away: Option<(StoreTime, Duration)>,
}

impl SessionRecord {
    /// Reads a record. `None` for data that no script of Tenure wrote; reconcile repairs it.
    fn read(bytes: &[u8]) -> Option<Self> {
        let doubles: &[u8; 48] = bytes.try_into().ok()?;
        let at = |n: usize| {
            let mut double = [0; 8];
            double.copy_from_slice(&doubles[8 * n..8 * n + 8]);
            whole(f64::from_le_bytes(double))
        };
        let (grace, reap_at) = (at(3)?, at(4)?);
        let granted = Duration::from_micros(at(5)?);
        Some(Self {
            epoch: Epoch::new(at(0)?).ok()?,
            created_at: StoreTime::from_micros(at(1)?),
            updated_at: StoreTime::from_micros(at(2)?),
            grace: (grace > 0).then(|| Duration::from_micros(grace)),
            away: (reap_at > 0).then(|| (StoreTime::from_micros(reap_at), granted)),
        })
    }
}

/// A field's value. Invalid JSON was written by another program and is returned as text.
pub(super) fn field_value(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
}

/// A stored alias, if it is valid.
pub(super) fn valid_alias(text: &str) -> Option<Alias> {
    Alias::new(text).ok()
}

/// A session as returned by `sessions_by_name.lua`.
struct SessionRow {
    name: String,
    record: Vec<u8>,
    alias: Option<String>,
    data: Data,
    /// The index of each tenure, and its number of connections.
    connections: Vec<(usize, u64)>,
}

impl SessionRow {
    fn read(row: &mut Reader) -> Read<Self> {
        let (name, record) = (row.lossy_text()?, row.maybe_bytes()?.unwrap_or_default());
        let (alias, mut fields, mut data) = (row.maybe_lossy_text()?, row.array()?, Data::new());
        while fields.left() > 1 {
            data.insert(
                fields.lossy_text()?,
                field_value(&fields.maybe_bytes()?.unwrap_or_default()),
            );
        }
        let (mut pairs, mut connections) = (row.array()?, Vec::new());
        while pairs.left() > 1 {
            let place = usize::try_from(pairs.number()?).map_err(|_| Malformed("a place".to_owned()))?;
            connections.push((place, pairs.number()?));
        }
        Ok(Self {
            name,
            record,
            alias,
            data,
            connections,
        })
    }

    /// `None` for a damaged session.
    fn session(self, liveness: &Liveness, alive: &[bool]) -> Option<Session> {
        let record = SessionRecord::read(&self.record)?;
        let living = self
            .connections
            .iter()
            .filter(|(place, _)| alive.get(*place) == Some(&true));
        let connections = living.map(|(_, count)| count).sum();
        let reap_in = record
            .away
            .map(|(at, granted)| liveness.expiry(at, granted).since(liveness.now()));
        Some(Session {
            session: SessionId::new(&self.name).ok()?,
            state: match reap_in {
                Some(Duration::ZERO) => SessionState::Orphan,
                None if connections > 0 => SessionState::Active,
                _ => SessionState::Disconnected,
            },
            connections,
            alias: self.alias.as_deref().and_then(valid_alias),
            data: self.data,
            epoch: record.epoch,
            created_at: record.created_at,
            updated_at: record.updated_at,
            grace: record.grace,
            disconnected_at: record.away.map(|(at, granted)| at.minus(granted)),
            reap_in,
        })
    }
}

impl ValkeyStore {
    /// The sessions with these names, or the one behind an alias; those that exist, in the order asked.
    pub(super) async fn sessions_by_name(&self, group: &Group, alias: &str, names: &[String]) -> Result<Vec<Session>> {
        let (mut left, mut found) = (names, Vec::with_capacity(names.len()));
        while !left.is_empty() || !alias.is_empty() {
            let part = left.get(..READS).unwrap_or(left);
            let invocation = Self::read_call(group).arg(alias).args(part);
            let (liveness, looked_at, packed, rows) = self
                .connection
                .call(&self.scripts.sessions_by_name, invocation, |reader, now| {
                    let liveness = Liveness::read(reader, now)?;
                    let looked_at = usize::try_from(reader.number()?).unwrap_or(usize::MAX);
                    Ok((liveness, looked_at, read_packed(reader)?, read_rows(reader)?))
                })
                .await?;
            let mut alive = Vec::with_capacity(packed.len());
            for value in packed {
                let current = value.map(|value| PackedTenure::read(&value)).transpose()?;
                alive.push(current.is_some_and(|current| liveness.now() < liveness.end(&current)));
            }
            found.extend(rows.into_iter().filter_map(|row| row.session(&liveness, &alive)));
            if !alias.is_empty() {
                break;
            }
            if looked_at == 0 {
                return Err(foreign("a listing that makes no progress"));
            }
            left = left.get(looked_at..).unwrap_or_default();
        }
        Ok(found)
    }
}

fn read_packed(reader: &mut Reader) -> Read<Vec<Option<Vec<u8>>>> {
    let mut values = reader.array()?;
    let mut packed = Vec::with_capacity(values.left());
    while values.left() > 0 {
        packed.push(values.maybe_bytes()?);
    }
    Ok(packed)
}

fn read_rows(reader: &mut Reader) -> Read<Vec<SessionRow>> {
    let mut rows = reader.array()?;
    let mut found = Vec::with_capacity(rows.left());
    while rows.left() > 0 {
        found.push(SessionRow::read(&mut rows.array()?)?);
    }
    Ok(found)
}

/// The orphans among the entries of the index that are overdue by this much.
pub(super) fn read_orphans(reader: &mut Reader, liveness: &Liveness, overdue: Duration) -> Read<Orphans> {
    let mut rows = reader.array()?;
    let mut found = Orphans::default();
    while rows.left() > 1 {
        let (name, record) = (rows.lossy_text()?, rows.maybe_bytes()?.unwrap_or_default());
        let record = SessionRecord::read(&record).and_then(|record| Some((record.epoch, record.away?)));
        let (Ok(session), Some((epoch, (at, granted)))) = (SessionId::new(&name), record) else {
            found.skipped += 1;
            continue;
        };
        let over_at = liveness.expiry(at, granted);
        if over_at + overdue <= liveness.now() {
            found.orphans.push(Orphan {
                session,
                epoch,
                disconnected_at: at.minus(granted),
                overdue: liveness.now().since(over_at),
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(numbers: [f64; 6]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn foreign_record_reads_as_none() {
        let good = [7.0, 1.0, 2.0, 0.0, 0.0, 0.0];
        assert!(
            SessionRecord::read(&packed(good)).is_some_and(|record| record.away.is_none() && record.grace.is_none())
        );
        for (at, wrong) in [
            (0, 0.0),
            (0, -1.0),
            (1, f64::NAN),
            (2, 0.5),
            (3, f64::INFINITY),
            (4, -0.5),
        ] {
            let mut numbers = good;
            numbers[at] = wrong;
            assert_eq!(SessionRecord::read(&packed(numbers)), None, "{numbers:?}");
        }
        assert_eq!(SessionRecord::read(&packed(good)[..47]), None);
        assert_eq!(SessionRecord::read(b""), None);
    }

    #[test]
    fn non_json_field_is_shown_as_text() {
        assert_eq!(field_value(b"{\"a\":1}"), serde_json::json!({"a": 1}));
        assert_eq!(field_value(b"{oops"), serde_json::json!("{oops"));
    }
}
