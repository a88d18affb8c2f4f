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
use crate::refusal::Refusal;
use crate::settling::{self, GapCause, end_of};
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
    /// Set from loading until the first step, which restarts every ttl because deadlines are not stored.
    pub(super) restarted: bool,
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
            restarted: false,
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

    /// Begins a mutating step: rejects a late call, checks for a gap, writes the tick.
    pub(crate) fn open(&mut self, now: StoreTime, call: Call) -> Result<()> {
        if call.not_after.is_some_and(|limit| now > limit) {
            return Err(Error::too_late());
        }
        let restarted = std::mem::take(&mut self.restarted);
        if let Some(cause) = settling::observe(self.tick, now, self.gap()) {
            let silent_ms = u64::try_from(now.since(self.tick).as_millis()).unwrap_or(u64::MAX);
            self.unsettle(now, cause, Some(silent_ms));
        } else if restarted {
            self.change_head(|head| head.resumed_at = now);
        }
        self.tick = now;
        Ok(())
    }

    /// Restarts every ttl.
    pub(super) fn unsettle(&mut self, now: StoreTime, cause: GapCause, silent_ms: Option<u64>) {
        self.change_head(|head| head.resumed_at = now);
        if self.lives.table.is_empty() {
            return;
        }
        self.change_head(|head| {
            let longest = head.ttls.map_or(Duration::ZERO, |(_, longest)| longest);
            let until = head.unsettled.map_or(StoreTime::ZERO, |u| u.until).max(now + longest);
            head.unsettled = Some(Unsettled { cause, until });
        });
        let event = self.emit(now, EventKind::GroupUnsettled);
        event.reason = Some(cause.as_str().to_owned());
        if let Some(ms) = silent_ms {
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

    pub(super) fn gap(&self) -> Duration {
        settling::gap(self.head().ttls.map(|(shortest, _)| shortest))
    }

    /// Whether a step now would restart every ttl: after an unnoticed gap or a restart.
    pub(super) fn is_about_to_resume(&self, now: StoreTime) -> bool {
        self.restarted || settling::observe(self.tick, now, self.gap()).is_some()
    }

    /// The resume time for reads, which write nothing: an unnoticed gap counts as a resume now, so that no member reads
    /// as dead because there was no tick.
    pub(super) fn resumed_for_reading(&self, now: StoreTime) -> StoreTime {
        match self.is_about_to_resume(now) {
            true => now,
            false => self.head().resumed_at,
        }
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

    /// Ends a tenure if it is current and past its end time.
    pub(super) fn end_if_past(&mut self, tenure: &TenureId, now: StoreTime) -> bool {
        let past = self.current(tenure).is_some_and(|live| now >= self.end_now(live, now));
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
