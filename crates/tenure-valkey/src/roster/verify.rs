//! Verifies a roster mirror part by part: its rows, its tombstones, and the indexes of both.
//!
//! The check follows only keys of the group, so its cost does not depend on other programs' keys.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tenure_core::call::Serve;
use tenure_core::error::Result;
use tenure_core::id::{Group, ProviderId};
use tenure_core::ledger::Version;
use tenure_core::roster::{MirrorEntry, Verified, VerifyRoster};
use tenure_core::store::{Call, bad_cursor};
use tenure_core::time::StoreTime;

use super::row;
use super::step::read_stamp;
use crate::reply::{Malformed, Read, Reader};
use crate::store::ValkeyStore;

/// How many entries one script checks at most: each is looked up in about six keys.
const STEP: u32 = 50;
/// The most names that a cursor carries; bounds the cost of a forged one.
const CARRIED: usize = 2_000;
/// The keys to verify, in order.
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

/// The position in one phase: the scan cursor, the carried names (any bytes, since another program may have written
/// them), and when the store had resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct VerifyCursor {
    phase: usize,
    resumed: u64,
    cursor: u64,
    carried: Vec<Vec<u8>>,
}

impl VerifyCursor {
    fn beginning(phase: usize) -> Option<Self> {
        (phase < PHASES.len()).then_some(Self {
            phase,
            resumed: 0,
            cursor: 0,
            carried: Vec::new(),
        })
    }

    fn show(&self) -> String {
        let carried: Vec<String> = self.carried.iter().map(|name| hex(name)).collect();
        let (phase, resumed, cursor) = (self.phase, self.resumed, self.cursor);
        format!("{phase}/{resumed}/{cursor}/{}", carried.join(","))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let phase = parts.next()?.parse().ok().filter(|phase| *phase < PHASES.len())?;
        let (resumed, cursor) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let carried = parts.next()?.split(',').filter(|name| !name.is_empty());
        let carried = carried.map(unhex).collect::<Option<Vec<_>>>()?;
        let sound = parts.next().is_none() && carried.len() <= CARRIED;
        sound.then_some(Self {
            phase,
            resumed,
            cursor,
            carried,
        })
    }

    /// The position after a part, given what the script returned: nothing, or a cursor and names.
    fn next(&self, left: &mut Reader, resumed: StoreTime) -> Read<Option<Self>> {
        if left.left() == 0 {
            return Ok(Self::beginning(self.phase + 1));
        }
        let (cursor, mut carried) = (left.number()?, Vec::with_capacity(left.left()));
        while left.left() > 0 {
            carried.push(left.maybe_bytes()?.unwrap_or_default());
        }
        Ok(Some(Self {
            phase: self.phase,
            resumed: resumed.micros(),
            cursor,
            carried,
        }))
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

#[async_trait]
impl Serve<VerifyRoster> for ValkeyStore {
    async fn serve(&self, group: &Group, VerifyRoster(request): VerifyRoster, call: Call) -> Result<Verified> {
        let place = match &request.after {
            None => VerifyCursor::beginning(0),
            Some(text) => VerifyCursor::parse(text),
        };
        let place = place.ok_or_else(|| bad_cursor(request.after.as_deref().unwrap_or_default()))?;
        let invocation = self
            .timely_call(group, call)
            .number(u64::from(request.limit.clamp(1, STEP)))
            .arg(PHASES.get(place.phase).copied().unwrap_or_default())
            .number(place.resumed)
            .number(place.cursor)
            .args(&place.carried);
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
                    mirror: stamp,
                })
            })
            .await
    }
}

fn read_entries(reader: &mut Reader) -> Read<Vec<MirrorEntry>> {
    let (mut rows, mut entries) = (reader.array()?, Vec::new());
    while rows.left() > 0 {
        let mut row = rows.array()?;
        let name = row.text()?;
        let provider = ProviderId::new(&name).map_err(|_| Malformed(format!("{name:?} in place of a provider")))?;
        let version = Version(row.number()?);
        let packed = row.maybe_bytes()?.unwrap_or_default();
        entries.push(match packed.is_empty() {
            true => MirrorEntry::Gone { provider, version },
            false => {
                let row = row::unpack(&provider, &packed);
                MirrorEntry::Row(row.ok_or_else(|| Malformed(format!("the row of {provider}")))?)
            }
        });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_round_trips() {
        for text in [
            "0/0/0/",
            "1/17/5/616e6e",
            "9/17/18446744073709551615/",
            "3/17/0/00ff,61",
        ] {
            assert_eq!(
                VerifyCursor::parse(text).map(|place| place.show()).as_deref(),
                Some(text)
            );
        }
        for text in [
            "", "x", "0", "0/0", "0/0/0", "0/0/0/6", "0/0/0/zz", "0/0/0/+1", "10/0/0/", "0/x/0/", "0/0/x/", "0/0/0//",
        ] {
            assert_eq!(VerifyCursor::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn phases_follow_in_order() {
        let (mut place, mut seen) = (VerifyCursor::beginning(0), 0);
        while let Some(at) = place {
            assert_eq!(VerifyCursor::parse(&at.show()), Some(at.clone()));
            let mut none = Reader::new(redis::Value::Array(Vec::new())).unwrap();
            (place, seen) = (at.next(&mut none, StoreTime::ZERO).unwrap(), seen + 1);
        }
        assert_eq!(seen, PHASES.len());
    }
}
