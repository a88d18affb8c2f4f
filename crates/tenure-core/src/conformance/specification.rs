//! Replays traces of the specification in `spec/`: after every step, the store's answer and what its reads show must be
//! what the specification says.
//!
//! A line of a trace is `step NAME SLOT MEMBER -> ANSWER | evicted CLAIMS LEASES wait UNITS claim SLOT ALIVE lease SLOT
//! ALIVE tenures STATE UNITS STATE UNITS`. A slot is a tenure of the specification; 2 means none.

use std::collections::BTreeSet;
use std::time::Duration;

use super::cases::Cases;
use super::world::{Make, World, key, lease, ms};
use crate::error::{ErrorKind, Result};
use crate::id::TenureId;
use crate::lease::{AcquireOutcome, ReleaseOutcome, Token};
use crate::membership::{BeatReply, EndBy};
use crate::registry::{ClaimMode, ClaimOutcome};
use crate::store::{Call, StoreOptions};
use crate::sweep::ReleaseRequest;

/// Returns this many traces, drawn from a seed; `None` where the checker of the specification is not installed.
pub type Traces = fn(count: u64, seed: u64) -> Option<Vec<String>>;

/// The time unit of the specification: its gap of more than one unit is the stores' gap of 2 s for its ttl. Time passes
/// without a beat of the pulse, so it is an outage unless a step `pulse` is between.
const UNIT: Duration = ms(1600);
const TTL: u32 = 3;
const MAX_TTL: u32 = 4;
const KEY: &str = "dev-0";
const LEASE: &str = "target-0";
/// The number that means no tenure.
const NOBODY: usize = 2;

/// What the traces must contain, so that the replay compares something. Rarer answers are compared as well.
const EXPECTED: [&str; 15] = [
    "pulse done",
    "join joined",
    "beat renewed",
    "beat lapsed",
    "beat superseded",
    "beat expelled",
    "acquire granted",
    "acquire kept",
    "acquire held",
    "acquire unsettled",
    "claim claimed",
    "give_back released",
    "leave left",
    "expel expelled",
    "release evicted",
];

/// Replays 24 traces ([`Cases`]).
///
/// # Panics
/// At the first difference, with the steps before it; if the traces do not contain the usual answers; on a store without a
/// pulse, which uses the tick of its group: the specification does not describe that.
pub async fn replay_all(make: Make<'_>, traces: Traces) {
    assert!(World::new(make).await.tick().await.has_pulse, "a store with a pulse");
    let cases = Cases::times(24);
    let Some(traces) = traces(cases.count, cases.seed) else {
        return;
    };
    let mut seen = BTreeSet::new();
    for (nth, trace) in traces.iter().enumerate() {
        match replay(make, trace).await {
            Ok(of_trace) => seen.extend(of_trace),
            Err(difference) => panic!("trace {nth} of {cases}: {difference}"),
        }
    }
    for answer in EXPECTED {
        assert!(
            seen.contains(answer),
            "no trace of {cases} contains {answer:?}: {seen:?}"
        );
    }
}

/// Replays one trace, up to a loss of data if the store cannot lose its data. Returns the steps with their answers.
///
/// # Errors
/// The first difference, with the steps before it.
///
/// # Panics
/// If the trace has another form.
pub async fn replay(make: Make<'_>, trace: &str) -> std::result::Result<BTreeSet<String>, String> {
    let options = StoreOptions {
        max_ttl: UNIT * MAX_TTL,
        ..StoreOptions::default()
    };
    let mut replay = Replay {
        world: World::with(make, options).await,
        slots: [const { None }; 2],
        tokens: [None; 2],
        top: None,
        now: 0,
        lived: [0; 2],
        passes: 0,
    };
    let mut seen = BTreeSet::new();
    for (nth, line) in trace.lines().enumerate() {
        let step = Step::parse(line).unwrap_or_else(|| panic!("not a line of a trace: {line:?}"));
        let Some((answer, evicted)) = replay.take(&step).await else {
            break;
        };
        let shown = replay.shown(answer, evicted).await;
        if shown != step.shown {
            let first = nth.saturating_sub(12);
            let before: Vec<_> = trace.lines().skip(first).take(nth - first).collect();
            return Err(format!(
                "step {nth} differs\n{}\n{line}\nspecification: {}\nstore:         {shown}",
                before.join("\n"),
                step.shown
            ));
        }
        seen.insert(format!("{} {}", step.name, step.answer));
        if step.name == "release" && !step.shown.starts_with("done | evicted 0 0 ") {
            seen.insert("release evicted".to_owned());
        }
    }
    Ok(seen)
}

