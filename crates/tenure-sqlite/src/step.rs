//! One step on one group, as the writer runs it: the acts that all steps begin and end with.
//!
//! A step changes rows through `sql`, the group's state through `meta`, and the live table through `pending`. It never
//! cleans up after itself: when it fails, the writer rolls its savepoint back, assigns the old `meta` and takes its
//! changes out of `pending` again.

use rusqlite::{Connection, OptionalExtension, params};
use tenure_core::event::EventKind;
use tenure_core::membership::{EndReason, Revision};
use tenure_core::settling::GapCause;
use tenure_core::store::StoreOptions;
use tenure_core::sweep::{BURST, Unsettled};
use tenure_core::{Error, MemberId, ProviderId, StoreTime, TenureId, Term};

use crate::error::Cause;
use crate::event::Draft;
use crate::group::Meta;
use crate::live::{Entry, Live, Table};
use crate::recall::Life;
use crate::roster::Head;
use crate::sql::{instant, statements};

statements! { "membership.sql":
    DELETE_MEMBER = "delete",
    RECORD_END = "record_end",
}
statements! { "sweep.sql":
    HOLDS = "holds",
    LAPSE = "lapse",
    DROP_LAPSES_BEFORE = "drop_lapses_before",
    CLEAR_LAPSES = "clear_lapses",
    DONE = "done",
}

/// What a step answers: a refusal (`Ended`, `NotOwner`) keeps what the step has done, a [`Cause`] undoes it.
pub(crate) type Answer<T> = Result<tenure_core::Result<T>, Cause>;

/// How to undo a step in memory.
#[derive(Debug)]
pub(crate) struct Undo {
    /// The state before the step.
    pub(crate) meta: Meta,
    /// The tick before it, and whether the group was fresh from the file, when the step recorded a gap.
    pub(crate) gap: Option<(StoreTime, bool)>,
    /// What `pending` held before each change.
    pub(crate) pending: Vec<(MemberId, Option<Option<Entry>>)>,
    /// What `revised` held before each change.
    revised: Vec<(MemberId, Option<(Term, Revision)>)>,
    /// What the roster's `pending` held before each change.
    rows: Vec<(ProviderId, Option<Option<Head>>)>,
}

/// A step in progress.
pub(crate) struct Step<'a> {
    pub(crate) sql: &'a Connection,
    pub(crate) options: &'a StoreOptions,
    pub(crate) life: &'a Life,
    /// Store time of the step.
    pub(crate) now: StoreTime,
    /// The id of the group's rows.
    pub(crate) id: i64,
    pub(crate) meta: &'a mut Meta,
    pub(crate) live: &'a Live,
    pub(crate) undo: &'a mut Undo,
    /// Set when the work lists or the index of disconnected sessions changed, so that what is due next is looked up
    /// before the commit.
    pub(crate) lists_changed: &'a mut bool,
    /// Set when the group is to go with the commit.
    pub(crate) forgotten: &'a mut bool,
}

