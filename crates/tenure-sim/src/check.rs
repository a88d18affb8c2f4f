//! The checkers: a second, independent account of what is true, kept beside the store and compared after every step.
//!
//! It is made from the requests and the events alone, with its own arithmetic for the end of a tenure. What the store's
//! model and this account do not agree on is a violation; so is what no documented exception allows.

mod claim;
mod lease;
mod member;
mod outage;
mod shadow;
mod truth;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use tenure::{ErrorKind, EventId, EventKind, Key, MemberId, RegistryName, StoreTime, TenureId};
use tenure_core::call::Op;
use tenure_core::id::LeaseName;
use tenure_core::lease::Token;

use crate::step::Step;
use crate::time::At;

pub use outage::Outages;
pub use shadow::{Current, Ended, Shadow};
pub use truth::compare;

/// A rule that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule, as an invariant in a few words.
    pub rule: &'static str,
    /// What was seen.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.seen)
    }
}

/// Later than any caller waits.
const LATE: Duration = Duration::from_millis(1_500);

/// What a check came to.
pub type Checked = Result<(), Violation>;

/// A violation, when a condition does not hold.
pub fn must(holds: bool, rule: &'static str, seen: impl FnOnce() -> String) -> Checked {
    if holds {
        Ok(())
    } else {
        Err(Violation { rule, seen: seen() })
    }
}

/// A tenure that lapsed in a step, with what was known of it.
#[derive(Debug, Clone)]
pub struct Lapse {
    /// Which, and how it stood.
    pub current: Current,
    /// When, by the store.
    pub now: StoreTime,
    /// It ended earlier than its holder could know, in a way that is documented (see [`Checker::excuse`]).
    pub excused: bool,
}

/// What is true in the world, as far as the store's steps tell.
#[derive(Debug, Default)]
pub struct Checker {
    /// The account of the data that the store has now.
    pub shadow: Shadow,
    /// The outages of the store's machine.
    pub outages: Outages,
    /// The highest number of a sequence that was ever given out, in any life of the store.
    highest_term: u64,
    highest_token: u64,
    /// Every tenure that ever began.
    begun: BTreeSet<TenureId>,
    /// The newest confirmed beat that a loss took, by tenure.
    lost_beats: BTreeMap<TenureId, At>,
    /// Grants that a loss took.
    lost_grants: BTreeSet<(LeaseName, Token)>,
    /// What the answered beats of a tenure have told of its holdings since the last loss, the two highest.
    told: BTreeMap<TenureId, [u64; 2]>,
    /// Claims that are gone without their members being told, until they claim them again: others took them, or a loss
    /// of data did.
    gone: BTreeSet<((RegistryName, Key), MemberId)>,
    /// A grace began since the last loss: whoever lost something by it has been given time.
    noticed: bool,
    /// Data of this life of the store was lost at its end, so that a tail loss may be noticed.
    tail_was_lost: bool,
    /// The highest number that had been given out when a tail was lost.
    lost_number: u64,
    /// All data was lost, so that terms may fall while the clock is behind the ones before.
    wiped: bool,
    /// A broken rule under test makes the store end tenures nobody ended; another check is to notice.
    pub unasked_ends: bool,
    max_ttl: Duration,
}

impl Checker {
    /// An account of a store that has never served.
    #[must_use]
    pub fn new(max_ttl: Duration) -> Self {
        Self {
            max_ttl,
            ..Self::default()
        }
    }