/// One line of a trace.
struct Step<'a> {
    name: &'a str,
    slot: usize,
    member: &'a str,
    answer: &'a str,
    /// The time until each tenure lapses, or until its process has certainly stopped.
    left: [&'a str; 2],
    /// The answer and what reads show. Reads do not show why a tenure has ended; later answers do.
    shown: String,
}

impl<'a> Step<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (step, shown) = line.strip_prefix("step ")?.split_once(" -> ")?;
        let (rest, tenures) = shown.split_once(" tenures ")?;
        let mut words = step.split(' ');
        let name = words.next()?;
        let slot = words.next().map_or(Some(0), |slot| slot.parse().ok())?;
        let tenures: Vec<_> = tenures.split(' ').collect();
        let &[first, first_left, second, second_left] = tenures.as_slice() else {
            return None;
        };
        let life = |state, left| if state == "living" { left } else { "-" };
        Some(Self {
            name,
            slot,
            member: words.next().unwrap_or("m0"),
            answer: shown.split(' ').next()?,
            left: [first_left, second_left],
            shown: format!(
                "{rest} tenures {} {}",
                life(first, first_left),
                life(second, second_left)
            ),
        })
    }
}

/// A store in the state of a trace.
struct Replay {
    world: World,
    slots: [Option<TenureId>; 2],
    /// The token of each tenure's last grant.
    tokens: [Option<Token>; 2],
    /// The highest token so far, also across losses of data.
    top: Option<Token>,
    /// The time in units, and when each tenure was last seen alive.
    now: u32,
    lived: [u32; 2],
    passes: u32,
}