impl Step<'_> {
    /// Records a gap that opening the step has seen.
    pub(crate) fn record_gap(&mut self, cause: GapCause, before: StoreTime) -> Result<(), Cause> {
        let silent_ms = u64::try_from(self.now.since(before).as_millis()).unwrap_or(u64::MAX);
        self.unsettle(cause, Some(silent_ms))
    }

    /// Gives everyone one full ttl from now.
    pub(crate) fn unsettle(&mut self, cause: GapCause, silent_ms: Option<u64>) -> Result<(), Cause> {
        self.resume();
        if self.meta.members == 0 {
            return Ok(());
        }
        let before = self.meta.unsettled.map_or(StoreTime::ZERO, |unsettled| unsettled.until);
        let until = before.max(self.now + self.meta.longest_ttl());
        self.meta.unsettled = Some(Unsettled { cause, until });
        let mut event = Draft::new(EventKind::GroupUnsettled).because(cause.as_str());
        if let Some(ms) = silent_ms {
            event.count("silent_ms", ms);
        }
        self.emit(event)
    }

    /// Restarts every ttl and withholds nothing: every grant is known.
    pub(crate) fn resume(&mut self) {
        self.meta.resumed_at = self.now;
        self.live.lock().resumed_at = self.now;
    }

    /// The store may have forgotten who holds a lease; nothing is granted until then, unless an operator has ended that wait.
    pub(crate) fn wait(&mut self, wait: Unsettled) -> Result<(), Cause> {
        let known = self.meta.unsettled.map_or(StoreTime::ZERO, |unsettled| unsettled.until);
        if known.max(self.meta.settled) >= wait.until {
            return Ok(());
        }
        self.meta.unsettled = Some(wait);
        self.emit(Draft::new(EventKind::GroupUnsettled).because(wait.cause.as_str()))
    }

    /// Takes a tenure out of the live table when it is current, with the reason that `judge` finds for its entry and
    /// whether it is past its end. One look under one lock, so that no beat comes between the judgement and the end.
    pub(crate) fn take(
        &mut self,
        tenure: &TenureId,
        judge: impl FnOnce(bool) -> Option<EndReason>,
    ) -> Option<(Entry, EndReason)> {
        let mut table = self.live.lock();
        let entry = table
            .head(tenure.member())
            .filter(|entry| entry.term == tenure.term())?;
        let past = self.now >= entry.end(self.meta.resumed_at, self.now);
        let reason = judge(past)?;
        self.undo.replace(&mut table, tenure.member(), None);
        drop(table);
        Some((entry, reason))
    }

    /// Ends a tenure that was taken out of the live table, for good.
    pub(crate) fn end_taken(&mut self, tenure: &TenureId, entry: &Entry, reason: EndReason) -> Result<(), Cause> {
        let (text, lapsed) = (tenure.to_string(), reason == EndReason::Lapsed);
        let sql = self.sql;
        self.meta.members = self.meta.members.saturating_sub(1);
        sql.prepare_cached(DELETE_MEMBER)?.execute(params![
            self.id,
            tenure.member().as_str(),
            crate::sql::number(tenure.term().get())
        ])?;
        let holds: bool = sql
            .prepare_cached(HOLDS)?
            .query_row(params![self.id, text], |row| row.get(0))?;
        sql.prepare_cached(RECORD_END)?.execute(params![
            self.id,
            text,
            reason.as_str(),
            lapsed,
            instant(entry.end(self.meta.resumed_at, self.now)),
            instant(self.now),
            instant(self.now + self.options.max_ttl * 2),
            holds.then(|| instant(self.now + BURST)),
        ])?;
        self.note_offline(tenure, entry, reason)?;
        if holds {
            self.work_list(lapsed).tenures += 1;
            *self.lists_changed = true;
        }
        let kind = match reason {
            EndReason::Left => EventKind::Left,
            EndReason::Superseded => EventKind::Superseded,
            EndReason::Expelled => EventKind::Expelled,
            EndReason::Lapsed | EndReason::Unknown => EventKind::Lapsed,
        };
        self.emit(Draft::new(kind).of(tenure))?;
        if lapsed {
            sql.prepare_cached(LAPSE)?
                .execute(params![self.id, tenure.member().as_str(), instant(self.now)])?;
            self.meta.lapses += 1;
        }
        Ok(())
    }

    /// Ends a tenure if it is current and past its end.
    pub(crate) fn end_if_past(&mut self, tenure: &TenureId) -> Result<bool, Cause> {
        let Some((entry, reason)) = self.take(tenure, |past| past.then_some(EndReason::Lapsed)) else {
            return Ok(false);
        };
        self.end_taken(tenure, &entry, reason)?;
        Ok(true)
    }

    /// Whether this is its member's current tenure.
    pub(crate) fn is_current(&self, tenure: &TenureId) -> bool {
        let entry = self.live.lock().head(tenure.member());
        entry.is_some_and(|entry| entry.term == tenure.term())
    }

    /// Lets an act through only under a living tenure. One that is met past its end is ended for good, although the act
    /// is refused.
    pub(crate) fn require_alive(&mut self, tenure: &TenureId) -> Answer<()> {
        if self.end_if_past(tenure)? {
            return Ok(Err(Error::ended(tenure, EndReason::Lapsed)));
        }
        if self.is_current(tenure) {
            return Ok(Ok(()));
        }
        Ok(Err(Error::ended(tenure, self.reason_of(tenure)?)))
    }

    /// The list of ended tenures with holdings that this kind of end goes to.
    pub(crate) fn work_list(&mut self, lapsed: bool) -> &mut crate::group::Work {
        if lapsed {
            &mut self.meta.releasing_lapsed
        } else {
            &mut self.meta.releasing
        }
    }

    /// Strikes an ended tenure off the work list when it holds nothing any more.
    pub(crate) fn strike_if_empty(&mut self, tenure: &str) -> Result<bool, Cause> {
        let sql = self.sql;
        let holds: bool = sql
            .prepare_cached(HOLDS)?
            .query_row(params![self.id, tenure], |row| row.get(0))?;
        if holds {
            return Ok(false);
        }
        let listed: Option<bool> = sql
            .prepare_cached(DONE)?
            .query_row(params![self.id, tenure], |row| row.get(0))
            .optional()?;
        if let Some(lapsed) = listed {
            let list = self.work_list(lapsed);
            list.tenures = list.tenures.saturating_sub(1);
            *self.lists_changed = true;
        }
        Ok(true)
    }

    /// Engages the brake if too many lapsed at once. The last act of every step that may have ended someone.
    pub(crate) fn engage_brake(&mut self) -> Result<(), Cause> {
        if self.meta.brake.is_some() || self.meta.lapses == 0 {
            return Ok(());
        }
        let window = self.now.minus(self.meta.longest_ttl());
        let dropped = self
            .sql
            .prepare_cached(DROP_LAPSES_BEFORE)?
            .execute(params![self.id, instant(window)])?;
        self.meta.lapses = self.meta.lapses.saturating_sub(dropped as u64);
        let (lapsed, present) = (self.meta.lapses, self.meta.members);
        if !self.options.brake.too_many(lapsed, present) {
            return Ok(());
        }
        self.meta.brake = Some((self.now, self.now + self.options.brake.hold));
        let mut event = Draft::new(EventKind::SweepBraked);
        event.count("lapsed", lapsed);
        event.count("present", present);
        self.emit(event)
    }

    /// Lifts the brake when its time is over, when enough members are back, or when told to.
    pub(crate) fn lift_brake(&mut self, force: bool) -> Result<(), Cause> {
        let Some((_, until)) = self.meta.brake else {
            return Ok(());
        };
        let reason = if force {
            "operator"
        } else if self.now >= until {
            "time"
        } else if self.meta.brake_in_force(&self.options.brake, self.now).is_none() {
            "recovered"
        } else {
            return Ok(());
        };
        self.meta.brake = None;
        if reason != "recovered" {
            self.sql.prepare_cached(CLEAR_LAPSES)?.execute([self.id])?;
            self.meta.lapses = 0;
        }
        self.emit(Draft::new(EventKind::SweepUnbraked).because(reason))
    }
}

