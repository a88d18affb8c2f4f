//! The checks of a roster.

use std::collections::{BTreeMap, BTreeSet};

use super::{Act, CAPACITY, Deed, Entry, Ledger, Reply, STALE};
use crate::check::Violation;
use crate::fault::{Fault, Window};
use crate::history::{Micros, micros};
use crate::world::Kind;

/// Clocks of one machine, and the time between a decision and its row.
const SLACK: Micros = 10_000;
/// A daemon that does not reach the hot store deactivates a provider; another learns of it within this time.
const PASSED_ON: Micros = 2_000_000;
/// A daemon reaches the hot store again within this time after a cut.
const RECONNECTED: Micros = 2_000_000;
/// An outage that is shorter may be no gap.
const GAP: Micros = 1_200_000;

/// All that is known about a round.
#[derive(Debug)]
pub struct RosterRecord {
    /// The calls, by begin.
    pub deeds: Vec<Deed>,
    /// The tables in the end.
    pub ledger: Ledger,
    /// The faults.
    pub windows: Vec<Window>,
    /// Where the mirror and the ledger still differ, and which providers did not go offline in the end.
    pub left: Vec<String>,
}

/// Judges a round.
#[must_use]
pub fn judge(record: &RosterRecord) -> Vec<Violation> {
    let mut texts = Vec::new();
    texts.extend(
        record
            .survive()
            .into_iter()
            .map(|text| ("acknowledged writes survive", text)),
    );
    texts.extend(record.capacity().into_iter().map(|text| ("no more than fits", text)));
    texts.extend(
        record
            .shut_out()
            .into_iter()
            .map(|text| ("deactivated is refused", text)),
    );
    texts.extend(record.early().into_iter().map(|text| ("no early lapse", text)));
    texts.extend(record.logged().into_iter().map(|text| ("one log row per change", text)));
    texts.extend(record.left.iter().map(|text| ("mirror and ledger agree", text.clone())));
    let violation = |(check, text)| Violation {
        check,
        text,
        calls: Vec::new(),
    };
    texts.into_iter().map(violation).collect()
}

impl RosterRecord {
    fn acts(&self, act: Act) -> impl Iterator<Item = &Deed> {
        self.deeds.iter().filter(move |deed| deed.act == act)
    }

    /// Every engagement that was answered is in the ledger, with its provider; what was ended is over, and nothing else.
    fn survive(&self) -> Vec<String> {
        let mut found = Vec::new();
        for deed in self.acts(Act::Reserve).filter(|deed| deed.done().is_some()) {
            match self.ledger.engagements.get(&deed.engagement) {
                None => found.push(format!("{deed:?} is not in the ledger")),
                Some((provider, _)) if *provider != deed.provider => {
                    found.push(format!("{deed:?} has the provider {provider} in the ledger"));
                }
                Some((_, status)) => {
                    let is_over = status == "ended";
                    let ends = || self.acts(Act::End).filter(|end| end.engagement == deed.engagement);
                    let was_ended = ends().any(|end| end.done().is_some());
                    let may_be = ends().any(|end| end.reply == Reply::Unknown);
                    if is_over != was_ended && !(is_over && may_be) {
                        found.push(format!("{deed:?} is {status} in the ledger"));
                    }
                }
            }
        }
        for (engagement, (provider, _)) in &self.ledger.engagements {
            let mut reserves = self.acts(Act::Reserve).filter(|deed| deed.engagement == *engagement);
            if !reserves.any(|deed| !matches!(deed.reply, Reply::Refused(_))) {
                found.push(format!(
                    "{engagement} with {provider} is in the ledger, and was never reserved"
                ));
            }
        }
        for (provider, row) in &self.ledger.providers {
            if row.occupancy != row.open {
                found.push(format!(
                    "{provider} has the occupancy {} and {} engagements",
                    row.occupancy, row.open
                ));
            }
        }
        found
    }

    /// No provider has more engagements than places at the end of a reserve.
    fn capacity(&self) -> Vec<String> {
        let ended = |engagement: &str| {
            let ends = self.acts(Act::End).filter(|deed| deed.engagement == engagement);
            let ends = ends.filter(|deed| !matches!(deed.reply, Reply::Refused(_)));
            ends.map(|deed| deed.begin).min().unwrap_or(Micros::MAX)
        };
        let mut spans: BTreeMap<&str, BTreeMap<&str, (Micros, Micros)>> = BTreeMap::new();
        for deed in self.acts(Act::Reserve).filter(|deed| deed.done().is_some()) {
            let spans = spans.entry(&deed.provider).or_default();
            // A call that was repeated began when its first answer came, at the latest.
            let span = spans
                .entry(&deed.engagement)
                .or_insert((deed.end, ended(&deed.engagement)));
            span.0 = span.0.min(deed.end);
        }
        let mut found = Vec::new();
        for (provider, spans) in spans {
            for (at, _) in spans.values() {
                let open: Vec<_> = spans
                    .iter()
                    .filter(|(_, (begin, end))| begin <= at && end > at)
                    .collect();
                if open.len() > CAPACITY {
                    found.push(format!("{provider} has {CAPACITY} places and {open:?}"));
                }
            }
        }
        found
    }

