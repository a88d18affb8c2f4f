//! A full disk stops no beat, and changes succeed as soon as there is room.

use super::{Judge, Violation};
use crate::fault::Fault;
use crate::history::{Call, Micros, Outcome, Verb};

/// How soon after there is room a change succeeds.
const SOON: Micros = 300_000;

impl Judge<'_> {
    /// While the disk is full beats are answered, and when there is room again changes are.
    pub(super) fn full_disk(&self) -> Vec<Violation> {
        let refused = Outcome::Refused("store_unavailable".to_owned());
        let mut found = Vec::new();
        let mut report = |text: &str, call: &Call| {
            found.push(Violation {
                check: "full disk",
                text: text.to_owned(),
                calls: vec![call.clone()],
            });
        };
        let windows = &self.record.windows;
        for (n, window) in windows.iter().enumerate() {
            if window.fault != Fault::FullDisk(false) {
                continue;
            }
            let next = windows.get(n + 1).map_or(Micros::MAX, |next| next.begin);
            for call in self.record.calls.iter().filter(|call| call.outcome == refused) {
                let is_beat = matches!(call.verb, Verb::Beat(_));
                let is_within = call.begin > window.begin && call.end < window.resumed;
                if is_within && is_beat && self.is_of_the_living(call) {
                    report("a beat was refused while the disk was full", call);
                }
                if call.begin > window.end + SOON && call.end < next {
                    report("a call was refused although there is room again", call);
                }
            }
        }
        found
    }

    /// Whether the tenure of a beat lives while it beats.
    fn is_of_the_living(&self, beat: &Call) -> bool {
        let mut own = self.record.calls.iter().filter(|call| call.tenure == beat.tenure);
        own.any(|call| {
            let reaches = |ttl: Micros| call.is_done() && call.end < beat.begin && call.begin + ttl > beat.end;
            matches!(call.verb, Verb::Beat(ttl) | Verb::Join(ttl) if reaches(ttl))
        })
    }
}
