//! Going through a mirror, part by part: its rows, what was removed, and everything that leads to them.
//!
//! Nothing is looked for that is not led to by a key of the group, so it costs the same however many keys others keep.

use std::collections::BTreeMap;

use tenure_core::error::Result;
use tenure_core::id::{Group, ProviderId};
use tenure_core::ledger::Version;
use tenure_core::roster::{Entry, Verified};
use tenure_core::store::{Call, bad_cursor};
use tenure_core::sweep::ReconcileRequest;
use tenure_core::time::StoreTime;

use super::row;
use super::step::read_stamp;
use crate::reply::{Malformed, Read, Reader};
use crate::store::ValkeyStore;

/// How many entries one script looks at at most: each is looked for in half a dozen keys.
const STEP: u32 = 100;
/// The most names that a place carries, so that a made-up one cannot cost much.
const CARRIED: usize = 10_000;
/// What is gone through, in order.
const PHASES: [&str; 10] = [
    "providers",
    "tombstones",
    "tombstones:at",
    "free",
    "busy",
    "barred",
    "inactive",
    "offlined",
    "offline",
    "offline:lapsed",
];

/// Where to go on in one of them. Names may be anything that somebody has put there.
#[derive(Debug, Clone, PartialEq, Eq)]
enum At {
    /// After this name, in order: it is small, and comes whole.
    After(Vec<u8>),
    /// At this cursor of a big one, after these names; as of when the store resumed: a restarted server counts anew.
    Cursor {
        resumed: u64,
        cursor: u64,
        carried: Vec<Vec<u8>>,
    },
}

/// Where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    phase: usize,
    at: At,
}

impl Place {
    fn beginning(phase: usize) -> Option<Self> {
        let at = At::After(Vec::new());
        (phase < PHASES.len()).then_some(Self { phase, at })
    }

    fn show(&self) -> String {
        let phase = self.phase;
        match &self.at {
            At::After(name) => format!("{phase}/k/{}", hex(name)),
            At::Cursor {
                resumed,
                cursor,
                carried,
            } => {
                let carried: Vec<String> = carried.iter().map(|name| hex(name)).collect();
                format!("{phase}/h/{resumed}/{cursor}/{}", carried.join(","))
            }
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let phase: usize = parts.next()?.parse().ok().filter(|phase| *phase < PHASES.len())?;
        let at = match parts.next()? {
            "k" => At::After(unhex(parts.next()?)?),
            "h" => {
                let (resumed, cursor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
                let carried = parts.next()?.split(',').filter(|name| !name.is_empty());
                let carried = carried.map(unhex).collect::<Option<Vec<_>>>()?;
                (carried.len() <= CARRIED).then_some(At::Cursor {
                    resumed,
                    cursor,
                    carried,
                })?
            }
            _ => return None,
        };
        parts.next().is_none().then_some(Self { phase, at })
    }

    fn args(&self) -> Vec<Vec<u8>> {
        match &self.at {
            At::After(name) => vec![b"k".to_vec(), name.clone()],
            At::Cursor {
                resumed,
                cursor,
                carried,
            } => {
                let head = ["h".to_owned(), resumed.to_string(), cursor.to_string()];
                let head = head.into_iter().map(String::into_bytes);
                head.chain(carried.iter().cloned()).collect()
            }
        }
    }

    /// What comes after a part that left this: nothing, or as [`Place::args`] without when the store resumed.
    fn next(&self, left: &mut Reader, resumed: StoreTime) -> Read<Option<Self>> {
        if left.left() == 0 {
            return Ok(Self::beginning(self.phase + 1));
        }
        let at = match left.text()?.as_str() {
            "k" => At::After(left.maybe_bytes()?.unwrap_or_default()),
            "h" => {
                let (cursor, mut carried) = (left.number()?, Vec::with_capacity(left.left()));
                while left.left() > 0 {
                    carried.push(left.maybe_bytes()?.unwrap_or_default());
                }
                At::Cursor {
                    resumed: resumed.micros(),
                    cursor,
                    carried,
                }
            }
            other => return Err(Malformed(format!("the place {other:?}"))),
        };
        let phase = self.phase;
        Ok(Some(Self { phase, at }))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pairs = digits.chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        let plain = pair.len() == 2 && pair.bytes().all(|digit| digit.is_ascii_hexdigit());
        plain.then(|| u8::from_str_radix(pair, 16).ok())?
    });
    pairs.collect()
}

impl ValkeyStore {
    /// A part of a mirror.
    pub(super) async fn verify_part(&self, group: &Group, request: &ReconcileRequest, call: Call) -> Result<Verified> {
        let place = match &request.after {
            None => Place::parse("0/k/"),
            Some(text) => Place::parse(text),
        };
        let place = place.ok_or_else(|| bad_cursor(request.after.as_deref().unwrap_or_default()))?;
        let invocation = self
            .punctual(group, call)
            .number(u64::from(request.limit.clamp(1, STEP)))
            .arg(PHASES.get(place.phase).copied().unwrap_or_default())
            .args(place.args());
        self.connection
            .call(&self.scripts.verify_roster, invocation, |reader, now| {
                let stamp = read_stamp(reader, now)?;
                let entries = read_entries(reader)?;
                let (mut kinds, mut repaired) = (reader.array()?, BTreeMap::new());
                while kinds.left() > 1 {
                    repaired.insert(kinds.text()?, kinds.number()?);
                }
                let next = place.next(&mut reader.array()?, stamp.resumed_at)?;
                Ok(Verified {
                    entries,
                    repaired,
                    next: next.map(|next| next.show()),
                    stamp,
                })
            })
            .await
    }
}

fn read_entries(reader: &mut Reader) -> Read<Vec<Entry>> {
    let (mut rows, mut entries) = (reader.array()?, Vec::new());
    while rows.left() > 0 {
        let mut row = rows.array()?;
        let name = row.text()?;
        let provider = ProviderId::new(&name).map_err(|_| Malformed(format!("{name:?} in place of a provider")))?;
        let version = Version(row.number()?);
        let packed = row.maybe_bytes()?.unwrap_or_default();
        entries.push(match packed.is_empty() {
            true => Entry::Gone { provider, version },
            false => {
                let row = row::unpack(&provider, &packed);
                Entry::Row(row.ok_or_else(|| Malformed(format!("the row of {provider}")))?)
            }
        });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_back_what_it_shows() {
        for text in ["0/k/", "1/k/616e6e", "9/h/17/18446744073709551615/", "3/h/17/0/00ff,61"] {
            assert_eq!(Place::parse(text).map(|place| place.show()).as_deref(), Some(text));
        }
        for text in [
            "",
            "x",
            "0",
            "0/k",
            "0/k/6",
            "0/k/zz",
            "0/k/+1",
            "10/k/",
            "0/h/1/2",
            "0/h/1/x/",
            "0/h/1/2/6",
            "0/k//",
        ] {
            assert_eq!(Place::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn every_phase_comes_in_its_turn() {
        let (mut place, mut seen) = (Place::beginning(0), 0);
        while let Some(at) = place {
            assert_eq!(Place::parse(&at.show()), Some(at.clone()));
            let mut none = Reader::new(redis::Value::Array(Vec::new())).unwrap();
            (place, seen) = (at.next(&mut none, StoreTime::ZERO).unwrap(), seen + 1);
        }
        assert_eq!(seen, PHASES.len());
    }
}
