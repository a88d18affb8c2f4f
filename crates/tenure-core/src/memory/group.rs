//! The state of one group and the steps that all others begin and end with.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::log::Log;
use super::roster::RosterModel;
use super::sessions::Record;
use crate::brake::Brake;
use crate::error::{Error, Result};
use crate::event::{Event, EventId, EventKind};
use crate::id::{Alias, ConnectionId, Key, LeaseName, MemberId, RegistryName, SessionId, TenureId, Term};
use crate::lease::Token;
use crate::membership::{EndReason, Labels, Revision};
use crate::recall;
use crate::refusal::Refusal;
use crate::settling::{self, GapCause, end_of};
use crate::store::{Call, StoreOptions};
use crate::sweep::{BURST, Settling, Unsettled};
use crate::target::TargetSpec;
use crate::time::StoreTime;

/// One member's current tenure.
#[derive(Debug, Clone)]
pub(super) struct Live {
    pub(super) term: Term,
    pub(super) deadline: StoreTime,
    pub(super) ttl: Duration,
    /// The number of what it holds.
    pub(super) revision: Revision,
    pub(super) labels: Labels,
    /// Its entry in the lazy index: the earliest time at which it may have lapsed.
    pub(super) due: StoreTime,
}

/// How a tenure ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) reason: EndReason,
    /// Its last deadline, as it was when it ended.
    pub(super) end: StoreTime,
    /// When it ended.
    pub(super) at: StoreTime,
}

impl Ended {
    /// Whether its process may be at work without knowing that it is over.
    pub(super) fn may_still_run(self) -> bool {
        matches!(self.reason, EndReason::Superseded | EndReason::Expelled)
    }
}

/// A claim held under a tenure.
pub(super) type Holding = (RegistryName, Key);

/// Ended tenures with holdings left, by when to look at them next.
#[derive(Debug, Default)]
pub(super) struct WorkList(pub(super) BTreeMap<TenureId, StoreTime>);

/// One group, as a pure state machine: every step takes the store's `now`.
#[derive(Debug)]
pub struct GroupModel {
    pub(super) options: StoreOptions,
    pub(super) born_at: StoreTime,
    tick: StoreTime,
    pub(super) resumed_at: StoreTime,
    pub(super) refused: Refusal,
    pub(super) seq: u64,
    /// When a beat was believed last that named a number which was never given out.
    believed_at: Option<StoreTime>,
    pub(super) ttls: Option<(Duration, Duration)>,
    pub(super) unsettled: Option<Unsettled>,
    brake: Option<(StoreTime, StoreTime)>,
    /// Since when every tick has found it empty.
    pub(super) empty_since: Option<StoreTime>,
    pub(super) members: BTreeMap<MemberId, Live>,
    pub(super) due: BTreeSet<(StoreTime, MemberId)>,
    /// Why the ended ones ended, until they are forgotten.
    pub(super) ended: HashMap<TenureId, Ended>,
    pub(super) forget: BTreeSet<(StoreTime, TenureId)>,
    pub(super) held: HashMap<TenureId, BTreeSet<Holding>>,
    pub(super) leased: HashMap<TenureId, BTreeSet<LeaseName>>,
    pub(super) connected: HashMap<TenureId, BTreeSet<(SessionId, ConnectionId)>>,
    pub(super) releasing: WorkList,
    pub(super) releasing_lapsed: WorkList,
    pub(super) lapses: BTreeMap<MemberId, StoreTime>,
    pub(super) claims: BTreeMap<RegistryName, BTreeMap<Key, TenureId>>,
    pub(super) leases: BTreeMap<LeaseName, (TenureId, Token)>,
    /// Handed off, and waiting for this member until then.
    pub(super) reserved: BTreeMap<LeaseName, (MemberId, StoreTime)>,
    pub(super) targets: BTreeMap<LeaseName, TargetSpec>,
    pub(super) sessions: BTreeMap<SessionId, Record>,
    pub(super) aliases: BTreeMap<Alias, SessionId>,
    /// Sessions without connections, by the earliest time at which they may be orphans.
    pub(super) away: BTreeSet<(StoreTime, SessionId)>,
    pub(super) roster: RosterModel,
    pub(super) log: Log,
}

impl GroupModel {
    /// A group that begins now.
    #[must_use]
    pub fn new(options: StoreOptions, now: StoreTime) -> Self {
        Self {
            options,
            born_at: now,
            tick: now,
            resumed_at: now,
            refused: Refusal::default(),
            seq: 0,
            believed_at: None,
            ttls: None,
            unsettled: None,
            brake: None,
            empty_since: None,
            members: BTreeMap::new(),
            due: BTreeSet::new(),
            ended: HashMap::new(),
            forget: BTreeSet::new(),
            held: HashMap::new(),
            leased: HashMap::new(),
            connected: HashMap::new(),
            releasing: WorkList::default(),
            releasing_lapsed: WorkList::default(),
            lapses: BTreeMap::new(),
            claims: BTreeMap::new(),
            leases: BTreeMap::new(),
            reserved: BTreeMap::new(),
            targets: BTreeMap::new(),
            sessions: BTreeMap::new(),
            aliases: BTreeMap::new(),
            away: BTreeSet::new(),
            roster: RosterModel::default(),
            log: Log::beginning_at(EventId(now.micros())),
        }
    }