impl Undo {
    pub(crate) fn new(meta: Meta) -> Self {
        Self {
            meta,
            gap: None,
            pending: Vec::new(),
            revised: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Changes what is pending for a member, and remembers what was there.
    pub(crate) fn replace(&mut self, table: &mut Table, member: &MemberId, entry: Option<Entry>) {
        let before = table.pending.insert(member.clone(), entry);
        self.pending.push((member.clone(), before));
    }

    /// Changes the revision of a tenure, and remembers what was there.
    pub(crate) fn revise(&mut self, table: &mut Table, tenure: &TenureId, revision: Revision) {
        let member = tenure.member();
        let before = table.revised.insert(member.clone(), (tenure.term(), revision));
        self.revised.push((member.clone(), before));
    }

    /// Changes the row of a provider, and remembers what was there.
    pub(crate) fn rewrite(&mut self, table: &mut Table, provider: &ProviderId, head: Option<Head>) {
        let before = table.roster.rewrite(provider, Some(head));
        self.rows.push((provider.clone(), before));
    }

    /// Takes the step out of the table again.
    pub(crate) fn apply(self, table: &mut Table) -> Meta {
        for (member, before) in self.pending.into_iter().rev() {
            match before {
                Some(entry) => table.pending.insert(member, entry),
                None => table.pending.remove(&member),
            };
        }
        for (member, before) in self.revised.into_iter().rev() {
            match before {
                Some(revised) => table.revised.insert(member, revised),
                None => table.revised.remove(&member),
            };
        }
        for (provider, before) in self.rows.into_iter().rev() {
            table.roster.rewrite(&provider, before);
        }
        if let Some((tick, restarted)) = self.gap {
            // The gap has to be seen again, by a step that can record it.
            table.tick = tick;
            table.restarted = restarted;
        }
        table.resumed_at = self.meta.resumed_at;
        self.meta
    }
}