    /// Takes a step into account. Answers the tenures that lapsed in it.
    ///
    /// # Errors
    /// The first violation.
    pub fn step(&mut self, step: &Step) -> Result<Vec<Lapse>, Violation> {
        if !step.op.is_read() {
            let too_late = step
                .reply
                .as_ref()
                .is_err_and(|error| error.kind() == ErrorKind::TooLate);
            self.not_after(step, too_late)?;
            if too_late {
                must(
                    step.events.is_empty(),
                    "a call that comes too late changes nothing",
                    || format!("{:?}", step.events),
                )?;
                return Ok(Vec::new());
            }
        } else {
            must(step.events.is_empty(), "reads write nothing", || {
                format!("{:?}", step.events)
            })?;
            self.read(step)?;
            return Ok(Vec::new());
        }
        self.grace(step)?;
        let mut lapses = Vec::new();
        for event in &step.events {
            let expected = EventId((self.shadow.last_event.0 + 1).max(event.at.micros()));
            let first = self.shadow.last_event == EventId(0);
            must(
                first || event.id == expected,
                "an event's number is above the one before and not below the clock",
                || format!("{} at {} after {}", event.id, event.at, self.shadow.last_event),
            )?;
            self.shadow.last_event = event.id;
            match event.kind {
                EventKind::Joined => self.joined(step, event)?,
                EventKind::Lapsed => lapses.push(self.lapsed(step, event)?),
                EventKind::Left | EventKind::Superseded | EventKind::Expelled => self.ended(step, event)?,
                EventKind::Evicted => self.evicted(step, event)?,
                EventKind::LeaseGranted | EventKind::LeaseTakenOver => self.lease_granted(step, event)?,
                EventKind::LeaseReleased => self.lease_released(step, event)?,
                EventKind::SweepBraked => self.shadow.braked = true,
                EventKind::SweepUnbraked => self.shadow.braked = false,
                EventKind::GroupUnsettled => self.unsettled(step)?,
                EventKind::GroupSettled => self.shadow.unsettled_until = None,
                _ => {}
            }
        }
        self.shadow.resume(step.resumed_at, step.jumped);
        self.replied(step)?;
        self.shadow.last_step = Some(step.now);
        self.shadow.latest = self.shadow.latest.max(step.now);
        Ok(lapses)
    }

    /// A call that its caller has given up on does not take effect: not after its limit, and one without a limit never
    /// late.
    fn not_after(&self, step: &Step, too_late: bool) -> Checked {
        let is_bounded = !matches!(step.op, Op::Beat(_) | Op::Tick(_));
        let (limit, late) = (step.call.not_after, step.at.since(step.sent_at));
        let in_time = limit.map_or(late <= LATE, |limit| step.now <= limit);
        must(
            too_late || in_time || !is_bounded,
            "what was given up does not take effect later",
            || {
                format!(
                    "sent {late:?} ago, not after {limit:?}, carried out at {}: {:?}",
                    step.now, step.op
                )
            },
        )
    }

    /// Everyone gets one full ttl after every silence, and nobody notices one that was not.
    fn grace(&mut self, step: &Step) -> Checked {
        let shortest = self.shadow.current.values().map(|current| current.ttl).min();
        let longest_gap = tenure_core::settling::MAX_GAP.min(shortest.map_or(Duration::MAX, |ttl| ttl * 5 / 12));
        must(
            step.gap <= longest_gap,
            "an unnoticed silence costs nobody a beat",
            || format!("the gap is {:?} with a ttl of {shortest:?}", step.gap),
        )?;
        let silent = self.shadow.silent(step.now, step.gap);
        if silent {
            self.shadow.resume(step.now, step.jumped);
            must(
                step.resumed_at == step.now,
                "everyone gets one full ttl after the store was silent",
                || {
                    let last = self.shadow.last_step;
                    format!("last step {last:?}, gap {:?}, resumed at {}", step.gap, step.resumed_at)
                },
            )?;
        }
        let unchanged = step.resumed_at == self.shadow.resumed_at;
        let noticed_loss = step.resumed_at == step.now && (self.tail_was_lost || self.wiped);
        must(unchanged || noticed_loss, "there is no grace without a reason", || {
            format!("resumed at {}, before {}", step.resumed_at, self.shadow.resumed_at)
        })
    }

    /// The reply agrees with the account.
    fn replied(&mut self, step: &Step) -> Checked {
        self.member_replies(step)?;
        self.claim_replies(step)?;
        self.lease_replies(step)
    }

    /// What was read is what is true now.
    fn read(&self, step: &Step) -> Checked {
        self.member_reads(step)?;
        self.claim_reads(step)?;
        self.lease_reads(step)
    }