    /// Begins a mutating step: refuses one that comes too late, looks for a gap, writes the tick.
    pub(super) fn open(&mut self, now: StoreTime, call: Call) -> Result<()> {
        if call.not_after.is_some_and(|limit| now > limit) {
            return Err(Error::too_late());
        }
        if let Some(cause) = settling::observe(self.tick, now, self.gap()) {
            let silent_ms = u64::try_from(now.since(self.tick).as_millis()).unwrap_or(u64::MAX);
            self.unsettle(now, cause, Some(silent_ms));
        }
        self.tick = now;
        Ok(())
    }

    /// Gives everyone one full ttl from now.
    pub(super) fn unsettle(&mut self, now: StoreTime, cause: GapCause, silent_ms: Option<u64>) {
        self.resumed_at = now;
        if self.members.is_empty() {
            return;
        }
        let longest = self.ttls.map_or(Duration::ZERO, |(_, longest)| longest);
        let until = self.unsettled.map_or(StoreTime::ZERO, |u| u.until).max(now + longest);
        self.unsettled = Some(Unsettled { cause, until });
        let event = self.emit(now, EventKind::GroupUnsettled);
        event.reason = Some(cause.as_str().to_owned());
        if let Some(ms) = silent_ms {
            event.counts.insert("silent_ms".to_owned(), ms);
        }
    }

    /// A group that may have been there before begins with a grace.
    pub(super) fn wait(&mut self, unsettled: Unsettled, now: StoreTime) {
        self.unsettled = Some(unsettled);
        self.emit(now, EventKind::GroupUnsettled).reason = Some(unsettled.cause.as_str().to_owned());
    }

    /// A beat named a number that was never given out: the end of the data is lost, if that is believed.
    pub(super) fn note_lost_tail(&mut self, number: u64, now: StoreTime) {
        if recall::believes_a_lost_tail(self.believed_at, now, self.options.max_ttl) {
            self.believed_at = Some(now);
            self.unsettle(now, GapCause::TailLoss, None);
            self.seq = self.seq.max(number);
        }
    }

    /// A beat names a term from before the group was born: what counted as new has lost its data.
    pub(super) fn note_loss_of_data(&mut self, term: Term, now: StoreTime) {
        if let Some(Unsettled {
            cause: GapCause::New,
            until,
        }) = self.unsettled
            && term.get() < self.born_at.micros()
        {
            let cause = GapCause::DataLoss;
            match self.members.is_empty() {
                true => self.wait(Unsettled { cause, until }, now),
                false => self.unsettle(now, cause, None),
            }
        }
    }

    /// An operator's word that nothing was held when the grace began.
    pub(super) fn settle(&mut self, named: Option<GapCause>, call: Call, now: StoreTime) -> Result<Settling> {
        self.open(now, call)?;
        let Some(Unsettled { cause, .. }) = self.unsettled else {
            return Ok(Settling::Settled);
        };
        if !cause.is_ended_by(named) {
            return Ok(Settling::Left(cause));
        }
        self.unsettled = None;
        self.emit(now, EventKind::GroupSettled).reason = Some("operator".to_owned());
        Ok(Settling::Ended)
    }

    pub(super) fn gap(&self) -> Duration {
        settling::gap(self.ttls.map(|(shortest, _)| shortest))
    }

    /// For reads, which write nothing: an unnoticed gap counts as if service resumed now, so that nobody reads as dead
    /// because nobody ticked.
    pub(super) fn resumed_for_reading(&self, now: StoreTime) -> StoreTime {
        match settling::observe(self.tick, now, self.gap()) {
            Some(_) => now,
            None => self.resumed_at,
        }
    }

    /// The end time of a member's current tenure.
    pub(super) fn end_time(&self, live: &Live, resumed_at: StoreTime, now: StoreTime) -> StoreTime {
        end_of(live.deadline, live.ttl, self.refused.or_resumed(resumed_at, now), now)
    }

    /// Whether exactly this tenure is alive.
    pub(super) fn is_alive(&self, tenure: &TenureId, resumed_at: StoreTime, now: StoreTime) -> bool {
        self.current(tenure)
            .is_some_and(|live| now < self.end_time(live, resumed_at, now))
    }

    /// The live entry when this is its member's current tenure.
    pub(super) fn current(&self, tenure: &TenureId) -> Option<&Live> {
        self.members
            .get(tenure.member())
            .filter(|live| live.term == tenure.term())
    }

    /// Ends a tenure if it is current and past its end time.
    pub(super) fn end_if_past(&mut self, tenure: &TenureId, now: StoreTime) -> bool {
        let past = self
            .current(tenure)
            .is_some_and(|live| now >= self.end_time(live, self.resumed_at, now));
        if past {
            self.end_tenure(tenure, EndReason::Lapsed, now);
        }
        past
    }

