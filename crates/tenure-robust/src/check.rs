//! The checks of a history. Each violation names its check and the calls that show it.

mod disk;
mod ends;
mod evictions;
mod holders;
mod life;
mod linear;

use std::collections::{BTreeMap, HashMap};

use crate::events::Event;
use crate::fault::{Loss, Window};
use crate::history::{Call, Micros, member_of};
use crate::spec::Ends;
use crate::world::Kind;
use life::{Life, lives};

/// Clocks of one machine, and rounding to milliseconds.
const SLACK: Micros = 10_000;
/// How much later than due a dead tenure may be seen alive: two calls, each as slow as may be.
const LATE: Micros = 500_000;

/// Something that must not happen.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The check that found it.
    pub check: &'static str,
    /// What happened.
    pub text: String,
    /// The calls that show it.
    pub calls: Vec<Call>,
}

/// All that is known about a round.
#[derive(Debug)]
pub struct Record {
    /// The world.
    pub kind: Kind,
    /// The calls, by begin.
    pub calls: Vec<Call>,
    /// The events of the store.
    pub events: Vec<Event>,
    /// The faults.
    pub windows: Vec<Window>,
    /// What was left when all tenures were over.
    pub left: Vec<String>,
}

impl Record {
    /// What the store lost.
    fn losses(&self) -> impl Iterator<Item = Loss> {
        self.windows.iter().filter_map(|window| window.loss)
    }
}

/// Judges a round.
#[must_use]
pub fn judge(record: &Record) -> Vec<Violation> {
    let judge = Judge {
        record,
        lives: lives(record),
    };
    let mut found = linear::check(&judge);
    found.extend(judge.dead_is_final());
    found.extend(judge.no_early_lapse());
    found.extend(judge.no_ghost());
    found.extend(judge.one_holder());
    found.extend(judge.library_trust());
    found.extend(judge.evictions());
    found.extend(judge.full_disk());
    found.extend(record.left.iter().map(|left| Violation {
        check: "nothing left behind",
        text: format!("{left} is there although all tenures are over"),
        calls: Vec::new(),
    }));
    found
}

struct Judge<'a> {
    record: &'a Record,
    lives: BTreeMap<String, Life>,
}

impl Judge<'_> {
    /// Whether what a call did may have been lost before an instant.
    fn may_be_lost(&self, call: &Call, until: Micros) -> bool {
        let is_lost = |loss: Loss| match loss.is_tail {
            true => call.end >= loss.from && call.begin <= loss.to && until >= loss.from,
            false => call.begin <= loss.to && until >= loss.from,
        };
        self.record.losses().any(is_lost)
    }

    fn ends(&self, members: &mut HashMap<String, usize>) -> (Vec<Ends>, HashMap<String, usize>) {
        let mut numbers = HashMap::new();
        let ends = self.lives.iter().enumerate().map(|(n, (tenure, life))| {
            numbers.insert(tenure.clone(), n);
            let next = members.len();
            Ends {
                free: life.free(),
                dead: life.dead(),
                member: *members.entry(member_of(tenure).to_owned()).or_insert(next),
            }
        });
        (ends.collect(), numbers)
    }
}

#[cfg(test)]
mod tests;
