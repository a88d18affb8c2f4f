//! The checks of a history. Each violation names its check and the calls that show it.

mod linear;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::client::REGISTRY;
use crate::events::Event;
use crate::fault::Window;
use crate::history::{Call, Micros, Outcome, Verb, member_of, micros};
use crate::spec::Ends;
use crate::world::{Kind, MAX_TTL};

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

/// What a tenure's own calls say about it.
#[derive(Debug, Clone, Default)]
struct Life {
    ttl: Micros,
    /// It cannot lapse before.
    alive_until: Micros,
    /// When it first tried to leave.
    left: Option<Micros>,
    /// When another tenure of its member may have begun.
    superseded: Option<Micros>,
    /// The end of the last call that may have kept it alive.
    last_beat: Micros,
    begun: Micros,
}

impl Life {
    fn free(&self) -> Micros {
        self.alive_until
            .min(self.left.unwrap_or(Micros::MAX))
            .saturating_sub(SLACK)
    }

    fn dead(&self) -> Micros {
        self.free().min(self.superseded.unwrap_or(Micros::MAX))
    }
}

/// Judges a round.
#[must_use]
pub fn judge(record: &Record) -> Vec<Violation> {
    let judge = Judge {
        record,
        lives: lives(&record.calls),
    };
    let mut found = linear::check(&judge);
    found.extend(judge.dead_is_final());
    found.extend(judge.no_early_lapse());
    found.extend(judge.no_ghost());
    found.extend(judge.one_holder());
    found.extend(judge.evictions());
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

fn lives(calls: &[Call]) -> BTreeMap<String, Life> {
    let mut lives: BTreeMap<String, Life> = BTreeMap::new();
    for call in calls
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
                if call.is_done() {
                    life.alive_until = life.alive_until.max(call.begin + ttl);
                }
                if !matches!(call.outcome, Outcome::Ended(_)) {
                    life.last_beat = life.last_beat.max(call.end);
                }
            }
            Verb::Trust => life.alive_until = life.alive_until.max(call.begin),
            Verb::Leave if !matches!(call.outcome, Outcome::Refused(_)) => {
                life.left = Some(life.left.map_or(call.begin, |left| left.min(call.begin)));
            }
            _ => {}
        }
    }
    for join in calls.iter().filter(|call| matches!(call.verb, Verb::Join(_))) {
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
    lives
}

fn term(tenure: &str) -> u64 {
    tenure
        .rsplit_once('@')
        .and_then(|(_, term)| term.parse().ok())
        .unwrap_or(0)
}

