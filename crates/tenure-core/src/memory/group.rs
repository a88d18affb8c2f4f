//! The state of one group, and the beginning and end of every step.

use std::time::Duration;

use super::claims::Registries;
use super::ended::EndedModel;
use super::holdings::Held;
use super::lapses::Lapses;
use super::leases::LeasesModel;
use super::lives::{Live, Lives};
use super::log::Log;
use super::roster::RosterModel;
use super::rows::EndedRow;
use super::sessions::SessionsModel;
use super::table::{Table, Tracked};
use crate::error::{Error, Result};
use crate::event::{Event, EventId, EventKind};
use crate::id::{Key, LeaseName, RegistryName, TenureId};
use crate::membership::EndReason;
use crate::pulse::KeptPulse;
use crate::refusal::Refusal;
use crate::settling::{self, GapCause, Known, Level, Resume, end_of};
use crate::store::{Call, StoreOptions};
use crate::sweep::{BURST, Settling, Unsettled};
use crate::target::TargetSpec;
use crate::time::StoreTime;

/// The stored state of the group itself that concerns more than one tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Head {
    pub(super) resumed_at: StoreTime,
    pub(super) ttls: Option<(Duration, Duration)>,
    pub(super) unsettled: Option<Unsettled>,
    /// An operator has ended the waits up to this end.
    pub(super) settled: StoreTime,
    /// The start and the latest end of an engaged brake.
    pub(super) brake: Option<(StoreTime, StoreTime)>,
}

/// One group, as a pure state machine: every step takes the store time `now`.
#[derive(Debug)]
pub struct GroupModel {
    pub(super) options: StoreOptions,
    pub(super) born_at: StoreTime,
    pub(super) tick: StoreTime,
    pub(super) tracked: Tracked<Head>,
    pub(super) refused: Refusal,
    pub(super) seq: u64,
    /// Whether its rows are stored; the storing engine then detects data loss.
    pub(super) kept: bool,
    /// The pulse of the store, as of this step or read.
    pub(super) service: KeptPulse,
    /// The id of the pulse at the last look. Not stored: a loaded group has not seen the pulse of this start, so every
    /// ttl restarts with that.
    pub(super) pulse: Option<u64>,
    /// When a beat of this group last failed although the store served.
    pub(super) failed_at: StoreTime,
    /// The end of the last gap that was announced.
    pub(super) announced: StoreTime,
    /// The newest number at the last gap that may have lost data. Not stored: a late withdrawal does not outlive the process
    /// that serves it.
    pub(super) last_of_gap: u64,
    /// When a beat with a number that was never issued was last believed.
    pub(super) believed_at: Option<StoreTime>,
    /// The time since which every tick has found the group empty.
    pub(super) empty_since: Option<StoreTime>,
    pub(super) lives: Lives,
    pub(super) ended: EndedModel,
    pub(super) lapses: Lapses,
    pub(super) held: Held,
    pub(super) claims: Table<(RegistryName, Key), TenureId>,
    pub(super) registries: Registries,
    pub(super) leases: LeasesModel,
    pub(super) targets: Table<LeaseName, TargetSpec>,
    pub(super) sessions: SessionsModel,
    pub(super) roster: RosterModel,
    pub(super) log: Log,
}

impl GroupModel {
    /// A new group.
    #[must_use]
    pub fn new(options: StoreOptions, now: StoreTime) -> Self {
        Self {
            options,
            born_at: now,
            tick: now,
            tracked: Tracked::new(Head {
                resumed_at: now,
                ..Head::default()
            }),
            refused: Refusal::default(),
            seq: 0,
            kept: false,
            service: KeptPulse::default(),
            pulse: None,
            failed_at: StoreTime::ZERO,
            announced: StoreTime::ZERO,
            last_of_gap: 0,
            believed_at: None,
            empty_since: None,
            lives: Lives::default(),
            ended: EndedModel::default(),
            lapses: Lapses::default(),
            held: Held::default(),
            claims: Table::default(),
            registries: Registries::default(),
            leases: LeasesModel::default(),
            targets: Table::default(),
            sessions: SessionsModel::default(),
            roster: RosterModel::default(),
            log: Log::beginning_at(EventId(now.micros())),
        }
    }

