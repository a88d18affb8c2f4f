//! What a tenure's own calls say about its life.

use std::collections::BTreeMap;

use super::{Record, SLACK};
use crate::fault::Loss;
use crate::history::{Call, Micros, Outcome, Verb, member_of, micros};
use crate::world::MAX_TTL;

/// What a tenure's own calls say about it.
#[derive(Debug, Clone, Default)]
pub(super) struct Life {
    pub(super) ttl: Micros,
    /// It cannot lapse before.
    pub(super) alive_until: Micros,
    /// When it first tried to leave.
    left: Option<Micros>,
    /// When another tenure of its member may have begun.
    superseded: Option<Micros>,
    begun: Micros,
}

impl Life {
    /// From when on its leases may pass to others.
    pub(super) fn free(&self) -> Micros {
        self.alive_until
            .min(self.left.unwrap_or(Micros::MAX))
            .saturating_sub(SLACK)
    }

    /// From when on it may read dead.
    pub(super) fn dead(&self) -> Micros {
        self.free().min(self.superseded.unwrap_or(Micros::MAX))
    }
}

/// The lives of all tenures. A beat that may have been lost with the tail of a store keeps no tenure alive, and neither does
/// a library's trust in it.
pub(super) fn lives(record: &Record) -> BTreeMap<String, Life> {
    let tails: Vec<Loss> = record.losses().filter(|loss| loss.is_tail).collect();
    let is_lost = |from: Micros, to: Micros| tails.iter().any(|loss| to >= loss.from && from <= loss.to);
    let mut lives: BTreeMap<String, Life> = BTreeMap::new();
    for call in record
        .calls
        .iter()
        .filter(|call| !call.tenure.is_empty() && !call.tenure.ends_with("@0"))
    {
        let life = lives.entry(call.tenure.clone()).or_default();
        match &call.verb {
            Verb::Join(ttl) | Verb::Beat(ttl) => {
                life.ttl = *ttl;
                if matches!(call.verb, Verb::Join(_)) {
                    life.begun = call.begin;
                }
                if call.is_done() && !is_lost(call.begin, call.end) {
                    life.alive_until = life.alive_until.max(call.begin + ttl);
                }
            }
            Verb::Trust if !is_lost(call.begin.saturating_sub(micros(MAX_TTL)), call.begin) => {
                life.alive_until = life.alive_until.max(call.begin);
            }
            Verb::Leave if !matches!(call.outcome, Outcome::Refused(_)) => {
                life.left = Some(life.left.map_or(call.begin, |left| left.min(call.begin)));
            }
            _ => {}
        }
    }
    for join in record.calls.iter().filter(|call| matches!(call.verb, Verb::Join(_))) {
        supersede(&mut lives, join);
    }
    lives
}

/// A join may have superseded the earlier tenures of its member.
fn supersede(lives: &mut BTreeMap<String, Life>, join: &Call) {
    let of_member = lives
        .iter_mut()
        .filter(|(tenure, _)| member_of(tenure) == member_of(&join.tenure));
    for (tenure, life) in of_member.filter(|(tenure, _)| **tenure != join.tenure) {
        let is_later = match join.outcome {
            Outcome::Done => term(&join.tenure) > term(tenure),
            Outcome::Unknown => join.end >= life.begun,
            _ => false,
        };
        if is_later {
            let at = join.begin.max(life.begun);
            life.superseded = Some(life.superseded.map_or(at, |before| before.min(at)));
        }
    }
}

/// The number of a tenure.
pub(super) fn term(tenure: &str) -> u64 {
    tenure
        .rsplit_once('@')
        .and_then(|(_, term)| term.parse().ok())
        .unwrap_or(0)
}