impl Judge<'_> {
    /// Whether data was lost between two instants.
    fn is_lost_between(&self, from: Micros, to: Micros) -> bool {
        let mut losses = self.record.windows.iter().filter(|window| window.loses_data());
        losses.any(|window| window.begin <= to && from <= window.end)
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

    /// Once a tenure is known to have ended, nothing is done under it and no read shows it alive.
    fn dead_is_final(&self) -> Vec<Violation> {
        let mut known: HashMap<&str, &Call> = HashMap::new();
        for call in &self.record.calls {
            let ended = match (&call.verb, &call.outcome) {
                (_, Outcome::Ended(_)) | (Verb::Leave, Outcome::Done) => Some(call.tenure.as_str()),
                (_, Outcome::Reads(Some(holder))) if !holder.is_alive => Some(holder.tenure.as_str()),
                _ => None,
            };
            let before = ended.map(|ended| known.entry(ended).or_insert(call));
            if let Some(before) = before.filter(|before| call.end < before.end) {
                *before = call;
            }
        }
        let mut newest: HashMap<&str, Vec<&Call>> = HashMap::new();
        for join in self
            .record
            .calls
            .iter()
            .filter(|call| matches!(call.verb, Verb::Join(_)) && call.is_done())
        {
            newest.entry(member_of(&join.tenure)).or_default().push(join);
        }
        let mut found = Vec::new();
        for call in &self.record.calls {
            let tenure = match &call.outcome {
                Outcome::Reads(Some(holder)) if holder.is_alive => holder.tenure.as_str(),
                Outcome::Done | Outcome::Token(_)
                    if !matches!(call.verb, Verb::Leave | Verb::Trust | Verb::Join(_)) =>
                {
                    call.tenure.as_str()
                }
                _ => continue,
            };
            let successor = newest.get(member_of(tenure)).into_iter().flatten();
            let successor = successor
                .copied()
                .find(|join| join.end < call.begin && term(&join.tenure) > term(tenure));
            let end = successor.or_else(|| known.get(tenure).copied().filter(|end| end.end < call.begin));
            if let Some(end) = end.filter(|end| !self.is_lost_between(end.begin, call.end)) {
                found.push(Violation {
                    check: "dead is final",
                    text: format!("{tenure} had ended, and is alive again"),
                    calls: vec![end.clone(), call.clone()],
                });
            }
        }
        found
    }

    /// No member that beat in time lapses, and after an outage of everything each has a whole ttl.
    fn no_early_lapse(&self) -> Vec<Violation> {
        let ttls = self.lives.values().map(|life| life.ttl).filter(|ttl| *ttl > 0);
        let gap = 2_000_000.min(ttls.min().unwrap_or(0) * 5 / 12) + 100_000;
        let mut found = Vec::new();
        for event in self.record.events.iter().filter(|event| event.kind == "lapsed") {
            let Some(life) = self.lives.get(&event.tenure) else {
                continue;
            };
            let last = self.record.calls.iter().rfind(|call| {
                call.tenure == event.tenure
                    && matches!(call.verb, Verb::Beat(_) | Verb::Join(_) | Verb::Trust)
                    && call.is_done()
            });
            let mut early = (event.at + SLACK < life.alive_until).then(|| "it beat in time".to_owned());
            for window in &self.record.windows {
                let alive = self.record.calls.iter().any(|call| {
                    let is_beat = matches!(call.verb, Verb::Beat(_) | Verb::Join(_));
                    let reaches = call.end < window.begin && call.begin + life.ttl > window.begin + SLACK;
                    is_beat && reaches && call.tenure == event.tenure && call.is_done()
                });
                let is_outage = window.stops_all(self.record.kind) && window.resumed > window.begin + gap;
                if is_outage && alive && event.at > window.begin && event.at + SLACK < window.resumed + life.ttl {
                    let (begin, end) = (window.begin / 1_000, window.resumed / 1_000);
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

    /// A tenure whose beats stopped is not seen alive for longer than allowed.
    fn no_ghost(&self) -> Vec<Violation> {
        let mut resumed: Vec<Micros> = Vec::new();
        resumed.extend(
            self.record
                .events
                .iter()
                .filter(|event| event.kind == "group_unsettled")
                .map(|event| event.at),
        );
        let windows = &self.record.windows;
        let mut found = Vec::new();
        for call in &self.record.calls {
            let tenure = match &call.outcome {
                Outcome::Reads(Some(holder)) if holder.is_alive => &holder.tenure,
                Outcome::Done | Outcome::Token(_) if !matches!(call.verb, Verb::Trust) => &call.tenure,
                _ => continue,
            };
            let Some(life) = self.lives.get(tenure).filter(|life| life.ttl > 0) else {
                continue;
            };
            // The last of its beats before this call, or what else restarts its ttl.
            let beats = self.record.calls.iter().filter(|beat| {
                beat.begin <= call.begin && beat.tenure == *tenure && matches!(beat.verb, Verb::Beat(_) | Verb::Join(_))
            });
            let beats = beats.filter(|beat| !std::ptr::eq(*beat, call) && !matches!(beat.outcome, Outcome::Ended(_)));
            let beat = beats.map(|beat| beat.end).max().unwrap_or(0);
            let outage = windows.iter().filter(|window| window.begin <= call.end);
            let outage = outage.map(|window| window.end + if window.loses_data() { micros(MAX_TTL) } else { 0 });
            let gap = resumed.iter().copied().filter(|at| *at <= call.end).max().unwrap_or(0);
            let last = beat.max(outage.max().unwrap_or(0)).max(gap);
            if beat > 0 && call.begin > last + life.ttl + LATE {
                found.push(Violation {
                    check: "no ghost",
                    text: format!(
                        "{tenure} is alive {} ms after it was due to end",
                        (call.begin - last - life.ttl) / 1_000
                    ),
                    calls: vec![call.clone()],
                });
            }
        }
        found
    }

    /// A lease passes to another only when its holder no longer trusts it, and its tokens rise in real time.
    fn one_holder(&self) -> Vec<Violation> {
        let mut leases: BTreeMap<&str, Vec<(&Call, u64)>> = BTreeMap::new();
        for call in &self.record.calls {
            if let (Verb::Acquire(lease), Outcome::Token(token)) = (&call.verb, &call.outcome) {
                leases.entry(lease).or_default().push((call, *token));
            }
        }
        let mut found = Vec::new();
        for (lease, grants) in leases {
            let mut report = |check, text, calls: [&Call; 2]| {
                found.push(Violation {
                    check,
                    text: format!("{lease}: {text}"),
                    calls: calls.map(Clone::clone).to_vec(),
                });
            };
            for (n, (a, first)) in grants.iter().enumerate() {
                for (b, second) in &grants[n + 1..] {
                    if a.end < b.begin && second < first || first == second && a.tenure != b.tenure {
                        report("tokens rise", format!("{second} was granted after {first}"), [a, b]);
                    }
                    if a.tenure != b.tenure && second > first && b.end < self.trusted_until(a, lease, *first) {
                        report("one holder", format!("{} still trusted it", a.tenure), [a, b]);
                    }
                }
            }
        }
        found
    }

    fn trusted_until(&self, grant: &Call, lease: &str, token: u64) -> Micros {
        let releases = self.record.calls.iter().filter(|call| match &call.verb {
            Verb::Release(name, of) => name == lease && *of == token && call.tenure == grant.tenure,
            Verb::ReleaseAny(name) => {
                name == lease && call.tenure == grant.tenure && call.begin + 200_000 > grant.begin
            }
            _ => false,
        });
        let released = releases
            .filter(|call| !matches!(call.outcome, Outcome::Refused(_)))
            .map(|call| call.begin)
            .min();
        let free = self
            .lives
            .get(&grant.tenure)
            .map_or(0, Life::free)
            .min(released.unwrap_or(Micros::MAX));
        let losses = self
            .record
            .windows
            .iter()
            .filter(|window| window.loses_data() && window.end >= grant.begin);
        losses
            .map(|window| window.begin + micros(MAX_TTL))
            .fold(free, Micros::min)
    }

    /// What an ended tenure owned is removed once and counted once.
    fn evictions(&self) -> Vec<Violation> {
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
                report(
                    format!("{event:?} counts {} keys and names {}", event.count, event.keys.len()),
                    &[],
                );
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
            // The last claim, if it is certain which one that is.
            let Some(last) = calls
                .iter()
                .rfind(|call| call.is_done() && matches!(call.verb, Verb::Claim(..)))
            else {
                continue;
            };
            let others = calls.iter().filter(|call| !std::ptr::eq(**call, *last));
            let is_certain = others
                .clone()
                .all(|call| call.end + SLACK < last.begin || matches!(call.outcome, Outcome::Taken(_)));
            let named = (last.tenure.as_str(), format!("{REGISTRY}/{key}"));
            if is_certain && !self.is_lost_between(last.begin, Micros::MAX) && !seen.contains(&named) {
                report(
                    format!("{key} of {} was never evicted, although its owner ended", last.tenure),
                    &[last],
                );
            }
        }
        found
    }
}

/// The ends of tenures, shared by all steps.
fn shared(ends: Vec<Ends>) -> Arc<Vec<Ends>> {
    Arc::new(ends)
}