    pub(super) fn head(&self) -> Head {
        self.tracked.get().copied().unwrap_or_default()
    }

    pub(super) fn change_head(&mut self, change: impl FnOnce(&mut Head)) {
        let mut head = self.head();
        change(&mut head);
        self.tracked.set(Some(head));
    }

    /// Takes the pulse of the store for the steps and reads at this clock reading.
    pub(crate) fn take_pulse(&mut self, service: KeptPulse) {
        self.service = service;
    }

    /// Begins a mutating step: rejects a late call, looks for a gap, writes the tick.
    pub(crate) fn open(&mut self, now: StoreTime, call: Call) -> Result<()> {
        call.check(now)?;
        self.look(now);
        self.tick = now;
        Ok(())
    }

    /// Begins a step of beats. One that only renews, soon after the last step, needs no look: a gap would only lengthen
    /// lives. `is_past`: a tenure of the beats would be ended; waiting requests may be granted.
    pub(super) fn open_to_renew(&mut self, now: StoreTime, is_past: bool) {
        let near = settling::is_near(self.tick, now, self.level());
        if !near || is_past || !self.leases.queue.is_empty() {
            self.look(now);
        }
        self.tick = now;
    }

    /// Looks for a gap, and restarts every ttl from its end.
    fn look(&mut self, now: StoreTime) {
        let found = self.unmet_gap(now);
        self.pulse = self.service.pulse.map(|pulse| pulse.id);
        let Some(Resume { at, cause, silence }) = found else {
            return;
        };
        if self.is_start(at, now) {
            self.resume(at, now);
            return;
        }
        self.unsettle_from(at, cause, silence, now);
    }

    /// Whether a hole that ends then is the start of a whole store, which has forgotten no grant.
    fn is_start(&self, at: StoreTime, now: StoreTime) -> bool {
        self.service.pulse.is_some() && at <= self.service.whole_at.min(now)
    }

    pub(super) fn resume(&mut self, at: StoreTime, now: StoreTime) {
        self.change_head(|head| head.resumed_at = settling::resumed(head.resumed_at, at, now));
    }

    /// Restarts every ttl now.
    pub(super) fn unsettle(&mut self, now: StoreTime, cause: GapCause) {
        self.unsettle_from(now, cause, None, now);
    }

    /// Restarts every ttl from the end of a gap. A grace that is over by now begins no more, nor does one that was met: an
    /// operator may have ended it.
    fn unsettle_from(&mut self, at: StoreTime, cause: GapCause, silence: Option<Duration>, now: StoreTime) {
        let before = self.head().resumed_at;
        let is_met = before <= now && at <= before;
        self.last_of_gap = self.seq;
        self.resume(at, now);
        let longest = self.head().ttls.map_or(Duration::ZERO, |(_, longest)| longest);
        let is_loss = !matches!(cause, GapCause::Silent | GapCause::ClockBack);
        if self.lives.table.is_empty() || !is_loss && (is_met || at + longest <= now) {
            return;
        }
        self.change_head(|head| {
            let until = head.unsettled.map_or(StoreTime::ZERO, |u| u.until).max(at + longest);
            head.unsettled = Some(Unsettled { cause, until });
        });
        // A store that does not serve for long is one gap, not one for each step.
        let is_same = silence.is_some_and(|silence| at.since(self.announced) < silence);
        let is_told = self.announced <= now && (is_same || at <= self.announced + self.gap());
        if is_told && !is_loss {
            return;
        }
        self.announced = at;
        let event = self.emit(now, EventKind::GroupUnsettled);
        event.reason = Some(cause.as_str().to_owned());
        if let Some(ms) = silence.map(|silence| u64::try_from(silence.as_millis()).unwrap_or(u64::MAX)) {
            event.counts.insert("silent_ms".to_owned(), ms);
        }
    }