    /// The newest steps were lost: this is how things stood before them. `wiped` when it is everything.
    pub fn lost(&mut self, older: Shadow, wiped: bool) {
        let newer = std::mem::replace(&mut self.shadow, older);
        // Also of those who were ended in what was lost: they are alive again, with an older beat.
        let ended = newer.ended.values().map(|ended| &ended.current);
        for current in newer.current.values().chain(ended) {
            let tenure = &current.tenure;
            let kept = self.shadow.current(tenure);
            let kept = kept.or_else(|| self.shadow.ended.get(tenure).map(|ended| &ended.current));
            if kept.is_none_or(|kept| kept.renewed_in_world < current.renewed_in_world) {
                self.lost_beats.insert(tenure.clone(), current.renewed_in_world);
            }
        }
        for (key, tenure) in &newer.claims {
            if self.shadow.claims.get(key) != Some(tenure) {
                self.gone.insert((key.clone(), tenure.member().clone()));
            }
        }
        for (lease, held) in &newer.leases {
            if self.shadow.leases.get(lease) != Some(held) && !wiped {
                self.lost_grants.insert((lease.clone(), held.1));
            }
        }
        self.told.clear();
        self.noticed = false;
        if !wiped {
            self.lost_number = self.highest_number();
        }
        self.tail_was_lost = !wiped;
        self.wiped |= wiped;
    }

    /// Whether a member may believe to own a key that it does not: a loss of data took it, or somebody else did.
    #[must_use]
    pub fn may_be_gone(&self, entry: &(RegistryName, Key), member: &MemberId) -> bool {
        self.gone.contains(&(entry.clone(), member.clone()))
    }

    /// Whether a tenure that is over ended earlier than its holder could know, in one of the two ways that
    /// `GUARANTEES.md` names: the store's clock jumped forward by less than a gap, and but for that it would not be over
    /// yet; or a beat that the store had confirmed was lost with a tail, and would have kept it until now.
    #[must_use]
    pub fn excuse(&self, tenure: &TenureId, step: &Step) -> bool {
        let now = step.now;
        let Some(Ended { current, end, .. }) = self.shadow.ended.get(tenure) else {
            return false;
        };
        if now < *end {
            // Whoever was superseded or expelled has time until its last deadline; nothing excuses not waiting for it.
            return false;
        }
        let (began, before) = if self.shadow.resumed_at > current.renewed_at {
            (self.shadow.resumed_at, self.shadow.jumped_at_resume)
        } else {
            (current.renewed_at, current.jumped)
        };
        let jumped = Duration::from_micros(step.jumped.saturating_sub(before));
        let lost_beat = self.lost_beats.get(tenure);
        now.since(began).saturating_sub(jumped) < current.ttl
            || lost_beat.is_some_and(|at| step.at.since(*at) < current.ttl)
    }

    /// A beat has been answered, and its sender has had time to take that in.
    pub fn answered(&mut self, tenure: &TenureId, told: u64) {
        let [highest, second] = self.told.entry(tenure.clone()).or_default();
        if told >= *highest {
            (*highest, *second) = (told, *highest);
        } else {
            *second = told.max(*second);
        }
    }

    /// Whether a grant was lost with a tail and its holder cannot know: none of its beats that tell of the grant has been
    /// answered since, or one alone, while an act of its own was under way that might have explained the answer.
    #[must_use]
    pub fn is_lost_unknown(&self, tenure: &TenureId, lease: &LeaseName, token: Token) -> bool {
        let told = self.told.get(tenure).map_or(0, |[_, second]| *second);
        self.lost_grants.contains(&(lease.clone(), token)) && told < token.get()
    }

    /// The same, while nobody has noticed the loss: then the lease may be granted once more.
    #[must_use]
    pub fn may_be_granted_again(&self, tenure: &TenureId, lease: &LeaseName, token: Token) -> bool {
        !self.noticed && self.is_lost_unknown(tenure, lease, token)
    }

    /// A grace period lasts as long as the longest ttl at least.
    fn unsettled(&mut self, step: &Step) -> Checked {
        self.shadow.unsettled_until = step.unsettled_until;
        self.noticed = true;
        let longest = self.shadow.current.values().map(|current| current.ttl).max();
        let until = step.now + longest.unwrap_or_default();
        must(
            step.unsettled_until >= Some(until),
            "a grace lasts one full ttl",
            || format!("until {:?}, not {until}", step.unsettled_until),
        )
    }

    /// What the store's clock must not fall below: numbers that were lost, and that no newer one has passed since. Losing
    /// them and the time that they were made from are two faults, and more than is promised.
    #[must_use]
    pub fn lowest_clock(&self) -> u64 {
        let highest = self.highest_number();
        if highest == self.lost_number {
            highest
        } else {
            highest.saturating_sub(tenure_core::time::micros(self.max_ttl) * 9 / 10)
        }
    }

    /// The highest number that a sequence ever gave out.
    #[must_use]
    pub fn highest_number(&self) -> u64 {
        self.highest_term.max(self.highest_token)
    }
}
