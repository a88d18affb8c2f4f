//! The reaper's step, and reconcile: checks all stored session data in every direction, a bounded part at a time.
//!
//! The checks follow only the indexes of the group: what live and ended tenures hold, the list of all sessions, the
//! index of disconnected sessions, the aliases. The cost does not depend on other programs' keys, and no permission for
//! `SCAN` is needed.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tenure_core::call::Serve;
use tenure_core::error::Result;
use tenure_core::id::{Group, SessionId, TenureId};
use tenure_core::session::Epoch;
use tenure_core::store::{Call, bad_cursor};
use tenure_core::sweep::{Reap, Reaped, ReapedBatch, Reconcile, Reconciled};
use tenure_core::time::micros;

use crate::reply::{Malformed, Read, Reader};
use crate::session::names::{parse_entry, show_entry};
use crate::store::ValkeyStore;
use crate::sweep::read_brake;

/// How many sessions one script reaps or checks at most: each is read and written in several keys.
const STEP: u32 = 100;
/// The most tenures that a cursor carries; bounds the cost of a forged one.
const CARRIED: usize = 10_000;
/// The phases in order, and whether they iterate over tenures.
const PHASES: [(&str, bool); 6] = [
    ("members", true),
    ("releasing", true),
    ("releasing:lapsed", true),
    ("sessions", false),
    ("disconnected", false),
    ("aliases", false),
];

/// The position of the next part: a phase, and its own position as returned by `reconcile.lua`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReconcileCursor {
    phase: usize,
    parts: Vec<String>,
}

impl ReconcileCursor {
    fn beginning(phase: usize) -> Self {
        let parts: &[&str] = match PHASES.get(phase) {
            Some((_, true)) => &["0", "0"],
            Some(("sessions", _)) => &[""],
            _ => &["0"],
        };
        Self {
            phase,
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
        }
    }

    fn show(&self) -> String {
        format!("{}/{}", self.phase, self.parts.join("/"))
    }

    fn parse(text: &str) -> Option<Self> {
        let (phase, rest) = text.split_once('/')?;
        let phase = phase.parse().ok()?;
        let parts: Vec<String> = rest.split('/').map(str::to_owned).collect();
        let cursor = |text: &String| text.parse::<u64>().is_ok();
        let sound = match (PHASES.get(phase)?, parts.as_slice()) {
            ((_, true), [outer, inner, tenures @ ..]) => {
                let carried = tenures.len() <= CARRIED && tenures.iter().all(|text| text.parse::<TenureId>().is_ok());
                let outer = cursor(outer) || (outer.is_empty() && !tenures.is_empty());
                outer && cursor(inner) && carried
            }
            (("sessions", _), [after]) => after.is_empty() || parse_entry(after).is_some(),
            ((_, false), [at]) => cursor(at),
            _ => false,
        };
        sound.then_some(Self { phase, parts })
    }

    /// The position as arguments of the script.
    fn args(&self) -> Vec<Vec<u8>> {
        let arg = |part: &String| match PHASES.get(self.phase) {
            Some(("sessions", _)) => parse_entry(part).unwrap_or_default(),
            _ => part.clone().into_bytes(),
        };
        self.parts.iter().map(arg).collect()
    }

    /// The position after a part, given what the script returned.
    fn next(&self, left: &[Vec<u8>]) -> Option<Self> {
        if !left.is_empty() {
            let phase = self.phase;
            let part = |part: &Vec<u8>| match PHASES.get(phase) {
                Some(("sessions", _)) if !part.is_empty() => show_entry(part),
                _ => String::from_utf8_lossy(part).into_owned(),
            };
            let parts = left.iter().map(part).collect();
            return Some(Self { phase, parts });
        }
        let phase = self.phase + 1;
        (phase < PHASES.len()).then(|| Self::beginning(phase))
    }
}

#[async_trait]
impl Serve<Reap> for ValkeyStore {
    async fn serve(&self, group: &Group, Reap(request): Reap, call: Call) -> Result<ReapedBatch> {
        let invocation = self
            .timely_call(group, call)
            .number(u64::from(request.limit.min(STEP)))
            .arg(&request.pass)
            .arg(if request.force { "1" } else { "0" });
        self.connection
            .call(&self.scripts.reap, invocation, |reader, _| read_reaped(reader))
            .await
    }
}

#[async_trait]
impl Serve<Reconcile> for ValkeyStore {
    async fn serve(&self, group: &Group, Reconcile(request): Reconcile, call: Call) -> Result<Reconciled> {
        let place = match &request.after {
            None => ReconcileCursor::beginning(0),
            Some(text) => ReconcileCursor::parse(text).ok_or_else(|| bad_cursor(text))?,
        };
        let phase = PHASES.get(place.phase).map_or("", |(phase, _)| phase);
        let settings = &self.options.sessions;
        let invocation = self
            .timely_call(group, call)
            .number(u64::from(request.limit.clamp(1, STEP)))
            .number(micros(settings.grace))
            .number(settings.max_age.map_or(0, micros))
            .arg(phase)
            .args(place.args());
        let (looked_at, left, repaired) = self
            .connection
            .call(&self.scripts.reconcile, invocation, |reader, _| {
                let (looked_at, left) = (reader.number()?, reader.array()?.all_bytes()?);
                let (mut kinds, mut repaired) = (reader.array()?, BTreeMap::new());
                while kinds.left() > 1 {
                    repaired.insert(kinds.text()?, kinds.number()?);
                }
                Ok((looked_at, left, repaired))
            })
            .await?;
        Ok(Reconciled {
            looked_at,
            repaired,
            next: place.next(&left).map(|next| next.show()),
        })
    }
}

fn read_reaped(reader: &mut Reader) -> Read<ReapedBatch> {
    let (more, braked, skipped) = (reader.number()? != 0, read_brake(reader)?, reader.number()?);
    let (mut rows, mut reaped) = (reader.array()?, Vec::new());
    while rows.left() > 1 {
        let (name, epoch) = (rows.text()?, rows.number()?);
        reaped.push(Reaped {
            session: SessionId::new(name).map_err(|_| Malformed("a session without a name".to_owned()))?,
            epoch: Epoch::new(epoch).map_err(|_| Malformed(format!("the epoch {epoch}")))?,
        });
    }
    Ok(ReapedBatch {
        reaped,
        skipped,
        more,
        braked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_round_trips() {
        for text in [
            "0/0/0",
            "0//17/a@1/b@2",
            "2/5/0/a@1",
            "3/",
            "3/chat",
            "3/%ff00",
            "4/0",
            "5/18446744073709551615",
        ] {
            assert_eq!(
                ReconcileCursor::parse(text).map(|place| place.show()).as_deref(),
                Some(text)
            );
        }
        for text in [
            "",
            "x",
            "0",
            "0/0",
            "0//0",
            "0/x/0",
            "0/0/0/not-a-tenure",
            "3/a b",
            "4/",
            "4/-1",
            "6/0",
            "9/",
        ] {
            assert_eq!(ReconcileCursor::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn phases_follow_in_order() {
        let (mut place, mut seen) = (Some(ReconcileCursor::beginning(0)), 0);
        while let Some(at) = place {
            assert_eq!(ReconcileCursor::parse(&at.show()), Some(at.clone()));
            (place, seen) = (at.next(&[]), seen + 1);
        }
        assert_eq!(seen, PHASES.len());
    }
}