    /// Starts a wait without grants, because the group may have existed before or may have forgotten a holder. Does
    /// nothing if the wait is known or an operator has ended it. Part of a step.
    pub fn wait(&mut self, wait: Unsettled, now: StoreTime) {
        let head = self.head();
        let known = head.unsettled.map_or(StoreTime::ZERO, |unsettled| unsettled.until);
        if known.max(head.settled) < wait.until {
            self.begin_wait(wait, now);
        }
    }

    pub(super) fn begin_wait(&mut self, unsettled: Unsettled, now: StoreTime) {
        self.change_head(|head| head.unsettled = Some(unsettled));
        self.emit(now, EventKind::GroupUnsettled).reason = Some(unsettled.cause.as_str().to_owned());
    }

    /// Applies an operator's statement that nothing was held when the grace began.
    pub(crate) fn settle(&mut self, named: Option<GapCause>, call: Call, now: StoreTime) -> Result<Settling> {
        self.open(now, call)?;
        let Some(Unsettled { cause, until }) = self.head().unsettled else {
            return Ok(Settling::Settled);
        };
        if !cause.is_ended_by(named) {
            return Ok(Settling::Left(cause));
        }
        self.change_head(|head| {
            head.unsettled = None;
            head.settled = until;
        });
        self.leases.queue.wake_all();
        self.emit(now, EventKind::GroupSettled).reason = Some("operator".to_owned());
        self.serve_waiting(now);
        Ok(Settling::Ended)
    }

    pub(super) fn level(&self) -> Level {
        Level::of(self.head().ttls.map(|(shortest, _)| shortest))
    }

    pub(crate) fn gap(&self) -> Duration {
        self.level().gap()
    }

    /// A gap that no step has met yet.
    pub(super) fn unmet_gap(&self, now: StoreTime) -> Option<Resume> {
        let known = Known {
            tick: self.tick,
            pulse: self.pulse,
            resumed_at: self.head().resumed_at,
            failed_at: self.failed_at,
            level: self.level(),
        };
        settling::look(self.service.pulse.as_ref(), &known, now)
    }

    /// Whether a beat needs a step, which meets a gap.
    pub(super) fn must_look(&self, now: StoreTime) -> bool {
        !settling::is_near(self.tick, now, self.level()) && self.has_gap(now)
    }

    /// Whether there is a gap that restarts a ttl.
    pub(super) fn has_gap(&self, now: StoreTime) -> bool {
        self.resumed_for_reading(now) != self.head().resumed_at
    }

    /// The resume time for reads, which write nothing: an unmet gap counts, so that reads and steps agree.
    pub(super) fn resumed_for_reading(&self, now: StoreTime) -> StoreTime {
        let before = self.head().resumed_at;
        let gap = self.unmet_gap(now);
        gap.map_or(before, |gap| settling::resumed(before, gap.at, now))
    }

    /// Notes that beats of this group could not be served until now, although others could.
    pub(crate) fn note_failed(&mut self, now: StoreTime) {
        self.failed_at = now;
    }

    /// The end time of a member's current tenure.
    pub(super) fn end_time(&self, live: &Live, resumed_at: StoreTime, now: StoreTime) -> StoreTime {
        end_of(live.deadline, live.ttl, self.refused.or_resumed(resumed_at, now), now)
    }

    /// The end time in a step.
    pub(super) fn end_now(&self, live: &Live, now: StoreTime) -> StoreTime {
        self.end_time(live, self.head().resumed_at, now)
    }

    /// Whether exactly this tenure is alive.
    pub(super) fn is_alive(&self, tenure: &TenureId, resumed_at: StoreTime, now: StoreTime) -> bool {
        self.current(tenure)
            .is_some_and(|live| now < self.end_time(live, resumed_at, now))
    }