impl Replay {
    /// Performs a step. Returns the answer and the number of evicted claims and leases; `None` for a loss of data that
    /// the harness cannot cause.
    async fn take<'a>(&mut self, step: &Step<'a>) -> Option<(&'a str, (u64, u64))> {
        let mut evicted = (0, 0);
        match step.name {
            "pass" => self.pass().await,
            "pulse" => assert!(self.world.beat_pulse().await, "a store with a pulse"),
            "lose" => {
                self.pass().await;
                // Beats the new pulse.
                if !self.world.lose_data().await {
                    return None;
                }
                self.world.tick().await;
            }
            "tick" => {
                self.world.tick().await;
            }
            "end_lapsed" => {
                self.world.end_lapsed().await;
            }
            "release" => evicted = self.release().await,
            _ => return Some((self.act(step).await, evicted)),
        }
        Some(("done", evicted))
    }

    async fn pass(&mut self) {
        self.world.outage(UNIT).await;
        self.now += 1;
    }

    /// One step of the janitor. Returns the number of evicted claims and leases.
    async fn release(&mut self) -> (u64, u64) {
        self.passes += 1;
        let request = ReleaseRequest {
            pass: format!("p{}", self.passes),
            limit: 200,
            force: false,
        };
        let sweeper = self.world.sweeper();
        let steps = sweeper.steps().expect("the sweeping store has steps");
        let batch = steps.release(&self.world.group, &request, Call::default()).await;
        let evicted = batch.expect("a release").evicted;
        let claims = evicted.iter().flat_map(|eviction| eviction.claims.values()).sum();
        (claims, evicted.iter().map(|eviction| eviction.leases).sum())
    }

    /// A step of a member, or of an operator on its tenure.
    async fn act<'a>(&mut self, step: &Step<'a>) -> &'a str {
        if step.name == "join" {
            self.slots[step.slot] = Some(self.world.join(step.member, UNIT * TTL).await);
            return "joined";
        }
        let tenure = self.slots[step.slot].clone().expect("a process joins first");
        let answer = match step.name {
            "beat" => match self.world.beat(&tenure).await {
                BeatReply::Renewed { .. } => "renewed",
                BeatReply::Ended(reason) => reason.as_str(),
                BeatReply::Unknown => "unknown",
                BeatReply::Refused => "refused",
            },
            "acquire" => self.acquire(step, &tenure).await,
            "claim" => self.claim(&tenure).await,
            "give_back" => self.give_back(step.slot, &tenure).await,
            "leave" => self.end(&tenure, EndBy::Leave).await,
            "expel" => self.end(&tenure, EndBy::Expel).await,
            other => panic!("unknown step {other:?}"),
        };
        // A store forgets why a tenure has ended after two max ttls.
        let is_forgotten = self.now >= self.lived[step.slot] + 2 * MAX_TTL;
        match answer == "unknown" && is_forgotten {
            true => step.answer,
            false => answer,
        }
    }

    async fn acquire(&mut self, step: &Step<'_>, tenure: &TenureId) -> &'static str {
        let slot = step.slot;
        let (store, asked) = (&self.world.store, [lease(LEASE)]);
        let acquired = store.acquire(&self.world.group, tenure, &asked, Call::default()).await;
        answered(acquired.map(|mut acquired| match acquired.outcomes.remove(0) {
            AcquireOutcome::Granted { token, .. } if Some(token) > self.top => {
                (self.top, self.tokens[slot]) = (Some(token), Some(token));
                "granted"
            }
            AcquireOutcome::Kept { token, .. } if Some(token) == self.tokens[slot] => "kept",
            AcquireOutcome::Held { by, free_in } => match self.slot_of(&by) {
                Some(holder) if units(free_in) == step.left[holder] => "held",
                _ => "held for another time",
            },
            AcquireOutcome::Unsettled { .. } => "unsettled",
            other => panic!("tokens rise, and are kept; the last one is {:?}: {other:?}", self.top),
        }))
    }

    /// Takes the key if its owner is not alive.
    async fn claim(&self, tenure: &TenureId) -> &'static str {
        let claimed = self.world.try_claim(tenure, &[key(KEY)], ClaimMode::IfAbsent).await;
        answered(claimed.map(|mut outcomes| match outcomes.remove(0) {
            ClaimOutcome::New => "claimed",
            ClaimOutcome::Kept => "kept",
            ClaimOutcome::Held { .. } => "held",
            ClaimOutcome::Moved { .. } => "moved",
        }))
    }

    async fn give_back(&self, slot: usize, tenure: &TenureId) -> &'static str {
        let given = [(lease(LEASE), self.tokens[slot].expect("it was granted"))];
        let (store, group) = (&self.world.store, &self.world.group);
        let done = store.release_leases(group, tenure, &given, None, Call::default()).await;
        answered(done.map(|mut done| match done.outcomes.remove(0) {
            ReleaseOutcome::Released => "released",
            other => panic!("a release by the holder: {other:?}"),
        }))
    }

    async fn end(&self, tenure: &TenureId, by: EndBy) -> &'static str {
        let (store, group) = (&self.world.store, &self.world.group);
        store
            .end(group, tenure, by, Call::default())
            .await
            .expect("an end")
            .as_str()
    }

    /// The answer and what reads show after it, in the form of a trace.
    async fn shown(&mut self, answer: &str, (claims, leases): (u64, u64)) -> String {
        let status = self.world.store.status(&self.world.group).await.expect("a status");
        let until = status.unsettled.map_or(status.as_of, |unsettled| unsettled.until);
        let wait = units(until.since(status.as_of));
        let claim = self.row(self.world.owner(KEY).await);
        let holder = self.world.holder(LEASE).await;
        let lease = self.row(holder.map(|(tenure, _, alive)| (tenure, alive)));
        let mut lives = Vec::new();
        for slot in 0..2 {
            let left = self.left(slot).await;
            if left.is_some() {
                self.lived[slot] = self.now;
            }
            lives.push(left.unwrap_or_else(|| "-".to_owned()));
        }
        let lives = lives.join(" ");
        format!("{answer} | evicted {claims} {leases} wait {wait} claim {claim} lease {lease} tenures {lives}")
    }

    /// The tenure that a row names, and whether it is alive.
    fn row(&self, found: Option<(TenureId, bool)>) -> String {
        let Some((tenure, alive)) = found else {
            return format!("{NOBODY} 0");
        };
        match self.slot_of(&tenure) {
            Some(slot) => format!("{slot} {}", u8::from(alive)),
            None => format!("{tenure} {}", u8::from(alive)),
        }
    }

    fn slot_of(&self, tenure: &TenureId) -> Option<usize> {
        self.slots.iter().position(|slot| slot.as_ref() == Some(tenure))
    }

    /// How long a tenure lives if it sends no beat; `None` if its member has another or none.
    async fn left(&self, slot: usize) -> Option<String> {
        let tenure = self.slots[slot].as_ref()?;
        let member = self.world.store.member(&self.world.group, tenure.member()).await;
        let member = member.expect("a look-up").filter(|member| member.tenure == *tenure)?;
        assert_eq!(member.alive, !member.expires_in.is_zero(), "{member:?}");
        Some(units(member.expires_in))
    }
}

/// A duration in units; in full where it is not a whole number of them.
fn units(time: Duration) -> String {
    let (whole, rest) = (time.as_micros() / UNIT.as_micros(), time.as_micros() % UNIT.as_micros());
    match rest {
        0 => whole.to_string(),
        _ => format!("{time:?}"),
    }
}

/// The answer, or why the tenure has ended.
fn answered(result: Result<&'static str>) -> &'static str {
    result.unwrap_or_else(|error| match error.kind() {
        ErrorKind::Ended(reason) => reason.as_str(),
        _ => panic!("{error}"),
    })
}
