//! Each place of a lease has one holder that trusts it, and its tokens rise.

use std::collections::BTreeMap;

use super::life::Life;
use super::{Judge, Violation};
use crate::client::places;
use crate::history::{Call, Grant, Micros, Outcome, Verb, micros};
use crate::world::MAX_TTL;

impl Judge<'_> {
    /// All leases with the grants that were answered, by begin.
    fn grants(&self) -> BTreeMap<&str, Vec<(&Call, Grant)>> {
        let mut leases: BTreeMap<&str, Vec<(&Call, Grant)>> = BTreeMap::new();
        for call in &self.record.calls {
            if let (Verb::Acquire(lease, _), Outcome::Granted(grant)) = (&call.verb, &call.outcome) {
                leases.entry(lease).or_default().push((call, *grant));
            }
        }
        leases
    }

    /// A place of a lease passes to another only when its holder no longer trusts it, a tenure has at most one, and the
    /// tokens rise in real time.
    pub(super) fn one_holder(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for (lease, grants) in self.grants() {
            let mut report = |check, text, calls: &[&Call]| {
                found.push(Violation {
                    check,
                    text: format!("{lease}: {text}"),
                    calls: calls.iter().copied().cloned().collect(),
                });
            };
            for (n, (a, first)) in grants.iter().enumerate() {
                if first.place >= places(lease) {
                    report("one holder", format!("the place {} does not exist", first.place), &[a]);
                }
                let trusted = self.trusted_until(a, lease, first.token);
                for (b, second) in &grants[n + 1..] {
                    let is_again = second.is_kept && self.may_be_lost(a, b.end);
                    let falls = second.token < first.token && !(second.is_kept && a.tenure == b.tenure) && !is_again;
                    let is_double =
                        first.token == second.token && (a.tenure != b.tenure || first.place != second.place);
                    if first.place == second.place && a.end < b.begin && falls || is_double {
                        let text = format!("{} was granted after {}", second.token, first.token);
                        report("tokens rise", text, &[a, b]);
                    }
                    if second.token <= first.token || b.end >= trusted || self.was_idle(a, b) {
                        continue;
                    }
                    if a.tenure != b.tenure && first.place == second.place {
                        report("one holder", format!("{} still trusted it", a.tenure), &[a, b]);
                    }
                    if a.tenure == b.tenure && first.place != second.place {
                        report("one holder", format!("{} has two places", a.tenure), &[a, b]);
                    }
                }
            }
        }
        found
    }

    /// Until when the holder of a grant certainly trusts it.
    fn trusted_until(&self, grant: &Call, lease: &str, token: u64) -> Micros {
        let own = |call: &&Call| call.tenure == grant.tenure && !matches!(call.outcome, Outcome::Refused(_));
        let ends = self
            .record
            .calls
            .iter()
            .filter(own)
            .filter_map(|call| match &call.verb {
                Verb::Release(name, of) | Verb::Notice(name, of) if name == lease && *of == token => Some(call.begin),
                Verb::ReleaseAny(name) if name == lease && call.begin >= grant.begin => Some(call.begin),
                // Later beats report the release.
                Verb::Revoke(name, of) if name == lease && *of == token => {
                    Some(self.beaten_until(&call.tenure, call.end))
                }
                _ => None,
            });
        let free = self.lives.get(&grant.tenure).map_or(0, Life::free);
        let until = ends.fold(free, Micros::min);
        let losses = self.record.losses().filter_map(|loss| match loss.is_tail {
            // It is forgotten from then on, which its holder learns with its next beat.
            true => (grant.end >= loss.from && grant.begin <= loss.to).then_some(loss.from),
            false => (loss.to >= grant.begin).then_some(loss.from + micros(MAX_TTL)),
        });
        losses.fold(until, Micros::min)
    }

    /// Whether a grant was given while the tail of a store was being lost, to a tenure that saw another idle: it lapsed, and
    /// that was lost as well.
    fn was_idle(&self, a: &Call, b: &Call) -> bool {
        let mut tails = self.record.losses().filter(|loss| loss.is_tail);
        if !tails.any(|loss| b.end >= loss.from && b.begin <= loss.to) {
            return false;
        }
        let mut own = self
            .record
            .calls
            .iter()
            .filter(|call| call.tenure == a.tenure && call.is_done());
        !own.any(|call| match call.verb {
            Verb::Beat(ttl) | Verb::Join(ttl) => call.begin <= b.end && b.end < call.begin + ttl,
            _ => false,
        })
    }

    /// Until when the beats that a tenure had sent by then keep it alive.
    fn beaten_until(&self, tenure: &str, by: Micros) -> Micros {
        let beats = self
            .record
            .calls
            .iter()
            .filter(|call| call.tenure == tenure && call.begin <= by && call.is_done());
        let until = beats.filter_map(|call| match call.verb {
            Verb::Beat(ttl) | Verb::Join(ttl) => Some(call.begin + ttl),
            _ => None,
        });
        until.max().unwrap_or(0)
    }

    /// A member of the library does not trust a place that another has, but for two beats after the tail of a store was lost.
    pub(super) fn library_trust(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut trusts: BTreeMap<(&str, u64), &Call> = BTreeMap::new();
        for call in &self.record.calls {
            if let Verb::TrustLease(lease, token) = &call.verb {
                trusts.insert((lease, *token), call);
            }
        }
        for (lease, grants) in self.grants() {
            for (a, first) in &grants {
                let Some(last) = trusts.get(&(lease, first.token)).filter(|last| last.tenure == a.tenure) else {
                    continue;
                };
                let others = grants.iter().filter(|(b, second)| {
                    let is_other = b.tenure != a.tenure && second.place == first.place;
                    is_other && second.token > first.token && !second.is_kept
                });
                for (b, _) in others {
                    let tails = self.record.losses().filter(|loss| loss.is_tail);
                    let tail = tails.filter(|loss| loss.to >= a.begin && loss.from <= b.end).last();
                    let until = tail.map_or(b.end, |loss| b.end.max(loss.to) + micros(MAX_TTL));
                    if last.begin > until {
                        found.push(Violation {
                            check: "one holder",
                            text: format!("{lease}: {} trusts it, and another has it", a.tenure),
                            calls: vec![(*a).clone(), (*b).clone(), (*last).clone()],
                        });
                    }
                }
            }
        }
        found
    }
}