    /// From the answer to a deactivation until the next activation nothing that the provider does is accepted.
    fn shut_out(&self) -> Vec<String> {
        let mut found = Vec::new();
        for out in self.acts(Act::Deactivate) {
            let Some(done) = out.done() else { continue };
            let back = self
                .acts(Act::Activate)
                .filter(|deed| deed.provider == out.provider && deed.begin > out.begin);
            let back = back.map(|deed| deed.begin).min().unwrap_or(Micros::MAX);
            let is_unreached = self.windows.iter().any(|window| {
                let is_cut = window.begin <= out.end && window.end + RECONNECTED >= out.begin;
                is_cut && matches!(window.fault, Fault::CutStore(..))
            });
            for deed in &self.deeds {
                let is_work = matches!(deed.act, Act::Online | Act::Heartbeat | Act::Reserve);
                let is_within = deed.begin > out.end && deed.end < back && deed.provider == out.provider;
                let is_new = deed
                    .done()
                    .is_some_and(|done| done.is_changed || deed.act != Act::Reserve);
                let may_be_late =
                    deed.act == Act::Heartbeat && !done.is_mirrored && is_unreached && deed.begin < out.end + PASSED_ON;
                if is_work && is_within && is_new && !may_be_late {
                    found.push(format!("{deed:?} was accepted after {out:?}"));
                }
            }
        }
        found
    }

    /// No provider lapses whose heartbeat the hot store had in time, nor by an outage of it.
    fn early(&self) -> Vec<String> {
        let mut found = Vec::new();
        let stale = micros(STALE);
        let lapsed = |entry: &&Entry| matches!(entry.reason.as_str(), "lapsed" | "unknown" | "expelled");
        for entry in self
            .ledger
            .log
            .iter()
            .filter(|entry| entry.change == "offline")
            .filter(lapsed)
        {
            let beats = || {
                let own = self.deeds.iter().filter(|deed| deed.provider == entry.provider);
                let beats = own.filter(|deed| matches!(deed.act, Act::Heartbeat | Act::Online));
                beats.filter(|deed| deed.done().is_some_and(|done| done.is_mirrored))
            };
            let in_time = beats().find(|deed| deed.end < entry.at && deed.begin + stale > entry.at + SLACK);
            if let Some(deed) = in_time {
                found.push(format!("{entry:?}, although {deed:?}"));
            }
            for window in &self.windows {
                let Some((begin, resumed)) = window.outage(Kind::Ledger).filter(|(begin, end)| end - begin > GAP)
                else {
                    continue;
                };
                let was_alive = beats().any(|deed| deed.end < begin && deed.begin + stale > begin + SLACK);
                if was_alive && entry.at > begin && entry.at + SLACK < resumed + stale {
                    found.push(format!("{entry:?}, in an outage of the hot store: {window:?}"));
                }
            }
        }
        found
    }

    /// Each change of a provider's state is in the log once: the rows follow each other, and each answer has its row.
    fn logged(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut states: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
        let mut rows: BTreeSet<(&str, u64, &str)> = BTreeSet::new();
        for entry in &self.ledger.log {
            let (active, online) = states.entry(&entry.provider).or_insert((true, false));
            let (state, next) = match entry.change.as_str() {
                "activated" => (active, true),
                "deactivated" => (active, false),
                "online" => (online, true),
                _ => (online, false),
            };
            if *state == next {
                found.push(format!("{entry:?} changes nothing"));
            }
            *state = next;
            rows.insert((&entry.provider, entry.version, &entry.change));
        }
        for deed in &self.deeds {
            let change = match deed.act {
                Act::Activate => "activated",
                Act::Deactivate => "deactivated",
                Act::Offline => "offline",
                _ => continue,
            };
            let changed = deed.done().filter(|done| done.is_changed);
            if changed.is_some_and(|done| !rows.contains(&(&deed.provider, done.version, change))) {
                found.push(format!("{deed:?} is not in the log"));
            }
        }
        for (provider, row) in &self.ledger.providers {
            let state = states.get(provider.as_str()).copied().unwrap_or((true, false));
            if state != (row.is_active, row.is_online) {
                found.push(format!("the log of {provider} ends with {state:?}, its row is {row:?}"));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
