//! The checkers: a second, independent record of the store's state, compared with it after every step.
//!
//! It is built from requests and events alone, with its own arithmetic for the end of a tenure. A disagreement with the
//! store is a violation, unless a documented exception allows it.

mod claim;
mod lease;
mod member;
mod outage;
mod provider;
mod session;
mod session_record;
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
pub use session_record::{Link, SessionRecord};
pub use shadow::{Current, Ended, Revoked, Shadow};
pub use truth::compare;

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule, as an invariant in a few words.
    pub rule: &'static str,
    /// The observation that breaks it.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.seen)
    }
}

/// A call carried out this long after it was sent is late: no caller waits longer.
const LATE: Duration = Duration::from_millis(1_500);

/// The result of a check.
pub type Checked = Result<(), Violation>;

/// Returns a violation if the condition is false.
pub fn must(holds: bool, rule: &'static str, seen: impl FnOnce() -> String) -> Checked {
    if holds {
        Ok(())
    } else {
        Err(Violation { rule, seen: seen() })
    }
}

/// A tenure that lapsed in a step.
#[derive(Debug, Clone)]
pub struct Lapse {
    /// The tenure before it lapsed.
    pub current: Current,
    /// The store's time of the step.
    pub now: StoreTime,
    /// It ended earlier than its holder could know, in a documented way (see [`Checker::excuse`]).
    pub excused: bool,
}

/// The record of the simulation's true state, derived from the store's steps.
#[derive(Debug, Default)]
pub struct Checker {
    /// The record of the store's current data.
    pub shadow: Shadow,
    /// The outages of the store's machine.
    pub outages: Outages,
    /// The highest number of a sequence that was ever assigned, before and after any loss.
    highest_term: u64,
    highest_token: u64,
    highest_epoch: u64,
    /// Every tenure that ever began.
    begun: BTreeSet<TenureId>,
    /// The newest confirmed beat that was lost, by tenure.
    lost_beats: BTreeMap<TenureId, At>,
    /// Grants that were lost.
    lost_grants: BTreeSet<(LeaseName, Token)>,
    /// The two highest revisions in answered beats of a tenure since the last loss.
    reported: BTreeMap<TenureId, [u64; 2]>,
    /// Claims that were removed without a notice to the member (another member took the key, or the data was lost),
    /// until the member claims them again.
    gone: BTreeSet<((RegistryName, Key), MemberId)>,
    /// Connections that were removed without a notice to the member (another member attached them, or the data was
    /// lost), until the member attaches them again.
    moved: BTreeSet<(Link, MemberId)>,
    /// Connections whose detach, or whose attach by another tenure, was lost, or that a late request attached, until they
    /// are attached again: attached under a tenure that does not know.
    returned: BTreeSet<Link>,
    /// A grace began since the last loss, so members have had time to recover.
    noticed: bool,
    /// Data of the current store was lost at its end, so a tail loss may be detected.
    tail_was_lost: bool,
    /// The highest number that had been assigned when a tail was lost.
    lost_number: u64,
    /// Data was lost, ever.
    lost_data: bool,
    /// All data was lost, so terms may fall while the clock is behind the earlier ones.
    wiped: bool,
    /// The broken rule under test makes the store end tenures without a request; another check must detect it.
    pub unasked_ends: bool,
    max_ttl: Duration,
}

impl Checker {
    /// The record of a store that has never served.
    #[must_use]
    pub fn new(max_ttl: Duration) -> Self {
        Self {
            max_ttl,
            ..Self::default()
        }
    }

    /// Applies a step to the record. Returns the tenures that lapsed in it.
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
                must(step.events.is_empty(), "a late call changes nothing", || {
                    format!("{:?}", step.events)
                })?;
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
                EventKind::Left | EventKind::Superseded | EventKind::Expelled | EventKind::NoProgress => {
                    self.ended(step, event)?;
                }
                EventKind::Evicted => self.evicted(step, event)?,
                EventKind::LeaseGranted | EventKind::LeaseTakenOver => self.lease_granted(step, event)?,
                EventKind::LeaseReleased => self.lease_released(step, event)?,
                EventKind::LeaseRevoked => self.lease_revoked(step, event),
                EventKind::SessionCreated
                | EventKind::SessionResumed
                | EventKind::SessionDisconnected
                | EventKind::SessionReaped
                | EventKind::SessionDeleted => self.session_event(step, event)?,
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