    /// Lets an act through only under a living tenure.
    pub(super) fn require_alive(&mut self, tenure: &TenureId, now: StoreTime) -> Result<()> {
        if self.end_if_past(tenure, now) {
            return Err(Error::ended(tenure, EndReason::Lapsed));
        }
        match self.current(tenure) {
            Some(_) => Ok(()),
            None => Err(Error::ended(tenure, self.reason_of(tenure))),
        }
    }

    /// The reason on record.
    pub(super) fn reason_of(&self, tenure: &TenureId) -> EndReason {
        self.ended.get(tenure).map_or(EndReason::Unknown, |ended| ended.reason)
    }

    /// Ends a member's current tenure, for good.
    pub(super) fn end_tenure(&mut self, tenure: &TenureId, reason: EndReason, now: StoreTime) {
        let Some(live) = self.members.remove(tenure.member()) else {
            return;
        };
        let end = self.end_time(&live, self.resumed_at, now);
        self.due.remove(&(live.due, tenure.member().clone()));
        let forget_at = now + self.options.max_ttl * 2;
        self.ended.insert(tenure.clone(), Ended { reason, end, at: now });
        self.forget.insert((forget_at, tenure.clone()));
        self.note_offline(tenure, &live, reason, end, now);
        let lapsed = reason == EndReason::Lapsed;
        if self.holds_anything(tenure) {
            let list = if lapsed {
                &mut self.releasing_lapsed
            } else {
                &mut self.releasing
            };
            list.0.insert(tenure.clone(), now + BURST);
        }
        let kind = match reason {
            EndReason::Left => EventKind::Left,
            EndReason::Superseded => EventKind::Superseded,
            EndReason::Expelled => EventKind::Expelled,
            EndReason::Lapsed | EndReason::Unknown => EventKind::Lapsed,
        };
        self.emit(now, kind).tenure = Some(tenure.clone());
        if lapsed {
            self.lapses.insert(tenure.member().clone(), now);
        }
    }

    /// Engages the brake if too many lapsed at once. The last act of every step that may have ended someone.
    pub(super) fn engage_brake(&mut self, now: StoreTime) {
        if self.brake.is_some() || self.lapses.is_empty() {
            return;
        }
        let window = self.ttls.map_or(Duration::ZERO, |(_, longest)| longest);
        self.lapses.retain(|_, at| *at + window >= now);
        let (lapsed, present) = (self.lapses.len() as u64, self.members.len() as u64);
        if self.options.brake.too_many(lapsed, present) {
            self.brake = Some((now, now + self.options.brake.hold));
            let event = self.emit(now, EventKind::SweepBraked);
            event.counts.insert("lapsed".to_owned(), lapsed);
            event.counts.insert("present".to_owned(), present);
        }
    }

    /// Lifts the brake when its time is over, when enough members are back, or when told to.
    pub(super) fn lift_brake(&mut self, now: StoreTime, force: bool) {
        let Some((_, until)) = self.brake else { return };
        let reason = if force {
            "operator"
        } else if now >= until {
            "time"
        } else if self.brake_in_force(now).is_none() {
            "recovered"
        } else {
            return;
        };
        self.brake = None;
        if reason != "recovered" {
            self.lapses.clear();
        }
        self.emit(now, EventKind::SweepUnbraked).reason = Some(reason.to_owned());
    }

    /// The brake, unless its reason is gone by now.
    pub(super) fn brake_in_force(&self, now: StoreTime) -> Option<Brake> {
        let (since, until) = self.brake?;
        let (lapsed, present) = (self.lapses.len() as u64, self.members.len() as u64);
        let in_force = now < until && self.options.brake.too_many(lapsed, present);
        in_force.then_some(Brake {
            since,
            until,
            lapsed,
            present,
        })
    }

    /// Appends an event.
    pub(super) fn emit(&mut self, now: StoreTime, kind: EventKind) -> &mut Event {
        self.log.push(now, kind, &self.options)
    }

    /// Takes a holding away from a tenure; an ended one that has nothing left needs no more work.
    pub(super) fn drop_holding(&mut self, tenure: &TenureId, holding: &Holding) {
        let Some(held) = self.held.get_mut(tenure) else { return };
        held.remove(holding);
        if held.is_empty() {
            self.held.remove(tenure);
        }
        self.note_loss(tenure);
    }

    /// Whether there is something to release after the tenure.
    pub(super) fn holds_anything(&self, tenure: &TenureId) -> bool {
        self.held.contains_key(tenure) || self.leased.contains_key(tenure) || self.connected.contains_key(tenure)
    }

    /// A tenure has lost something: an ended one that has nothing left leaves the work lists.
    pub(super) fn note_loss(&mut self, tenure: &TenureId) {
        if !self.holds_anything(tenure) {
            self.releasing.0.remove(tenure);
            self.releasing_lapsed.0.remove(tenure);
        }
    }

    /// The next number of the group's sequence: for a term, a token or a revision.
    pub(super) fn next_number(&mut self, now: StoreTime) -> u64 {
        self.seq = (self.seq + 1).max(now.micros());
        self.seq
    }
}
