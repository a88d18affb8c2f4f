//! Sessions as the reading scripts give them, and what they are worth now.

use std::time::Duration;

use serde_json::Value;
use tenure_core::error::Result;
use tenure_core::id::{Alias, Group, SessionId};
use tenure_core::session::{Data, Epoch, Orphan, Orphans, Session, SessionState};
use tenure_core::time::StoreTime;

use crate::reply::{Malformed, Read, Reader};
use crate::store::ValkeyStore;
use crate::view::{Life, Packed, foreign, whole};

/// How many sessions one script reads at most.
const READS: usize = 200;

/// The record of a session: six little-endian doubles.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Record {
    epoch: Epoch,
    created_at: StoreTime,
    updated_at: StoreTime,
    grace: Option<Duration>,
    /// When its grace is over as it was fixed, and the grace; while it has no connections.
    away: Option<(StoreTime, Duration)>,
}

impl Record {
    /// Reads one. `None` for what no script of ours wrote: reconcile looks after it.
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

/// A field's value. What is no JSON was put there by somebody else, and is shown as the text it is.
pub(super) fn field_value(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
}

/// An alias as it is stored, if it is one.
pub(super) fn valid_alias(text: &str) -> Option<Alias> {
    Alias::new(text).ok()
}

/// A session as `sessions_by_name.lua` gives it.
struct Row {
    name: String,
    record: Vec<u8>,
    alias: Option<String>,
    data: Data,
    /// Which tenure, and how many connections of it.
    connections: Vec<(usize, u64)>,
}

impl Row {
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

    /// `None` for one that is damaged.
    fn session(self, life: &Life, alive: &[bool]) -> Option<Session> {
        let record = Record::read(&self.record)?;
        let living = self
            .connections
            .iter()
            .filter(|(place, _)| alive.get(*place) == Some(&true));
        let connections = living.map(|(_, count)| count).sum();
        let reap_in = record
            .away
            .map(|(at, granted)| life.over(at, granted).since(life.now()));
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
    /// Sessions by name, or the one that an alias leads to; those that are there, in the order asked.
    pub(super) async fn sessions_by_name(&self, group: &Group, alias: &str, names: &[String]) -> Result<Vec<Session>> {
        let (mut left, mut found) = (names, Vec::with_capacity(names.len()));
        while !left.is_empty() || !alias.is_empty() {
            let part = left.get(..READS).unwrap_or(left);
            let invocation = Self::reading(group).arg(alias).args(part);
            let (life, looked_at, packed, rows) = self
                .connection
                .call(&self.scripts.sessions_by_name, invocation, |reader, now| {
                    let life = Life::read(reader, now)?;
                    let looked_at = usize::try_from(reader.number()?).unwrap_or(usize::MAX);
                    Ok((life, looked_at, read_packed(reader)?, read_rows(reader)?))
                })
                .await?;
            let mut alive = Vec::with_capacity(packed.len());
            for value in packed {
                let current = value.map(|value| Packed::read(&value)).transpose()?;
                alive.push(current.is_some_and(|current| life.now() < life.end(&current)));
            }
            found.extend(rows.into_iter().filter_map(|row| row.session(&life, &alive)));
            if !alias.is_empty() {
                break;
            }
            if looked_at == 0 {
                return Err(foreign("a listing that does not go on"));
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

fn read_rows(reader: &mut Reader) -> Read<Vec<Row>> {
    let mut rows = reader.array()?;
    let mut found = Vec::with_capacity(rows.left());
    while rows.left() > 0 {
        found.push(Row::read(&mut rows.array()?)?);
    }
    Ok(found)
}

/// Those of the index that are orphans, for so long.
pub(super) fn read_orphans(reader: &mut Reader, life: &Life, overdue: Duration) -> Read<Orphans> {
    let mut rows = reader.array()?;
    let mut found = Orphans::default();
    while rows.left() > 1 {
        let (name, record) = (rows.lossy_text()?, rows.maybe_bytes()?.unwrap_or_default());
        let record = Record::read(&record).and_then(|record| Some((record.epoch, record.away?)));
        let (Ok(session), Some((epoch, (at, granted)))) = (SessionId::new(&name), record) else {
            found.skipped += 1;
            continue;
        };
        let over_at = life.over(at, granted);
        if over_at + overdue <= life.now() {
            found.orphans.push(Orphan {
                session,
                epoch,
                disconnected_at: at.minus(granted),
                overdue: life.now().since(over_at),
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
    fn a_record_that_nobody_of_us_wrote_is_none() {
        let good = [7.0, 1.0, 2.0, 0.0, 0.0, 0.0];
        assert!(Record::read(&packed(good)).is_some_and(|record| record.away.is_none() && record.grace.is_none()));
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
            assert_eq!(Record::read(&packed(numbers)), None, "{numbers:?}");
        }
        assert_eq!(Record::read(&packed(good)[..47]), None);
        assert_eq!(Record::read(b""), None);
    }

    #[test]
    fn a_field_that_is_no_json_is_shown_as_text() {
        assert_eq!(field_value(b"{\"a\":1}"), serde_json::json!({"a": 1}));
        assert_eq!(field_value(b"{oops"), serde_json::json!("{oops"));
    }
}
