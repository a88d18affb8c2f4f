//! What an ended tenure owned is removed once and counted once.

use std::collections::{BTreeMap, BTreeSet};

use super::{Judge, SLACK, Violation};
use crate::client::REGISTRY;
use crate::history::{Call, Micros, Outcome, Verb};

impl Judge<'_> {
    /// What an ended tenure owned is removed once and counted once.
    pub(super) fn evictions(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        let mut report = |text, calls: &[&Call]| {
            found.push(Violation {
                check: "evicted once",
                text,
                calls: calls.iter().copied().cloned().collect(),
            });
        };
        let (mut seen, mut claimed) = (BTreeSet::new(), BTreeSet::new());
        let mut keys: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
        for call in &self.record.calls {
            if let Verb::Claim(key, _) | Verb::Unclaim(key) = &call.verb {
                keys.entry(key).or_default().push(call);
                claimed.insert((call.tenure.as_str(), format!("{REGISTRY}/{key}")));
            }
        }
        for event in self.record.events.iter().filter(|event| event.kind == "evicted") {
            if event.count != event.keys.len() as u64 {
                let (count, named) = (event.count, event.keys.len());
                report(format!("{event:?} counts {count} keys and names {named}"), &[]);
            }
            for key in &event.keys {
                if !seen.insert((event.tenure.as_str(), key.clone())) {
                    report(format!("{key} of {} was evicted twice", event.tenure), &[]);
                }
                if !claimed.contains(&(event.tenure.as_str(), key.clone())) {
                    report(
                        format!("{key} was evicted from {}, which never claimed it", event.tenure),
                        &[],
                    );
                }
            }
        }
        for (key, calls) in keys {
            let Some(last) = last_claim(&calls) else { continue };
            let named = (last.tenure.as_str(), format!("{REGISTRY}/{key}"));
            if !self.may_be_lost(last, Micros::MAX) && !seen.contains(&named) {
                report(
                    format!("{key} of {} was never evicted, although its owner ended", last.tenure),
                    &[last],
                );
            }
        }
        found
    }
}

/// The last claim of a key, if it is certain which one that is.
fn last_claim<'a>(calls: &[&'a Call]) -> Option<&'a Call> {
    let last = calls
        .iter()
        .copied()
        .rfind(|call| call.is_done() && matches!(call.verb, Verb::Claim(..)))?;
    let mut others = calls.iter().filter(|call| !std::ptr::eq(**call, last));
    let is_before = |call: &Call| call.end + SLACK < last.begin || matches!(call.outcome, Outcome::Taken(_));
    others.all(|call| is_before(call)).then_some(last)
}