    /// An abandoned call does not take effect: with a not-after never past it, and without one never late.
    fn not_after(&self, step: &Step, too_late: bool) -> Checked {
        let is_bounded = !matches!(step.op, Op::Beat(_) | Op::Heartbeat(_) | Op::Tick(_));
        let (limit, late) = (step.call.not_after, step.at.since(step.sent_at));
        let in_time = limit.map_or(late <= LATE, |limit| step.now <= limit);
        must(
            too_late || in_time || !is_bounded,
            "an abandoned call does not take effect later",
            || {
                format!(
                    "sent {late:?} ago, not after {limit:?}, carried out at {}: {:?}",
                    step.now, step.op
                )
            },
        )
    }

    /// Every ttl restarts after a hole of the pulse longer than the gap, and only then.
    fn grace(&mut self, step: &Step) -> Checked {
        let shortest = self.shadow.current.values().map(|current| current.ttl).min();
        let longest_gap = tenure_core::settling::MAX_GAP.min(shortest.map_or(Duration::MAX, |ttl| ttl * 5 / 12));
        must(
            step.gap <= longest_gap,
            "an undetected silence costs no member a beat",
            || format!("the gap is {:?} with a ttl of {shortest:?}", step.gap),
        )?;
        let resumed = self.shadow.resumed(step.now, step.gap);
        self.shadow.resume(resumed, step.jumped);
        let noticed_loss = step.resumed_at == step.now && (self.tail_was_lost || self.wiped);
        must(
            step.resumed_at == resumed || noticed_loss,
            "every ttl restarts after a hole of the pulse, and only then",
            || {
                let pulse = self.shadow.pulse;
                let at = step.resumed_at;
                format!("resumed at {at}, expected {resumed}, gap {:?}, {pulse:?}", step.gap)
            },
        )
    }

