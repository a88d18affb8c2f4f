//! Tenures end once, not too early, and not too late.

use std::collections::HashMap;
use std::time::Duration;

use tenure_core::settling::gap;

use super::life::term;
use super::{Judge, LATE, SLACK, Violation};
use crate::events::Event;
use crate::fault::{Fault, Loss, Window};
use crate::history::{Call, Micros, Verb, member_of, micros};
use crate::world::MAX_TTL;

/// How long before it is replicated an end may have been read.
const UNSWEPT: Micros = 1_000_000;

impl Judge<'_> {
    /// Once a tenure is known to have ended, nothing is done under it and no read shows it alive.
    pub(super) fn dead_is_final(&self) -> Vec<Violation> {
        let mut known: HashMap<&str, &Call> = HashMap::new();
        let mut newest: HashMap<&str, Vec<&Call>> = HashMap::new();
        for call in &self.record.calls {
            for ended in call.seen_dead() {
                let before = known.entry(ended).or_insert(call);
                if call.end < before.end {
                    *before = call;
                }
            }
            if matches!(call.verb, Verb::Join(_)) && call.is_done() {
                newest.entry(member_of(&call.tenure)).or_default().push(call);
            }
        }
        let mut found = Vec::new();
        for call in &self.record.calls {
            for tenure in call.seen_alive() {
                if matches!(call.verb, Verb::Join(_)) {
                    continue;
                }
                let successor = newest.get(member_of(tenure)).into_iter().flatten();
                let successor = successor
                    .copied()
                    .find(|join| join.end < call.begin && term(&join.tenure) > term(tenure));
                let end = successor.or_else(|| known.get(tenure).copied().filter(|end| end.end < call.begin));
                if let Some(end) = end.filter(|end| !self.is_end_lost(end, call)) {
                    found.push(Violation {
                        check: "dead is final",
                        text: format!("{tenure} had ended, and is alive again"),
                        calls: vec![end.clone(), call.clone()],
                    });
                }
            }
        }
        found
    }

    /// Whether the end that a call shows may be lost when another call is answered.
    fn is_end_lost(&self, end: &Call, later: &Call) -> bool {
        let mut end = end.clone();
        // A tenure reads dead at its end; that is written a moment later.
        end.end += UNSWEPT;
        let is_whole = |loss: Loss| !loss.is_tail && loss.to >= end.begin && loss.from <= later.end;
        self.record.losses().any(is_whole) || self.may_be_lost(&end, later.end)
    }

    /// No member that beat in time lapses, and after an outage of everything each has a whole ttl.
    pub(super) fn no_early_lapse(&self) -> Vec<Violation> {
        let ttls = self.lives.values().map(|life| life.ttl).filter(|ttl| *ttl > 0);
        let shortest = ttls.min().map_or(Duration::ZERO, Duration::from_micros);
        let gap = micros(gap(Some(shortest))) + 100_000;
        let mut found = Vec::new();
        for event in self.record.events.iter().filter(|event| event.kind == "lapsed") {
            let Some(life) = self.lives.get(&event.tenure) else {
                continue;
            };
            let own = |call: &&Call| call.tenure == event.tenure && call.is_done();
            let last = self
                .record
                .calls
                .iter()
                .rfind(|call| matches!(call.verb, Verb::Beat(_) | Verb::Join(_) | Verb::Trust) && own(call));
            let mut early = (event.at + SLACK < life.alive_until).then(|| "it beat in time".to_owned());
            for window in &self.record.windows {
                let Some((begin, resumed)) = window.outage(self.record.kind) else {
                    continue;
                };
                let resumed = resumed.min(self.promoted(window, begin + gap / 2));
                let lost = window.loss.map_or(begin, |loss| loss.from.min(begin));
                let alive = self.record.calls.iter().filter(own).any(|call| {
                    let is_beat = matches!(call.verb, Verb::Beat(_) | Verb::Join(_));
                    is_beat && call.end < lost && call.begin + life.ttl > begin + SLACK
                });
                let is_outage = resumed > begin + gap;
                if is_outage && alive && event.at > begin && event.at + SLACK < resumed + life.ttl {
                    let (begin, end) = (begin / 1_000, resumed / 1_000);
                    early = Some(format!("{:?} from {begin} to {end} ms was not its fault", window.fault));
                }
            }
            found.extend(early.map(|why| Violation {
                check: "no early lapse",
                text: format!("{} lapsed at {} ms, but {why}", event.tenure, event.at / 1_000),
                calls: last.cloned().into_iter().collect(),
            }));
        }
        found
    }

    /// When the replica of a node served, if it took over before the node came back.
    fn promoted(&self, window: &Window, after: Micros) -> Micros {
        let of_node = matches!(
            window.fault,
            Fault::KillNode(_) | Fault::FreezeNode(_) | Fault::CutNode(..) | Fault::EmptyNode(_)
        );
        if !of_node {
            return Micros::MAX;
        }
        let is_sign = |call: &&Call| matches!(call.verb, Verb::Beat(_) | Verb::Join(_)) && call.is_done();
        let signs = self.record.calls.iter().filter(is_sign);
        let served = signs.filter(|call| call.begin > after).map(|call| call.end);
        let is_noticed = |event: &&Event| event.kind == "group_unsettled" && event.at > after;
        let noticed = self.record.events.iter().filter(is_noticed).map(|event| event.at);
        served.chain(noticed).min().unwrap_or(Micros::MAX)
    }

    /// A tenure whose beats stopped is not seen alive for longer than allowed.
    pub(super) fn no_ghost(&self) -> Vec<Violation> {
        let unsettled = self
            .record
            .events
            .iter()
            .filter(|event| event.kind == "group_unsettled");
        let resumed: Vec<Micros> = unsettled.map(|event| event.at).collect();
        let mut found = Vec::new();
        for call in &self.record.calls {
            for tenure in call.seen_alive() {
                let Some(life) = self.lives.get(tenure).filter(|life| life.ttl > 0) else {
                    continue;
                };
                let Some(last) = self.last_sign(tenure, call, &resumed) else {
                    continue;
                };
                if call.begin > last + life.ttl + LATE {
                    let late = (call.begin - last - life.ttl) / 1_000;
                    found.push(Violation {
                        check: "no ghost",
                        text: format!("{tenure} is alive {late} ms after it was due to end"),
                        calls: vec![call.clone()],
                    });
                }
            }
        }
        found
    }

    /// The last beat of a tenure before a call, or what else restarted its ttl; `None` if it has not beaten.
    fn last_sign(&self, tenure: &str, call: &Call, resumed: &[Micros]) -> Option<Micros> {
        let beats = self.record.calls.iter().filter(|beat| {
            beat.begin <= call.begin && beat.tenure == *tenure && matches!(beat.verb, Verb::Beat(_) | Verb::Join(_))
        });
        let beats = beats.filter(|beat| beat.seen_dead().next().is_none());
        let beat = beats
            .filter(|beat| !std::ptr::eq(*beat, call))
            .map(|beat| beat.end)
            .max()?;
        // On a full disk beats go on, and what is dead reads dead.
        let stops = |window: &&Window| window.begin <= call.end && window.fault != Fault::FullDisk(false);
        let windows = self.record.windows.iter().filter(stops);
        let outage = windows.map(|window| window.end + window.loss.map_or(0, |_| micros(MAX_TTL)));
        let gap = resumed.iter().copied().filter(|at| *at <= call.end);
        gap.chain(outage).chain([beat]).max()
    }
}