    /// The live entry, if this is its member's current tenure.
    pub(super) fn current(&self, tenure: &TenureId) -> Option<&Live> {
        self.lives.current(tenure)
    }

    /// Whether a tenure is current and past its end time.
    pub(super) fn is_past(&self, tenure: &TenureId, now: StoreTime) -> bool {
        self.current(tenure).is_some_and(|live| now >= self.end_now(live, now))
    }

    /// Ends a tenure if it is current and past its end time.
    pub(super) fn end_if_past(&mut self, tenure: &TenureId, now: StoreTime) -> bool {
        let past = self.is_past(tenure, now);
        if past {
            self.end_tenure(tenure, EndReason::Lapsed, now);
        }
        past
    }

    /// Requires a living tenure.
    pub(super) fn require_alive(&mut self, tenure: &TenureId, now: StoreTime) -> Result<()> {
        if self.end_if_past(tenure, now) {
            return Err(Error::ended(tenure, EndReason::Lapsed));
        }
        match self.current(tenure) {
            Some(_) => Ok(()),
            None => Err(Error::ended(tenure, self.reason_of(tenure))),
        }
    }

    /// The recorded reason.
    pub(super) fn reason_of(&self, tenure: &TenureId) -> EndReason {
        self.ended.get(tenure).map_or(EndReason::Unknown, |ended| ended.reason)
    }

    /// Ends a member's current tenure.
    pub(super) fn end_tenure(&mut self, tenure: &TenureId, reason: EndReason, now: StoreTime) {
        self.end_tenure_at(tenure, reason, None, now);
    }

    /// Ends a member's current tenure, with the end time to record if it is not that of its last beat.
    pub(super) fn end_tenure_at(
        &mut self,
        tenure: &TenureId,
        reason: EndReason,
        end: Option<StoreTime>,
        now: StoreTime,
    ) -> Option<&mut Event> {
        let (member, live) = self.lives.end(tenure.member())?;
        let tenure = TenureId::new(member, live.term);
        self.roster.reseat(&tenure, false);
        let end = end.unwrap_or_else(|| self.end_now(&live, now));
        let ended = EndedRow {
            reason,
            end,
            at: now,
            forget_at: now + self.options.max_ttl * 2,
            visit: self.held.has(&tenure).then(|| now + BURST),
        };
        self.ended.set(tenure.clone(), Some(ended));
        self.leases.queue.forget_granted(&tenure);
        self.wake_leases_of(&tenure);
        self.note_offline(&tenure, &live, reason, end, now);
        let kind = match reason {
            EndReason::Left => EventKind::Left,
            EndReason::Superseded => EventKind::Superseded,
            EndReason::Expelled => EventKind::Expelled,
            EndReason::NoProgress => EventKind::NoProgress,
            EndReason::Lapsed | EndReason::Unknown => EventKind::Lapsed,
        };
        if reason == EndReason::Lapsed {
            self.lapses.set(tenure.member().clone(), Some(now));
        }
        let event = self.emit(now, kind);
        event.tenure = Some(tenure);
        Some(event)
    }

    /// Appends an event.
    pub(super) fn emit(&mut self, now: StoreTime, kind: EventKind) -> &mut Event {
        self.log.push(now, kind, &self.options)
    }

    /// Records that a tenure lost a holding. An ended tenure without holdings needs no further release.
    pub(super) fn note_loss(&mut self, tenure: &TenureId) {
        if !self.held.has(tenure) {
            self.ended.visit(tenure, None);
        }
    }

    /// The tenure with the shared text of its name.
    pub(super) fn own_name(&self, tenure: &TenureId) -> TenureId {
        self.held.own_name(self.lives.own_name(tenure))
    }

    /// The next number of the group's sequence, for a term, a token or a revision.
    pub(super) fn next_number(&mut self, now: StoreTime) -> u64 {
        self.seq = (self.seq + 1).max(now.micros());
        self.seq
    }
}