    /// Records a beat of the pulse. `has_failed`: it names the group of this record.
    ///
    /// # Errors
    /// If it was carried out late.
    pub fn pulsed(&mut self, step: &Step, has_failed: bool) -> Checked {
        let late = step
            .reply
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::TooLate);
        self.not_after(step, late)?;
        if !late {
            self.shadow.pulsed(step.now, has_failed);
        }
        Ok(())
    }

    /// The reply agrees with the record.
    fn replied(&mut self, step: &Step) -> Checked {
        self.member_replies(step)?;
        self.claim_replies(step)?;
        self.provider_replies(step)?;
        self.session_replies(step)?;
        self.lease_replies(step)
    }

    /// A read returns the true state.
    fn read(&self, step: &Step) -> Checked {
        self.member_reads(step)?;
        self.claim_reads(step)?;
        self.session_reads(step)?;
        self.lease_reads(step)
    }

    /// Replaces the record by the one before the lost steps. `wiped`: all data was lost.
    pub fn lost(&mut self, older: Shadow, wiped: bool) {
        let newer = std::mem::replace(&mut self.shadow, older);
        // Also tenures whose end was lost: they are alive again, with an older beat.
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
        for (place, held) in &newer.leases {
            if self.shadow.leases.get(place) != Some(held) && !wiped {
                self.lost_grants.insert((place.0.clone(), held.1));
            }
        }
        self.lose_connections(&newer);
        self.reported.clear();
        self.noticed = false;
        if !wiped {
            self.lost_number = self.highest_number();
        }
        self.tail_was_lost = !wiped;
        self.lost_data = true;
        self.wiped |= wiped;
    }

    /// Whether any data was ever lost.
    #[must_use]
    pub fn has_lost_data(&self) -> bool {
        self.lost_data
    }

    /// Whether a member may still believe that it owns this key: the claim was lost, or another member took it.
    #[must_use]
    pub fn may_be_gone(&self, entry: &(RegistryName, Key), member: &MemberId) -> bool {
        self.gone.contains(&(entry.clone(), member.clone()))
    }

    /// Whether an ended tenure ended earlier than its holder could know, in one of the two ways that `GUARANTEES.md`
    /// documents: without the store clock's forward jumps of less than a gap it would not have ended yet; or a
    /// confirmed beat that would have kept it alive was lost with a tail.
    #[must_use]
    pub fn excuse(&self, tenure: &TenureId, step: &Step) -> bool {
        let now = step.now;
        let Some(Ended { current, end, .. }) = self.shadow.ended.get(tenure) else {
            return false;
        };
        if now < *end {
            // The holder of a superseded or expelled tenure has until its last deadline, without exception.
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

    /// Whether a grant that an operator released came free before its living holder could know, in one of the same two ways.
    #[must_use]
    pub fn excuse_revoked(&self, tenure: &TenureId, token: Token, step: &Step) -> bool {
        let Some(Revoked { ttl, began, jumped }) = self.shadow.revoked.get(&token) else {
            return false;
        };
        let jumped = Duration::from_micros(step.jumped.saturating_sub(*jumped));
        let lost_beat = self.lost_beats.get(tenure);
        step.now.since(*began).saturating_sub(jumped) < *ttl || lost_beat.is_some_and(|at| step.at.since(*at) < *ttl)
    }

    /// Records that the reply to a beat has arrived and its sender has had time to process it.
    pub fn answered(&mut self, tenure: &TenureId, reported: u64) {
        let [highest, second] = self.reported.entry(tenure.clone()).or_default();
        if reported >= *highest {
            (*highest, *second) = (reported, *highest);
        } else {
            *second = reported.max(*second);
        }
    }

    /// Whether a grant was lost with a tail and its holder cannot know: at most one beat that reports the grant has
    /// been answered since, and that one while an act of the same tenure was under way that could explain the reply.
    #[must_use]
    pub fn is_lost_unknown(&self, tenure: &TenureId, lease: &LeaseName, token: Token) -> bool {
        let reported = self.reported.get(tenure).map_or(0, |[_, second]| *second);
        self.lost_grants.contains(&(lease.clone(), token)) && reported < token.get()
    }

    /// Like [`is_lost_unknown`](Self::is_lost_unknown), before the loss is detected: the lease may be granted again.
    #[must_use]
    pub fn may_be_granted_again(&self, tenure: &TenureId, lease: &LeaseName, token: Token) -> bool {
        !self.noticed && self.is_lost_unknown(tenure, lease, token)
    }

    /// A grace lasts at least the longest ttl after the end of the hole.
    fn unsettled(&mut self, step: &Step) -> Checked {
        self.shadow.unsettled_until = step.unsettled_until;
        self.noticed = true;
        let longest = self.shadow.current.values().map(|current| current.ttl).max();
        let until = step.resumed_at + longest.unwrap_or_default();
        // In a group without members, a beat that proves a loss only gives the wait its cause, also after its end.
        must(
            longest.is_none() || step.unsettled_until >= Some(until),
            "a grace lasts one full ttl",
            || format!("until {:?}, not {until}", step.unsettled_until),
        )
    }

    /// A lower bound for the store's clock: lost numbers that no newer one has passed. Losing numbers together with the
    /// time that they were made from is two faults, which is more than is promised.
    #[must_use]
    pub fn lowest_clock(&self) -> u64 {
        let highest = self.highest_number();
        if highest == self.lost_number {
            highest
        } else {
            highest.saturating_sub(tenure_core::time::micros(self.max_ttl) * 9 / 10)
        }
    }

    /// The highest number that any sequence assigned.
    #[must_use]
    pub fn highest_number(&self) -> u64 {
        self.highest_term.max(self.highest_token).max(self.highest_epoch)
    }
}
